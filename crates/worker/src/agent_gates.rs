//! Gates that an agent runs on its own files during a run (`run_gates`).
//!
//! They use the runner, the checkout and the sandbox of the review, and count nothing towards it.
//! Only one gate run is active at a time. All of them end with the agent's run, so that the review
//! finds the checkout free.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tamma_core::gate::{GateKind, GateStatus};
use tamma_core::ids::CommitId;
use tamma_core::review::patterns;
use tamma_core::review::record::GateRecord;
use tamma_core::rules::GateRules;
use tamma_engine::agent_tools::AgentGates;
use tamma_engine::sanitize;
use tamma_engine::secret::{Redactor, Secret};
use tamma_engine::worktree::Worktree;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use crate::error::Error;
use crate::gates::{GateRunner, skipped_gate};
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;
use crate::services::Services;

/// Longest wait of one call, below the limits of agents for a tool.
const MAX_WAIT: Duration = Duration::from_secs(45);

/// Maximum number of failures listed per gate.
const MAX_NAMES: usize = 30;

/// Maximum length of a gate's shown output, in bytes. The end is kept.
const MAX_OUTPUT_BYTES: usize = 4_000;

/// Maximum length of a result, in bytes.
const MAX_RESULT_BYTES: usize = 24_000;

/// Gate runs of one agent run. Clones share them.
#[derive(Clone)]
pub(crate) struct AgentGateRuns(Arc<SharedGateRuns>);

struct SharedGateRuns {
    services: Services,
    /// Context whose stop signal ends with the agent's run.
    ctx: JobContext,
    project: ProjectContext,
    worktree: Worktree,
    redactor: Redactor,
    current: Mutex<CurrentGateRun>,
}

/// Latest gate run, and the number of runs so far.
#[derive(Default)]
struct CurrentGateRun {
    count: u32,
    run: Option<StartedGateRun>,
}

struct StartedGateRun {
    id: String,
    names: Vec<String>,
    finished: FinishedGates,
    result: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

/// Names of the gates that have finished.
type FinishedGates = Arc<StdMutex<BTreeSet<String>>>;

impl AgentGateRuns {
    /// Creates the gate runs of an agent run in a worktree.
    pub(crate) fn new(
        services: &Services,
        ctx: &JobContext,
        project: &ProjectContext,
        worktree: &Worktree,
    ) -> Self {
        let environment = &services.config.environment;
        let keys = project.rules.agents.values().filter_map(|agent| environment.get(&agent.key));
        let redactor = Redactor::new(keys.filter(|key| !key.is_empty()).map(Secret::new));
        Self(Arc::new(SharedGateRuns {
            services: services.clone(),
            ctx: JobContext { stop: ctx.stop.child_token(), ..ctx.clone() },
            project: project.clone(),
            worktree: worktree.clone(),
            redactor,
            current: Mutex::default(),
        }))
    }

    /// Returns a guard that stops the gates if the agent's run is dropped before
    /// [`AgentGateRuns::finish`].
    pub(crate) fn stop_on_drop(&self) -> DropGuard {
        self.0.ctx.stop.clone().drop_guard()
    }

    /// Stops the active gate run and waits until its processes have ended.
    pub(crate) async fn finish(&self) {
        self.0.ctx.stop.cancel();
        if let Some(run) = self.0.current.lock().await.run.take() {
            // A panic is reported by the runtime, and the run is over in any case.
            let _ = run.task.await;
        }
    }
}

impl AgentGates for AgentGateRuns {
    fn start(&self, gates: Vec<String>) -> BoxFuture<'static, Result<String, String>> {
        let shared = self.0.clone();
        Box::pin(async move { shared.start(&gates).await })
    }

    fn result(&self, id: String) -> BoxFuture<'static, Result<String, String>> {
        let shared = self.0.clone();
        Box::pin(async move { shared.result(&id).await })
    }
}

impl SharedGateRuns {
    /// Returns the gates that the review would run, by name.
    fn gates(&self) -> Vec<(&str, &GateRules)> {
        let risk = self.ctx.task_loop.risk_level().unwrap_or_default();
        self.ctx.rules.gates_at(risk).collect()
    }

