//! Record of a task for learning: everything that happened, each item with a label that a lesson
//! can cite and a person can look up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::LessonTrigger;
use crate::actor::Actor;
use crate::budget::Spend;
use crate::cause::AlertCause;
use crate::format::humanize;
use crate::history::{EntryData, EntryName, HistoryEntry};
use crate::ids::{CommitId, ProjectId, Reference, TaskId};
use crate::issue::IssueSeverity;
use crate::plan::Plan;
use crate::review::record;
use crate::state::State;

/// Longest item that a model reads, in bytes.
const MAX_ITEM_BYTES: usize = 1_500;

/// Longest record that a model reads, in bytes. The middle is omitted: the start and the end of a
/// task say the most.
const MAX_RECORD_BYTES: usize = 60_000;

/// Fault text for an unplanned change of a critical file.
const UNPLANNED_CRITICAL_FILE: &str = "change to a critical file that the plan does not name";

/// Evidence of a lesson, which anyone can look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LessonEvidence {
    /// Event of a task, by sequence number.
    Event(TaskId, u64),
    /// Plan of a task, by version.
    Plan(TaskId, u32),
    /// Result of our checks of a commit, by job number.
    Check(TaskId, u32),
    /// Commit of a task.
    Commit(TaskId, CommitId),
}

impl fmt::Display for LessonEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(task, number) => write!(f, "event:{task}/{number}"),
            Self::Plan(task, version) => write!(f, "plan:{task}/{version}"),
            Self::Check(task, job) => write!(f, "check:{task}/{job}"),
            Self::Commit(task, commit) => write!(f, "commit:{task}/{commit}"),
        }
    }
}

impl FromStr for LessonEvidence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "`{text}` is not valid evidence: use `event:TASK/NUMBER`, \
                 `plan:TASK/VERSION`, `check:TASK/JOB` or `commit:TASK/COMMIT`"
            )
        };
        let (kind, rest) = text.split_once(':').ok_or_else(invalid)?;
        let (task, number) = rest.split_once('/').ok_or_else(invalid)?;
        let task = TaskId(task.parse().map_err(|_| invalid())?);
        match kind {
            "commit" => {
                return number
                    .parse()
                    .map(|commit| Self::Commit(task, commit))
                    .map_err(|_| invalid());
            }
            "event" => number.parse().map(|number| Self::Event(task, number)),
            "plan" => number.parse().map(|version| Self::Plan(task, version)),
            "check" => number.parse().map(|job| Self::Check(task, job)),
            _ => return Err(invalid()),
        }
        .map_err(|_| invalid())
    }
}

impl LessonEvidence {
    /// Returns the reference form, as entries store it.
    pub fn reference(self) -> Option<Reference> {
        self.to_string().parse().ok()
    }
}

/// Stored data of a task, from which its record is built.
#[derive(Debug, Clone, Copy)]
pub struct RecordSource<'a> {
    /// ID of the task.
    pub task: TaskId,
    /// ID of its project.
    pub project: ProjectId,
    /// Final state.
    pub ending: State,
    /// Complete history.
    pub history: &'a [HistoryEntry],
    /// Texts that the history refers to: answers, notes, council conclusions.
    pub texts: &'a BTreeMap<Reference, String>,
    /// All versions of its plan.
    pub plans: &'a [(u32, Plan)],
    /// Results of our checks: job number, attempt, result.
    pub checks: &'a [(u32, u16, record::CheckRecord)],
    /// Cost of the task.
    pub spend: Spend,
}

/// Item of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordItem {
    /// Label that a lesson cites: `event 12`, `check 7`.
    pub label: String,
    /// Evidence that the label stands for.
    pub evidence: LessonEvidence,
    /// Description.
    pub text: String,
}

/// Fault that failed the task's changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFault {
    /// Text of the fault, equal across attempts and tasks.
    pub fault: String,
    /// Files in which it was found, if any.
    pub files: BTreeSet<String>,
    /// Attempts that had it.
    pub attempts: BTreeSet<u16>,
    /// A later attempt no longer had it.
    #[serde(rename = "mended")]
    pub fixed: bool,
    /// Found by the review in the code, as opposed to a gate.
    pub in_code: bool,
    /// Evidence of its occurrences.
    pub evidence: Vec<Reference>,
}

