//! `tamma task report`: report on a task as text, Markdown or JSON.

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anyhow::Result;
use chrono::TimeDelta;
use clap::ValueEnum;
use tamma_core::format::format_duration;
use tamma_core::gate::GateStatus;
use tamma_core::issue::IssueSeverity;
use tamma_core::report::{
    CostSummary, CouncilReport, GateReport, IterationReport, TaskReport, render_markdown,
};
use tamma_core::review::{Criterion, CriterionJudgement};
use tamma_server::dto::TaskReportResponse;

use crate::client::{self, Client, ClientArgs};
use crate::output::{self, pluralize, sanitize};
use crate::style::{self, FAINT, STRONG, humanize, paint, styled};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    /// Report on this attempt only
    #[arg(long, value_name = "NUMBER")]
    attempt: Option<u16>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportOutput::Text)]
    format: ReportOutput,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportOutput {
    /// Text for a terminal
    Text,
    /// Markdown for a pull request
    Markdown,
    /// JSON, like `--json`
    Json,
}

/// Maximum number of test names listed per category.
const MAX_NAMES: usize = 10;

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.resolve_task(&arguments.id).await?;
        let number = arguments.attempt.map(|number| number.to_string());
        let query: Vec<_> = number.iter().map(|number| ("iteration", number.as_str())).collect();
        let response: TaskReportResponse =
            client.get(&format!("/tasks/{id}/report"), &query).await?;
        let mut out = anstream::stdout().lock();
        match arguments.format {
            ReportOutput::Json => output::print_json(&response)?,
            _ if arguments.target.json => output::print_json(&response)?,
            ReportOutput::Markdown => {
                // Line by line, because each line is sanitised for the terminal.
                for line in render_markdown(&response.report).lines() {
                    writeln!(out, "{}", sanitize(line))?;
                }
            }
            ReportOutput::Text => writeln!(out, "{}", format_report(&response.report))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Formats a report for the terminal.
fn format_report(report: &TaskReport) -> String {
    let state = paint(report.state.label(), style::state_colour(report.state));
    let about = if report.spend.estimated { "~" } else { "" };
    let cost = if report.is_cost_unknown() {
        "unknown cost".to_owned()
    } else {
        format!("{about}{}", style::format_usd(report.spend.usd))
    };
    let mut text = format!(
        "{}\n{state}, {}, {cost}, {} tokens",
        styled(&sanitize(&report.title), STRONG),
        pluralize(report.iterations.len(), "attempt"),
        style::format_number(report.spend.tokens),
    );
    if !report.tier_runs.is_empty() {
        let tiers: Vec<_> =
            report.tier_runs.iter().map(|(tier, times)| format!("{tier} ×{times}")).collect();
        push_row(&mut text, "tiers", &tiers.join(" → "));
    }
    if let Some(seconds) = report.duration_seconds {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let duration = format_duration(TimeDelta::try_seconds(seconds).unwrap_or_default());
        push_row(&mut text, "duration", &duration);
    }
    if let Some(at) = report.completed_at {
        push_row(&mut text, "closed", &at.format("%Y-%m-%d %H:%M UTC").to_string());
    }
    if let Some(agent) = &report.final_agent {
        let model = report.final_model.as_deref().unwrap_or("its default model");
        push_row(&mut text, "final", &format!("{agent} with {model}"));
    }
    for council in report.councils.iter().filter(|it| it.after_iteration == 0) {
        text += &format_council(council);
    }
    for iteration in &report.iterations {
        text += &format_iteration(iteration, report.max_iterations);
        for council in report.councils.iter().filter(|it| it.after_iteration == iteration.number) {
            text += &format_council(council);
        }
        for request in
            report.decision_requests.iter().filter(|it| it.after_iteration == iteration.number)
        {
            let line = format!(
                "\n  {} decision requested: {}",
                colour_sign('?', AnsiColor::Yellow),
                sanitize(&request.description)
            );
            text += &line;
        }
    }
    if !report.costs.is_empty() {
        style::push_fmt(&mut text, format_args!("\n\n{}", styled("cost", STRONG)));
        for (mode, spent) in &report.costs {
            push_row(&mut text, mode, &cost_row(spent));
        }
        for (agent, spent) in &report.agents {
            push_row(&mut text, agent, &cost_row(spent));
        }
    }
    if let Some(lessons) = report.lessons {
        style::push_fmt(&mut text, format_args!("\n\n{}", styled("lessons", STRONG)));
        style::push_fmt(&mut text, format_args!("\n  {}", pluralize(lessons.into(), "lesson")));
        for lesson in &report.lesson_list {
            let occasion = lesson.occasion.map(|it| format!(", {it}")).unwrap_or_default();
            let facts = format!("({}{occasion}, {})", lesson.kind, lesson.status);
            style::push_fmt(
                &mut text,
                format_args!("\n  - {} {}", sanitize(&lesson.title), styled(&facts, FAINT)),
            );
        }
    }
    text
}

fn format_iteration(it: &IterationReport, max: Option<u16>) -> String {
    let (mark, colour, word) = match it.passed {
        Some(true) => ('✔', AnsiColor::Green, "passed"),
        Some(false) => ('✖', AnsiColor::Red, "failed"),
        None => ('●', AnsiColor::Blue, "not reviewed"),
    };
    let tier = it.tier.map(|tier| format!(" {tier}")).unwrap_or_default();
    let of = max.map(|max| format!("/{max}")).unwrap_or_default();
    let mut text = format!(
        "\n\n{} {} {}",
        colour_sign(mark, colour),
        styled(&format!("#{}{of}{tier}", it.number), STRONG),
        paint(word, colour)
    );
    if let Some(score) = it.score {
        style::push_fmt(&mut text, format_args!(", score {score}"));
    }
    let commit = it.commit.map(|commit| commit.to_string().chars().take(12).collect::<String>());
    let facts =
        [commit, Some(format_cost(&it.cost))].into_iter().flatten().collect::<Vec<_>>().join(", ");
    style::push_fmt(&mut text, format_args!("  {}", styled(&facts, FAINT)));
    let run = it.facts();
    if !run.is_empty() {
        push_row(&mut text, "run", &run.join(", "));
    }
    if let (true, Some(counts)) = (it.gates.is_empty(), it.gate_counts) {
        push_row(
            &mut text,
            "gates",
            &format!("{} passed, {} failed", counts.passed, counts.failed),
        );
    }
    for gate in &it.gates {
        text += &format_gate(gate);
    }
    for criterion in &it.criteria {
        text += &format_criterion(criterion);
    }
    for issue in it.issues.iter().filter(|issue| issue.severity > IssueSeverity::Info) {
        let location = match (&issue.file, issue.line) {
            (Some(file), Some(line)) => format!("{}:{line}: ", sanitize(file)),
            (Some(file), None) => format!("{}: ", sanitize(file)),
            (None, _) => String::new(),
        };
        let colour =
            if issue.severity >= IssueSeverity::Error { AnsiColor::Red } else { AnsiColor::Yellow };
        let word = paint(&issue.severity.to_string(), colour);
        style::push_fmt(
            &mut text,
            format_args!("\n  {word} {location}{}", sanitize(&issue.message)),
        );
        if let Some(scenario) = &issue.scenario {
            style::push_fmt(
                &mut text,
                format_args!("\n      {} {}", styled("fails with", FAINT), sanitize(scenario)),
            );
        }
    }
    for suggestion in &it.suggestions {
        push_row(&mut text, "suggestion", suggestion);
    }
    if let Some(second) = &it.second_review {
        let result = if second.confirmed { "confirmed" } else { "did not confirm" };
        let agent = sanitize(&second.validator.agent);
        style::push_fmt(
            &mut text,
            format_args!("\n  second validator ({agent}) {result} the critical finding"),
        );
    }
    if let Some(claims) = &it.claims {
        let claims = claims.to_markdown();
        for line in claims.lines().filter(|line| !line.is_empty()) {
            style::push_fmt(&mut text, format_args!("\n  {}", styled(&sanitize(line), FAINT)));
        }
    }
    if let Some(decision) = &it.decision_text {
        style::push_fmt(
            &mut text,
            format_args!("\n  {} {}", colour_sign('→', AnsiColor::Cyan), sanitize(decision)),
        );
    }
    text
}

/// Formats one gate with its tests and new failures.
fn format_gate(gate: &GateReport) -> String {
    let (mark, colour) = match gate.status {
        GateStatus::Passed => ('✔', AnsiColor::Green),
        GateStatus::PreExisting | GateStatus::Flaky => ('!', AnsiColor::Yellow),
        GateStatus::Failed | GateStatus::TimedOut => ('✖', AnsiColor::Red),
        GateStatus::NotApplicable => ('-', AnsiColor::BrightBlack),
    };
    let mut text = format!(
        "\n  {} {} {}",
        colour_sign(mark, colour),
        sanitize(&gate.name),
        humanize(&gate.status)
    );
    if let Some(tests) = gate.tests {
        let tests = format!(
            " ({} passed, {} failed, {} skipped)",
            tests.passed, tests.failed, tests.skipped
        );
        text += &styled(&tests, FAINT);
    }
    for (word, names) in [
        ("new", &gate.new),
        ("missing", &gate.missing),
        ("pre-existing", &gate.pre_existing),
        ("flaky", &gate.flaky),
    ] {
        for name in names.iter().take(MAX_NAMES) {
            style::push_fmt(
                &mut text,
                format_args!("\n      {} {}", styled(word, FAINT), sanitize(name)),
            );
        }
        if names.len() > MAX_NAMES {
            let more = names.len() - MAX_NAMES;
            style::push_fmt(
                &mut text,
                format_args!("\n      {} and {more} more", styled(word, FAINT)),
            );
        }
    }
    text
}

fn format_criterion(criterion: &Criterion) -> String {
    let (mark, colour, detail) = match &criterion.judgement {
        CriterionJudgement::Met { evidence, .. } if criterion.is_met() => {
            ('✔', AnsiColor::Green, evidence.as_str())
        }
        CriterionJudgement::Met { .. } => ('✖', AnsiColor::Red, "no evidence given"),
        CriterionJudgement::Unmet { reason } => ('✖', AnsiColor::Red, reason.as_str()),
        CriterionJudgement::Unjudged => ('✖', AnsiColor::Red, "not reviewed"),
    };
    format!(
        "\n  {} {} {}",
        colour_sign(mark, colour),
        sanitize(&criterion.text),
        styled(&sanitize(detail), FAINT)
    )
}

fn format_council(council: &CouncilReport) -> String {
    let mut text = format!(
        "\n\n{} {}",
        colour_sign('◆', AnsiColor::BrightRed),
        styled(&format!("council {}", council.number), STRONG)
    );
    for (member, opinion) in &council.members {
        let opinion = if opinion.is_some() { "responded" } else { "did not respond" };
        style::push_fmt(&mut text, format_args!("\n  {} {opinion}", sanitize(member)));
    }
    for line in council.conclusion.iter().flat_map(|text| text.trim().lines()) {
        style::push_fmt(
            &mut text,
            format_args!("\n{}", format!("  │ {}", sanitize(line)).trim_end()),
        );
    }
    text
}

fn colour_sign(mark: char, colour: AnsiColor) -> String {
    paint(&mark.to_string(), colour)
}

fn push_row(text: &mut String, name: &str, value: &str) {
    style::push_fmt(
        text,
        format_args!("\n  {} {}", styled(&format!("{name:<10}"), FAINT), sanitize(value)),
    );
}

/// Formats cost, tokens, the cached share of the input and the number of runs.
fn cost_row(spent: &CostSummary) -> String {
    let tokens = style::format_number(spent.tokens);
    let share = spent.cached_percent();
    let cached = share.map(|share| format!(" ({share}% of input cached)")).unwrap_or_default();
    let runs = pluralize(spent.runs as usize, "run");
    format!("{}, {tokens} tokens{cached} in {runs}", format_cost(spent))
}

fn format_cost(spent: &CostSummary) -> String {
    match spent.unknown_runs {
        0 => style::format_usd(spent.usd),
        all if all == spent.runs => "unknown cost".to_owned(),
        some => format!("{} and {some} unknown", style::format_usd(spent.usd)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Report of a task that failed twice, had a council and then passed.
    fn report() -> TaskReport {
        let text = include_str!("../../../tests/fixtures/report.json");
        serde_json::from_str(text).expect("a report")
    }

    #[test]
    fn a_report_is_formatted_for_the_terminal() {
        insta::assert_snapshot!(anstream::adapter::strip_str(&format_report(&report())));
    }

    #[test]
    fn a_report_is_formatted_as_markdown() {
        insta::assert_snapshot!(render_markdown(&report()));
    }

    #[test]
    fn the_cached_share_is_shown_by_mode_and_by_agent() {
        let mut report = report();
        let usd = "0.5".parse().expect("money");
        let (runs, tokens, input, cached) = (1, 1_100, 1_000, 860);
        let cost = CostSummary { runs, usd, tokens, input, cached, unknown_runs: 0 };
        report.costs.insert("implement".to_owned(), cost);
        report.agents.insert("codex".to_owned(), cost);
        let text = format_report(&report);
        assert_eq!(
            text.matches("1,100 tokens (86% of input cached) in 1 run").count(),
            2,
            "{text}"
        );
        let markdown = render_markdown(&report);
        for part in
            ["| Agent | Runs | Cost | Tokens |", "| codex | 1 | ", "(86% of input cached) |"]
        {
            assert!(markdown.contains(part), "{markdown}");
        }
    }

    #[test]
    fn a_single_iteration_can_be_reported() {
        let only = report().for_iteration(2).expect("the second");
        insta::assert_snapshot!(anstream::adapter::strip_str(&format_report(&only)));
        assert!(report().for_iteration(9).is_none());
    }
}
