//! The gates of one commit: in which order they run, what they are compared with, and what is run
//! again before a failure counts.
//!
//! On the change, gates that build run first, one after another; then the others beside each other,
//! and those that disturb others last. The same gates on the base commit are the baseline. It is taken
//! when it is needed, and kept for every task that starts from that commit. What fails and is not
//! known runs once more. Where the change has touched tests that were there, those that test run again
//! with the tests as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use tamma_core::gate::{GateResult, Judged, Kind, Outcome, Standing, judge, judge_old_tests};
use tamma_core::ids::{CommitId, Digest};
use tamma_core::plan::Action;
use tamma_core::review::record::{Baseline, Ran, Tests};
use tamma_core::rules::{GateRules, Report};
use tamma_engine::confine::{self, Cage, Network};
use tamma_engine::gate::{self, Checkout, Gate, GateRun};
use tamma_engine::mirror::Mirror;
use tokio::time::Instant;

use crate::error::Error;
use crate::hands::{Activities, Work, now};
use crate::site::Site;
use crate::toolchains;

/// How much of what a gate wrote is kept, in bytes.
const OUTPUT: usize = 16 * 1024;

/// How long doing nothing in a sandbox may take.
const TRIAL: Duration = Duration::from_secs(30);

/// How a shell exits when it finds a command and cannot run it, and when it finds none.
const CANNOT_RUN: i32 = 126;
const NOT_THERE: i32 = 127;

/// The gates of one commit.
pub(crate) struct Round<'a> {
    hands: &'a Activities,
    work: &'a Work,
    site: &'a Site,
    mirror: Mirror,
    /// In the order in which they run.
    gates: Vec<(&'a str, &'a GateRules)>,
    commit: CommitId,
    base: CommitId,
    /// The tests that the plan says will change.
    planned: Vec<String>,
    sandbox: confine::Kind,
    /// When all of it must be over.
    until: Instant,
}

/// What lies in a checkout.
enum Files<'a> {
    /// A commit.
    Of(CommitId),
    /// The change, with some files as they were on the base commit.
    WithOld(&'a [String]),
}

/// A run of a gate, and how long it took.
struct Timed {
    run: GateRun,
    millis: u64,
    /// Whether it was stopped because the time of all gates was over, and not its own.
    cut: bool,
}

impl Timed {
    fn failed(&self) -> bool {
        self.run.result.outcome != Outcome::Passed
    }
}

/// What the gates of a base commit say, and where that is from.
type Baselines<'a> = BTreeMap<&'a str, (GateResult, Baseline)>;

