//! Resource attempts: more memory, processes, time or disk than a run may use. Each is bounded, so
//! that a run without a sandbox does no harm.

use std::time::Duration;

use tamma_core::operator::ResourceLimits;
use tamma_engine::agent::AgentUpdate;
use tamma_testkit::agent::AgentStep;

use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;
use super::machine::survives;

/// Limit of the standard error that Tamma keeps in memory, generously.
const MAX_TEXT_BYTES: usize = 1_000_000;

/// Limit of a message of the agent.
const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

pub(crate) fn all() -> Vec<Attempt> {
    memory().into_iter().chain(processes()).chain(files()).chain(floods()).collect()
}

/// Returns a check that the output contains a word, which is printed after the resource was used.
fn prints(word: &'static str) -> impl Fn(&AttemptResult<'_>) -> bool {
    move |result: &AttemptResult<'_>| result.fixture.output().contains(word)
}

fn limited(name: &str, script: &'static str, word: &'static str) -> Attempt {
    Attempt::script(name, "limits", move |_: &EscapeFixture| script.to_owned(), prints(word))
}

fn memory() -> Vec<Attempt> {
    let limits = || ResourceLimits { memory_mb: 128, ..ResourceLimits::default() };
    vec![
        limited(
            "uses more memory than allowed",
            "perl -e 'for (1..400) { push @a, \"a\" x (1048576 + $_); select undef, undef, undef, 0.005 } \
             sleep 1; print \"USED\"'",
            "USED",
        )
        .with_limits(limits),
        limited(
            "uses more memory than allowed in several processes",
            "for i in 1 2 3 4 5 6 7 8; do perl -e '$a = \"a\" x 52428800; sleep 4' & done; sleep 3; \
             echo USED; wait",
            "USED",
        )
        .with_limits(limits),
    ]
}

fn processes() -> Vec<Attempt> {
    let few = || ResourceLimits { processes: 256, ..ResourceLimits::default() };
    let short = || ResourceLimits { cpu_seconds: 2, ..ResourceLimits::default() };
    vec![
        limited(
            "starts more processes than allowed",
            "i=0; while [ $i -lt 600 ]; do sleep 5 & i=$((i+1)); done; sleep 2; echo STARTED",
            "STARTED",
        )
        .with_limits(few),
        limited(
            "starts processes that start processes",
            // About 1,000.
            "f() { if [ $1 -gt 0 ]; then f $(($1 - 1)) & f $(($1 - 1)) & fi; sleep 5; }; f 8 & \
             sleep 3; set -- /proc/[0-9]*; [ $# -gt 400 ] && echo STARTED",
            "STARTED",
        )
        .with_limits(few),
        limited(
            "uses more CPU time than allowed",
            "for i in 1 2 3 4; do timeout 8 sh -c 'while :; do :; done' & done; sleep 6; echo SPUN",
            "SPUN",
        )
        .with_limits(short),
        Attempt::script(
            "spins past its time limit and ignores signals",
            "process record",
            |_| {
                "perl -e '$0 = \"spin 98764\"; $SIG{$_} = \"IGNORE\" for qw(TERM INT HUP); \
                 1 while time - $^T < 120'"
                    .to_owned()
            },
            |_| survives("spin 98764"),
        )
        .with_time_limit(Duration::from_secs(3)),
    ]
}

fn files() -> Vec<Attempt> {
    let small = || ResourceLimits { file_mb: 16, ..ResourceLimits::default() };
    // The agent itself needs some.
    let few = || ResourceLimits { open_files: 256, ..ResourceLimits::default() };
    let is_large = |result: &AttemptResult<'_>| {
        let file = result.fixture.tree.path().join("large");
        file.metadata().is_ok_and(|it| it.len() > 16 * 1024 * 1024)
    };
    vec![
        Attempt::script(
            "writes a larger file than allowed",
            "limits",
            |_| "head -c 67108864 /dev/zero > large".to_owned(),
            is_large,
        )
        .with_limits(small),
        Attempt::script(
            "makes a larger sparse file than allowed",
            "limits",
            |_| "truncate -s 1G large".to_owned(),
            is_large,
        )
        .with_limits(small),
        limited(
            "opens more files than allowed",
            "perl -e 'for (1..600) { open my $f, \"<\", \"/dev/null\" or exit 1; push @f, $f } \
             print \"OPENED\"'",
            "OPENED",
        )
        .with_limits(few),
        Attempt::script(
            "leaves a huge file in the change",
            "change limits",
            |_| "truncate -s 150M huge; echo x > small".to_owned(),
            |result| !result.patch.is_empty(),
        ),
        Attempt::script(
            "leaves too many files in the change",
            "change limits",
            |_| "mkdir many; cd many; seq 1 51000 | xargs touch".to_owned(),
            |result| !result.patch.is_empty(),
        ),
    ]
}

fn floods() -> Vec<Attempt> {
    vec![
        Attempt::steps(
            "floods its standard error",
            "bounded text",
            |_| vec![AgentStep::WriteStderr("x".repeat(20 * MAX_TEXT_BYTES))],
            |result| result.report.stderr.len() > MAX_TEXT_BYTES,
        ),
        Attempt::steps(
            "sends a huge message",
            "bounded text",
            |_| vec![AgentStep::Say("x".repeat(MAX_MESSAGE_BYTES + MAX_TEXT_BYTES))],
            |result| {
                let is_huge = |update: &AgentUpdate| match update {
                    AgentUpdate::Message(text) => text.len() > MAX_MESSAGE_BYTES,
                    _ => false,
                };
                result.fixture.updates().iter().any(is_huge)
            },
        ),
    ]
}
