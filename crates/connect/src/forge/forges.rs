//! Forges of an installation: a folder with one settings file each.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::settings::{host_and_path, is_forge_name};
use super::{Forge, ForgeSettings, SettingsError};

/// Largest settings file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Forges of an installation. The folder is read again for every request, so a new credential is used
/// at once. Clones share their clients.
#[derive(Debug, Clone)]
pub struct Forges {
    folder: PathBuf,
    /// Client of each forge, with the settings that it was opened with.
    clients: Arc<Mutex<BTreeMap<String, (ForgeSettings, Forge)>>>,
}

/// Name of a forge, and the content of its file.
type ReadForge = (String, Result<ForgeSettings, SettingsError>);

impl Forges {
    /// Opens the forges of a folder, which may be missing. Nothing is read yet.
    pub fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), clients: Arc::default() }
    }

    /// Returns the settings of all forges, by name. Files that cannot be used are left out; see
    /// [`broken`](Self::broken).
    pub fn all(&self) -> Result<Vec<ForgeSettings>, SettingsError> {
        Ok(self.read()?.into_iter().filter_map(|(_, settings)| settings.ok()).collect())
    }

    /// Returns the names of forges whose file cannot be used, each with the problem.
    pub fn broken(&self) -> Result<Vec<(String, SettingsError)>, SettingsError> {
        let problem = |(name, settings): ReadForge| Some((name, settings.err()?));
        Ok(self.read()?.into_iter().filter_map(problem).collect())
    }

    /// Returns the settings of a forge, or `None` if there is no such forge.
    pub fn settings(&self, name: &str) -> Result<Option<ForgeSettings>, SettingsError> {
        if !is_forge_name(name) {
            return Ok(None);
        }
        match read_private_file(&self.path(name)) {
            Ok(yaml) => ForgeSettings::parse(name, &yaml).map(Some),
            Err(SettingsError::Unreadable { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads all files, by name.
    fn read(&self) -> Result<Vec<ReadForge>, SettingsError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(unreadable(&self.folder, source)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|source| unreadable(&self.folder, source))?.path();
            let is_yaml = path.extension().is_some_and(|it| it == "yaml");
            let Some(name) = path.file_stem().and_then(|it| it.to_str()) else { continue };
            if is_yaml && is_forge_name(name) {
                found.extend(self.settings(name).transpose().map(|it| (name.to_owned(), it)));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }

    /// Returns the client of a forge.
    pub fn client(&self, name: &str) -> Result<Option<Forge>, SettingsError> {
        let settings = self.settings(name)?;
        settings.map(|settings| self.open_client(settings)).transpose()
    }

    /// Returns the client for a repository's address, and the repository's path, such as `owner/name`.
    /// If several forges match, the one with the longest address is used. If none matches, it fails if
    /// a file cannot be used, because that forge may be the right one.
    pub fn for_repository(&self, address: &str) -> Result<Option<(Forge, String)>, SettingsError> {
        let (mut matching, mut broken) = (Vec::new(), None);
        for (_, settings) in self.read()? {
            match settings {
                Ok(settings) => {
                    let found = settings.repository_path(address);
                    matching.extend(found.map(|(length, path)| (length, settings, path)));
                }
                Err(error) => broken = Some(error),
            }
        }
        match (matching.into_iter().max_by_key(|(length, ..)| *length), broken) {
            (Some((_, settings, path)), _) => Ok(Some((self.open_client(settings)?, path))),
            (None, Some(error)) if host_and_path(address).is_some() => Err(error),
            (None, _) => Ok(None),
        }
    }

    /// Writes the settings of a forge, readable by nobody else, and replaces older ones.
    pub fn save(&self, settings: &ForgeSettings) -> Result<(), SettingsError> {
        settings.validate()?;
        let yaml = settings.to_yaml()?;
        fs::create_dir_all(&self.folder).map_err(|source| unreadable(&self.folder, source))?;
        let path = self.path(&settings.name);
        // A reader sees the old file or the new one, never a part.
        let draft = self.folder.join(format!(".{}.new", settings.name));
        let written = write_private_file(&draft, &yaml).and_then(|()| fs::rename(&draft, &path));
        written.map_err(|source| unreadable(&path, source))
    }

    /// Removes the settings of a forge. A missing forge is no error.
    pub fn remove(&self, name: &str) -> Result<(), SettingsError> {
        if !is_forge_name(name) {
            return Ok(());
        }
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| unreadable(&path, source)),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.yaml"))
    }

    /// Returns the client with these settings, and keeps it for the next request.
    fn open_client(&self, settings: ForgeSettings) -> Result<Forge, SettingsError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = clients.get(&settings.name)
            && *known == settings
        {
            return Ok(client.clone());
        }
        let client = Forge::open(&settings).map_err(|error| SettingsError::Invalid {
            name: settings.name.clone(),
            reason: error.to_string(),
        })?;
        clients.insert(settings.name.clone(), (settings, client.clone()));
        Ok(client)
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> SettingsError {
    SettingsError::Unreadable { path: path.display().to_string(), source }
}

/// Reads a file that only its owner can read.
fn read_private_file(path: &Path) -> Result<String, SettingsError> {
    let metadata = fs::metadata(path).map_err(|source| unreadable(path, source))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(SettingsError::Exposed { path: path.display().to_string() });
        }
    }
    if metadata.len() > MAX_FILE_BYTES {
        let source = std::io::Error::other("the file is larger than 64 KiB");
        return Err(unreadable(path, source));
    }
    fs::read_to_string(path).map_err(|source| unreadable(path, source))
}

/// Writes a file with mode 0600.
fn write_private_file(path: &Path, content: &str) -> std::io::Result<()> {
    // A file that was left behind could have another mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use tamma_core::forge::ForgeKind;

    use super::*;
    use crate::forge::ForgeCredential;

    fn settings(name: &str, url: &str) -> ForgeSettings {
        ForgeSettings {
            name: name.to_owned(),
            kind: ForgeKind::Gitea,
            url: url.to_owned(),
            api: None,
            credential: ForgeCredential::Token("t0ken".to_owned()),
            webhook_secret: None,
        }
    }

    #[test]
    fn saved_forge_is_private_found_by_its_address_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let forges = Forges::open(&folder.path().join("forges"));
        assert!(forges.all().unwrap().is_empty());
        let (short, long) = (
            settings("short", "https://acme.example"),
            settings("long", "https://acme.example/git"),
        );
        forges.save(&short).unwrap();
        forges.save(&long).unwrap();
        forges.save(&short).unwrap();
        assert_eq!(forges.all().unwrap(), [long, short]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = fs::metadata(folder.path().join("forges/short.yaml")).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
        let (forge, path) = forges.for_repository("https://acme.example/git/a/b").unwrap().unwrap();
        assert_eq!((forge.name(), path.as_str()), ("long", "a/b"));
        let (forge, path) = forges.for_repository("git@acme.example:a/b.git").unwrap().unwrap();
        assert_eq!(path, "a/b");
        assert!(["long", "short"].contains(&forge.name()));
        assert!(forges.for_repository("/srv/git/app").unwrap().is_none());
        forges.remove("long").unwrap();
        forges.remove("long").unwrap();
        assert!(forges.client("long").unwrap().is_none());
        assert!(forges.client("short").unwrap().is_some());
    }

    #[cfg(unix)]
    #[test]
    fn file_that_others_can_read_is_refused_and_stops_no_other_forge() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let forges = Forges::open(folder.path());
        forges.save(&settings("acme", "https://acme.example")).unwrap();
        let path = folder.path().join("acme.yaml");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        forges.save(&settings("other", "https://other.example")).unwrap();
        let error = forges.settings("acme").unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        assert_eq!(forges.all().unwrap(), [settings("other", "https://other.example")]);
        let broken = forges.broken().unwrap();
        assert_eq!(broken.len(), 1);
        assert_eq!((broken[0].0.as_str(), broken[0].1.to_string()), ("acme", error));
        assert!(forges.client("acme").is_err());
        assert!(forges.for_repository("https://acme.example/a/b").is_err());
        assert!(forges.for_repository("https://other.example/a/b").unwrap().is_some());
        assert!(forges.for_repository("/srv/git/app").unwrap().is_none());
    }
}
