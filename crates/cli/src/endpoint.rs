//! Endpoint file that the local server writes when it starts.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Server URL without an endpoint file, `--server` or `TAMMA_URL`.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8622";

const FILE_NAME: &str = "server.json";

/// Address and credentials of a local server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// Base URL, such as `http://127.0.0.1:8622`.
    pub(crate) url: String,
    /// Process ID of the server.
    pub(crate) pid: u32,
    /// Token of the server; `None` in a file of a version that did not always require one.
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

/// Path of the endpoint file in a data folder.
fn file_path(data: &Path) -> PathBuf {
    data.join(FILE_NAME)
}

/// Reads the endpoint file. Returns `None` if it is missing or incomplete.
pub(crate) fn read(data: &Path) -> Option<Endpoint> {
    serde_json::from_slice(&std::fs::read(file_path(data)).ok()?).ok()
}

/// Writes the endpoint file, readable by its owner only, and replaces an old one atomically.
pub(crate) fn write(data: &Path, endpoint: &Endpoint) -> io::Result<()> {
    let path = file_path(data);
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

/// Removes the file, unless another process has replaced it.
pub(crate) fn remove(data: &Path, pid: u32) -> io::Result<()> {
    match read(data) {
        Some(endpoint) if endpoint.pid == pid => std::fs::remove_file(file_path(data)),
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
    fn the_endpoint_file_round_trips_and_only_its_owner_can_read_it() {
        let data = tempfile::tempdir().expect("a folder");
        assert_eq!(read(data.path()), None);
        write(data.path(), &endpoint(1)).expect("written");
        write(data.path(), &endpoint(2)).expect("written again");
        assert_eq!(read(data.path()), Some(endpoint(2)));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = std::fs::metadata(file_path(data.path())).expect("there");
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
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
    fn debug_output_hides_the_token() {
        assert!(!format!("{:?}", endpoint(1)).contains("some length"));
    }
}
