//! Where the server of this machine is: a file that it writes when it is up.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where a server is when nothing says otherwise.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:8622";

const NAME: &str = "server.json";

/// Where a server is, and what it takes to be let in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// Its address, such as `http://127.0.0.1:8622`.
    pub(crate) url: String,
    /// Its process.
    pub(crate) pid: u32,
    /// The token that every request must bring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        let mut out = f.debug_struct("Endpoint");
        out.field("url", &self.url).field("pid", &self.pid).field("token", &token).finish()
    }
}

/// The file in a data folder.
fn file(data: &Path) -> PathBuf {
    data.join(NAME)
}

/// Reads where the server is. A file that is not there, or half of one, is no answer.
pub(crate) fn read(data: &Path) -> Option<Endpoint> {
    serde_json::from_slice(&std::fs::read(file(data)).ok()?).ok()
}

/// Writes where the server is, for its owner only. Readers see the old file or the new one.
pub(crate) fn write(data: &Path, endpoint: &Endpoint) -> io::Result<()> {
    let path = file(data);
    let unfinished = path.with_extension(format!("{}.new", endpoint.pid));
    let mut options = std::fs::File::options();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(&unfinished)?;
    out.write_all(&serde_json::to_vec_pretty(endpoint)?)?;
    out.sync_all()?;
    std::fs::rename(unfinished, path)
}

/// Removes the file, if it is still the one of this process.
pub(crate) fn remove(data: &Path, pid: u32) -> io::Result<()> {
    match read(data) {
        Some(endpoint) if endpoint.pid == pid => std::fs::remove_file(file(data)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(pid: u32) -> Endpoint {
        let token = Some("a token of some length".to_owned());
        Endpoint { url: "http://127.0.0.1:1".to_owned(), pid, token }
    }

    #[test]
    fn what_was_written_is_read_and_only_its_owner_may() {
        let data = tempfile::tempdir().expect("a folder");
        assert_eq!(read(data.path()), None);
        write(data.path(), &endpoint(1)).expect("written");
        write(data.path(), &endpoint(2)).expect("written again");
        assert_eq!(read(data.path()), Some(endpoint(2)));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let about = std::fs::metadata(file(data.path())).expect("there");
            assert_eq!(about.permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_server_removes_only_its_own_file() {
        let data = tempfile::tempdir().expect("a folder");
        write(data.path(), &endpoint(2)).expect("written");
        remove(data.path(), 1).expect("nothing to do");
        assert!(read(data.path()).is_some());
        remove(data.path(), 2).expect("removed");
        assert_eq!(read(data.path()), None);
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", endpoint(1)).contains("some length"));
    }
}
