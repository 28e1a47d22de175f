//! Location of the data folder.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Default for root: a folder that other users can enter.
const ROOT_DEFAULT: &str = "/var/lib/tamma";

/// Folders in the data folder with code and transcripts.
const PRIVATE_FOLDERS: [&str; 3] = ["work", "objects", "configurations"];

/// Failure to determine the data folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No argument or variable names a folder.
    #[error("cannot choose a data folder: HOME is not set; name one with `--data`")]
    NoHome,
    /// Relative path, while the current folder cannot be determined.
    #[error("cannot resolve the data folder `{}`; use an absolute path", path.display())]
    NoCurrentFolder {
        /// Path as given.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// Returns the data folder: `--data` or `TAMMA_DATA`, else `$XDG_DATA_HOME/tamma`, else
/// `~/.local/share/tamma`.
///
/// For root, the last one is `/var/lib/tamma`: the private PostgreSQL then runs as another user,
/// who cannot enter root's home.
pub(crate) fn resolve(explicit: Option<&Path>) -> Result<PathBuf, Error> {
    let root = rustix::process::geteuid().is_root();
    let path = choose_path(explicit, root, |name| std::env::var_os(name)).ok_or(Error::NoHome)?;
    std::path::absolute(&path).map_err(|source| Error::NoCurrentFolder { path, source })
}

/// Creates the data folder if needed, and closes its folders with code and transcripts to other users.
/// Older versions created them with the permissions that the umask allows.
pub(crate) fn create(data: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid();
    // For root, PostgreSQL runs as another user, who must be able to enter but not to list it.
    let mode = if user.is_root() { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(data)?;
    for folder in PRIVATE_FOLDERS.map(|name| data.join(name)) {
        let Ok(metadata) = fs::symlink_metadata(&folder) else { continue };
        let mode = metadata.mode() & 0o7777;
        // The permissions of the group stay: the owner can have set them for a second user.
        if metadata.is_dir() && metadata.uid() == user.as_raw() && mode & 0o007 != 0 {
            fs::set_permissions(&folder, Permissions::from_mode(mode & 0o7770))?;
        }
    }
    Ok(())
}

fn choose_path(
    explicit: Option<&Path>,
    root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(explicit) = explicit {
        return Some(explicit.to_owned());
    }
    // The XDG specification requires that a relative path is ignored.
    if let Some(shared) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
        return Some(shared.join("tamma"));
    }
    if root {
        return Some(PathBuf::from(ROOT_DEFAULT));
    }
    set("HOME").map(|home| home.join(".local/share/tamma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_can_read_no_code_and_no_transcripts() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        create(&data).unwrap();
        assert_eq!(mode(&data) & 0o066, 0);
        let old = data.join("work");
        fs::create_dir(&old).unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o755)).unwrap();
        create(&data).unwrap();
        assert_eq!(mode(&old), 0o750);
    }

    #[test]
    fn the_data_folder_comes_from_the_argument_then_xdg_then_home() {
        let both = |name: &str| match name {
            "XDG_DATA_HOME" => Some(OsString::from("/xdg")),
            "HOME" => Some(OsString::from("/home/ada")),
            _ => None,
        };
        let home = |name: &str| both(name).filter(|_| name == "HOME");
        let relative = |name: &str| match name {
            "XDG_DATA_HOME" => Some(OsString::from("xdg")),
            _ => home(name),
        };
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(choose_path(Some(Path::new("/given")), false, both), at("/given"));
        assert_eq!(choose_path(None, false, both), at("/xdg/tamma"));
        assert_eq!(choose_path(None, true, both), at("/xdg/tamma"));
        assert_eq!(choose_path(None, false, home), at("/home/ada/.local/share/tamma"));
        assert_eq!(choose_path(None, false, relative), at("/home/ada/.local/share/tamma"));
        assert_eq!(choose_path(None, true, home), at("/var/lib/tamma"));
        assert_eq!(choose_path(None, false, |_| None), None);
    }
}
