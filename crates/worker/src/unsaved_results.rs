//! Results of jobs and phases on this machine that the store does not have yet.
//!
//! Results of agents cost money. They are written here as soon as they are known and removed once
//! they are stored, so a crash in between does not repeat the run. Only the machine that ran the
//! job can find them.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tamma_core::ids::TaskId;
use tamma_engine::files::replace_file;
use tokio::fs;

use crate::error::Error;

/// Directory of results. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct UnsavedResults {
    folder: PathBuf,
}

impl UnsavedResults {
    /// Opens the directory below a data directory.
    pub(crate) async fn open(data: &Path) -> Result<Self, Error> {
        let folder = data.join("answers");
        fs::create_dir_all(&folder).await.map_err(|error| failed(&folder, error))?;
        Ok(Self { folder })
    }

    /// Writes a result atomically, so that it survives a crash. A failure is logged: the result can still
    /// be stored, and must not be lost because the disk is full.
    pub(crate) async fn put<T: Serialize>(&self, task: TaskId, job_number: u32, result: &T) {
        let path = self.path(task, job_number);
        let write = async {
            let text = serde_json::to_vec(result)?;
            replace_file(&path, &text).await
        };
        if let Err(error) = write.await {
            tracing::warn!(%task, %error, path = %path.display(), "failed to keep a result on disk");
        }
    }

    /// Reads a result, if there is one.
    pub(crate) async fn load<T: DeserializeOwned>(
        &self,
        task: TaskId,
        job_number: u32,
    ) -> Result<Option<T>, Error> {
        let path = self.path(task, job_number);
        match fs::read(&path).await {
            // A file truncated by a crash is ignored, and the job runs again.
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, error)),
        }
    }

    /// Removes a result that is stored.
    pub(crate) async fn clear(&self, task: TaskId, job_number: u32) -> Result<(), Error> {
        let path = self.path(task, job_number);
        match fs::remove_file(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, error)),
            _ => Ok(()),
        }
    }

    fn path(&self, task: TaskId, job_number: u32) -> PathBuf {
        self.folder.join(format!("{task}-{job_number}.json"))
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::UnsavedResult { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use tamma_core::task_loop::Outcome;
    use tamma_flow::activities::JobResult;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_result_is_found_until_it_is_removed() {
        let data =
            std::env::temp_dir().join(format!("tamma-unsaved-results-{}", std::process::id()));
        let results = UnsavedResults::open(&data).await.unwrap();
        let (task, result) = (TaskId(Uuid::from_u128(1)), JobResult::finished(Outcome::WorkSaved));
        assert_eq!(results.load::<JobResult>(task, 3).await.unwrap(), None);
        results.put(task, 3, &result).await;
        let reopened = UnsavedResults::open(&data).await.unwrap();
        assert_eq!(reopened.load(task, 3).await.unwrap(), Some(result));
        assert_eq!(reopened.load::<JobResult>(task, 4).await.unwrap(), None);
        fs::write(reopened.path(task, 3), "{\"ended\": {\"out").await.unwrap();
        let found: Option<JobResult> = reopened.load(task, 3).await.unwrap();
        assert_eq!(found, None, "a truncated file is ignored");
        reopened.clear(task, 3).await.unwrap();
        reopened.clear(task, 3).await.unwrap();
        assert!(
            fs::read_dir(data.join("answers")).await.unwrap().next_entry().await.unwrap().is_none()
        );
        fs::remove_dir_all(&data).await.unwrap();
    }
}
