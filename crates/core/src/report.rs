//! Reports of a task: every iteration, and the task as a whole.
//!
//! A report is built from stored data (history, check records and runs), so it can be built at any
//! time with the same result. [`render_markdown()`] is for pull requests; the CLI renders reports
//! for terminals.

mod markdown;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::budget::Spend;
use crate::cause::AlertCause;
use crate::cost::{Cost, Tokens, Usage, Usd};
use crate::council::OpinionRecord;
use crate::escalation::EscalationDecision;
use crate::format::{format_usd, pluralize};
use crate::gate::{GateKind, GateStatus};
use crate::history::{EntryData, EntryName, HistoryEntry};
use crate::ids::{CommitId, Name, Reference, TaskId};
use crate::issue::Issue;
use crate::knowledge::{EntryKind, EntryStatus};
use crate::learning::LessonTrigger;
use crate::review::record::{
    BaselineSource, CheckRecord, GateRecord, SecondReview, TestCounts, Validator,
};
use crate::review::{Criterion, GateCounts};
use crate::run_result::RunResult;
use crate::state::State;
use crate::tier::Tier;
use crate::time::Timestamp;

pub use markdown::render_markdown;

/// Report of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Task ID.
    pub task: TaskId,
    /// Title of the task.
    pub title: String,
    /// Current state.
    pub state: State,
    /// Iterations, in order.
    pub iterations: Vec<IterationReport>,
    /// Councils, in order.
    pub councils: Vec<CouncilReport>,
    /// Decisions requested from people, in order.
    #[serde(rename = "asked")]
    pub decision_requests: Vec<DecisionRequest>,
    /// Tiers in the order of their use, with the number of consecutive iterations.
    #[serde(rename = "tiers")]
    pub tier_runs: Vec<(Tier, u16)>,
    /// Cost by run mode: plan, implement, validate and the council's modes.
    pub costs: BTreeMap<String, CostSummary>,
    /// Cost by agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, CostSummary>,
    /// Total spend.
    pub spend: Spend,
    /// Number of lessons; `None` until they are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lessons: Option<u16>,
    /// Lessons that the task proposed or confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lesson_list: Vec<LessonReport>,
    /// Number of iterations that the task may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u16>,
    /// Agent of the last iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_agent: Option<String>,
    /// Model of the last iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_model: Option<String>,
    /// Time at which the task was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Seconds from submission until the task was closed, or until its last event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
}

/// Lesson in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonReport {
    /// Title of the lesson.
    pub title: String,
    /// Event that triggered it, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occasion: Option<LessonTrigger>,
    /// Kind of the entry in the knowledge base.
    pub kind: EntryKind,
    /// Status of the entry.
    pub status: EntryStatus,
}

/// One implementation run with its checks and the decision that followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IterationReport {
    /// Number of the iteration, from 1.
    pub number: u16,
    /// Tier of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Agent of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Model of the run, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Complexity score of the plan, 0 to 14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity: Option<u8>,
    /// Number of files that the change touches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
    /// Commit that the run produced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// Time at which the run finished.
    #[serde(rename = "at", default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Result of the review; `None` while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// Person who decided, if one did.
    #[serde(rename = "judged_by", default, skip_serializing_if = "Option::is_none")]
    pub reviewed_by: Option<Name>,
    /// Score, 0 to 100, if the change was reviewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<u8>,
    /// Numbers of passed and failed gates.
    #[serde(rename = "counts", default, skip_serializing_if = "Option::is_none")]
    pub gate_counts: Option<GateCounts>,
    /// Results of the gates.
    pub gates: Vec<GateReport>,
    /// Acceptance criteria with their judgements.
    pub criteria: Vec<Criterion>,
    /// Agent that judged the criteria.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validator: Option<Validator>,
    /// Second validator, if a critical finding had to be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_review: Option<SecondReview>,
    /// Unverified claims of the agent about its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<RunResult>,
    /// Other findings.
    pub issues: Vec<Issue>,
    /// Suggestions of the validator, which block nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
    /// Faults that the previous iterations did not have.
    pub new_faults: BTreeSet<String>,
    /// Faults that an earlier iteration had too.
    #[serde(rename = "old_faults")]
    pub repeated_faults: BTreeSet<String>,
    /// Decision after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<EscalationDecision>,
    /// Text of that decision.
    #[serde(rename = "decided", default, skip_serializing_if = "Option::is_none")]
    pub decision_text: Option<String>,
    /// Cost of the run and of the runs that judged it.
    pub cost: CostSummary,
}

