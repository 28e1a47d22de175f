//! Upgrade of the cluster to a newer major version of PostgreSQL.
//!
//! `pg_upgrade` copies the data into a new cluster, so the old one stays as it is until the new one is
//! complete. Then the old one becomes `cluster.before-<version>`, which the next upgrade removes. To
//! return to it, a person renames the folders and runs the earlier version of Tamma.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::{MAX_SOCKET_PATH, PostgresCluster, TAMMA, chown_to};
use crate::services::programs::PostgresInstallation;
use crate::services::{Error, process};

/// Name prefix of the cluster before the last upgrade.
const BEFORE: &str = "cluster.before-";

/// Longest name of a socket that `pg_upgrade` creates, with its slash.
const SOCKET_NAME: &str = "/.s.PGSQL.50432.lock";

/// Puts back the cluster of an upgrade that was interrupted between its two renames.
pub(super) fn undo_interrupted(folder: &Path) -> Result<(), Error> {
    let cluster = folder.join("cluster");
    if cluster.exists() {
        return Ok(());
    }
    let Some(before) = earlier_clusters(folder).pop() else { return Ok(()) };
    fs::rename(&before, &cluster).map_err(Error::io("rename", &before))
}

/// Returns the clusters before upgrades. There is one at most, unless a person has renamed others.
fn earlier_clusters(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_earlier = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(BEFORE);
    let mut found: Vec<_> = entries.flatten().filter(is_earlier).map(|it| it.path()).collect();
    found.sort();
    found
}

impl PostgresCluster {
    /// Upgrades the cluster from the version of `old` to that of this installation.
    pub(super) async fn upgrade_from(&self, old: PostgresInstallation) -> Result<(), Error> {
        let before = Self { installation: old, ..self.clone() };
        // Recovers from a crash if needed: `pg_upgrade` accepts only a cluster that was shut down.
        let (_, mut server) = before.start_on_free_address().await?;
        server.stop().await?;
        let partial = self.partial_path().await?;
        self.run_initdb(&partial).await?;
        self.run_pg_upgrade(&before, &partial).await?;
        for earlier in earlier_clusters(&self.folder) {
            fs::remove_dir_all(&earlier).map_err(Error::io("remove", &earlier))?;
        }
        let cluster = self.data_path();
        let kept = self.folder.join(format!("{BEFORE}{}", self.installation.version.major));
        fs::rename(&cluster, &kept).map_err(Error::io("rename", &cluster))?;
        fs::rename(&partial, &cluster).map_err(Error::io("create", &cluster))?;
        self.sync_folder()
    }

    /// Copies the data of the old cluster into the new, empty one.
    async fn run_pg_upgrade(&self, before: &Self, partial: &Path) -> Result<(), Error> {
        let password = self.folder.join("password");
        let secret = fs::read_to_string(&password).map_err(Error::io("read", &password))?;
        let sockets = self.socket_folder()?;
        let pg_upgrade = self.installation.folder.join("pg_upgrade");
        let mut command = self.command(&pg_upgrade);
        command.args(["--username", TAMMA]).arg("--socketdir").arg(&sockets);
        command.arg("--old-bindir").arg(&before.installation.folder);
        command.arg("--new-bindir").arg(&self.installation.folder);
        command.arg("--old-datadir").arg(self.data_path()).arg("--new-datadir").arg(partial);
        // It writes a script for removing the old cluster to its working folder.
        command.env("PGPASSWORD", secret.trim()).current_dir(&self.folder);
        let output = command.output().await;
        let _ = fs::remove_file(self.folder.join("delete_old_cluster.sh"));
        if sockets != self.folder {
            let _ = fs::remove_dir_all(&sockets);
        }
        let output = output.map_err(Error::io("start", &pg_upgrade))?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        let details = partial.join("pg_upgrade_output.d");
        let last = process::last_lines(&String::from_utf8_lossy(&text));
        Err(Error::PgUpgrade {
            from: before.installation.version.major,
            to: self.installation.version.major,
            programs: before.installation.folder.clone(),
            output: restore_errors(&details) + &last,
            details,
        })
    }

    /// Returns a folder for sockets: that of the server, or one for temporary files if its path is too
    /// long.
    fn socket_folder(&self) -> Result<PathBuf, Error> {
        if self.folder.as_os_str().len() + SOCKET_NAME.len() <= MAX_SOCKET_PATH {
            return Ok(self.folder.clone());
        }
        let folder = std::env::temp_dir().join(format!("tamma-upgrade-{}", std::process::id()));
        // Fails if the folder exists: another user could own it.
        let created = DirBuilder::new().mode(0o700).create(&folder);
        created
            .and_then(|()| chown_to(&folder, self.user.as_ref()))
            .map_err(Error::io("create the folder", &folder))?;
        Ok(folder)
    }
}

