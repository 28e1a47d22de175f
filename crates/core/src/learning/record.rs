//! The record of a task, as there is to learn from: what happened, with a name for each thing by which
//! a lesson can point at it and everybody can look it up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Occasion;
use crate::actor::Actor;
use crate::budget::Spend;
use crate::cause::Cause;
use crate::ids::{CommitId, ProjectId, Reference, TaskId};
use crate::issue::Severity;
use crate::log::{Entry, EntryName, Fact};
use crate::plan::Plan;
use crate::review::record;
use crate::state::State;

/// The longest text of one thing in the record that a model reads, in bytes.
const EACH: usize = 1_500;

/// The longest record that a model reads, in bytes. What is left out is from the middle: how a task
/// began and how it ended say the most.
const ALL: usize = 60_000;

/// What is held against a change of a critical file that nobody planned.
const UNPLANNED: &str = "a critical file is changed that the plan does not name";

/// What a lesson is based on: something that everybody can look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// An event of a task, by its number.
    Event(TaskId, u64),
    /// A plan of a task, by its version.
    Plan(TaskId, u32),
    /// What our own checks said of a commit, by the job that made them.
    Check(TaskId, u32),
    /// A commit that a task made.
    Commit(TaskId, CommitId),
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(task, number) => write!(f, "event:{task}/{number}"),
            Self::Plan(task, version) => write!(f, "plan:{task}/{version}"),
            Self::Check(task, ticket) => write!(f, "check:{task}/{ticket}"),
            Self::Commit(task, commit) => write!(f, "commit:{task}/{commit}"),
        }
    }
}

impl FromStr for Evidence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || {
            format!(
                "`{text}` is not evidence that can be looked up: `event:TASK/NUMBER`, \
                 `plan:TASK/VERSION`, `check:TASK/JOB` or `commit:TASK/COMMIT`"
            )
        };
        let (kind, rest) = text.split_once(':').ok_or_else(odd)?;
        let (task, number) = rest.split_once('/').ok_or_else(odd)?;
        let task = TaskId(task.parse().map_err(|_| odd())?);
        match kind {
            "commit" => return number.parse().map(|it| Self::Commit(task, it)).map_err(|_| odd()),
            "event" => number.parse().map(|number| Self::Event(task, number)),
            "plan" => number.parse().map(|version| Self::Plan(task, version)),
            "check" => number.parse().map(|ticket| Self::Check(task, ticket)),
            _ => return Err(odd()),
        }
        .map_err(|_| odd())
    }
}

impl Evidence {
    /// As an entry has it.
    pub fn reference(self) -> Option<Reference> {
        self.to_string().parse().ok()
    }
}

/// What the store has of a task, to make its record from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The task.
    pub task: TaskId,
    /// Its project.
    pub project: ProjectId,
    /// How it ends.
    pub ending: State,
    /// Its log, whole.
    pub log: &'a [Entry],
    /// What the log only refers to: people's answers, notes, what the council concluded.
    pub texts: &'a BTreeMap<Reference, String>,
    /// Every version of its plan.
    pub plans: &'a [(u32, Plan)],
    /// What our own checks said: the job, the attempt, and what.
    pub checks: &'a [(u32, u16, record::Record)],
    /// What it has cost.
    pub spend: Spend,
}

/// One thing in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// By what a lesson points at it: `event 12`, `check 7`.
    pub label: String,
    /// By what everybody finds it.
    pub evidence: Evidence,
    /// What it was.
    pub text: String,
}

/// Something that stood against the task's changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What, by a text that is the same in other attempts and tasks.
    pub fault: String,
    /// The files that it was found in, where it was found in some.
    pub files: BTreeSet<String>,
    /// The attempts that had it.
    pub attempts: BTreeSet<u16>,
    /// Whether a later attempt no longer had it.
    pub mended: bool,
    /// Whether the review found it in the code, and no gate by running it.
    pub in_code: bool,
    /// Where that can be looked up.
    pub evidence: Vec<Reference>,
}

/// The record of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The task.
    pub task: TaskId,
    /// Its project.
    pub project: ProjectId,
    /// How it ends.
    pub ending: State,
    /// What happened, in its order.
    pub items: Vec<Item>,
    /// What stood against its changes, the most stubborn first.
    pub troubles: Vec<Trouble>,
    /// What ended it, or the last thing that failed beside its changes.
    pub(super) last: Option<(Evidence, String)>,
    /// How many attempts there were.
    pub attempts: u16,
    /// What it has cost.
    pub spend: Spend,
}

