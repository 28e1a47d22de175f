//! Gates of one commit: their order, the baseline, and reruns before a failure counts.
//!
//! On the change, build gates run first, one after another. The others then run concurrently, and
//! gates marked `alone` run last. The same gates on the base commit are the baseline. It is taken
//! on demand and stored for every task with that base commit. An unknown failure is run once more.
//! If the change modifies existing tests, test gates also run with the original tests.

mod strict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use tamma_core::gate::{
    GateKind, GateOutcome, GateResult, GateStatus, GateVerdict, judge, judge_with_base_tests,
};
use tamma_core::ids::{CommitId, Digest};
use tamma_core::plan::FileAction;
use tamma_core::review::record::{BaselineSource, GateRecord, TestCounts};
use tamma_core::rules::{GateRules, ReportFormat};
use tamma_engine::gate::{self, GateCheckout, GateCommand, GateRun};
use tamma_engine::mirror::Mirror;
use tamma_engine::sandbox::{self, Network};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::clock::now;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;
use crate::retry::retry_until_stopped;
use crate::secret_use::record_test_secrets;
use crate::services::Services;
use crate::setup::{CommandPlace, CommitToSetUp, TestVariables, set_up_checkout, test_secrets};

/// Maximum length of a gate's stored output, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// Time limit of the sandbox check.
const SANDBOX_CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Exit codes of a shell for a command that is not executable, and for one that does not exist.
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Gates of one commit.
pub(crate) struct GateRunner<'a> {
    services: &'a Services,
    ctx: &'a JobContext,
    project: &'a ProjectContext,
    mirror: Mirror,
    /// Gates in the order in which they run.
    gates: Vec<(&'a str, &'a GateRules)>,
    commit: CommitId,
    base: CommitId,
    /// Files that the change touches.
    touched: &'a BTreeMap<String, FileAction>,
    /// Tests that the plan declares as changing.
    planned_tests: Vec<String>,
    sandbox: sandbox::SandboxKind,
    /// Deadline for all gates.
    deadline: Mutex<Instant>,
    /// Set once the use of the operator's test variables is recorded.
    recorded_secrets: OnceCell<()>,
    /// Called with the name of each gate that has run.
    progress: Option<GateProgress>,
}

/// Callback for the name of a gate that has run.
pub(crate) type GateProgress = Arc<dyn Fn(&str) + Send + Sync>;

/// Content of a checkout.
enum CheckoutFiles<'a> {
    /// Commit.
    Commit(CommitId),
    /// The change, with some files from the base commit.
    WithOldTests(&'a [String]),
}

/// Run of a gate, with its duration.
struct TimedGateRun {
    run: GateRun,
    millis: u64,
    /// Set if the deadline of all gates stopped it before its own timeout.
    cut_short: bool,
}

impl TimedGateRun {
    fn is_failed(&self) -> bool {
        self.run.result.outcome != GateOutcome::Passed
    }
}

/// Results of the base commit, with their origin.
type Baselines<'a> = BTreeMap<&'a str, (GateResult, BaselineSource)>;

