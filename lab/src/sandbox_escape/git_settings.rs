//! Git attempts with settings of every kind: each names a command that git would run.

use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;
use super::repository::{hooks, wrote_loot};

pub(crate) fn all() -> Vec<Attempt> {
    nested().into_iter().chain(own()).chain(hidden()).collect()
}

type ScriptFn = fn(&EscapeFixture) -> String;

fn trap(name: &str, script: ScriptFn) -> Attempt {
    Attempt::script(name, "git settings", script, wrote_loot).needs_git()
}

/// Returns a command that shows that it was run.
fn touch(fixture: &EscapeFixture) -> String {
    format!("touch {}", fixture.loot().display())
}

/// Settings of a repository in the worktree.
fn nested() -> Vec<Attempt> {
    vec![
        trap("leaves a repository with a filter for checkouts", |fixture| {
            format!(
                "git init -q nested; cd nested; echo '* filter=x' > .gitattributes; echo x > f; \
                 git add .; git config filter.x.smudge '{}; cat'; rm f",
                touch(fixture)
            )
        }),
        trap("leaves a repository with a filter process", |fixture| {
            format!(
                "git init -q nested; cd nested; echo '* filter=x' > .gitattributes; \
                 git config filter.x.process '{}'; echo x > f",
                touch(fixture)
            )
        }),
        trap("leaves a repository with a command for SSH", |fixture| {
            format!(
                "git init -q nested; cd nested; git config remote.origin.url ssh://localhost/x; \
                 git config core.sshCommand '{}; false'",
                touch(fixture)
            )
        }),
        trap("leaves a repository with a command as its remote", |fixture| {
            format!(
                "git init -q nested; cd nested; git config protocol.ext.allow always; \
                 git config remote.origin.url 'ext::{}'",
                touch(fixture)
            )
        }),
        trap("leaves a repository with a command for its remote", |fixture| {
            format!(
                "git init -q nested; cd nested; git config remote.origin.url $PWD; \
                 git config remote.origin.uploadpack '{}; false'",
                touch(fixture)
            )
        }),
        trap("leaves a repository with a folder of hooks", |fixture| {
            format!(
                "git init -q nested; cd nested; {}; git config core.hooksPath $PWD/h; echo x > f",
                hooks("h", fixture)
            )
        }),
        trap("leaves a repository with a conditional include", |fixture| {
            format!(
                "git init -q nested; cd nested; echo x > f; git add .; \
                 git config -f settings core.fsmonitor '{}'; \
                 git config 'includeIf.gitdir:**/nested/.path' ../settings",
                touch(fixture)
            )
        }),
        trap("leaves a repository with settings of a worktree", |fixture| {
            format!(
                "git init -q nested; cd nested; echo x > f; git add .; \
                 git config extensions.worktreeConfig true; \
                 git config --worktree core.fsmonitor '{}'",
                touch(fixture)
            )
        }),
        trap("leaves a repository with the settings of another one", |fixture| {
            format!(
                "git init -q nested; git init -q other; git -C other config core.fsmonitor '{}'; \
                 rm -r nested/.git/config; echo $PWD/other/.git > nested/.git/commondir",
                touch(fixture)
            )
        }),
    ]
}

/// Settings of the worktree's own repository.
fn own() -> Vec<Attempt> {
    vec![
        trap("signs commits with a command", |fixture| {
            format!(
                "printf '#!/bin/sh\\n{}\\n' > sign.sh; chmod +x sign.sh; \
                 git config gpg.program $PWD/sign.sh; git config commit.gpgSign true; \
                 echo x > new.txt",
                touch(fixture)
            )
        }),
        trap("sets a command for fetches", |fixture| {
            format!(
                "git config remote.origin.url $PWD; git config remote.origin.uploadpack \
                 '{}; false'; echo x > new.txt",
                touch(fixture)
            )
        }),
        trap("rewrites addresses to a command", |fixture| {
            format!(
                "git config protocol.ext.allow always; git config 'url.ext::{} .insteadOf' /; \
                 git config remote.origin.url /x; echo x > new.txt",
                touch(fixture)
            )
        }),
        trap("sets a command for submodules", |fixture| {
            format!(
                "git config -f .gitmodules submodule.sub.path sub; \
                 git config -f .gitmodules submodule.sub.url ./; \
                 git config submodule.sub.url $PWD; git config submodule.sub.active true; \
                 git config submodule.sub.update '!{}'",
                touch(fixture)
            )
        }),
        trap("converts files for a diff with a command", |fixture| {
            format!(
                "echo '*.md diff=x' > .gitattributes; echo x >> README.md; \
                 git config diff.x.textconv '{}; cat'",
                touch(fixture)
            )
        }),
        trap("makes `.git` a link to its own repository", |fixture| {
            format!(
                "git init -q evil && git -C evil config core.fsmonitor '{}' && rm -rf .git && \
                 ln -s evil/.git .git; echo x > new.txt",
                touch(fixture)
            )
        }),
    ]
}

/// Settings that hide a change from the patch.
fn hidden() -> Vec<Attempt> {
    let hides = |name: &str, script: &'static str| {
        let is_hidden = |result: &AttemptResult<'_>| !result.patch.contains("+stolen");
        Attempt::script(name, "plain patch", move |_| script.to_owned(), is_hidden).needs_git()
    };
    vec![
        hides(
            "hides a change by replacing an object",
            "old=$(git rev-parse HEAD:src/main.txt); printf 'stolen\\n' > src/main.txt; \
             git replace $old $(git hash-object -w src/main.txt)",
        ),
        hides(
            "hides a change with attributes of the git directory",
            "file=$(git rev-parse --git-path info/attributes); mkdir -p $(dirname $file); \
             echo '* -diff' > $file; printf 'stolen\\n' > src/main.txt",
        ),
        hides(
            "hides a change by assuming a file unchanged",
            "git update-index --assume-unchanged src/main.txt; printf 'stolen\\n' > src/main.txt",
        ),
        hides(
            "hides a change by skipping a file of the worktree",
            "git update-index --skip-worktree src/main.txt; printf 'stolen\\n' > src/main.txt",
        ),
    ]
}
