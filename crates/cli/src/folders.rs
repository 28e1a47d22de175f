//! Where Tamma keeps its data on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where root's data is kept unless something is said: a place that others may enter.
const OF_ROOT: &str = "/var/lib/tamma";

/// Why there is no data folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing says where it could be.
    #[error("there is no place for Tamma's data: HOME is not set; name a folder with `--data`")]
    Homeless,
    /// A relative path was given, and the current folder is gone.
    #[error("cannot tell where `{}` is; name a folder with its whole path", path.display())]
    Nowhere {
        /// What was given.
        path: PathBuf,
        /// Why it cannot be told.
        source: std::io::Error,
    },
}

/// The data folder: the one given with `--data` or `TAMMA_DATA`, else `$XDG_DATA_HOME/tamma`, else
/// `~/.local/share/tamma`.
///
/// For root the last one is `/var/lib/tamma`: the private PostgreSQL then runs as somebody else,
/// who cannot enter root's home.
pub(crate) fn data(given: Option<&Path>) -> Result<PathBuf, Error> {
    let root = rustix::process::geteuid().is_root();
    let path = choose(given, root, |name| std::env::var_os(name)).ok_or(Error::Homeless)?;
    std::path::absolute(&path).map_err(|source| Error::Nowhere { path, source })
}

fn choose(
    given: Option<&Path>,
    root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    // The standard says that a relative one is not valid and is to be ignored.
    if let Some(shared) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
        return Some(shared.join("tamma"));
    }
    if root {
        return Some(PathBuf::from(OF_ROOT));
    }
    set("HOME").map(|home| home.join(".local/share/tamma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_folder_is_the_given_one_else_the_desktops_else_the_homes() {
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
        assert_eq!(choose(Some(Path::new("/given")), false, both), at("/given"));
        assert_eq!(choose(None, false, both), at("/xdg/tamma"));
        assert_eq!(choose(None, true, both), at("/xdg/tamma"));
        assert_eq!(choose(None, false, home), at("/home/ada/.local/share/tamma"));
        assert_eq!(choose(None, false, relative), at("/home/ada/.local/share/tamma"));
        assert_eq!(choose(None, true, home), at("/var/lib/tamma"));
        assert_eq!(choose(None, false, |_| None), None);
    }
}
