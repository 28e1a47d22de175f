//! API server: configuration, startup and shutdown.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::serve::ListenerExt as _;
use futures_util::future::BoxFuture;
use tamma_connect::forge::Forges;
use tamma_core::ids::{CommitId, Digest, Name, ProjectId};
use tamma_core::operator::{IdentitySettings, OperatorConfig, TlsSettings, WebOrigin};
use tamma_flow::WorkflowTuning;
use tamma_keys::Keys;
use tamma_policy::{PeoplePolicies, PolicyFileError};
use tamma_store::{
    KnowledgeCache, LineChanges, ObjectStorage, Revocations, SessionProof, Store, TaskChanges,
};
use temporalio_client::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alert_dispatcher::{AlertDispatcher, TerminalSender};
use crate::app::App;
use crate::audit::{AuditExporter, AuditLog};
use crate::auth::Authenticator;
use crate::forge_poller::ForgePoller;
use crate::identity::{IdentityService, SecretSeal};
use crate::live::LiveUpdates;
use crate::reconciler::Reconciler;
use crate::tls::{ServerCertificate, TlsError, TlsListener};
use crate::web::SessionLayer;
use crate::{api, codec_endpoint, edge, identity, web, webhooks};

/// Configuration of the server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Server's token, which every operator sends.
    pub token: String,
    /// Environment variables, which override the rules of projects.
    pub environment: BTreeMap<String, String>,
    /// Settings of the operator, which limit the rules of projects.
    pub operator: OperatorConfig,
    /// Encryption keys of the installation.
    pub keys: Keys,
    /// Timeouts and retries of new workflows.
    pub workflow_tuning: WorkflowTuning,
    /// Time between two comparisons of the tasks with their workflows.
    pub reconcile_interval: Duration,
    /// Storage for large objects, such as transcripts.
    pub objects: ObjectStorage,
    /// External URL of the server, if it differs from the address.
    pub public_url: Option<String>,
    /// Receiver of alerts for the terminal; `None` without a terminal.
    pub terminal: Option<TerminalSender>,
    /// Access to repositories; `None` if this server cannot read them.
    pub inspect_repository: Option<RepositoryInspector>,
    /// Access to the configuration of remote repositories; `None` if they have none.
    pub read_remote_config: Option<RemoteConfigReader>,
    /// Access to files of commits; `None` if this server has no repositories.
    pub read_commit_file: Option<CommitFileReader>,
    /// Folder with the settings of forges, which may be missing.
    pub forges: PathBuf,
    /// Cedar policies of the operator about what people do, by the names of their files.
    pub policies: BTreeMap<String, String>,
    /// Folder for a certificate from an authority (ACME), unless the operator names another one.
    pub acme: PathBuf,
}

/// Contents of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryContents {
    /// Paths of all files, relative to the root.
    pub files: Vec<String>,
    /// Requested commits that the repository lacks.
    pub missing_commits: Vec<String>,
}

/// Lists the files of a repository and looks up commits. Returns `None` if it is not accessible.
pub type RepositoryInspector = Arc<
    dyn Fn(String, Vec<String>) -> BoxFuture<'static, Option<RepositoryContents>> + Send + Sync,
>;

/// Reads `tamma.yaml` from the base branch of a remote repository, by its address. Returns `None` if
/// there is no such file, or the reason why it cannot be read. It is called often, so it caches.
pub type RemoteConfigReader =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Option<String>, String>> + Send + Sync>;

/// File at a commit, for the pages of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFile {
    /// Project of the repository.
    pub project: ProjectId,
    /// Path or URL of the repository.
    pub repository: String,
    /// Commit, which may exist in Tamma's mirror only.
    pub commit: CommitId,
    /// Path from the repository root.
    pub path: String,
    /// Maximum size in bytes. A larger file is not returned.
    pub max_bytes: usize,
}

/// Reads a file at a commit, without reaching the network. Returns `None` if this machine lacks the
/// commit or the file, or if the file is too large.
pub type CommitFileReader =
    Arc<dyn Fn(CommitFile) -> BoxFuture<'static, Option<Vec<u8>>> + Send + Sync>;