/// Record of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRecord {
    /// ID of the task.
    pub task: TaskId,
    /// ID of its project.
    pub project: ProjectId,
    /// Final state.
    pub ending: State,
    /// Items in chronological order.
    pub items: Vec<RecordItem>,
    /// Faults of its changes, the most frequent first.
    pub faults: Vec<RecordedFault>,
    /// Cause of its end, or the last failure outside its changes.
    pub(super) final_failure: Option<(LessonEvidence, String)>,
    /// Number of attempts.
    pub attempts: u16,
    /// Cost of the task.
    pub spend: Spend,
}

impl TaskRecord {
    /// Builds the record of a task.
    pub fn from_source(source: &RecordSource<'_>) -> Self {
        let task = source.task;
        let mut items = Vec::new();
        for (version, plan) in source.plans {
            let label = format!("plan {version}");
            items.push(RecordItem {
                label,
                evidence: LessonEvidence::Plan(task, *version),
                text: plan_text(plan),
            });
        }
        let mut commits = BTreeSet::new();
        for (job, attempt, record) in source.checks {
            let commit = record.commit();
            if commits.insert(commit) {
                let label = format!("commit {}", short_commit(commit));
                let text = format!("commit of attempt {attempt}");
                items.push(RecordItem {
                    label,
                    evidence: LessonEvidence::Commit(task, commit),
                    text,
                });
            }
            let text = format!("attempt {attempt}: {}", check_text(record));
            let evidence = LessonEvidence::Check(task, *job);
            items.push(RecordItem { label: format!("check {job}"), evidence, text });
        }
        for entry in source.history {
            let evidence = LessonEvidence::Event(task, entry.sequence);
            let text = entry_text(entry, source.texts);
            items.push(RecordItem { label: format!("event {}", entry.sequence), evidence, text });
        }
        let attempts = source.checks.iter().map(|(_, attempt, _)| *attempt).max();
        Self {
            task,
            project: source.project,
            ending: source.ending,
            items,
            faults: collect_faults(source),
            final_failure: final_failure(source),
            attempts: attempts.unwrap_or_default(),
            spend: source.spend,
        }
    }

    /// Returns the event that triggers a lesson.
    pub fn lesson_trigger(&self) -> LessonTrigger {
        match self.ending {
            State::Completed if self.faults.is_empty() => LessonTrigger::Success,
            State::Completed => LessonTrigger::Improvement,
            _ => LessonTrigger::Failure,
        }
    }

    /// Returns the labels that a lesson can cite.
    pub fn labels(&self) -> BTreeSet<String> {
        self.items.iter().map(|item| item.label.clone()).collect()
    }

    /// Resolves a label. A commit can be written with more or fewer digits.
    pub fn find_evidence(&self, label: &str) -> Option<LessonEvidence> {
        let label = label.trim().trim_matches(['[', ']', '`']).to_lowercase();
        let commit = label.strip_prefix("commit ").filter(|digits| digits.len() >= 7);
        let is_match = |item: &&RecordItem| match (item.evidence, commit) {
            (LessonEvidence::Commit(_, full_commit), Some(digits)) => {
                full_commit.to_string().starts_with(digits)
            }
            _ => item.label == label,
        };
        self.items.iter().find(is_match).map(|item| item.evidence)
    }

