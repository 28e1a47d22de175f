//! Home of an agent that is signed in on the worker.
//!
//! The agent gets private copies of its settings, which are made anew for each run. So it cannot
//! change the settings, hooks or instructions of the worker's user, nor those of its own next run.
//! Its credentials stay where they are, because it renews them. Its sessions and caches are private
//! to the task.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tamma_engine::files::remove_any;

/// Files with credentials, relative to the home directory.
const CREDENTIALS: [&str; 5] = [
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/google_accounts.json",
    ".gemini/oauth_creds.json",
    ".local/share/opencode/auth.json",
];

/// Sessions, logs and caches, which are neither copied nor removed.
const STATE: [&str; 18] = [
    ".cache/opencode",
    ".claude/debug",
    ".claude/file-history",
    ".claude/history.jsonl",
    ".claude/projects",
    ".claude/session-env",
    ".claude/shell-snapshots",
    ".claude/statsig",
    ".claude/todos",
    ".codex/archived_sessions",
    ".codex/history.jsonl",
    ".codex/log",
    ".codex/sessions",
    ".codex/shell_snapshots",
    ".gemini/history",
    ".gemini/tmp",
    ".local/share/opencode",
    ".local/state/opencode",
];

/// Maximum size of a copied file, in bytes. Larger ones are not settings.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Maximum size of all copied files, in bytes.
const MAX_TOTAL_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum depth of copied folders.
const MAX_DEPTH: usize = 12;

/// Copies the settings in `names` from the worker's home to the agent's, and links the credentials.
///
/// Returns the credentials, which the agent must be able to write. No process of the agent may be
/// running. Earlier runs could write to its home, so no link in it is followed.
pub(super) fn prepare(own: &Path, home: &Path, names: &[String]) -> Result<Vec<PathBuf>, String> {
    let failed = |name: &str, error: &io::Error| {
        format!("cannot copy the agent's settings `{}`: {error}", own.join(name).display())
    };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(home).map_err(|error| failed("", &error))?;
    let mut left = MAX_TOTAL_BYTES;
    let mut credentials = Vec::new();
    for name in names {
        refresh(own, home, Path::new(name), &mut left).map_err(|error| failed(name, &error))?;
    }
    for name in CREDENTIALS {
        let is_listed = names.iter().any(|listed| Path::new(name).starts_with(listed));
        let (source, target) = (own.join(name), home.join(name));
        if is_listed && source.is_file() {
            remove_any(&target)
                .and_then(|()| std::os::unix::fs::symlink(&source, &target))
                .map_err(|error| failed(name, &error))?;
            credentials.push(source);
        }
    }
    Ok(credentials)
}

/// Replaces the copy of one file or folder.
fn refresh(own: &Path, home: &Path, name: &Path, left: &mut u64) -> io::Result<()> {
    let (source, target) = (own.join(name), home.join(name));
    let mut folder = home.to_owned();
    for part in name.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        ensure_folder(&folder)?;
    }
    let metadata = match std::fs::metadata(&source) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return remove_any(&target),
        Err(error) => return Err(error),
    };
    if !metadata.is_dir() {
        remove_any(&target)?;
        return copy_file(&source, &target, left);
    }
    ensure_folder(&target)?;
    if is_one_of(&STATE, name) {
        return Ok(());
    }
    for entry in std::fs::read_dir(&target)? {
        let entry = entry?;
        if !is_one_of(&STATE, &name.join(entry.file_name())) {
            remove_any(&entry.path())?;
        }
    }
    copy_folder(&source, &target, name, (MAX_DEPTH, left))
}

/// Copies the files of a folder, without links, sessions and credentials.
fn copy_folder(
    source: &Path,
    target: &Path,
    name: &Path,
    (depth, left): (usize, &mut u64),
) -> io::Result<()> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
    for entry in std::fs::read_dir(source)? {
        let entry = entry?;
        let (name, target) = (name.join(entry.file_name()), target.join(entry.file_name()));
        if is_one_of(&STATE, &name) || is_one_of(&CREDENTIALS, &name) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            ensure_folder(&target)?;
            copy_folder(&entry.path(), &target, &name, (depth, &mut *left))?;
        } else if kind.is_file() {
            copy_file(&entry.path(), &target, left)?;
        }
    }
    Ok(())
}

