//! What people are told of a task: one report for each iteration, and one of the whole.
//!
//! It is made from what is written down anyway (the log, the records of the checks, the runs), so it
//! can be made at any time, and always says the same of the same. [`markdown()`] is for pull requests;
//! how it looks on a terminal is the command line's business.

mod markdown;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::budget::Spend;
use crate::cause::Cause;
use crate::cost::{Cost, Usage, Usd};
use crate::council::Opinion;
use crate::escalation::Decision;
use crate::gate::{Kind, Standing};
use crate::ids::{CommitId, Name, Reference, TaskId};
use crate::issue::Issue;
use crate::log::{Entry, EntryName, Fact};
use crate::review::record::{Baseline, Ran, Record, Tests, Validator};
use crate::review::{Criterion, Gates};
use crate::state::State;
use crate::tier::Tier;
use crate::time::Timestamp;

pub use markdown::markdown;

/// The report of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The task.
    pub task: TaskId,
    /// Its title.
    pub title: String,
    /// Where it is.
    pub state: State,
    /// Every iteration, in its order.
    pub iterations: Vec<Iteration>,
    /// Every council, in its order.
    pub councils: Vec<Sitting>,
    /// Why people were asked, in the order in which they were.
    pub asked: Vec<Asked>,
    /// Which tiers ran, and how often, in the order in which they did.
    pub tiers: Vec<(Tier, u16)>,
    /// What each kind of run has cost: planning, implementing, judging, advising, concluding.
    pub costs: BTreeMap<String, Spent>,
    /// What all of it has cost.
    pub spend: Spend,
    /// How many lessons were written down, once they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lessons: Option<u16>,
}

/// One run of an engine, what our checks said of it, and what was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iteration {
    /// Its number, from 1.
    pub number: u16,
    /// How strong an engine it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// The commit it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether it passed; nothing while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The person who said so, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<Name>,
    /// 0 to 100, if it was reviewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<u8>,
    /// How many gates passed and failed, where they ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Gates>,
    /// Each gate.
    pub gates: Vec<Gate>,
    /// Each acceptance criterion.
    pub criteria: Vec<Criterion>,
    /// Who judged them, if anybody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validator: Option<Validator>,
    /// What else was found.
    pub issues: Vec<Issue>,
    /// What stood against it and did not stand against the one before.
    pub new_faults: BTreeSet<String>,
    /// What stood against an earlier one too.
    pub old_faults: BTreeSet<String>,
    /// What was decided after it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<String>,
    /// What its runs have cost, those that judged it included.
    pub cost: Spent,
}

/// What one gate came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// What it checks.
    pub kind: Kind,
    /// What its result means.
    pub standing: Standing,
    /// What failed that counts.
    pub new: BTreeSet<String>,
    /// What failed before the change too.
    pub pre_existing: BTreeSet<String>,
    /// What was gone when it ran again.
    pub flaky: BTreeSet<String>,
    /// Tests that are no longer there, or are skipped.
    pub missing: BTreeSet<String>,
    /// How many tests it named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<Tests>,
    /// Milliseconds that it took.
    pub millis: u64,
    /// Where the base commit's result came from.
    pub baseline: Baseline,
}

/// One sitting of the council.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sitting {
    /// The first or the second.
    pub number: u8,
    /// After which iteration.
    pub after: u16,
    /// Who said what: the seat, and their words as they are kept; nothing of those who were absent.
    pub members: Vec<(String, Option<String>)>,
    /// What it concluded, as Markdown; nothing while it sits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<String>,
}

/// A person was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// When.
    pub at: Timestamp,
    /// After which iteration.
    pub after: u16,
    /// Why.
    pub cause: Cause,
    /// The same in words.
    pub in_words: String,
}

/// What was spent. Unknown is not zero: `unknown` says for how many runs nobody could tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// How many runs.
    pub runs: u32,
    /// US dollars that are known.
    pub usd: Usd,
    /// Tokens that are known.
    pub tokens: u64,
    /// How many runs have an unknown cost.
    pub unknown: u32,
}

impl Spent {
    fn add(&mut self, usage: Option<&Usage>) {
        self.runs += 1;
        if let Some(usage) = usage {
            self.tokens = self.tokens.saturating_add(usage.tokens.total());
        }
        match usage.map(|usage| usage.cost) {
            Some(Cost::Known(usd)) => self.usd += usd,
            Some(Cost::Unknown) | None => self.unknown += 1,
        }
    }
}