    async fn start(self: Arc<Self>, wanted: &[String]) -> Result<String, String> {
        let mut current = self.current.lock().await;
        if self.ctx.stop.is_cancelled() {
            return Err("the run is ending".to_owned());
        }
        if let Some(run) = current.run.as_ref().filter(|run| run.result.borrow().is_none()) {
            return Err(format!(
                "gate run `{id}` is still running: call {{\"action\": \"result\", \"id\": \
                 \"{id}\"}} until it has ended",
                id = run.id
            ));
        }
        let names = self.select(wanted)?;
        let commit = self
            .worktree
            .snapshot_commit()
            .await
            .map_err(|error| format!("your files could not be copied: {error}; try again"))?;
        current.count += 1;
        let id = format!("g{}", current.count);
        let finished = FinishedGates::default();
        let (sender, result) = watch::channel(None);
        let (shared, progress) = (self.clone(), finished.clone());
        let (run_id, selected) = (id.clone(), names.clone());
        let task = tokio::spawn(async move {
            let ran = shared.run_gates(commit, &selected, progress).await;
            sender.send_replace(Some(shared.describe(&run_id, ran)));
        });
        let text = format!(
            "Gate run `{id}` started on your files as they are now: {}. Call {{\"action\": \
             \"result\", \"id\": \"{id}\"}} for the results.",
            names.join(", ")
        );
        current.run = Some(StartedGateRun { id, names, finished, result, task });
        Ok(text)
    }

    /// Selects gates by name. Builds always run, because other gates may need their output.
    fn select(&self, wanted: &[String]) -> Result<Vec<String>, String> {
        let gates = self.gates();
        let known: Vec<&str> = gates.iter().map(|(name, _)| *name).collect();
        if known.is_empty() {
            return Err("this project has no gates; check your work in your own shell".to_owned());
        }
        if let Some(unknown) = wanted.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("no gate `{unknown}`; there are: {}", known.join(", ")));
        }
        let is_selected = |name: &str, rules: &GateRules| {
            wanted.is_empty()
                || rules.kind == GateKind::Build
                || wanted.iter().any(|wanted| wanted == name)
        };
        let selected = gates.into_iter().filter(|(name, rules)| is_selected(name, rules));
        Ok(selected.map(|(name, _)| name.to_owned()).collect())
    }

    async fn result(&self, id: &str) -> Result<String, String> {
        let (mut result, names, finished) = {
            let current = self.current.lock().await;
            match &current.run {
                Some(run) if run.id == id => {
                    (run.result.clone(), run.names.clone(), run.finished.clone())
                }
                Some(run) => {
                    return Err(format!("no gate run `{id}`; the latest is `{}`", run.id));
                }
                None => {
                    return Err(
                        "no gate run was started: call {\"action\": \"start\"} first".to_owned()
                    );
                }
            }
        };
        let waited = tokio::time::timeout(MAX_WAIT, result.wait_for(Option::is_some)).await;
        match waited.map(|ended| ended.map(|text| text.clone())) {
            Ok(Ok(text)) => Ok(text.unwrap_or_default()),
            Ok(Err(_)) => Err("the gate run was stopped; start it again".to_owned()),
            Err(_) => {
                let finished = finished.lock().unwrap_or_else(PoisonError::into_inner);
                let done: Vec<_> = finished.iter().map(String::as_str).collect();
                let done = if done.is_empty() { "none yet".to_owned() } else { done.join(", ") };
                Ok(format!(
                    "running. Finished: {done}; all gates: {}. Call `result` again.",
                    names.join(", ")
                ))
            }
        }
    }

    async fn run_gates(
        &self,
        commit: CommitId,
        names: &[String],
        finished: FinishedGates,
    ) -> Result<Vec<GateRecord>, Error> {
        let Self { services, ctx, project, worktree, .. } = self;
        let touched = worktree.changed_files(ctx.base()?, commit).await?;
        let planned = match &ctx.task_loop.plan {
            Some(plan) => services.contents.plan(ctx.task.id, plan.hash).await?.test_changes,
            None => Vec::new(),
        };
        let mirror = services.repositories.mirror(project).await?;
        let is_selected = |name: &str| names.iter().any(|selected| selected == name);
        let changed = || touched.keys().map(String::as_str);
        let selected = self.gates().into_iter().filter(|(name, _)| is_selected(name));
        let (gates, skipped): (Vec<_>, Vec<_>) =
            selected.partition(|(_, rules)| rules.applies_to(changed()));
        let skipped: Vec<_> =
            skipped.iter().map(|(name, rules)| skipped_gate(name, rules)).collect();
        let change = (&touched, planned);
        let runner = GateRunner::new(services, ctx, (project, mirror), (commit, gates), change)?;
        let note = move |name: &str| {
            finished.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        };
        let mut ran = runner.with_progress(Arc::new(note)).run().await?;
        ran.extend(skipped);
        Ok(ran)
    }

    /// Describes the results for a model.
    fn describe(&self, id: &str, ran: Result<Vec<GateRecord>, Error>) -> String {
        let text = match ran {
            Ok(records) => describe_records(id, &records),
            Err(Error::Stopped) => format!("Gate run `{id}` was stopped."),
            Err(error) => format!("Gate run `{id}` could not run: {error}"),
        };
        let text = self.redactor.redact(&text).into_owned();
        let text = patterns::redact_secrets(&text).0;
        sanitize::text(&text).into_owned()
    }
}

