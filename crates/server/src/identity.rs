//! Sign-in with identity providers: flows, admission, and the groups of people who have signed in.
//!
//! Groups are checked at use. A request whose login was checked more than `check_seconds` ago first
//! asks the provider, and open streams ask while they are open. Nobody is asked about while they do
//! nothing. One server asks at a time, because providers replace refresh tokens.

pub(crate) mod routes;
mod secret_seal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tamma_connect::oidc::{
    BrowserRequest, DeviceAnswer, DeviceCode, OidcClient, OidcError, ProviderSignIn, ProviderTokens,
};
use tamma_core::access::{AccessRights, GrantSource, Membership, RoleGrant};
use tamma_core::ids::{Digest, Name};
use tamma_core::operator::{IdentityProvider, IdentitySettings};
use tamma_core::task_loop::Timestamp;
use tamma_store::{
    CheckedLogin, Conflict, Credential, LoginCheck, NewLogin, NewSession, NewSignInFlow,
    SessionKind, SessionProof, Store,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::Error;
use crate::clock;
use crate::security_events::{SecurityEvent, record};
use crate::server;

pub(crate) use secret_seal::SecretSeal;

/// Age of a check up to which a request does not wait for one that runs.
const CHECK_REQUIRED: TimeDelta = TimeDelta::seconds(40);

/// Time that a server has for a check.
const CHECK_CLAIM: TimeDelta = TimeDelta::seconds(30);

/// Age of a check after which a login counts for nothing while its provider is unreachable.
const MAX_UNCHECKED: TimeDelta = TimeDelta::minutes(5);

/// Age of a check after which groups give no roles. It matters for tokens of people who have signed
/// out.
const GROUPS_VALID: TimeDelta = TimeDelta::minutes(15);

/// Pause between two looks at a check that runs elsewhere, and their number.
const CHECK_POLL: (Duration, u32) = (Duration::from_millis(200), 60);

/// Longest time between two checks of an open stream, with and without identity providers.
const STREAM_CHECKS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(1));

/// Time that a browser has at the provider.
const BROWSER_FLOW: TimeDelta = TimeDelta::minutes(10);

/// Duration of a session on the command line.
const CLI_SESSION: TimeDelta = TimeDelta::days(30);

/// Time between two looks at the active encryption key.
const RESEAL_INTERVAL: Duration = Duration::from_secs(30);

/// Number of logins that are read at once, to seal their tokens again.
const RESEAL_BATCH: u32 = 100;

/// Longest time between two looks for logins that have ended. Usually, the database tells of them.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);

/// Number of ended logins that are read at once.
const FORGET_BATCH: u32 = 20;

/// Time limits of device codes, in seconds, whatever the provider says.
const DEVICE_SECONDS: std::ops::RangeInclusive<i64> = 60..=1800;

/// Sign-in with the identity providers of the operator.
pub(crate) struct IdentityService {
    clients: Vec<OidcClient>,
    /// Age of a check after which the provider is asked again.
    check_after: Duration,
    sealing: SecretSeal,
    store: Store,
    base_url: String,
}

/// Person who has signed in with a provider.
#[derive(Debug, Clone)]
pub(crate) struct ProviderLogin {
    pub(crate) person: Name,
    pub(crate) login: Uuid,
    pub(crate) provider: String,
}

/// Answer of a provider to a browser, from the query of the callback.
#[derive(Debug, Default)]
pub(crate) struct CallbackQuery {
    pub(crate) code: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) error: Option<String>,
}

/// Device that has begun to sign in, with the secret that it polls with.
pub(crate) struct StartedDevice {
    pub(crate) secret: String,
    pub(crate) code: DeviceCode,
    pub(crate) seconds: i64,
}

/// Session of the command line.
pub(crate) struct CliSession {
    pub(crate) person: Name,
    pub(crate) token: String,
    pub(crate) until: Timestamp,
}