/// Returns what `pg_restore` could not do, a line each: `pg_upgrade` itself only names its log files.
fn restore_errors(details: &Path) -> String {
    let entries = |folder: PathBuf| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let logs = entries(details.to_owned()).flat_map(|run| entries(run.join("log")));
    logs.filter_map(|log| fs::read(log).ok())
        .flat_map(|log| {
            let text = String::from_utf8_lossy(&log);
            let lines = text.lines().filter(|line| line.starts_with("pg_restore: error:"));
            lines.map(|line| format!("{line}\n")).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{PostgresService, prepare_folder};
    use super::*;
    use crate::progress::Progress;
    use crate::services::{DataFolderLock, ProgramSearch};

    async fn start(lock: &DataFolderLock) -> PostgresService {
        let search = ProgramSearch::from_environment();
        PostgresService::start(lock, &search, Progress::Silent).await.unwrap()
    }

    async fn has_data(postgres: &PostgresService) -> bool {
        tamma_store::list_databases(&postgres.url(), "kept").await.unwrap() == ["kept"]
    }

    /// Cluster in a data folder that is not running.
    async fn cluster(lock: &DataFolderLock) -> PostgresCluster {
        let folder = lock.folder().join("postgres");
        let installation = ProgramSearch::from_environment().find_postgres(None).await.unwrap();
        let user = prepare_folder(lock.folder(), &folder).unwrap();
        PostgresCluster { folder, installation, user }
    }

    #[test]
    fn errors_of_the_restore_are_found_in_its_logs() {
        let scratch = tempfile::tempdir().unwrap();
        let logs = scratch.path().join("20261117T195221.756/log");
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join("pg_upgrade_internal.log"), "checking\n").unwrap();
        let error = "pg_restore: error: could not execute query: ERROR:  unrecognized parameter\n";
        fs::write(logs.join("pg_upgrade_dump_5.log"), format!("creating\n{error}Command was:\n"))
            .unwrap();
        assert_eq!(restore_errors(scratch.path()), error);
        assert_eq!(restore_errors(&scratch.path().join("missing")), "");
    }

    // `pg_upgrade` accepts the same version on both sides, and machines of developers have only one.
    #[tokio::test]
    async fn an_upgrade_keeps_the_data_and_the_old_cluster_even_after_a_crash() {
        let scratch = tempfile::tempdir().unwrap();
        let lock = DataFolderLock::acquire(scratch.path()).unwrap();
        let mut postgres = start(&lock).await;
        assert!(tamma_store::create_database(&postgres.url(), "kept", None).await.unwrap());
        // Not shut down, so the upgrade must recover first.
        process::send_signal(postgres.pid(), rustix::process::Signal::KILL);
        postgres.wait_for_exit().await;
        let cluster = cluster(&lock).await;
        cluster.upgrade_from(cluster.installation.clone()).await.unwrap();
        let kept = earlier_clusters(&cluster.folder);
        assert_eq!(kept.len(), 1);
        let mut postgres = start(&lock).await;
        assert!(has_data(&postgres).await);
        postgres.stop().await.unwrap();
        // A kill between the two renames leaves only the old cluster.
        fs::remove_dir_all(cluster.data_path()).unwrap();
        let mut postgres = start(&lock).await;
        assert!(has_data(&postgres).await);
        assert!(earlier_clusters(&cluster.folder).is_empty());
        postgres.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_upgrade_leaves_the_data_as_it_was_and_says_how_to_go_on() {
        let scratch = tempfile::tempdir().unwrap();
        let lock = DataFolderLock::acquire(scratch.path()).unwrap();
        let mut postgres = start(&lock).await;
        assert!(tamma_store::create_database(&postgres.url(), "kept", None).await.unwrap());
        postgres.stop().await.unwrap();
        let cluster = cluster(&lock).await;
        // Without this file, `pg_upgrade` cannot read the new cluster.
        let partial = cluster.partial_path().await.unwrap();
        cluster.run_initdb(&partial).await.unwrap();
        fs::remove_file(partial.join("global/pg_control")).unwrap();
        let error = cluster.run_pg_upgrade(&cluster, &partial).await.unwrap_err().to_string();
        for part in ["the data is unchanged", "TAMMA_POSTGRES_BIN", "pg_upgrade_output.d"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        let mut postgres = start(&lock).await;
        assert!(has_data(&postgres).await);
        postgres.stop().await.unwrap();
    }
}
