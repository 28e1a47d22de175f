//! Configuration of remote repositories: `tamma.yaml` of their default branch, read with the
//! credential of their forge.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tamma_connect::forge::Forges;
use tamma_core::ids::{CommitId, Digest, ProjectId};
use tamma_core::repository_address::RepositoryAddress;
use tamma_engine::git::{Git, GitLogin};
use tamma_engine::mirror::{self, Mirror};
use tamma_server::RemoteConfigReader;
use tokio::time::Instant;
use uuid::Uuid;

/// File name of the configuration in a repository.
const CONFIG_FILE: &str = "tamma.yaml";

/// Folder of the mirrors that configurations are read from, in the data folder.
const FOLDER: &str = "configurations";

/// Time for which a configuration is used without asking the repository.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Configuration at a commit.
#[derive(Clone)]
struct CachedConfig {
    commit: CommitId,
    text: Option<String>,
    checked_at: Instant,
}

/// Cached configurations, by the address of the repository.
type ConfigCache = Arc<Mutex<BTreeMap<String, CachedConfig>>>;

/// Returns a reader that keeps its mirrors in the data folder.
pub(crate) fn reader(data: &Path, forges: Forges) -> RemoteConfigReader {
    let folder = data.join(FOLDER);
    let cache = ConfigCache::default();
    Arc::new(move |repository| {
        let (folder, forges, cache) = (folder.clone(), forges.clone(), cache.clone());
        Box::pin(async move {
            let read = read_cached(&folder, &forges, &cache, repository).await;
            read.map_err(|error| format!("{error:#}"))
        })
    })
}

async fn read_cached(
    folder: &Path,
    forges: &Forges,
    cache: &ConfigCache,
    repository: String,
) -> Result<Option<String>> {
    let known = {
        let cached = cache.lock().unwrap_or_else(PoisonError::into_inner);
        cached.get(&repository).cloned()
    };
    if let Some(known) = &known
        && known.checked_at.elapsed() < MAX_AGE
    {
        return Ok(known.text.clone());
    }
    let source: RepositoryAddress = repository.parse()?;
    let login = match forges.for_repository(&repository)? {
        Some((forge, _)) => {
            let login = forge.git_login().await?;
            Some(GitLogin { user: login.user, password: login.password })
        }
        None => None,
    };
    let git = Git::find("git").await?.with_login(login);
    let commit = mirror::newest_commit(&git, &source, None).await?;
    let text = match known {
        Some(known) if known.commit == commit => known.text,
        _ => {
            // Another mirror than that of the workers, which may be on other machines.
            let id = mirror_id(&repository);
            let mirror = Mirror::open(git, folder, id, &source).await;
            let mirror = mirror.with_context(|| format!("cannot fetch {source}"))?;
            mirror.file_text(commit, CONFIG_FILE).await?
        }
    };
    let read = CachedConfig { commit, text: text.clone(), checked_at: Instant::now() };
    cache.lock().unwrap_or_else(PoisonError::into_inner).insert(repository, read);
    Ok(text)
}

/// Returns an ID for the mirror of a repository.
fn mirror_id(repository: &str) -> ProjectId {
    let digits = Digest::of(repository.as_bytes()).to_string();
    let number = digits.get(..32).and_then(|digits| u128::from_str_radix(digits, 16).ok());
    ProjectId(Uuid::from_u128(number.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repository_has_its_own_mirror() {
        let one = mirror_id("https://forge.example/acme/app");
        assert_eq!(one, mirror_id("https://forge.example/acme/app"));
        assert_ne!(one, mirror_id("https://forge.example/acme/shop"));
    }
}
