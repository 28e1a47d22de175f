//! Operator file of tests and experiments. Their models and receivers are on this machine, and some
//! of their agents run without a sandbox.

use std::path::Path;

use anyhow::{Context as _, Result};
use tamma_core::operator::{OPERATOR_FILE, OperatorConfig};

/// Content of the file.
const TEXT: &str = "\
upstreams:
  ANTHROPIC_API_KEY: [http://127.0.0.1]
  GEMINI_API_KEY: [http://127.0.0.1]
  OPENAI_API_KEY: [http://127.0.0.1]
readable: [/]
weakest_sandbox: off
alert_hosts: [127.0.0.1]
";

/// Returns the settings of the file.
pub fn test_operator() -> OperatorConfig {
    // The test below parses it.
    OperatorConfig::parse(TEXT).unwrap_or_default()
}

/// Writes the file to a data folder, unless it has one.
pub fn write_operator_file(data: &Path) -> Result<()> {
    let file = data.join(OPERATOR_FILE);
    if file.exists() {
        return Ok(());
    }
    let write = || {
        std::fs::create_dir_all(data)?;
        std::fs::write(&file, TEXT)
    };
    write().with_context(|| format!("cannot write `{}`", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_valid() {
        let config = OperatorConfig::parse(TEXT).expect("valid");
        assert!(config.allows_upstream("OPENAI_API_KEY", "http://127.0.0.1:4711/v1"));
    }
}
