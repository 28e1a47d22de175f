//! Toolchains in the home directory. Agents can read them in the sandbox to build and test their
//! changes. The rest of the home directory stays hidden.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Directories of toolchains and their caches, relative to the home directory.
const FOLDERS: [&str; 14] = [
    ".asdf",
    ".bun",
    ".cargo",
    ".deno",
    ".ghcup",
    ".local/share/mise",
    ".local/share/uv",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman",
    ".volta",
    "go",
];

/// Secrets in these directories.
const SECRETS: [&str; 2] = [".cargo/credentials", ".cargo/credentials.toml"];

/// Variables that locate toolchains, needed because the sandbox has another home directory.
const VARIABLES: [(&str, &str); 6] = [
    ("CARGO_HOME", ".cargo"),
    ("GOMODCACHE", "go/pkg/mod"),
    ("NVM_DIR", ".nvm"),
    ("PYENV_ROOT", ".pyenv"),
    ("RUSTUP_HOME", ".rustup"),
    ("VOLTA_HOME", ".volta"),
];

/// Package caches that a setup fills: variable, folder in the setup's home, and folders in it that
/// exist once it is filled.
const CACHES: [(&str, &str, &[&str]); 2] =
    [("CARGO_HOME", ".cargo", &["registry", "git"]), ("GOMODCACHE", "go/pkg/mod", &["cache"])];

type Environment = BTreeMap<String, String>;

fn existing_paths(environment: &Environment, names: &[&str]) -> Vec<PathBuf> {
    let home = environment.get("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    names
        .iter()
        .filter_map(|name| Some(home.as_ref()?.join(name)))
        .filter(|it| it.exists())
        .collect()
}

/// Returns the existing toolchain directories.
pub fn folders(environment: &Environment) -> Vec<PathBuf> {
    existing_paths(environment, &FOLDERS)
}

/// Returns the existing secrets to hide.
pub fn secrets(environment: &Environment) -> Vec<PathBuf> {
    existing_paths(environment, &SECRETS)
}

/// Returns the variables that locate toolchains: as set, or derived from an existing directory.
pub fn variables(environment: &Environment) -> Environment {
    VARIABLES
        .iter()
        .filter_map(|(name, folder)| {
            let set = environment.get(*name).cloned();
            let derived =
                || existing_paths(environment, &[folder]).pop().map(|it| it.display().to_string());
            Some(((*name).to_owned(), set.or_else(derived)?))
        })
        .collect()
}

/// Returns the variables that let a setup write package caches of its own.
pub(crate) fn setup_variables(home: &Path) -> Environment {
    let variable = |(name, folder, _): (&str, &str, &[&str])| {
        (name.to_owned(), home.join(folder).display().to_string())
    };
    CACHES.map(variable).into()
}

/// Returns the variables of package caches that a setup has filled.
pub(crate) fn installed_variables(home: &Path) -> Environment {
    let is_filled = |folder: &str, content: &[&str]| {
        content.iter().any(|name| home.join(folder).join(name).is_dir())
    };
    let filled = CACHES.into_iter().filter(|(_, folder, content)| is_filled(folder, content));
    filled
        .map(|(name, folder, _)| (name.to_owned(), home.join(folder).display().to_string()))
        .collect()
}

/// Creates the home directory of setups, with the worker's Cargo settings.
///
/// Earlier setups could write there, so no link is followed.
pub(crate) fn prepare_setup_home(environment: &Environment, home: &Path) -> io::Result<()> {
    let cargo = home.join(".cargo");
    if cargo.symlink_metadata().is_ok_and(|it| !it.is_dir()) {
        std::fs::remove_file(&cargo)?;
    }
    std::fs::create_dir_all(&cargo)?;
    let own = variables(environment).remove("CARGO_HOME").map(PathBuf::from);
    let settings = own.map(|own| own.join("config.toml")).filter(|file| file.is_file());
    let Some(settings) = settings else { return Ok(()) };
    let copy = cargo.join("config.toml");
    match copy.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(&copy)?,
        Ok(_) => std::fs::remove_file(&copy)?,
        Err(_) => {}
    }
    std::fs::copy(settings, copy).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_directories_are_readable_and_credentials_are_hidden() {
        let home = tempfile::tempdir().expect("folder");
        for folder in [".cargo", ".rustup", ".ssh"] {
            std::fs::create_dir(home.path().join(folder)).expect("made");
        }
        std::fs::write(home.path().join(".cargo/credentials.toml"), "token").expect("written");
        let at = |name: &str| home.path().join(name);
        let environment = Environment::from([
            ("HOME".to_owned(), home.path().display().to_string()),
            ("RUSTUP_HOME".to_owned(), "/opt/rustup".to_owned()),
        ]);
        assert_eq!(folders(&environment), [at(".cargo"), at(".rustup")]);
        assert_eq!(secrets(&environment), [at(".cargo/credentials.toml")]);
        let variables = variables(&environment);
        assert_eq!(variables["CARGO_HOME"], at(".cargo").display().to_string());
        assert_eq!(variables["RUSTUP_HOME"], "/opt/rustup");
        assert_eq!(variables.len(), 2);
        assert!(folders(&Environment::new()).is_empty());
    }

    #[test]
    fn setup_has_its_own_cargo_home_which_counts_once_it_is_filled() {
        let (own, home) =
            (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder"));
        std::fs::create_dir(own.path().join(".cargo")).expect("made");
        std::fs::write(own.path().join(".cargo/config.toml"), "# mine").expect("written");
        let environment =
            Environment::from([("HOME".to_owned(), own.path().display().to_string())]);
        // A link that an earlier setup left behind is not followed.
        let aside = own.path().join("aside");
        std::fs::create_dir(&aside).expect("made");
        std::os::unix::fs::symlink(&aside, home.path().join(".cargo")).expect("linked");
        prepare_setup_home(&environment, home.path()).expect("prepared");
        prepare_setup_home(&environment, home.path()).expect("prepared again");
        assert_eq!(std::fs::read_dir(&aside).expect("read").count(), 0);
        let copied = std::fs::read_to_string(home.path().join(".cargo/config.toml"));
        assert_eq!(copied.expect("copied"), "# mine");
        assert_eq!(installed_variables(home.path()), Environment::new());
        std::fs::create_dir(home.path().join(".cargo/registry")).expect("made");
        let cargo = home.path().join(".cargo").display().to_string();
        assert_eq!(installed_variables(home.path())["CARGO_HOME"], cargo);
        assert_eq!(setup_variables(home.path())["CARGO_HOME"], cargo);
    }
}
