//! Key ring in a file.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Utc};

use crate::key_ring::{KeyError, KeyRing};

/// Permissions that a key file must not have: others can do nothing, and the group can only read it, as
/// in a mounted secret.
const EXPOSED: u32 = 0o027;

/// Failure to use a key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// No such file.
    #[error(
        "no encryption keys in {}\n  help: copy the key file of this installation to it, or name it with \
         `--keys` or TAMMA_KEYS; for a new installation, create it once with `tamma keys create`",
        path.display()
    )]
    Missing {
        /// Path of the file.
        path: PathBuf,
    },
    /// File that exists already.
    #[error("{} has encryption keys already; add another one with `tamma keys add`", path.display())]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// File that too many users can read.
    #[error(
        "other users can read the encryption keys in {file}\n  help: run `chmod 600 {file}`",
        file = path.display()
    )]
    Exposed {
        /// Path of the file.
        path: PathBuf,
    },
    /// File that cannot be read or written.
    #[error("cannot use the encryption keys in {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// File without a valid key ring.
    #[error("cannot use the encryption keys in {}", path.display())]
    Ring {
        /// Path of the file.
        path: PathBuf,
        /// Problem of the key ring.
        source: KeyError,
    },
}

/// File with a key ring.
#[derive(Debug, Clone)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// Names a file, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the key ring.
    pub fn read(&self) -> Result<KeyRing, KeyFileError> {
        let text = self.read_text()?;
        KeyRing::parse(&text).map_err(|source| self.ring_error(source))
    }

    fn read_text(&self) -> Result<String, KeyFileError> {
        let path = || self.path.clone();
        let text = std::fs::read_to_string(&self.path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => KeyFileError::Missing { path: path() },
            _ => self.io_error(source),
        })?;
        let file = std::fs::metadata(&self.path).map_err(|source| self.io_error(source))?;
        if file.permissions().mode() & EXPOSED != 0 {
            return Err(KeyFileError::Exposed { path: path() });
        }
        Ok(text)
    }

    /// Creates the file with one key, which is active unless `inactive`. Only its owner can read it.
    pub fn create(&self, created: DateTime<Utc>, inactive: bool) -> Result<String, KeyFileError> {
        let mut ring = KeyRing::default();
        let id = ring.add(created).map_err(|source| self.ring_error(source))?;
        if !inactive {
            ring.activate(&id).map_err(|source| self.ring_error(source))?;
        }
        let unfinished = self.write_unfinished(&ring)?;
        // Unlike a rename, a link never replaces the keys of another process.
        let linked = std::fs::hard_link(&unfinished, &self.path);
        std::fs::remove_file(&unfinished).map_err(|source| self.io_error(source))?;
        match linked {
            Ok(()) => {
                self.sync_folder();
                Ok(id)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(KeyFileError::Exists { path: self.path.clone() })
            }
            Err(source) => Err(self.io_error(source)),
        }
    }

    /// Reads the file, and creates it with an active key if there is none.
    pub fn read_or_create(&self, created: DateTime<Utc>) -> Result<KeyRing, KeyFileError> {
        match self.read() {
            Err(KeyFileError::Missing { .. }) => match self.create(created, false) {
                Ok(_) | Err(KeyFileError::Exists { .. }) => self.read(),
                Err(error) => Err(error),
            },
            read => read,
        }
    }

    /// Changes the key ring, and replaces the file. Whoever could read it can read the new one.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut KeyRing) -> Result<T, KeyError>,
    ) -> Result<T, KeyFileError> {
        // Of two changes at the same time, one would lose a key that something is sealed with.
        let lock = self.lock_folder();
        let mut ring = self.read()?;
        let changed = change(&mut ring).map_err(|source| self.ring_error(source))?;
        let unfinished = self.write_unfinished(&ring)?;
        let replaced =
            self.keep_access(&unfinished).and_then(|()| std::fs::rename(&unfinished, &self.path));
        if let Err(source) = replaced {
            drop(std::fs::remove_file(&unfinished));
            return Err(self.io_error(source));
        }
        self.sync_folder();
        drop(lock);
        Ok(changed)
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    /// Waits until no other process changes the file. Returns `None` on file systems without such locks.
    fn lock_folder(&self) -> Option<File> {
        let folder = File::open(self.folder()).ok()?;
        folder.lock().ok()?;
        Some(folder)
    }

    /// Makes the new name durable: what is sealed with a key that a crash has lost cannot be opened. Some
    /// file systems do that by themselves, and refuse.
    fn sync_folder(&self) {
        drop(File::open(self.folder()).and_then(|folder| folder.sync_all()));
    }

    /// Gives a file the owner, group and permissions of the current one: an administrator who rotates a key
    /// must not lock the services out.
    fn keep_access(&self, unfinished: &Path) -> std::io::Result<()> {
        let (old, new) = (std::fs::metadata(&self.path)?, std::fs::metadata(unfinished)?);
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            chown(unfinished, Some(old.uid()), Some(old.gid()))?;
        }
        std::fs::set_permissions(unfinished, old.permissions())
    }

    fn write_unfinished(&self, ring: &KeyRing) -> Result<PathBuf, KeyFileError> {
        let text = ring.to_text().map_err(|source| self.ring_error(source))?;
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let unfinished = self.path.with_file_name(name);
        let write = || {
            std::fs::create_dir_all(self.folder())?;
            let mut options = File::options();
            let mut file =
                options.create(true).write(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| self.io_error(source))?;
        Ok(unfinished)
    }

    fn io_error(&self, source: std::io::Error) -> KeyFileError {
        KeyFileError::Io { path: self.path.clone(), source }
    }

    fn ring_error(&self, source: KeyError) -> KeyFileError {
        KeyFileError::Ring { path: self.path.clone(), source }
    }
}

