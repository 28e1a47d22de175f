//! Transcript of a run: every update, as JSON lines.
//!
//! It is written to a local file and uploaded to the object store at the end of the run. After a
//! crash, the next worker on this machine uploads the file. The writer holds a lock on it, so that
//! other workers do not take it for a leftover.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tamma_core::ids::TaskId;
use tamma_store::{ObjectStorage, RunNumber, Store, transcript_key};
use tokio::fs;
use tokio::io::{AsyncWriteExt as _, BufWriter};

use crate::error::Error;

/// Transcript that is being written.
pub(super) struct Transcript {
    path: PathBuf,
    file: BufWriter<fs::File>,
    task: TaskId,
    run: RunNumber,
}

impl Transcript {
    /// Opens the transcript of a run below a data directory.
    pub(super) async fn open(data: &Path, task: TaskId, run: RunNumber) -> Result<Self, Error> {
        let folder = folder(data);
        fs::create_dir_all(&folder).await.map_err(|error| failed(&folder, error))?;
        let path = folder.join(format!("{task}-{}-{}.jsonl", run.job_number, run.attempt));
        // An agent restarted within an attempt appends to the same file.
        let opened = File::options().create(true).append(true).open(&path);
        let file = opened.map_err(|error| failed(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let error =
                    io::Error::new(io::ErrorKind::ResourceBusy, "another worker is writing it");
                return Err(failed(&path, error));
            }
            // File systems without locks are supported.
            Err(TryLockError::Error(error)) => tracing::debug!(%error, "cannot lock transcript"),
        }
        Ok(Self { path, file: BufWriter::new(fs::File::from_std(file)), task, run })
    }

    /// Appends records.
    pub(super) async fn write(&mut self, records: Vec<Value>) -> Result<(), Error> {
        for record in records {
            let line = format!("{record}\n");
            let written = self.file.write_all(line.as_bytes()).await;
            written.map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    /// Flushes buffered records to the operating system.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().await.map_err(|error| failed(&self.path, error))
    }

    /// Uploads the transcript and returns its key. The file stays if the upload fails.
    pub(super) async fn upload(mut self, objects: &ObjectStorage) -> Result<String, Error> {
        self.flush().await?;
        let key = transcript_key(self.task, self.run);
        objects.put_file(&key, &self.path).await?;
        remove(&self.path).await?;
        Ok(key)
    }
}

/// Uploads transcripts that dead workers left on this machine, and returns their number. Failed
/// uploads are retried at the next start.
pub(crate) async fn upload_leftovers(
    data: &Path,
    objects: &ObjectStorage,
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
        let Some((task, run)) = parse_file_name(&path) else { continue };
        let Ok(file) = File::open(&path) else { continue };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        let key = transcript_key(task, run);
        objects.put_file(&key, &path).await?;
        store.save_transcript_key(task, run, &key).await?;
        remove(&path).await?;
        put += 1;
    }
    Ok(put)
}

fn folder(data: &Path) -> PathBuf {
    data.join("transcripts")
}

fn parse_file_name(path: &Path) -> Option<(TaskId, RunNumber)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    let mut parts = name.rsplitn(3, '-');
    let (attempt, job_number, task) = (parts.next()?, parts.next()?, parts.next()?);
    let run = RunNumber { job_number: job_number.parse().ok()?, attempt: attempt.parse().ok()? };
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
    fn file_names_identify_the_run() {
        let task = TaskId(uuid::Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0001));
        let path = PathBuf::from(format!("/x/{task}-12-3.jsonl"));
        assert_eq!(parse_file_name(&path), Some((task, RunNumber { job_number: 12, attempt: 3 })));
        for other in ["/x/notes.txt", "/x/a-1-2.jsonl", "/x/1-2.jsonl"] {
            assert_eq!(parse_file_name(Path::new(other)), None, "{other}");
        }
    }

    #[tokio::test]
    async fn transcripts_of_dead_workers_are_uploaded_and_locked_ones_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let database = tamma_testkit::postgres::TestDatabase::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let objects = ObjectStorage::new(folder.path().join("objects").display().to_string());
        let task = TaskId(uuid::Uuid::from_u128(1));
        let number = |attempt| RunNumber { job_number: 1, attempt };
        let mut dead = Transcript::open(folder.path(), task, number(1)).await.unwrap();
        dead.write(vec![Value::from("last words")]).await.unwrap();
        dead.flush().await.unwrap();
        let mut living = Transcript::open(folder.path(), task, number(2)).await.unwrap();
        living.write(vec![Value::from("still here")]).await.unwrap();
        assert_eq!(upload_leftovers(folder.path(), &objects, &store).await.unwrap(), 0);
        drop(dead.file.into_inner().into_std().await);
        assert_eq!(upload_leftovers(folder.path(), &objects, &store).await.unwrap(), 1);
        assert_eq!(upload_leftovers(folder.path(), &objects, &store).await.unwrap(), 0);
        let uploaded = folder.path().join("objects").join(transcript_key(task, number(1)));
        assert_eq!(std::fs::read_to_string(uploaded).unwrap(), "\"last words\"\n");
        living.upload(&objects).await.unwrap();
        let uploaded = folder.path().join("objects").join(transcript_key(task, number(2)));
        assert_eq!(std::fs::read_to_string(uploaded).unwrap(), "\"still here\"\n");
    }
}
