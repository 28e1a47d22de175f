//! Instruction files: files of a repository that coding agents read as instructions or settings.

use std::sync::LazyLock;

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Globs of instruction files, from the root. A folder is listed by itself too, because it can be
/// a symbolic link.
const INSTRUCTION_FILES: [&str; 22] = [
    "**/.claude",
    "**/.claude/**",
    "**/.codex",
    "**/.codex/**",
    "**/.cursor",
    "**/.cursor/**",
    "**/.cursorrules",
    "**/.gemini",
    "**/.gemini/**",
    "**/.geminiignore",
    "**/.github/copilot-instructions.md",
    "**/.goosehints",
    "**/.mcp.json",
    "**/.opencode",
    "**/.opencode/**",
    "**/AGENTS.md",
    "**/AGENTS.override.md",
    "**/CLAUDE.local.md",
    "**/CLAUDE.md",
    "**/GEMINI.md",
    "**/opencode.json",
    "**/opencode.jsonc",
];

/// Returns true if coding agents read `path` as instructions or settings.
///
/// A change to such a file must be planned, and agents that judge a change get the file of the base
/// commit.
pub fn is_instruction_file(path: &str) -> bool {
    static GLOBS: LazyLock<GlobSet> = LazyLock::new(|| {
        let globs = INSTRUCTION_FILES.iter().filter_map(|glob| Glob::new(glob).ok());
        let set = globs.fold(GlobSetBuilder::new(), |mut set, glob| {
            set.add(glob);
            set
        });
        set.build().unwrap_or_default()
    });
    GLOBS.is_match(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_instruct_agents_are_known_by_name_in_every_folder() {
        for path in [
            "AGENTS.md",
            "CLAUDE.md",
            "web/GEMINI.md",
            ".claude",
            ".claude/settings.json",
            "web/.claude/agents/reviewer.md",
            ".mcp.json",
            ".codex/config.toml",
            ".opencode/agent/a.md",
            "opencode.json",
        ] {
            assert!(is_instruction_file(path), "{path}");
        }
        for path in ["README.md", "docs/AGENTS.txt", "src/claude.rs", "CLAUDE.md.bak"] {
            assert!(!is_instruction_file(path), "{path}");
        }
    }
}