impl<'a> Round<'a> {
    pub(crate) fn new(
        hands: &'a Activities,
        work: &'a Work,
        (site, mirror): (&'a Site, Mirror),
        (commit, gates): (CommitId, Vec<(&'a str, &'a GateRules)>),
        planned: Vec<String>,
    ) -> Result<Self, Error> {
        let sandbox = confine::choose(site.rules.engines.sandbox)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let seconds = work.rules.scrum_master.task_loop.timeouts.quality_gates;
        let until = Instant::now() + Duration::from_secs(u64::from(seconds));
        let mut gates = gates;
        gates.sort_by_key(|(name, rules)| (stage(rules), *name));
        let base = work.base()?;
        Ok(Self { hands, work, site, mirror, gates, commit, base, planned, sandbox, until })
    }

    /// Runs all of them, and judges what they say.
    pub(crate) async fn run(&self, touched: &BTreeMap<String, Action>) -> Result<Vec<Ran>, Error> {
        let checkout = self.checkout(Checkout::of_task(&self.mirror, self.work.task.id)).await?;
        let first = self.go(&checkout, &Files::Of(self.commit), |_, _| true).await?;
        // Tests that were there must still be there, so a report of tests is always compared.
        let needs = |name: &&str, rules: &GateRules| {
            first[*name].failed() || rules.report == Some(Report::Junit)
        };
        let needed = self.gates.iter().filter(|(name, rules)| needs(name, rules));
        let mut baselines = self.baselines(needed.map(|(name, _)| *name).collect()).await?;
        let mut ran = Vec::new();
        for (name, rules) in &self.gates {
            let (it, baseline) = (&first[name], baselines.get(name));
            let base = baseline.map(|(result, _)| result);
            let mut judged = judge(&it.run.result, base, None, &self.planned);
            let mut again = false;
            if judged.counts()
                && let Some(rerun) =
                    self.again(&checkout, &Files::Of(self.commit), (name, rules)).await?
            {
                judged = judge(&it.run.result, base, Some(&rerun.run.result), &self.planned);
                again = true;
            }
            if judged.standing == Standing::PreExisting
                && let Some(code @ (CANNOT_RUN | NOT_THERE)) = it.run.code
            {
                // It fails alike on every commit and judges none: that is for a person, not an agent.
                let said = it.run.output.lines().rev().find(|line| !line.trim().is_empty());
                return Err(Error::Configuration(format!(
                    "the gate `{name}` cannot be run, neither on the change nor on the commit it \
                     started from (exit {code}: {}). Install what it needs on the worker, or mend \
                     `gates.{name}.command`",
                    said.unwrap_or("it says nothing").trim()
                )));
            }
            let from = baseline.map_or(Baseline::NotNeeded, |(_, from)| *from);
            ran.push(kept(judged, rules, it, from, again));
        }
        // Where the tests fail as they are, that is enough for now.
        let passing: BTreeSet<&str> = (self.gates.iter().zip(&ran))
            .filter(|((_, rules), ran)| rules.kind == Kind::Tests && !ran.judged.counts())
            .map(|((name, _), _)| *name)
            .collect();
        let old = self.old_tests(touched);
        if !old.is_empty() && !passing.is_empty() {
            let passing = passing.into_iter().map(|name| (name, &first[name].run.result)).collect();
            ran.extend(self.with_old_tests(&checkout, &old, &passing, &mut baselines).await?);
        }
        Ok(ran)
    }

    /// The files of tests that were there, that the change has touched, and that the plan does not
    /// give free.
    fn old_tests(&self, touched: &BTreeMap<String, Action>) -> Vec<String> {
        touched
            .iter()
            .filter(|(_, action)| **action != Action::Create)
            .filter(|(path, _)| self.work.rules.review.holds_tests(path))
            .filter(|(path, _)| !self.planned.contains(path))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Runs the gates that test once more, with tests as they were on the base commit.
    async fn with_old_tests(
        &self,
        checkout: &Checkout,
        old: &[String],
        passing: &BTreeMap<&'a str, &GateResult>,
        baselines: &mut Baselines<'a>,
    ) -> Result<Vec<Ran>, Error> {
        let files = Files::WithOld(old);
        // What was built may be built from the tests too. Nothing new is installed.
        let is_wanted = |name: &str, rules: &GateRules| {
            passing.contains_key(name) || (rules.kind == Kind::Build && !rules.network)
        };
        let runs = self.go(checkout, &files, is_wanted).await?;
        let failed = passing.keys().filter(|name| runs[**name].failed());
        let unknown = failed.filter(|name| !baselines.contains_key(**name)).copied().collect();
        baselines.extend(self.baselines(unknown).await?);
        let mut ran = Vec::new();
        for (name, rules) in self.gates.iter().filter(|(name, _)| passing.contains_key(name)) {
            let (it, baseline) = (&runs[name], baselines.get(name));
            let base = baseline.map(|(result, _)| result.without(&passing[name].passed));
            let base = base.as_ref();
            let mut judged = judge_old_tests(&it.run.result, base, None, &self.planned);
            let mut again = false;
            if judged.counts()
                && let Some(rerun) = self.again(checkout, &files, (name, rules)).await?
            {
                let rerun = &rerun.run.result;
                judged = judge_old_tests(&it.run.result, base, Some(rerun), &self.planned);
                again = true;
            }
            judged.name = format!("{name} (tests as they were)");
            let from = baseline.map_or(Baseline::NotNeeded, |(_, from)| *from);
            ran.push(kept(judged, rules, it, from, again));
        }
        Ok(ran)
    }

    /// Runs gates in their order.
    async fn go(
        &self,
        checkout: &Checkout,
        files: &Files<'_>,
        is_wanted: impl Fn(&str, &GateRules) -> bool,
    ) -> Result<BTreeMap<&'a str, Timed>, Error> {
        let mut done = BTreeMap::new();
        self.lay(checkout, files).await?;
        self.try_cage(checkout).await?;
        for now in [Stage::Build, Stage::Beside, Stage::Alone] {
            let these: Vec<_> = self
                .gates
                .iter()
                .filter(|(name, rules)| stage(rules) == now && is_wanted(name, rules))
                .collect();
            if these.is_empty() {
                continue;
            }
            // Before each: what builds may have changed what is to be judged.
            self.lay(checkout, files).await?;
            let at_once = if now == Stage::Beside { cores() } else { 1 };
            let mut runs = Vec::new();
            for (name, rules) in these {
                runs.push(async { (*name, self.one(checkout, name, rules).await) }.boxed());
            }
            let runs = futures::stream::iter(runs).buffered(at_once);
            // To the end of all, also where one cannot be run: each ends what it has started.
            for (name, run) in runs.collect::<Vec<_>>().await {
                done.insert(name, run?);
            }
        }
        Ok(done)
    }

    /// Runs a gate once more, if there is time for it.
    async fn again(
        &self,
        checkout: &Checkout,
        files: &Files<'_>,
        (name, rules): (&str, &GateRules),
    ) -> Result<Option<Timed>, Error> {
        if Instant::now() >= self.until {
            return Ok(None);
        }
        self.lay(checkout, files).await?;
        self.one(checkout, name, rules).await.map(Some)
    }

    /// Makes the files in a checkout what they are to be. What git ignores stays.
    async fn lay(&self, checkout: &Checkout, files: &Files<'_>) -> Result<(), Error> {
        match files {
            Files::Of(commit) => checkout.put(*commit).await?,
            Files::WithOld(old) => {
                checkout.put(self.commit).await?;
                checkout.overlay(self.base, old).await?;
            }
        }
        Ok(())
    }

    async fn one(
        &self,
        checkout: &Checkout,
        name: &str,
        rules: &GateRules,
    ) -> Result<Timed, Error> {
        let begun = Instant::now();
        let (own, left) = (seconds(rules), self.until.saturating_duration_since(begun));
        let gate = self.gate(checkout, name, rules, own.min(left));
        let (which, records) = ((self.work.run(), now()), &self.hands.records);
        let ended = gate.run(checkout, which, records, &self.work.call.stop).await;
        let run = match ended {
            Ok(run) => run,
            Err(gate::Error::Cancelled) => return Err(Error::Stopped),
            Err(error) => return Err(error.into()),
        };
        self.hands.pass("gate ended")?;
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let cut = run.result.outcome == Outcome::TimedOut && left < own;
        Ok(Timed { run, millis, cut })
    }

    /// Makes sure that gates can be run at all. Without a sandbox there is nothing to try.
    async fn try_cage(&self, checkout: &Checkout) -> Result<(), Error> {
        let Some((name, rules)) = self.gates.first().filter(|_| self.sandbox != confine::Kind::Off)
        else {
            return Ok(());
        };
        let gate = self.gate(checkout, name, rules, TRIAL);
        let (which, records) = ((self.work.run(), now()), &self.hands.records);
        match gate.try_cage(checkout, which, records, &self.work.call.stop).await {
            Err(gate::Error::Cancelled) => Err(Error::Stopped),
            tried => Ok(tried?),
        }
    }

    fn gate(&self, checkout: &Checkout, name: &str, rules: &GateRules, limit: Duration) -> Gate {
        let environment = &self.hands.config.environment;
        let mut env = crate::runs::inherited(environment, &crate::runs::PLAIN);
        env.extend(toolchains::variables(environment));
        env.insert("CI".to_owned(), "1".to_owned());
        let network =
            if rules.network { Network::Open { ports: Vec::new() } } else { Network::Nothing };
        let readable = self.site.rules.engines.readable.iter().map(PathBuf::from);
        let hidden = [self.hands.config.data.clone()].into_iter();
        let cage = Cage {
            kind: self.sandbox,
            launcher: self.hands.config.launcher.clone(),
            worktree: checkout.path(),
            looking: false,
            repository: Some(checkout.repository().to_owned()),
            home: checkout.home(),
            readable: readable.chain(toolchains::folders(environment)).collect(),
            writable: Vec::new(),
            protected: Vec::new(),
            hidden: hidden.chain(toolchains::secrets(environment)).collect(),
            network,
        };
        Gate {
            name: name.to_owned(),
            kind: rules.kind,
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), rules.command.clone()],
            env,
            time_limit: limit,
            report: rules.report,
            cage: Some(cage),
        }
    }

    /// What gates say of the base commit: as it is known, or they are run there.
    async fn baselines(&self, needed: BTreeSet<&'a str>) -> Result<Baselines<'a>, Error> {
        let mut known = Baselines::new();
        self.look_up(&needed, &mut known).await?;
        if known.len() == needed.len() || Instant::now() >= self.until {
            return Ok(known);
        }
        let project = self.work.call.errand.diary.project;
        let checkout = self.checkout(Checkout::of_project(&self.mirror, project)).await?;
        // Another task may have taken them while we waited.
        self.look_up(&needed, &mut known).await?;
        let missing: BTreeSet<&str> =
            needed.into_iter().filter(|name| !known.contains_key(name)).collect();
        if missing.is_empty() {
            return Ok(known);
        }
        let files = Files::Of(self.base);
        let is_wanted =
            |name: &str, rules: &GateRules| missing.contains(name) || rules.kind == Kind::Build;
        let runs = self.go(&checkout, &files, is_wanted).await?;
        for (name, rules) in self.gates.iter().filter(|(name, _)| runs.contains_key(name)) {
            let mut cut = runs[name].cut;
            let mut result = runs[name].run.result.clone();
            // What fails only sometimes is known to fail, too.
            if result.outcome == Outcome::Failed
                && let Some(second) = self.again(&checkout, &files, (name, rules)).await?
            {
                cut |= second.cut;
                result = result.joined(&second.run.result);
            }
            if !cut {
                let (stop, how) = (&self.work.call.stop, self.how(name, rules));
                let keep = || self.hands.store.keep_baseline(project, self.base, how, &result);
                self.hands.surely(stop, keep).await?;
            }
            if missing.contains(name) {
                known.insert(name, (result, Baseline::Taken));
            }
        }
        Ok(known)
    }

    async fn look_up(
        &self,
        needed: &BTreeSet<&'a str>,
        known: &mut Baselines<'a>,
    ) -> Result<(), Error> {
        let project = self.work.call.errand.diary.project;
        for (name, rules) in self.gates.iter().filter(|(name, _)| needed.contains(name)) {
            if known.contains_key(name) {
                continue;
            }
            let found =
                self.hands.store.baseline(project, self.base, self.how(name, rules)).await?;
            if let Some(result) = found {
                known.insert(name, (result, Baseline::Known));
            }
        }
        Ok(())
    }

    /// How a gate is run, as a hash: with what is built before it.
    fn how(&self, name: &str, rules: &GateRules) -> Digest {
        let GateRules { command, kind, report, network, timeout_seconds, .. } = rules;
        let mut text =
            format!("{name}\0{command}\0{kind}\0{report:?}\0{network}\0{timeout_seconds}");
        for (_, build) in self.gates.iter().filter(|(_, rules)| rules.kind == Kind::Build) {
            text = format!("{text}\0{}", build.command);
        }
        Digest::of(text.as_bytes())
    }

    /// Waits for a checkout, but not when we are told to stop.
    async fn checkout(
        &self,
        opening: impl Future<Output = Result<Checkout, tamma_engine::mirror::Error>>,
    ) -> Result<Checkout, Error> {
        tokio::select! {
            checkout = opening => Ok(checkout?),
            () = self.work.call.stop.cancelled() => Err(Error::Stopped),
        }
    }
}

