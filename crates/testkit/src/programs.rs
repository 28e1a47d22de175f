//! Programs of the same build, and those that `.ci/tools` builds.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

/// Returns the path of a program of the same build, such as `tamma` or `scripted-agent`.
pub fn find_program(name: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe()?;
    // Test binaries are in `deps`, examples in `examples`, binaries one folder above.
    let mut candidates = executable.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        anyhow!(
            "cannot find `{name}` near `{}`; run `cargo build --workspace --all-targets`",
            executable.display()
        )
    })
}

/// Returns the folder of the tools that `.ci/tools` installs.
pub fn tools_folder() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(Path::new(&home).join(".cache"))
    });
    cache.unwrap_or_else(std::env::temp_dir).join("tamma/tools")
}