impl IdentityService {
    /// Creates the clients of all providers. `sealing` protects what is stored about logins.
    pub(crate) fn new(
        settings: &IdentitySettings,
        environment: &BTreeMap<String, String>,
        sealing: SecretSeal,
        store: Store,
        base_url: String,
    ) -> Result<Self, server::Error> {
        let mut clients = Vec::new();
        for provider in &settings.providers {
            let secret = match &provider.secret_variable {
                Some(variable) => {
                    let missing = || server::Error::IdentitySecret {
                        provider: provider.name.clone(),
                        variable: variable.clone(),
                    };
                    Some(environment.get(variable).cloned().ok_or_else(missing)?)
                }
                None => None,
            };
            clients.push(OidcClient::new(provider, &settings.hosts, secret)?);
        }
        let check_after = Duration::from_secs(settings.check_seconds.into());
        Ok(Self { clients, check_after, sealing, store, base_url })
    }

    /// Returns the providers, in the order of the sign-in page.
    pub(crate) fn providers(&self) -> impl Iterator<Item = &IdentityProvider> {
        self.clients.iter().map(OidcClient::settings)
    }

    /// Returns the time between two checks of an open stream.
    pub(crate) fn stream_check(&self) -> Duration {
        let (with, without) = STREAM_CHECKS;
        if self.clients.is_empty() { without } else { with.min(self.check_after) }
    }

    /// Returns the provider with an issuer.
    fn client_of_issuer(&self, issuer: &str) -> Option<&OidcClient> {
        self.clients.iter().find(|client| client.settings().issuer == issuer)
    }

    /// Returns the provider with a name.
    pub(crate) fn client(&self, name: &str) -> Result<&OidcClient, Error> {
        let client = self.clients.iter().find(|client| client.settings().name == name);
        let name: String = name.chars().take(40).collect();
        client.ok_or(Error::NotFound { what: "identity provider", key: name })
    }

    /// Begins the sign-in of a browser and returns the address that it goes to.
    pub(crate) async fn begin_browser(
        &self,
        provider: &str,
        cookie: &str,
        return_to: &str,
    ) -> Result<String, Error> {
        let client = self.client(provider)?;
        let (state, now) = (clock::new_secret(), clock::now());
        let secrets = BrowserSecrets::derive(&state, cookie);
        let redirect_uri = self.redirect_uri(provider);
        let request = secrets.request(&redirect_uri, &state);
        let url = client.authorization_url(&request, now).await.map_err(provider_error)?;
        let flow = NewSignInFlow {
            hash: Digest::of(state.as_bytes()),
            issuer: &client.settings().issuer,
            browser: Some((Digest::of(cookie.as_bytes()), return_to)),
            device: None,
            client: None,
            until: now + BROWSER_FLOW,
        };
        self.store.begin_sign_in(&flow).await?;
        Ok(url)
    }

    /// Ends the sign-in of a browser. Returns the login and the page to return to.
    pub(crate) async fn finish_browser(
        &self,
        provider: &str,
        cookie: &str,
        query: &CallbackQuery,
    ) -> Result<(ProviderLogin, String), Error> {
        let client = self.client(provider)?;
        let now = clock::now();
        let unknown = || {
            Error::SignInRefused(
                "This sign-in was not started in this browser, or it took too long.".to_owned(),
            )
        };
        let state = query.state.as_deref().ok_or_else(unknown)?;
        let (hash, browser) = (Digest::of(state.as_bytes()), Digest::of(cookie.as_bytes()));
        let issuer = client.settings().issuer.as_str();
        let return_to = self.store.take_browser_sign_in(hash, issuer, browser, now).await?;
        let return_to = return_to.ok_or_else(unknown)?;
        let code = match (&query.code, &query.error) {
            (Some(code), None) => code,
            (_, error) => {
                let reason = error.as_deref().unwrap_or("no code");
                let reason: String = reason.chars().take(100).collect();
                record(SecurityEvent::SignInRefused, "", provider, &reason);
                return Err(Error::SignInRefused(format!(
                    "The identity provider refused: {reason}."
                )));
            }
        };
        let secrets = BrowserSecrets::derive(state, cookie);
        let redirect_uri = self.redirect_uri(provider);
        let request = secrets.request(&redirect_uri, state);
        let signed_in = client.exchange_code(code, query.issuer.as_deref(), &request, now).await;
        let login = self.admit(client, signed_in.map_err(provider_error)?, now).await?;
        Ok((login, return_to))
    }

