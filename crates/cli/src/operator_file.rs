//! Operator file in the data folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tamma_core::operator::{OPERATOR_FILE, OperatorConfig};

use crate::data_folder;

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

/// Folder with the operator's policies about people, in the data folder.
const POLICY_FOLDER: &str = "policies";

/// Reads the Cedar files in the folder `policies` of a data folder, by their names. No folder means no
/// policies; one that cannot be read is an error.
pub(crate) fn read_policies(data: &Path) -> Result<BTreeMap<String, String>> {
    let folder = data.join(POLICY_FOLDER);
    let context = || format!("cannot read {}", folder.display());
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error).with_context(context),
    };
    let mut policies = BTreeMap::new();
    for entry in entries {
        let path = entry.with_context(context)?.path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            policies.insert(path.display().to_string(), text);
        }
    }
    Ok(policies)
}

/// Reads the operator file of the default data folder, or the one in `TAMMA_DATA`, for commands that
/// have no `--data`.
pub(crate) fn read_default() -> Result<OperatorConfig> {
    let data = std::env::var_os("TAMMA_DATA").filter(|data| !data.is_empty()).map(PathBuf::from);
    // Without a home, nothing runs on this machine either.
    let Ok(data) = data_folder::resolve(data.as_deref()) else {
        return Ok(OperatorConfig::default());
    };
    Ok(read(&data)?.unwrap_or_default())
}

/// Returns the toolchains that do not exist on this machine.
pub(crate) fn missing_toolchains(config: &OperatorConfig) -> Vec<&str> {
    let missing = config.toolchains.iter().filter(|path| !Path::new(path).exists());
    missing.map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_the_cedar_files_of_the_folder() {
        let data = tempfile::tempdir().unwrap();
        assert!(read_policies(data.path()).unwrap().is_empty(), "no folder, no policies");
        let folder = data.path().join(POLICY_FOLDER);
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in [("b.cedar", "two"), ("a.cedar", "one"), ("notes.md", "other")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let policies = read_policies(data.path()).unwrap();
        assert_eq!(policies.values().collect::<Vec<_>>(), ["one", "two"]);
        // A folder that cannot be read is no reason to go on without policies.
        std::fs::create_dir(folder.join("c.cedar")).unwrap();
        assert!(read_policies(data.path()).unwrap_err().to_string().contains("c.cedar"));
    }
}