impl ServerConfig {
    /// Checks the token and the address before anything is started.
    pub fn check(&self) -> Result<(), Error> {
        let Self { address, token, .. } = self;
        if token.chars().count() < MIN_TOKEN {
            return Err(Error::WeakToken(token.chars().count()));
        }
        if let Some(tls) = &self.operator.tls {
            let url = self.public_url.as_deref().filter(|url| is_https(url));
            let url = url.ok_or(Error::TlsWithoutUrl)?;
            if matches!(tls, TlsSettings::Acme(_)) && host_name(url).is_none() {
                return Err(Error::AcmeHost(url.to_owned()));
            }
        }
        let taken = |source| Error::Bind { address: *address, source };
        std::net::TcpListener::bind(address).map(drop).map_err(taken)
    }
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Token and environment contain secrets.
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("token", &"…")
            .finish_non_exhaustive()
    }
}

fn is_https(url: &str) -> bool {
    url.to_lowercase().starts_with("https://")
}

/// Returns the host of a URL; `None` for an IP address.
fn host_name(url: &str) -> Option<String> {
    let origin = WebOrigin::parse(url)?;
    let host = origin.host().trim_end_matches('.');
    host.parse::<IpAddr>().is_err().then(|| host.to_owned())
}

/// Error that prevents the server from running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The token is too short.
    #[error("the token has {0} characters; use at least {MIN_TOKEN}")]
    WeakToken(usize),
    /// The address is in use or not available.
    #[error(
        "cannot listen on {address}: stop the program that uses it, or choose another address with \
         `--listen` or TAMMA_LISTEN (port 0 selects a free port)"
    )]
    Bind {
        /// Address from the configuration.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The database cannot separate the organisations.
    #[error(
        "there are several organisations, and this server cannot use the database role tamma_tenant, \
         which keeps their data apart: create it, and grant it to the role of this server \
         (docs/organisations.md)"
    )]
    RowSecurity,
    /// Notifications of the database cannot be received.
    #[error("cannot receive notifications from the database")]
    Store(#[from] tamma_store::Error),
    /// The HTTP client for alerts cannot be created.
    #[error("cannot set up alert delivery")]
    Alerts(#[from] tamma_connect::message::Error),
    /// Client of an identity provider cannot be created.
    #[error("cannot set up sign-in with an identity provider")]
    Identity(#[from] tamma_connect::oidc::OidcError),
    /// Secret of an identity provider is missing.
    #[error(
        "the identity provider `{provider}` has no secret: set the variable {variable}, or remove \
         `secret_variable` from operator.yaml for a public client"
    )]
    IdentitySecret {
        /// Name of the provider.
        provider: String,
        /// Variable in the settings.
        variable: String,
    },
    /// A policy file is not valid.
    #[error("a policy of the operator is not valid; correct or remove its file")]
    Policies(#[from] PolicyFileError),
    /// Crypto library failed.
    #[error("cannot derive the key for tokens of identity providers")]
    Sealing,
    /// Certificate cannot be used.
    #[error("cannot use TLS")]
    Tls(#[from] TlsError),
    /// Nobody could find the server under the name in its certificate.
    #[error(
        "`tls` in operator.yaml needs the URL of this server, with the name in its certificate: set \
         `--public-url` or TAMMA_PUBLIC_URL to one that starts with https://"
    )]
    TlsWithoutUrl,
    /// No authority issues a certificate for this URL.
    #[error(
        "`tls.acme` in operator.yaml gets a certificate for the host of this server's URL, and `{0}` has no \
         host name: set `--public-url` or TAMMA_PUBLIC_URL to one such as https://tamma.example.com"
    )]
    AcmeHost(String),
    /// Accepting connections failed.
    #[error("cannot accept connections")]
    Io(#[from] std::io::Error),
}

/// Returns a store that can read for single organisations. Only one organisation can do without.
async fn with_row_security(store: Store) -> Result<Store, Error> {
    if let Some(store) = store.with_row_security().await? {
        return Ok(store);
    }
    if store.organisations().await?.len() > 1 {
        return Err(Error::RowSecurity);
    }
    tracing::warn!("row-level security is not available: the role tamma_tenant is missing");
    Ok(store)
}

