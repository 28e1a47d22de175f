//! Setup of a checkout: the command that installs dependencies.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_glob;

/// Lock files and manifests that are known to describe installed packages, as globs from the root.
const LOCK_FILES: [&str; 19] = [
    "**/Cargo.lock",
    "**/Gemfile.lock",
    "**/Pipfile.lock",
    "**/bun.lock",
    "**/bun.lockb",
    "**/composer.lock",
    "**/deno.lock",
    "**/go.sum",
    "**/gradle.lockfile",
    "**/mix.lock",
    "**/npm-shrinkwrap.json",
    "**/package-lock.json",
    "**/package.json",
    "**/pnpm-lock.yaml",
    "**/poetry.lock",
    "**/pyproject.toml",
    "**/requirements*.txt",
    "**/uv.lock",
    "**/yarn.lock",
];

/// Command that prepares a checkout, such as `npm ci`.
///
/// It runs in the worktree of an agent and in every checkout that judges a change, in the sandbox
/// with network access, so that agents and gates need none. It runs again only if the command or
/// the content of a lock file has changed. Files that it creates never enter a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct SetupRules {
    /// Command line, run by `sh -c` in the checkout. Exit code 0 means success. Default: no setup.
    #[garde(inner(length(min = 1, max = 10_000)))]
    pub command: Option<String>,
    /// Time limit, in seconds.
    #[garde(range(min = 1, max = 86_400))]
    pub timeout_seconds: u32,
    /// Globs of the files whose content decides whether the command runs again, from the root.
    /// Empty: well-known lock files and manifests, such as `package-lock.json` and `uv.lock`.
    #[garde(inner(custom(is_glob)))]
    pub lock_files: Vec<String>,
}

impl Default for SetupRules {
    fn default() -> Self {
        Self { command: None, timeout_seconds: 900, lock_files: Vec::new() }
    }
}

impl SetupRules {
    /// Returns the globs of lock files: the configured ones, or the well-known ones.
    pub fn lock_globs(&self) -> Vec<String> {
        if self.lock_files.is_empty() {
            LOCK_FILES.map(str::to_owned).to_vec()
        } else {
            self.lock_files.clone()
        }
    }

    /// Returns `true` if one of these paths is a lock file.
    pub fn covers<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> bool {
        // Globs were validated when the rules were loaded.
        let globs = self.lock_globs();
        let globs = globs.iter().filter_map(|glob| globset::Glob::new(glob).ok());
        let globs: Vec<_> = globs.map(|glob| glob.compile_matcher()).collect();
        paths.into_iter().any(|path| globs.iter().any(|glob| glob.is_match(path)))
    }

    /// Returns the key without effect, if other keys are set but there is no command.
    pub(super) fn useless_key(&self) -> Option<&'static str> {
        let default = Self::default();
        let set = [
            ("lock_files", self.lock_files != default.lock_files),
            ("timeout_seconds", self.timeout_seconds != default.timeout_seconds),
        ];
        let useless = set.into_iter().find_map(|(key, is_set)| is_set.then_some(key));
        useless.filter(|_| self.command.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_lock_files_replace_the_known_ones() {
        let mut rules = SetupRules::default();
        assert!(rules.covers(["src/main.rs", "web/package.json"]));
        assert!(!rules.covers(["src/main.rs"]));
        rules.lock_files = vec!["deps/*.txt".to_owned()];
        assert!(rules.covers(["deps/all.txt"]));
        assert!(!rules.covers(["package.json"]));
    }
}