fn copy_file(source: &Path, target: &Path, left: &mut u64) -> io::Result<()> {
    let size = std::fs::metadata(source)?.len();
    if size > MAX_FILE_BYTES {
        return Ok(());
    }
    *left = left
        .checked_sub(size)
        .ok_or_else(|| io::Error::other("the settings are larger than 256 MiB in total"))?;
    std::fs::copy(source, target).map(drop)
}

fn is_one_of(list: &[&str], name: &Path) -> bool {
    list.iter().any(|listed| Path::new(listed) == name)
}

/// Creates a folder, and replaces a file or a link in its place.
fn ensure_folder(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => std::fs::remove_file(path)?,
        Err(_) => {}
    }
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn changed_settings_reach_neither_the_host_nor_the_next_run() {
        let folder = tempfile::tempdir().expect("folder");
        let (own, home) = (folder.path().join("own"), folder.path().join("data/home"));
        let names = [".claude".to_owned(), ".claude.json".to_owned(), ".codex".to_owned()];
        write(&own.join(".claude/settings.json"), "{}");
        write(&own.join(".claude/agents/reviewer.md"), "review");
        write(&own.join(".claude/projects/other/session.jsonl"), "private");
        write(&own.join(".claude/.credentials.json"), "token");
        write(&own.join(".claude.json"), "{}");
        write(&own.join(".ssh/id"), "key");
        symlink(own.join(".ssh/id"), own.join(".claude/linked")).expect("linked");
        let credentials = prepare(&own, &home, &names).expect("prepared");
        assert_eq!(credentials, [own.join(".claude/.credentials.json")]);
        let read = |name: &str| fs::read_to_string(home.join(name)).ok();
        assert_eq!(read(".claude/settings.json").as_deref(), Some("{}"));
        assert_eq!(read(".claude/agents/reviewer.md").as_deref(), Some("review"));
        assert_eq!(read(".claude/.credentials.json").as_deref(), Some("token"));
        assert_eq!(read(".claude/projects/other/session.jsonl"), None);
        assert_eq!(read(".claude/linked"), None);

        // The agent adds a hook and an instruction, keeps a session and renews its credentials.
        write(&home.join(".claude/settings.json"), "{\"hooks\": {}}");
        write(&home.join(".claude/settings.local.json"), "{\"hooks\": {}}");
        write(&home.join(".claude/projects/this/session.jsonl"), "session");
        write(&home.join(".claude.json"), "{\"mcpServers\": {}}");
        write(&home.join(".claude/.credentials.json"), "renewed");
        prepare(&own, &home, &names).expect("prepared");
        assert_eq!(read(".claude/settings.json").as_deref(), Some("{}"));
        assert_eq!(read(".claude/settings.local.json"), None);
        assert_eq!(read(".claude.json").as_deref(), Some("{}"));
        assert_eq!(read(".claude/projects/this/session.jsonl").as_deref(), Some("session"));
        let host = |name: &str| fs::read_to_string(own.join(name)).expect("read");
        assert_eq!(
            (host(".claude/settings.json"), host(".claude.json")),
            ("{}".into(), "{}".into())
        );
        assert_eq!(host(".claude/.credentials.json"), "renewed");
        assert!(!own.join(".claude/settings.local.json").exists());
    }

    #[test]
    fn links_that_an_agent_left_are_replaced_instead_of_followed() {
        let folder = tempfile::tempdir().expect("folder");
        let (own, home) = (folder.path().join("own"), folder.path().join("home"));
        let victim = folder.path().join("victim");
        let names = [".config/opencode".to_owned(), ".codex".to_owned()];
        write(&own.join(".config/opencode/opencode.json"), "{}");
        write(&own.join(".codex/config.toml"), "model = \"a\"");
        write(&own.join(".codex/auth.json"), "token");
        write(&victim.join("opencode/kept"), "kept");
        write(&victim.join("kept"), "kept");
        fs::create_dir_all(&home).expect("made");
        symlink(&victim, home.join(".config")).expect("linked");
        symlink(&victim, home.join(".codex")).expect("linked");
        prepare(&own, &home, &names).expect("prepared");
        assert!(home.join(".config").symlink_metadata().expect("there").is_dir());
        assert!(home.join(".codex").symlink_metadata().expect("there").is_dir());
        assert_eq!(fs::read_to_string(home.join(".codex/auth.json")).expect("read"), "token");
        assert_eq!(fs::read_dir(&victim).expect("listed").count(), 2);
        assert_eq!(fs::read_to_string(victim.join("opencode/kept")).expect("read"), "kept");
    }
}
