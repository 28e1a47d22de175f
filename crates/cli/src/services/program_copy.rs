//! Copies of programs in the data folder, with the SHA-256 of every file.
//!
//! `<data>/programs/<name>` contains the files of one program and `manifest.json`. Services run from
//! these copies for three reasons. Root's home is closed to the user that PostgreSQL runs as; tools such
//! as `uvx` run programs from a cache that can be cleaned under a running server; and an upgrade of
//! PostgreSQL needs the programs of the old version after the package has brought a new one.
//!
//! The folder belongs to the user who runs `tamma up`, so the user of the PostgreSQL server cannot
//! replace a program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Error;

/// Name of the file that lists the files of a copy.
const MANIFEST: &str = "manifest.json";

/// Name prefix of incomplete copies.
const PARTIAL: &str = ".partial-";

/// Size of the buffer for reading files, in bytes.
const BUFFER_SIZE: usize = 1 << 18;

/// Files of a program, before they are copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgramFiles {
    /// Folder that the other paths are relative to.
    pub(super) root: PathBuf,
    /// Files and folders to copy.
    pub(super) parts: &'static [&'static str],
}

/// Content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CopyManifest {
    /// SHA-256 of the paths, sizes and modification times of the files that were copied.
    source: String,
    /// SHA-256 of each file, by its path in the copy.
    files: BTreeMap<String, String>,
}

/// Copies a program to `<folder>/<name>`, unless a good copy of the same files is there. Returns the
/// folder of the copy. The caller holds the lock on the data folder.
pub(super) fn copy(folder: &Path, name: &str, program: &ProgramFiles) -> Result<PathBuf, Error> {
    let copied = folder.join(name);
    let files = program.list().map_err(Error::io("read", &program.root))?;
    let source = fingerprint(&files);
    if let Ok(manifest) = read_manifest(&copied)
        && manifest.source == source
    {
        match changed_file(&copied, &manifest) {
            Ok(None) => return Ok(copied),
            Ok(Some(file)) => {
                tracing::warn!(file = %file.display(), "program has changed; copying it again");
            }
            Err(error) => tracing::warn!(%error, "cannot read a program; copying it again"),
        }
    }
    let written = write_copy(folder, &copied, program, &files, source);
    written.map_err(Error::io("copy the programs to", &copied))?;
    Ok(copied)
}

/// Checks that every file of a copy is the one that was copied, and that there are no others.
pub(super) fn verify(copied: &Path) -> Result<(), Error> {
    let path = copied.join(MANIFEST);
    let manifest = read_manifest(copied).map_err(Error::io("read", &path))?;
    match changed_file(copied, &manifest).map_err(Error::io("read", copied))? {
        None => Ok(()),
        Some(file) => Err(Error::ProgramChanged { file, folder: copied.to_owned() }),
    }
}

/// Lists the names of complete copies that start with `prefix`, without it.
pub(super) fn list(folder: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.path().join(MANIFEST).is_file())
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix).map(str::to_owned))
        .collect()
}

/// Removes a copy. An error is logged: a copy that stays only takes space.
pub(super) fn remove(copied: &Path) {
    if let Err(error) = fs::remove_dir_all(copied) {
        tracing::warn!(folder = %copied.display(), %error, "cannot remove an old program");
    }
}

impl ProgramFiles {
    /// Lists all files with their metadata, by relative path.
    fn list(&self) -> io::Result<BTreeMap<String, Metadata>> {
        let mut files = BTreeMap::new();
        for part in self.parts {
            list_files(&self.root, part, &mut files)?;
        }
        Ok(files)
    }
}

/// Adds the files at a path to the list. Links are followed, because some installers link files from
/// their cache.
fn list_files(
    root: &Path,
    relative: &str,
    files: &mut BTreeMap<String, Metadata>,
) -> io::Result<()> {
    let path = root.join(relative);
    let metadata = fs::metadata(&path)?;
    if !metadata.is_dir() {
        files.insert(relative.to_owned(), metadata);
        return Ok(());
    }
    for entry in fs::read_dir(&path)? {
        let name = entry?.file_name();
        let name = name.to_str().ok_or_else(|| io::Error::other("a file name is not UTF-8"))?;
        let relative =
            if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
        list_files(root, &relative, files)?;
    }
    Ok(())
}

/// Returns a hash that changes if another package has replaced the files.
fn fingerprint(files: &BTreeMap<String, Metadata>) -> String {
    let mut hash = Sha256::new();
    for (path, metadata) in files {
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        hash.update(format!("{path}\0{}\0{seconds}.{nanoseconds}\n", metadata.len()).as_bytes());
    }
    to_hex(hash)
}

fn read_manifest(copied: &Path) -> io::Result<CopyManifest> {
    let bytes = fs::read(copied.join(MANIFEST))?;
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}

/// Returns the first file that differs from the manifest, is missing or was added.
fn changed_file(copied: &Path, manifest: &CopyManifest) -> io::Result<Option<PathBuf>> {
    let mut found = BTreeMap::new();
    list_files(copied, "", &mut found)?;
    found.remove(MANIFEST);
    let names: BTreeSet<&String> = found.keys().chain(manifest.files.keys()).collect();
    for name in names {
        let expected = manifest.files.get(name);
        let is_same = match (found.contains_key(name), expected) {
            (true, Some(expected)) => hash_file(&copied.join(name))? == *expected,
            _ => false,
        };
        if !is_same {
            return Ok(Some(copied.join(name)));
        }
    }
    Ok(None)
}

