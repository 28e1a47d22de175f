//! Title, description and replies of a pull request.
//!
//! Everything that a plan, a review or an agent wrote is untrusted: it must not mention people, close
//! issues, run commands of the forge, or look like a marker of ours. [`safe_line`] and [`safe_block`]
//! take care of that. The texts are pure functions of stored data, so another attempt writes the same.

use std::fmt::Write as _;

use tamma_core::budget::Spend;
use tamma_core::format::{capitalize, format_number, format_usd, humanize, pluralize, single_line};
use tamma_core::gate::GateStatus;
use tamma_core::ids::TaskId;
use tamma_core::issue::Issue;
use tamma_core::plan::{Plan, criterion_id};
use tamma_core::review::record::{GateRecord, GatesCheck, ReviewCheck};
use tamma_core::review::{Criterion, CriterionJudgement};
use tamma_core::risk::{FactorEffect, Risk};
use tamma_core::run_result::RunResult;
use tamma_core::task::Task;

/// Maximum length of a description, in characters. GitHub allows 65,536.
pub(crate) const MAX_BODY_CHARS: usize = 60_000;

/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 200;

/// Maximum length of a paragraph of the plan, in characters.
const MAX_BLOCK_CHARS: usize = 6_000;

/// Maximum length of a line of a list, in characters.
const MAX_LINE_CHARS: usize = 600;

/// Maximum number of items in a list.
const MAX_ITEMS: usize = 50;

/// Invisible character that separates characters which a forge would read together.
const SEPARATOR: char = '\u{200b}';

/// Facts of a change that its description shows.
pub(crate) struct DescribedChange<'a> {
    pub(crate) task: &'a Task,
    pub(crate) plan: &'a Plan,
    /// Gates of the commit, if they ran.
    pub(crate) gates: Option<&'a GatesCheck>,
    /// Review of the commit, if it was reviewed.
    pub(crate) review: Option<&'a ReviewCheck>,
    pub(crate) risk: Option<&'a Risk>,
    /// Unverified claims of the last run.
    pub(crate) claims: Option<&'a RunResult>,
    pub(crate) spend: Spend,
    /// Finished implementation runs.
    pub(crate) iterations: u16,
    /// Agents with their models, each once.
    pub(crate) models: &'a [String],
    /// Number of the issue that the task comes from, in the same repository.
    pub(crate) closes: Option<u64>,
    /// Address of the task's page.
    pub(crate) task_url: Option<&'a str>,
}

/// Returns the last line of everything that Tamma writes, by which it is found again.
pub(crate) fn marker_line(key: &str) -> String {
    format!("<!-- tamma:{key} -->")
}

/// Returns the address of a task's page below the public address of the server.
pub(crate) fn task_url(public_url: Option<&str>, task: TaskId) -> Option<String> {
    public_url.map(|url| format!("{}/tasks/{task}", url.trim_end_matches('/')))
}

/// Returns the title of a pull request.
pub(crate) fn title(task: &Task) -> String {
    let title = break_references(&single_line(&task.title));
    if title.is_empty() { "Change by Tamma".to_owned() } else { shorten(&title, MAX_TITLE_CHARS) }
}

/// Returns the message of a commit that becomes part of a pull request.
pub(crate) fn commit_message(task: &Task, plan: &Plan) -> String {
    let summary = shorten(plan.summary.trim(), MAX_BLOCK_CHARS);
    let summary: Vec<_> = summary.lines().map(|line| no_trailer(message_line(line))).collect();
    format!("{}\n\n{}", message_line(&title(task)), summary.join("\n"))
}

/// Returns the title of a change for the message of a merge commit.
pub(crate) fn merge_title(title: &str, max_chars: usize) -> String {
    shorten(message_line(&single_line(title)).trim(), max_chars)
}

/// Returns a line of untrusted text for the message of a commit. It must not switch CI off, as
/// `[skip ci]` does.
fn message_line(line: &str) -> String {
    break_references(line.trim_end()).replace('[', &format!("[{SEPARATOR}"))
}

/// Changes a line that looks like a trailer, such as `skip-checks: true`.
fn no_trailer(line: String) -> String {
    let is_key = |key: &str| key.chars().all(|it| it.is_ascii_alphanumeric() || it == '-');
    match line.split_once(':') {
        Some((key, value)) if is_key(key.trim()) => format!("{key}{SEPARATOR}:{value}"),
        _ => line,
    }
}

