//! What of the machine itself every cage can see.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Programs, libraries and their settings. Not the homes, `/run`, `/var`, `/mnt` or `/srv`.
pub(super) const FOLDERS: [&str; 13] = [
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

/// How deep it is looked for what is not everybody's.
const DEPTH: usize = 6;

/// What in the machine's settings is not for everybody's eyes, and would be for ours.
///
/// The rule is the machine's own: a file that not everybody may read is nobody's business in a
/// cage. It matters most where we run as root, who reads everything.
pub(super) fn secrets() -> &'static [PathBuf] {
    static SECRETS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    SECRETS.get_or_init(|| {
        let mut found = Vec::new();
        look(Path::new("/etc"), DEPTH, &mut found);
        look(Path::new("/opt"), 1, &mut found);
        found
    })
}

fn look(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
        let open_to_all = |bits: u32| about.permissions().mode() & bits == bits;
        if about.is_dir() {
            if open_to_all(0o005) {
                look(&path, depth, found);
            } else if fs::read_dir(&path).is_ok() {
                found.push(path);
            }
        } else if about.is_file() && !open_to_all(0o004) && fs::File::open(&path).is_ok() {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_not_everybody_may_read_is_found_and_the_rest_is_not() {
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
        let mut found = Vec::new();
        look(folder.path(), DEPTH, &mut found);
        found.sort();
        assert_eq!(found, [private, shut]);
    }
}
