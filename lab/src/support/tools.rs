//! Tools from npm and pip, installed on first use.
//!
//! npm installs into `node_modules` beside the input. Python environments live in `venvs` of the
//! target directory. A stamp file records the installed list; a changed list is installed again.
//! The package managers retry their own downloads.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::programs;

/// Name of the file that records the installed list.
const STAMP: &str = ".lab-installed";

/// Installs the packages of a folder with a `package-lock.json` and returns its `node_modules`.
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

/// Creates a Python environment with the packages of a requirements file and returns its folder.
///
/// The environment is named after the folder of the file.
pub(crate) async fn python_venv(requirements: &Path) -> Result<PathBuf> {
    let name = requirements
        .parent()
        .and_then(Path::file_name)
        .context("the requirements file has no folder")?;
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

/// Returns `true` if exactly this list is installed in a folder.
fn is_installed(folder: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|found| found == wanted)
}

/// Runs a package manager. An error contains its output.
async fn run(command: &mut Command) -> Result<()> {
    let name = command.as_std().get_program().to_owned();
    let shown = || Path::new(OsStr::new(&name)).display().to_string();
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start `{}`", shown()))?;
    let text = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "`{}` ended with {}: {}",
        shown(),
        output.status,
        String::from_utf8_lossy(&text)
    );
    Ok(())
}
