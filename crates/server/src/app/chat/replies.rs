//! Chat replies, with references to the history entries they are based on.
//!
//! Every line comes from the history, the checks or the plan of a task. A model can only add a
//! sentence to general talk.

use chrono::{Datelike as _, Days, NaiveDate, TimeDelta};
use tamma_chat::{Aspect, Period, TaskSelection, Topic};
use tamma_core::actor::Actor;
use tamma_core::cost::Usd;
use tamma_core::format::{capitalize, format_duration, format_usd, humanize, pluralize};
use tamma_core::history::{EntryData, EntryName as N, HistoryEntry};
use tamma_core::ids::TaskId;
use tamma_core::plan::FileChange;
use tamma_core::report::IterationReport;
use tamma_core::review::patch::{self, PatchLine};
use tamma_core::task_loop::{AnswerKind, State, Timestamp};
use tamma_store::{KnowledgeFilter, TaskFilter};

use super::{MAX_LISTED, MAX_SUBJECTS, single_line_reply};
use crate::app::{App, Error, PageRequest, Principal, preview_answer};
use crate::clock;
use crate::dto::{ChatReference, ChatReply, TaskCard, TaskMention};

/// Maximum number of failures listed per iteration.
const MAX_FAILURES: usize = 3;

impl App {
    pub(super) async fn status_reply(&self, task: TaskId) -> Result<ChatReply, Error> {
        let card = self.task_card(task).await?;
        let next = next_step_text(&card);
        let state = humanize(&card.state);
        let paused = if card.paused { ", paused" } else { "" };
        let attempts = pluralize(card.iterations, "attempt");
        Ok(ChatReply {
            lines: vec![
                format!("“{}”: {state}{paused}. Next: {next}.", card.title),
                format!("{attempts}, cost {}.", card.spend),
            ],
            tasks: vec![task_mention(&card)],
            references: self.newest_references(task, 1).await?,
            ..ChatReply::default()
        })
    }

    pub(super) async fn task_list_reply(
        &self,
        selection: TaskSelection,
        period: Option<Period>,
        search: Option<String>,
    ) -> Result<ChatReply, Error> {
        let filter = TaskFilter {
            states: states_of(selection),
            paused: (selection == TaskSelection::Paused).then_some(true),
            text: search,
            ..TaskFilter::default()
        };
        let page =
            self.list_tasks(&filter, &PageRequest { after: None, limit: MAX_SUBJECTS }).await?;
        let span = period.map(|period| period_bounds(period, clock::now()));
        let inside = |card: &&TaskCard| {
            span.is_none_or(|(from, until)| card.since >= from && card.since < until)
        };
        let stuck = |card: &&TaskCard| selection != TaskSelection::Stuck || card.failures >= 3;
        let cards: Vec<_> = page.tasks.iter().filter(inside).filter(stuck).cloned().collect();
        Ok(task_mentions_reply("No matching tasks.", &humanize(&selection), &cards))
    }

    pub(super) async fn cost_reply(
        &self,
        task: Option<TaskId>,
        period: Option<Period>,
    ) -> Result<ChatReply, Error> {
        if let Some(task) = task {
            let card = self.task_card(task).await?;
            let attempts = pluralize(card.iterations, "attempt");
            let (spend, tokens) = (&card.spend, card.spend.tokens);
            let mut lines =
                vec![format!("“{}” has cost {spend}: {attempts}, {tokens} tokens.", card.title)];
            let report = self.report(task, None).await?.report;
            for (what, spent) in &report.costs {
                let (usd, runs) = (format_usd(spent.usd), pluralize(spent.runs, "run"));
                // An unknown cost is not zero.
                lines.push(match spent.unknown_runs {
                    0 => format!("{what}: {usd}, {runs}."),
                    all if all == spent.runs => format!("{what}: unknown, {runs}."),
                    some => format!("{what}: {usd}, {runs}; cost of {some} unknown."),
                });
            }
            let log = self.full_history(task).await?;
            let spending = |entry: &&HistoryEntry| {
                matches!(entry.data, EntryData::Spend(_))
                    || matches!(
                        entry.name,
                        N::SmPlanGenerated | N::SmImplementationCompleted | N::SmReviewStarted
                    )
            };
            let references = to_references(log.iter().rev().filter(spending));
            return Ok(ChatReply {
                lines,
                tasks: vec![task_mention(&card)],
                references,
                ..ChatReply::default()
            });
        }
        let now = clock::now();
        let (from, until) = period_bounds(period.unwrap_or(Period::ThisMonth), now);
        let days = self.store.spend_by_day(None, from).await?;
        let days = days.into_iter().filter(|day| day.day < until.date_naive() || until > now);
        let spent = days.fold(Usd::ZERO, |sum, day| sum + day.usd);
        let when = humanize(&period.unwrap_or(Period::ThisMonth));
        Ok(single_line_reply(
            "",
            &format!("{} spent {when}, unknown costs excluded.", format_usd(spent)),
        ))
    }