impl Record {
    /// Makes the record of a task.
    pub fn of(source: &Source<'_>) -> Self {
        let task = source.task;
        let mut items = Vec::new();
        for (version, plan) in source.plans {
            let label = format!("plan {version}");
            items.push(Item {
                label,
                evidence: Evidence::Plan(task, *version),
                text: planned(plan),
            });
        }
        let mut commits = BTreeSet::new();
        for (ticket, attempt, record) in source.checks {
            let commit = record.commit();
            if commits.insert(commit) {
                let label = format!("commit {}", short(commit));
                let text = format!("what attempt {attempt} has made");
                items.push(Item { label, evidence: Evidence::Commit(task, commit), text });
            }
            let text = format!("attempt {attempt}: {}", checked(record));
            let evidence = Evidence::Check(task, *ticket);
            items.push(Item { label: format!("check {ticket}"), evidence, text });
        }
        for entry in source.log {
            let evidence = Evidence::Event(task, entry.sequence);
            let text = told(entry, source.texts);
            items.push(Item { label: format!("event {}", entry.sequence), evidence, text });
        }
        let attempts = source.checks.iter().map(|(_, attempt, _)| *attempt).max();
        Self {
            task,
            project: source.project,
            ending: source.ending,
            items,
            troubles: troubles(source),
            last: last(source),
            attempts: attempts.unwrap_or_default(),
            spend: source.spend,
        }
    }

    /// What it gives occasion to learn.
    pub fn occasion(&self) -> Occasion {
        match self.ending {
            State::Completed if self.troubles.is_empty() => Occasion::Success,
            State::Completed => Occasion::Improvement,
            _ => Occasion::Failure,
        }
    }

    /// What a lesson may point at.
    pub fn labels(&self) -> BTreeSet<String> {
        self.items.iter().map(|item| item.label.clone()).collect()
    }

    /// What a label of the record stands for. A commit may be written longer or shorter.
    pub fn find(&self, label: &str) -> Option<Evidence> {
        let label = label.trim().trim_matches(['[', ']', '`']).to_lowercase();
        let commit = label.strip_prefix("commit ").filter(|digits| digits.len() >= 7);
        let fits = |item: &&Item| match (item.evidence, commit) {
            (Evidence::Commit(_, known), Some(digits)) => known.to_string().starts_with(digits),
            _ => item.label == label,
        };
        self.items.iter().find(fits).map(|item| item.evidence)
    }

    /// The record for a model to read, of a bounded length.
    pub fn in_words(&self) -> String {
        let line = |item: &Item| {
            let text = cut(item.text.trim(), EACH).replace('\n', "\n  ");
            format!("- [{}] {text}\n", item.label)
        };
        let lines: Vec<String> = self.items.iter().map(line).collect();
        let mut text = String::new();
        let (mut head, mut tail) = (0, lines.len());
        let mut length = 0;
        // In turns from both ends, until it is full.
        while head < tail {
            let next = if head <= lines.len() - tail { head } else { tail - 1 };
            length += lines[next].len();
            if length > ALL {
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
            let _ = writeln!(text, "- ({} more in between are left out)", tail - head);
        }
        lines[tail..].iter().for_each(|line| text.push_str(line));
        text
    }
}

fn planned(plan: &Plan) -> String {
    let mut text = format!("{}\n{}", plan.summary.trim(), plan.approach.trim());
    for file in &plan.file_changes {
        let _ = write!(text, "\n{} `{}`: {}", file.action, file.path, file.description.trim());
    }
    text
}

/// What a check said: what stood against the commit, with the end of what the gates wrote.
fn checked(record: &record::Record) -> String {
    let faults: Vec<String> = record.faults().into_iter().collect();
    let what = match record {
        record::Record::Gates(_) => "the gates",
        record::Record::Review(_) => "the review",
    };
    if faults.is_empty() {
        return format!("{what} had nothing against it");
    }
    let mut text = format!("{what} had against it: {}", faults.join("; "));
    if let record::Record::Gates(tested) = record {
        for ran in tested.gates.iter().filter(|ran| ran.judged.counts()) {
            let _ = write!(text, "\n`{}` wrote at its end: {}", ran.command, end_of(&ran.output));
        }
    }
    text
}

fn end_of(output: &str) -> String {
    let start = output.len().saturating_sub(600);
    output[output.ceil_char_boundary(start)..].trim().to_owned()
}

fn told(entry: &Entry, texts: &BTreeMap<Reference, String>) -> String {
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
        Fact::Kept(kept) => {
            if let Some(kept) = texts.get(kept) {
                let _ = write!(text, ": {kept}");
            }
        }
        Fact::Decision(decision) => {
            let _ = write!(text, ": {decision}");
        }
        Fact::Failure(kind) => {
            let _ = write!(text, ": {kind}");
        }
        Fact::Spend(spend) => {
            let _ = write!(text, ": {} spent", spend.usd);
        }
        _ => {}
    }
    text
}

