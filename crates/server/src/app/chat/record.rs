//! What the record of a task says, with the events that say so.
//!
//! Nothing here is made up: each line is read from the log, the checks and the plan of a task, and
//! the events that it is read from are named, so that whoever doubts it can look.

use chrono::{Datelike as _, Days, NaiveDate, TimeDelta};
use tamma_chat::{Act, Aspect, Change, Context, Decision, Period, Topic, Which};
use tamma_core::actor::Actor;
use tamma_core::cost::Usd;
use tamma_core::ids::TaskId;
use tamma_core::log::{Entry, EntryName as N, Fact};
use tamma_core::report::Iteration;
use tamma_core::review::patch::{self, Row};
use tamma_core::task_loop::{Answer, State, Timestamp};
use tamma_store::{Filter, KnowledgeFilter};

use super::{KNOWN, LISTED, capital, says};
use crate::app::{App, Error, Window};
use crate::clock;
use crate::shape::{Card, ChatReference, Mention, Reply};

/// How many faults of a run are named.
const FAULTS: usize = 3;

impl App {
    pub(super) async fn how_it_stands(&self, task: TaskId) -> Result<Reply, Error> {
        let card = self.card(task).await?;
        let next = card.next_in_words.clone().unwrap_or_else(|| "it has ended".to_owned());
        let state = plain(&card.state);
        let paused = if card.paused { ", paused" } else { "" };
        let attempts = counted(card.iterations.into(), "attempt");
        Ok(Reply {
            lines: vec![
                format!("“{}” is in {state}{paused}: {next}.", card.title),
                format!("{attempts}, {} spent.", card.spend.usd.with_cents()),
            ],
            tasks: vec![mention(&card)],
            references: self.newest(task, 1).await?,
            ..Reply::default()
        })
    }

    pub(super) async fn listed(
        &self,
        which: Which,
        period: Option<Period>,
        search: Option<String>,
    ) -> Result<Reply, Error> {
        let filter = Filter {
            states: states(which),
            paused: (which == Which::Paused).then_some(true),
            text: search,
            ..Filter::default()
        };
        let page = self.tasks(&filter, &Window { after: None, limit: KNOWN }).await?;
        let span = period.map(|period| span(period, clock::now()));
        let inside = |card: &&Card| {
            span.is_none_or(|(from, until)| card.since >= from && card.since < until)
        };
        let stuck = |card: &&Card| which != Which::Stuck || card.failures >= 3;
        let cards: Vec<_> = page.tasks.iter().filter(inside).filter(stuck).cloned().collect();
        Ok(mentions("There is no such task.", &which.to_string().replace('_', " "), &cards))
    }

    pub(super) async fn cost(
        &self,
        task: Option<TaskId>,
        period: Option<Period>,
    ) -> Result<Reply, Error> {
        if let Some(task) = task {
            let card = self.card(task).await?;
            let about = if card.spend.estimated { "about " } else { "" };
            let usd = card.spend.usd.with_cents();
            let attempts = counted(card.iterations.into(), "attempt");
            let tokens = card.spend.tokens;
            let mut lines = vec![format!(
                "“{}” has cost {about}{usd}: {attempts}, {tokens} tokens.",
                card.title
            )];
            let report = self.report(task, None).await?.report;
            for (what, spent) in &report.costs {
                let (usd, runs) = (spent.usd.with_cents(), counted(spent.runs.into(), "run"));
                // Unknown is not nothing.
                lines.push(match spent.unknown {
                    0 => format!("{what}: {usd}, {runs}."),
                    all if all == spent.runs => format!("{what}: not known, {runs}."),
                    some => format!("{what}: {usd}, {runs}; of {some} it is not known."),
                });
            }
            let log = self.whole_log(task).await?;
            let spending = |entry: &&Entry| {
                matches!(entry.data, Fact::Spend(_))
                    || matches!(
                        entry.name,
                        N::SmPlanGenerated | N::SmImplementationCompleted | N::SmReviewStarted
                    )
            };
            let references = cite(log.iter().rev().filter(spending));
            return Ok(Reply {
                lines,
                tasks: vec![mention(&card)],
                references,
                ..Reply::default()
            });
        }
        let now = clock::now();
        let (from, until) = span(period.unwrap_or(Period::ThisMonth), now);
        let days = self.store.spend_by_day(None, from).await?;
        let days = days.into_iter().filter(|day| day.day < until.date_naive() || until > now);
        let spent = days.fold(Usd::ZERO, |sum, day| sum + day.usd);
        let when = period.unwrap_or(Period::ThisMonth).to_string().replace('_', " ");
        Ok(says("", &format!("{} was spent {when}, as far as is known.", spent.with_cents())))
    }