    pub(super) async fn show_reply(
        &self,
        by: &Principal,
        task: TaskId,
        aspect: Aspect,
    ) -> Result<ChatReply, Error> {
        let card = self.task_card(task).await?;
        let mut reply = ChatReply { tasks: vec![task_mention(&card)], ..ChatReply::default() };
        match aspect {
            Aspect::Plan if self.task_loop(task).await?.plan.is_none() => {
                reply.lines.push("No plan yet.".to_owned());
            }
            Aspect::Plan => match self.current_plan(task).await?.content {
                Some(plan) => {
                    reply.lines.push(plan.summary);
                    let files = plan.file_changes.iter().take(MAX_LISTED);
                    reply.lines.extend(files.map(describe_file_change));
                }
                None => reply.lines.push("No plan yet.".to_owned()),
            },
            Aspect::Diff => {
                let log = self.full_history(task).await?;
                return self.change_reply(&card, &log).await;
            }
            Aspect::Log | Aspect::History => {
                reply.lines.push("Latest history entries, newest first:".to_owned());
                reply.references = self.newest_references(task, 5).await?;
            }
            Aspect::Report => reply = self.topic_reply(by, Some(task), Topic::Overview).await?,
        }
        Ok(reply)
    }

    /// Answers a question about a task from its history.
    pub(super) async fn topic_reply(
        &self,
        by: &Principal,
        task: Option<TaskId>,
        topic: Topic,
    ) -> Result<ChatReply, Error> {
        let Some(task) = task else {
            return match topic {
                Topic::Knowledge => self.lessons_reply(None).await,
                _ => Ok(single_line_reply("", "Which task do you mean? Answers cover one task.")),
            };
        };
        let card = self.task_card(task).await?;
        let log = self.full_history(task).await?;
        let reply = match topic {
            Topic::Failure => self.failure_reply(&card, &log).await?,
            Topic::People => decisions_reply(&card, &log),
            Topic::Waiting => self.waiting_reply(&card, &log).await?,
            Topic::Change => self.change_reply(&card, &log).await?,
            Topic::Risk => self.risk_reply(&card, &log).await?,
            Topic::Time => duration_reply(&card, &log),
            Topic::Council => self.council_reply(&card, &log).await?,
            Topic::Knowledge => self.knowledge_reply(&card, &log).await?,
            Topic::Consequence => Box::pin(self.options_reply(by, &card, &log)).await?,
            Topic::Overview => self.summary_reply(&card, &log).await?,
        };
        Ok(ChatReply { tasks: vec![task_mention(&card)], ..reply })
    }

    /// Lists the possible answers, each with its consequence.
    async fn options_reply(
        &self,
        by: &Principal,
        card: &TaskCard,
        log: &[HistoryEntry],
    ) -> Result<ChatReply, Error> {
        let task_loop = self.task_loop(TaskId(card.id)).await?;
        // Without its rules, no consequence can be computed.
        let rules = self.task_rules(&task_loop).await.ok();
        let line = |answer: &AnswerKind| {
            let consequence = rules.as_ref().map(|rules| {
                format!(": {}", preview_answer(&task_loop, rules, by, *answer, clock::now()))
            });
            let consequence = consequence.unwrap_or_else(|| ".".to_owned());
            capitalize(&format!("{}{consequence}", answer.label()))
        };
        let mut lines: Vec<_> = card.answers.iter().map(line).collect();
        if lines.is_empty() {
            lines.push("The task does not need a decision now.".to_owned());
            if !card.state.is_terminal() {
                lines.push("You can pause, change or cancel it at any time.".to_owned());
            }
        }
        lines.push("Tamma shows the exact command before it changes anything.".to_owned());
        let relevant = newest_matching(log, |it| {
            matches!(it.name, N::SmApprovalRequested | N::SmQuestionAsked | N::SmAlertSent)
        });
        Ok(ChatReply {
            lines,
            references: to_references(relevant.into_iter().take(1)),
            ..ChatReply::default()
        })
    }

