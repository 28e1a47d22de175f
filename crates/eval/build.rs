//! Embeds the tasks of `eval/tasks`, so that an installed `tamma` can run them.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let variable = |name: &str| {
        let missing = || io::Error::other(format!("cargo did not set {name}"));
        std::env::var_os(name).map(PathBuf::from).ok_or_else(missing)
    };
    let tasks = variable("CARGO_MANIFEST_DIR")?.join("../../eval/tasks").canonicalize()?;
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", tasks.display())?;
    let mut files = Vec::new();
    collect(&tasks, &mut files)?;
    files.sort();
    let mut text = String::from("[\n");
    for file in &files {
        let name = file.strip_prefix(&tasks).map_err(io::Error::other)?.to_string_lossy();
        let path = file.to_string_lossy();
        writeln!(text, "    ({name:?}, include_bytes!({path:?}).as_slice()),")
            .map_err(io::Error::other)?;
    }
    text.push_str("]\n");
    fs::write(variable("OUT_DIR")?.join("starter.rs"), text)
}

/// Adds all files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
