//! What our checks said of each iteration, and what was decided.

use askama::Template;
use axum::extract::{Path, State};
use tamma_core::gate::Standing;
use tamma_core::ids::TaskId;
use tamma_core::issue::{Issue, Severity};
use tamma_core::report;
use tamma_core::review::record::Record;
use tamma_core::review::{Criterion, Judgement};
use uuid::Uuid;

use super::super::door::Visitor;
use super::super::shell::{Shell, When};
use super::super::{Hall, Page, words};
use super::{Judged, Known};
use crate::app::{App, Error};

/// How much of a gate's output is shown, in characters: its end.
const TAIL: usize = 20_000;

#[derive(Template)]
#[template(path = "_iterations.html")]
pub(super) struct Iterations {
    shell: Shell,
    iterations: Vec<Iteration>,
}

struct Iteration {
    number: u16,
    verdict: String,
    tone: &'static str,
    tier: String,
    engine: String,
    commit: String,
    at: When,
    cost: String,
    score: String,
    gates: Gates,
    criteria: Criteria,
    validator: String,
    issues: Issues,
    decided: String,
    councils: Vec<Sitting>,
}

struct Gates {
    any: bool,
    words: String,
    list: Vec<Gate>,
}

struct Gate {
    name: String,
    kind: String,
    tone: &'static str,
    standing: &'static str,
    tests: String,
    took: String,
    groups: Vec<Group>,
    baseline: String,
    output: String,
    whole_href: String,
    open: bool,
}

struct Group {
    name: &'static str,
    what: &'static str,
    names: Vec<String>,
}

struct Criteria {
    any: bool,
    list: Vec<Judged>,
}

struct Issues {
    any: bool,
    list: Vec<Found>,
}

struct Found {
    severity: String,
    tone: &'static str,
    place: String,
    message: String,
    category: String,
    old: bool,
}

struct Sitting {
    number: u8,
    members: Vec<Seat>,
    concluded: bool,
    lines: Vec<String>,
}

struct Seat {
    seat: String,
    words: &'static str,
    lines: Vec<String>,
}

pub(in crate::web) async fn page(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
) -> Page {
    super::whole(&hall, &visitor, id, "review").await
}

pub(super) async fn of(app: &App, shell: &Shell, known: &Known) -> Result<Iterations, Error> {
    let id = TaskId(known.whole.card.id);
    let report = app.report(id, None).await?.report;
    let checks = app.store.checks(id).await?;
    let iterations = report
        .iterations
        .iter()
        .rev()
        .map(|it| {
            let output = |gate: &str| {
                checks
                    .iter()
                    .filter(|check| check.iteration == it.number)
                    .find_map(|check| match &check.record {
                        Record::Gates(tested) => {
                            tested.gates.iter().find(|ran| ran.judged.name == gate)
                        }
                        Record::Review(_) => None,
                    })
                    .map(|ran| ran.output.clone())
                    .unwrap_or_default()
            };
            let run = known.whole.runs.iter().find(|run| run.number == u32::from(it.number));
            let councils = report.councils.iter().filter(|council| council.after == it.number);
            Iteration {
                number: it.number,
                verdict: match (it.passed, &it.judged_by) {
                    (Some(true), Some(by)) => format!("accepted by {by}"),
                    (Some(false), Some(by)) => format!("sent back by {by}"),
                    (Some(true), None) => "passed".to_owned(),
                    (Some(false), None) => "failed".to_owned(),
                    (None, _) if it.score.is_some() => "waits for a person's review".to_owned(),
                    (None, _) => "not judged yet".to_owned(),
                },
                tone: match it.passed {
                    Some(true) => "good",
                    Some(false) => "bad",
                    None if it.score.is_some() => "wait",
                    None => "work",
                },
                tier: it.tier.map(|tier| tier.to_string()).unwrap_or_default(),
                engine: run.and_then(|run| run.engine.clone()).unwrap_or_default(),
                commit: it
                    .commit
                    .map(|commit| commit.to_string().chars().take(8).collect())
                    .unwrap_or_default(),
                at: When::clock(it.at.unwrap_or(known.whole.card.since)),
                cost: words::dollars(it.cost.usd),
                score: it.score.map(|score| score.to_string()).unwrap_or_default(),
                gates: gates(it, output),
                criteria: Criteria {
                    any: !it.criteria.is_empty(),
                    list: it.criteria.iter().map(judged).collect(),
                },
                validator: it
                    .validator
                    .as_ref()
                    .map(|validator| format!("judged by {}", validator.agent))
                    .unwrap_or_default(),
                issues: Issues {
                    any: !it.issues.is_empty(),
                    list: it.issues.iter().map(|issue| found_issue(issue, it)).collect(),
                },
                decided: it.decided.clone().unwrap_or_default(),
                councils: councils.map(sitting).collect(),
            }
        })
        .collect();
    Ok(Iterations { shell: shell.clone(), iterations })
}