    async fn failure_reply(
        &self,
        card: &TaskCard,
        log: &[HistoryEntry],
    ) -> Result<ChatReply, Error> {
        let report = self.report(TaskId(card.id), None).await?.report;
        let failed = report.iterations.iter().filter(|it| it.passed == Some(false));
        let mut lines: Vec<_> = failed.map(describe_iteration).collect();
        let relevant = newest_matching(log, |it| {
            matches!(
                it.name,
                N::SmGatesFailed
                    | N::SmReviewFailed
                    | N::SmImplementationFailed
                    | N::SmPlanInvalid
                    | N::SmPlanDisputed
                    | N::SmDeliveryFailed
                    | N::SmErrorOccurred
                    | N::SmTimeoutAlert
                    | N::SmDecisionMade
                    | N::SmTaskFailed
            )
        });
        // Failures outside reviews, such as invalid plans and unavailable agents.
        let other = relevant.iter().filter(|it| {
            matches!(
                it.name,
                N::SmImplementationFailed
                    | N::SmPlanInvalid
                    | N::SmPlanDisputed
                    | N::SmDeliveryFailed
                    | N::SmErrorOccurred
                    | N::SmTaskFailed
            )
        });
        lines.extend(
            other.take(MAX_FAILURES).map(|it| capitalize(&format!("{}.", describe_entry(it)))),
        );
        if lines.is_empty() {
            let next = next_step_text(card);
            lines.push(format!("Nothing has failed in “{}”. Next: {next}.", card.title));
        } else if let Some(request) = report.decision_requests.last() {
            lines.push(format!("Then Tamma asked a person: {}.", request.description));
        }
        Ok(ChatReply { lines, references: to_references(relevant), ..ChatReply::default() })
    }

    async fn waiting_reply(
        &self,
        card: &TaskCard,
        log: &[HistoryEntry],
    ) -> Result<ChatReply, Error> {
        let detail = self.task_detail(TaskId(card.id)).await?;
        let mut lines = Vec::new();
        if card.paused {
            lines.push("The task is paused until someone resumes it.".to_owned());
        }
        if let Some(question) = &detail.question {
            lines.push(format!("Waiting on a person: {}.", question.cause_text));
            lines.extend(question.agent_question.as_ref().map(|text| format!("Question: {text}")));
            lines.push(format!("Possible answers: {}.", join_answers(&question.answers)));
            lines.extend(question.seen_by.as_ref().map(|by| format!("Seen by {by}.")));
        } else {
            lines.push(match &card.next_text {
                Some(next) => format!("Not waiting on a person. Next: {next}."),
                None => format!("Not waiting: the task is {}.", humanize(&card.state)),
            });
        }
        let relevant = newest_matching(log, |it| {
            matches!(
                it.name,
                N::SmApprovalRequested
                    | N::SmQuestionAsked
                    | N::SmAlertSent
                    | N::SmTaskPaused
                    | N::SmQuotaReached
            )
        });
        Ok(ChatReply {
            lines,
            references: to_references(relevant.into_iter().take(2)),
            ..ChatReply::default()
        })
    }

