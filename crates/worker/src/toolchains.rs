//! Toolchains that people have in their home: an agent in its sandbox can read them, so that it can
//! build and test what it writes. Nothing else of the home is there.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where toolchains and what they have downloaded are, below a home.
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

/// What in them is a secret.
const SECRETS: [&str; 2] = [".cargo/credentials", ".cargo/credentials.toml"];

/// Where toolchains look for themselves, if they do not find it by the home, which is another one in
/// a sandbox.
const VARIABLES: [(&str, &str); 6] = [
    ("CARGO_HOME", ".cargo"),
    ("GOMODCACHE", "go/pkg/mod"),
    ("NVM_DIR", ".nvm"),
    ("PYENV_ROOT", ".pyenv"),
    ("RUSTUP_HOME", ".rustup"),
    ("VOLTA_HOME", ".volta"),
];

type Environment = BTreeMap<String, String>;

fn below(environment: &Environment, names: &[&str]) -> Vec<PathBuf> {
    let home = environment.get("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    names
        .iter()
        .filter_map(|name| Some(home.as_ref()?.join(name)))
        .filter(|it| it.exists())
        .collect()
}

/// The folders that are there.
pub(crate) fn folders(environment: &Environment) -> Vec<PathBuf> {
    below(environment, &FOLDERS)
}

/// What in them is not to be seen.
pub(crate) fn secrets(environment: &Environment) -> Vec<PathBuf> {
    below(environment, &SECRETS)
}

/// Variables by which toolchains find themselves: as they are set, or where their folder is.
pub(crate) fn variables(environment: &Environment) -> Environment {
    VARIABLES
        .iter()
        .filter_map(|(name, folder)| {
            let set = environment.get(*name).cloned();
            let there = || below(environment, &[folder]).pop().map(|it| it.display().to_string());
            Some(((*name).to_owned(), set.or_else(there)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_shown_and_credentials_never() {
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