    /// Renders the record for a model, with a limited length.
    pub fn to_prompt(&self) -> String {
        let line = |item: &RecordItem| {
            let text = truncate(item.text.trim(), MAX_ITEM_BYTES).replace('\n', "\n  ");
            format!("- [{}] {text}\n", item.label)
        };
        let lines: Vec<String> = self.items.iter().map(line).collect();
        let mut text = String::new();
        let (mut head, mut tail) = (0, lines.len());
        let mut length = 0;
        // Add items alternately from both ends until it is full.
        while head < tail {
            let next = if head <= lines.len() - tail { head } else { tail - 1 };
            length += lines[next].len();
            if length > MAX_RECORD_BYTES {
                break;
            }
            if next == head {
                head += 1;
            } else {
                tail -= 1;
            }
        }
        lines[..head].iter().for_each(|line| text.push_str(line));
        if head < tail {
            let _ = writeln!(text, "- ({} more items omitted)", tail - head);
        }
        lines[tail..].iter().for_each(|line| text.push_str(line));
        text
    }
}

fn plan_text(plan: &Plan) -> String {
    let mut text = format!("{}\n{}", plan.summary.trim(), plan.approach.trim());
    for file in &plan.file_changes {
        let _ = write!(text, "\n{} `{}`: {}", file.action, file.path, file.description.trim());
    }
    text
}

/// Describes the result of a check: its faults, and the end of the gates' output.
fn check_text(record: &record::CheckRecord) -> String {
    let faults: Vec<String> = record.faults().into_iter().collect();
    let source = match record {
        record::CheckRecord::Gates(_) => "the gates",
        record::CheckRecord::Review(_) => "the review",
    };
    if faults.is_empty() {
        return format!("{source} found no problems");
    }
    let mut text = format!("{source} found: {}", faults.join("; "));
    if let record::CheckRecord::Gates(tested) = record {
        for gate in tested.gates.iter().filter(|gate| gate.verdict.is_blocking()) {
            let _ = write!(
                text,
                "\nend of the output of `{}`: {}",
                gate.command,
                output_tail(&gate.output)
            );
        }
    }
    text
}

fn output_tail(output: &str) -> String {
    let start = output.len().saturating_sub(600);
    output[output.ceil_char_boundary(start)..].trim().to_owned()
}

fn entry_text(entry: &HistoryEntry, texts: &BTreeMap<Reference, String>) -> String {
    let mut text = entry.name.to_string();
    if entry.from == entry.to {
        let _ = write!(text, " ({})", entry.to);
    } else {
        let _ = write!(text, " ({} to {})", entry.from, entry.to);
    }
    if let Actor::Person(name) = &entry.actor {
        let _ = write!(text, " by {name}");
    }
    if let Some(reason) = &entry.reason {
        let _ = write!(text, ": {reason}");
    }
    match &entry.data {
        EntryData::Stored(reference) => {
            if let Some(stored) = texts.get(reference) {
                let _ = write!(text, ": {stored}");
            }
        }
        EntryData::Decision(decision) => {
            let _ = write!(text, ": {decision}");
        }
        EntryData::Failure(kind) => {
            let _ = write!(text, ": {kind}");
        }
        EntryData::Spend(spend) => {
            let _ = write!(text, ": {} spent", spend.usd);
        }
        _ => {}
    }
    text
}

/// Collects the faults of a task's changes, the most frequent first.
fn collect_faults(source: &RecordSource<'_>) -> Vec<RecordedFault> {
    let mut faults: BTreeMap<String, RecordedFault> = BTreeMap::new();
    let mut last_attempts: BTreeMap<bool, u16> = BTreeMap::new();
    for (job, attempt, record) in source.checks {
        let in_code = matches!(record, record::CheckRecord::Review(_));
        last_attempts.insert(in_code, *attempt);
        let evidence = [
            LessonEvidence::Check(source.task, *job),
            LessonEvidence::Commit(source.task, record.commit()),
        ];
        for (fault, file) in check_faults(record) {
            let recorded = faults.entry(fault.clone()).or_insert_with(|| RecordedFault {
                fault,
                files: BTreeSet::new(),
                attempts: BTreeSet::new(),
                fixed: false,
                in_code,
                evidence: Vec::new(),
            });
            recorded.files.extend(file);
            recorded.attempts.insert(*attempt);
            for reference in evidence.iter().filter_map(|item| item.reference()) {
                if !recorded.evidence.contains(&reference) {
                    recorded.evidence.push(reference);
                }
            }
        }
    }
    let mut faults: Vec<_> = faults.into_values().collect();
    for recorded in &mut faults {
        let last_seen = recorded.attempts.last().copied().unwrap_or_default();
        let checked_again = last_attempts
            .get(&recorded.in_code)
            .is_some_and(|last_attempts| *last_attempts > last_seen);
        recorded.fixed = checked_again || source.ending == State::Completed;
    }
    faults.sort_by_key(|recorded| std::cmp::Reverse(recorded.attempts.len()));
    faults
}