/// Describes each gate: first a line about all of them, then those that did not pass.
fn describe_records(id: &str, records: &[GateRecord]) -> String {
    let blocking = records.iter().filter(|record| record.verdict.is_blocking()).count();
    let mut text = if blocking == 0 {
        format!("Gate run `{id}`: no gate fails because of your change.\n")
    } else {
        format!("Gate run `{id}`: {blocking} of {} gates fail.\n", records.len())
    };
    for record in records {
        let status = match record.verdict.status {
            GateStatus::Passed => "passed",
            GateStatus::PreExisting => "pre-existing: fails on the base commit too, does not count",
            GateStatus::Flaky => "flaky: failed, then passed, does not count",
            GateStatus::Failed => "failed",
            GateStatus::TimedOut => "failed: timed out",
            GateStatus::NotApplicable => "not applicable: no changed file matches its paths",
        };
        let seconds = record.duration_ms.div_ceil(1_000);
        let _ = write!(text, "\n- `{}`: {status} ({seconds} s)", record.verdict.name);
    }
    text.push('\n');
    for record in records.iter().filter(|record| record.verdict.status != GateStatus::Passed) {
        let section = describe_failure(record);
        if text.len() + section.len() > MAX_RESULT_BYTES {
            text.push_str("\nThe rest is left out; run single gates to see it.\n");
            break;
        }
        text.push_str(&section);
    }
    text
}

/// Describes one gate that did not pass.
fn describe_failure(record: &GateRecord) -> String {
    let verdict = &record.verdict;
    let mut text = format!("\n## `{}`\n\n    $ {}\n\n", verdict.name, record.command);
    let lists = [
        (&verdict.new, "fails"),
        (
            &verdict.missing,
            "ran on the base commit and no longer runs; the plan does not mention it",
        ),
        (&verdict.pre_existing, "fails on the base commit too; does not count"),
        (&verdict.flaky, "is flaky; does not count"),
    ];
    for (names, explanation) in lists {
        for name in names.iter().take(MAX_NAMES).filter(|name| **name != verdict.name) {
            let _ = writeln!(text, "- `{name}` {explanation}");
        }
        if names.len() > MAX_NAMES {
            let _ = writeln!(text, "- and {} more like these", names.len() - MAX_NAMES);
        }
    }
    if verdict.is_blocking() {
        let output = record.output.trim_end();
        let from = output.ceil_char_boundary(output.len().saturating_sub(MAX_OUTPUT_BYTES));
        let cut = if from > 0 { "…\n" } else { "" };
        let _ = writeln!(text, "\nEnd of its output:\n```\n{cut}{}\n```", &output[from..]);
    }
    text
}

#[cfg(test)]
mod tests {
    use tamma_core::gate::GateVerdict;
    use tamma_core::review::record::BaselineSource;

    use super::*;

    fn record(name: &str, status: GateStatus, new: &[String], output: &str) -> GateRecord {
        GateRecord {
            verdict: GateVerdict {
                name: name.to_owned(),
                kind: GateKind::Tests,
                status,
                new: new.iter().cloned().collect(),
                pre_existing: BTreeSet::new(),
                flaky: BTreeSet::new(),
                missing: BTreeSet::new(),
            },
            command: format!("run {name}"),
            exit_code: Some(1),
            duration_ms: 1_500,
            tests: None,
            passed_tests: BTreeSet::new(),
            baseline: BaselineSource::NotNeeded,
            was_rerun: false,
            output: output.to_owned(),
        }
    }

    #[test]
    fn results_name_failing_tests_and_the_end_of_the_output() {
        let failing = ["suite::a".to_owned()];
        let records = [
            record("build", GateStatus::Passed, &[], "built"),
            record("tests", GateStatus::Failed, &failing, "start\nassertion failed"),
            record("lint", GateStatus::PreExisting, &[], "old"),
        ];
        let text = describe_records("g1", &records);
        assert!(text.starts_with("Gate run `g1`: 1 of 3 gates fail.\n"), "{text}");
        for part in [
            "- `build`: passed (2 s)",
            "- `tests`: failed",
            "- `lint`: pre-existing",
            "    $ run tests",
            "- `suite::a` fails",
            "assertion failed\n```",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("built"), "output of passed gates is left out: {text}");
    }

    #[test]
    fn results_are_bounded() {
        let failing: Vec<_> = (0..1_000).map(|number| format!("suite::{number}")).collect();
        let output = "é".repeat(1_000_000);
        let records: Vec<_> = (0..50)
            .map(|number| record(&format!("gate-{number}"), GateStatus::Failed, &failing, &output))
            .collect();
        let text = describe_records("g1", &records);
        assert!(text.len() < MAX_RESULT_BYTES + 5_000, "{}", text.len());
        assert!(text.contains("and 970 more"), "{text}");
    }
}
