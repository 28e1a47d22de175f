//! Git attempts: hooks, settings and links that run code when Tamma uses git, and changes of refs.

use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;

fn wrote_loot(result: &AttemptResult<'_>) -> bool {
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
    all.extend(refs());
    all
}

/// Returns a script that creates all hooks that a commit would run.
fn hooks(folder: &str, fixture: &EscapeFixture) -> String {
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