    fn redirect_uri(&self, provider: &str) -> String {
        format!("{}/sign-in/{provider}/callback", self.base_url)
    }

    /// Begins the sign-in of a device.
    pub(crate) async fn begin_device(
        &self,
        provider: &str,
        program: Option<&str>,
    ) -> Result<StartedDevice, Error> {
        let client = self.client(provider)?;
        let now = clock::now();
        let code = client.start_device(now).await.map_err(provider_error)?;
        let code = code.ok_or_else(|| {
            Error::invalid(
                format!("The identity provider {provider} cannot sign in a device."),
                "Sign in to the web UI, create an access token on the page of your account, and \
                 set it as TAMMA_TOKEN.",
            )
        })?;
        let secret = clock::new_secret();
        let hash = device_hash(&secret);
        let seconds = code.expires_in.clamp(*DEVICE_SECONDS.start(), *DEVICE_SECONDS.end());
        let sealed = self.seal(&hash.to_string(), &code.device_code)?;
        let flow = NewSignInFlow {
            hash,
            issuer: &client.settings().issuer,
            browser: None,
            device: Some((sealed.as_str(), code.interval.clamp(1, 60))),
            client: program,
            until: now + TimeDelta::seconds(seconds),
        };
        self.store.begin_sign_in(&flow).await?;
        Ok(StartedDevice { secret, code, seconds })
    }

    /// Returns the session of a device whose person has signed in; `None` while they have not.
    pub(crate) async fn poll_device(
        &self,
        provider: &str,
        secret: &str,
    ) -> Result<Option<CliSession>, Error> {
        let client = self.client(provider)?;
        let (hash, now) = (device_hash(secret), clock::now());
        let issuer = client.settings().issuer.as_str();
        let Some(device) = self.store.poll_device_sign_in(hash, issuer, now).await? else {
            if self.store.is_device_waiting(hash, now).await? {
                return Ok(None);
            }
            let detail = "The code has expired, or it was used before.";
            return Err(Error::SignInRefused(detail.to_owned()));
        };
        let code = self.sealing.open(&hash.to_string(), &device.device_code);
        let code = code.ok_or_else(|| Error::Internal("device code cannot be opened".into()))?;
        let signed_in = match client.poll_device(&code, now).await {
            Ok(DeviceAnswer::Pending) => return Ok(None),
            Ok(DeviceAnswer::SlowDown) => {
                self.store.slow_device_down(hash).await?;
                return Ok(None);
            }
            Ok(DeviceAnswer::SignedIn(signed_in)) => *signed_in,
            Err(error) if error.is_retryable() => return Err(provider_error(error)),
            Err(error) => {
                self.store.end_device_sign_in(hash).await?;
                record(SecurityEvent::SignInRefused, "", provider, &error.to_string());
                return Err(provider_error(error));
            }
        };
        self.store.end_device_sign_in(hash).await?;
        let login = self.admit(client, signed_in, now).await?;
        let (token, until) = (clock::new_token(), now + CLI_SESSION);
        let new = NewSession {
            hash: Digest::of(token.as_bytes()),
            person: &login.person,
            proof: SessionProof::Login(login.login),
            kind: SessionKind::Cli,
            client: device.client.as_deref(),
            until,
        };
        self.store.open_session(new).await?;
        record(SecurityEvent::SignedIn, login.person.as_str(), &login.provider, "command line");
        Ok(Some(CliSession { person: login.person, token, until }))
    }

    /// Ends the logins that a provider's logout token names, and returns their number.
    pub(crate) async fn provider_logout(&self, provider: &str, token: &str) -> Result<u64, Error> {
        let client = self.client(provider)?;
        let logout = client.read_logout(token, clock::now()).await.map_err(provider_error)?;
        let (sid, subject) = (logout.sid.as_deref(), logout.subject.as_deref());
        let ended = self.store.end_logins(&client.settings().issuer, sid, subject).await?;
        let detail = format!("{ended} logins ended");
        record(SecurityEvent::ProviderLogout, subject.unwrap_or_default(), provider, &detail);
        Ok(ended)
    }

