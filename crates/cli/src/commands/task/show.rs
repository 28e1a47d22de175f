//! `tamma task show`: formats a task and its plan for the terminal.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use chrono::{DateTime, FixedOffset, Utc};
use tamma_core::plan::criterion_id;
use tamma_core::task_loop::{AnswerKind, State};
use tamma_server::dto::{
    AftercareView, IterationOutcome, IterationSummary, MaintenanceStatus, PlanVersion,
    PullRequestView, RiskReport, RunDetail, RunList, StateTime, TaskCard, TaskDetail,
};

use super::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs};
use crate::commands::knowledge::show::format_matches;
use crate::output::{self, pluralize, sanitize};
use crate::style::{
    self, FAINT, STRONG, format_ago, format_duration, format_spend, humanize, paint, styled,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    /// Show the complete plan too
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.resolve_task(&arguments.id).await?;
        let mut detail: TaskDetail = client.get(&format!("/tasks/{id}"), &[]).await?;
        let waits = detail.card.answers.contains(&AnswerKind::Approve);
        if (arguments.plan || waits) && detail.plan.is_some() {
            detail.plan = Some(client.get(&format!("/tasks/{id}/plan"), &[]).await?);
        }
        if arguments.target.json {
            output::print_json(&detail)?;
        } else {
            let RunList { runs } = client.get(&format!("/tasks/{id}/runs"), &[]).await?;
            writeln!(
                anstream::stdout().lock(),
                "{}",
                format_task(&detail, &runs, (style::now(), style::local_offset()))
            )?;
            // Servers of an older version do not know maintenance.
            let status = client.get::<MaintenanceStatus>("/maintenance", &[]).await;
            let maintenance = status.ok().and_then(|it| it.maintenance);
            if let Some(it) = maintenance.filter(|_| !detail.card.state.is_terminal()) {
                let reason = sanitize(&it.reason);
                let mut out = anstream::stdout().lock();
                writeln!(out, "\nMaintenance: no agents start until it ends ({reason})")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the command that gives an answer, without its arguments.
pub(crate) fn answer_command(answer: AnswerKind) -> &'static str {
    match answer {
        AnswerKind::Approve => "approve",
        AnswerKind::Reject => "reject",
        AnswerKind::RevisePlan => "revise-plan",
        AnswerKind::Override => "answer override",
        AnswerKind::Accept => "accept",
        AnswerKind::RequestChanges => "answer request-changes",
        AnswerKind::Reply => "reply",
        AnswerKind::Continue => "answer continue",
        AnswerKind::ChangeTask => "change-task",
        AnswerKind::Retry => "retry",
        AnswerKind::RollBack => "answer roll-back",
        AnswerKind::Skip => "answer skip",
        AnswerKind::Convene => "council",
        AnswerKind::Cancel => "cancel",
        AnswerKind::Abandon => "answer abandon",
    }
}

/// Inserts the ID of a task into a command of [`answer_command`].
pub(crate) fn with_task(command: &str, id: &str) -> String {
    match command.split_once(' ') {
        Some(("answer", answer)) => format!("answer {id} {answer}"),
        _ => format!("{command} {id}"),
    }
}

/// Commands that answer the open question of a task, in the order of its answers.
pub(crate) fn suggested_commands(detail: &TaskDetail) -> Vec<String> {
    let id = &detail.card.short;
    let first = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    let plan = detail.plan.as_ref().map(|plan| first(&plan.hash)).unwrap_or_default();
    let commit = detail.commit.as_deref().map(first).unwrap_or_default();
    let command = |answer: &AnswerKind| match answer {
        AnswerKind::Approve => format!("tamma approve {id} --plan {plan}"),
        AnswerKind::Reject => format!("tamma reject {id} --reason TEXT"),
        AnswerKind::RevisePlan => format!("tamma revise-plan {id} TEXT"),
        AnswerKind::Override => format!("tamma answer {id} override --plan {plan} --reason TEXT"),
        AnswerKind::Accept => format!("tamma accept {id} --commit {commit}"),
        AnswerKind::RequestChanges => format!(
            "tamma answer {id} request-changes --commit {commit} --reason TEXT [--comment FILE:LINE:TEXT]"
        ),
        AnswerKind::Reply => format!("tamma reply {id} TEXT"),
        AnswerKind::Continue => format!("tamma answer {id} continue [--grant-runs 1]"),
        AnswerKind::ChangeTask => format!("tamma change-task {id} TEXT"),
        AnswerKind::Retry => format!("tamma retry {id}"),
        AnswerKind::RollBack => format!("tamma answer {id} roll-back --to STATE --reason TEXT"),
        AnswerKind::Skip => format!("tamma answer {id} skip --reason TEXT"),
        AnswerKind::Convene => format!("tamma council {id} QUESTION"),
        AnswerKind::Cancel => format!("tamma cancel {id} --reason TEXT"),
        AnswerKind::Abandon => format!("tamma answer {id} abandon --reason TEXT"),
    };
    detail.card.answers.iter().map(command).collect()
}

/// Rows of an aligned name and a value.
struct KeyValueRows(String);

impl KeyValueRows {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        style::push_fmt(
            &mut self.0,
            format_args!("\n  {} {}", styled(&format!("{name:<10}"), FAINT), value.as_ref()),
        );
    }

    /// Adds several values under one name.
    fn add_all(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        for (index, value) in values.into_iter().enumerate() {
            self.add(if index == 0 { name } else { "" }, value);
        }
    }
}

/// Formats a task in full.
pub(crate) fn format_task(
    detail: &TaskDetail,
    runs: &[RunDetail],
    (now, zone): (DateTime<Utc>, FixedOffset),
) -> String {
    let card = &detail.card;
    let head =
        format!("{}  {}", styled(&card.short, STRONG), styled(&sanitize(&card.title), STRONG));
    let mut rows = KeyValueRows(head);
    let paused = if card.paused { ", paused" } else { "" };
    let state = format!("{}{paused}", card.state.label());
    rows.add(
        "state",
        format!(
            "{}, {}",
            paint(&state, style::state_colour(card.state)),
            format_ago(card.since, now)
        ),
    );
    rows.add("phase", paint(card.phase.label(), style::phase_colour(card.phase)));
    if let Some(next) = style::next_step_text(card, zone) {
        rows.add("next", sanitize(&next));
    }
    rows.add("work", format!("{}, {} priority", card.r#type, card.priority));
    rows.add("added", format_ago(card.created_at, now));
    let tokens = style::format_number(card.spend.tokens);
    let running = detail.current_run.as_ref().and_then(|current| current_cost(&current.run));
    let running = running.map(|running| format!(", {running}")).unwrap_or_default();
    rows.add("cost", format!("{}, {tokens} tokens{running}", format_spend(&card.spend)));
    if let Some(plan) = &detail.plan {
        rows.add("plan", plan_summary(plan));
    }
    if let Some(risk) = &detail.risk_report {
        rows.add("risk", risk_summary(risk));
    }
    rows.add_all(
        "approved",
        detail
            .approvals
            .iter()
            .map(|it| format!("by {} {}", sanitize(&it.by), format_ago(it.at, now))),
    );
    let last = detail.iterations.last().map(|run| run.number);
    rows.add_all(
        "attempt",
        detail
            .iterations
            .iter()
            .map(|run| iteration_summary(run, Some(card).filter(|_| Some(run.number) == last))),
    );
    rows.add_all("criterion", detail.acceptance_criteria.iter().map(|text| sanitize(text)));
    if !detail.card.labels.is_empty() {
        rows.add("labels", sanitize(&detail.card.labels.join(", ")));
    }
    rows.add_all("issue", issue_link(detail));
    let metadata = detail.metadata.iter();
    rows.add_all(
        "metadata",
        metadata.map(|(key, value)| format!("{}={}", sanitize(key), sanitize(value))),
    );
    let visited = detail.states.iter().filter(|it| it.seconds > 0);
    rows.add_all("time", visited.map(time_in_state));
    let ratings = detail.ratings.iter();
    rows.add_all("rating", ratings.map(|(by, stars)| format!("{stars} of 5 by {}", sanitize(by))));
    if let Some(question) = detail.question.as_ref() {
        rows.add_all("asks", question.agent_question.iter().map(|asks| sanitize(asks)));
        rows.add_all("default", question.default.iter().map(|default| sanitize(default)));
    }
    let open = detail.alerts.iter().filter(|alert| alert.settled_at.is_none());
    rows.add_all(
        "alert",
        open.map(|it| format!("{}, {}", sanitize(&it.cause_text), format_ago(it.at, now))),
    );
    if let Some(damage) = &detail.read_error {
        rows.add("damage", sanitize(damage));
    }
    if let Some(branch) = style::delivered_branch(detail) {
        rows.add("branch", branch);
    }
    if let Some(pull_request) = &detail.pull_request {
        add_pull_request(&mut rows, pull_request);
    }
    add_aftercare(&mut rows, &detail.aftercare, now);
    rows.add("id", card.id.to_string());
    let mut text = rows.0;
    push_sections(&mut text, detail, runs, now);
    text
}

/// Adds what needs more than a line: texts, runs, and the commands that answer a question.
fn push_sections(text: &mut String, detail: &TaskDetail, runs: &[RunDetail], now: DateTime<Utc>) {
    if !detail.description.trim().is_empty() {
        style::push_fmt(text, format_args!("\n\n{}", indent(&detail.description)));
    }
    if !detail.knowledge.is_empty() {
        style::push_fmt(text, format_args!("\n\n{}", format_knowledge(detail)));
    }
    if let Some(content) = detail.plan.as_ref().and_then(|plan| plan.content.as_ref()) {
        style::push_fmt(text, format_args!("\n\n{}", format_plan(content)));
    }
    if !runs.is_empty() {
        style::push_fmt(text, format_args!("\n\n{}", format_runs(runs, now)));
    }
    if detail.iterations.iter().any(is_failed) {
        style::push_fmt(
            text,
            format_args!("\n\nFailures and decisions: tamma task report {}", detail.card.short),
        );
    }
    if detail.card.waits_for_person {
        text.push_str("\n\nAnswer with:");
        for command in suggested_commands(detail) {
            style::push_fmt(text, format_args!("\n    {command}"));
        }
    }
}

/// Returns the number and the address of the task's issue.
fn issue_link(detail: &TaskDetail) -> Option<String> {
    let number = detail.issue_number.map(|number| format!("#{number}"));
    let parts: Vec<_> =
        number.into_iter().chain(detail.issue_url.as_deref().map(sanitize)).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Adds the pull request with its checks and reviews.
fn add_pull_request(rows: &mut KeyValueRows, it: &PullRequestView) {
    let stage = it.stage.as_ref().map(|stage| format!(", {}", humanize(stage)));
    let draft = if it.draft { ", draft" } else { "" };
    let stage = stage.unwrap_or_default();
    let status = sanitize(&it.status);
    rows.add("pull req.", format!("#{} {status}{draft}{stage}", it.number));
    rows.add("", sanitize(&it.url));
    rows.add_all(
        "check",
        it.checks.iter().map(|check| {
            let mark = match check.result.as_str() {
                "passed" => paint("✓", anstyle::AnsiColor::Green),
                "failed" => paint("✗", anstyle::AnsiColor::Red),
                _ => paint("•", anstyle::AnsiColor::Yellow),
            };
            let required = if check.required { " (required)" } else { "" };
            format!("{mark} {}: {}{required}", sanitize(&check.name), sanitize(&check.result))
        }),
    );
    rows.add_all(
        "reviewer",
        it.reviews.iter().map(|review| {
            let counts = if review.counts { "" } else { " (does not count)" };
            format!("{}: {}{counts}", sanitize(&review.by), humanize(&review.verdict))
        }),
    );
    if it.threads > 0 {
        let threads = usize::try_from(it.threads).unwrap_or(usize::MAX);
        rows.add("threads", format!("{} open", pluralize(threads, "thread")));
    }
}

/// Adds what happened to the change after its merge.
fn add_aftercare(rows: &mut KeyValueRows, found: &[AftercareView], now: DateTime<Utc>) {
    rows.add_all(
        "aftercare",
        found.iter().map(|it| {
            let commit: String = sanitize(&it.commit).chars().take(12).collect();
            let (kind, detail) = (humanize(&it.kind), sanitize(&it.detail));
            format!("{kind} {commit}: {detail}, {}", format_ago(it.found_at, now))
        }),
    );
}

/// Returns `true` for an attempt that gates, the review or a person rejected.
fn is_failed(run: &IterationSummary) -> bool {
    matches!(
        run.ending,
        Some(
            IterationOutcome::GatesFailed
                | IterationOutcome::ReviewFailed
                | IterationOutcome::ChangesRequested
        )
    )
}

/// Formats the time that a task spent in a state.
fn time_in_state(it: &StateTime) -> String {
    let time = i64::try_from(it.seconds).unwrap_or(i64::MAX);
    let time = style::format_duration(chrono::TimeDelta::seconds(time));
    let visits = if it.visits > 1 { format!(" in {} visits", it.visits) } else { String::new() };
    format!("{} {time}{visits}", it.state.label())
}

/// Formats the cost of a run in progress so far; `None` before its first model call.
fn current_cost(run: &RunDetail) -> Option<String> {
    let usage = run.usage.as_ref()?;
    let tokens = style::format_tokens(Some(usage));
    let cost = match style::format_run_cost(Some(usage)).as_str() {
        "unknown" => "unknown cost".to_owned(),
        cost => cost.to_owned(),
    };
    Some(format!("and {cost}, {tokens} tokens so far in run {}", run.run))
}

/// Table of the runs of a task: agent, result, usage and duration.
fn format_runs(runs: &[RunDetail], now: DateTime<Utc>) -> String {
    let heads = ["run", "for", "tier", "agent", "model", "end", "tokens", "cached", "cost", "time"];
    let mut table = new_table(&heads);
    for run in runs {
        let usage = run.usage.as_ref();
        table.add_row([
            run.run.clone(),
            sanitize(&run.mode),
            run.tier.map(|tier| tier.to_string()).unwrap_or_default(),
            sanitize(&run.agent),
            run.model.as_deref().map(sanitize).unwrap_or_default(),
            run.end.map_or_else(|| "running".to_owned(), |end| humanize(&end)),
            style::format_tokens(usage),
            style::format_cached(usage),
            style::format_run_cost(usage),
            format_duration(run.ended_at.unwrap_or(now) - run.started_at),
        ]);
    }
    render_table(&table)
}

/// Formats a plan with its risk, cost and knowledge matches, for approval.
pub(crate) fn format_plan_for_approval(detail: &TaskDetail, plan: &PlanVersion) -> String {
    let mut rows = KeyValueRows(styled(&sanitize(&detail.card.title), STRONG));
    rows.add("plan", plan_summary(plan));
    if let Some(risk) = &detail.risk_report {
        rows.add("risk", risk_summary(risk));
    }
    let spent = format_spend(&detail.card.spend);
    let cost = match plan.estimated_cost {
        Some(cost) => format!("about {}, {spent} spent so far", style::format_usd(cost)),
        None => format!("not estimated, {spent} spent so far"),
    };
    rows.add("cost", cost);
    let mut text = rows.0;
    if !detail.knowledge.is_empty() {
        style::push_fmt(&mut text, format_args!("\n\n{}", format_knowledge(detail)));
    }
    match &plan.content {
        Some(content) => format!("{text}\n\n{}\n", format_plan(content)),
        None => text,
    }
}

/// Formats the knowledge entries that match the plan.
fn format_knowledge(detail: &TaskDetail) -> String {
    format!("Matching knowledge:\n{}", format_matches(&detail.knowledge))
}

fn plan_summary(plan: &PlanVersion) -> String {
    let hash = plan.hash.get(..12).unwrap_or(&plan.hash);
    let critical = match plan.critical_files {
        0 => String::new(),
        some => format!(" ({some} critical)"),
    };
    let files = pluralize(plan.files.into(), "file");
    format!("{} ({hash}), {files}{critical}, complexity {} of 14", plan.version, plan.complexity)
}

fn risk_summary(risk: &RiskReport) -> String {
    let mut text = paint(&risk.level.to_string(), style::risk_colour(risk.level));
    let factors: Vec<_> =
        risk.factors.iter().map(|it| format!("{} {}", humanize(&it.factor), it.effect)).collect();
    if !factors.is_empty() {
        style::push_fmt(&mut text, format_args!(": {}", factors.join(", ")));
    }
    if risk.blockers > 0 {
        style::push_fmt(
            &mut text,
            format_args!("; violates {}", pluralize(risk.blockers.into(), "critical prohibition")),
        );
    }
    if risk.warnings > 0 {
        style::push_fmt(
            &mut text,
            format_args!("; {}", pluralize(risk.warnings.into(), "warning")),
        );
    }
    text
}

/// Formats an attempt. `card` is the task, for its last attempt.
fn iteration_summary(run: &IterationSummary, card: Option<&TaskCard>) -> String {
    let mut text = format!("#{}", run.number);
    if let Some(tier) = run.tier {
        style::push_fmt(&mut text, format_args!(" {tier}"));
    }
    if let Some(agent) = &run.agent {
        style::push_fmt(&mut text, format_args!(" with {}", sanitize(agent)));
    }
    match run.ending {
        Some(ending) => style::push_fmt(&mut text, format_args!(": {}", humanize(&ending))),
        None => style::push_fmt(&mut text, format_args!(": {}", open_attempt_text(run, card))),
    }
    if let Some(score) = run.score {
        style::push_fmt(&mut text, format_args!(", score {score}"));
    }
    text
}

/// Returns what an attempt without a result is waiting for.
fn open_attempt_text(run: &IterationSummary, card: Option<&TaskCard>) -> &'static str {
    let is_finished = run.finished_at.is_some();
    match card.map(|card| (card.state, card.waits_for_person)) {
        Some((State::InProgress, _)) if !is_finished => "running",
        Some((State::Testing, _)) if is_finished => State::Testing.label(),
        Some((State::QualityReview, true)) if is_finished => "awaiting review",
        Some((State::QualityReview, false)) if is_finished => State::QualityReview.label(),
        _ if is_finished => "not reviewed",
        _ => "not finished",
    }
}

fn format_plan(plan: &tamma_core::plan::Plan) -> String {
    let mut text = indent(&plan.summary);
    style::push_fmt(&mut text, format_args!("\n\n{}\n", indent(&plan.approach)));
    for change in &plan.file_changes {
        style::push_fmt(
            &mut text,
            format_args!(
                "\n  {} {} {}",
                match change.action {
                    tamma_core::plan::FileAction::Create => paint("+", anstyle::AnsiColor::Green),
                    tamma_core::plan::FileAction::Modify => paint("~", anstyle::AnsiColor::Yellow),
                    tamma_core::plan::FileAction::Delete => paint("-", anstyle::AnsiColor::Red),
                },
                styled(&sanitize(&change.path), STRONG),
                sanitize(&change.description)
            ),
        );
    }
    style::push_fmt(
        &mut text,
        format_args!("\n\n  {}  {}", styled("tests ", FAINT), sanitize(&plan.testing_strategy)),
    );
    let mut list = |label: &str, items: &[String]| {
        for item in items {
            style::push_fmt(
                &mut text,
                format_args!("\n  {}  {}", styled(label, FAINT), sanitize(item)),
            );
        }
    };
    let criteria = plan.criteria.iter().enumerate();
    let criteria: Vec<_> =
        criteria.map(|(index, it)| format!("{}: {it}", criterion_id(index))).collect();
    list("met if", &criteria);
    let verification = plan.verification.iter();
    let verification: Vec<_> =
        verification.map(|it| format!("{}: {}", it.criterion, it.test)).collect();
    list("test  ", &verification);
    list("change", &plan.test_changes);
    list("risk  ", &plan.risks);
    list("assume", &plan.assumptions);
    list("asks  ", &plan.questions);
    if !plan.estimated_signals.is_empty() {
        let names: Vec<_> = plan.estimated_signals.iter().map(ToString::to_string).collect();
        let note = format!("complexity signals estimated by Tamma: {}", names.join(", "));
        list("note  ", &[note]);
    }
    text
}

/// Indents every line by two spaces, and breaks lines that the terminal would break inside a word.
fn indent(text: &str) -> String {
    indent_to(text, style::terminal_width())
}

fn indent_to(text: &str, width: Option<usize>) -> String {
    let line = |line: &str| {
        let indented = format!("  {}", sanitize(line)).trim_end().to_owned();
        match width {
            Some(width) if indented.chars().count() > width => style::wrap(&indented, width, 2),
            _ => indented,
        }
    };
    text.trim().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn long_lines_of_a_plan_are_broken_at_spaces() {
        let text = "Use the first argument as the name.\n\n  - short";
        let expected = "  Use the first\n  argument as the\n  name.\n\n    - short";
        assert_eq!(indent_to(text, Some(17)), expected);
        assert_eq!(indent_to("a long line of text", None), "  a long line of text");
    }

    /// Task that awaits approval.
    pub(crate) fn awaiting_approval() -> TaskDetail {
        let text = include_str!("../../../tests/fixtures/waits.json");
        serde_json::from_str(text).expect("a task")
    }

    fn utc() -> FixedOffset {
        FixedOffset::east_opt(0).expect("UTC")
    }

    #[test]
    fn every_answer_is_a_command_that_exists() {
        use clap::{CommandFactory as _, Parser as _};
        use strum::IntoEnumIterator as _;
        let hash = "0123456789abcdef".to_owned();
        let mut detail = TaskDetail { commit: Some(hash), ..awaiting_approval() };
        detail.card.answers = AnswerKind::iter().collect();
        for (answer, line) in AnswerKind::iter().zip(suggested_commands(&detail)) {
            let command = with_task(answer_command(answer), &detail.card.short);
            assert!(line.starts_with(&format!("tamma {command}")), "{line}: {command}");
            // Optional parts are in brackets, and `--to` takes a state.
            let line = line.split('[').next().unwrap_or(&line).replace("STATE", "planning");
            let parsed = crate::commands::Cli::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
        assert!(crate::commands::Cli::command().find_subcommand("modify").is_none());
    }

    #[test]
    fn a_task_awaiting_approval_shows_its_plan_and_answer_commands() {
        let now = "2026-11-15T10:23:30Z".parse().expect("a timestamp");
        let text =
            anstream::adapter::strip_str(&format_task(&awaiting_approval(), &[], (now, utc())))
                .to_string();
        insta::assert_snapshot!(text, @r"
        1a2b3c4d  Greet the whole world
          state      awaiting approval, 3 min ago
          phase      Approval
          next       medium-risk plan needs approval
          work       feature, high priority
          added      23 min ago
          cost       ~$0.42, 12,345 tokens
          plan       2 (0123456789ab), 2 files (1 critical), complexity 5 of 14
          risk       medium: files 1 point, warnings 1 point; 1 warning
          attempt    #1 simple with claude: gates failed
          criterion  it greets
          labels     nice, small
          id         0192a000-0000-7000-8000-00001a2b3c4d

          In every language.
          Also in Welsh.

          Greets everybody.

          One table of greetings.

          + src/greet.rs the table
          ~ src/lib.rs its use

          tests   A test for each language.
          risk    Welsh is hard

        Failures and decisions: tamma task report 1a2b3c4d

        Answer with:
            tamma approve 1a2b3c4d --plan 0123456789ab
            tamma reject 1a2b3c4d --reason TEXT
            tamma revise-plan 1a2b3c4d TEXT
            tamma change-task 1a2b3c4d TEXT
            tamma cancel 1a2b3c4d --reason TEXT
        ");
    }

    #[test]
    fn an_attempt_without_a_result_says_what_it_is_waiting_for() {
        let detail = awaiting_approval();
        let finished = IterationSummary { ending: None, ..detail.iterations[0].clone() };
        let finished = IterationSummary { finished_at: Some(detail.card.since), ..finished };
        let started = IterationSummary { finished_at: None, ..finished.clone() };
        let card =
            |state, waits_for_person| TaskCard { state, waits_for_person, ..detail.card.clone() };
        for (run, state, waits, expected) in [
            (&started, State::InProgress, false, "running"),
            (&started, State::Cancelled, false, "not finished"),
            (&finished, State::Testing, false, "running gates"),
            (&finished, State::QualityReview, false, "in review"),
            (&finished, State::QualityReview, true, "awaiting review"),
            (&finished, State::Cancelled, false, "not reviewed"),
        ] {
            let text = iteration_summary(run, Some(&card(state, waits)));
            assert!(text.ends_with(&format!(": {expected}")), "{state:?}: {text}");
        }
        assert!(iteration_summary(&started, None).ends_with(": not finished"));
        let sent_back =
            IterationSummary { ending: Some(IterationOutcome::ChangesRequested), ..started };
        assert!(iteration_summary(&sent_back, None).ends_with(": changes requested"));
    }

    #[test]
    fn a_pull_request_is_shown_with_its_checks_and_reviews() {
        let pull_request: PullRequestView = serde_json::from_value(serde_json::json!({
            "task": "01932f00-4c1e-7a10-8b00-000000a7f31c",
            "project": "01932f00-4c1e-7a10-8b00-000000000001",
            "forge": "gitea", "repository": "acme/shop", "number": 7,
            "url": "https://code.example/acme/shop/pulls/7", "branch": "tamma/x",
            "base_branch": "main", "status": "open", "stage": "waiting_for_checks",
            "checks": [
                { "name": "ci", "result": "failed", "required": true },
                { "name": "lint", "result": "passed", "required": false },
            ],
            "reviews": [
                { "by": "ada", "verdict": "changes_requested", "commit": "abc", "counts": true },
            ],
            "threads": 2, "opened_at": "2026-11-15T10:20:00Z",
        }))
        .expect("a pull request");
        let mut rows = KeyValueRows(String::new());
        add_pull_request(&mut rows, &pull_request);
        let text = anstream::adapter::strip_str(&rows.0).to_string();
        insta::assert_snapshot!(text.trim_start_matches('\n'), @r"
          pull req.  #7 open, waiting for checks
                     https://code.example/acme/shop/pulls/7
          check      ✗ ci: failed (required)
                     ✓ lint: passed
          reviewer   ada: changes requested
          threads    2 threads open
        ");
    }

    #[test]
    fn what_happened_after_the_merge_is_shown() {
        let found: Vec<AftercareView> = serde_json::from_value(serde_json::json!([
            {
                "kind": "revert", "commit": "0123456789abcdef0123456789abcdef01234567",
                "detail": "Revert \"Add it\" (Ann)", "found_at": "2026-11-15T10:20:00Z",
            },
            {
                "kind": "red_base", "commit": "f".repeat(40), "detail": "failed since the merge: ci",
                "found_at": "2026-11-15T10:20:00Z",
            },
        ]))
        .expect("findings");
        let now = "2026-11-15T10:20:00Z".parse().expect("time");
        let mut rows = KeyValueRows(String::new());
        add_aftercare(&mut rows, &found, now);
        let text = anstream::adapter::strip_str(&rows.0).to_string();
        insta::assert_snapshot!(text.trim_start_matches('\n'), @r#"
          aftercare  revert 0123456789ab: Revert "Add it" (Ann), just now
                     red base ffffffffffff: failed since the merge: ci, just now
        "#);
    }

    #[test]
    fn runs_are_a_table_with_unknown_values_marked() {
        let run = |fields: serde_json::Value| -> RunDetail {
            let mut run = serde_json::json!({
                "run": "2", "ticket": 2, "attempt": 1, "agent": "claude-code", "model": "opus",
                "tier": "complex", "mode": "plan", "session": null,
                "started_at": "2026-11-15T10:20:00Z", "ended_at": "2026-11-15T10:21:00Z",
                "end": "finished", "reason": null, "calls": 3, "lines": 7, "transcript": true,
                "usage": {
                    "input": 1200, "cached": 30, "cached_percent": 2, "output": 4,
                    "usd": "0.03", "metered": true
                },
            });
            let fields = fields.as_object().expect("an object").clone();
            run.as_object_mut().expect("an object").extend(fields);
            serde_json::from_value(run).expect("a run")
        };
        let now = "2026-11-15T10:23:30Z".parse().expect("a timestamp");
        let runs = [
            run(serde_json::json!({})),
            run(serde_json::json!({
                "run": "4.2", "mode": "implement", "end": null, "ended_at": null, "model": null,
                "usage": null, "tier": null,
            })),
        ];
        let expected = "and $0.03, 1,234 tokens so far in run 2";
        assert_eq!(current_cost(&runs[0]).as_deref(), Some(expected));
        assert_eq!(current_cost(&runs[1]), None);
        insta::assert_snapshot!(anstream::adapter::strip_str(&format_runs(&runs, now)), @r"
        run  for        tier     agent        model  end       tokens   cached  cost     time
        2    plan       complex  claude-code  opus   finished  1,234    2%      $0.03    1 min
        4.2  implement           claude-code         running   unknown          unknown  3 min
        ");
    }

    #[test]
    fn a_plan_for_approval_shows_risk_factors_and_cost() {
        let detail = awaiting_approval();
        let plan = format_plan_for_approval(&detail, detail.plan.as_ref().expect("a plan"));
        insta::assert_snapshot!(anstream::adapter::strip_str(&plan), @r"
        Greet the whole world
          plan       2 (0123456789ab), 2 files (1 critical), complexity 5 of 14
          risk       medium: files 1 point, warnings 1 point; 1 warning
          cost       about $0.40, ~$0.42 spent so far

          Greets everybody.

          One table of greetings.

          + src/greet.rs the table
          ~ src/lib.rs its use

          tests   A test for each language.
          risk    Welsh is hard
        ");
    }

    #[test]
    fn a_plan_for_approval_shows_matching_knowledge_with_reasons_and_evidence() {
        let knowledge = serde_json::json!([
            {
                "role": "blocker", "id": "0192a000-0000-7000-8000-0000aaaa0001",
                "short": "aaaa0001", "text": "No tables:\n use \u{1b}[31mgettext.",
                "relevance": 100, "reasons": [], "severity": "critical", "owner": "maya",
                "because": ["`src/greet.rs` matches `src/**`", "mentions `table`"],
                "evidence": ["commit:4be01d9"], "shown": true,
            },
            {
                "role": "learning", "id": "0192a000-0000-7000-8000-0000aaaa0002",
                "short": "aaaa0002", "text": "Welsh needs a plural of its own.",
                "relevance": 82, "reasons": [], "severity": "low", "because": [],
                "evidence": [], "shown": true,
            },
        ]);
        let knowledge = serde_json::from_value(knowledge).expect("matches");
        let detail = TaskDetail { knowledge, ..awaiting_approval() };
        let plan = format_plan_for_approval(&detail, detail.plan.as_ref().expect("a plan"));
        let text = anstream::adapter::strip_str(&plan).to_string();
        let (_, text) = text.split_once("so far\n\n").expect("the head");
        let (text, _) = text.split_once("\n\n").expect("the plan");
        insta::assert_snapshot!(text, @r"
        Matching knowledge:
          blocker        aaaa0001  No tables: use \u{1b}[31mgettext.
                         because `src/greet.rs` matches `src/**`, and mentions `table` (commit:4be01d9, ask maya)
          learning       aaaa0002  Welsh needs a plural of its own.
                         because its content is similar
        ");
        let shown = format_task(
            &detail,
            &[],
            ("2026-11-15T10:23:30Z".parse().expect("a timestamp"), utc()),
        );
        assert!(anstream::adapter::strip_str(&shown).to_string().contains(text));
    }
}