    pub(super) async fn piece(&self, task: TaskId, aspect: Aspect) -> Result<Reply, Error> {
        let card = self.card(task).await?;
        let mut reply = Reply { tasks: vec![mention(&card)], ..Reply::default() };
        match aspect {
            Aspect::Plan if self.machine(task).await?.plan.is_none() => {
                reply.lines.push("There is no plan yet.".to_owned());
            }
            Aspect::Plan => match self.plan(task).await?.content {
                Some(plan) => {
                    reply.lines.push(plan.summary);
                    let files = plan.file_changes.iter().take(LISTED);
                    let file = |it: &tamma_core::plan::FileChange| {
                        format!("{} {}: {}", it.action, it.path, it.description)
                    };
                    reply.lines.extend(files.map(file));
                }
                None => reply.lines.push("There is no plan yet.".to_owned()),
            },
            Aspect::Diff => {
                let log = self.whole_log(task).await?;
                return self.what_changed(&card, &log).await;
            }
            Aspect::Log | Aspect::History => {
                reply.lines.push("The newest events, the latest first:".to_owned());
                reply.references = self.newest(task, 5).await?;
            }
            Aspect::Report => reply = self.what_the_record_says(Some(task), Topic::Whole).await?,
        }
        Ok(reply)
    }

    /// What the record of a task says about what somebody asks.
    pub(super) async fn what_the_record_says(
        &self,
        task: Option<TaskId>,
        about: Topic,
    ) -> Result<Reply, Error> {
        let Some(task) = task else {
            return match about {
                Topic::Knowledge => self.lessons(None).await,
                _ => Ok(says("", "Which task do you mean? I answer from the record of one.")),
            };
        };
        let card = self.card(task).await?;
        let log = self.whole_log(task).await?;
        let reply = match about {
            Topic::Failure => self.what_failed(&card, &log).await?,
            Topic::People => who_decided(&card, &log),
            Topic::Waiting => self.what_it_waits_for(&card, &log).await?,
            Topic::Change => self.what_changed(&card, &log).await?,
            Topic::Risk => self.how_risky(&card, &log).await?,
            Topic::Time => how_long(&card, &log),
            Topic::Council => self.what_the_council_said(&card, &log).await?,
            Topic::Knowledge => self.what_is_known(&card, &log).await?,
            Topic::Consequence => what_can_be_answered(&card, &log),
            Topic::Whole => self.how_it_went(&card, &log).await?,
        };
        Ok(Reply { tasks: vec![mention(&card)], ..reply })
    }

    async fn what_failed(&self, card: &Card, log: &[Entry]) -> Result<Reply, Error> {
        let report = self.report(TaskId(card.id), None).await?.report;
        let failed = report.iterations.iter().filter(|it| it.passed == Some(false));
        let mut lines: Vec<_> = failed.map(run_in_words).collect();
        let telling = of(log, |it| {
            matches!(
                it.name,
                N::SmGatesFailed
                    | N::SmReviewFailed
                    | N::SmImplementationFailed
                    | N::SmPlanInvalid
                    | N::SmDeliveryFailed
                    | N::SmErrorOccurred
                    | N::SmTimeoutAlert
                    | N::SmDecisionMade
                    | N::SmTaskFailed
            )
        });
        // Not every fault is one of a run: a plan can be no plan, an engine can be away.
        let other = telling.iter().filter(|it| {
            matches!(
                it.name,
                N::SmImplementationFailed
                    | N::SmPlanInvalid
                    | N::SmDeliveryFailed
                    | N::SmErrorOccurred
                    | N::SmTaskFailed
            )
        });
        lines.extend(other.take(FAULTS).map(|it| capital(&format!("{}.", event_in_words(it)))));
        if lines.is_empty() {
            let next = card.next_in_words.clone().unwrap_or_else(|| "it has ended".to_owned());
            lines.push(format!("Nothing of “{}” has failed: {next}.", card.title));
        } else if let Some(asked) = report.asked.last() {
            lines.push(format!("Then a person was asked: {}.", asked.in_words));
        }
        Ok(Reply { lines, references: cite(telling), ..Reply::default() })
    }

