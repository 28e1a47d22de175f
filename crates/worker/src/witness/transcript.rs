//! The transcript of a run: every update, as lines of JSON.
//!
//! It is written to a file of this machine as it happens, and put among the objects when the run
//! has ended. A worker that dies leaves the file, with everything up to its death, and the next one
//! on this machine puts it where it belongs. Whoever writes a file holds its lock, so that nobody
//! takes it for a leftover.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tamma_core::ids::TaskId;
use tamma_store::{Objects, RunNumber, Store, transcript_key};
use tokio::fs;
use tokio::io::{AsyncWriteExt as _, BufWriter};

use crate::error::Error;

/// A transcript that is being written.
pub(super) struct Transcript {
    path: PathBuf,
    file: BufWriter<fs::File>,
    task: TaskId,
    run: RunNumber,
}

impl Transcript {
    /// Opens the transcript of a run, below a worker's data.
    pub(super) async fn open(data: &Path, task: TaskId, run: RunNumber) -> Result<Self, Error> {
        let folder = folder(data);
        fs::create_dir_all(&folder).await.map_err(|error| failed(&folder, error))?;
        let path = folder.join(format!("{task}-{}-{}.jsonl", run.ticket, run.attempt));
        // An agent that is started again within an attempt goes on with the same one.
        let opened = File::options().create(true).append(true).open(&path);
        let file = opened.map_err(|error| failed(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let error = io::Error::new(io::ErrorKind::ResourceBusy, "another worker writes it");
                return Err(failed(&path, error));
            }
            // A folder on a disk without locks is written to all the same.
            Err(TryLockError::Error(error)) => tracing::debug!(%error, "no lock on a transcript"),
        }
        Ok(Self { path, file: BufWriter::new(fs::File::from_std(file)), task, run })
    }

    /// Writes records.
    pub(super) async fn write(&mut self, records: Vec<Value>) -> Result<(), Error> {
        for record in records {
            let line = format!("{record}\n");
            let written = self.file.write_all(line.as_bytes()).await;
            written.map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    /// Hands what was written to the system, so that it outlives us.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().await.map_err(|error| failed(&self.path, error))
    }

    /// Puts it among the objects, and returns its name there. The file stays if that fails.
    pub(super) async fn put(mut self, objects: &Objects) -> Result<String, Error> {
        self.flush().await?;
        let key = transcript_key(self.task, self.run);
        objects.put_file(&key, &self.path).await?;
        remove(&self.path).await?;
        Ok(key)
    }
}

/// Puts transcripts among the objects that a dead worker has left on this machine. Returns how
/// many. One that cannot be put stays for the next time.
pub(crate) async fn put_leftovers(
    data: &Path,
    objects: &Objects,
    store: &Store,
) -> Result<u32, Error> {
    let folder = folder(data);
    let mut files = match fs::read_dir(&folder).await {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(&folder, error)),
    };
    let mut put = 0;
    while let Some(entry) = files.next_entry().await.map_err(|error| failed(&folder, error))? {
        let path = entry.path();
        let Some((task, run)) = read_name(&path) else { continue };
        let Ok(file) = File::open(&path) else { continue };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        let key = transcript_key(task, run);
        objects.put_file(&key, &path).await?;
        store.keep_transcript(task, run, &key).await?;
        remove(&path).await?;
        put += 1;
    }
    Ok(put)
}

fn folder(data: &Path) -> PathBuf {
    data.join("transcripts")
}

fn read_name(path: &Path) -> Option<(TaskId, RunNumber)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    let mut parts = name.rsplitn(3, '-');
    let (attempt, ticket, task) = (parts.next()?, parts.next()?, parts.next()?);
    let run = RunNumber { ticket: ticket.parse().ok()?, attempt: attempt.parse().ok()? };
    Some((TaskId(task.parse().ok()?), run))
}

async fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Transcript { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_says_whose_it_is() {
        let task = TaskId(uuid::Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0001));
        let path = PathBuf::from(format!("/x/{task}-12-3.jsonl"));
        assert_eq!(read_name(&path), Some((task, RunNumber { ticket: 12, attempt: 3 })));
        for other in ["/x/notes.txt", "/x/a-1-2.jsonl", "/x/1-2.jsonl"] {
            assert_eq!(read_name(Path::new(other)), None, "{other}");
        }
    }

    #[tokio::test]
    async fn what_a_dead_worker_has_left_is_put_in_its_place_and_what_lives_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let database = tamma_testkit::postgres::Database::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let objects = Objects::new(folder.path().join("objects").display().to_string());
        let task = TaskId(uuid::Uuid::from_u128(1));
        let number = |attempt| RunNumber { ticket: 1, attempt };
        let mut dead = Transcript::open(folder.path(), task, number(1)).await.unwrap();
        dead.write(vec![Value::from("last words")]).await.unwrap();
        dead.flush().await.unwrap();
        let mut living = Transcript::open(folder.path(), task, number(2)).await.unwrap();
        living.write(vec![Value::from("still here")]).await.unwrap();
        assert_eq!(put_leftovers(folder.path(), &objects, &store).await.unwrap(), 0);
        drop(dead.file.into_inner().into_std().await);
        assert_eq!(put_leftovers(folder.path(), &objects, &store).await.unwrap(), 1);
        assert_eq!(put_leftovers(folder.path(), &objects, &store).await.unwrap(), 0);
        let kept = folder.path().join("objects").join(transcript_key(task, number(1)));
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "\"last words\"\n");
        living.put(&objects).await.unwrap();
        let kept = folder.path().join("objects").join(transcript_key(task, number(2)));
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "\"still here\"\n");
    }
}