/// Returns the description of a pull request, with its marker.
pub(crate) fn description(change: &DescribedChange<'_>, key: &str) -> String {
    let mut text = String::new();
    let plan = change.plan;
    let _ = writeln!(text, "{}", safe_block(&plan.summary));
    section(&mut text, "Approach", &safe_block(&plan.approach));
    section(&mut text, "Acceptance criteria", &criteria_list(change));
    section(&mut text, "Checks", &checks_text(change));
    section(&mut text, "What to look at", &attention_list(change));
    section(&mut text, "Risk and cost", &facts_list(change));
    let end = closing_lines(change, key);
    // The end is never cut: it closes the issue and carries the marker.
    let room = MAX_BODY_CHARS.saturating_sub(end.chars().count() + 2);
    format!("{}\n\n{end}", shorten(text.trim_end(), room))
}

/// Returns the text of our check: a line, and Markdown.
pub(crate) fn check_text(change: &DescribedChange<'_>) -> (String, String) {
    let Some(review) = change.review else {
        return ("Accepted without a review".to_owned(), checks_text(change));
    };
    let inputs = &review.verdict.inputs;
    let met = inputs.criteria.iter().filter(|criterion| criterion.is_met()).count();
    let verdict = if review.verdict.passed { "Passed" } else { "Accepted by a person" };
    let title = format!(
        "{verdict}: {met} of {} met, score {}",
        pluralize(inputs.criteria.len(), "criterion").replace("criterions", "criteria"),
        review.verdict.score
    );
    let mut text = checks_text(change);
    section(&mut text, "Acceptance criteria", &criteria_list(change));
    (title, shorten(text.trim_end(), MAX_BODY_CHARS))
}

/// Returns the reply to a review thread: the answer of the agent, or its summary.
pub(crate) fn reply(answer: &str, commit: &str) -> String {
    let short: String = commit.chars().take(12).collect();
    format!("{}\n\nUpdated in {short}.", safe_block(answer))
}

/// Adds a section unless it is empty.
fn section(text: &mut String, heading: &str, body: &str) {
    if !body.trim().is_empty() {
        let _ = write!(text, "\n## {heading}\n\n{}\n", body.trim_end());
    }
}

fn closing_lines(change: &DescribedChange<'_>, key: &str) -> String {
    let mut lines = Vec::new();
    if let Some(number) = change.closes {
        lines.push(format!("Closes #{number}\n"));
    }
    if let Some(url) = change.task_url {
        lines.push(format!("[Task in Tamma]({url})\n"));
    }
    lines.push(marker_line(key));
    lines.join("\n")
}

fn criteria_list(change: &DescribedChange<'_>) -> String {
    let mut text = String::new();
    if let Some(review) = change.review {
        for (index, criterion) in review.verdict.inputs.criteria.iter().enumerate().take(MAX_ITEMS)
        {
            let sign = if criterion.is_met() { "x" } else { " " };
            let id = criterion_id(index);
            let _ = writeln!(text, "- [{sign}] {id}: {}", safe_line(&criterion.text));
            let _ = writeln!(text, "  {}", evidence(criterion));
        }
        return text;
    }
    for (index, criterion) in
        change.plan.criteria_of(change.task).iter().enumerate().take(MAX_ITEMS)
    {
        let _ = writeln!(text, "- [ ] {}: {}", criterion_id(index), safe_line(criterion));
    }
    text
}

fn evidence(criterion: &Criterion) -> String {
    match &criterion.judgement {
        CriterionJudgement::Met { evidence, file, line, test } => {
            let mut text = safe_line(evidence);
            if let Some(file) = file {
                let line = line.map(|line| format!(":{line}")).unwrap_or_default();
                let _ = write!(text, " ({})", code(&format!("{file}{line}")));
            }
            if let Some(test) = test {
                let _ = write!(text, " (test {})", code(test));
            }
            if let Some(error) = &criterion.evidence_error {
                let _ = write!(text, " Not verified: {}", safe_line(&error.to_string()));
            }
            text
        }
        CriterionJudgement::Unmet { reason } => format!("Not met: {}", safe_line(reason)),
        CriterionJudgement::Unjudged => "Not judged.".to_owned(),
    }
}

