//! Operator file in the data folder.

use std::path::Path;

use anyhow::{Context as _, Result};
use tamma_core::operator::{OPERATOR_FILE, OperatorConfig};

/// Reads the operator file of a data folder; `None` if there is none.
pub(crate) fn read(data: &Path) -> Result<Option<OperatorConfig>> {
    let path = data.join(OPERATOR_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let config = OperatorConfig::parse(&text);
    config.map(Some).with_context(|| format!("{} is invalid", path.display()))
}

/// Returns the toolchains that do not exist on this machine.
pub(crate) fn missing_toolchains(config: &OperatorConfig) -> Vec<&str> {
    let missing = config.toolchains.iter().filter(|path| !Path::new(path).exists());
    missing.map(String::as_str).collect()
}
