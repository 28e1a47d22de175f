//! Folders of the build and of the documents, and inputs of the lab.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Returns the folder of the `lab` binary, which also contains the other programs of the build.
pub(crate) fn folder() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.parent().context("the lab binary has no folder")?.to_owned())
}

/// Returns the target directory of the build.
pub(crate) fn target() -> Result<PathBuf> {
    Ok(folder()?.parent().context("the lab binary is not in a target directory")?.to_owned())
}

/// Returns a file or folder of `lab/inputs`.
pub(crate) fn input(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs").join(name)
}

/// Returns the folder of the documents, in which options such as `--write` write.
pub(crate) fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}