/// A run of an agent, as far as a report needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The ticket of its job.
    pub ticket: u32,
    /// What it was for.
    pub mode: String,
    /// Whether it finished.
    pub finished: bool,
    /// How strong an engine it had.
    pub tier: Option<Tier>,
    /// What it used.
    pub usage: Option<Usage>,
}

/// What a report is made from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The task.
    pub task: TaskId,
    /// Its title.
    pub title: &'a str,
    /// Where it is.
    pub state: State,
    /// What it has spent.
    pub spend: Spend,
    /// Its log, whole.
    pub log: &'a [Entry],
    /// What its checks said, with the numbers of their iterations, in their order.
    pub checks: &'a [(u16, Record)],
    /// Its runs, in their order.
    pub runs: &'a [Run],
    /// The texts that the log refers to, as far as they are wanted.
    pub texts: &'a BTreeMap<Reference, String>,
}

/// The references of a log whose texts a report wants.
pub fn wanted(log: &[Entry]) -> Vec<Reference> {
    log.iter()
        .filter_map(|entry| match (&entry.data, entry.name) {
            (Fact::Opinion { opinion: Opinion::Said(kept), .. }, _)
            | (Fact::Kept(kept), EntryName::SmCouncilConcluded) => Some(kept.clone()),
            _ => None,
        })
        .collect()
}

/// Makes the report of a task.
pub fn of(sources: &Sources<'_>) -> Report {
    let mut report = Report {
        task: sources.task,
        title: sources.title.to_owned(),
        state: sources.state,
        iterations: Vec::new(),
        councils: Vec::new(),
        asked: Vec::new(),
        tiers: Vec::new(),
        costs: BTreeMap::new(),
        spend: sources.spend,
        lessons: None,
    };
    for entry in sources.log {
        hear(&mut report, entry, sources.texts);
    }
    for (number, record) in sources.checks {
        if let Some(it) = report.iterations.iter_mut().find(|it| it.number == *number) {
            look(it, record);
        }
    }
    compare(&mut report.iterations, sources.checks);
    count(&mut report, sources.runs);
    for iteration in &report.iterations {
        match (report.tiers.last_mut(), iteration.tier) {
            (Some((last, times)), Some(tier)) if *last == tier => *times += 1,
            (_, Some(tier)) => report.tiers.push((tier, 1)),
            (_, None) => {}
        }
    }
    report
}

/// What an entry of the log adds.
fn hear(report: &mut Report, entry: &Entry, texts: &BTreeMap<Reference, String>) {
    let after = report.iterations.last().map_or(0, |it| it.number);
    let text = |kept: &Reference| texts.get(kept).cloned();
    match (entry.name, &entry.data) {
        (EntryName::SmImplementationCompleted, Fact::Commit(commit)) => {
            report.iterations.push(Iteration {
                number: after.saturating_add(1),
                tier: None,
                commit: Some(*commit),
                at: Some(entry.at),
                passed: None,
                judged_by: None,
                score: None,
                counts: None,
                gates: Vec::new(),
                criteria: Vec::new(),
                validator: None,
                issues: Vec::new(),
                new_faults: BTreeSet::new(),
                old_faults: BTreeSet::new(),
                decision: None,
                decided: None,
                cost: Spent::default(),
            });
        }
        (EntryName::SmCouncilConvened, _) => {
            let number = u8::try_from(report.councils.len() + 1).unwrap_or(u8::MAX);
            report.councils.push(Sitting { number, after, members: Vec::new(), conclusion: None });
        }
        (_, Fact::Opinion { seat, opinion }) => {
            if let Some(sitting) = report.councils.last_mut() {
                let said = match opinion {
                    Opinion::Said(kept) => text(kept),
                    Opinion::Absent => None,
                };
                sitting.members.push((seat.to_string(), said));
            }
        }
        (EntryName::SmCouncilConcluded, Fact::Kept(kept)) => {
            if let Some(sitting) = report.councils.last_mut() {
                sitting.conclusion = text(kept);
            }
        }
        (EntryName::SmAlertSent, Fact::Cause(cause)) => {
            let in_words = cause.to_string();
            report.asked.push(Asked { at: entry.at, after, cause: *cause, in_words });
        }
        (_, Fact::Lessons(lessons)) => report.lessons = Some(*lessons),
        (name, fact) => {
            let Some(it) = report.iterations.last_mut() else { return };
            match (name, fact) {
                (EntryName::SmGatesFailed, Fact::Gates(gates)) => {
                    (it.counts, it.passed) = (Some(*gates), Some(false));
                }
                (_, Fact::Gates(gates)) => it.counts = Some(*gates),
                (_, Fact::Review(summary)) => {
                    (it.score, it.passed) = (Some(summary.score), Some(summary.passed));
                }
                (EntryName::SmReviewPassed | EntryName::SmReviewFailed, _) => {
                    it.passed = Some(entry.name == EntryName::SmReviewPassed);
                    it.judged_by = match &entry.actor {
                        Actor::Person(name) => Some(name.clone()),
                        _ => None,
                    };
                }
                (_, Fact::Decision(decision)) => {
                    (it.decision, it.decided) = (Some(*decision), Some(decision.to_string()));
                }
                _ => {}
            }
        }
    }
}