/// When a gate runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Build,
    Beside,
    Alone,
}

fn stage(rules: &GateRules) -> Stage {
    match (rules.kind, rules.alone) {
        (Kind::Build, _) => Stage::Build,
        (_, true) => Stage::Alone,
        (_, false) => Stage::Beside,
    }
}

fn seconds(rules: &GateRules) -> Duration {
    Duration::from_secs(u64::from(rules.timeout_seconds))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What is kept of a gate.
fn kept(judged: Judged, rules: &GateRules, it: &Timed, baseline: Baseline, again: bool) -> Ran {
    let result = &it.run.result;
    let count = |names: &BTreeSet<String>| u32::try_from(names.len()).unwrap_or(u32::MAX);
    let tests = (rules.report == Some(Report::Junit)).then(|| Tests {
        passed: count(&result.passed),
        failed: count(&result.failures),
        skipped: count(&result.skipped),
    });
    let output = &it.run.output;
    let from = output.len().saturating_sub(OUTPUT);
    let from = (from..=output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or_default();
    Ran {
        judged,
        command: rules.command.clone(),
        code: it.run.code,
        millis: it.millis,
        tests,
        passed_names: result.passed.clone(),
        baseline,
        again,
        output: output[from..].replace('\0', "\u{fffd}"),
    }
}