    async fn what_it_waits_for(&self, card: &Card, log: &[Entry]) -> Result<Reply, Error> {
        let whole = self.task(TaskId(card.id)).await?;
        let mut lines = Vec::new();
        if card.paused {
            lines.push("It is paused, until somebody resumes it.".to_owned());
        }
        if let Some(question) = &whole.question {
            lines.push(format!("It waits for a person: {}.", question.in_words));
            lines.extend(question.asks.as_ref().map(|asks| format!("It asks: {asks}")));
            lines.push(format!("What can be answered: {}.", named(&question.answers)));
            lines.extend(question.seen_by.as_ref().map(|by| format!("{by} has seen it.")));
        } else {
            lines.push(match &card.next_in_words {
                Some(next) => format!("It waits for nobody: {next}."),
                None => format!("It waits for nothing: it is {}.", plain(&card.state)),
            });
        }
        let asked = of(log, |it| {
            matches!(
                it.name,
                N::SmApprovalRequested
                    | N::SmQuestionAsked
                    | N::SmAlertSent
                    | N::SmTaskPaused
                    | N::SmQuotaReached
            )
        });
        Ok(Reply { lines, references: cite(asked.into_iter().take(2)), ..Reply::default() })
    }

    pub(super) async fn what_changed(&self, card: &Card, log: &[Entry]) -> Result<Reply, Error> {
        let id = TaskId(card.id);
        let made = of(log, |it| {
            matches!(
                it.name,
                N::SmImplementationCompleted | N::SmWorkLanded | N::SmDelivered | N::SmPlanAdjusted
            )
        });
        let lines = match self.change(id).await {
            Ok(change) => {
                let commit: String = change.commit.chars().take(8).collect();
                let (mut files, mut more, mut less) = (Vec::new(), 0_u32, 0_u32);
                for row in patch::rows(&change.patch) {
                    match row {
                        Row::File(path) => files.push(path),
                        Row::Added(..) => more += 1,
                        Row::Removed(_) => less += 1,
                        Row::Piece(..) | Row::Kept(..) | Row::Note(_) => {}
                    }
                }
                let count = counted(files.len() as u64, "file");
                let passed = if change.passed { "passed" } else { "did not pass" };
                let first = format!(
                    "Commit {commit} changes {count}, {more} lines more and {less} less; it \
                     {passed} our checks."
                );
                let rest = files.len().saturating_sub(LISTED);
                let rest = (rest > 0).then(|| format!("and {rest} more"));
                let named = files.into_iter().take(LISTED).chain(rest);
                std::iter::once(first).chain(named).collect()
            }
            Err(Error::NotFound { .. }) => match self.plan(id).await {
                Ok(plan) => {
                    let mut lines =
                        vec!["Nothing has been reviewed yet. The plan would:".to_owned()];
                    let files = plan.content.map(|plan| plan.file_changes).unwrap_or_default();
                    let file = |it: &tamma_core::plan::FileChange| {
                        format!("{} {}: {}", it.action, it.path, it.description)
                    };
                    lines.extend(files.iter().take(LISTED).map(file));
                    lines
                }
                Err(Error::NotFound { .. }) => {
                    vec!["Nothing is changed, and there is no plan yet.".to_owned()]
                }
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        let references = cite(made.into_iter().take(3));
        Ok(Reply { lines, tasks: vec![mention(card)], references, ..Reply::default() })
    }

    async fn how_risky(&self, card: &Card, log: &[Entry]) -> Result<Reply, Error> {
        let whole = self.task(TaskId(card.id)).await?;
        let Some(risk) = whole.risk_report else {
            return Ok(says("", "That is not known yet: there is no plan that was checked."));
        };
        let mut lines = vec![format!("Its risk is {}, with {} points.", risk.level, risk.score)];
        let factor = |it: &crate::shape::RiskFactor| {
            capital(&format!("{}: {}.", it.factor.replace('_', " "), it.effect))
        };
        lines.extend(risk.factors.iter().map(factor));
        let met = |count: u16, what: &str| (count > 0).then(|| counted(count.into(), what));
        for met in [met(risk.blockers, "prohibition"), met(risk.warnings, "warning")] {
            lines.extend(met.map(|it| format!("What the team knows: {it}.")));
        }
        let checked = of(log, |it| {
            matches!(it.name, N::SmKnowledgeChecked | N::SmApprovalRequested | N::SmApprovalAuto)
        });
        Ok(Reply { lines, references: cite(checked.into_iter().take(2)), ..Reply::default() })
    }

    async fn what_the_council_said(&self, card: &Card, log: &[Entry]) -> Result<Reply, Error> {
        let report = self.report(TaskId(card.id), None).await?.report;
        let mut lines = Vec::new();
        for sitting in &report.councils {
            for (seat, said) in &sitting.members {
                let said = said.clone().unwrap_or_else(|| "was not there".to_owned());
                lines.push(format!("{seat}: {said}"));
            }
            lines.extend(sitting.conclusion.as_ref().map(|it| format!("It concluded: {it}")));
        }
        if lines.is_empty() {
            lines.push("The council was not asked about it.".to_owned());
        }
        let sat = of(log, |it| {
            matches!(it.name, N::SmCouncilConvened | N::SmCouncilOpinion | N::SmCouncilConcluded)
        });
        Ok(Reply { lines, references: cite(sat), ..Reply::default() })
    }

    async fn what_is_known(&self, card: &Card, log: &[Entry]) -> Result<Reply, Error> {
        let whole = self.task(TaskId(card.id)).await?;
        let line = |it: &crate::shape::KnowledgeMatch| {
            format!("{} ({}): {} Because {}.", it.short, it.role, it.text, it.because.join(", "))
        };
        let mut lines: Vec<_> = whole.knowledge.iter().take(LISTED).map(line).collect();
        if lines.is_empty() {
            lines.push("Nothing that the team knows matched its plan.".to_owned());
        }
        let checked = of(log, |it| {
            matches!(it.name, N::SmKnowledgeChecked | N::SmLearningCaptured | N::SmOverridden)
        });
        Ok(Reply { lines, references: cite(checked.into_iter().take(3)), ..Reply::default() })
    }

    async fn how_it_went(&self, card: &Card, log: &[Entry]) -> Result<Reply, Error> {
        let report = self.report(TaskId(card.id), None).await?.report;
        let mut lines: Vec<_> = report.iterations.iter().map(run_in_words).collect();
        if let Some(asked) = report.asked.last() {
            lines.push(format!("A person was asked: {}.", asked.in_words));
        }
        let next = card.next_in_words.clone().unwrap_or_else(|| "it has ended".to_owned());
        if lines.is_empty() {
            lines.push(format!("No run has been judged yet; {next}."));
        } else {
            lines.push(format!("Now it is in {}: {next}.", plain(&card.state)));
        }
        let telling = of(log, |it| {
            matches!(
                it.name,
                N::SmApprovalGranted
                    | N::SmGatesFailed
                    | N::SmReviewFailed
                    | N::SmReviewPassed
                    | N::SmImplementationFailed
                    | N::SmDecisionMade
                    | N::SmAlertSent
                    | N::SmErrorOccurred
                    | N::SmTaskCompleted
                    | N::SmTaskFailed
                    | N::SmTaskCancelled
            )
        });
        Ok(Reply { lines, references: cite(telling), ..Reply::default() })
    }

    /// The newest events of a task, the newest first.
    async fn newest(&self, task: TaskId, count: u32) -> Result<Vec<ChatReference>, Error> {
        let entries = self.card(task).await?.entries;
        let after = Some(entries.saturating_sub(count.into()).to_string());
        let part = self.history(task, &Window { after, limit: count }).await?;
        Ok(cite(part.entries.iter().rev().map(|line| &line.entry)))
    }

    pub(super) async fn lessons(&self, search: Option<&str>) -> Result<Reply, Error> {
        let found = self.knowledge_list(&KnowledgeFilter::default(), search).await?.entries;
        if found.is_empty() {
            return Ok(says("", "Nothing is known about that."));
        }
        let line = |it: &crate::shape::Knowledge| {
            format!("{} ({}, {}): {}", it.short, it.entry.kind, it.entry.status, it.entry.text)
        };
        Ok(Reply { lines: found.iter().take(LISTED).map(line).collect(), ..Reply::default() })
    }
}

/// The entries of a kind, the newest first.
fn of(log: &[Entry], is: impl Fn(&Entry) -> bool) -> Vec<&Entry> {
    log.iter().rev().filter(|entry| is(entry)).collect()
}

/// Entries as references, the first few.
fn cite<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<ChatReference> {
    let reference = |entry: &Entry| ChatReference {
        task: entry.task.0,
        event: entry.sequence,
        text: event_in_words(entry),
    };
    entries.into_iter().take(LISTED).map(reference).collect()
}

/// An entry as people read it: what happened, by whom, why.
fn event_in_words(entry: &Entry) -> String {
    let name = entry.name.to_string().to_lowercase();
    let name = name.strip_prefix("sm_").unwrap_or(&name).replace('_', " ");
    let by = match &entry.actor {
        Actor::Person(person) => format!(" by {person}"),
        Actor::Council => " by the council".to_owned(),
        Actor::Tamma => String::new(),
    };
    let reason = entry.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{name}{by}{reason}")
}

/// How a run ended, and what was wrong with it.
fn run_in_words(run: &Iteration) -> String {
    let verdict = match run.passed {
        Some(true) => "passed its review",
        Some(false) => "failed its review",
        None => "is not judged yet",
    };
    let gates = run.gates.iter().filter(|gate| !gate.new.is_empty() || !gate.missing.is_empty());
    let gates = gates.map(|gate| {
        let tests: Vec<_> = gate.new.iter().chain(&gate.missing).map(String::as_str).collect();
        format!("{}: {}", gate.name, tests.join(", "))
    });
    let issues = run.issues.iter().map(|issue| match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: {}", issue.message),
        (Some(file), None) => format!("{file}: {}", issue.message),
        _ => issue.message.clone(),
    });
    let mut faults: Vec<_> = gates.chain(issues).collect();
    faults.dedup();
    let more = faults.len().saturating_sub(FAULTS);
    faults.truncate(FAULTS);
    if more > 0 {
        faults.push(format!("{more} more"));
    }
    let because = match &*faults {
        [] => String::new(),
        faults => format!(" ({})", faults.join("; ")),
    };
    let decided = run.decided.as_ref().map(|it| format!(" Then: {it}.")).unwrap_or_default();
    format!("Run {} {verdict}{because}.{decided}", run.number)
}

/// What people have decided, the newest first.
fn who_decided(card: &Card, log: &[Entry]) -> Reply {
    let by_people =
        of(log, |it| matches!(it.actor, Actor::Person(_)) || it.name == N::SmApprovalAuto);
    let line = |it: &&Entry| {
        let at = it.at.format("%Y-%m-%d %H:%M");
        match it.name {
            N::SmApprovalAuto => format!("Its plan was approved by the rules, at {at}."),
            _ => capital(&format!("{}, at {at}.", event_in_words(it).trim_end_matches('.'))),
        }
    };
    let mut lines: Vec<_> = by_people.iter().take(LISTED).map(line).collect();
    if lines.is_empty() {
        lines.push(format!("Nobody has decided anything about “{}” yet.", card.title));
    }
    Reply { lines, references: cite(by_people), ..Reply::default() }
}

/// How long it has taken, and where the time went.
fn how_long(card: &Card, log: &[Entry]) -> Reply {
    let ended = card.state.is_terminal();
    let until = if ended { log.last().map_or(card.updated_at, |it| it.at) } else { clock::now() };
    let took = lasting(until - card.created_at);
    let first = if ended { format!("It took {took}.") } else { format!("It is {took} old.") };
    let moves = of(log, |it| it.from != it.to);
    let mut spent: Vec<(State, TimeDelta)> = Vec::new();
    let mut left = until;
    for entry in &moves {
        let time = left - entry.at;
        match spent.iter_mut().find(|(state, _)| *state == entry.to) {
            Some((_, sum)) => *sum += time,
            None => spent.push((entry.to, time)),
        }
        left = entry.at;
    }
    spent.retain(|(state, _)| !state.is_terminal());
    spent.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let line = |(state, time): &(State, TimeDelta)| {
        capital(&format!("{}: {}.", plain(state), lasting(*time)))
    };
    let lines = std::iter::once(first).chain(spent.iter().take(5).map(line)).collect();
    let ends = moves.first().into_iter().chain(moves.last()).copied();
    Reply { lines, references: cite(ends), ..Reply::default() }
}

/// What can be answered now, and what would come of each.
fn what_can_be_answered(card: &Card, log: &[Entry]) -> Reply {
    let mut lines: Vec<_> =
        card.answers.iter().map(|it| capital(&format!("{}: {}.", plain(it), then(*it)))).collect();
    if lines.is_empty() {
        lines.push("It asks nothing of a person now.".to_owned());
        if !card.state.is_terminal() {
            lines.push("It can be paused, changed or cancelled at any time.".to_owned());
        }
    }
    lines.push("Whatever you want done is shown as the exact command first.".to_owned());
    let asked = of(log, |it| {
        matches!(it.name, N::SmApprovalRequested | N::SmQuestionAsked | N::SmAlertSent)
    });
    Reply { lines, references: cite(asked.into_iter().take(1)), ..Reply::default() }
}

/// What comes of an answer.
fn then(answer: Answer) -> &'static str {
    match answer {
        Answer::Approve => "an engine starts with exactly this plan",
        Answer::Reject => "this plan never runs, and a person says how to go on",
        Answer::AskChanges => "the planner writes another version, which is asked about again",
        Answer::Accept => "exactly this commit is delivered",
        Answer::Rework => "the agent gets your words and runs once more",
        Answer::Override => "the prohibition is lifted for this plan alone, in your name",
        Answer::Reply => "the agent reads your words and goes on",
        Answer::Continue => "it goes on where it stopped",
        Answer::Modify => "what is wanted changes, and it is planned anew",
        Answer::Retry => "what failed is tried once more",
        Answer::RollBack => "it goes back to an earlier state, and on from there",
        Answer::Skip => "the step that failed is left out",
        Answer::Cancel => "it ends; what was done is kept",
        Answer::Abandon => "it is given up, as failed; what was done is kept",
    }
}