/// Result of one gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReport {
    /// Configured name.
    pub name: String,
    /// Subject of the gate.
    pub kind: GateKind,
    /// Meaning of the result.
    #[serde(rename = "standing")]
    pub status: GateStatus,
    /// New failures, which count against the change.
    pub new: BTreeSet<String>,
    /// Failures that the base commit has too.
    pub pre_existing: BTreeSet<String>,
    /// Failures that disappeared when the gate ran again.
    pub flaky: BTreeSet<String>,
    /// Tests that were removed or are skipped.
    pub missing: BTreeSet<String>,
    /// Test counts, if the tool reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Duration in milliseconds.
    #[serde(rename = "millis")]
    pub duration_ms: u64,
    /// Source of the base commit's result.
    pub baseline: BaselineSource,
}

/// One council.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CouncilReport {
    /// 1 for the first council of the task, 2 for the second.
    pub number: u8,
    /// Number of the iteration before the council.
    #[serde(rename = "after")]
    pub after_iteration: u16,
    /// Members with their opinions; `None` for absent members.
    pub members: Vec<(String, Option<String>)>,
    /// Conclusion as Markdown; `None` while the council is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<String>,
}

/// Decision that was requested from a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRequest {
    /// Time of the request.
    pub at: Timestamp,
    /// Number of the iteration before the request.
    #[serde(rename = "after")]
    pub after_iteration: u16,
    /// Reason for the request.
    pub cause: AlertCause,
    /// Text of the reason.
    #[serde(rename = "in_words")]
    pub description: String,
}

/// Cost of several runs. Runs with an unknown cost are counted in `unknown_runs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostSummary {
    /// Number of runs.
    pub runs: u32,
    /// Known cost in US dollars.
    pub usd: Usd,
    /// Known tokens.
    pub tokens: u64,
    /// Known input tokens, from the cache or not.
    #[serde(default, skip_serializing_if = "crate::cost::is_zero")]
    pub input: u64,
    /// Known input tokens that were read from the cache.
    #[serde(default, skip_serializing_if = "crate::cost::is_zero")]
    pub cached: u64,
    /// Number of runs with an unknown cost.
    #[serde(rename = "unknown")]
    pub unknown_runs: u32,
}

impl CostSummary {
    /// Returns the share of the input that was read from the cache, in percent. Returns `None`
    /// without known input.
    pub fn cached_percent(&self) -> Option<u8> {
        let (cached, input) = (self.cached, self.input.saturating_sub(self.cached));
        Tokens { input, cached, ..Tokens::default() }.cached_percent()
    }

    fn add(&mut self, usage: Option<&Usage>) {
        self.runs += 1;
        if let Some(usage) = usage {
            self.tokens = self.tokens.saturating_add(usage.tokens.total());
            self.input = self.input.saturating_add(usage.tokens.all_input());
            self.cached = self.cached.saturating_add(usage.tokens.cached);
        }
        match usage.map(|usage| usage.cost) {
            Some(Cost::Known(usd)) => self.usd += usd,
            Some(Cost::Unknown) | None => self.unknown_runs += 1,
        }
    }
}

impl fmt::Display for CostSummary {
    /// Writes the known cost and the number of runs without one. An unknown cost is not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unknown_runs {
            0 => f.write_str(&format_usd(self.usd)),
            all if all == self.runs => f.write_str("unknown"),
            some => write!(f, "{} and {some} unknown", format_usd(self.usd)),
        }
    }
}

/// Facts of a run that a report needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// Job number of the run.
    pub job_number: u32,
    /// Mode of the run.
    pub mode: String,
    /// Agent of the run.
    pub agent: String,
    /// Model of the run, if it is known.
    pub model: Option<String>,
    /// The run finished.
    pub finished: bool,
    /// Tier of the run.
    pub tier: Option<Tier>,
    /// Usage of the run, if known.
    pub usage: Option<Usage>,
    /// Unverified claims of the agent, if it submitted any.
    pub claims: Option<RunResult>,
}

