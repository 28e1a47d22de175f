//! Content of a commit that no checkout has: files of Git LFS and submodules.
//!
//! Both are downloaded from addresses that the repository itself names, with the worker's
//! credentials, so Tamma leaves them out. Agents and people are told which paths are affected.

use std::fmt::Write as _;

use tamma_core::ids::CommitId;

use crate::mirror::{Error, Mirror};

/// First line of a pointer file, as an anchored pattern.
const POINTER: &str = "^version https://git-lfs.github.com/spec/v1$";

/// Most paths of a kind that a text names.
const MAX_NAMED: usize = 20;

/// Paths whose content no checkout has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingContent {
    /// Folders of submodules, which are empty.
    pub submodules: Vec<String>,
    /// Files of Git LFS, which are pointers.
    pub lfs_files: Vec<String>,
}

impl Mirror {
    /// Returns the paths of a commit whose content no checkout has. Paths that a sparse checkout
    /// leaves out do not count.
    pub async fn missing_content(&self, commit: CommitId) -> Result<MissingContent, Error> {
        if let Some(known) = self.known_commits.missing_content(&self.path, commit, &self.sparse) {
            return Ok(known);
        }
        let missing = self.find_missing_content(commit).await?;
        let known = (self.sparse.clone(), missing.clone());
        self.known_commits.insert_missing_content(&self.path, commit, known);
        Ok(missing)
    }

    async fn find_missing_content(&self, commit: CommitId) -> Result<MissingContent, Error> {
        self.ensure_commit(commit).await?;
        let commit = commit.to_string();
        let git = || self.git.bare(&self.path);
        let listed = git().run(["ls-tree", "-r", "-z", "--full-tree", &commit]).await?;
        let (mut submodules, mut has_attributes) = (Vec::new(), false);
        for (details, path) in listed.split('\0').filter_map(|entry| entry.split_once('\t')) {
            if details.starts_with("160000 ") && self.sparse.includes(path) {
                submodules.push(path.to_owned());
            }
            has_attributes |= path == ".gitattributes" || path.ends_with("/.gitattributes");
        }
        let attributes = ":(glob)**/.gitattributes";
        let uses_lfs = has_attributes
            && !self.paths_with("filter=lfs", &commit, Some(attributes)).await?.is_empty();
        let lfs_files =
            if uses_lfs { self.paths_with(POINTER, &commit, None).await? } else { Vec::new() };
        Ok(MissingContent { submodules, lfs_files })
    }

    /// Returns the files of a commit with a line that matches a pattern.
    async fn paths_with(
        &self,
        pattern: &str,
        commit: &str,
        within: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let mut call = vec!["grep", "-l", "-z", "-a", "-e", pattern, commit];
        call.extend(within.map(|within| ["--", within]).into_iter().flatten());
        // Exits with 1 if no file matches.
        let found = self.git.bare(&self.path).output(&call).await?.text();
        let paths = found.split('\0').filter_map(|entry| entry.split_once(':'));
        let paths = paths.map(|(_, path)| path.to_owned());
        Ok(paths.filter(|path| self.sparse.includes(path)).collect())
    }
}

impl MissingContent {
    /// Returns a section for agents, or `None` if nothing is missing.
    pub fn for_agents(&self) -> Option<String> {
        let summary = self.summary()?;
        Some(format!(
            "\n# Content that is not here\n\n{summary} Leave these paths as they are. If the task \
             needs their content, do not invent it: ask with `ask_human`, or say that you are \
             blocked.\n"
        ))
    }

    /// Returns a sentence for each kind of missing content, or `None` if nothing is missing.
    pub fn summary(&self) -> Option<String> {
        let mut text = String::new();
        // Writing to a string cannot fail.
        if !self.submodules.is_empty() {
            let paths = named(&self.submodules);
            let _ = write!(
                text,
                "Submodules are not checked out, and their folders are empty: {paths}."
            );
        }
        if !self.lfs_files.is_empty() {
            let space = if text.is_empty() { "" } else { " " };
            let paths = named(&self.lfs_files);
            let _ = write!(
                text,
                "{space}Files of Git LFS are pointers, without their content: {paths}."
            );
        }
        Some(text).filter(|text| !text.is_empty())
    }
}

/// Lists paths, up to a limit. Control characters are escaped, because the text becomes part of a
/// prompt.
fn named(paths: &[String]) -> String {
    let quoted = |path: &String| format!("`{}`", path.escape_debug());
    let shown: Vec<_> = paths.iter().take(MAX_NAMED).map(quoted).collect();
    let more = paths.len().saturating_sub(MAX_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_paths_up_to_a_limit() {
        assert_eq!(MissingContent::default().for_agents(), None);
        let submodules = vec!["vendor/lib".to_owned()];
        let lfs_files = (0..=MAX_NAMED).map(|number| format!("{number}.bin")).collect();
        let text = MissingContent { submodules, lfs_files }.for_agents().expect("a text");
        for part in ["folders are empty: `vendor/lib`.", "`19.bin` and 1 more.", "`ask_human`"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
