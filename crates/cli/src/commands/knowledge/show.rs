//! Terminal output of knowledge entries.

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anyhow::Result;
use comfy_table::Cell;
use tamma_core::format::single_line;
use tamma_core::knowledge::{EntryScope, EntrySeverity, EntryStatus};
use tamma_server::dto::{
    KnowledgeCheckResult, KnowledgeEntryDetail, KnowledgeList, KnowledgeMatch, KnowledgeTaskStats,
    ProjectList,
};
use tamma_store::MatchRole;

use crate::commands::task::list::{new_table, render_table, table_colour};
use crate::output::{self, pluralize, sanitize};
use crate::style::{self, FAINT, STRONG, format_ago, paint, styled};

/// Maximum number of characters of a text in a list.
const MAX_TEXT_CHARS: usize = 90;

/// Message for an empty knowledge base.
pub(super) const EMPTY_MESSAGE: &str = "No knowledge entries yet. Add one with `tamma knowledge add`, \
    or\nimport project documents with `tamma knowledge import`.";

pub(super) fn print_list(list: &KnowledgeList, nothing: &str, json: bool) -> Result<ExitCode> {
    if json {
        output::print_json(list)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    if list.entries.is_empty() {
        writeln!(out, "{nothing}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = new_table(&["ID", "KIND", "SEVERITY", "STATUS", "TEXT"]);
    for detail in &list.entries {
        let entry = &detail.entry;
        let mut text: String = sanitize(entry.text.lines().next().unwrap_or_default());
        if text.chars().count() > MAX_TEXT_CHARS || entry.text.lines().count() > 1 {
            text =
                text.chars().take(MAX_TEXT_CHARS).collect::<String>().trim_end().to_owned() + " …";
        }
        let mark = if detail.warnings.is_empty() { "" } else { " !" };
        table.add_row([
            Cell::new(&detail.short),
            Cell::new(entry.kind),
            Cell::new(entry.severity).fg(table_colour(severity_colour(entry.severity))),
            Cell::new(format!("{}{mark}", entry.status))
                .fg(table_colour(status_colour(entry.status))),
            Cell::new(text),
        ]);
    }
    writeln!(out, "{}", render_table(&table))?;
    for detail in list.entries.iter().filter(|detail| !detail.retirement_suggestions.is_empty()) {
        writeln!(out, "\n{}", styled(&detail.short, STRONG))?;
        for suggestion in &detail.retirement_suggestions {
            writeln!(out, "  {} {}", paint("!", AnsiColor::Yellow), sanitize(suggestion))?;
        }
        writeln!(out, "  Retire it with `tamma knowledge retire {}`", detail.short)?;
    }
    if list.entries.iter().any(|detail| !detail.warnings.is_empty()) {
        writeln!(out, "\n! Content warnings: see `tamma knowledge show ENTRY`")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn print_entry(
    detail: &KnowledgeEntryDetail,
    projects: &ProjectList,
    json: bool,
) -> Result<ExitCode> {
    if json {
        output::print_json(detail)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_entry(detail, Some(projects)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn print_change(
    detail: &KnowledgeEntryDetail,
    what: &str,
    json: bool,
) -> Result<ExitCode> {
    if json {
        output::print_json(detail)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{} {what}.", styled(&detail.short, STRONG))?;
    for warning in &detail.warnings {
        writeln!(out, "  {} {}", paint("!", AnsiColor::Yellow), sanitize(warning))?;
    }
    if detail.entry.status == EntryStatus::Pending {
        writeln!(out, "Approve it with `tamma knowledge approve {}`", detail.short)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the content warnings that prevent an approval without `--despite`.
pub(super) fn print_content_warnings(detail: &KnowledgeEntryDetail, json: bool) -> Result<()> {
    if json {
        output::print_json(detail)?;
    }
    let mut out = anstream::stderr().lock();
    writeln!(out, "{}", format_entry(detail, None))?;
    writeln!(out, "\nNot approved: the entry has content warnings (see above).")?;
    writeln!(out, "To approve it anyway: tamma knowledge approve {} --despite", detail.short)?;
    writeln!(out, "To edit it:           tamma knowledge edit {} --help", detail.short)?;
    Ok(())
}

pub(super) fn print_check_result(result: &KnowledgeCheckResult, json: bool) -> Result<()> {
    if json {
        return output::print_json(result);
    }
    let mut out = anstream::stdout().lock();
    if !result.matches.is_empty() {
        writeln!(out, "{}\n", format_matches(&result.matches))?;
    }
    let message = match (result.can_proceed, result.matches.is_empty()) {
        (true, true) => "No matching entries. The plan can proceed.",
        (true, false) => "No critical prohibition applies. The plan can proceed.",
        (false, _) => "A critical prohibition blocks this plan. A person would have to decide.",
    };
    writeln!(out, "{message}")?;
    Ok(())
}

/// Formats the entries that match a plan: text, reasons and evidence.
pub(in crate::commands) fn format_matches(matches: &[KnowledgeMatch]) -> String {
    let mut text = String::new();
    for entry in matches {
        let colour = match entry.role {
            MatchRole::Blocker => AnsiColor::Red,
            MatchRole::Warning => AnsiColor::Yellow,
            _ => AnsiColor::Green,
        };
        let role = paint(&format!("{:<14}", entry.role.to_string()), colour);
        let entry_text = sanitize(&single_line(&entry.text));
        style::push_fmt(
            &mut text,
            format_args!("\n  {role} {}  {entry_text}", styled(&entry.short, STRONG)),
        );
        let mut reasons = entry.reason_texts.clone();
        if reasons.is_empty() {
            reasons.push("its content is similar".to_owned());
        }
        let mut sources = entry.evidence.clone();
        sources.extend(entry.owner.iter().map(|owner| format!("ask {owner}")));
        let sources =
            if sources.is_empty() { String::new() } else { format!(" ({})", sources.join(", ")) };
        let explanation = sanitize(&format!("because {}{sources}", reasons.join(", and ")));
        style::push_fmt(&mut text, format_args!("\n  {:14} {}", "", styled(&explanation, FAINT)));
    }
    text.trim_start_matches('\n').to_owned()
}

/// Formats the results of several tasks.
fn format_tally(tally: &KnowledgeTaskStats) -> String {
    if tally.tasks == 0 {
        return "no tasks yet".to_owned();
    }
    let average = |sum: String| format!("{sum} each");
    let tenths = tally.iterations * 10 / u64::from(tally.tasks);
    let cost = tally.cost_usd.checked_div(tally.tasks.into()).unwrap_or(tally.cost_usd);
    format!(
        "{}, {} passed on the first attempt, {}, {}",
        pluralize(tally.tasks as usize, "task"),
        tally.first_pass,
        average(format!("{}.{} attempts", tenths / 10, tenths % 10)),
        average(style::format_usd(cost)),
    )
}

fn format_entry(detail: &KnowledgeEntryDetail, projects: Option<&ProjectList>) -> String {
    let entry = &detail.entry;
    let mut text =
        format!("{}  {}", styled(&detail.short, STRONG), styled(&entry.kind.to_string(), STRONG));
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            style::push_fmt(
                &mut text,
                format_args!("\n  {} {value}", styled(&format!("{name:<10}"), FAINT)),
            );
        }
    };
    row("status", paint(&entry.status.to_string(), status_colour(entry.status)));
    row("severity", paint(&entry.severity.to_string(), severity_colour(entry.severity)));
    row(
        "scope",
        match entry.scope {
            EntryScope::Organisation => "every project".to_owned(),
            EntryScope::Project(id) => {
                let all = projects.map(|it| it.projects.as_slice()).unwrap_or_default();
                let name = all.iter().find(|it| it.id == id.0).map(|it| sanitize(&it.name));
                name.unwrap_or_else(|| format!("project {id}"))
            }
        },
    );
    if let Some(origin) = &entry.origin {
        row("title", sanitize(&origin.title));
        row("occasion", origin.occasion.to_string());
    }
    row("paths", sanitize(&entry.globs.join(", ")));
    row("types", entry.task_types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    row("keywords", sanitize(&entry.keywords.join(", ")));
    row("actions", entry.actions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    row("pattern", entry.pattern.as_deref().map(sanitize).unwrap_or_default());
    row("owner", entry.owner.as_ref().map(|owner| sanitize(owner.as_str())).unwrap_or_default());
    row("expires", entry.expires_at.map(|at| at.date_naive().to_string()).unwrap_or_default());
    for evidence in &entry.evidence {
        row("evidence", sanitize(evidence.as_str()));
    }
    for warning in &detail.warnings {
        row("warning", paint(&sanitize(warning), AnsiColor::Yellow));
    }
    let now = style::now();
    if let Some(effect) = &detail.effect {
        let since = effect.last_matched_at.map(|at| format!(", last {}", format_ago(at, now)));
        let stopped = match effect.stopped {
            0 => String::new(),
            some => format!(", {some} blocked"),
        };
        let tasks = pluralize(effect.matched as usize, "task");
        row("matched", format!("{tasks}{stopped}{}", since.unwrap_or_default()));
        if effect.since.is_some() {
            row("with it", format_tally(&effect.with));
            row("without", format_tally(&effect.without));
            row("effect", effect.verdict_text.clone());
        }
    }
    for suggestion in &detail.retirement_suggestions {
        row("retire?", paint(&sanitize(suggestion), AnsiColor::Yellow));
    }
    for change in &detail.changes {
        let by = change.by.as_deref().map(|by| format!(" by {}", sanitize(by))).unwrap_or_default();
        let reason = change
            .reason
            .as_deref()
            .map(|reason| format!(": {}", sanitize(reason)))
            .unwrap_or_default();
        row("change", format!("{}{by} {}{reason}", change.action, format_ago(change.at, now)));
    }
    row("id", entry.id.to_string());
    let lines: Vec<_> = entry.text.lines().map(|line| format!("  {}", sanitize(line))).collect();
    style::push_fmt(&mut text, format_args!("\n\n{}", lines.join("\n")));
    text
}

fn status_colour(status: EntryStatus) -> AnsiColor {
    match status {
        EntryStatus::Pending => AnsiColor::Yellow,
        EntryStatus::Approved => AnsiColor::Green,
        EntryStatus::Rejected | EntryStatus::Retired => AnsiColor::BrightBlack,
    }
}

fn severity_colour(severity: EntrySeverity) -> AnsiColor {
    match severity {
        EntrySeverity::Critical => AnsiColor::Red,
        EntrySeverity::High => AnsiColor::Yellow,
        EntrySeverity::Medium => AnsiColor::Blue,
        EntrySeverity::Low => AnsiColor::BrightBlack,
    }
}