fn checks_text(change: &DescribedChange<'_>) -> String {
    let mut text = String::new();
    if let Some(gates) = change.gates.filter(|gates| !gates.gates.is_empty()) {
        text.push_str("| Gate | Result | Details |\n| --- | --- | --- |\n");
        for gate in gates.gates.iter().take(MAX_ITEMS) {
            let (name, status) = (&gate.verdict.name, humanize(&gate.verdict.status));
            let _ = writeln!(text, "| {} | {status} | {} |", cell(name), cell(&gate_details(gate)));
        }
    }
    if let Some(review) = change.review {
        let verdict = if review.verdict.passed { "passed" } else { "did not pass" };
        let by = review.validator.as_ref().map(|it| {
            let model = it.model.as_deref().map(|model| format!(", {model}")).unwrap_or_default();
            format!(" by {}", safe_line(&format!("{} ({}{model})", it.agent, it.tier)))
        });
        let by = by.unwrap_or_default();
        let _ = writeln!(text, "\nReview{by}: {verdict}, score {} of 100.", review.verdict.score);
    }
    text
}

fn gate_details(gate: &GateRecord) -> String {
    let mut details = Vec::new();
    if let Some(tests) = gate.tests {
        details.push(format!(
            "{} passed, {} failed, {} skipped",
            tests.passed, tests.failed, tests.skipped
        ));
    }
    let verdict = &gate.verdict;
    match verdict.status {
        GateStatus::PreExisting => details.push("the base commit fails too".to_owned()),
        GateStatus::Flaky => details.push("passed when it ran again".to_owned()),
        GateStatus::NotApplicable => details.push("no file that it checks changed".to_owned()),
        GateStatus::Failed | GateStatus::TimedOut => {
            let names: Vec<_> = verdict.new.iter().take(5).map(String::as_str).collect();
            details.push(names.join(", "));
        }
        GateStatus::Passed => {}
    }
    details.retain(|it| !it.is_empty());
    details.join("; ")
}

/// Lists what a reviewer should look at first.
fn attention_list(change: &DescribedChange<'_>) -> String {
    let mut items = Vec::new();
    if let Some(review) = change.review {
        let inputs = &review.verdict.inputs;
        items.extend(inputs.issues.iter().map(issue_line));
        let conformance = &inputs.conformance;
        for (label, paths) in [
            ("Critical file that is not in the plan", &conformance.unplanned_critical),
            ("File that affects checks and is not in the plan", &conformance.unplanned_guarded),
            ("File that is not in the plan", &conformance.unplanned),
        ] {
            items.extend(paths.iter().map(|path| format!("{label}: {}", code(path))));
        }
    }
    if !change.plan.test_changes.is_empty() {
        let tests: Vec<_> = change.plan.test_changes.iter().take(20).map(|it| code(it)).collect();
        items.push(format!("Tests that the plan changes or removes: {}", tests.join(", ")));
    }
    let listed = |label: &'static str, list: &[String]| {
        list.iter().map(move |item| format!("{label}: {}", safe_line(item))).collect::<Vec<_>>()
    };
    items.extend(listed("Risk", &change.plan.risks));
    items.extend(listed("Assumption", &change.plan.assumptions));
    items.extend(listed("Open question", &change.plan.questions));
    if let Some(claims) = change.claims {
        items.extend(listed("Deviation from the plan (says the agent)", &claims.deviations));
        items.extend(listed("Not verified (says the agent)", &claims.unverified));
    }
    if let Some(review) = change.review {
        items.extend(listed("Suggestion for later", &review.verdict.inputs.suggestions));
    }
    let more = items.len().saturating_sub(MAX_ITEMS);
    items.truncate(MAX_ITEMS);
    if more > 0 {
        items.push(format!("and {more} more on the task's page"));
    }
    let mut text = String::new();
    for item in items {
        let _ = writeln!(text, "- {item}");
    }
    text
}

fn issue_line(issue: &Issue) -> String {
    let place = match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!("{}: ", code(&format!("{file}:{line}"))),
        (Some(file), None) => format!("{}: ", code(file)),
        (None, _) => String::new(),
    };
    let severity = capitalize(&issue.severity.to_string());
    format!("{severity} ({}): {place}{}", issue.category, safe_line(&issue.message))
}