/// What stood against the changes of a task, the most stubborn first.
fn troubles(source: &Source<'_>) -> Vec<Trouble> {
    let mut all: BTreeMap<String, Trouble> = BTreeMap::new();
    let mut last: BTreeMap<bool, u16> = BTreeMap::new();
    for (ticket, attempt, record) in source.checks {
        let in_code = matches!(record, record::Record::Review(_));
        last.insert(in_code, *attempt);
        let evidence =
            [Evidence::Check(source.task, *ticket), Evidence::Commit(source.task, record.commit())];
        for (fault, file) in faults_of(record) {
            let trouble = all.entry(fault.clone()).or_insert_with(|| Trouble {
                fault,
                files: BTreeSet::new(),
                attempts: BTreeSet::new(),
                mended: false,
                in_code,
                evidence: Vec::new(),
            });
            trouble.files.extend(file);
            trouble.attempts.insert(*attempt);
            for one in evidence.iter().filter_map(|it| it.reference()) {
                if !trouble.evidence.contains(&one) {
                    trouble.evidence.push(one);
                }
            }
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    for trouble in &mut all {
        let seen = trouble.attempts.last().copied().unwrap_or_default();
        let checked_again = last.get(&trouble.in_code).is_some_and(|last| *last > seen);
        trouble.mended = checked_again || source.ending == State::Completed;
    }
    all.sort_by_key(|it| std::cmp::Reverse(it.attempts.len()));
    all
}

/// What a check holds against a commit, and in which file: the same in another file is the same fault.
fn faults_of(record: &record::Record) -> Vec<(String, Option<String>)> {
    match record {
        record::Record::Gates(_) => record.faults().into_iter().map(|it| (it, None)).collect(),
        record::Record::Review(reviewed) => {
            let inputs = &reviewed.verdict.inputs;
            let issues = inputs.issues.iter().filter(|it| it.severity >= Severity::Error);
            let issues = issues.map(|it| (it.message.clone(), it.file.clone()));
            let unplanned = inputs.conformance.unplanned_critical.iter();
            let unplanned = unplanned.map(|path| (UNPLANNED.to_owned(), Some(path.clone())));
            let unmet = inputs.criteria.iter().filter(|criterion| !criterion.is_met());
            let unmet = unmet.map(|it| (format!("not met: {}", it.text), None));
            issues.chain(unplanned).chain(unmet).collect()
        }
    }
}

/// What ended the task, or the last thing that failed beside its changes.
fn last(source: &Source<'_>) -> Option<(Evidence, String)> {
    let says = |entry: &Entry| {
        let failed = matches!(
            entry.name,
            EntryName::SmImplementationFailed
                | EntryName::SmErrorOccurred
                | EntryName::SmPlanInvalid
                | EntryName::SmApprovalDenied
                | EntryName::SmChangesRequested
                | EntryName::SmDeliveryFailed
                | EntryName::SmQuotaReached
        );
        let given_up = matches!(entry.to, State::Cancelled | State::Failed) && entry.on.is_some();
        let halted = matches!(entry.data, Fact::Cause(_)) && entry.to == State::HumanEscalation;
        failed || given_up || halted
    };
    // What came before the end says more than the end, where there is something.
    let mut all: Vec<&Entry> = source.log.iter().filter(|entry| says(entry)).collect();
    all.sort_by_key(|entry| (entry.to.is_terminal(), std::cmp::Reverse(entry.sequence)));
    let entry = *all.first()?;
    let why = match (&entry.reason, &entry.data) {
        (Some(reason), _) => reason.to_string(),
        (None, Fact::Failure(kind)) => kind.to_string(),
        (None, Fact::Cause(cause)) => in_words(*cause),
        (None, Fact::Kept(kept)) => source.texts.get(kept).cloned().unwrap_or_default(),
        (None, _) => String::new(),
    };
    let what = format!("{} while {}", entry.name.to_string().to_lowercase(), entry.from);
    let what = what.trim_start_matches("sm_").replace('_', " ");
    let text = if why.is_empty() { what } else { format!("{what}: {}", cut(&why, 300)) };
    Some((Evidence::Event(source.task, entry.sequence), text))
}

/// Why a person was asked, in the words of the log without its punctuation.
fn in_words(cause: Cause) -> String {
    let text = serde_json::to_string(&cause).unwrap_or_default();
    let text = text.replace(|letter: char| !letter.is_alphanumeric(), " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first digits of a commit, as people write it.
fn short(commit: CommitId) -> String {
    commit.to_string().chars().take(12).collect()
}

/// A text of at most so many bytes.
pub(super) fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    format!("{} …", &text[..text.floor_char_boundary(longest)])
}
