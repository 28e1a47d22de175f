//! `test` activity: runs the gates on one exact commit. Only new failures count.

use std::fmt::Write as _;

use tamma_core::gate::{GateKind, GateStatus};
use tamma_core::ids::CommitId;
use tamma_core::level::RiskLevel;
use tamma_core::review::record::{CheckRecord, GateRecord, GatesCheck};
use tamma_core::review::{FailureCount, Fingerprint, GateCounts};
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;
use tokio::time::Instant;

use super::plan::current_plan;
use crate::error::Error;
use crate::gates::{GateRunner, skipped_gate};
use crate::job_context::JobContext;
use crate::retry::retry_until_stopped;
use crate::services::Services;

/// Maximum number of failure names listed per gate.
const MAX_NAMES: usize = 50;

pub(super) async fn test(
    services: &Services,
    ctx: &JobContext,
    commit: CommitId,
    risk: RiskLevel,
) -> Result<JobResult, Error> {
    let started = Instant::now();
    let project = services.repositories.project(ctx).await?;
    services.stop_earlier_attempts(ctx).await?;
    let worktree = services.repositories.worktree(ctx, &project).await?;
    let mirror = services.repositories.mirror(&project).await?;
    let base = ctx.base()?;
    let touched = worktree.changed_files(base, commit).await?;
    let planned = match &ctx.task_loop.plan {
        Some(_) => current_plan(services, ctx).await?.test_changes,
        None => Vec::new(),
    };
    // The gates and their commands are pinned with the task.
    let changed = || touched.keys().map(String::as_str);
    let (gates, skipped): (Vec<_>, Vec<_>) =
        ctx.rules.gates_at(risk).partition(|(_, rules)| rules.applies_to(changed()));
    let change = (&touched, planned);
    let round = GateRunner::new(services, ctx, (&project, mirror), (commit, gates), change)?;
    let mut ran = round.run().await?;
    ran.extend(skipped.iter().map(|(name, rules)| skipped_gate(name, rules)));
    let mut gates = count_gates(&ran);
    let mut report = None;
    if gates.failed > 0 {
        let failing = ran.iter().filter(|it| it.verdict.is_blocking());
        let names: Vec<&str> = failing.clone().flat_map(failure_names).collect();
        // Without failures that do not count, because they differ between runs.
        let error: String = failing.map(describe_gate).collect();
        let diff = worktree.diff(base, commit).await?;
        let files = touched.keys().map(String::as_str);
        gates.fingerprint = Fingerprint::from_attempt(files, names, &error, &diff.text);
        gates.failing = Some(count_failures(&ran));
        report = Some(ran.iter().map(describe_gate).collect());
    }
    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let files = u32::try_from(touched.len()).ok();
    let check = GatesCheck { commit, base, gates: ran, duration_ms: millis, files };
    let record = CheckRecord::Gates(check);
    let (task, job_number) = (ctx.task.id, ctx.request.job_number);
    let keep = || services.store.save_check(task, job_number, ctx.task_loop.iterations, &record);
    retry_until_stopped(&ctx.stop, keep).await?;
    Ok(JobResult::finished(Outcome::Tested(gates)).with_report(report))
}

/// Counts the gates by result.
fn count_gates(ran: &[GateRecord]) -> GateCounts {
    let mut gates = GateCounts::default();
    for it in ran {
        let count = match it.verdict.status {
            GateStatus::Passed => &mut gates.passed,
            GateStatus::NotApplicable => continue,
            GateStatus::PreExisting => &mut gates.pre_existing,
            GateStatus::Flaky => &mut gates.flaky,
            GateStatus::Failed | GateStatus::TimedOut => &mut gates.failed,
        };
        *count = count.saturating_add(1);
        let guards = matches!(it.verdict.kind, GateKind::Security | GateKind::Secrets);
        gates.security_critical |= guards && it.verdict.is_blocking();
    }
    gates
}

/// Counts the failures that count: tests by name, findings of other gates, and gates that name none.
fn count_failures(ran: &[GateRecord]) -> FailureCount {
    let mut count = FailureCount::default();
    for it in ran.iter().filter(|it| it.verdict.is_blocking()) {
        let judged = &it.verdict;
        let named = judged.new.iter().chain(&judged.missing);
        let named = named.filter(|name| **name != judged.name).count();
        let number = u32::try_from(named).unwrap_or(u32::MAX);
        match (judged.kind, number) {
            (_, 0) => count.errors = count.errors.saturating_add(1),
            (GateKind::Tests, _) => count.tests = count.tests.saturating_add(number),
            (_, _) => count.errors = count.errors.saturating_add(number),
        }
    }
    count
}

/// Returns the names of failures that count, or the gate's name if there are none.
fn failure_names(ran: &GateRecord) -> Vec<&str> {
    let named: Vec<_> = ran.verdict.new.iter().chain(&ran.verdict.missing).collect();
    if named.is_empty() {
        vec![&ran.verdict.name]
    } else {
        named.into_iter().map(String::as_str).collect()
    }
}

/// Describes a gate that did not pass, for the failure brief and for people.
fn describe_gate(ran: &GateRecord) -> String {
    let judged = &ran.verdict;
    let mut text = String::new();
    let description = match (judged.status, ran.exit_code) {
        (GateStatus::Passed | GateStatus::NotApplicable, _) => return text,
        (GateStatus::PreExisting, _) => "also fails on the base commit; does not count".to_owned(),
        (GateStatus::Flaky, _) => "is flaky: it failed, then passed; does not count".to_owned(),
        (GateStatus::TimedOut, _) => "timed out".to_owned(),
        (GateStatus::Failed, Some(0)) => "failed (exit 0, but see below)".to_owned(),
        (GateStatus::Failed, Some(code)) => format!("failed (exit {code})"),
        (GateStatus::Failed, None) => "failed (no exit code)".to_owned(),
    };
    let _ = writeln!(text, "## Gate `{}` {description}\n\n    $ {}\n", judged.name, ran.command);
    let lists = [
        (&judged.new, "fails"),
        (
            &judged.missing,
            "ran on the base commit and no longer runs; the plan does not mention it",
        ),
        (&judged.pre_existing, "also fails on the base commit; does not count"),
        (&judged.flaky, "is flaky; does not count"),
    ];
    for (names, explanation) in lists {
        // A gate without names has itself as its only name, which is shown above.
        for name in names.iter().take(MAX_NAMES).filter(|name| **name != judged.name) {
            let _ = writeln!(text, "- `{name}` {explanation}");
        }
        if names.len() > MAX_NAMES {
            let _ = writeln!(text, "- and {} more like these", names.len() - MAX_NAMES);
        }
    }
    if judged.is_blocking() {
        let _ = writeln!(text, "\n```\n{}\n```", ran.output.trim_end());
    }
    text + "\n"
}
