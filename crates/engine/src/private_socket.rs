//! Unix sockets that only this user can access.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tokio::net::UnixListener;

/// Listens on a socket that only this user can access.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        // Left over from a worker that has exited.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