/// Returns the faults of a commit with their files. The same fault in another file counts as the
/// same.
fn check_faults(record: &record::CheckRecord) -> Vec<(String, Option<String>)> {
    match record {
        record::CheckRecord::Gates(_) => {
            record.faults().into_iter().map(|fault| (fault, None)).collect()
        }
        record::CheckRecord::Review(reviewed) => {
            let inputs = &reviewed.verdict.inputs;
            let issues =
                inputs.issues.iter().filter(|issue| issue.severity >= IssueSeverity::Error);
            let issues = issues.map(|issue| (issue.message.clone(), issue.file.clone()));
            let unplanned = inputs.conformance.unplanned_critical.iter();
            let unplanned =
                unplanned.map(|path| (UNPLANNED_CRITICAL_FILE.to_owned(), Some(path.clone())));
            let unmet = inputs.criteria.iter().filter(|criterion| !criterion.is_met());
            let unmet = unmet.map(|criterion| (format!("not met: {}", criterion.text), None));
            issues.chain(unplanned).chain(unmet).collect()
        }
    }
}

/// Returns the cause of the task's failure, or the last failure outside its changes.
fn final_failure(source: &RecordSource<'_>) -> Option<(LessonEvidence, String)> {
    let is_failure = |entry: &HistoryEntry| {
        let failed = matches!(
            entry.name,
            EntryName::SmImplementationFailed
                | EntryName::SmErrorOccurred
                | EntryName::SmPlanInvalid
                | EntryName::SmPlanDisputed
                | EntryName::SmApprovalDenied
                | EntryName::SmChangesRequested
                | EntryName::SmDeliveryFailed
                | EntryName::SmQuotaReached
        );
        // A cancellation is a person's decision. Nobody learns from it that a task was cancelled.
        let given_up = entry.to == State::Failed && entry.trigger.is_some();
        let halted =
            matches!(entry.data, EntryData::Cause(_)) && entry.to == State::HumanEscalation;
        failed || given_up || halted
    };
    // An earlier cause says more than the end itself.
    let mut entries: Vec<&HistoryEntry> =
        source.history.iter().filter(|entry| is_failure(entry)).collect();
    entries.sort_by_key(|entry| (entry.to.is_terminal(), std::cmp::Reverse(entry.sequence)));
    let entry = *entries.first()?;
    let reason = match (&entry.reason, &entry.data) {
        (Some(reason), _) => reason.to_string(),
        (None, EntryData::Failure(kind)) => kind.to_string(),
        (None, EntryData::Cause(cause)) => cause_text(*cause),
        (None, EntryData::Stored(reference)) => {
            source.texts.get(reference).cloned().unwrap_or_default()
        }
        (None, _) => String::new(),
    };
    let event = format!("{} while {}", entry.name.to_string().to_lowercase(), entry.from);
    let event = humanize(event.trim_start_matches("sm_"));
    let text =
        if reason.is_empty() { event } else { format!("{event}: {}", truncate(&reason, 300)) };
    Some((LessonEvidence::Event(source.task, entry.sequence), text))
}

/// Describes why a person was asked, without punctuation.
fn cause_text(cause: AlertCause) -> String {
    let text = serde_json::to_string(&cause).unwrap_or_default();
    let text = text.replace(|letter: char| !letter.is_alphanumeric(), " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the short form of a commit ID.
fn short_commit(commit: CommitId) -> String {
    commit.to_string().chars().take(12).collect()
}

/// Truncates a text to a number of bytes.
pub(super) fn truncate(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{} …", &text[..text.floor_char_boundary(max_bytes)])
}
