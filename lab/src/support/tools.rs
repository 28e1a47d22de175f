//! Tools from npm and pip, installed once and kept.
//!
//! npm installs into `node_modules` beside the input. Python environments live in `venvs` of the
//! target directory. A file beside each has the list that was installed; another list installs
//! again. The package managers retry their own downloads.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::programs;

/// The name of the file with the list that was installed.
const STAMP: &str = ".lab-installed";

/// Installs the packages of a folder with a `package-lock.json`, and returns its `node_modules`.
pub(crate) async fn npm_install(folder: &Path) -> Result<PathBuf> {
    let modules = folder.join("node_modules");
    let lock = folder.join("package-lock.json");
    let wanted = std::fs::read_to_string(&lock).with_context(|| lock.display().to_string())?;
    if !is_installed(&modules, &wanted) {
        // `npm ci` refuses a lock file without the packages for other systems, and some registries
        // lack those. `npm install` takes the versions from the lock file as well.
        let arguments = ["install", "--no-save", "--no-audit", "--no-fund", "--prefix"];
        run(Command::new("npm").args(arguments).arg(folder)).await?;
        std::fs::write(modules.join(STAMP), wanted)?;
    }
    Ok(modules)
}

/// Makes a Python environment with the packages of a requirements file, and returns its folder.
///
/// The folder has the name of the file's own folder.
pub(crate) async fn python_venv(requirements: &Path) -> Result<PathBuf> {
    let name = requirements.parent().and_then(Path::file_name).context("the file has no folder")?;
    let environment = programs::target()?.join("venvs").join(name);
    let wanted = std::fs::read_to_string(requirements)
        .with_context(|| requirements.display().to_string())?;
    if !is_installed(&environment, &wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment)).await?;
        let arguments = ["install", "--quiet", "--disable-pip-version-check", "--requirement"];
        let pip = environment.join("bin/pip");
        run(Command::new(pip).args(arguments).arg(requirements)).await?;
        std::fs::write(environment.join(STAMP), wanted)?;
    }
    Ok(environment)
}

/// Checks whether a folder has exactly this list installed.
fn is_installed(folder: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|found| found == wanted)
}

/// Runs a package manager. Its output goes to standard error, away from the results.
async fn run(command: &mut Command) -> Result<()> {
    let name = command.as_std().get_program().to_owned();
    let shown = || Path::new(OsStr::new(&name)).display().to_string();
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("`{}` does not start", shown()))?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "`{}` ended with {}: {}",
        shown(),
        output.status,
        String::from_utf8_lossy(&said)
    );
    Ok(())
}