/// Inputs of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportSources<'a> {
    /// Task ID.
    pub task: TaskId,
    /// Title of the task.
    pub title: &'a str,
    /// Current state.
    pub state: State,
    /// Total spend.
    pub spend: Spend,
    /// Complete history.
    pub history: &'a [HistoryEntry],
    /// Check records with their iteration numbers, in order.
    pub checks: &'a [(u16, CheckRecord)],
    /// Runs, in order.
    pub runs: &'a [RunSummary],
    /// Stored texts that the history refers to.
    pub texts: &'a BTreeMap<Reference, String>,
    /// Number of iterations that the task may have.
    pub max_iterations: u16,
    /// Lessons that the task proposed or confirmed.
    pub lessons: &'a [LessonReport],
}

/// Returns the references whose texts a report needs.
pub fn referenced_texts(history: &[HistoryEntry]) -> Vec<Reference> {
    history
        .iter()
        .filter_map(|entry| match (&entry.data, entry.name) {
            (EntryData::Opinion { opinion: OpinionRecord::Stored(reference), .. }, _)
            | (EntryData::Stored(reference), EntryName::SmCouncilConcluded) => {
                Some(reference.clone())
            }
            _ => None,
        })
        .collect()
}

/// Builds the report of a task.
pub fn build(sources: &ReportSources<'_>) -> TaskReport {
    let mut report = TaskReport {
        task: sources.task,
        title: sources.title.to_owned(),
        state: sources.state,
        iterations: Vec::new(),
        councils: Vec::new(),
        decision_requests: Vec::new(),
        tier_runs: Vec::new(),
        costs: BTreeMap::new(),
        agents: BTreeMap::new(),
        spend: sources.spend,
        lessons: None,
        lesson_list: sources.lessons.to_vec(),
        max_iterations: Some(sources.max_iterations),
        final_agent: None,
        final_model: None,
        completed_at: sources
            .history
            .iter()
            .find(|entry| entry.to.is_terminal())
            .map(|entry| entry.at),
        duration_seconds: None,
    };
    report.duration_seconds = duration(sources.history, report.completed_at);
    let mut complexity = None;
    for entry in sources.history {
        apply_entry(&mut report, entry, sources.texts);
        if let EntryData::Plan(plan) = &entry.data {
            complexity = Some(plan.complexity_score);
        }
        if let (EntryName::SmImplementationCompleted, Some(last)) =
            (entry.name, report.iterations.last_mut())
        {
            last.complexity = complexity;
        }
    }
    for (number, record) in sources.checks {
        if let Some(iteration) =
            report.iterations.iter_mut().find(|iteration| iteration.number == *number)
        {
            apply_check(iteration, record);
        }
    }
    compare_faults(&mut report.iterations, sources.checks);
    assign_runs(&mut report, sources.runs);
    if let Some(last) = report.iterations.last() {
        (report.final_agent, report.final_model) = (last.agent.clone(), last.model.clone());
    }
    for iteration in &report.iterations {
        match (report.tier_runs.last_mut(), iteration.tier) {
            (Some((last, times)), Some(tier)) if *last == tier => *times += 1,
            (_, Some(tier)) => report.tier_runs.push((tier, 1)),
            (_, None) => {}
        }
    }
    report
}

/// Returns the seconds from the first entry until the task was closed, or until the last entry.
fn duration(history: &[HistoryEntry], completed_at: Option<Timestamp>) -> Option<u64> {
    let (first, last) = (history.first()?, history.last()?);
    let end = completed_at.unwrap_or(last.at);
    u64::try_from((end - first.at).num_seconds()).ok()
}

