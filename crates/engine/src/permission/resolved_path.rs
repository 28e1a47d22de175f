//! Resolution of paths through symbolic links.

use std::path::{Component, Path, PathBuf};

/// Maximum number of entries that a walk visits.
const MAX_ENTRIES: usize = 200_000;

/// Path with all links resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResolvedPath {
    /// Path relative to the worktree, or absolute if it is outside.
    pub(super) name: String,
    /// `true` if the path is in the worktree.
    pub(super) in_worktree: bool,
}

impl ResolvedPath {
    /// Resolves a path. The error is a reason to deny the request.
    pub(super) fn resolve(worktree: &Path, path: &Path) -> Result<Self, String> {
        let unresolved = |path: &Path| format!("cannot resolve the path `{}`", path.display());
        let root = worktree.canonicalize().map_err(|_| unresolved(worktree))?;
        let joined = root.join(path);
        // Resolve links in the existing part of the path; the rest has none.
        let existing =
            joined.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
        let Some((ancestor, real)) = existing else {
            return Err(unresolved(path));
        };
        let rest = joined.strip_prefix(ancestor).map_err(|_| unresolved(path))?;
        if rest.components().any(|part| !matches!(part, Component::Normal(_)))
            || joined.ancestors().take_while(|part| *part != ancestor).any(Path::is_symlink)
        {
            return Err(unresolved(path));
        }
        let real: PathBuf = real.components().chain(rest.components()).collect();
        let (name, in_worktree) =
            real.strip_prefix(&root).map_or((real.as_path(), false), |name| (name, true));
        Ok(Self { name: name.to_string_lossy().into_owned(), in_worktree })
    }
}

/// Visits all files and directories of a worktree, except in `.git` and behind links. If `visit`
/// returns `false`, the contents of that directory are skipped.
pub(super) fn walk(worktree: &Path, visit: &mut impl FnMut(&str, &Path) -> bool) {
    let mut pending = vec![worktree.to_owned()];
    let mut remaining = MAX_ENTRIES;
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            remaining = remaining.saturating_sub(1);
            if remaining == 0 {
                return;
            }
            let Ok(name) = path.strip_prefix(worktree) else { continue };
            let git = name.components().next_back() == Some(Component::Normal(".git".as_ref()));
            if !git && visit(&name.to_string_lossy(), &path) && kind.is_dir() {
                pending.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_inside_only_if_its_resolved_location_is() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path().join("tree");
        std::fs::create_dir_all(root.join("src")).expect("made");
        for (link, to) in [("out", "/tmp"), ("gone", "/nowhere/at/all"), ("in", "src")] {
            std::os::unix::fs::symlink(to, root.join(link)).expect("linked");
        }
        let name = |path: &str| {
            ResolvedPath::resolve(&root, Path::new(path))
                .ok()
                .filter(|resolved| resolved.in_worktree)
                .map(|it| it.name)
        };
        assert_eq!(name("src/new/file.rs").as_deref(), Some("src/new/file.rs"));
        assert_eq!(name("in/file.rs").as_deref(), Some("src/file.rs"));
        let absolute = root.join("src/a.rs").display().to_string();
        assert_eq!(name(&absolute).as_deref(), Some("src/a.rs"));
        assert_eq!(name(".git/hooks/x").as_deref(), Some(".git/hooks/x"));
        for path in [
            "/etc/passwd",
            "../other",
            "src/../../other",
            "new/../../../etc/x",
            "out/x",
            "gone/x",
            "gone",
        ] {
            assert_eq!(name(path), None, "{path}");
        }
        assert_eq!(
            ResolvedPath::resolve(&root, Path::new("/etc/passwd")),
            Ok(ResolvedPath { name: "/etc/passwd".to_owned(), in_worktree: false })
        );
    }
}
