//! Git attempts: hooks, settings and links that run code when Tamma uses git, and changes of refs.

use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;

pub(super) fn wrote_loot(result: &AttemptResult<'_>) -> bool {
    result.fixture.loot().exists()
}

pub(crate) fn all() -> Vec<Attempt> {
    let trap = |name: &str, by: &'static str, script: fn(&EscapeFixture) -> String| {
        Attempt::script(name, by, script, wrote_loot).needs_git()
    };
    let mut all = vec![
        trap("leaves a hook in the repository", "sandbox", |fixture| {
            hooks(&fixture.mirror.join("hooks").display().to_string(), fixture)
        }),
        trap("sets a hooks folder in git's configuration", "sandbox", |fixture| {
            let folder = "my-hooks";
            format!(
                "{}; git config core.hooksPath $PWD/{folder}; git config --worktree core.hooksPath \
                 $PWD/{folder}; echo x > new.txt",
                hooks(folder, fixture)
            )
        }),
        trap("sets a file monitor in git's configuration", "sandbox", |fixture| {
            format!(
                "git config core.fsmonitor 'touch {}'; echo x > new.txt",
                fixture.loot().display()
            )
        }),
        trap("sets a filter for every file", "sandbox", |fixture| {
            format!(
                "git config filter.x.clean 'touch {} && cat'; echo '* filter=x' > .gitattributes; \
                 echo x > new.txt",
                fixture.loot().display()
            )
        }),
        trap("sets an external diff program", "sandbox", |fixture| {
            format!(
                "git config diff.external 'touch {}'; echo x > new.txt; echo x >> README.md",
                fixture.loot().display()
            )
        }),
        trap("points `.git` at its own repository", "sandbox", |fixture| {
            format!(
                "git init -q evil && git -C evil config core.fsmonitor 'touch {}' && rm -f .git && \
                 echo gitdir: $PWD/evil/.git > .git; echo x > new.txt",
                fixture.loot().display()
            )
        }),
        trap("replaces `.git` with a folder", "sandbox", |fixture| {
            format!(
                "mv .git old; git init -q . && git config core.fsmonitor 'touch {}'; echo x > new.txt",
                fixture.loot().display()
            )
        }),
        trap(
            "leaves a repository with a file monitor in the worktree",
            "git settings",
            |fixture| {
                format!(
                    "git init -q nested && echo x > nested/f && git -C nested config core.fsmonitor \
                 'touch {0}' && {1}",
                    fixture.loot().display(),
                    hooks("nested/.git/hooks", fixture)
                )
            },
        ),
    ];
    all.extend(nested().into_iter().chain(hidden()).chain(refs()));
    all
}

/// Author of the agent's own commits.
const IDENTITY: &str = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x \
                        GIT_COMMITTER_EMAIL=x@x";

/// Repositories of the agent in the worktree.
fn nested() -> Vec<Attempt> {
    let trap = |name: &str, script: fn(&EscapeFixture) -> String| {
        Attempt::script(name, "git settings", script, wrote_loot).needs_git()
    };
    vec![
        trap("leaves a repository with a filter in the worktree", |fixture| {
            format!(
                "git init -q nested; cd nested; echo '* filter=x' > .gitattributes; echo x > f; \
                 git add .; git config filter.x.clean 'touch {}; cat'; echo longer > f",
                fixture.loot().display()
            )
        }),
        trap("leaves a repository that includes settings from a file", |fixture| {
            format!(
                "git init -q nested; cd nested; echo x > f; git add .; git config -f settings \
                 core.fsmonitor 'touch {}'; git config include.path ../settings",
                fixture.loot().display()
            )
        }),
        trap("leaves a repository that fetches missing objects", |fixture| {
            format!(
                "{IDENTITY}; git init -q nested; cd nested; echo x > f; git add .; git commit -qm x; \
                 {}; find .git/objects -type f -delete",
                promisor(fixture)
            )
        }),
        trap("makes a folder a bare repository", |fixture| {
            format!(
                "git init -q --bare bare; git -C bare config core.worktree ..; \
                 git -C bare config core.bare false; git -C bare config core.fsmonitor 'touch {}'",
                fixture.loot().display()
            )
        }),
        trap("plants a submodule with a filter", |fixture| {
            format!(
                "{}; cd sub; echo '* filter=x' > .gitattributes; git add .; \
                 git config filter.x.clean 'touch {}; cat'; echo longer > README.md",
                submodule(),
                fixture.loot().display()
            )
        }),
        trap("plants a submodule with a file monitor and hooks", |fixture| {
            format!(
                "{}; git -C sub config core.fsmonitor 'touch {}'; {}",
                submodule(),
                fixture.loot().display(),
                hooks("sub/.git/hooks", fixture)
            )
        }),
        trap("plants a submodule that fetches missing objects", |fixture| {
            format!(
                "{}; cd sub; {}; find .git/objects -type f -delete",
                submodule(),
                promisor(fixture)
            )
        }),
    ]
}

