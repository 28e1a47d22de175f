//! System paths that every sandbox can read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Directories with programs, libraries and settings. Excludes homes, `/run`, `/var`, `/mnt` and
/// `/srv`.
pub(super) const SYSTEM_DIRS: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/run/current-system",
    "/var/lib/ca-certificates",
];

/// Maximum depth of the search for restricted files.
const MAX_DEPTH: usize = 6;

/// Returns system files that we can read, but that are not world-readable.
///
/// A sandbox hides them. This matters most if the worker runs as root, which can read everything.
pub(super) fn restricted_paths() -> &'static [PathBuf] {
    static SECRETS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    SECRETS.get_or_init(|| {
        let mut restricted = Vec::new();
        collect_restricted(Path::new("/etc"), MAX_DEPTH, &mut restricted);
        collect_restricted(Path::new("/opt"), 1, &mut restricted);
        restricted
    })
}

fn collect_restricted(folder: &Path, depth: usize, restricted: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else { continue };
        let open_to_all = |bits: u32| metadata.permissions().mode() & bits == bits;
        if metadata.is_dir() {
            if open_to_all(0o005) {
                collect_restricted(&path, depth, restricted);
            } else if fs::read_dir(&path).is_ok() {
                restricted.push(path);
            }
        } else if metadata.is_file() && !open_to_all(0o004) && fs::File::open(&path).is_ok() {
            restricted.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_world_readable_are_found() {
        let folder = tempfile::tempdir().expect("folder");
        let make = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(&path, "x").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            path
        };
        let (_open, shut) = (make("hosts", 0o644), make("shadow", 0o640));
        let key = make("private/key", 0o644);
        let private = key.parent().expect("a parent").to_owned();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("set");
        let mut restricted = Vec::new();
        collect_restricted(folder.path(), MAX_DEPTH, &mut restricted);
        restricted.sort();
        assert_eq!(restricted, [private, shut]);
    }
}