/// What is said of a change before it is done.
pub(super) fn proposal(change: &Change, now: &Context) -> Reply {
    let follows = match change {
        Change::Add(_) => "a planner reads the repository and writes a plan".to_owned(),
        Change::Lesson { decision, .. } => match decision {
            Decision::Approve => "plans are held against it from now on".to_owned(),
            Decision::Reject => "it is never used".to_owned(),
            Decision::Retire => "it is not used any more".to_owned(),
        },
        Change::Task { act, .. } => match act {
            Act::Approve { .. } => then(Answer::Approve).to_owned(),
            Act::Reject { .. } => then(Answer::Reject).to_owned(),
            Act::Accept { .. } => then(Answer::Accept).to_owned(),
            Act::Rework { .. } => then(Answer::Rework).to_owned(),
            Act::Override { .. } => then(Answer::Override).to_owned(),
            Act::Modify { .. } => then(Answer::Modify).to_owned(),
            Act::Reply { .. } => then(Answer::Reply).to_owned(),
            Act::Pause => "nothing new is started until somebody resumes it".to_owned(),
            Act::Resume => "it goes on".to_owned(),
            Act::Cancel { .. } => then(Answer::Cancel).to_owned(),
            Act::Retry { .. } => then(Answer::Retry).to_owned(),
            Act::Continue { .. } => then(Answer::Continue).to_owned(),
            Act::RollBack { to, .. } => format!("it goes back to {}", plain(to)),
            Act::Skip { .. } => then(Answer::Skip).to_owned(),
            Act::Abandon { .. } => then(Answer::Abandon).to_owned(),
            Act::Acknowledge => "nobody is reminded of it any more; it still waits".to_owned(),
        },
    };
    let of = match change {
        Change::Task { task, .. } => now.task(*task).map(|it| format!("“{}”: ", it.title)),
        Change::Lesson { lesson, .. } => now.lesson(*lesson).map(|it| format!("“{}”: ", it.text)),
        Change::Add(_) => None,
    };
    let first = capital(&format!("{}{follows}.", of.unwrap_or_default()));
    let lines = vec![first, "Nothing is done before you say yes.".to_owned()];
    Reply { lines, ..Reply::default() }
}