/// Keys of a process. Copies share them.
#[derive(Debug, Clone)]
pub struct Keys {
    file: Option<KeyFile>,
    ring: Arc<RwLock<Arc<KeyRing>>>,
}

impl Keys {
    /// Keys that come from no file and never change.
    pub fn fixed(ring: KeyRing) -> Self {
        Self { file: None, ring: Arc::new(RwLock::new(Arc::new(ring))) }
    }

    /// Reads the keys of a file.
    pub fn open(file: KeyFile) -> Result<Self, KeyFileError> {
        let ring = file.read()?;
        Ok(Self { file: Some(file), ring: Arc::new(RwLock::new(Arc::new(ring))) })
    }

    /// Returns the key ring that was read last.
    pub fn current(&self) -> Arc<KeyRing> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a key ring with a key, if there is one: it can be in a file that was not read yet.
    pub fn ring_with(&self, id: &str) -> Arc<KeyRing> {
        let ring = self.current();
        if ring.has_key(id) { ring } else { self.reload().unwrap_or(ring) }
    }

    /// Reads the file again, and returns the key ring. If the file cannot be used, the keys stay.
    pub fn reload(&self) -> Result<Arc<KeyRing>, KeyFileError> {
        if let Some(file) = &self.file {
            let ring = Arc::new(file.read()?);
            *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
        }
        Ok(self.current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        "2026-11-17T12:00:00Z".parse().expect("a time")
    }

    fn key_file(folder: &tempfile::TempDir) -> KeyFile {
        KeyFile::new(folder.path().join("new/keys.json"))
    }

    #[test]
    fn the_file_is_created_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = key_file(&folder);
        let error = file.read().expect_err("missing").to_string();
        assert!(error.contains("tamma keys create"), "{error}");
        let first = file.read_or_create(now()).expect("created").describe();
        assert!(first[0].active);
        assert_eq!(file.read_or_create(now()).expect("read").describe(), first);
        assert!(matches!(file.create(now(), false), Err(KeyFileError::Exists { .. })));
        let in_folder = std::fs::read_dir(folder.path().join("new")).expect("files").count();
        assert_eq!(in_folder, 1, "nothing is left over");
        let mode = std::fs::metadata(file.path()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(file.path(), open).expect("changed");
        assert!(matches!(file.read(), Err(KeyFileError::Exposed { .. })));
    }

    #[test]
    fn a_process_finds_a_new_key_without_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = key_file(&folder);
        let old = file.create(now(), false).expect("created");
        let keys = Keys::open(file.clone()).expect("read");
        let copy = keys.clone();
        let new = file
            .change(|ring| {
                let id = ring.add(now())?;
                ring.activate(&id)?;
                Ok(id)
            })
            .expect("rotated");
        assert!(!keys.current().has_key(&new));
        assert!(keys.ring_with(&new).has_key(&new));
        let active = copy.current().describe().into_iter().find(|key| key.active);
        assert_eq!(active.map(|key| key.id), Some(new));
        assert!(copy.current().has_key(&old));
        std::fs::write(file.path(), "damaged").expect("written");
        assert!(matches!(keys.reload(), Err(KeyFileError::Ring { .. })));
        assert!(keys.current().has_key(&old), "the keys stay");
    }

    #[test]
    fn a_change_keeps_the_readers_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = key_file(&folder);
        file.create(now(), false).expect("created");
        let group_reads = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(file.path(), group_reads).expect("changed");
        file.change(|ring| ring.add(now())).expect("added");
        let changed = std::fs::metadata(file.path()).expect("there");
        assert_eq!(changed.permissions().mode() & 0o777, 0o640);
        assert_eq!(file.read().expect("read").describe().len(), 2);
    }

    #[test]
    fn changes_at_the_same_time_lose_no_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = key_file(&folder);
        file.create(now(), false).expect("created");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        file.change(|ring| ring.add(now())).expect("added");
                    }
                });
            }
        });
        assert_eq!(file.read().expect("read").describe().len(), 21);
    }

    #[test]
    fn an_inactive_key_seals_nothing_yet() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = key_file(&folder);
        let id = file.create(now(), true).expect("created");
        assert!(!file.read().expect("read").is_active());
        file.change(|ring| ring.activate(&id)).expect("active");
        assert!(file.read().expect("read").is_active());
    }
}
