//! What the agents of a task say and do.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use tamma_core::ids::TaskId;
use tamma_store::{LineKind, LinePlace, Wanted};
use uuid::Uuid;

use super::super::door::Visitor;
use super::super::shell::{Choice, Shell, When};
use super::super::{Hall, Oops, Page, render, words};
use super::{Around, live, task_page};
use crate::app::{Error, which};
use crate::shape;

/// How many lines are shown: the newest ones.
const LINES: u32 = 500;

/// What is shown unless everything is asked for.
const USUAL: [LineKind; 7] = [
    LineKind::Said,
    LineKind::Tool,
    LineKind::Plan,
    LineKind::Progress,
    LineKind::Asked,
    LineKind::Refused,
    LineKind::Note,
];

task_page!(LogPage, "task_log.html", {
    runs: Vec<Choice>, kinds: Vec<Choice>, run_list: Vec<Run>, log: Log,
});

struct Run {
    run: String,
    mode: String,
    agent: String,
    model: String,
    words: String,
    cost: String,
    transcript_href: String,
}

struct Log {
    before_href: String,
    lines: Vec<Line>,
    end: String,
}

/// One line.
pub(in crate::web) struct Line {
    pub(in crate::web) anchor: String,
    pub(in crate::web) kind: String,
    pub(in crate::web) kind_words: &'static str,
    pub(in crate::web) at: When,
    pub(in crate::web) text: String,
}

impl Line {
    pub(in crate::web) fn new(line: &shape::RunLine) -> Self {
        Self {
            anchor: line.place.replace('.', "-"),
            kind: super::super::board::word(&line.kind),
            kind_words: match line.kind {
                LineKind::Said => "says",
                LineKind::Thought => "thinks",
                LineKind::Tool => "does",
                LineKind::Plan => "plans",
                LineKind::Progress => "progress",
                LineKind::Asked => "asks",
                LineKind::Refused => "refused",
                LineKind::ModelCall => "model",
                LineKind::Note => "note",
            },
            at: When::clock(line.at),
            text: line.text.clone(),
        }
    }
}

/// Which lines are wanted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct Asked {
    run: String,
    kinds: String,
}

impl Asked {
    pub(in crate::web) fn wanted(&self) -> Result<Wanted, Error> {
        let (ticket, attempt) = match self.run.as_str() {
            "" => (None, None),
            run => {
                let (ticket, attempt) = which(run)?;
                (Some(ticket), attempt)
            }
        };
        let kinds = if self.kinds == "all" { Vec::new() } else { USUAL.to_vec() };
        Ok(Wanted { ticket, attempt, kinds })
    }
}

pub(in crate::web) async fn page(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    Query(asked): Query<Asked>,
) -> Page {
    let (mut around, known) = Around::of(&hall, &visitor, id, "log").await?;
    let lines = async {
        let wanted = asked.wanted()?;
        // To the end, of which the newest are kept.
        let mut lines = Vec::new();
        let mut after = LinePlace::START;
        loop {
            let part = hall.app.lines(TaskId(id), &wanted, after, LINES).await?;
            lines.extend(part.lines);
            match part.next {
                Some(next) => after = hall.app.place(TaskId(id), Some(&next)).await?,
                None => return Ok::<_, Error>(lines),
            }
        }
    };
    let lines = lines.await.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let last = lines.last().and_then(|line| line.place.parse().ok()).unwrap_or(LinePlace::START);
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("run", &asked.run)
        .append_pair("kinds", &asked.kinds)
        .finish();
    around.live = format!("{}&{query}", live(id, "log", known.whole.card.entries, last));
    let skip = lines.len().saturating_sub(LINES as usize);
    let end = match (known.whole.run.is_some(), skip) {
        (true, _) => "A run is under way.".to_owned(),
        (false, 0) => "No run is under way.".to_owned(),
        (false, skip) => format!(
            "No run is under way. {} earlier are not shown.",
            words::counted(skip as u64, "line")
        ),
    };
    let runs =
        std::iter::once(Choice::new("", "all", &asked.run))
            .chain(
                known.runs.iter().rev().map(|run| {
                    Choice::new(&run.run, format!("{}, {}", run.run, run.mode), &asked.run)
                }),
            )
            .collect();
    let kinds = vec![
        Choice::new("", "what it says and does", &asked.kinds),
        Choice::new("all", "all, with thoughts and model calls", &asked.kinds),
    ];
    let log = Log {
        before_href: String::new(),
        lines: lines.iter().skip(skip).map(Line::new).collect(),
        end,
    };
    let run_list = known.runs.iter().rev().map(|run| listed(id, run)).collect();
    render(&LogPage::new(around, runs, kinds, run_list, log))
}

fn listed(task: Uuid, run: &shape::Run) -> Run {
    let words = match (run.end, run.ended_at) {
        (Some(end), Some(at)) => {
            let reason = run.reason.as_ref().map(|reason| format!(": {reason}"));
            let took = words::lasting(at - run.started_at);
            format!("{} after {took}{}", words::plain(&end), reason.unwrap_or_default())
        }
        _ => format!("since {}", words::moment(run.started_at, crate::clock::now())),
    };
    let usd = run.usage.and_then(|usage| usage.usd);
    Run {
        run: run.run.clone(),
        mode: run.mode.clone(),
        agent: run.agent.clone(),
        model: run.model.clone().unwrap_or_default(),
        words,
        cost: usd.map_or_else(|| "unknown".to_owned(), words::dollars),
        transcript_href: if run.transcript {
            format!("/api/v1/tasks/{task}/runs/{}/transcript", run.run)
        } else {
            String::new()
        },
    }
}