    /// Lets a person in, if one of their groups has a role, and saves the login. At the first time,
    /// their account is made.
    async fn admit(
        &self,
        client: &OidcClient,
        signed_in: ProviderSignIn,
        now: Timestamp,
    ) -> Result<ProviderLogin, Error> {
        let settings = client.settings();
        let ProviderSignIn { subject, name, groups, sid, tokens } = signed_in;
        let refused = |detail: String| {
            record(SecurityEvent::SignInRefused, &subject, &settings.name, &detail);
            Error::SignInRefused(detail)
        };
        let known = self.store.identity(&settings.issuer, &subject).await?;
        if let Some(known) = known.as_ref().filter(|known| known.is_deactivated) {
            return Err(refused(format!("The account of {} is deactivated.", known.person)));
        }
        let is_linked = known.as_ref().is_some_and(|known| known.is_linked);
        if !is_linked && !settings.admits(&groups) {
            let label = settings.label();
            return Err(refused(format!("None of your groups at {label} has a role here.")));
        }
        let person = if let Some(known) = known {
            known.person
        } else {
            let name = name.as_deref().and_then(Name::parse_account).ok_or_else(|| {
                let claim = &settings.name_claim;
                refused(format!(
                    "The claim `{claim}` is not a name of 1 to 100 visible characters, or it is reserved."
                ))
            })?;
            if self.store.is_name_used(&name).await? {
                return Err(refused(name_taken(&name, settings, &subject)));
            }
            name
        };
        let login = clock::new_id();
        let text = serde_json::to_string(&tokens).map_err(|error| Error::Internal(error.into()))?;
        let sealed = self.seal(&login.to_string(), &text)?;
        let added = self
            .store
            .add_login(&NewLogin {
                ids: [login, clock::new_id(), clock::new_id()],
                issuer: &settings.issuer,
                subject: &subject,
                person: &person,
                groups: &groups,
                sid: sid.as_deref(),
                tokens: &sealed,
                now,
            })
            .await;
        match added {
            Ok(()) => Ok(ProviderLogin { person, login, provider: settings.name.clone() }),
            // Somebody with the same name was faster.
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => {
                Err(refused(name_taken(&person, settings, &subject)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn seal(&self, context: &str, text: &str) -> Result<String, Error> {
        let sealed = self.sealing.seal(context, text);
        sealed.ok_or_else(|| Error::Internal("cannot seal tokens".into()))
    }

    /// Seals the tokens of open logins with the active key, at the start and after each rotation.
    pub(crate) async fn keep_sealed(&self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(RESEAL_INTERVAL);
        let mut last = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let Some(start) = self.sealing.sealed_start() else { continue };
            if last.as_ref() == Some(&start) {
                continue;
            }
            match self.reseal_logins(&start).await {
                Ok(count) => {
                    if count > 0 {
                        tracing::info!(count, "tokens of logins sealed with the active key");
                    }
                    last = Some(start);
                }
                Err(error) => tracing::warn!(%error, "failed to seal tokens again; retrying"),
            }
        }
    }

    /// Seals all tokens again that do not start with a text. Returns their number. Tokens whose key is
    /// missing stay as they are.
    async fn reseal_logins(&self, start: &str) -> Result<usize, Error> {
        let (mut last, mut count) = (Uuid::nil(), 0);
        loop {
            let logins = self.store.logins_sealed_otherwise(start, last, RESEAL_BATCH).await?;
            let Some((end, _)) = logins.last() else { return Ok(count) };
            last = *end;
            for (login, sealed) in &logins {
                let context = login.to_string();
                let Some(text) = self.sealing.open(&context, sealed) else { continue };
                let resealed = self.seal(&context, &text)?;
                self.store.replace_login_tokens(*login, sealed, &resealed).await?;
                count += 1;
            }
        }
    }

    /// Deletes the tokens of logins that have ended, and revokes them at their provider, until `stop` is
    /// cancelled. `revoked` signals that somebody may have lost a right.
    pub(crate) async fn forget_ended_logins(
        &self,
        mut revoked: watch::Receiver<()>,
        stop: CancellationToken,
    ) {
        let mut ticks = tokio::time::interval(FORGET_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = revoked.changed() => {}
                () = stop.cancelled() => return,
            }
            let forgotten = tokio::select! {
                forgotten = self.revoke_ended_logins() => forgotten,
                () = stop.cancelled() => return,
            };
            if let Err(error) = forgotten {
                tracing::warn!(%error, "failed to delete tokens of ended logins; retrying");
            }
        }
    }

    async fn revoke_ended_logins(&self) -> Result<(), Error> {
        loop {
            let ended = self.store.take_ended_logins(FORGET_BATCH).await?;
            if ended.is_empty() {
                return Ok(());
            }
            for login in &ended {
                if login.is_shared {
                    continue;
                }
                let text = self.sealing.open(&login.id.to_string(), &login.tokens);
                let tokens =
                    text.and_then(|text| serde_json::from_str::<ProviderTokens>(&text).ok());
                let client = self.client_of_issuer(&login.issuer);
                let (Some(client), Some(tokens)) = (client, tokens) else { continue };
                // Once only: the provider ends what it has given out at some time.
                if let Err(error) = client.revoke(&tokens, clock::now()).await {
                    tracing::warn!(%error, "failed to revoke tokens at the identity provider");
                }
            }
        }
    }

    /// Checks the groups behind a credential, if the last check is too old. Returns `true` if the
    /// credential must be read again.
    pub(crate) async fn check_due(
        self: &Arc<Self>,
        credential: &Credential,
    ) -> Result<bool, Error> {
        if self.clients.is_empty() && credential.login.is_none() {
            return Ok(false);
        }
        let (pause, looks) = CHECK_POLL;
        let mut has_waited = false;
        for _ in 0..looks {
            let login = self.store.login_to_check(&credential.person, credential.login).await?;
            // A login that has just ended is read again, and then refused.
            let Some(login) = login else { return Ok(credential.login.is_some()) };
            let now = clock::now();
            let age = now - login.checked_at;
            // A time in the future is not older.
            if age.to_std().unwrap_or_default() < self.check_after {
                return Ok(has_waited);
            }
            match self.store.claim_login_check(login.id, now, now + CHECK_CLAIM).await? {
                Some(tokens) => {
                    // In a task of its own: a request that is aborted must not lose a new refresh token.
                    let service = Arc::clone(self);
                    let is_own = credential.login.is_some();
                    let check = async move { service.check(&login, &tokens, now).await };
                    let checked = tokio::spawn(check).await;
                    let checked = checked.map_err(|error| Error::Internal(error.into()))?;
                    // A token can have roles that no provider gives.
                    return if is_own { checked.map(|()| true) } else { Ok(true) };
                }
                None if age < CHECK_REQUIRED => return Ok(has_waited),
                None => tokio::time::sleep(pause).await,
            }
            has_waited = true;
        }
        let source = "a check of the groups takes too long".into();
        Err(Error::Unavailable { what: "the identity provider", source })
    }

    /// Asks a provider about a login. Fails only if the login cannot be used until it answers.
    async fn check(&self, login: &CheckedLogin, sealed: &str, now: Timestamp) -> Result<(), Error> {
        let context = login.id.to_string();
        let tokens = self.sealing.open(&context, sealed);
        let tokens = tokens.and_then(|text| serde_json::from_str::<ProviderTokens>(&text).ok());
        let ended = |detail: &str| {
            record(SecurityEvent::LoginEnded, &login.subject, &login.issuer, detail);
        };
        // The operator has removed the provider, or the server has a new token.
        let (Some(client), Some(tokens)) = (self.client_of_issuer(&login.issuer), tokens) else {
            ended("the provider or its tokens cannot be used any more");
            return Ok(self.store.finish_login_check(login.id, LoginCheck::Refused, now).await?);
        };
        let checked = match client.check(&tokens, &login.subject, now).await {
            Ok(checked) => checked,
            Err(error @ (OidcError::Refused { .. } | OidcError::Token { .. })) => {
                ended(&error.to_string());
                let refused = LoginCheck::Refused;
                return Ok(self.store.finish_login_check(login.id, refused, now).await?);
            }
            Err(error) => {
                let unknown = LoginCheck::Unknown { tokens: None };
                self.store.finish_login_check(login.id, unknown, now).await?;
                tracing::warn!(%error, "cannot check the groups of a login");
                return without_answer(login, now);
            }
        };
        let text = serde_json::to_string(&checked.tokens);
        let text = text.map_err(|error| Error::Internal(error.into()))?;
        let sealed = self.seal(&context, &text)?;
        let Some(groups) = checked.groups else {
            let unknown = LoginCheck::Unknown { tokens: Some(&sealed) };
            self.store.finish_login_check(login.id, unknown, now).await?;
            return without_answer(login, now);
        };
        let known = self.store.identity(&login.issuer, &login.subject).await?;
        let is_linked = known.is_some_and(|known| known.is_linked);
        let result = if client.settings().admits(&groups) || is_linked {
            LoginCheck::Admitted { groups: &groups, tokens: &sealed }
        } else {
            ended("no group with a role is left");
            LoginCheck::NotAdmitted
        };
        Ok(self.store.finish_login_check(login.id, result, now).await?)
    }

    /// Returns the rights of a person: the roles that were granted to them in projects and
    /// organisations, and those of their groups.
    pub(crate) async fn rights_of(&self, person: &Name) -> Result<AccessRights, Error> {
        let issuers: Vec<_> = self.providers().map(|provider| provider.issuer.clone()).collect();
        let mut grants = self.store.grants_of(person, &issuers).await?;
        grants.extend(self.group_roles(person).await?.into_iter().map(|(grant, _)| grant));
        Ok(AccessRights::Person(Membership::from_grants(&grants)))
    }

    /// Returns `true` if a person came from identity providers, and the operator has removed all of them.
    pub(crate) async fn has_lost_provider(&self, person: &Name) -> Result<bool, Error> {
        let groups = self.store.groups_of(person, clock::now()).await?;
        let is_removed = |issuer: &str| self.client_of_issuer(issuer).is_none();
        Ok(!groups.is_empty() && groups.iter().all(|(issuer, _)| is_removed(issuer)))
    }

    /// Returns `true` if there is more than one organisation.
    pub(crate) async fn has_several_organisations(&self) -> Result<bool, Error> {
        Ok(self.store.organisations().await?.len() > 1)
    }

    /// Returns the groups of a person, each after the name of its provider, such as
    /// `company/engineers`.
    pub(crate) async fn groups_of(&self, person: &Name) -> Result<Vec<String>, Error> {
        if self.clients.is_empty() {
            return Ok(Vec::new());
        }
        let groups = self.store.groups_of(person, clock::now() - GROUPS_VALID).await?;
        let named = groups.into_iter().filter_map(|(issuer, groups)| {
            let provider = self.client_of_issuer(&issuer)?.settings().name.clone();
            Some(groups.into_iter().map(move |group| format!("{provider}/{group}")))
        });
        Ok(named.flatten().collect())
    }

    /// Returns the highest role that groups give in each project and organisation, with the provider.
    ///
    /// Each organisation in which the provider gives roles has a grant, also without a role: people
    /// whose groups are unknown are not in the default organisation for that reason.
    pub(crate) async fn group_roles(
        &self,
        person: &Name,
    ) -> Result<Vec<(RoleGrant, String)>, Error> {
        if self.clients.is_empty() {
            return Ok(Vec::new());
        }
        let groups = self.store.groups_of(person, clock::now() - GROUPS_VALID).await?;
        let mut roles = Vec::new();
        for (issuer, groups) in groups {
            let Some(client) = self.client_of_issuer(&issuer) else { continue };
            let settings = client.settings();
            for organisation in self.store.organisations().await? {
                let projects =
                    organisation.projects.iter().map(|(name, id)| (Some(name), Some(*id)));
                for (name, project) in projects.chain([(None, None)]) {
                    let name = name.map(String::as_str);
                    let role = settings.role_in(&organisation.name, name, &groups);
                    let source = GrantSource::Group;
                    let grant = RoleGrant { organisation: organisation.id, project, source, role };
                    let is_member =
                        project.is_none() && settings.gives_roles_in(&organisation.name);
                    if role.is_some() || is_member {
                        roles.push((grant, settings.name.clone()));
                    }
                }
            }
        }
        Ok(roles)
    }
}

/// Decides about a login whose provider did not answer: it stays valid for a while.
fn without_answer(login: &CheckedLogin, now: Timestamp) -> Result<(), Error> {
    if now - login.checked_at <= MAX_UNCHECKED {
        return Ok(());
    }
    let source = "no check of the groups for too long".into();
    Err(Error::Unavailable { what: "the identity provider", source })
}

/// Secrets of a browser's sign-in, derived from its cookie, so that they are stored nowhere else.
struct BrowserSecrets {
    nonce: String,
    verifier: String,
}

impl BrowserSecrets {
    fn derive(state: &str, cookie: &str) -> Self {
        let derive = |purpose: &str| {
            Digest::of(format!("{purpose} {state} {cookie}").as_bytes()).to_string()
        };
        Self { nonce: derive("nonce"), verifier: derive("verifier") }
    }

    fn request<'a>(&'a self, redirect_uri: &'a str, state: &'a str) -> BrowserRequest<'a> {
        BrowserRequest { redirect_uri, state, nonce: &self.nonce, verifier: &self.verifier }
    }
}

/// Returns the key under which the sign-in of a device is stored.
fn device_hash(secret: &str) -> Digest {
    Digest::of(format!("device sign-in {secret}").as_bytes())
}

fn name_taken(name: &Name, settings: &IdentityProvider, subject: &str) -> String {
    format!(
        "The name {name} is already in use here. If it is yours, ask an operator to link it: `tamma \
         person link \"{name}\" --provider {} --subject \"{subject}\"`.",
        settings.name
    )
}

/// Converts the error of a provider for the person who signs in.
fn provider_error(error: OidcError) -> Error {
    match error {
        OidcError::Unreachable { .. } | OidcError::Unusable { .. } => {
            Error::Unavailable { what: "the identity provider", source: error.into() }
        }
        OidcError::Refused { .. } | OidcError::Token { .. } => {
            tracing::warn!(%error, "identity provider refused");
            Error::SignInRefused(format!("{}.", tamma_core::format::capitalize(&error.to_string())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_sign_in_belong_to_its_browser_and_its_state() {
        let one = BrowserSecrets::derive("state", "cookie");
        assert_ne!(one.nonce, one.verifier);
        assert_eq!(one.verifier.len(), 64, "at least 43 characters, by RFC 7636");
        for (state, cookie) in [("state", "other"), ("other", "cookie")] {
            let other = BrowserSecrets::derive(state, cookie);
            assert_ne!((&one.nonce, &one.verifier), (&other.nonce, &other.verifier));
        }
    }

    #[test]
    fn names_in_claims_are_one_line() {
        for (text, name) in
            [(" Ada ", "Ada"), ("Zoë de Ó", "Zoë de Ó"), ("Everybody Else", "Everybody Else")]
        {
            let parsed = Name::parse_account(text).map(|name| name.to_string());
            assert_eq!(parsed.as_deref(), Some(name));
        }
        for text in ["", "  ", "a\nb", "a\u{7f}b", &"x".repeat(101)] {
            assert_eq!(Name::parse_account(text), None, "{text:?}");
        }
    }

    #[test]
    fn names_in_claims_do_not_look_like_others() {
        for text in ["Gra\u{200b}ce", "Grace\u{fe0f}", "\u{202e}Grace", "Grace\u{a0}H", "Grace  H"]
        {
            assert_eq!(Name::parse_account(text), None, "{text:?}");
        }
        assert_eq!(Name::parse_account("Everybody"), None);
    }
}