/// Warns of roles of groups in organisations that do not exist. Nobody has such a role until somebody
/// adds the organisation.
async fn warn_of_unknown_organisations(
    identity: &IdentitySettings,
    store: &Store,
) -> Result<(), Error> {
    let organisations = store.organisations().await?;
    let known: Vec<_> = organisations.iter().map(|it| it.name.as_str()).collect();
    for provider in &identity.providers {
        for organisation in provider.unknown_organisations(&known) {
            tracing::warn!(
                provider = provider.name,
                organisation,
                "roles in operator.yaml name an organisation that does not exist"
            );
        }
    }
    Ok(())
}

/// Maximum size of any request body, in bytes. The API accepts less.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Minimum length of a token, in characters.
const MIN_TOKEN: usize = 16;

/// Server that is bound to its address.
pub struct ApiServer {
    listener: TcpListener,
    address: SocketAddr,
    /// Certificate; `None` for plain HTTP.
    certificate: Option<Arc<ServerCertificate>>,
    authenticator: Authenticator,
    app: App,
    alert_dispatcher: AlertDispatcher,
    reconciler: Reconciler,
    forge_poller: ForgePoller,
    audit_exporter: AuditExporter,
    /// Set if browsers reach the server by HTTPS.
    secure_cookies: bool,
    changes: (TaskChanges, LineChanges),
    revocations: (Revocations, watch::Sender<()>),
}

