//! Attempts to find the credential of a forge: files of the operator, environments of other processes,
//! settings of git, and what git would ask for a password.

use super::SECRET;
use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;

pub(crate) fn all() -> Vec<Attempt> {
    files().into_iter().chain(processes()).chain(git()).collect()
}

type ScriptFn = fn(&EscapeFixture) -> String;

fn look(name: &str, script: ScriptFn) -> Attempt {
    let found = |result: &AttemptResult<'_>| result.fixture.output().contains(SECRET);
    Attempt::script(name, "sandbox", script, found)
}

/// Files with a credential.
fn files() -> Vec<Attempt> {
    vec![
        look("reads the credential of a forge", |fixture| {
            format!("cat {}", fixture.at("data/forges/work.yaml").display())
        }),
        look("searches the data folder for credentials of forges", |fixture| {
            format!("grep -rh token: {}", fixture.at("data").display())
        }),
        look("reads the credential of a forge through the root of a process", |fixture| {
            let file = fixture.at("data/forges/work.yaml");
            format!(
                "cat /proc/[0-9]*/root{0} /proc/{1}/root{0}",
                file.display(),
                std::process::id()
            )
        }),
        look("links to the credential of a forge and reads the link", |fixture| {
            format!("ln -s {} c; cat c", fixture.at("data/forges/work.yaml").display())
        }),
        look("reads the passwords that git stored for the user", |fixture| {
            let user = fixture.at("user");
            format!("cat {0}/.git-credentials {0}/.netrc", user.display())
        }),
    ]
}

/// Processes that have a credential. The worker gives git its login in the environment, so a fetch is
/// under way beside the attempt.
fn processes() -> Vec<Attempt> {
    // Basic authentication is user and password in base64.
    let decode = "grep -ao 'Basic [A-Za-z0-9+/=]*' | cut -d ' ' -f 2 | base64 -d";
    [
        (
            "searches the environment of every process for logins of git",
            format!("cat /proc/[0-9]*/environ | {decode}"),
        ),
        (
            "searches the environment of every thread for logins of git",
            format!("cat /proc/[0-9]*/task/[0-9]*/environ | {decode}"),
        ),
    ]
    .into_iter()
    .map(|(name, script)| {
        let found = |result: &AttemptResult<'_>| result.fixture.output().contains(SECRET);
        Attempt::script(name, "sandbox", move |_| script.clone(), found).beside_fetch()
    })
    .collect()
}

/// Settings of git, and helpers that it asks.
fn git() -> Vec<Attempt> {
    vec![
        look("reads the settings of another mirror for a login", |fixture| {
            let mirror = fixture.at("data/mirrors/other.git");
            format!("cat {0}/config; git -C {0} remote -v", mirror.display())
        }),
        look("asks a helper of git for the password that the user stored", |fixture| {
            let stored = fixture.at("user/.git-credentials");
            format!(
                "printf 'protocol=https\\nhost=forge.example\\n\\n' | GIT_TERMINAL_PROMPT=0 \
                 git -c credential.helper='store --file={}' credential fill",
                stored.display()
            )
        }),
    ]
}
