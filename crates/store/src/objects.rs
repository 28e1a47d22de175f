//! Large things that nobody searches: transcripts. They are kept in a folder.
//!
//! Objects are written whole or not at all, and never changed. A bucket of a cloud is *planned*:
//! what a place may be is decided in one function.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt as _, path};
use tamma_core::ids::TaskId;
use tokio::io::AsyncWriteExt as _;

use crate::error::{Error, Result};
use crate::runs::RunNumber;

/// Where large things are kept. Cheap to clone; nothing is opened before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    place: String,
}

/// The name of a run's transcript among the objects.
pub fn transcript_key(task: TaskId, run: RunNumber) -> String {
    format!("transcripts/{task}/{}-{}.jsonl", run.ticket, run.attempt)
}

impl Objects {
    /// The objects in a folder: a path, or a URL such as `file:///srv/tamma/objects`.
    pub fn new(place: impl Into<String>) -> Self {
        Self { place: place.into() }
    }

    /// Where they are.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Puts a file among the objects, whole or not at all.
    pub async fn put_file(&self, key: &str, file: &Path) -> Result<u64> {
        let folder = self.folder()?;
        tokio::fs::create_dir_all(&folder).await.map_err(|error| self.unreachable(error))?;
        let mut from =
            tokio::fs::File::open(file).await.map_err(|error| self.unreachable(error))?;
        let mut to = BufWriter::new(open(&folder).map_err(|e| self.unreachable(e))?, key.into());
        let copied = tokio::io::copy(&mut from, &mut to).await;
        let written = match copied {
            Ok(written) => to.shutdown().await.map(|()| written),
            Err(error) => {
                drop(to.abort().await);
                Err(error)
            }
        };
        written.map_err(|error| self.unreachable(error))
    }

    /// An object, piece by piece, and how many bytes it has.
    pub async fn read(
        &self,
        key: &str,
    ) -> Result<(u64, impl Stream<Item = io::Result<Vec<u8>>> + Send + use<>)> {
        let store = open(&self.folder()?).map_err(|error| self.unreachable(error))?;
        let got = match store.get(&path::Path::from(key)).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(Error::NotFound { what: "object", key: key.to_owned() });
            }
            Err(error) => return Err(self.unreachable(error)),
        };
        let size = got.meta.size;
        let pieces = got.into_stream().map(|piece| Ok(Vec::from(piece.map_err(io::Error::from)?)));
        Ok((size, pieces))
    }

    fn folder(&self) -> Result<PathBuf> {
        match self.place.split_once("://") {
            None => Ok(PathBuf::from(&self.place)),
            Some(("file", path)) => Ok(PathBuf::from(path)),
            Some((scheme, _)) => {
                let why = format!("`{scheme}` is not supported yet: name a folder");
                Err(self.unreachable(io::Error::new(io::ErrorKind::Unsupported, why)))
            }
        }
    }

    fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Objects { place: self.place.clone(), source: source.into() }
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
    async fn what_was_put_is_read_and_what_is_not_there_is_told_apart() {
        let folder = std::env::temp_dir().join(format!("tamma-objects-{}", std::process::id()));
        let objects = Objects::new(folder.join("objects").display().to_string());
        let run = RunNumber { ticket: 3, attempt: 2 };
        let key = transcript_key(TaskId(Uuid::from_u128(1)), run);
        assert!(key.ends_with("/3-2.jsonl"), "{key}");
        // Before anything is kept, there is no folder, and that is not the same as no object.
        let missing = objects.read(&key).await.err().expect("nothing there");
        assert!(matches!(missing, Error::Objects { .. }), "{missing:?}");
        tokio::fs::create_dir_all(&folder).await.expect("made");
        let text = "{\"said\":\"hello\"}\n".repeat(1000);
        tokio::fs::write(folder.join("spool"), &text).await.expect("written");
        let put = objects.put_file(&key, &folder.join("spool")).await.expect("put");
        let (size, pieces) = objects.read(&key).await.expect("there");
        let read: Vec<u8> = pieces.try_concat().await.expect("read");
        assert_eq!((put, size), (text.len() as u64, text.len() as u64));
        assert_eq!(read, text.as_bytes());
        let missing = objects.read("transcripts/none.jsonl").await.err().expect("not there");
        assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
        let bucket = Objects::new("s3://bucket").read(&key).await.err().expect("not supported");
        assert!(matches!(bucket, Error::Objects { .. }), "{bucket:?}");
        tokio::fs::remove_dir_all(&folder).await.expect("removed");
    }
}
