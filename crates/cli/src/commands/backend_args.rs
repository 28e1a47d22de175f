//! Arguments that name the database, Temporal and the data folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use tamma_keys::{KeyFile, KeyFileError, Keys};
use tamma_store::ObjectStorage;

use crate::data_folder;
use crate::roles::{self, now};
use crate::temporal_connection::{TemporalTarget, TemporalTlsArgs};

/// Name of the key file in the data folder.
const KEYS_FILE: &str = "keys.json";

/// Servers and folders that a command uses.
#[derive(Debug, Args)]
pub(crate) struct BackendArgs {
    #[arg(
        long,
        env = "TAMMA_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        help = "PostgreSQL URL, such as postgres://tamma@db.example.com/tamma [default with `tamma up`: a private server]"
    )]
    database: Option<String>,
    #[arg(
        long,
        env = "TAMMA_TEMPORAL_ADDRESS",
        hide_env_values = true,
        value_name = "ADDRESS",
        help = "Temporal address, such as temporal.example.com:7233 [default with `tamma up`: a private server]"
    )]
    temporal: Option<String>,
    #[arg(
        long,
        env = "TAMMA_DATA",
        hide_env_values = true,
        value_name = "FOLDER",
        help = "Data folder [default: $XDG_DATA_HOME/tamma or ~/.local/share/tamma; /var/lib/tamma for root]"
    )]
    data: Option<PathBuf>,
    #[arg(
        long,
        env = "TAMMA_OBJECTS",
        hide_env_values = true,
        value_name = "LOCATION",
        help = "Folder or bucket (s3://BUCKET/PREFIX) for large files such as transcripts, shared by the API server and all workers [default: objects in the data folder]"
    )]
    objects: Option<String>,
    #[arg(
        long,
        env = "TAMMA_KEYS",
        hide_env_values = true,
        value_name = "FILE",
        help = "Encryption keys, the same for all processes of an installation [default: keys.json in the data folder]"
    )]
    keys: Option<PathBuf>,
    #[command(flatten)]
    temporal_tls: TemporalTlsArgs,
}

impl BackendArgs {
    /// Private servers and all files in one data folder.
    pub(crate) fn private(data: PathBuf) -> Self {
        Self {
            database: None,
            temporal: None,
            data: Some(data),
            objects: None,
            keys: None,
            temporal_tls: TemporalTlsArgs::default(),
        }
    }

    /// Database URL. An empty value counts as unset.
    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref().filter(|url| !url.is_empty())
    }

    /// Temporal address. An empty value counts as unset.
    pub(crate) fn temporal(&self) -> Option<&str> {
        self.temporal.as_deref().filter(|address| !address.is_empty())
    }

    /// Object store, by default in `data`.
    pub(crate) fn objects(&self, data: &Path) -> ObjectStorage {
        let location = self.objects.clone().filter(|location| !location.is_empty());
        let location = location.unwrap_or_else(|| data.join("objects").display().to_string());
        // Credentials, region and endpoint of a bucket.
        let settings = roles::environment().into_iter().filter(|it| it.0.starts_with("AWS_"));
        ObjectStorage::new(location).with_settings(settings)
    }

    /// File of the encryption keys, by default in `data`.
    pub(crate) fn key_file(&self, data: &Path) -> KeyFile {
        key_file(self.keys.as_deref(), data)
    }

    /// Files with the private keys that this process shows to PostgreSQL and Temporal.
    pub(crate) fn private_keys(&self) -> Vec<PathBuf> {
        let database = self.database().and_then(client_key);
        database.into_iter().chain(self.temporal_tls.key_file().map(Path::to_owned)).collect()
    }

    /// Returns the URL of the database and the address of Temporal, for roles that start neither.
    pub(crate) fn servers(&self) -> Result<(&str, &str)> {
        match (self.database(), self.temporal()) {
            (Some(database), Some(temporal)) => Ok((database, temporal)),
            _ => bail!(
                "no servers configured\n  help: set --database (TAMMA_DATABASE_URL) and --temporal \
                 (TAMMA_TEMPORAL_ADDRESS), or use `tamma up`, which starts private ones"
            ),
        }
    }

    /// Returns the encryption keys. A private Temporal server belongs to this data folder alone, so its
    /// keys are created with it. Another one can have other processes, which need the same keys.
    pub(crate) fn open_keys(&self, data: &Path) -> Result<Keys, KeyFileError> {
        let file = self.key_file(data);
        if self.temporal().is_none() {
            file.read_or_create(now())?;
        }
        Keys::open(file)
    }

    /// Returns the configured Temporal server. A private one gets its address when it has started, and
    /// cannot have TLS: only this machine reaches it.
    pub(crate) fn temporal_target(&self, keys: Keys) -> Result<TemporalTarget> {
        let (address, tls) = match self.temporal() {
            Some(address) => (address.to_owned(), self.temporal_tls.options()?),
            None if self.temporal_tls.options()?.is_some() => bail!(
                "a private Temporal server has no TLS\n  help: set --temporal \
                 (TAMMA_TEMPORAL_ADDRESS) to the server with TLS, or remove --temporal-tls… \
                 (TAMMA_TEMPORAL_TLS…)"
            ),
            None => (String::new(), None),
        };
        Ok(TemporalTarget { address, tls, keys })
    }

    /// Data folder from the arguments, or `None` for the default.
    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref().filter(|path| !path.as_os_str().is_empty())
    }
}