/// What the record of a check adds.
fn look(it: &mut Iteration, record: &Record) {
    match record {
        Record::Gates(tested) => it.gates = tested.gates.iter().map(Gate::from).collect(),
        Record::Review(reviewed) => {
            it.score = Some(reviewed.verdict.score);
            it.criteria.clone_from(&reviewed.verdict.inputs.criteria);
            it.issues.clone_from(&reviewed.verdict.inputs.issues);
            it.validator.clone_from(&reviewed.validator);
        }
    }
}

/// Tells what is new in each iteration from what stood against an earlier one too.
fn compare(iterations: &mut [Iteration], checks: &[(u16, Record)]) {
    let mut seen = BTreeSet::new();
    for it in iterations {
        let of_it = checks.iter().filter(|(number, _)| *number == it.number);
        let faults: BTreeSet<_> = of_it.flat_map(|(_, record)| record.faults()).collect();
        (it.old_faults, it.new_faults) =
            faults.iter().cloned().partition(|fault| seen.contains(fault));
        seen.extend(faults);
    }
}

/// Which runs belong to which iteration, and what they cost.
fn count(report: &mut Report, runs: &[Run]) {
    let finished: BTreeSet<u32> = runs
        .iter()
        .filter(|run| run.finished && run.mode == "implement")
        .map(|run| run.ticket)
        .collect();
    for run in runs {
        report.costs.entry(run.mode.clone()).or_default().add(run.usage.as_ref());
        let before = finished.range(..run.ticket).count();
        let number = match run.mode.as_str() {
            "implement" => before + 1,
            "validate" => before,
            _ => continue,
        };
        let it = report.iterations.iter_mut().find(|it| usize::from(it.number) == number);
        if let Some(it) = it {
            it.cost.add(run.usage.as_ref());
            if run.mode == "implement" {
                it.tier = run.tier.or(it.tier);
            }
        }
    }
}

impl From<&Ran> for Gate {
    fn from(ran: &Ran) -> Self {
        let it = &ran.judged;
        Self {
            name: it.name.clone(),
            kind: it.kind,
            standing: it.standing,
            new: it.new.clone(),
            pre_existing: it.pre_existing.clone(),
            flaky: it.flaky.clone(),
            missing: it.missing.clone(),
            tests: ran.tests,
            millis: ran.millis,
            baseline: ran.baseline,
        }
    }
}

impl Report {
    /// The report of one iteration alone, if there is such a one.
    #[must_use]
    pub fn only(mut self, number: u16) -> Option<Self> {
        self.iterations.retain(|it| it.number == number);
        self.councils.retain(|sitting| sitting.after == number);
        self.asked.retain(|asked| asked.after == number);
        let it = self.iterations.first()?;
        let Spent { usd, tokens, unknown, .. } = it.cost;
        self.spend = Spend { usd, tokens, estimated: unknown > 0 };
        self.tiers = it.tier.map(|tier| (tier, 1)).into_iter().collect();
        self.costs.clear();
        self.lessons = None;
        Some(self)
    }
}
