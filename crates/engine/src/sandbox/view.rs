//! File system view of a sandboxed process. Both mechanisms are built from this list.

use std::path::{Component, Path, PathBuf};

use super::{Sandbox, path_text, system};
use crate::process::Launch;

/// Access to a path in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileAccess {
    /// Symbolic link, with its target.
    Link(PathBuf),
    /// Readable, including everything below.
    Readable,
    /// Writable, including everything below.
    Writable,
    /// Content of another file, readable.
    Replaced(PathBuf),
    /// Hidden file, which appears empty.
    HiddenFile,
    /// Hidden directory, which appears empty.
    HiddenDir,
    /// Empty private directory in memory.
    Scratch,
    /// Standard devices.
    Devices,
    /// Processes of the sandbox.
    Processes,
}

/// Paths that a sandboxed process sees, parents before children.
#[derive(Debug)]
pub(super) struct SandboxView {
    entries: Vec<(PathBuf, FileAccess)>,
}

impl SandboxView {
    /// Builds the view for a launch. `program` is its resolved program.
    pub(super) fn new(sandbox: &Sandbox, launch: &Launch, program: &Path) -> Self {
        let mut view = Self { entries: Vec::new() };
        view.add_system();
        view.add_installations(sandbox, launch, program);
        for path in sandbox.readable.iter().chain(&sandbox.repository) {
            view.add_resolved(path, &FileAccess::Readable);
        }
        for path in sandbox.writable.iter().chain([&sandbox.home]) {
            view.add_resolved(path, &FileAccess::Writable);
        }
        if let Some(git) = &sandbox.git {
            view.add(git.objects(), FileAccess::Readable);
            view.add(&git.git_dir(), FileAccess::Writable);
        }
        view.add_worktree(sandbox);
        for forward in sandbox.network.forwards() {
            view.add(&forward.socket, FileAccess::Readable);
        }
        view.add(&sandbox.launcher.program, FileAccess::Readable);
        // Parents come first, so that children can override them. For equal paths, the last entry
        // counts.
        view.entries.sort_by_key(|(path, _)| path.components().count());
        view.hide(&sandbox.hidden);
        view
    }

    /// Returns all paths with their access, in mount order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Path, &FileAccess)> {
        self.entries.iter().map(|(path, access)| (path.as_path(), access))
    }

    fn add(&mut self, path: &Path, access: FileAccess) {
        // Paths that do not exist cannot be mounted.
        if path.is_absolute() && path.symlink_metadata().is_ok() {
            self.entries.push((path.to_owned(), access));
        }
    }

    /// Adds a path. If it is a link, adds the chain of links and the target.
    fn add_resolved(&mut self, path: &Path, access: &FileAccess) {
        let mut path = self.resolve_parent(path);
        // The kernel follows at most 40 links.
        for _ in 0..40 {
            let Ok(to) = path.read_link() else { break };
            if !self.covers(&path) {
                self.add(&path, FileAccess::Link(to.clone()));
            }
            path = path.parent().map(|folder| folder.join(&to)).unwrap_or(to);
        }
        if path.components().any(|part| part == Component::ParentDir) {
            path = path.canonicalize().unwrap_or(path);
        }
        if *access != FileAccess::Readable || !self.covers(&path) {
            self.add(&path, access.clone());
        }
    }

    /// Resolves the parent of a path if it is below a link, because nothing can be mounted below a
    /// link.
    fn resolve_parent(&self, path: &Path) -> PathBuf {
        let is_linked = self.entries.iter().any(|(above, access)| {
            matches!(access, FileAccess::Link(_)) && path.starts_with(above) && path != above
        });
        let folder = path.parent().filter(|_| is_linked).and_then(|it| it.canonicalize().ok());
        match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    }

    /// Returns `true` if a parent is already visible.
    fn covers(&self, path: &Path) -> bool {
        self.entries.iter().any(|(above, access)| {
            path.starts_with(above) && matches!(access, FileAccess::Readable | FileAccess::Writable)
        })
    }

    fn add_system(&mut self) {
        for folder in system::SYSTEM_DIRS.map(Path::new) {
            match folder.read_link() {
                Ok(to) => self.add(folder, FileAccess::Link(to)),
                Err(_) => self.add(folder, FileAccess::Readable),
            }
        }
        for path in system::restricted_paths() {
            self.add(path, hidden_access(path));
        }
        for (path, access) in [
            ("/dev", FileAccess::Devices),
            ("/proc", FileAccess::Processes),
            ("/tmp", FileAccess::Scratch),
        ] {
            self.add(Path::new(path), access);
        }
    }

    /// Adds the directories of `PATH`, and the installation of the agent's program.
    fn add_installations(&mut self, sandbox: &Sandbox, launch: &Launch, program: &Path) {
        let home = launch.env.get("HOME").map(PathBuf::from);
        let search = launch.env.get("PATH").map(String::as_str).unwrap_or_default();
        for folder in search.split(':').map(Path::new) {
            let covered = system::SYSTEM_DIRS.iter().any(|system| folder.starts_with(system));
            // A search path entry must not reveal a whole home or worktree.
            let too_much = [Some(&sandbox.worktree), Some(&sandbox.home), home.as_ref()]
                .into_iter()
                .flatten()
                .any(|own| own.starts_with(folder) || folder.starts_with(&sandbox.worktree));
            if folder.is_absolute() && folder.is_dir() && !covered && !too_much {
                self.add(folder, FileAccess::Readable);
            }
        }
        // Programs installed by npm need their sibling packages.
        let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        let modules = real.ancestors().filter(|above| above.ends_with("node_modules")).last();
        if let Some(modules) = modules.filter(|modules| !modules.starts_with(&sandbox.worktree)) {
            self.add(modules, FileAccess::Readable);
        }
        self.add_resolved(program, &FileAccess::Readable);
    }

    fn add_worktree(&mut self, sandbox: &Sandbox) {
        let access = if sandbox.read_only { FileAccess::Readable } else { FileAccess::Writable };
        self.add(&sandbox.worktree, access);
        let link = sandbox.worktree.join(".git");
        for path in sandbox.protected.iter().chain(sandbox.git.is_none().then_some(&link)) {
            // Protecting a link would protect its target instead. The check of the diff covers
            // links.
            let straight = path.canonicalize().is_ok_and(|real| real == *path);
            if straight && path.starts_with(&sandbox.worktree) && !sandbox.read_only {
                self.add(path, FileAccess::Readable);
            }
        }
        // Only a plain file can be replaced. Otherwise git fails in the sandbox, which is safe.
        if let Some(git) = &sandbox.git
            && link.symlink_metadata().is_ok_and(|it| it.is_file())
        {
            self.add(&link, FileAccess::Replaced(git.link()));
        }
    }

    /// Hides paths that a visible parent would reveal.
    fn hide(&mut self, hidden: &[PathBuf]) {
        for path in hidden {
            if self.covers(path) && path.symlink_metadata().is_ok() {
                self.entries.retain(|(same, _)| same != path);
                self.entries.push((path.clone(), hidden_access(path)));
            }
        }
        self.entries.sort_by_key(|(path, _)| path.components().count());
    }
}

fn hidden_access(path: &Path) -> FileAccess {
    if path.is_dir() { FileAccess::HiddenDir } else { FileAccess::HiddenFile }
}

impl FileAccess {
    /// Returns the launcher arguments for this access.
    pub(super) fn launcher_args(&self, path: &Path) -> Option<[String; 2]> {
        let option = match self {
            Self::Readable => "--read",
            Self::Writable => "--write",
            _ => return None,
        };
        Some([option.to_owned(), path_text(path)])
    }
}
