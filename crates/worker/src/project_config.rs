//! Configuration file of a project: in its folder on this machine, or on the default branch of a
//! remote repository.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tamma_core::ids::CommitId;
use tamma_core::repository_address::RepositoryAddress;
use tamma_engine::git::Git;
use tamma_engine::mirror::{self, KnownCommits, Mirror};
use tamma_store::RegisteredProject;
use tokio::time::Instant;

use crate::error::Error;

/// File name of the configuration in a repository.
pub(crate) const CONFIG_FILE: &str = "tamma.yaml";

/// Time for which a configuration is used without asking the repository, as on the server.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Configuration of a remote repository at a commit.
#[derive(Debug, Clone)]
pub(crate) struct KnownConfig {
    commit: CommitId,
    /// Text of the file, if it exists.
    pub(crate) text: Option<String>,
    checked_at: Instant,
}

/// Configurations of remote repositories, by their address. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemoteConfigs(Arc<Mutex<BTreeMap<String, KnownConfig>>>);

impl RemoteConfigs {
    /// Returns the configuration if it was read a short time ago.
    pub(crate) fn recent(&self, repository: &str) -> Option<KnownConfig> {
        let known = self.known().get(repository).cloned();
        known.filter(|it| it.checked_at.elapsed() < MAX_AGE)
    }

    /// Reads the file at the newest commit of the default branch, if it exists.
    pub(crate) async fn read(
        &self,
        git: Git,
        data: &Path,
        project: &RegisteredProject,
        known_commits: &KnownCommits,
    ) -> Result<Option<String>, Error> {
        let RegisteredProject { id, repository, .. } = project;
        let source: RepositoryAddress = repository.parse().map_err(mirror::Error::from)?;
        let commit = mirror::newest_commit(&git, &source, None).await?;
        let known = self.known().get(repository).cloned();
        let text = match known {
            Some(known) if known.commit == commit => known.text,
            _ => {
                let mirror =
                    Mirror::open_with_cache(git, data, *id, &source, known_commits).await?;
                mirror.file_text(commit, CONFIG_FILE).await?
            }
        };
        let read = KnownConfig { commit, text: text.clone(), checked_at: Instant::now() };
        self.known().insert(repository.clone(), read);
        Ok(text)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, KnownConfig>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the folder of a repository on this machine, or `None` if it is remote.
pub(crate) fn local_folder(repository: &str) -> Option<&Path> {
    let path = match repository.split_once("://") {
        Some((scheme, path)) if scheme.eq_ignore_ascii_case("file") => path,
        _ => repository,
    };
    path.starts_with('/').then(|| Path::new(path))
}

/// Reads the configuration in a folder, which agents cannot write, if it exists.
pub(crate) async fn read_local(folder: &Path) -> Result<Option<String>, Error> {
    let path = folder.join(CONFIG_FILE);
    match tokio::fs::read_to_string(&path).await {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::Configuration(format!("{}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::ids::ProjectId;
    use tamma_testkit::repository::Repository;

    use super::*;

    #[test]
    fn only_paths_and_file_urls_are_folders_of_this_machine() {
        assert_eq!(local_folder("/srv/app"), Some(Path::new("/srv/app")));
        assert_eq!(local_folder("file:///srv/app"), Some(Path::new("/srv/app")));
        for remote in ["https://forge.example/a/b", "ssh://git@a.example/b", "git@a.example:b"] {
            assert_eq!(local_folder(remote), None, "{remote}");
        }
    }

    #[tokio::test]
    async fn configuration_of_a_remote_repository_is_that_of_its_newest_commit() {
        let folder = tempfile::tempdir().expect("folder");
        let (app, data) = (folder.path().join("app"), folder.path().join("data"));
        let app = Repository::create(&app, &[(CONFIG_FILE, "one: 1\n")]).expect("repository");
        // Only commits count.
        app.write(CONFIG_FILE, "two: 2\n").expect("written");
        let project = RegisteredProject {
            id: ProjectId(uuid::Uuid::from_u128(1)),
            name: "app".to_owned(),
            repository: app.path().display().to_string(),
        };
        let git = Git::find("git").await.expect("git");
        let (configs, cache) = (RemoteConfigs::default(), KnownCommits::default());
        assert!(configs.recent(&project.repository).is_none());
        let read = configs.read(git.clone(), &data, &project, &cache).await.expect("read");
        assert_eq!(read.as_deref().map(str::trim_end), Some("one: 1"));
        let recent = configs.recent(&project.repository).expect("just read");
        assert_eq!(recent.text, read);
        app.commit("second").expect("committed");
        let read = configs.read(git, &data, &project, &cache).await.expect("read");
        assert_eq!(read.as_deref().map(str::trim_end), Some("two: 2"));
    }
}
