//! Object storage for large data that is never searched, such as transcripts.
//!
//! Objects are written atomically and never changed. They live in a folder; cloud buckets are
//! *planned*, and one function decides which locations are supported.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt as _, path};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tokio::io::AsyncWriteExt as _;

use crate::error::{Error, Result};
use crate::runs::RunNumber;

/// Object storage. Cheap to clone; nothing is opened before first use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStorage {
    location: String,
}

/// Folder of the transcripts.
const TRANSCRIPTS: &str = "transcripts";

/// Returns the object key of a run's transcript.
pub fn transcript_key(task: TaskId, run: RunNumber) -> String {
    format!("{TRANSCRIPTS}/{task}/{}-{}.jsonl", run.job_number, run.attempt)
}

impl ObjectStorage {
    /// Creates the object storage of a folder, given as a path or a URL such as
    /// `file:///srv/tamma/objects`.
    pub fn new(place: impl Into<String>) -> Self {
        Self { location: place.into() }
    }

    /// Returns the folder as it was configured.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Stores a file as an object, atomically, and returns its size in bytes.
    pub async fn put_file(&self, key: &str, file: &Path) -> Result<u64> {
        let folder = self.folder()?;
        tokio::fs::create_dir_all(&folder).await.map_err(|error| self.storage_error(error))?;
        let mut from =
            tokio::fs::File::open(file).await.map_err(|error| self.storage_error(error))?;
        let mut to = BufWriter::new(open(&folder).map_err(|e| self.storage_error(e))?, key.into());
        let copied = tokio::io::copy(&mut from, &mut to).await;
        let written = match copied {
            Ok(written) => to.shutdown().await.map(|()| written),
            Err(error) => {
                drop(to.abort().await);
                Err(error)
            }
        };
        written.map_err(|error| self.storage_error(error))
    }

    /// Returns the size of an object in bytes, and a stream of its content.
    pub async fn read(
        &self,
        key: &str,
    ) -> Result<(u64, impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>)> {
        let store = open(&self.folder()?).map_err(|error| self.storage_error(error))?;
        let got = match store.get(&path::Path::from(key)).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(Error::NotFound { what: "object", key: key.to_owned() });
            }
            Err(error) => return Err(self.storage_error(error)),
        };
        let size = got.meta.size;
        let pieces = got.into_stream().map(|piece| Ok(Vec::from(piece.map_err(io::Error::from)?)));
        Ok((size, pieces))
    }

    /// Deletes transcripts that were written before a time, and returns their number.
    pub async fn delete_transcripts(&self, before: Timestamp) -> Result<u64> {
        let folder = self.folder()?;
        if !tokio::fs::try_exists(&folder).await.map_err(|error| self.storage_error(error))? {
            return Ok(0);
        }
        let store = open(&folder).map_err(|error| self.storage_error(error))?;
        let mut objects = store.list(Some(&path::Path::from(TRANSCRIPTS)));
        let mut deleted = 0;
        while let Some(object) = objects.next().await {
            let object = object.map_err(|error| self.storage_error(error))?;
            if object.last_modified < before {
                store.delete(&object.location).await.map_err(|error| self.storage_error(error))?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    fn folder(&self) -> Result<PathBuf> {
        match self.location.split_once("://") {
            None => Ok(PathBuf::from(&self.location)),
            Some(("file", path)) => Ok(PathBuf::from(path)),
            Some((scheme, _)) => {
                let message = format!("`{scheme}` is not supported; use a folder");
                Err(self.storage_error(io::Error::new(io::ErrorKind::Unsupported, message)))
            }
        }
    }

    fn storage_error(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Objects { place: self.location.clone(), source: source.into() }
    }
}

fn open(folder: &Path) -> object_store::Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(LocalFileSystem::new_with_prefix(folder)?))
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt as _;
    use sqlx::types::Uuid;

    use super::*;

    #[tokio::test]
    async fn missing_object_differs_from_unreachable_storage() {
        let folder = std::env::temp_dir().join(format!("tamma-objects-{}", std::process::id()));
        let objects = ObjectStorage::new(folder.join("objects").display().to_string());
        let run = RunNumber { job_number: 3, attempt: 2 };
        let key = transcript_key(TaskId(Uuid::from_u128(1)), run);
        assert!(key.ends_with("/3-2.jsonl"), "{key}");
        // A missing folder is an error of the storage; the object is not reported as missing.
        let missing = objects.read(&key).await.err().expect("folder is missing");
        assert!(matches!(missing, Error::Objects { .. }), "{missing:?}");
        tokio::fs::create_dir_all(&folder).await.expect("created");
        let text = "{\"said\":\"hello\"}\n".repeat(1000);
        tokio::fs::write(folder.join("spool"), &text).await.expect("written");
        let put = objects.put_file(&key, &folder.join("spool")).await.expect("put");
        let (size, pieces) = objects.read(&key).await.expect("there");
        let read: Vec<u8> = pieces.try_concat().await.expect("read");
        assert_eq!((put, size), (text.len() as u64, text.len() as u64));
        assert_eq!(read, text.as_bytes());
        let missing =
            objects.read("transcripts/none.jsonl").await.err().expect("object is missing");
        assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
        let bucket =
            ObjectStorage::new("s3://bucket").read(&key).await.err().expect("not supported");
        assert!(matches!(bucket, Error::Objects { .. }), "{bucket:?}");
        tokio::fs::remove_dir_all(&folder).await.expect("removed");
    }
}
