//! What a process in a cage sees: one list, from which both kinds of cage are made.

use std::path::{Component, Path, PathBuf};

use super::{Cage, Network, system, text};
use crate::process::Launch;

/// How something is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sight {
    /// A link, as it is outside.
    Link(PathBuf),
    /// It can be read, with all that is below it.
    Readable,
    /// It can be written too.
    Writable,
    /// A file that seems to be empty.
    NoFile,
    /// A folder that seems to be empty.
    NoFolder,
    /// An empty folder of its own, in memory.
    Scratch,
    /// The devices that everybody has.
    Devices,
    /// Its own processes.
    Processes,
}

/// What a process in a cage sees, what is above before what is below it.
#[derive(Debug)]
pub(super) struct View {
    sights: Vec<(PathBuf, Sight)>,
}

impl View {
    /// What a launch sees in a cage. `found` is its program.
    pub(super) fn of(cage: &Cage, launch: &Launch, found: &Path) -> Self {
        let mut view = Self { sights: Vec::new() };
        view.machine(&cage.network);
        view.installations(cage, launch, found);
        for path in cage.readable.iter().chain(&cage.repository) {
            view.show(path, &Sight::Readable);
        }
        for path in cage.writable.iter().chain([&cage.home]) {
            view.show(path, &Sight::Writable);
        }
        view.worktree(cage);
        if let Network::Gateway { socket, .. } = &cage.network {
            view.add(socket, Sight::Readable);
        }
        view.add(&cage.launcher.program, Sight::Readable);
        // What is above comes first, so that what is below can differ from it. Among equals, what
        // was said last counts.
        view.sights.sort_by_key(|(path, _)| path.components().count());
        view.hide(&cage.hidden);
        view
    }

    /// Each with its path, in the order in which they lie over each other.
    pub(super) fn sights(&self) -> impl Iterator<Item = (&Path, &Sight)> {
        self.sights.iter().map(|(path, sight)| (path.as_path(), sight))
    }

    fn add(&mut self, path: &Path, sight: Sight) {
        // A cage is a list of what is there. What is not cannot be shown, and need not be.
        if path.is_absolute() && path.symlink_metadata().is_ok() {
            self.sights.push((path.to_owned(), sight));
        }
    }

    /// Shows something, and if it is a link, what it leads to.
    fn show(&mut self, path: &Path, sight: &Sight) {
        let mut path = self.straight(path);
        // No chain of links is longer than the kernel would follow.
        for _ in 0..40 {
            let Ok(to) = path.read_link() else { break };
            if !self.covers(&path) {
                self.add(&path, Sight::Link(to.clone()));
            }
            path = path.parent().map(|folder| folder.join(&to)).unwrap_or(to);
        }
        if path.components().any(|part| part == Component::ParentDir) {
            path = path.canonicalize().unwrap_or(path);
        }
        if *sight != Sight::Readable || !self.covers(&path) {
            self.add(&path, sight.clone());
        }
    }

    /// The same without a link that is shown above it: nothing can be laid below a link.
    fn straight(&self, path: &Path) -> PathBuf {
        let is_linked = self.sights.iter().any(|(above, sight)| {
            matches!(sight, Sight::Link(_)) && path.starts_with(above) && path != above
        });
        let folder = path.parent().filter(|_| is_linked).and_then(|it| it.canonicalize().ok());
        match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    }

    /// Whether something above is shown already.
    fn covers(&self, path: &Path) -> bool {
        self.sights.iter().any(|(above, sight)| {
            path.starts_with(above) && matches!(sight, Sight::Readable | Sight::Writable)
        })
    }

    fn machine(&mut self, network: &Network) {
        for folder in system::FOLDERS.map(Path::new) {
            match folder.read_link() {
                Ok(to) => self.add(folder, Sight::Link(to)),
                Err(_) => self.add(folder, Sight::Readable),
            }
        }
        for path in system::secrets() {
            self.add(path, nothing(path));
        }
        for (path, sight) in
            [("/dev", Sight::Devices), ("/proc", Sight::Processes), ("/tmp", Sight::Scratch)]
        {
            self.add(Path::new(path), sight);
        }
        // Often a link to a file that a service of the machine writes.
        if let (Network::Open { .. }, Ok(names)) =
            (network, Path::new("/etc/resolv.conf").canonicalize())
            && !names.starts_with("/etc")
        {
            self.add(&names, Sight::Readable);
        }
    }

    /// The programs: those of the search path, and what the agent's own is installed with.
    fn installations(&mut self, cage: &Cage, launch: &Launch, found: &Path) {
        let home = launch.env.get("HOME").map(PathBuf::from);
        let search = launch.env.get("PATH").map(String::as_str).unwrap_or_default();
        for folder in search.split(':').map(Path::new) {
            let covered = system::FOLDERS.iter().any(|system| folder.starts_with(system));
            // A search path that leads through a home or a worktree must not show the whole of it.
            let too_much = [Some(&cage.worktree), Some(&cage.home), home.as_ref()]
                .into_iter()
                .flatten()
                .any(|own| own.starts_with(folder) || folder.starts_with(&cage.worktree));
            if folder.is_absolute() && folder.is_dir() && !covered && !too_much {
                self.add(folder, Sight::Readable);
            }
        }
        // What is installed by npm needs what is installed beside it.
        let real = found.canonicalize().unwrap_or_else(|_| found.to_owned());
        let modules = real.ancestors().filter(|above| above.ends_with("node_modules")).last();
        if let Some(modules) = modules.filter(|modules| !modules.starts_with(&cage.worktree)) {
            self.add(modules, Sight::Readable);
        }
        self.show(found, &Sight::Readable);
    }

    fn worktree(&mut self, cage: &Cage) {
        let sight = if cage.looking { Sight::Readable } else { Sight::Writable };
        self.add(&cage.worktree, sight);
        let link = cage.worktree.join(".git");
        for path in cage.protected.iter().chain([&link]) {
            // Through a link something else would be protected. The diff shows what became of it.
            let straight = path.canonicalize().is_ok_and(|real| real == *path);
            if straight && path.starts_with(&cage.worktree) && !cage.looking {
                self.add(path, Sight::Readable);
            }
        }
    }

    /// Hides what something above it would show, and shows again what is shown below it.
    fn hide(&mut self, hidden: &[PathBuf]) {
        for path in hidden {
            if self.covers(path) && path.symlink_metadata().is_ok() {
                self.sights.retain(|(same, _)| same != path);
                self.sights.push((path.clone(), nothing(path)));
            }
        }
        self.sights.sort_by_key(|(path, _)| path.components().count());
    }
}

fn nothing(path: &Path) -> Sight {
    if path.is_dir() { Sight::NoFolder } else { Sight::NoFile }
}

impl Sight {
    /// The words by which a launcher is told of it.
    pub(super) fn told(&self, path: &Path) -> Option<[String; 2]> {
        let how = match self {
            Self::Readable => "--read",
            Self::Writable => "--write",
            _ => return None,
        };
        Some([how.to_owned(), text(path)])
    }
}