fn facts_list(change: &DescribedChange<'_>) -> String {
    let mut text = String::new();
    if let Some(risk) = change.risk {
        let factors: Vec<_> = risk
            .factors
            .iter()
            .map(|(factor, effect)| match effect {
                FactorEffect::Points(points) => format!("{} +{points}", humanize(factor)),
                FactorEffect::AtLeast(level) => format!("{} at least {level}", humanize(factor)),
            })
            .collect();
        let why = if factors.is_empty() { "no risk factor".to_owned() } else { factors.join(", ") };
        let _ = writeln!(text, "- Risk: {} ({why})", risk.level);
    }
    let about = if change.spend.estimated { "about " } else { "" };
    let _ = writeln!(
        text,
        "- Cost: {about}{}, {} tokens, {}",
        format_usd(change.spend.usd),
        format_number(change.spend.tokens),
        pluralize(change.iterations, "attempt")
    );
    if !change.models.is_empty() {
        let models: Vec<_> = change.models.iter().take(20).map(|it| safe_line(it)).collect();
        let _ = writeln!(text, "- Agents: {}", models.join(", "));
    }
    text
}

/// Returns untrusted text as one safe line.
pub(crate) fn safe_line(text: &str) -> String {
    safe_block(&shorten(&single_line(text), MAX_LINE_CHARS))
}

/// Returns untrusted text as safe paragraphs. Code between single backticks stays code; all other
/// Markdown that could reach beyond the text is escaped.
pub(crate) fn safe_block(text: &str) -> String {
    let text = shorten(text.trim(), MAX_BLOCK_CHARS);
    text.lines().map(safe_text_line).collect::<Vec<_>>().join("\n")
}

fn safe_text_line(line: &str) -> String {
    let line: String = line.chars().filter(|it| !is_hidden(*it)).collect();
    let line = line.trim();
    let mut safe = String::new();
    // Headings, fences, rules, quotes, tables and commands of a forge start a line.
    let is_rule =
        line.len() > 1 && line.chars().all(|it| matches!(it, '-' | '=' | '*' | '_' | ' '));
    if is_rule || line.starts_with(['/', '#', '~', '+', '=', ':']) {
        safe.push('\\');
    }
    let parts: Vec<_> = line.split('`').collect();
    let has_pairs = parts.len() % 2 == 1 && !line.contains("``");
    for (index, part) in parts.iter().enumerate() {
        let is_code = has_pairs && index % 2 == 1;
        if is_code {
            safe.push_str(&code(part));
            continue;
        }
        if index > 0 && !has_pairs {
            safe.push_str("\\`");
        }
        for character in break_references(part).chars() {
            match character {
                '<' => safe.push_str("&lt;"),
                '>' => safe.push_str("&gt;"),
                '&' => safe.push_str("&amp;"),
                '\\' | '[' | ']' | '|' | '!' => {
                    safe.push('\\');
                    safe.push(character);
                }
                it => safe.push(it),
            }
        }
    }
    safe
}

/// Returns untrusted text as inline code.
fn code(text: &str) -> String {
    let text = break_references(&single_line(text)).replace('`', "'").replace("<!", "<\u{200b}!");
    format!("`{}`", shorten(&text, MAX_LINE_CHARS))
}

/// Returns text for a cell of a table, which a bar would end even inside code.
fn cell(text: &str) -> String {
    safe_line(&text.replace('|', "/"))
}

/// Returns `true` for control characters, and those that change the direction of text.
fn is_hidden(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Separates characters that a forge would read as a mention, a reference or an address, in a line
/// without hidden characters.
fn break_references(line: &str) -> String {
    let mut broken = String::new();
    // Removed first, because they could stand between two of those characters.
    let mut characters = line.chars().filter(|it| !is_hidden(*it)).peekable();
    while let Some(character) = characters.next() {
        broken.push(character);
        let next = characters.peek().copied();
        let breaks = match character {
            '@' => next.is_some_and(|next| next.is_alphanumeric() || matches!(next, '_' | '-')),
            '#' | '!' => next.is_some_and(|next| next.is_ascii_digit()),
            ':' => next == Some('/'),
            // `GH-1` refers to an issue of GitHub.
            'H' | 'h' => next == Some('-') && ends_with_gh(&broken),
            _ => false,
        };
        if breaks {
            broken.push(SEPARATOR);
        }
    }
    broken
}

fn ends_with_gh(text: &str) -> bool {
    let mut last = text.chars().rev();
    last.next();
    last.next().is_some_and(|it| it.eq_ignore_ascii_case(&'g'))
        && last.next().is_none_or(|it| !it.is_alphanumeric())
}

/// Returns the start of a text, with an ellipsis if something is missing.
fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
#[path = "pull_request_text_tests.rs"]
mod tests;