fn named(answers: &[Answer]) -> String {
    answers.iter().map(plain).collect::<Vec<_>>().join(", ")
}

/// A name of the machine as people read it.
fn plain(name: &impl ToString) -> String {
    name.to_string().replace('_', " ")
}

fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn lasting(time: TimeDelta) -> String {
    let seconds = time.num_seconds().max(0);
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

pub(super) fn help() -> Reply {
    let lines = [
        "Ask how a task stands, what waits for you, what failed, what was spent, or why a run failed.",
        "Say what you want done: approve, reject, pause, cancel, retry, answer an agent, or a new task.",
        "What changes something is shown as the exact command first, and done only when you say yes.",
    ];
    Reply { lines: lines.map(str::to_owned).to_vec(), ..Reply::default() }
}

fn mention(card: &Card) -> Mention {
    let words = card.next_in_words.clone();
    let words = words.unwrap_or_else(|| card.state.to_string().replace('_', " "));
    Mention { task: card.id, title: card.title.clone(), words }
}

pub(super) fn mentions(none: &str, what: &str, cards: &[Card]) -> Reply {
    if cards.is_empty() {
        return says("", none);
    }
    let more = match cards.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(", of which the first {LISTED} are here; {more} more are on the board"),
    };
    let end = if cards.len() == 1 { "" } else { "s" };
    let line = format!("{} task{end} ({what}){more}.", cards.len());
    Reply { tasks: cards.iter().take(LISTED).map(mention).collect(), ..says("", &line) }
}

