//! Object storage for large data that is never searched, such as transcripts.
//!
//! Objects are written atomically and never changed. They live in a folder or in an S3 bucket; one
//! function decides which locations are supported.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt as _, RetryConfig, path};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tokio::io::AsyncWriteExt as _;

use crate::error::{Error, Result};
use crate::runs::RunNumber;

/// Number of retries of a request to a bucket, and the time within which they start. A transcript that
/// cannot be uploaded stays on the worker's disk.
const BUCKET_RETRIES: (usize, Duration) = (5, Duration::from_secs(30));

/// Object storage. Cheap to clone; nothing is opened before first use.
#[derive(Clone)]
pub struct ObjectStorage {
    location: String,
    /// Settings of a bucket, such as its credentials.
    settings: Arc<BTreeMap<String, String>>,
    /// Bucket, once it is open. It keeps its connections.
    bucket: Arc<OnceLock<Arc<dyn ObjectStore>>>,
}

/// Kind of a location.
#[derive(Debug, PartialEq, Eq)]
enum StorageLocation<'a> {
    Folder(PathBuf),
    Bucket { name: &'a str, prefix: &'a str },
}

/// Leaves out the settings, which contain secrets.
impl fmt::Debug for ObjectStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectStorage").field(&self.location).finish()
    }
}

/// Folder of the transcripts.
const TRANSCRIPTS: &str = "transcripts";

/// Returns the object key of a run's transcript.
pub fn transcript_key(task: TaskId, run: RunNumber) -> String {
    format!("{TRANSCRIPTS}/{task}/{}-{}.jsonl", run.job_number, run.attempt)
}

impl ObjectStorage {
    /// Creates the object storage of a folder, given as a path or a URL such as
    /// `file:///srv/tamma/objects`, or of a bucket such as `s3://tamma/objects`.
    pub fn new(place: impl Into<String>) -> Self {
        Self { location: place.into(), settings: Arc::default(), bucket: Arc::default() }
    }

    /// Sets the settings of a bucket, by the names of AWS's environment variables, such as
    /// `AWS_ACCESS_KEY_ID`. Others are ignored.
    #[must_use]
    pub fn with_settings(self, settings: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { settings: Arc::new(settings.into_iter().collect()), ..self }
    }

    /// Stores a file as an object, atomically, and returns its size in bytes.
    pub async fn put_file(&self, key: &str, file: &Path) -> Result<u64> {
        if let StorageLocation::Folder(folder) = self.parse_location()? {
            // Other users of this machine may not read transcripts.
            let mut builder = tokio::fs::DirBuilder::new();
            let created = builder.recursive(true).mode(0o700).create(&folder).await;
            created.map_err(|error| self.storage_error(error))?;
        }
        let mut from =
            tokio::fs::File::open(file).await.map_err(|error| self.storage_error(error))?;
        let mut to = BufWriter::new(self.open()?, key.into());
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
        let store = self.open()?;
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
        if let StorageLocation::Folder(folder) = self.parse_location()?
            && !tokio::fs::try_exists(&folder).await.map_err(|error| self.storage_error(error))?
        {
            return Ok(0);
        }
        let store = self.open()?;
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

    fn parse_location(&self) -> Result<StorageLocation<'_>> {
        match self.location.split_once("://") {
            None => Ok(StorageLocation::Folder(PathBuf::from(&self.location))),
            Some(("file", path)) => Ok(StorageLocation::Folder(PathBuf::from(path))),
            Some(("s3", bucket)) if !bucket.starts_with('/') && !bucket.is_empty() => {
                let (name, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
                Ok(StorageLocation::Bucket { name, prefix })
            }
            Some((scheme, _)) => {
                let message =
                    format!("`{scheme}` is not supported; use a folder or `s3://BUCKET/PREFIX`");
                Err(self.storage_error(io::Error::new(io::ErrorKind::Unsupported, message)))
            }
        }
    }

    fn open(&self) -> Result<Arc<dyn ObjectStore>> {
        let opened: object_store::Result<Arc<dyn ObjectStore>> = match self.parse_location()? {
            StorageLocation::Folder(folder) => LocalFileSystem::new_with_prefix(folder)
                .map(|folder| -> Arc<dyn ObjectStore> { Arc::new(folder) }),
            StorageLocation::Bucket { name, prefix } => self.open_bucket(name, prefix),
        };
        opened.map_err(|error| self.storage_error(error))
    }

    fn open_bucket(&self, name: &str, prefix: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
        if let Some(open) = self.bucket.get() {
            return Ok(Arc::clone(open));
        }
        let (max_retries, retry_timeout) = BUCKET_RETRIES;
        let retries = RetryConfig { max_retries, retry_timeout, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new().with_retry(retries);
        for (variable, value) in &*self.settings {
            if let Ok(key) = variable.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let bucket = PrefixStore::new(builder.with_bucket_name(name).build()?, prefix);
        Ok(Arc::clone(self.bucket.get_or_init(|| Arc::new(bucket))))
    }

    fn storage_error(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Objects { place: self.location.clone(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        let metadata = tokio::fs::metadata(folder.join("objects")).await.expect("created");
        assert_eq!(PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o700);
        let (size, pieces) = objects.read(&key).await.expect("there");
        let read: Vec<u8> = pieces.try_concat().await.expect("read");
        assert_eq!((put, size), (text.len() as u64, text.len() as u64));
        assert_eq!(read, text.as_bytes());
        let missing =
            objects.read("transcripts/none.jsonl").await.err().expect("object is missing");
        assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
        let other = ObjectStorage::new("gs://bucket").read(&key).await.err();
        assert!(matches!(other, Some(Error::Objects { .. })), "{other:?}");
        tokio::fs::remove_dir_all(&folder).await.expect("removed");
    }

    #[test]
    fn a_location_is_a_folder_or_a_bucket_and_secrets_are_not_shown() {
        let bucket = |name, prefix| StorageLocation::Bucket { name, prefix };
        for (location, expected) in [
            ("/srv/objects", StorageLocation::Folder("/srv/objects".into())),
            ("file:///srv/objects", StorageLocation::Folder("/srv/objects".into())),
            ("s3://tamma", bucket("tamma", "")),
            ("s3://tamma/team/a", bucket("tamma", "team/a")),
        ] {
            let objects = ObjectStorage::new(location);
            assert_eq!(objects.parse_location().expect("supported"), expected, "{location}");
        }
        for location in ["s3://", "s3:///objects", "https://example.com/objects"] {
            assert!(ObjectStorage::new(location).parse_location().is_err(), "{location}");
        }
        let settings = [("AWS_ACCESS_KEY_ID", "ada"), ("AWS_SECRET_ACCESS_KEY", "hush")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let objects = ObjectStorage::new("s3://tamma").with_settings(settings);
        assert!(!format!("{objects:?}").contains("hush"));
        objects.open().expect("opened without a request");
    }
}