impl<'a> GateRunner<'a> {
    pub(crate) fn new(
        services: &'a Services,
        ctx: &'a JobContext,
        (project, mirror): (&'a ProjectContext, Mirror),
        (commit, gates): (CommitId, Vec<(&'a str, &'a GateRules)>),
        (touched, planned): (&'a BTreeMap<String, FileAction>, Vec<String>),
    ) -> Result<Self, Error> {
        let sandbox = sandbox::choose(project.rules.engines.sandbox)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let seconds = ctx.rules.scrum_master.task_loop.quality_gates_seconds();
        let until = Instant::now() + Duration::from_secs(u64::from(seconds));
        let mut gates = gates;
        gates.sort_by_key(|(name, rules)| (gate_stage(rules), *name));
        let base = ctx.base()?;
        Ok(Self {
            services,
            ctx,
            project,
            mirror,
            gates,
            commit,
            base,
            touched,
            planned_tests: planned,
            sandbox,
            deadline: Mutex::new(until),
            recorded_secrets: OnceCell::new(),
            progress: None,
        })
    }

    /// Reports each gate that has run.
    pub(crate) fn with_progress(mut self, progress: GateProgress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Runs all gates and judges their results. If the setup fails because of the change, the
    /// result is one failed gate.
    pub(crate) async fn run(&self) -> Result<Vec<GateRecord>, Error> {
        let checkout =
            self.checkout(GateCheckout::for_task(&self.mirror, self.ctx.task.id)).await?;
        let started = Instant::now();
        let files = CheckoutFiles::Commit(self.commit);
        let first = match self.run_gates(&checkout, &files, |_, _| true).await {
            Err(Error::Setup(failed)) if failed.is_repairable => {
                self.set_up_base().await?;
                return Ok(vec![failed.into_gate_record(elapsed_millis(started))]);
            }
            first => first?,
        };
        // Existing tests must still exist, so test reports are always compared.
        let needs = |name: &&str, rules: &GateRules| {
            first[*name].is_failed() || rules.report == Some(ReportFormat::Junit)
        };
        let needed = self.gates.iter().filter(|(name, rules)| needs(name, rules));
        let mut baselines = self.baselines(needed.map(|(name, _)| *name).collect()).await?;
        let mut ran = Vec::new();
        for (name, rules) in &self.gates {
            let (it, baseline) = (&first[name], baselines.get(name));
            let base = baseline.map(|(result, _)| result);
            let mut judged = judge(&it.run.result, base, None, &self.planned_tests);
            let mut was_rerun = false;
            if judged.is_blocking()
                && let Some(rerun) = self
                    .rerun(&checkout, &CheckoutFiles::Commit(self.commit), (name, rules))
                    .await?
            {
                judged = judge(&it.run.result, base, Some(&rerun.run.result), &self.planned_tests);
                was_rerun = true;
            }
            if judged.status == GateStatus::PreExisting
                && let Some(code @ (CANNOT_RUN | NOT_FOUND)) = it.run.code
            {
                // It fails on every commit, so it is a problem of the setup that only a person can
                // fix.
                let last_line = it.run.output.lines().rev().find(|line| !line.trim().is_empty());
                return Err(Error::Configuration(format!(
                    "the gate `{name}` cannot be run, neither on the change nor on its base commit \
                     (exit {code}: {}); install its tools on the worker, or fix \
                     `gates.{name}.command`",
                    last_line.unwrap_or("no output").trim()
                )));
            }
            let from = baseline.map_or(BaselineSource::NotNeeded, |(_, from)| *from);
            ran.push(self.gate_record(judged, rules, it, (from, was_rerun)));
        }
        // If the current tests already fail, the original ones are not run.
        let passing: BTreeSet<&str> = (self.gates.iter().zip(&ran))
            .filter(|((_, rules), ran)| rules.kind == GateKind::Tests && !ran.verdict.is_blocking())
            .map(|((name, _), _)| *name)
            .collect();
        let old = self.old_tests();
        if !old.is_empty() && !passing.is_empty() {
            let passing = passing.into_iter().map(|name| (name, &first[name].run.result)).collect();
            ran.extend(self.with_old_tests(&checkout, &old, &passing, &mut baselines).await?);
        }
        Ok(ran)
    }

    /// Returns existing test files that the change modifies and the plan does not declare.
    fn old_tests(&self) -> Vec<String> {
        self.touched
            .iter()
            .filter(|(_, action)| **action != FileAction::Create)
            .filter(|(path, _)| self.ctx.rules.review.holds_tests(path))
            .filter(|(path, _)| !self.planned_tests.contains(path))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Runs the test gates again with the test files of the base commit.
    async fn with_old_tests(
        &self,
        checkout: &GateCheckout,
        old: &[String],
        passing: &BTreeMap<&'a str, &GateResult>,
        baselines: &mut Baselines<'a>,
    ) -> Result<Vec<GateRecord>, Error> {
        let files = CheckoutFiles::WithOldTests(old);
        // Build outputs may depend on the tests. Nothing new is installed.
        let is_selected = |name: &str, rules: &GateRules| {
            passing.contains_key(name) || (rules.kind == GateKind::Build && !rules.network)
        };
        let runs = self.run_gates(checkout, &files, is_selected).await?;
        let failed = passing.keys().filter(|name| runs[**name].is_failed());
        let unknown = failed.filter(|name| !baselines.contains_key(**name)).copied().collect();
        baselines.extend(self.baselines(unknown).await?);
        let mut ran = Vec::new();
        for (name, rules) in self.gates.iter().filter(|(name, _)| passing.contains_key(name)) {
            let (it, baseline) = (&runs[name], baselines.get(name));
            let base = baseline.map(|(result, _)| result.without_failures(&passing[name].passed));
            let base = base.as_ref();
            let mut judged = judge_with_base_tests(&it.run.result, base, None, &self.planned_tests);
            let mut was_rerun = false;
            if judged.is_blocking()
                && let Some(rerun) = self.rerun(checkout, &files, (name, rules)).await?
            {
                let rerun = &rerun.run.result;
                judged =
                    judge_with_base_tests(&it.run.result, base, Some(rerun), &self.planned_tests);
                was_rerun = true;
            }
            judged.name = format!("{name} (original tests)");
            let from = baseline.map_or(BaselineSource::NotNeeded, |(_, from)| *from);
            ran.push(self.gate_record(judged, rules, it, (from, was_rerun)));
        }
        Ok(ran)
    }

    /// Runs gates in their order.
    async fn run_gates(
        &self,
        checkout: &GateCheckout,
        files: &CheckoutFiles<'_>,
        is_selected: impl Fn(&str, &GateRules) -> bool,
    ) -> Result<BTreeMap<&'a str, TimedGateRun>, Error> {
        let mut done = BTreeMap::new();
        self.prepare_checkout(checkout, files).await?;
        if !self.gates.iter().any(|(name, rules)| is_selected(name, rules)) {
            return Ok(done);
        }
        let (store, config) = (&self.services.store, &self.services.config);
        let record = || record_test_secrets(store, config, self.ctx, "gates");
        self.recorded_secrets.get_or_try_init(record).await?;
        self.check_sandbox(checkout).await?;
        self.set_up(checkout, files).await?;
        // Without a setup, nothing has modified the files yet.
        let mut is_prepared = self.ctx.rules.setup.command.is_none();
        for now in [GateStage::Build, GateStage::Parallel, GateStage::Exclusive] {
            let these: Vec<_> = self
                .gates
                .iter()
                .filter(|(name, rules)| gate_stage(rules) == now && is_selected(name, rules))
                .collect();
            if these.is_empty() {
                continue;
            }
            // Before each stage, because a build may have modified the files.
            if !std::mem::take(&mut is_prepared) {
                self.prepare_checkout(checkout, files).await?;
            }
            let at_once = if now == GateStage::Parallel { cores() } else { 1 };
            let mut runs = Vec::new();
            for (name, rules) in these {
                runs.push(async { (*name, self.run_gate(checkout, name, rules).await) }.boxed());
            }
            let runs = futures::stream::iter(runs).buffered(at_once);
            // Wait for all of them even if one fails to start, because each stops its own
            // processes.
            for (name, run) in runs.collect::<Vec<_>>().await {
                done.insert(name, run?);
            }
        }
        Ok(done)
    }

    /// Prepares a checkout. The time does not count towards the limit of the gates. A failure that
    /// counts against the change must happen twice.
    async fn set_up(
        &self,
        checkout: &GateCheckout,
        files: &CheckoutFiles<'_>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let services = self.services;
        let host = (&*services.config, &services.processes, &services.egress, &services.store);
        let commit = match files {
            CheckoutFiles::Commit(commit) => *commit,
            CheckoutFiles::WithOldTests(_) => self.commit,
        };
        let has_other_locks = commit != self.base
            && self.ctx.rules.setup.covers(self.touched.keys().map(String::as_str));
        let target = CommitToSetUp { commit, has_other_locks };
        let set_up = || set_up_checkout(host, self.ctx, self.project, checkout, target);
        match set_up().await {
            Err(Error::Setup(failed)) if failed.is_repairable => set_up().await?,
            ended => ended?,
        }
        if let Ok(mut deadline) = self.deadline.lock() {
            *deadline += started.elapsed();
        }
        Ok(())
    }

    /// Fails if the setup does not work on the base commit either.
    async fn set_up_base(&self) -> Result<(), Error> {
        let opening = GateCheckout::for_project(&self.mirror, self.ctx.project());
        let checkout = self.checkout(opening).await?;
        let files = CheckoutFiles::Commit(self.base);
        self.prepare_checkout(&checkout, &files).await?;
        self.set_up(&checkout, &files).await
    }

    /// Returns the time left for all gates.
    fn time_left(&self) -> Duration {
        let deadline = self.deadline.lock();
        deadline.map(|it| it.saturating_duration_since(Instant::now())).unwrap_or_default()
    }

    /// Runs a gate once more, if there is time left.
    async fn rerun(
        &self,
        checkout: &GateCheckout,
        files: &CheckoutFiles<'_>,
        (name, rules): (&str, &GateRules),
    ) -> Result<Option<TimedGateRun>, Error> {
        if self.time_left().is_zero() {
            return Ok(None);
        }
        self.prepare_checkout(checkout, files).await?;
        self.run_gate(checkout, name, rules).await.map(Some)
    }

    /// Restores the files of a checkout. Ignored files stay.
    async fn prepare_checkout(
        &self,
        checkout: &GateCheckout,
        files: &CheckoutFiles<'_>,
    ) -> Result<(), Error> {
        match files {
            CheckoutFiles::Commit(commit) => checkout.check_out(*commit).await?,
            CheckoutFiles::WithOldTests(old) => {
                checkout.check_out(self.commit).await?;
                checkout.overlay(self.base, old).await?;
            }
        }
        Ok(())
    }

    async fn run_gate(
        &self,
        checkout: &GateCheckout,
        name: &str,
        rules: &GateRules,
    ) -> Result<TimedGateRun, Error> {
        let started = Instant::now();
        let (own, left) = (time_limit(rules), self.time_left());
        let gate = self.gate(checkout, name, rules, own.min(left));
        let (which, records) = ((self.ctx.run_id(), now()), &self.services.processes);
        let ended = gate.run(checkout, which, records, &self.ctx.stop).await;
        let run = match ended {
            Ok(run) => run,
            Err(gate::Error::Cancelled) => return Err(Error::Stopped),
            Err(error) => return Err(error.into()),
        };
        self.ctx.fault_point("gate ended")?;
        if let Some(progress) = &self.progress {
            progress(name);
        }
        let millis = elapsed_millis(started);
        let cut = run.result.outcome == GateOutcome::TimedOut && left < own;
        Ok(TimedGateRun { run, millis, cut_short: cut })
    }

    /// Checks that the sandbox works before running gates in it.
    async fn check_sandbox(&self, checkout: &GateCheckout) -> Result<(), Error> {
        let Some((name, rules)) =
            self.gates.first().filter(|_| self.sandbox != sandbox::SandboxKind::Off)
        else {
            return Ok(());
        };
        let gate = self.gate(checkout, name, rules, SANDBOX_CHECK_TIMEOUT);
        let (which, records) = ((self.ctx.run_id(), now()), &self.services.processes);
        match gate.check_sandbox(checkout, which, records, &self.ctx.stop).await {
            Err(gate::Error::Cancelled) => Err(Error::Stopped),
            tried => Ok(tried?),
        }
    }

    fn gate(
        &self,
        checkout: &GateCheckout,
        name: &str,
        rules: &GateRules,
        limit: Duration,
    ) -> GateCommand {
        let config = &self.services.config;
        let egress = &self.services.egress;
        let network = if rules.network { egress.network(None) } else { Network::Disabled };
        let place = CommandPlace {
            path: checkout.path(),
            repository: checkout.repository(),
            home: checkout.home(),
        };
        let env = place.environment(config, TestVariables::Included);
        let sandbox = place.sandbox(config, &self.project.rules, self.sandbox, network);
        GateCommand {
            name: name.to_owned(),
            kind: rules.kind,
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), rules.command.clone()],
            env,
            time_limit: limit,
            report: rules.report,
            sandbox: Some(sandbox),
        }
    }

    /// Returns the results of the base commit: stored ones, or new runs.
    async fn baselines(&self, needed: BTreeSet<&'a str>) -> Result<Baselines<'a>, Error> {
        let mut baselines = Baselines::new();
        self.load_baselines(&needed, &mut baselines).await?;
        if baselines.len() == needed.len() || self.time_left().is_zero() {
            return Ok(baselines);
        }
        let project = self.ctx.project();
        let checkout = self.checkout(GateCheckout::for_project(&self.mirror, project)).await?;
        // Another task may have stored them in the meantime.
        self.load_baselines(&needed, &mut baselines).await?;
        let missing: BTreeSet<&str> =
            needed.into_iter().filter(|name| !baselines.contains_key(name)).collect();
        if missing.is_empty() {
            return Ok(baselines);
        }
        let files = CheckoutFiles::Commit(self.base);
        let is_selected =
            |name: &str, rules: &GateRules| missing.contains(name) || rules.kind == GateKind::Build;
        let runs = self.run_gates(&checkout, &files, is_selected).await?;
        for (name, rules) in self.gates.iter().filter(|(name, _)| runs.contains_key(name)) {
            let mut cut = runs[name].cut_short;
            let mut result = runs[name].run.result.clone();
            // A failure in either run counts as known.
            if result.outcome == GateOutcome::Failed
                && let Some(second) = self.rerun(&checkout, &files, (name, rules)).await?
            {
                cut |= second.cut_short;
                result = result.merged_with(&second.run.result);
            }
            if !cut {
                let (stop, digest) = (&self.ctx.stop, self.gate_digest(name, rules));
                let save =
                    || self.services.store.save_baseline(project, self.base, digest, &result);
                retry_until_stopped(stop, save).await?;
            }
            if missing.contains(name) {
                baselines.insert(name, (result, BaselineSource::Measured));
            }
        }
        Ok(baselines)
    }

    async fn load_baselines(
        &self,
        needed: &BTreeSet<&'a str>,
        baselines: &mut Baselines<'a>,
    ) -> Result<(), Error> {
        let project = self.ctx.project();
        for (name, rules) in self.gates.iter().filter(|(name, _)| needed.contains(name)) {
            if baselines.contains_key(name) {
                continue;
            }
            let stored = self
                .services
                .store
                .baseline(project, self.base, self.gate_digest(name, rules))
                .await?;
            if let Some(result) = stored {
                baselines.insert(name, (result, BaselineSource::Cached));
            }
        }
        Ok(())
    }

    /// Returns a hash of everything that determines how a gate runs, including builds before it.
    fn gate_digest(&self, name: &str, rules: &GateRules) -> Digest {
        let GateRules { command, kind, report, network, timeout_seconds, .. } = rules;
        let mut text =
            format!("{name}\0{command}\0{kind}\0{report:?}\0{network}\0{timeout_seconds}");
        for (_, build) in self.gates.iter().filter(|(_, rules)| rules.kind == GateKind::Build) {
            text = format!("{text}\0{}", build.command);
        }
        if let Some(setup) = &self.ctx.rules.setup.command {
            text = format!("{text}\0setup\0{setup}");
        }
        Digest::of(text.as_bytes())
    }

    /// Builds the stored record of a gate.
    fn gate_record(
        &self,
        judged: GateVerdict,
        rules: &GateRules,
        it: &TimedGateRun,
        (baseline, was_rerun): (BaselineSource, bool),
    ) -> GateRecord {
        let result = &it.run.result;
        let count = |names: &BTreeSet<String>| u32::try_from(names.len()).unwrap_or(u32::MAX);
        let tests = (rules.report == Some(ReportFormat::Junit)).then(|| TestCounts {
            passed: count(&result.passed),
            failed: count(&result.failures),
            skipped: count(&result.skipped),
        });
        let output = test_secrets(&self.services.config).redact(&it.run.output).into_owned();
        let from = output.len().saturating_sub(MAX_OUTPUT_BYTES);
        let from =
            (from..=output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or_default();
        let omitted = if from > 0 { "[… start of the output omitted …]\n" } else { "" };
        GateRecord {
            verdict: judged,
            command: rules.command.clone(),
            exit_code: it.run.code,
            duration_ms: it.millis,
            tests,
            passed_tests: result.passed.clone(),
            baseline,
            was_rerun,
            output: format!("{omitted}{}", output[from..].replace('\0', "\u{fffd}")),
        }
    }

    /// Waits for a checkout until the job is stopped.
    async fn checkout(
        &self,
        opening: impl Future<Output = Result<GateCheckout, tamma_engine::mirror::Error>>,
    ) -> Result<GateCheckout, Error> {
        tokio::select! {
            checkout = opening => Ok(checkout?),
            () = self.ctx.stop.cancelled() => Err(Error::Stopped),
        }
    }
}

/// Stage in which a gate runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GateStage {
    Build,
    Parallel,
    Exclusive,
}

fn gate_stage(rules: &GateRules) -> GateStage {
    match (rules.kind, rules.alone) {
        (GateKind::Build, _) => GateStage::Build,
        (_, true) => GateStage::Exclusive,
        (_, false) => GateStage::Parallel,
    }
}

fn time_limit(rules: &GateRules) -> Duration {
    Duration::from_secs(u64::from(rules.timeout_seconds))
}

fn elapsed_millis(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Builds the record of a gate that does not apply to the change.
pub(crate) fn skipped_gate(name: &str, rules: &GateRules) -> GateRecord {
    GateRecord {
        verdict: GateVerdict::not_applicable(name, rules.kind),
        command: rules.command.clone(),
        exit_code: None,
        duration_ms: 0,
        tests: None,
        passed_tests: BTreeSet::new(),
        baseline: BaselineSource::NotNeeded,
        was_rerun: false,
        output: String::new(),
    }
}
