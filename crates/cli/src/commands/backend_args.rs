//! Arguments that name the database, Temporal and the data folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use tamma_store::ObjectStorage;

use crate::{data_folder, roles};

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
}

impl BackendArgs {
    /// Private servers and all files in one data folder.
    pub(crate) fn private(data: PathBuf) -> Self {
        Self { database: None, temporal: None, data: Some(data), objects: None }
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

    /// Data folder from the arguments, or `None` for the default.
    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref().filter(|path| !path.as_os_str().is_empty())
    }
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
    pub(crate) fn resolve(&self) -> Result<PathBuf, data_folder::Error> {
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
