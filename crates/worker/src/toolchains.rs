//! Toolchains in the home directory. Agents can read them in the sandbox to build and test their
//! changes. The rest of the home directory stays hidden.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
}