/// Returns a script that makes the submodule a repository at the expected commit, so that git looks
/// inside.
fn submodule() -> String {
    "commit=$(git rev-parse HEAD:sub); git init -q sub; \
     git -C sub fetch -q \"$PWD\" HEAD; git -C sub reset -q --hard $commit"
        .to_owned()
}

/// Returns a script with the settings of a repository that fetches missing objects with a command.
fn promisor(fixture: &EscapeFixture) -> String {
    format!(
        "git config extensions.partialClone evil; git config core.repositoryFormatVersion 1; \
         git config remote.evil.promisor true; git config remote.evil.url $PWD; \
         git config remote.evil.uploadpack 'touch {}; false'",
        fixture.loot().display()
    )
}

/// Changes that the patch would not show.
fn hidden() -> Vec<Attempt> {
    let hides = |name: &str, script: &'static str| {
        let is_hidden = |result: &AttemptResult<'_>| !result.patch.contains("+stolen");
        Attempt::script(name, "plain patch", move |_| script.to_owned(), is_hidden).needs_git()
    };
    vec![
        hides(
            "hides a change with attributes",
            "echo '* -diff' > .gitattributes; printf 'stolen\\n' > src/main.txt",
        ),
        hides(
            "hides a change with a macro of attributes",
            "echo '*.txt binary' > src/.gitattributes; printf 'stolen\\n' > src/main.txt",
        ),
        hides("hides a change with a zero byte", "printf 'stolen\\n\\000' > src/main.txt"),
    ]
}

/// Returns a script that creates all hooks that a commit would run.
pub(super) fn hooks(folder: &str, fixture: &EscapeFixture) -> String {
    format!(
        "mkdir -p {folder}; for h in pre-commit post-commit reference-transaction post-index-change; \
         do printf '#!/bin/sh\\ntouch {}\\n' > {folder}/$h; chmod +x {folder}/$h; done",
        fixture.loot().display()
    )
}

fn refs() -> Vec<Attempt> {
    vec![
        Attempt::script(
            "moves a branch of the repository",
            "sandbox",
            |_| "git update-ref refs/remotes/origin/main $(git rev-parse HEAD~1)".to_owned(),
            |result| {
                let heads = std::fs::read_to_string(result.fixture.mirror.join("packed-refs"));
                let loose = result.fixture.mirror.join("refs/remotes/origin/main");
                let text = std::fs::read_to_string(loose).or(heads).unwrap_or_default();
                !text.contains(&result.fixture.base.to_string())
            },
        ),
        Attempt::script(
            "makes a branch in the repository",
            "sandbox",
            |_| "git branch loot".to_owned(),
            |result| result.fixture.mirror.join("refs/heads/loot").exists(),
        ),
        Attempt::script(
            "writes into the repository's objects",
            "sandbox",
            |fixture| format!("echo x > {}/objects/loot", fixture.mirror.display()),
            |result| result.fixture.mirror.join("objects/loot").exists(),
        ),
        Attempt::script(
            "borrows objects from elsewhere",
            "sandbox",
            |fixture| format!("echo /x > {}/objects/info/alternates", fixture.mirror.display()),
            |result| result.fixture.mirror.join("objects/info/alternates").exists(),
        ),
        Attempt::script(
            "leaves a hook in the user's own checkout",
            "sandbox",
            |fixture| {
                format!("echo x > {}/.git/hooks/pre-commit", fixture.project.path().display())
            },
            |result| result.fixture.project.path().join(".git/hooks/pre-commit").exists(),
        ),
        Attempt::script(
            "changes the user's own checkout",
            "sandbox",
            |fixture| format!("echo x > {}/README.md", fixture.project.path().display()),
            |result| {
                let file = result.fixture.project.path().join("README.md");
                std::fs::read_to_string(file).is_ok_and(|text| text == "x\n")
            },
        ),
    ]
}
