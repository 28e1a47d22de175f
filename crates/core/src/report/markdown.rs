//! Markdown rendering of reports.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::TimeDelta;

use super::{CostSummary, CouncilReport, GateReport, IterationReport, TaskReport};
use crate::format::{capitalize, format_duration, format_usd, humanize, pluralize, single_line};
use crate::gate::GateStatus;
use crate::review::CriterionJudgement;

/// Maximum number of names in a list.
const MAX_LISTED: usize = 20;

/// Renders a report as Markdown, for a pull request.
pub fn render_markdown(report: &TaskReport) -> String {
    let mut text = format!("# {}\n\n", single_line(&report.title));
    let state = humanize(&report.state);
    let about = if report.spend.estimated { "about " } else { "" };
    let cost = if report.is_cost_unknown() {
        "unknown cost".to_owned()
    } else {
        format!("{about}{}", format_usd(report.spend.usd))
    };
    let _ = writeln!(
        text,
        "Status: {state}, {}, {cost}, {} tokens",
        pluralize(report.iterations.len(), "attempt"),
        report.spend.tokens
    );
    if !report.tier_runs.is_empty() {
        let tiers: Vec<_> =
            report.tier_runs.iter().map(|(tier, times)| format!("{tier} ×{times}")).collect();
        let _ = writeln!(text, "Tiers: {}.", tiers.join(", "));
    }
    if let Some(seconds) = report.duration_seconds {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let duration = format_duration(TimeDelta::try_seconds(seconds).unwrap_or_default());
        let _ = match report.completed_at {
            Some(at) => {
                let at = at.format("%Y-%m-%d %H:%M UTC");
                writeln!(text, "Closed: {at}, after {duration}.")
            }
            None => writeln!(text, "Duration: {duration}."),
        };
    }
    if let Some(agent) = &report.final_agent {
        let model = report.final_model.as_deref().unwrap_or("its default model");
        let _ = writeln!(text, "Final agent: {agent} with {model}.");
    }
    for council in report.councils.iter().filter(|item| item.after_iteration == 0) {
        let _ = write!(text, "\n{}", council_section(council));
    }
    for iteration in &report.iterations {
        let _ = write!(text, "\n{}", iteration_section(iteration, report.max_iterations));
        for council in
            report.councils.iter().filter(|item| item.after_iteration == iteration.number)
        {
            let _ = write!(text, "\n{}", council_section(council));
        }
        for request in
            report.decision_requests.iter().filter(|item| item.after_iteration == iteration.number)
        {
            let _ = writeln!(text, "\nDecision requested: {}", request.description);
        }
    }
    if !report.costs.is_empty() {
        text.push_str("\n## Cost\n\n");
        text.push_str(&cost_table("Mode", &report.costs));
        if !report.agents.is_empty() {
            let _ = write!(text, "\n{}", cost_table("Agent", &report.agents));
        }
    }
    if let Some(lessons) = report.lessons {
        let _ = writeln!(text, "\n## Lessons\n\n{}.", pluralize(lessons, "lesson"));
        if !report.lesson_list.is_empty() {
            text.push('\n');
        }
        for lesson in &report.lesson_list {
            let occasion = lesson.occasion.map(|it| format!(", {it}")).unwrap_or_default();
            let (kind, status) = (lesson.kind, lesson.status);
            let title = single_line(&lesson.title);
            let _ = writeln!(text, "- {title} ({kind}{occasion}, {status})");
        }
    }
    text
}

fn cost_table(first: &str, costs: &BTreeMap<String, CostSummary>) -> String {
    let mut text = format!("| {first} | Runs | Cost | Tokens |\n| --- | --: | --: | --: |\n");
    for (name, cost) in costs {
        let share = cost.cached_percent();
        let cached = share.map(|share| format!(" ({share}% of input cached)")).unwrap_or_default();
        let (runs, tokens) = (cost.runs, cost.tokens);
        let _ = writeln!(text, "| {name} | {runs} | {cost} | {tokens}{cached} |");
    }
    text
}

