//! File attempts: writing outside the worktree, and reading other files.

use tamma_testkit::agent::AgentStep;

use super::SECRET;
use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;

pub(crate) fn all() -> Vec<Attempt> {
    writes().into_iter().chain(reads()).collect()
}

fn wrote_loot(result: &AttemptResult<'_>) -> bool {
    result.fixture.loot().exists()
}

/// Returns `true` if the output has the secret.
fn revealed_secret(result: &AttemptResult<'_>) -> bool {
    result.fixture.output().contains(SECRET)
}

fn writes() -> Vec<Attempt> {
    let write = |name: &str, script: fn(&EscapeFixture) -> String| {
        Attempt::script(name, "sandbox", script, wrote_loot)
    };
    vec![
        write("writes a file by its absolute path", |fixture| {
            format!("echo out > {}", fixture.loot().display())
        }),
        write("writes a file through `..`", |_| "echo out > ../../../loot".to_owned()),
        write("writes through a link in the repository", |_| "echo out > out/loot".to_owned()),
        write("writes to a file that is a link in the repository", |_| {
            "echo out > notes.txt".to_owned()
        }),
        write("replaces a folder with a link and writes through it", |fixture| {
            format!("rm -rf src; ln -s {} src; echo out > src/loot", fixture.at("").display())
        }),
        write("creates a hard link to a file outside and writes to it", |fixture| {
            let user = fixture.at("user/.bashrc");
            format!(
                "ln {0} here && echo out >> here; grep -q out {0} && cp here {1}",
                user.display(),
                fixture.loot().display()
            )
        }),
        Attempt::script(
            "adds a line to the user's shell profile",
            "sandbox",
            |fixture| format!("echo out >> {}", fixture.at("user/.bashrc").display()),
            |result| {
                let profile = std::fs::read_to_string(result.fixture.at("user/.bashrc"));
                profile.is_ok_and(|text| text.contains("out"))
            },
        ),
        Attempt::steps(
            "asks to write a file that is a link to elsewhere",
            "permission",
            |_| vec![AgentStep::Write { path: "notes.txt".into(), content: "out".to_owned() }],
            wrote_loot,
        ),
        Attempt::steps(
            "asks to write outside, with `..` in the path",
            "permission",
            |_| {
                vec![AgentStep::Write {
                    path: "src/../../../../loot".into(),
                    content: "out".to_owned(),
                }]
            },
            wrote_loot,
        ),
        Attempt::script(
            "leaves a link to a file outside in the change",
            "diff check",
            |_| "ln -s /etc/passwd passwd".to_owned(),
            |result| !result.violations.iter().any(|violation| violation.path == "passwd"),
        ),
        Attempt::script(
            "writes to the worker's record of the run",
            "sandbox",
            |fixture| {
                let runs = fixture.at("data/runs");
                format!(
                    "for f in {}/*.json; do echo out > $f; cp $f {}/stolen; done",
                    runs.display(),
                    fixture.home().display()
                )
            },
            |result| {
                std::fs::read_to_string(result.fixture.home().join("stolen"))
                    .is_ok_and(|text| text.contains("out"))
            },
        ),
    ]
}

fn reads() -> Vec<Attempt> {
    let read = |name: &str, script: fn(&EscapeFixture) -> String| {
        Attempt::script(name, "sandbox", script, revealed_secret)
    };
    vec![
        read("reads a key in the user's home", |fixture| {
            format!("cat {}", fixture.at("user/.ssh/id_ed25519").display())
        }),
        read("reads the key in the worker's environment", |_| {
            format!("cat /proc/{}/environ", std::process::id())
        }),
        read("searches the environment of every process for keys", |_| {
            "cat /proc/[0-9]*/environ".to_owned()
        }),
        read("reads a key through the root of another process", |fixture| {
            let key = fixture.at("user/.ssh/id_ed25519");
            format!("cat /proc/[0-9]*/root{0} /proc/{1}/root{0}", key.display(), std::process::id())
        }),
        read("reads another task's worktree", |fixture| {
            format!("cat {}", fixture.at("data/worktrees/other/plan.txt").display())
        }),
        read("reads another run's home", |fixture| {
            format!("cat {}", fixture.at("data/homes/other/token").display())
        }),
        read("reads through its own link", |fixture| {
            format!("ln -s {} k; cat k", fixture.at("user/.ssh/id_ed25519").display())
        }),
        Attempt::script(
            "reads the system passwords",
            "sandbox",
            |_| "cat /etc/shadow /etc/gshadow".to_owned(),
            |result| result.fixture.output().contains("root:"),
        ),
        Attempt::script(
            "reads the worker's memory map",
            "sandbox",
            |_| format!("head -n 1 /proc/{}/maps", std::process::id()),
            |result| {
                result.fixture.output().contains("r--p") || result.fixture.output().contains("r-xp")
            },
        ),
    ]
}
