//! What somebody has already: a database, a Temporal, a place for data.

use std::path::{Path, PathBuf};

use clap::Args;
use tamma_store::Objects;

/// The servers and the folder that a command works with.
#[derive(Debug, Args)]
pub(crate) struct Given {
    /// A PostgreSQL that runs already, such as `postgres://tamma@db.example.com/tamma`. By default
    /// `tamma up` starts a private one.
    #[arg(long, env = "TAMMA_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database: Option<String>,
    /// A Temporal that runs already, such as `temporal.example.com:7233`. By default `tamma up` starts
    /// a private one.
    #[arg(long, env = "TAMMA_TEMPORAL_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    temporal: Option<String>,
    /// The folder for Tamma's data. By default `$XDG_DATA_HOME/tamma` or
    /// `~/.local/share/tamma`, and `/var/lib/tamma` for root.
    #[arg(long, env = "TAMMA_DATA", hide_env_values = true, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// The folder for large things, such as transcripts, which the API and all workers have to
    /// reach. By default `objects` in the folder for data.
    #[arg(long, env = "TAMMA_OBJECTS", hide_env_values = true, value_name = "FOLDER")]
    objects: Option<String>,
}

impl Given {
    /// The database's URL. A variable that is set to nothing says nothing.
    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref().filter(|url| !url.is_empty())
    }

    /// Temporal's address.
    pub(crate) fn temporal(&self) -> Option<&str> {
        self.temporal.as_deref().filter(|address| !address.is_empty())
    }

    /// Where large things are kept, with the folder for data.
    pub(crate) fn objects(&self, data: &Path) -> Objects {
        let named = self.objects.clone().filter(|place| !place.is_empty());
        Objects::new(named.unwrap_or_else(|| data.join("objects").display().to_string()))
    }

    /// The folder, if one was named.
    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref().filter(|path| !path.as_os_str().is_empty())
    }
}
