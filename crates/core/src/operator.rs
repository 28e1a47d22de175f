//! Operator file (`operator.yaml`): settings of one machine that a project must not decide.
//!
//! It is in the data folder, so that neither a change nor a project's `tamma.yaml` can extend what
//! a sandbox can read or which secrets it gets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of the file in the data folder.
pub const OPERATOR_FILE: &str = "operator.yaml";

/// Variables that commands cannot get, because Tamma sets them.
const RESERVED: [&str; 5] = ["CI", "HOME", "PATH", "REPORT", "TMPDIR"];

/// Settings of one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OperatorConfig {
    /// Absolute paths that agents, gates and setups can read, such as toolchains and package caches.
    pub toolchains: Vec<String>,
    /// Variables for gates and for setups of base commits, such as the address and the password of a
    /// test database. Agents do not get them, nor do setups of lock files that an agent changed.
    pub test_environment: BTreeMap<String, String>,
}

/// Problem of an operator file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorConfigError {
    /// Not valid YAML, or a key that does not exist. Values are not shown, because they can be
    /// secret.
    #[error(
        "invalid YAML or unknown key near line {line}; the keys are `toolchains` (a list of paths) and `test_environment` (names with values)"
    )]
    Syntax {
        /// Line of the problem, from 1.
        line: u64,
    },
    /// Path that is not absolute.
    #[error(
        "`toolchains`: `{0}` is not an absolute path below `/`; write a path such as `/opt/go`"
    )]
    RelativePath(String),
    /// Invalid name of a variable, or one that Tamma sets itself.
    #[error(
        "`test_environment`: `{0}` cannot be set; use another name with letters, digits and `_`"
    )]
    Variable(String),
}

impl OperatorConfig {
    /// Parses and checks a file. An empty file sets nothing.
    pub fn parse(text: &str) -> Result<Self, OperatorConfigError> {
        let is_empty =
            text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#'));
        if is_empty {
            return Ok(Self::default());
        }
        let config: Self = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(1, |at| at.line());
            OperatorConfigError::Syntax { line }
        })?;
        let is_absolute =
            |path: &&String| path.starts_with('/') && !path.trim_matches('/').is_empty();
        if let Some(path) = config.toolchains.iter().find(|path| !is_absolute(path)) {
            return Err(OperatorConfigError::RelativePath(path.clone()));
        }
        let is_name = |name: &str| {
            let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name.chars().all(is_allowed)
                && !RESERVED.contains(&name)
        };
        match config.test_environment.keys().find(|name| !is_name(name)) {
            Some(name) => Err(OperatorConfigError::Variable(name.clone())),
            None => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_file_names_toolchains_and_test_variables() {
        let text = "toolchains: [/opt/go]\ntest_environment:\n  DB_URL: postgres://test\n";
        let config = OperatorConfig::parse(text).expect("valid");
        assert_eq!(config.toolchains, ["/opt/go"]);
        assert_eq!(config.test_environment["DB_URL"], "postgres://test");
        for empty in ["", "# nothing yet\n\n"] {
            assert_eq!(OperatorConfig::parse(empty), Ok(OperatorConfig::default()));
        }
    }

    #[test]
    fn problems_are_reported_without_values() {
        for (text, expected) in [
            ("toolchains: [opt/go]", "not an absolute path"),
            ("toolchains: [/]", "not an absolute path"),
            ("test_environment: {PATH: /x}", "`PATH` cannot be set"),
            ("test_environment: {1A: x}", "`1A` cannot be set"),
            ("secrets: {A: hush-hush}", "unknown key"),
            ("test_environment: [hush-hush", "invalid YAML"),
        ] {
            let error = OperatorConfig::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected) && !error.contains("hush"), "{text}: {error}");
        }
    }
}