impl ApiServer {
    /// Binds the address. Requests are answered only after [`ApiServer::run`] is called.
    pub async fn bind(config: ServerConfig, store: Store, temporal: Client) -> Result<Self, Error> {
        config.check()?;
        let ServerConfig {
            address,
            token,
            environment,
            operator,
            keys,
            workflow_tuning,
            reconcile_interval,
            objects,
            inspect_repository,
            public_url,
            terminal,
            read_remote_config,
            read_commit_file,
            forges,
            policies,
            acme,
        } = config;
        let policies = PeoplePolicies::parse(&policies)?;
        if !policies.is_empty() {
            tracing::info!(policies = policies.len(), "policies loaded");
        }
        let store = with_row_security(store).await?;
        warn_of_unknown_organisations(&operator.identity, &store).await?;
        let host = public_url.as_deref().and_then(host_name).unwrap_or_default();
        let certificate = operator.tls.clone();
        let certificate = certificate.map(|tls| ServerCertificate::open(tls, &acme, &host));
        let certificate = certificate.transpose()?.map(Arc::new);
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })?;
        let address = listener.local_addr()?;
        let changes = (store.task_changes().await?, store.line_changes().await?);
        let environment = Arc::new(environment);
        let (live, knowledge_cache) = (LiveUpdates::new(), KnowledgeCache::new(&store));
        let public_url = public_url.map(|url| url.trim_end_matches('/').to_owned());
        let audit = AuditLog::new(store.clone());
        let audit_exporter = AuditExporter::new(audit.clone(), &operator.audit)?;
        let base_url = public_url.clone().unwrap_or_else(|| format!("http://{address}"));
        let identity = IdentityService::new(
            &operator.identity,
            &environment,
            SecretSeal::new(keys, &token).ok_or(Error::Sealing)?,
            store.clone(),
            base_url.clone(),
        )?;
        let identity = Arc::new(identity);
        let app = App {
            store,
            temporal,
            environment,
            operator: Arc::new(operator),
            workflow_tuning,
            newest_behaviour: Arc::default(),
            objects,
            live,
            knowledge_cache,
            inspect_repository,
            read_remote_config,
            read_commit_file,
            forges: Forges::open(&forges),
            public_url: public_url.clone(),
            audit,
            identity: Arc::clone(&identity),
            policies: Arc::new(policies),
            operator_token: Digest::of(token.as_bytes()),
        };
        // Read here once, so that adding a task usually needs no further query.
        let _ = app.new_task_behaviour().await;
        let secure_cookies = public_url.as_deref().is_some_and(is_https);
        let alert_dispatcher = AlertDispatcher::new(app.clone(), terminal, base_url)?;
        let reconciler = Reconciler::new(app.clone(), reconcile_interval);
        let forge_poller = ForgePoller::new(app.clone(), app.store.forge_hints().await?);
        let (revocation_sender, revoked) = watch::channel(());
        let authenticator = Authenticator::new(&token, app.store.clone(), identity, revoked);
        let revocations = (app.store.revocations().await?, revocation_sender);
        Ok(Self {
            listener,
            address,
            certificate,
            authenticator,
            app,
            alert_dispatcher,
            reconciler,
            forge_poller,
            audit_exporter,
            secure_cookies,
            changes,
            revocations,
        })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL at which clients on this machine reach the server. With TLS, it has the name in
    /// the certificate.
    pub fn url(&self) -> String {
        let public = self.certificate.as_ref().and(self.app.public_url.clone());
        public.unwrap_or_else(|| format!("http://{}", self.address))
    }

    /// Returns the URL of a page that signs an operator in under a name, once and within 10 min.
    pub async fn sign_in_link(&self, person: &Name) -> Result<String, tamma_store::Error> {
        let token = self.authenticator.operator_token();
        let proof = SessionProof::Token(token);
        let path = web::create_sign_in_link(&self.app.store, person, proof).await?;
        let own_url = || format!("http://{}", self.address);
        Ok(self.app.public_url.clone().unwrap_or_else(own_url) + &path)
    }

    /// Serves requests until `stop` is cancelled, then completes the open ones.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let live = self.app.live.clone();
        let (changes, lines) = self.changes;
        let alerts = Box::pin(self.alert_dispatcher.clone().run(stop.clone()));
        let reconciling = Box::pin(self.reconciler.run(stop.clone()));
        let polling = Box::pin(self.forge_poller.run(stop.clone()));
        let exporting = Box::pin(self.audit_exporter.run(stop.clone()));
        let identity = Arc::clone(&self.app.identity);
        let resealing = Box::pin(identity.keep_sealed(stop.clone()));
        let revoked = self.revocations.1.subscribe();
        let forgetting = Box::pin(identity.forget_ended_logins(revoked, stop.clone()));
        // The last requests complete their entries after `stop`.
        let served_all = CancellationToken::new();
        let auditing = Box::pin(self.app.audit.clone().run(served_all.clone()));
        let (mut revocations, revocation_sender) = self.revocations;
        let revoked = async {
            loop {
                match revocations.next().await {
                    Ok(()) => revocation_sender.send_replace(()),
                    Err(error) => return error,
                }
            }
        };
        let session_layer = SessionLayer {
            authenticator: self.authenticator.clone(),
            secure_cookies: self.secure_cookies,
        };
        let pages = web::router(self.app.clone(), session_layer, stop.clone());
        let hooks = webhooks::router(self.app.clone());
        let codec = codec_endpoint::router(self.app.clone(), self.authenticator.clone());
        let sign_in = web::provider_sign_in_router(self.app.clone(), self.secure_cookies)
            .merge(identity::routes::router(self.app.clone()));
        let router = api::router(self.app, self.alert_dispatcher, self.authenticator, stop.clone())
            .merge(pages)
            .merge(hooks)
            .merge(codec)
            .merge(sign_in)
            .fallback(web::not_found)
            .layer(middleware::from_fn_with_state(edge::REQUEST_TIMEOUT, edge::guard_request))
            .layer(middleware::map_response_with_state(
                self.certificate.is_some(),
                edge::require_https,
            ))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .into_make_service_with_connect_info::<SocketAddr>();
        let stopped = stop.clone().cancelled_owned();
        let certificate = self.certificate;
        let serving: BoxFuture<'_, std::io::Result<()>> =
            if let Some(certificate) = certificate.clone() {
                let listener = TlsListener::new(self.listener, self.address, certificate);
                // With a tap, axum knows the addresses of clients.
                let serving = axum::serve(listener.tap_io(|_| {}), router);
                Box::pin(serving.with_graceful_shutdown(stopped).into_future())
            } else {
                let serving = axum::serve(self.listener, router);
                Box::pin(serving.with_graceful_shutdown(stopped).into_future())
            };
        let reloading = async {
            match &certificate {
                Some(certificate) => certificate.keep_current().await,
                None => std::future::pending().await,
            }
        };
        let serving = async {
            let served = tokio::select! {
                served = serving => served.map_err(Error::from),
                () = reloading => Ok(()),
                error = live.forward_changes(changes, lines) => Err(error.into()),
                error = revoked => Err(error.into()),
            };
            stop.cancel();
            served_all.cancel();
            served
        };
        let identities = async { tokio::join!(resealing, forgetting) };
        tokio::join!(serving, alerts, reconciling, polling, exporting, auditing, identities).0
    }
}
