//! Patch of a change, as validators and people see it.
//!
//! Attributes of files do not apply, because a change could hide lines with `.gitattributes`. A file
//! counts as binary only if both its content and its extension are; everything else is shown as text.

use std::collections::BTreeMap;
use std::path::Path;

use tamma_core::ids::CommitId;
use tamma_core::plan::FileAction;
use tamma_core::review::patch::{self, AddedLines};

use super::Worktree;
use crate::git::to_text;
use crate::mirror::Error;

/// Maximum size of a patch, in bytes.
const MAX_PATCH_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of a patch whose lines are parsed, in bytes.
const MAX_ADDED_BYTES: usize = 8 * 1024 * 1024;

/// Maximum number of binary files in a patch. Further ones are shown as text.
const MAX_BINARY_FILES: usize = 500;

/// Size from which a file is left out of a patch, in bytes, so that git does not hold it in memory.
/// The same as `core.bigFileThreshold`.
const LARGE_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Extensions of files that are expected to be binary.
const BINARY_EXTENSIONS: [&str; 36] = [
    "7z", "avif", "bin", "bmp", "bz2", "class", "db", "dll", "eot", "exe", "gif", "gz", "ico",
    "icns", "jar", "jpeg", "jpg", "mo", "mp3", "mp4", "ogg", "otf", "pdf", "png", "ser", "so",
    "sqlite", "tar", "tgz", "ttf", "wasm", "webm", "webp", "woff", "woff2", "zip",
];

/// Files that differ between two commits, and how a patch shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchedFiles {
    base: String,
    commit: String,
    /// Changed files, by path.
    pub actions: BTreeMap<String, FileAction>,
    others: OtherFiles,
}

/// Changed files that a patch does not show as text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherFiles {
    /// Binary by content and by name.
    binary: Vec<String>,
    /// Too large for a patch.
    large: Vec<String>,
}

impl OtherFiles {
    /// Returns pathspecs of all changed files but these.
    fn exclusions(&self) -> Vec<String> {
        let others = self.binary.iter().chain(&self.large);
        let others = others.map(|path| format!(":(exclude,literal){path}"));
        [".".to_owned()].into_iter().chain(others).collect()
    }
}

/// Difference between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePatch {
    /// Patch, or its start.
    pub text: String,
    /// The patch was too large and its end is missing.
    pub is_truncated: bool,
}

impl Worktree {
    /// Returns the difference between two commits as a patch.
    pub async fn diff(&self, base: CommitId, commit: CommitId) -> Result<ChangePatch, Error> {
        self.patch(&self.touched_files(base, commit).await?).await
    }

    /// Returns the difference in these files as a patch.
    pub async fn patch(&self, touched: &TouchedFiles) -> Result<ChangePatch, Error> {
        let TouchedFiles { base, commit, others, .. } = touched;
        let named: Vec<_> = others.binary.iter().map(|path| format!(":(literal){path}")).collect();
        let (as_text, as_is): (&[&str], &[&str]) = (&["--text"], &[]);
        let mut bytes = Vec::new();
        let mut is_truncated = false;
        for (options, paths) in [(as_text, others.exclusions()), (as_is, named)] {
            if paths.is_empty() || is_truncated {
                continue;
            }
            let call = patch_call(options, base, commit, &paths);
            let git = self.mirror.git.bare(&self.mirror.path);
            let output = git.max_output(MAX_PATCH_BYTES - bytes.len()).output(&call).await?;
            bytes.extend_from_slice(&output.stdout);
            is_truncated = output.is_truncated;
            output.check(&call, &self.mirror.path)?;
        }
        let is_truncated = is_truncated || !others.large.is_empty();
        Ok(ChangePatch { text: to_text(bytes), is_truncated })
    }

    /// Returns the lines that were added to these files, by file, counted from 1, without binary and
    /// large files. More than 8 MiB are an error.
    pub async fn added_lines(&self, touched: &TouchedFiles) -> Result<AddedLines, Error> {
        let TouchedFiles { base, commit, others, .. } = touched;
        let paths = others.exclusions();
        let call = patch_call(&["--text", "--unified=0"], base, commit, &paths);
        let call = ["-c", "core.quotePath=false"].map(str::to_owned).into_iter().chain(call);
        let git = self.mirror.git.bare(&self.mirror.path);
        Ok(patch::added_lines(&git.max_output(MAX_ADDED_BYTES).run(call).await?))
    }

