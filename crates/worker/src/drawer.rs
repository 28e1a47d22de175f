//! Answers on this machine that the store does not have yet.
//!
//! What an agent has come to is paid for. It is put here as soon as it is known, and taken out when
//! the store has it, so that a worker that dies in between does not pay again. Only the machine that
//! did the job can find it, which is the one that is asked again.

use std::io;
use std::path::{Path, PathBuf};

use tamma_core::ids::TaskId;
use tokio::fs;

use crate::error::Error;
use crate::hands::Told;

/// A folder of answers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Drawer {
    folder: PathBuf,
}

impl Drawer {
    /// Opens the one in a data folder.
    pub(crate) async fn open(data: &Path) -> Result<Self, Error> {
        let folder = data.join("answers");
        fs::create_dir_all(&folder).await.map_err(|error| failed(&folder, error))?;
        Ok(Self { folder })
    }

    /// Puts an answer in, whole or not at all.
    pub(crate) async fn put(&self, task: TaskId, ticket: u32, told: &Told) -> Result<(), Error> {
        let path = self.path(task, ticket);
        let unfinished = path.with_extension("new");
        let text = serde_json::to_vec(told).map_err(|error| failed(&path, error.into()))?;
        fs::write(&unfinished, text).await.map_err(|error| failed(&unfinished, error))?;
        fs::rename(&unfinished, &path).await.map_err(|error| failed(&path, error))
    }

    /// An answer that was put in, if it was.
    pub(crate) async fn look(&self, task: TaskId, ticket: u32) -> Result<Option<Told>, Error> {
        let path = self.path(task, ticket);
        match fs::read(&path).await {
            // One that a crash of the machine has cut off is none: the job is done again.
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, error)),
        }
    }

    /// Takes an answer out that the store has.
    pub(crate) async fn clear(&self, task: TaskId, ticket: u32) -> Result<(), Error> {
        let path = self.path(task, ticket);
        match fs::remove_file(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, error)),
            _ => Ok(()),
        }
    }

    fn path(&self, task: TaskId, ticket: u32) -> PathBuf {
        self.folder.join(format!("{task}-{ticket}.json"))
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Answer { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use tamma_core::task_loop::Outcome;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_there_from_when_it_is_put_in_until_it_is_taken_out() {
        let data = std::env::temp_dir().join(format!("tamma-drawer-{}", std::process::id()));
        let drawer = Drawer::open(&data).await.unwrap();
        let (task, told) = (TaskId(Uuid::from_u128(1)), Told::from(Outcome::Landed));
        assert_eq!(drawer.look(task, 3).await.unwrap(), None);
        drawer.put(task, 3, &told).await.unwrap();
        let again = Drawer::open(&data).await.unwrap();
        assert_eq!(again.look(task, 3).await.unwrap(), Some(told));
        assert_eq!(again.look(task, 4).await.unwrap(), None);
        fs::write(again.path(task, 3), "{\"answer\": {\"en").await.unwrap();
        assert_eq!(again.look(task, 3).await.unwrap(), None, "half of one is none");
        again.clear(task, 3).await.unwrap();
        again.clear(task, 3).await.unwrap();
        assert!(
            fs::read_dir(data.join("answers")).await.unwrap().next_entry().await.unwrap().is_none()
        );
        fs::remove_dir_all(&data).await.unwrap();
    }
}