fn gates(it: &report::Iteration, output: impl Fn(&str) -> String) -> Gates {
    let counts =
        |gate: &report::Gate| matches!(gate.standing, Standing::Failed | Standing::TimedOut);
    let against = it.gates.iter().filter(|gate| counts(gate)).count();
    let list = it
        .gates
        .iter()
        .map(|gate| {
            let names = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect();
            let groups = [
                ("New", "the change broke them", names(&gate.new)),
                ("Missing", "no longer there, or skipped; counts", names(&gate.missing)),
                (
                    "There before",
                    "fail without the change too; do not count",
                    names(&gate.pre_existing),
                ),
                ("Flaky", "gone when run again; do not count", names(&gate.flaky)),
            ];
            let text = output(&gate.name);
            let skip = text.chars().count().saturating_sub(TAIL);
            Gate {
                name: gate.name.clone(),
                kind: gate.kind.to_string(),
                tone: match gate.standing {
                    Standing::Failed | Standing::TimedOut => "bad",
                    Standing::PreExisting | Standing::Flaky => "hold",
                    Standing::Passed => "good",
                },
                standing: standing(gate.standing),
                tests: gate.tests.map(|tests| tests_in_words(&tests)).unwrap_or_default(),
                took: took(gate.millis),
                groups: groups
                    .into_iter()
                    .filter(|(_, _, names): &(_, _, Vec<String>)| !names.is_empty())
                    .map(|(name, what, names)| Group { name, what, names })
                    .collect(),
                baseline: String::new(),
                output: text.chars().skip(skip).collect(),
                whole_href: String::new(),
                open: counts(gate),
            }
        })
        .collect();
    Gates {
        any: !it.gates.is_empty(),
        words: match (against, it.gates.len()) {
            (0, _) => "Nothing counts against the change.".to_owned(),
            (1, 1) => "The gate counts against the change.".to_owned(),
            (1, all) => format!("1 of {all} gates counts against the change."),
            (against, all) => format!("{against} of {all} gates count against the change."),
        },
        list,
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Passed => "passed",
        Standing::PreExisting => "failed before the change too",
        Standing::Flaky => "passed when run again",
        Standing::Failed => "failed",
        Standing::TimedOut => "took too long",
    }
}

fn tests_in_words(tests: &tamma_core::review::record::Tests) -> String {
    format!("{} passed, {} failed, {} skipped", tests.passed, tests.failed, tests.skipped)
}

fn took(millis: u64) -> String {
    if millis < 10_000 { format!("{millis} ms") } else { format!("{} s", millis / 1_000) }
}

/// A criterion with what was said of it.
pub(super) fn judged(criterion: &Criterion) -> Judged {
    let (words, place) = match &criterion.judgement {
        Judgement::Met { evidence, file, line, test } => {
            let place = match (file, line, test) {
                (Some(file), Some(line), _) => format!("{file}:{line}"),
                (Some(file), None, _) => file.clone(),
                (None, _, Some(test)) => test.clone(),
                (None, _, None) => String::new(),
            };
            (evidence.clone(), place)
        }
        Judgement::Unmet { why } => (why.clone(), String::new()),
        Judgement::Unjudged => ("not judged".to_owned(), String::new()),
    };
    let words = match &criterion.doubt {
        Some(doubt) => format!("{words} (does not count: {doubt})"),
        None => words,
    };
    let tone = if criterion.is_met() { "good" } else { "bad" };
    Judged { text: criterion.text.clone(), tone, words, place }
}

fn found_issue(issue: &Issue, it: &report::Iteration) -> Found {
    let place = match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        (None, _) => String::new(),
    };
    Found {
        severity: issue.severity.to_string(),
        tone: if issue.severity >= Severity::Error { "bad" } else { "wait" },
        place,
        message: issue.message.clone(),
        category: issue.category.to_string(),
        old: it.old_faults.iter().any(|fault| fault.contains(&issue.message)),
    }
}

fn sitting(council: &report::Sitting) -> Sitting {
    let seat = |(seat, said): &(String, Option<String>)| Seat {
        seat: seat.clone(),
        words: if said.is_some() { "" } else { "was absent" },
        lines: said.as_deref().map(words::paragraphs).unwrap_or_default(),
    };
    Sitting {
        number: council.number,
        members: council.members.iter().map(seat).collect(),
        concluded: council.conclusion.is_some(),
        lines: council.conclusion.as_deref().map(words::paragraphs).unwrap_or_default(),
    }
}