    pub(super) async fn change_reply(
        &self,
        card: &TaskCard,
        log: &[HistoryEntry],
    ) -> Result<ChatReply, Error> {
        let id = TaskId(card.id);
        let relevant = newest_matching(log, |it| {
            matches!(
                it.name,
                N::SmImplementationCompleted | N::SmWorkLanded | N::SmDelivered | N::SmPlanAdjusted
            )
        });
        let lines = match self.latest_change(id).await {
            Ok(change) => {
                let commit: String = change.commit.chars().take(8).collect();
                let (mut files, mut added, mut removed) = (Vec::new(), 0_u32, 0_u32);
                for row in patch::lines(&change.patch) {
                    match row {
                        PatchLine::File(path) => files.push(path),
                        PatchLine::Added(..) => added += 1,
                        PatchLine::Removed(_) => removed += 1,
                        PatchLine::Hunk(..) | PatchLine::Context(..) | PatchLine::Header(_) => {}
                    }
                }
                let count = pluralize(files.len(), "file");
                let passed = if change.passed { "passed" } else { "did not pass" };
                let first = format!(
                    "Commit {commit} changes {count} ({added} added and {removed} removed lines) and \
                     {passed} review.{}",
                    if change.is_truncated {
                        " The patch is truncated, so these counts are too low."
                    } else {
                        ""
                    }
                );
                let rest = files.len().saturating_sub(MAX_LISTED);
                let rest = (rest > 0).then(|| format!("and {rest} more"));
                let named = files.into_iter().take(MAX_LISTED).chain(rest);
                std::iter::once(first).chain(named).collect()
            }
            Err(Error::NotFound { .. }) => match self.current_plan(id).await {
                Ok(plan) => {
                    let mut lines = vec!["No reviewed change yet. The plan:".to_owned()];
                    let files = plan.content.map(|plan| plan.file_changes).unwrap_or_default();
                    lines.extend(files.iter().take(MAX_LISTED).map(describe_file_change));
                    lines
                }
                Err(Error::NotFound { .. }) => {
                    vec!["No reviewed change and no plan yet.".to_owned()]
                }
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        let references = to_references(relevant.into_iter().take(3));
        Ok(ChatReply { lines, tasks: vec![task_mention(card)], references, ..ChatReply::default() })
    }

    async fn risk_reply(&self, card: &TaskCard, log: &[HistoryEntry]) -> Result<ChatReply, Error> {
        let detail = self.task_detail(TaskId(card.id)).await?;
        let Some(risk) = detail.risk_report else {
            return Ok(single_line_reply("", "Not known yet: no plan has been checked."));
        };
        let mut lines = vec![format!("Risk: {} (score {}).", risk.level, risk.score)];
        let factor = |it: &crate::dto::RiskFactor| {
            capitalize(&format!("{}: {}.", humanize(&it.factor), it.effect))
        };
        lines.extend(risk.factors.iter().map(factor));
        let matches = |count: u16, what: &str| (count > 0).then(|| pluralize(count, what));
        for matches in [matches(risk.blockers, "prohibition"), matches(risk.warnings, "warning")] {
            lines.extend(matches.map(|it| format!("Knowledge check: {it}.")));
        }
        let relevant = newest_matching(log, |it| {
            matches!(it.name, N::SmKnowledgeChecked | N::SmApprovalRequested | N::SmApprovalAuto)
        });
        Ok(ChatReply {
            lines,
            references: to_references(relevant.into_iter().take(2)),
            ..ChatReply::default()
        })
    }

    async fn council_reply(
        &self,
        card: &TaskCard,
        log: &[HistoryEntry],
    ) -> Result<ChatReply, Error> {
        let report = self.report(TaskId(card.id), None).await?.report;
        let mut lines = Vec::new();
        for council in &report.councils {
            for (member, opinion) in &council.members {
                let opinion = opinion.clone().unwrap_or_else(|| "absent".to_owned());
                lines.push(format!("{member}: {opinion}"));
            }
            lines.extend(council.conclusion.as_ref().map(|it| format!("Conclusion: {it}")));
        }
        if lines.is_empty() {
            lines.push("No council was convened for this task.".to_owned());
        }
        let relevant = newest_matching(log, |it| {
            matches!(it.name, N::SmCouncilConvened | N::SmCouncilOpinion | N::SmCouncilConcluded)
        });
        Ok(ChatReply { lines, references: to_references(relevant), ..ChatReply::default() })
    }

    async fn knowledge_reply(
        &self,
        card: &TaskCard,
        log: &[HistoryEntry],
    ) -> Result<ChatReply, Error> {
        let detail = self.task_detail(TaskId(card.id)).await?;
        let line = |it: &crate::dto::KnowledgeMatch| {
            format!(
                "{} ({}): {} Reason: {}.",
                it.short,
                it.role,
                it.text,
                it.reason_texts.join(", ")
            )
        };
        let mut lines: Vec<_> = detail.knowledge.iter().take(MAX_LISTED).map(line).collect();
        if lines.is_empty() {
            lines.push("No knowledge entries match the plan.".to_owned());
        }
        let relevant = newest_matching(log, |it| {
            matches!(it.name, N::SmKnowledgeChecked | N::SmLearningCaptured | N::SmOverridden)
        });
        Ok(ChatReply {
            lines,
            references: to_references(relevant.into_iter().take(3)),
            ..ChatReply::default()
        })
    }

    async fn summary_reply(
        &self,
        card: &TaskCard,
        log: &[HistoryEntry],
    ) -> Result<ChatReply, Error> {
        let report = self.report(TaskId(card.id), None).await?.report;
        let mut lines: Vec<_> = report.iterations.iter().map(describe_iteration).collect();
        if let Some(request) = report.decision_requests.last() {
            lines.push(format!("Tamma asked a person: {}.", request.description));
        }
        let next = next_step_text(card);
        if lines.is_empty() {
            lines.push(format!("No reviews yet. Next: {next}."));
        } else {
            lines.push(format!("Current state: {}. Next: {next}.", humanize(&card.state)));
        }
        let relevant = newest_matching(log, |it| {
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
        Ok(ChatReply { lines, references: to_references(relevant), ..ChatReply::default() })
    }

    /// Returns references to the newest history entries, newest first.
    async fn newest_references(
        &self,
        task: TaskId,
        count: u32,
    ) -> Result<Vec<ChatReference>, Error> {
        let entries = self.task_card(task).await?.entries;
        let after = Some(entries.saturating_sub(count.into()).to_string());
        let part = self.history_page(task, &PageRequest { after, limit: count }).await?;
        Ok(to_references(part.entries.iter().rev().map(|line| &line.entry)))
    }

    pub(super) async fn lessons_reply(&self, search: Option<&str>) -> Result<ChatReply, Error> {
        let entries = self.list_knowledge(&KnowledgeFilter::default(), search).await?.entries;
        if entries.is_empty() {
            return Ok(single_line_reply("", "No matching knowledge entries."));
        }
        let line = |it: &crate::dto::KnowledgeEntryDetail| {
            format!("{} ({}, {}): {}", it.short, it.entry.kind, it.entry.status, it.entry.text)
        };
        Ok(ChatReply {
            lines: entries.iter().take(MAX_LISTED).map(line).collect(),
            ..ChatReply::default()
        })
    }
}

/// Returns the matching entries, newest first.
fn newest_matching(log: &[HistoryEntry], is: impl Fn(&HistoryEntry) -> bool) -> Vec<&HistoryEntry> {
    log.iter().rev().filter(|entry| is(entry)).collect()
}

/// Converts the first entries to references.
fn to_references<'a>(entries: impl IntoIterator<Item = &'a HistoryEntry>) -> Vec<ChatReference> {
    let reference = |entry: &HistoryEntry| ChatReference {
        task: entry.task.0,
        event: entry.sequence,
        text: describe_entry(entry),
    };
    entries.into_iter().take(MAX_LISTED).map(reference).collect()
}

/// Formats an entry with its actor and reason.
fn describe_entry(entry: &HistoryEntry) -> String {
    let name = entry.name.label();
    let by = match &entry.actor {
        Actor::Person(person) => format!(" by {person}"),
        Actor::Council => " by the council".to_owned(),
        Actor::Tamma => String::new(),
    };
    let reason = entry.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{name}{by}{reason}")
}

/// Formats the review result of an iteration with its first failures.
fn describe_iteration(run: &IterationReport) -> String {
    let verdict = match run.passed {
        Some(true) => "passed review",
        Some(false) => "failed review",
        None => "is not reviewed yet",
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
    let mut failures: Vec<_> = gates.chain(issues).collect();
    failures.dedup();
    let more = failures.len().saturating_sub(MAX_FAILURES);
    failures.truncate(MAX_FAILURES);
    if more > 0 {
        failures.push(format!("{more} more"));
    }
    let reasons = match &*failures {
        [] => String::new(),
        failures => format!(" ({})", failures.join("; ")),
    };
    let decided =
        run.decision_text.as_ref().map(|it| format!(" Decision: {it}.")).unwrap_or_default();
    format!("Attempt {} {verdict}{reasons}.{decided}", run.number)
}

/// Lists decisions of people and automatic approvals, newest first.
fn decisions_reply(card: &TaskCard, log: &[HistoryEntry]) -> ChatReply {
    let by_people = newest_matching(log, |it| {
        matches!(it.actor, Actor::Person(_)) || it.name == N::SmApprovalAuto
    });
    let line = |it: &&HistoryEntry| {
        let at = it.at.format("%Y-%m-%d %H:%M UTC");
        match it.name {
            N::SmApprovalAuto => format!("Plan approved automatically at {at}."),
            _ => capitalize(&format!("{} at {at}.", describe_entry(it).trim_end_matches('.'))),
        }
    };
    let mut lines: Vec<_> = by_people.iter().take(MAX_LISTED).map(line).collect();
    if lines.is_empty() {
        lines.push(format!("No decisions about “{}” yet.", card.title));
    }
    ChatReply { lines, references: to_references(by_people), ..ChatReply::default() }
}

/// Reports the age of a task and the time spent in each state.
fn duration_reply(card: &TaskCard, log: &[HistoryEntry]) -> ChatReply {
    let ended = card.state.is_terminal();
    let until = if ended { log.last().map_or(card.updated_at, |it| it.at) } else { clock::now() };
    let duration = format_duration(until - card.created_at);
    let first =
        if ended { format!("Total time: {duration}.") } else { format!("Open for {duration}.") };
    let transitions = newest_matching(log, |it| it.from != it.to);
    let mut spent: Vec<(State, TimeDelta)> = Vec::new();
    let mut end = until;
    for entry in &transitions {
        let time = end - entry.at;
        match spent.iter_mut().find(|(state, _)| *state == entry.to) {
            Some((_, sum)) => *sum += time,
            None => spent.push((entry.to, time)),
        }
        end = entry.at;
    }
    spent.retain(|(state, _)| !state.is_terminal());
    spent.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let line = |(state, time): &(State, TimeDelta)| {
        capitalize(&format!("{}: {}.", humanize(state), format_duration(*time)))
    };
    let lines = std::iter::once(first).chain(spent.iter().take(5).map(line)).collect();
    let ends = transitions.first().into_iter().chain(transitions.last()).copied();
    ChatReply { lines, references: to_references(ends), ..ChatReply::default() }
}

fn next_step_text(card: &TaskCard) -> String {
    card.next_text.clone().unwrap_or_else(|| "nothing, the task is closed".to_owned())
}

pub(super) fn describe_file_change(change: &FileChange) -> String {
    format!("{} {}: {}", change.action, change.path, change.description)
}

fn join_answers(answers: &[AnswerKind]) -> String {
    answers.iter().map(|answer| answer.label()).collect::<Vec<_>>().join(", ")
}

pub(super) fn help_reply() -> ChatReply {
    let lines = [
        "Ask about the status, failures or cost of a task, or what needs your attention.",
        "Request an action: approve, reject, pause, cancel, retry, reply to an agent, ask the council, rate a closed task, or add a task.",
        "Run the pipeline of a story, ask for its status by its ID, or answer at its gate.",
        "Tamma shows the exact command before any change, and runs it only after you say yes.",
    ];
    ChatReply { lines: lines.map(str::to_owned).to_vec(), ..ChatReply::default() }
}

pub(super) fn task_mention(card: &TaskCard) -> TaskMention {
    let status_text = card.next_text.clone();
    let status_text = status_text.unwrap_or_else(|| humanize(&card.state));
    TaskMention { task: card.id, title: card.title.clone(), status_text }
}

pub(super) fn task_mentions_reply(none: &str, what: &str, cards: &[TaskCard]) -> ChatReply {
    if cards.is_empty() {
        return single_line_reply("", none);
    }
    let more = match cards.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!("; showing {MAX_LISTED}, {more} more on the board"),
    };
    let line = format!("{} ({what}){more}.", pluralize(cards.len(), "task"));
    ChatReply {
        tasks: cards.iter().take(MAX_LISTED).map(task_mention).collect(),
        ..single_line_reply("", &line)
    }
}

fn states_of(selection: TaskSelection) -> Vec<State> {
    use strum::IntoEnumIterator as _;
    let live = || State::iter().filter(|state| !state.is_terminal());
    match selection {
        TaskSelection::All | TaskSelection::Paused => Vec::new(),
        TaskSelection::Open | TaskSelection::Stuck => live().collect(),
        TaskSelection::Running => vec![State::InProgress, State::Testing, State::QualityReview],
        TaskSelection::Queued => vec![State::Pending, State::Assigned, State::Validated],
        TaskSelection::Planning => vec![State::Planning],
        TaskSelection::Review => vec![State::Testing, State::QualityReview],
        TaskSelection::Failed => vec![State::Failed],
        TaskSelection::Completed => vec![State::Completed],
        TaskSelection::Cancelled => vec![State::Cancelled],
    }
}

/// Returns the start and end of a named period, in UTC.
fn period_bounds(period: Period, now: Timestamp) -> (Timestamp, Timestamp) {
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