fn states(which: Which) -> Vec<State> {
    use strum::IntoEnumIterator as _;
    let live = || State::iter().filter(|state| !state.is_terminal());
    match which {
        Which::All | Which::Paused => Vec::new(),
        Which::Open | Which::Stuck => live().collect(),
        Which::Running => vec![State::InProgress, State::Testing, State::QualityReview],
        Which::Queued => vec![State::Pending, State::Assigned, State::Validated],
        Which::Planning => vec![State::Planning],
        Which::Review => vec![State::Testing, State::QualityReview],
        Which::Failed => vec![State::Failed],
        Which::Completed => vec![State::Completed],
        Which::Cancelled => vec![State::Cancelled],
    }
}

/// From when to when a time is that people name, in UTC.
fn span(period: Period, now: Timestamp) -> (Timestamp, Timestamp) {
    let today = now.date_naive();
    let start = |day: NaiveDate| day.and_time(chrono::NaiveTime::MIN).and_utc();
    let monday = today - Days::new(today.weekday().num_days_from_monday().into());
    let first = today.with_day(1).unwrap_or(today);
    let later = now + TimeDelta::days(1);
    match period {
        Period::Today => (start(today), later),
        Period::Yesterday => (start(today - Days::new(1)), start(today)),
        Period::ThisWeek => (start(monday), later),
        Period::LastWeek => (start(monday - Days::new(7)), start(monday)),
        Period::ThisMonth => (start(first), later),
        Period::LastMonth => {
            let last = first - Days::new(1);
            (start(last.with_day(1).unwrap_or(last)), start(first))
        }
    }
}