    /// Returns the files that differ between two commits.
    pub async fn touched_files(
        &self,
        base: CommitId,
        commit: CommitId,
    ) -> Result<TouchedFiles, Error> {
        let (base, commit) = (base.to_string(), commit.to_string());
        let call = ["diff-tree", "-r", "-z", "--no-renames", "--raw", "--numstat", &base, &commit];
        let listed = self.mirror.git.bare(&self.mirror.path).run(call).await?;
        let (actions, uncounted) = parse_touched(&listed);
        let others = self.other_files(&base, &commit, uncounted).await?;
        Ok(TouchedFiles { base, commit, actions, others })
    }

    /// Returns which of the files whose lines git does not count are binary or large.
    async fn other_files(
        &self,
        base: &str,
        commit: &str,
        uncounted: Vec<String>,
    ) -> Result<OtherFiles, Error> {
        let (mut binary, unknown): (Vec<_>, Vec<_>) =
            uncounted.into_iter().partition(|path| is_binary_name(path));
        binary.truncate(MAX_BINARY_FILES);
        let mut large = Vec::new();
        if !unknown.is_empty() {
            let versions = unknown.iter().map(|path| {
                // A name with a line break cannot be asked for.
                let path = path.replace('\n', "?");
                format!("{base}:{path}\n{commit}:{path}\n")
            });
            let git = self.mirror.git.bare(&self.mirror.path).input(versions.collect::<String>());
            let sizes = git.run(["cat-file", "--batch-check=%(objectsize)"]).await?;
            // A file that does not exist in a commit has no size.
            let sizes: Vec<u64> =
                sizes.lines().map(|size| size.parse().unwrap_or_default()).collect();
            for (path, sizes) in unknown.into_iter().zip(sizes.chunks(2)) {
                let is_large = sizes.iter().any(|size| *size >= LARGE_FILE_BYTES);
                if is_large || path.contains('\n') {
                    large.push(path);
                }
            }
        }
        Ok(OtherFiles { binary, large })
    }
}

/// Parses the output of `diff-tree --raw --numstat -z`: all changed files, and those whose lines are
/// not counted, because they are binary or large.
fn parse_touched(listed: &str) -> (BTreeMap<String, FileAction>, Vec<String>) {
    let mut parts = listed.split('\0').filter(|part| !part.is_empty()).peekable();
    let mut actions = BTreeMap::new();
    // The path after each line of the first list can have any content.
    while let Some(about) = parts.next_if(|part| part.starts_with(':')) {
        let Some(path) = parts.next() else { break };
        let action = match about.rsplit(' ').next() {
            Some("A") => FileAction::Create,
            Some("D") => FileAction::Delete,
            // Modified (`M`), or changed type (`T`).
            _ => FileAction::Modify,
        };
        actions.insert(path.to_owned(), action);
    }
    let uncounted = parts.filter_map(|line| line.strip_prefix("-\t-\t"));
    (actions, uncounted.map(str::to_owned).collect())
}

fn is_binary_name(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|it| it.to_str()).unwrap_or_default();
    BINARY_EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str())
}

fn patch_call(options: &[&str], base: &str, commit: &str, paths: &[String]) -> Vec<String> {
    let call = ["diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv"];
    let call = call.into_iter().chain(options.iter().copied()).chain([base, commit, "--"]);
    call.map(str::to_owned).chain(paths.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_listing_has_all_files_and_those_without_lines() {
        let listed = ":100644 100644 7 4 M\0a\0:000000 100644 0 c A\0:1 - x\0:100644 000000 b 0 D\0\
                      b.png\x001\t0\ta\0-\t-\t:1 - x\0-\t-\tb.png\0";
        let (actions, uncounted) = parse_touched(listed);
        let expected = [
            ("a", FileAction::Modify),
            (":1 - x", FileAction::Create),
            ("b.png", FileAction::Delete),
        ];
        let expected: BTreeMap<_, _> =
            expected.map(|(path, action)| (path.to_owned(), action)).into();
        assert_eq!(actions, expected);
        assert_eq!(uncounted, [":1 - x", "b.png"]);
        assert_eq!(parse_touched(""), (BTreeMap::new(), Vec::new()));
    }

    #[test]
    fn only_names_of_known_formats_are_binary() {
        assert!(is_binary_name("web/logo.PNG"));
        for path in ["src/main.rs", "png", "a.png/b", "run.sh", ".gitattributes"] {
            assert!(!is_binary_name(path), "{path}");
        }
    }
}