/// Adds a history entry to the report.
fn apply_entry(report: &mut TaskReport, entry: &HistoryEntry, texts: &BTreeMap<Reference, String>) {
    let after = report.iterations.last().map_or(0, |iteration| iteration.number);
    let text = |reference: &Reference| texts.get(reference).cloned();
    match (entry.name, &entry.data) {
        (EntryName::SmImplementationCompleted, EntryData::Commit(commit)) => {
            report.iterations.push(IterationReport {
                number: after.saturating_add(1),
                tier: None,
                agent: None,
                model: None,
                complexity: None,
                files: None,
                commit: Some(*commit),
                finished_at: Some(entry.at),
                passed: None,
                reviewed_by: None,
                score: None,
                gate_counts: None,
                gates: Vec::new(),
                criteria: Vec::new(),
                validator: None,
                second_review: None,
                claims: None,
                issues: Vec::new(),
                suggestions: Vec::new(),
                new_faults: BTreeSet::new(),
                repeated_faults: BTreeSet::new(),
                decision: None,
                decision_text: None,
                cost: CostSummary::default(),
            });
        }
        (EntryName::SmCouncilConvened, _) => {
            let number = u8::try_from(report.councils.len() + 1).unwrap_or(u8::MAX);
            report.councils.push(CouncilReport {
                number,
                after_iteration: after,
                members: Vec::new(),
                conclusion: None,
            });
        }
        (_, EntryData::Opinion { member, opinion }) => {
            if let Some(council) = report.councils.last_mut() {
                let opinion_text = match opinion {
                    OpinionRecord::Stored(reference) => text(reference),
                    OpinionRecord::Absent => None,
                };
                council.members.push((member.to_string(), opinion_text));
            }
        }
        (EntryName::SmCouncilConcluded, EntryData::Stored(reference)) => {
            if let Some(council) = report.councils.last_mut() {
                council.conclusion = text(reference);
            }
        }
        (EntryName::SmAlertSent, EntryData::Cause(cause)) => {
            report.decision_requests.push(DecisionRequest {
                at: entry.at,
                after_iteration: after,
                cause: *cause,
                description: cause.to_string(),
            });
        }
        (_, EntryData::Lessons(lessons)) => report.lessons = Some(*lessons),
        (name, data) => {
            let Some(iteration) = report.iterations.last_mut() else { return };
            match (name, data) {
                (EntryName::SmGatesFailed, EntryData::Gates(gates)) => {
                    (iteration.gate_counts, iteration.passed) = (Some(*gates), Some(false));
                }
                (_, EntryData::Gates(gates)) => iteration.gate_counts = Some(*gates),
                (_, EntryData::Review(summary)) => {
                    (iteration.score, iteration.passed) =
                        (Some(summary.score), Some(summary.passed));
                }
                (EntryName::SmReviewPassed | EntryName::SmReviewFailed, _) => {
                    iteration.passed = Some(entry.name == EntryName::SmReviewPassed);
                    iteration.reviewed_by = match &entry.actor {
                        Actor::Person(name) => Some(name.clone()),
                        _ => None,
                    };
                }
                (_, EntryData::Decision(decision)) => {
                    (iteration.decision, iteration.decision_text) =
                        (Some(*decision), Some(decision.to_string()));
                }
                _ => {}
            }
        }
    }
}

/// Adds a check record to an iteration.
fn apply_check(iteration: &mut IterationReport, record: &CheckRecord) {
    match record {
        CheckRecord::Gates(tested) => {
            iteration.gates = tested.gates.iter().map(GateReport::from).collect();
            iteration.files = tested.files;
        }
        CheckRecord::Review(reviewed) => {
            iteration.score = Some(reviewed.verdict.score);
            iteration.criteria.clone_from(&reviewed.verdict.inputs.criteria);
            iteration.issues.clone_from(&reviewed.verdict.inputs.issues);
            iteration.suggestions.clone_from(&reviewed.verdict.inputs.suggestions);
            iteration.validator.clone_from(&reviewed.validator);
            iteration.second_review.clone_from(&reviewed.second);
        }
    }
}

/// Separates the new faults of each iteration from repeated ones.
fn compare_faults(iterations: &mut [IterationReport], checks: &[(u16, CheckRecord)]) {
    let mut earlier_faults = BTreeSet::new();
    for iteration in iterations {
        let own_checks = checks.iter().filter(|(number, _)| *number == iteration.number);
        let faults: BTreeSet<_> = own_checks.flat_map(|(_, record)| record.faults()).collect();
        (iteration.repeated_faults, iteration.new_faults) =
            faults.iter().cloned().partition(|fault| earlier_faults.contains(fault));
        earlier_faults.extend(faults);
    }
}

