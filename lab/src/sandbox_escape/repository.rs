//! Git: hooks, settings and links that would run something when we use git, and our own refs.

use super::attempt::{After, Attempt};
use super::scene::Scene;

fn looted(after: &After<'_>) -> bool {
    after.scene.loot().exists()
}

pub(crate) fn all() -> Vec<Attempt> {
    let trap = |name: &str, by: &'static str, script: fn(&Scene) -> String| {
        Attempt::script(name, by, script, looted).by_git()
    };
    let mut all = vec![
        trap("leaves a hook in the repository", "sandbox", |scene| {
            hooks(&scene.mirror.join("hooks").display().to_string(), scene)
        }),
        trap("names a folder of hooks in git's settings", "sandbox", |scene| {
            let folder = "my-hooks";
            format!(
                "{}; git config core.hooksPath $PWD/{folder}; git config --worktree core.hooksPath \
                 $PWD/{folder}; echo x > new.txt",
                hooks(folder, scene)
            )
        }),
        trap("names a file monitor in git's settings", "sandbox", |scene| {
            format!(
                "git config core.fsmonitor 'touch {}'; echo x > new.txt",
                scene.loot().display()
            )
        }),
        trap("names a filter for every file", "sandbox", |scene| {
            format!(
                "git config filter.x.clean 'touch {} && cat'; echo '* filter=x' > .gitattributes; \
                 echo x > new.txt",
                scene.loot().display()
            )
        }),
        trap("names a program that shows differences", "sandbox", |scene| {
            format!(
                "git config diff.external 'touch {}'; echo x > new.txt; echo x >> README.md",
                scene.loot().display()
            )
        }),
        trap("points `.git` at a repository of its own", "sandbox", |scene| {
            format!(
                "git init -q evil && git -C evil config core.fsmonitor 'touch {}' && rm -f .git && \
                 echo gitdir: $PWD/evil/.git > .git; echo x > new.txt",
                scene.loot().display()
            )
        }),
        trap("puts a folder in place of `.git`", "sandbox", |scene| {
            format!(
                "mv .git old; git init -q . && git config core.fsmonitor 'touch {}'; echo x > new.txt",
                scene.loot().display()
            )
        }),
        trap("leaves a repository with a file monitor in the worktree", "git settings", |scene| {
            format!(
                "git init -q nested && echo x > nested/f && git -C nested config core.fsmonitor \
                 'touch {0}' && {1}",
                scene.loot().display(),
                hooks("nested/.git/hooks", scene)
            )
        }),
    ];
    all.extend(refs());
    all
}

/// Hooks of every name that a commit would run.
fn hooks(folder: &str, scene: &Scene) -> String {
    format!(
        "mkdir -p {folder}; for h in pre-commit post-commit reference-transaction post-index-change; \
         do printf '#!/bin/sh\\ntouch {}\\n' > {folder}/$h; chmod +x {folder}/$h; done",
        scene.loot().display()
    )
}

fn refs() -> Vec<Attempt> {
    vec![
        Attempt::script(
            "moves a branch of the repository",
            "sandbox",
            |_| "git update-ref refs/remotes/origin/main $(git rev-parse HEAD~1)".to_owned(),
            |after| {
                let heads = std::fs::read_to_string(after.scene.mirror.join("packed-refs"));
                let loose = after.scene.mirror.join("refs/remotes/origin/main");
                let text = std::fs::read_to_string(loose).or(heads).unwrap_or_default();
                !text.contains(&after.scene.base.to_string())
            },
        ),
        Attempt::script(
            "makes a branch in the repository",
            "sandbox",
            |_| "git branch loot".to_owned(),
            |after| after.scene.mirror.join("refs/heads/loot").exists(),
        ),
        Attempt::script(
            "writes among the repository's objects",
            "sandbox",
            |scene| format!("echo x > {}/objects/loot", scene.mirror.display()),
            |after| after.scene.mirror.join("objects/loot").exists(),
        ),
        Attempt::script(
            "borrows objects from elsewhere",
            "sandbox",
            |scene| format!("echo /x > {}/objects/info/alternates", scene.mirror.display()),
            |after| after.scene.mirror.join("objects/info/alternates").exists(),
        ),
        Attempt::script(
            "leaves a hook in the user's own checkout",
            "sandbox",
            |scene| format!("echo x > {}/.git/hooks/pre-commit", scene.project.path().display()),
            |after| after.scene.project.path().join(".git/hooks/pre-commit").exists(),
        ),
        Attempt::script(
            "changes the user's own checkout",
            "sandbox",
            |scene| format!("echo x > {}/README.md", scene.project.path().display()),
            |after| {
                let file = after.scene.project.path().join("README.md");
                std::fs::read_to_string(file).is_ok_and(|text| text == "x\n")
            },
        ),
    ]
}
