//! How entries are shown.

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anyhow::Result;
use comfy_table::Cell;
use tamma_core::knowledge::{Scope, Severity, Status};
use tamma_server::shape::{
    Knowledge, KnowledgeAnswer, KnowledgeList, KnowledgeMatch, KnowledgeTally, Projects,
};
use tamma_store::MatchRole;

use crate::commands::task::list::{colour, drawn, table};
use crate::look::{self, FAINT, STRONG, ago, paint, styled};
use crate::output::{self, counted, plain};

/// How much of a text a list shows.
const SHOWN: usize = 90;

/// What is said where there is nothing at all.
pub(super) const NOTHING: &str = "Nothing is known yet. `tamma knowledge add` writes something down, \
    and\n`tamma knowledge import` reads what the repository already says.";

pub(super) fn list(list: &KnowledgeList, nothing: &str, json: bool) -> Result<ExitCode> {
    if json {
        output::json(list)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    if list.entries.is_empty() {
        writeln!(out, "{nothing}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(&["ID", "KIND", "SEVERITY", "STATUS", "TEXT"]);
    for known in &list.entries {
        let entry = &known.entry;
        let mut text: String = plain(entry.text.lines().next().unwrap_or_default());
        if text.chars().count() > SHOWN || entry.text.lines().count() > 1 {
            text = text.chars().take(SHOWN).collect::<String>().trim_end().to_owned() + " …";
        }
        let doubt = if known.hazards.is_empty() { "" } else { " !" };
        table.add_row([
            Cell::new(&known.short),
            Cell::new(entry.kind),
            Cell::new(entry.severity).fg(colour(of_severity(entry.severity))),
            Cell::new(format!("{}{doubt}", entry.status)).fg(colour(of_status(entry.status))),
            Cell::new(text),
        ]);
    }
    writeln!(out, "{}", drawn(&table))?;
    for known in list.entries.iter().filter(|known| !known.offers.is_empty()) {
        writeln!(out, "\n{}", styled(&known.short, STRONG))?;
        for offer in &known.offers {
            writeln!(out, "  {} {}", paint("!", AnsiColor::Yellow), plain(offer))?;
        }
        writeln!(out, "  `tamma knowledge retire {}` takes it out of force.", known.short)?;
    }
    if list.entries.iter().any(|known| !known.hazards.is_empty()) {
        writeln!(out, "\n! There is something to look at twice: `tamma knowledge show ENTRY`.")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn one(known: &Knowledge, projects: &Projects, json: bool) -> Result<ExitCode> {
    if json {
        output::json(known)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", whole(known, Some(projects)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn changed(known: &Knowledge, what: &str, json: bool) -> Result<ExitCode> {
    if json {
        output::json(known)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{} {what}.", styled(&known.short, STRONG))?;
    for hazard in &known.hazards {
        writeln!(out, "  {} {}", paint("!", AnsiColor::Yellow), plain(hazard))?;
    }
    if known.entry.status == Status::Pending {
        writeln!(out, "`tamma knowledge approve {}` lets it have effect.", known.short)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Why an entry is not approved just so.
pub(super) fn hazards(known: &Knowledge, json: bool) -> Result<()> {
    if json {
        output::json(known)?;
    }
    let mut out = anstream::stderr().lock();
    writeln!(out, "{}", whole(known, None))?;
    writeln!(
        out,
        "\nIt is not approved, because there is something to look at twice (see above)."
    )?;
    writeln!(out, "If you have: tamma knowledge approve {} --despite", known.short)?;
    writeln!(out, "Or mend it:  tamma knowledge edit {} --help", known.short)?;
    Ok(())
}

pub(super) fn answer(answer: &KnowledgeAnswer, json: bool) -> Result<()> {
    if json {
        return output::json(answer);
    }
    let mut out = anstream::stdout().lock();
    if !answer.matches.is_empty() {
        writeln!(out, "{}\n", matches(&answer.matches))?;
    }
    let said = match (answer.can_proceed, answer.matches.is_empty()) {
        (true, true) => "Nothing that is known has to do with this plan.",
        (true, false) => "No critical prohibition stands in the way of this plan.",
        (false, _) => "The plan does what is forbidden: a person would have to decide.",
    };
    writeln!(out, "{said}")?;
    Ok(())
}

/// What the team knows about a plan: what each says, why it matched and where it comes from.
pub(in crate::commands) fn matches(all: &[KnowledgeMatch]) -> String {
    let mut text = String::new();
    for found in all {
        let shade = match found.role {
            MatchRole::Blocker => AnsiColor::Red,
            MatchRole::Warning => AnsiColor::Yellow,
            _ => AnsiColor::Green,
        };
        let role = paint(&format!("{:<14}", found.role.to_string()), shade);
        let said = plain(&one_line(&found.text));
        look::add(&mut text, format_args!("\n  {role} {}  {said}", styled(&found.short, STRONG)));
        let mut because = found.because.clone();
        if because.is_empty() {
            because.push("it speaks of the same things".to_owned());
        }
        let mut from = found.evidence.clone();
        from.extend(found.owner.iter().map(|owner| format!("ask {owner}")));
        let from = if from.is_empty() { String::new() } else { format!(" ({})", from.join(", ")) };
        let why = plain(&format!("because {}{from}", because.join(", and ")));
        look::add(&mut text, format_args!("\n  {:14} {}", "", styled(&why, FAINT)));
    }
    text.trim_start_matches('\n').to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How some tasks went, in words.
fn went(tally: &KnowledgeTally) -> String {
    if tally.tasks == 0 {
        return "no task yet".to_owned();
    }
    let average = |sum: String| format!("{sum} each");
    let tenths = tally.iterations * 10 / u64::from(tally.tasks);
    let cost = tally.cost_usd.shared_by(tally.tasks.into()).unwrap_or(tally.cost_usd);
    format!(
        "{}, {} passed at once, {}, {}",
        counted(tally.tasks as usize, "task"),
        tally.first_pass,
        average(format!("{}.{} iterations", tenths / 10, tenths % 10)),
        average(look::dollars(cost)),
    )
}

fn whole(known: &Knowledge, projects: Option<&Projects>) -> String {
    let entry = &known.entry;
    let mut text =
        format!("{}  {}", styled(&known.short, STRONG), styled(&entry.kind.to_string(), STRONG));
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            look::add(
                &mut text,
                format_args!("\n  {} {value}", styled(&format!("{name:<10}"), FAINT)),
            );
        }
    };
    row("status", paint(&entry.status.to_string(), of_status(entry.status)));
    row("severity", paint(&entry.severity.to_string(), of_severity(entry.severity)));
    row(
        "holds in",
        match entry.scope {
            Scope::Organisation => "every project".to_owned(),
            Scope::Project(id) => {
                let all = projects.map(|it| it.projects.as_slice()).unwrap_or_default();
                let name = all.iter().find(|it| it.id == id.0).map(|it| plain(&it.name));
                name.unwrap_or_else(|| format!("project {id}"))
            }
        },
    );
    row("paths", plain(&entry.globs.join(", ")));
    row("types", entry.task_types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    row("words", plain(&entry.keywords.join(", ")));
    row("actions", entry.actions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    row("pattern", entry.pattern.as_deref().map(plain).unwrap_or_default());
    row("owner", entry.owner.as_ref().map(|owner| plain(owner.as_str())).unwrap_or_default());
    row("expires", entry.expires_at.map(|at| at.date_naive().to_string()).unwrap_or_default());
    for evidence in &entry.evidence {
        row("evidence", plain(evidence.as_str()));
    }
    for hazard in &known.hazards {
        row("look twice", paint(&plain(hazard), AnsiColor::Yellow));
    }
    let now = look::now();
    if let Some(effect) = &known.effect {
        let since = effect.last_matched_at.map(|at| format!(", the last {}", ago(at, now)));
        let stopped = match effect.stopped {
            0 => String::new(),
            some => format!(", {some} of them stopped"),
        };
        let tasks = counted(effect.matched as usize, "task");
        row("matched", format!("{tasks}{stopped}{}", since.unwrap_or_default()));
        if effect.since.is_some() {
            row("with it", went(&effect.with));
            row("without", went(&effect.without));
            row("effect", effect.in_words.clone());
        }
    }
    for offer in &known.offers {
        row("retire?", paint(&plain(offer), AnsiColor::Yellow));
    }
    for change in &known.changes {
        let by = change.by.as_deref().map(|by| format!(" by {}", plain(by))).unwrap_or_default();
        let why =
            change.reason.as_deref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
        row("change", format!("{}{by} {}{why}", change.deed, ago(change.at, now)));
    }
    row("id", entry.id.to_string());
    let said: Vec<_> = entry.text.lines().map(|line| format!("  {}", plain(line))).collect();
    look::add(&mut text, format_args!("\n\n{}", said.join("\n")));
    text
}

fn of_status(status: Status) -> AnsiColor {
    match status {
        Status::Pending => AnsiColor::Yellow,
        Status::Approved => AnsiColor::Green,
        Status::Rejected | Status::Retired => AnsiColor::BrightBlack,
    }
}

fn of_severity(severity: Severity) -> AnsiColor {
    match severity {
        Severity::Critical => AnsiColor::Red,
        Severity::High => AnsiColor::Yellow,
        Severity::Medium => AnsiColor::Blue,
        Severity::Low => AnsiColor::BrightBlack,
    }
}