/// Assigns runs to iterations and adds up their cost.
fn assign_runs(report: &mut TaskReport, runs: &[RunSummary]) {
    let finished: BTreeSet<u32> = runs
        .iter()
        .filter(|run| run.finished && run.mode == "implement")
        .map(|run| run.job_number)
        .collect();
    for run in runs {
        report.costs.entry(run.mode.clone()).or_default().add(run.usage.as_ref());
        report.agents.entry(run.agent.clone()).or_default().add(run.usage.as_ref());
        let before = finished.range(..run.job_number).count();
        let number = match run.mode.as_str() {
            "implement" => before + 1,
            "validate" => before,
            _ => continue,
        };
        let iteration =
            report.iterations.iter_mut().find(|iteration| usize::from(iteration.number) == number);
        if let Some(iteration) = iteration {
            iteration.cost.add(run.usage.as_ref());
            if run.mode == "implement" {
                iteration.tier = run.tier.or(iteration.tier);
                iteration.agent = Some(run.agent.clone());
                iteration.model.clone_from(&run.model);
                if run.claims.is_some() {
                    iteration.claims.clone_from(&run.claims);
                }
            }
        }
    }
}

impl IterationReport {
    /// Returns the numbers of criteria that are met and of all criteria.
    pub fn criteria_met(&self) -> (usize, usize) {
        let met = self.criteria.iter().filter(|criterion| criterion.is_met()).count();
        (met, self.criteria.len())
    }

    /// Returns agent, model, complexity, number of files and met criteria as short texts, as far as
    /// they are known.
    pub fn facts(&self) -> Vec<String> {
        let agent = match (&self.agent, &self.model) {
            (Some(agent), Some(model)) => Some(format!("{agent} with {model}")),
            (agent, None) => agent.clone(),
            (None, model) => model.clone(),
        };
        let complexity = self.complexity.map(|score| format!("complexity {score} of 14"));
        let files = self.files.map(|files| pluralize(files, "file"));
        let criteria = match self.criteria_met() {
            (_, 0) => None,
            (met, all) => Some(format!("{met} of {all} criteria met")),
        };
        [agent, complexity, files, criteria].into_iter().flatten().collect()
    }
}

impl From<&GateRecord> for GateReport {
    fn from(record: &GateRecord) -> Self {
        let verdict = &record.verdict;
        Self {
            name: verdict.name.clone(),
            kind: verdict.kind,
            status: verdict.status,
            new: verdict.new.clone(),
            pre_existing: verdict.pre_existing.clone(),
            flaky: verdict.flaky.clone(),
            missing: verdict.missing.clone(),
            tests: record.tests,
            duration_ms: record.duration_ms,
            baseline: record.baseline,
        }
    }
}

impl TaskReport {
    /// Returns `true` if no cost is known although agents ran. It is not zero then.
    pub fn is_cost_unknown(&self) -> bool {
        let has_unknown = self.costs.values().any(|cost| cost.unknown_runs > 0);
        self.spend.usd == Usd::ZERO && (self.spend.estimated || has_unknown)
    }

    /// Returns the report of a single iteration, or `None` if it does not exist.
    #[must_use]
    pub fn for_iteration(mut self, number: u16) -> Option<Self> {
        self.iterations.retain(|iteration| iteration.number == number);
        self.councils.retain(|council| council.after_iteration == number);
        self.decision_requests.retain(|request| request.after_iteration == number);
        let iteration = self.iterations.first()?;
        let CostSummary { usd, tokens, unknown_runs, .. } = iteration.cost;
        self.spend = Spend { usd, tokens, estimated: unknown_runs > 0 };
        self.tier_runs = iteration.tier.map(|tier| (tier, 1)).into_iter().collect();
        self.costs.clear();
        self.agents.clear();
        self.lessons = None;
        self.lesson_list.clear();
        Some(self)
    }
}