/// Writes a copy under a temporary name and renames it, so that an incomplete one is never used.
fn write_copy(
    folder: &Path,
    copied: &Path,
    program: &ProgramFiles,
    files: &BTreeMap<String, Metadata>,
    source: String,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    open_folder(folder)?;
    // PostgreSQL and Temporal are copied at the same time: each removes its own leftovers.
    let name = copied.file_name().unwrap_or_default().to_string_lossy();
    let partial = folder.join(format!("{PARTIAL}{name}"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    let folders: BTreeSet<&Path> =
        files.keys().flat_map(|path| Path::new(path).ancestors().skip(1)).collect();
    // Sorted, so a folder comes before the folders in it.
    for inner in folders {
        let inner = partial.join(inner);
        fs::create_dir(&inner)?;
        open_folder(&inner)?;
    }
    let mut hashes = BTreeMap::new();
    for (path, metadata) in files {
        let is_executable = metadata.mode() & 0o111 != 0;
        let hash = copy_file(&program.root.join(path), &partial.join(path), is_executable)?;
        hashes.insert(path.clone(), hash);
    }
    let manifest = CopyManifest { source, files: hashes };
    let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
    fs::write(partial.join(MANIFEST), text)?;
    if copied.exists() {
        fs::remove_dir_all(copied)?;
    }
    fs::rename(&partial, copied)
}

/// Lets the user that PostgreSQL runs as for root read a folder. For others, the data folder is closed.
fn open_folder(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

/// Copies a file and returns its SHA-256.
fn copy_file(from: &Path, to: &Path, is_executable: bool) -> io::Result<String> {
    let mode = if is_executable { 0o755 } else { 0o644 };
    let mut writer = OpenOptions::new().write(true).create_new(true).mode(mode).open(to)?;
    let hash = read_all(from, |bytes| writer.write_all(bytes))?;
    // The mode of a new file depends on the umask.
    writer.set_permissions(Permissions::from_mode(mode))?;
    Ok(hash)
}

fn hash_file(path: &Path) -> io::Result<String> {
    read_all(path, |_| Ok(()))
}

/// Reads a file in parts and returns its SHA-256.
fn read_all(path: &Path, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER_SIZE];
    let mut hash = Sha256::new();
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(to_hex(hash));
        }
        let bytes = &buffer[..length];
        hash.update(bytes);
        each(bytes)?;
    }
}

/// Returns the hash of the bytes so far, as text.
fn to_hex(hash: Sha256) -> String {
    let bytes: [u8; 32] = hash.finalize().into();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: &[&str] = &["bin", "notes"];

    /// Program of two files, one of them executable, in folders that only the owner can enter.
    fn program(root: &Path) -> ProgramFiles {
        fs::create_dir_all(root.join("bin/inner")).unwrap();
        fs::write(root.join("bin/inner/run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.join("bin/inner/run"), Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(root.join("bin"), Permissions::from_mode(0o700)).unwrap();
        fs::write(root.join("notes"), "text").unwrap();
        fs::write(root.join("not-copied"), "other").unwrap();
        ProgramFiles { root: root.to_owned(), parts: PARTS }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_copy_has_the_hash_of_every_file_and_other_users_can_read_it() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("programs");
        let copied = copy(&folder, "p-1", &program(&scratch.path().join("from"))).unwrap();
        verify(&copied).unwrap();
        assert_eq!(list(&folder, "p-"), ["1"]);
        assert!(!copied.join("not-copied").exists());
        let manifest = read_manifest(&copied).unwrap();
        // `printf text | sha256sum`.
        let expected = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";
        assert_eq!(manifest.files["notes"], expected);
        for (path, expected) in
            [("", 0o755), ("bin", 0o755), ("bin/inner/run", 0o755), ("notes", 0o644)]
        {
            assert_eq!(mode(&copied.join(path)), expected, "{path}");
        }
    }

    type Change = fn(&Path);

    #[test]
    fn a_changed_added_or_missing_file_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let from = program(&scratch.path().join("from"));
        let folder = scratch.path().join("programs");
        let changes: [(&str, Change); 3] = [
            ("notes", |copied| fs::write(copied.join("notes"), "else").unwrap()),
            ("bin/added.so", |copied| fs::write(copied.join("bin/added.so"), "").unwrap()),
            ("bin/inner/run", |copied| fs::remove_file(copied.join("bin/inner/run")).unwrap()),
        ];
        for (name, change) in changes {
            let copied = copy(&folder, "p-1", &from).unwrap();
            change(&copied);
            let error = verify(&copied).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("SHA-256"), "{error}");
        }
        // With the package at hand, the copy is made again.
        let copied = copy(&folder, "p-1", &from).unwrap();
        verify(&copied).unwrap();
    }

    #[test]
    fn files_of_another_package_replace_the_copy_and_an_incomplete_copy_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let from = program(&scratch.path().join("from"));
        let folder = scratch.path().join("programs");
        copy(&folder, "p-1", &from).unwrap();
        let partial = folder.join(format!("{PARTIAL}p-1"));
        fs::create_dir(&partial).unwrap();
        fs::write(from.root.join("notes"), "a longer text").unwrap();
        let copied = copy(&folder, "p-1", &from).unwrap();
        assert_eq!(fs::read_to_string(copied.join("notes")).unwrap(), "a longer text");
        assert!(!partial.exists());
    }
}