fn iteration_section(iteration: &IterationReport, max: Option<u16>) -> String {
    let tier = iteration.tier.map(|tier| format!(" ({tier})")).unwrap_or_default();
    let passed = match iteration.passed {
        Some(true) => "passed",
        Some(false) => "failed",
        None => "not reviewed",
    };
    let of = max.map(|max| format!(" of {max}")).unwrap_or_default();
    let mut text = format!("## Attempt {}{of}{tier}: {passed}\n\n", iteration.number);
    let mut facts = Vec::new();
    if let Some(commit) = iteration.commit {
        facts.push(format!("commit `{}`", commit.to_string().get(..12).unwrap_or_default()));
    }
    if let Some(score) = iteration.score {
        facts.push(format!("score {score}"));
    }
    facts.push(format!("cost {}", iteration.cost));
    facts.extend(iteration.facts());
    let _ = writeln!(text, "{}.", capitalize(&facts.join(", ")));
    if let Some(claims) = &iteration.claims {
        let _ = write!(text, "\n{}", claims.to_markdown());
    }
    if !iteration.gates.is_empty() {
        text.push_str("\n| Gate | Kind | Result | Details |\n| --- | --- | --- | --- |\n");
        for gate in &iteration.gates {
            let status = humanize(&gate.status);
            let status = if is_failed(gate) { format!("**{status}**") } else { status };
            let _ = writeln!(
                text,
                "| {} | {} | {status} | {} |",
                gate.name,
                gate.kind,
                gate_details(gate)
            );
        }
    } else if let Some(counts) = iteration.gate_counts {
        let _ = writeln!(text, "\nGates: {} passed, {} failed.", counts.passed, counts.failed);
    }
    if !iteration.criteria.is_empty() {
        text.push('\n');
    }
    for criterion in &iteration.criteria {
        let (sign, explanation) = match &criterion.judgement {
            CriterionJudgement::Met { evidence, .. } if criterion.is_met() => {
                ("x", evidence.as_str())
            }
            CriterionJudgement::Met { .. } => (" ", "no evidence given"),
            CriterionJudgement::Unmet { reason } => (" ", reason.as_str()),
            CriterionJudgement::Unjudged => (" ", "not reviewed"),
        };
        let _ = writeln!(
            text,
            "- [{sign}] {}: {}",
            single_line(&criterion.text),
            single_line(explanation)
        );
    }
    if !iteration.issues.is_empty() {
        text.push('\n');
    }
    for issue in &iteration.issues {
        let location = match (&issue.file, issue.line) {
            (Some(file), Some(at)) => format!("`{file}:{at}`: "),
            (Some(file), None) => format!("`{file}`: "),
            (None, _) => String::new(),
        };
        let _ = writeln!(
            text,
            "- {} ({}): {location}{}",
            issue.severity,
            issue.category,
            single_line(&issue.message)
        );
        if let Some(scenario) = &issue.scenario {
            let _ = writeln!(text, "  Fails with: {}", single_line(scenario));
        }
    }
    if !iteration.suggestions.is_empty() {
        text.push_str("\nSuggestions:\n\n");
    }
    for suggestion in &iteration.suggestions {
        let _ = writeln!(text, "- {}", single_line(suggestion));
    }
    if let Some(second) = &iteration.second_review {
        let result = if second.confirmed { "confirmed" } else { "did not confirm" };
        let _ = writeln!(
            text,
            "\nA second validator ({}) {result} the critical finding.",
            second.validator.agent
        );
    }
    if let Some(decision) = &iteration.decision_text {
        let _ = writeln!(text, "\nDecision: {decision}");
    }
    text
}

fn is_failed(gate: &GateReport) -> bool {
    matches!(gate.status, GateStatus::Failed | GateStatus::TimedOut)
}

/// Returns the table cell with the details of a gate.
fn gate_details(gate: &GateReport) -> String {
    let mut details = Vec::new();
    if let Some(tests) = gate.tests {
        details.push(format!(
            "{} passed, {} failed, {} skipped",
            tests.passed, tests.failed, tests.skipped
        ));
    }
    for (label, names) in [
        ("new", &gate.new),
        ("missing", &gate.missing),
        ("pre-existing", &gate.pre_existing),
        ("flaky", &gate.flaky),
    ] {
        if names.is_empty() {
            continue;
        }
        let more = names.len().saturating_sub(MAX_LISTED);
        let mut listed: Vec<_> = names
            .iter()
            .take(MAX_LISTED)
            .map(|name| format!("`{}`", single_line(name).replace('|', "\\|")))
            .collect();
        if more > 0 {
            listed.push(format!("and {more} more"));
        }
        details.push(format!("{label}: {}", listed.join(", ")));
    }
    details.join("; ")
}

fn council_section(council: &CouncilReport) -> String {
    let mut text = format!("### Council {}\n\n", council.number);
    for (member, opinion) in &council.members {
        let result = if opinion.is_some() { "responded" } else { "did not respond" };
        let _ = writeln!(text, "- {member} {result}");
    }
    if let Some(conclusion) = &council.conclusion {
        // Nest the conclusion's headings below this one.
        let _ = writeln!(text, "\n<details><summary>Conclusion</summary>\n");
        for line in conclusion.trim().lines() {
            let below = if line.starts_with('#') { "###" } else { "" };
            let _ = writeln!(text, "{below}{line}");
        }
        text.push_str("\n</details>\n");
    }
    text
}
