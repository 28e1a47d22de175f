//! Logins of `tamma login`, in the data folder of the user.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::data_folder;

const FILE_NAME: &str = "logins.json";

/// Login at one server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedLogin {
    /// Name of the person.
    pub(crate) person: String,
    /// Token of the session.
    pub(crate) token: String,
}

impl std::fmt::Debug for SavedLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedLogin").field("person", &self.person).finish_non_exhaustive()
    }
}

/// Logins by the URL of their server.
type SavedLogins = BTreeMap<String, SavedLogin>;

/// Returns the data folder of the user, as the client finds it.
fn folder() -> io::Result<PathBuf> {
    let data = std::env::var_os("TAMMA_DATA").filter(|data| !data.is_empty()).map(PathBuf::from);
    data_folder::resolve(data.as_deref()).map_err(io::Error::other)
}

/// Returns the login at a server, if there is one. `is_same` compares two URLs.
pub(crate) fn find(url: &str, is_same: impl Fn(&str, &str) -> bool) -> Option<SavedLogin> {
    let logins = read(&folder().ok()?);
    logins.into_iter().find(|(known, _)| is_same(known, url)).map(|(_, login)| login)
}

/// Saves the login at a server, or removes it. `is_same` compares two URLs.
pub(crate) fn save(
    url: &str,
    login: Option<SavedLogin>,
    is_same: impl Fn(&str, &str) -> bool,
) -> io::Result<()> {
    write(&folder()?, url, login, is_same)
}

fn read(data: &Path) -> SavedLogins {
    let text = std::fs::read(data.join(FILE_NAME)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Writes the file, readable by its owner only, and replaces an old one atomically.
fn write(
    data: &Path,
    url: &str,
    login: Option<SavedLogin>,
    is_same: impl Fn(&str, &str) -> bool,
) -> io::Result<()> {
    let mut logins = read(data);
    // The same server can have been written in another way.
    logins.retain(|known, _| !is_same(known, url));
    logins.extend(login.map(|login| (url.to_owned(), login)));
    std::fs::create_dir_all(data)?;
    let path = data.join(FILE_NAME);
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = std::fs::File::options();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(&unfinished)?;
    out.write_all(&serde_json::to_vec_pretty(&logins)?)?;
    out.sync_all()?;
    std::fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_kept_by_server_and_only_their_owner_can_read_them() {
        let data = tempfile::tempdir().expect("a folder");
        let login = |token: &str| SavedLogin { person: "Ada".to_owned(), token: token.to_owned() };
        let write = |url: &str, login: Option<SavedLogin>| {
            let is_same = |one: &str, other: &str| one.trim_end_matches('/') == other;
            write(data.path(), url, login, is_same).expect("written");
        };
        write("http://a", Some(login("0")));
        write("http://a/", Some(login("3")));
        write("http://a", Some(login("1")));
        write("http://b", Some(login("2")));
        assert_eq!(read(data.path()).get("http://a"), Some(&login("1")));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = std::fs::metadata(data.path().join(FILE_NAME)).expect("there");
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
        write("http://a", None);
        assert_eq!(read(data.path()).into_keys().collect::<Vec<_>>(), ["http://b"]);
        assert!(!format!("{:?}", login("secret")).contains("secret"));
    }
}
