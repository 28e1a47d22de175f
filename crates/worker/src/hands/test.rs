//! Runs the gates on one exact commit. Only what they say counts, and only what is new in it.

use std::fmt::Write as _;

use tamma_core::gate::{Kind, Standing};
use tamma_core::ids::CommitId;
use tamma_core::level::Level;
use tamma_core::review::record::{Ran, Record, Tested};
use tamma_core::review::{Fingerprint, Gates};
use tamma_core::task_loop::Outcome;
use tamma_flow::port::Answer;
use tokio::time::Instant;

use super::{Activities, Told, Work};
use crate::error::Error;
use crate::gates::Round;

/// How many names of what failed are told of each gate.
const NAMES: usize = 50;

impl Activities {
    pub(super) async fn test(
        &self,
        work: &Work,
        commit: CommitId,
        risk: Level,
    ) -> Result<Told, Error> {
        let begun = Instant::now();
        let site = self.site(work).await?;
        self.records.take_over(work.run(), self.config.patience.stop).await?;
        let worktree = self.worktree(work, &site).await?;
        let mirror = self.mirror(&site).await?;
        let base = work.base()?;
        let touched = worktree.touched(base, commit).await?;
        let planned = match &work.memory.plan {
            Some(_) => self.plan_of(work).await?.test_changes,
            None => Vec::new(),
        };
        // Which gates there are is pinned with the task; how they are run, too.
        let gates = work.rules.gates_at(risk).collect();
        let round = Round::new(self, work, (&site, mirror), (commit, gates), planned)?;
        let ran = round.run(&touched).await?;
        let mut gates = counted(&ran);
        let mut report = None;
        if gates.failed > 0 {
            let failing = ran.iter().filter(|it| it.judged.counts());
            let names: Vec<&str> = failing.clone().flat_map(faults).collect();
            // Without what does not count, which differs from run to run.
            let error: String = failing.map(in_words).collect();
            let diff = worktree.diff(base, commit).await?;
            let files = touched.keys().map(String::as_str);
            gates.fingerprint = Fingerprint::of(files, names, &error, &diff);
            report = Some(ran.iter().map(in_words).collect());
        }
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let record = Record::Gates(Tested { commit, base, gates: ran, millis });
        let (task, ticket) = (work.task.id, work.call.errand.ticket);
        let keep = || self.store.keep_check(task, ticket, work.memory.iterations, &record);
        self.surely(&work.call.stop, keep).await?;
        Ok(Told { answer: Answer::ended(Outcome::Tested(gates)), report })
    }
}

/// How many there are of each kind.
fn counted(ran: &[Ran]) -> Gates {
    let mut gates = Gates::default();
    for it in ran {
        let count = match it.judged.standing {
            Standing::Passed => &mut gates.passed,
            Standing::PreExisting => &mut gates.pre_existing,
            Standing::Flaky => &mut gates.flaky,
            Standing::Failed | Standing::TimedOut => &mut gates.failed,
        };
        *count = count.saturating_add(1);
        let guards = matches!(it.judged.kind, Kind::Security | Kind::Secrets);
        gates.security_critical |= guards && it.judged.counts();
    }
    gates
}

/// What counts in a gate by name, or the gate itself.
fn faults(ran: &Ran) -> Vec<&str> {
    let named: Vec<_> = ran.judged.new.iter().chain(&ran.judged.missing).collect();
    if named.is_empty() {
        vec![&ran.judged.name]
    } else {
        named.into_iter().map(String::as_str).collect()
    }
}

/// A gate that did not simply pass, for the brief of the next run and for people.
fn in_words(ran: &Ran) -> String {
    let judged = &ran.judged;
    let mut text = String::new();
    let how = match (judged.standing, ran.code) {
        (Standing::Passed, _) => return text,
        (Standing::PreExisting, _) => "fails on the base commit too, and does not count".to_owned(),
        (Standing::Flaky, _) => {
            "is flaky: it failed and then passed, and does not count".to_owned()
        }
        (Standing::TimedOut, _) => "did not end in time".to_owned(),
        (Standing::Failed, Some(0)) => "failed (exit 0, but see below)".to_owned(),
        (Standing::Failed, Some(code)) => format!("failed (exit {code})"),
        (Standing::Failed, None) => "failed (no exit code)".to_owned(),
    };
    let _ = writeln!(text, "## Gate `{}` {how}\n\n    $ {}\n", judged.name, ran.command);
    let lists = [
        (&judged.new, "fails"),
        (
            &judged.missing,
            "ran on the base commit and no longer runs, and the plan does not say so",
        ),
        (&judged.pre_existing, "fails on the base commit too, and does not count"),
        (&judged.flaky, "is flaky, and does not count"),
    ];
    for (names, what) in lists {
        // One that has no names stands for itself, and that is said above.
        for name in names.iter().take(NAMES).filter(|name| **name != judged.name) {
            let _ = writeln!(text, "- `{name}` {what}");
        }
        if names.len() > NAMES {
            let _ = writeln!(text, "- and {} more, which the same is true of", names.len() - NAMES);
        }
    }
    if judged.counts() {
        let _ = writeln!(text, "\n```\n{}\n```", ran.output.trim_end());
    }
    text + "\n"
}