/// Returns the file that the URL of a database names as the client's private key.
fn client_key(url: &str) -> Option<PathBuf> {
    let url = reqwest::Url::parse(url).ok()?;
    let (_, path) = url.query_pairs().find(|(name, _)| name == "sslkey" || name == "ssl-key")?;
    Some(PathBuf::from(path.into_owned()))
}

/// Returns the file of the encryption keys: the given one, or `keys.json` in the data folder.
pub(crate) fn key_file(explicit: Option<&Path>, data: &Path) -> KeyFile {
    let explicit = explicit.filter(|path| !path.as_os_str().is_empty());
    KeyFile::new(explicit.map_or_else(|| data.join(KEYS_FILE), Path::to_owned))
}

/// Data folder of commands about the `tamma up` on this machine.
#[derive(Debug, Args)]
pub(crate) struct DataFolderArgs {
    /// Data folder, as for `tamma up`
    #[arg(long, env = "TAMMA_DATA", hide_env_values = true, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

impl DataFolderArgs {
    /// Returns the data folder. An empty value counts as unset.
    pub(crate) fn resolve(&self) -> std::result::Result<PathBuf, data_folder::Error> {
        let data = self.data.as_deref().filter(|path| !path.as_os_str().is_empty());
        data_folder::resolve(data)
    }
}

/// Monitoring endpoint of a process.
#[derive(Debug, Args)]
pub(crate) struct MonitoringArgs {
    /// Serve /metrics, /livez and /readyz on this address, without authentication
    #[arg(long, env = "TAMMA_MONITORING", hide_env_values = true, value_name = "ADDRESS")]
    pub(crate) monitoring: Option<SocketAddr>,
}

/// Permission of the operator to replace prompts.
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// Allow projects to replace the built-in prompts (`prompts` in tamma.yaml)
    #[arg(long, env = "TAMMA_ALLOW_PROJECT_PROMPTS", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) allow_project_prompts: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        backend: BackendArgs,
    }

    #[test]
    fn tls_to_a_private_temporal_server_is_an_error() {
        let folder = tempfile::tempdir().expect("folder");
        let target = |arguments: &[&str]| {
            let line = std::iter::once("tamma").chain(arguments.iter().copied());
            let backend = CommandLine::try_parse_from(line).expect("valid").backend;
            let keys = BackendArgs::private(folder.path().to_owned()).open_keys(folder.path());
            backend.temporal_target(keys.expect("keys"))
        };
        assert!(target(&[]).expect("private").tls.is_none());
        for arguments in [&["--temporal-tls"][..], &["--temporal-tls-server-name", "a"]] {
            let error = target(arguments).err().expect("refused").to_string();
            assert!(error.starts_with("a private Temporal server has no TLS"), "{error}");
            let mut with_address = arguments.to_vec();
            with_address.extend(["--temporal", "https://temporal.example:7233"]);
            assert!(target(&with_address).expect("valid").tls.is_some());
        }
    }

    #[test]
    fn the_private_key_of_the_database_url_is_found() {
        assert_eq!(client_key("postgres://tamma@db.example.com/tamma"), None);
        assert_eq!(client_key("postgres://db/tamma?sslmode=verify-full&sslcert=/etc/a.pem"), None);
        let expected = Some(PathBuf::from("/srv/my key.pem"));
        assert_eq!(
            client_key("postgres://db/tamma?sslcert=/a.pem&sslkey=/srv/my%20key.pem"),
            expected
        );
        assert_eq!(
            client_key("postgres:///tamma?host=/run/postgresql&ssl-key=/srv/my key.pem"),
            expected
        );
    }
}
