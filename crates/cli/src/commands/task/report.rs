//! `tamma task report`: what there is to tell of a task, for people, for pull requests, for programs.

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anyhow::Result;
use clap::{Args, ValueEnum};
use tamma_core::gate::Standing;
use tamma_core::issue::Severity;
use tamma_core::report::{Gate, Iteration, Report, Sitting, Spent, markdown};
use tamma_core::review::{Criterion, Judgement};
use tamma_server::shape::TaskReport;

use crate::client::{self, Client, Target};
use crate::look::{self, FAINT, STRONG, paint, styled, words};
use crate::output::{self, counted, plain};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task: its id, or at least four digits of its beginning or end.
    id: String,
    /// Tells of this iteration only.
    #[arg(long, value_name = "NUMBER")]
    iteration: Option<u16>,
    /// How it is written.
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For a terminal.
    Text,
    /// For a pull request.
    Markdown,
    /// For programs; `--json` says the same.
    Json,
}

/// How many names of one kind are listed.
const LISTED: usize = 10;

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.which(&arguments.id).await?;
        let number = arguments.iteration.map(|number| number.to_string());
        let query: Vec<_> = number.iter().map(|number| ("iteration", number.as_str())).collect();
        let told: TaskReport = client.get(&format!("/tasks/{id}/report"), &query).await?;
        let mut out = anstream::stdout().lock();
        match arguments.format {
            Form::Json => output::json(&told)?,
            _ if arguments.target.json => output::json(&told)?,
            Form::Markdown => {
                // Line by line, because what others wrote must not command the terminal.
                for line in markdown(&told.report).lines() {
                    writeln!(out, "{}", plain(line))?;
                }
            }
            Form::Text => writeln!(out, "{}", text(&told.report))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A report as people read it on a terminal.
fn text(report: &Report) -> String {
    let state = paint(&words(&report.state), look::of_state(report.state));
    let about = if report.spend.estimated { "~" } else { "" };
    let mut text = format!(
        "{}\n{state}, {}, {about}{}, {} tokens",
        styled(&plain(&report.title), STRONG),
        counted(report.iterations.len(), "iteration"),
        look::dollars(report.spend.usd),
        look::number(report.spend.tokens),
    );
    if !report.tiers.is_empty() {
        let tiers: Vec<_> =
            report.tiers.iter().map(|(tier, times)| format!("{tier} ×{times}")).collect();
        add(&mut text, "tiers", &tiers.join(" → "));
    }
    for iteration in &report.iterations {
        text += &one(iteration);
        for sitting in report.councils.iter().filter(|it| it.after == iteration.number) {
            text += &sat(sitting);
        }
        for asked in report.asked.iter().filter(|it| it.after == iteration.number) {
            let line = format!(
                "\n  {} a person was asked: {}",
                sign('?', AnsiColor::Yellow),
                plain(&asked.in_words)
            );
            text += &line;
        }
    }
    if !report.costs.is_empty() {
        look::add(&mut text, format_args!("\n\n{}", styled("cost", STRONG)));
        for (mode, spent) in &report.costs {
            let tokens = look::number(spent.tokens);
            let runs = counted(spent.runs as usize, "run");
            add(&mut text, mode, &format!("{}, {tokens} tokens in {runs}", cost(spent)));
        }
    }
    if let Some(lessons) = report.lessons {
        look::add(&mut text, format_args!("\n\n{}", styled("learned", STRONG)));
        look::add(&mut text, format_args!("\n  {}", counted(lessons.into(), "lesson")));
    }
    text
}

fn one(it: &Iteration) -> String {
    let (mark, colour, word) = match it.passed {
        Some(true) => ('✔', AnsiColor::Green, "passed"),
        Some(false) => ('✖', AnsiColor::Red, "failed"),
        None => ('●', AnsiColor::Blue, "not judged"),
    };
    let tier = it.tier.map(|tier| format!(" {tier}")).unwrap_or_default();
    let mut text = format!(
        "\n\n{} {} {}",
        sign(mark, colour),
        styled(&format!("#{}{tier}", it.number), STRONG),
        paint(word, colour)
    );
    if let Some(score) = it.score {
        look::add(&mut text, format_args!(", score {score}"));
    }
    let commit = it.commit.map(|commit| commit.to_string().chars().take(12).collect::<String>());
    let facts = [commit, Some(cost(&it.cost))].into_iter().flatten().collect::<Vec<_>>().join(", ");
    look::add(&mut text, format_args!("  {}", styled(&facts, FAINT)));
    if let (true, Some(counts)) = (it.gates.is_empty(), it.counts) {
        add(&mut text, "gates", &format!("{} passed, {} failed", counts.passed, counts.failed));
    }
    for gate in &it.gates {
        text += &checked(gate);
    }
    for criterion in &it.criteria {
        text += &judged(criterion);
    }
    for issue in it.issues.iter().filter(|issue| issue.severity > Severity::Info) {
        let place = match (&issue.file, issue.line) {
            (Some(file), Some(line)) => format!("{}:{line}: ", plain(file)),
            (Some(file), None) => format!("{}: ", plain(file)),
            (None, _) => String::new(),
        };
        let colour =
            if issue.severity >= Severity::Error { AnsiColor::Red } else { AnsiColor::Yellow };
        let word = paint(&issue.severity.to_string(), colour);
        look::add(&mut text, format_args!("\n  {word} {place}{}", plain(&issue.message)));
    }
    if let Some(decided) = &it.decided {
        look::add(&mut text, format_args!("\n  {} {}", sign('→', AnsiColor::Cyan), plain(decided)));
    }
    text
}

/// One gate, and what it found.
fn checked(gate: &Gate) -> String {
    let (mark, colour) = match gate.standing {
        Standing::Passed => ('✔', AnsiColor::Green),
        Standing::PreExisting | Standing::Flaky => ('!', AnsiColor::Yellow),
        Standing::Failed | Standing::TimedOut => ('✖', AnsiColor::Red),
    };
    let mut text =
        format!("\n  {} {} {}", sign(mark, colour), plain(&gate.name), words(&gate.standing));
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
        for name in names.iter().take(LISTED) {
            look::add(&mut text, format_args!("\n      {} {}", styled(word, FAINT), plain(name)));
        }
        if names.len() > LISTED {
            let more = names.len() - LISTED;
            look::add(&mut text, format_args!("\n      {} and {more} more", styled(word, FAINT)));
        }
    }
    text
}

fn judged(criterion: &Criterion) -> String {
    let (mark, colour, why) = match &criterion.judgement {
        Judgement::Met { evidence, .. } if criterion.is_met() => {
            ('✔', AnsiColor::Green, evidence.as_str())
        }
        Judgement::Met { .. } => ('✖', AnsiColor::Red, "no evidence was given"),
        Judgement::Unmet { why } => ('✖', AnsiColor::Red, why.as_str()),
        Judgement::Unjudged => ('✖', AnsiColor::Red, "nobody judged it"),
    };
    format!("\n  {} {} {}", sign(mark, colour), plain(&criterion.text), styled(&plain(why), FAINT))
}

fn sat(sitting: &Sitting) -> String {
    let mut text = format!(
        "\n\n{} {}",
        sign('◆', AnsiColor::BrightRed),
        styled(&format!("council {}", sitting.number), STRONG)
    );
    for (seat, said) in &sitting.members {
        let said = if said.is_some() { "gave an opinion" } else { "was absent" };
        look::add(&mut text, format_args!("\n  {} {said}", plain(seat)));
    }
    for line in sitting.conclusion.iter().flat_map(|text| text.trim().lines()) {
        look::add(&mut text, format_args!("\n{}", format!("  │ {}", plain(line)).trim_end()));
    }
    text
}

fn sign(mark: char, colour: AnsiColor) -> String {
    paint(&mark.to_string(), colour)
}

fn add(text: &mut String, name: &str, value: &str) {
    look::add(text, format_args!("\n  {} {}", styled(&format!("{name:<10}"), FAINT), plain(value)));
}

fn cost(spent: &Spent) -> String {
    match spent.unknown {
        0 => look::dollars(spent.usd),
        all if all == spent.runs => "unknown cost".to_owned(),
        some => format!("{} and {some} unknown", look::dollars(spent.usd)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that failed twice and passed once, with a council in between.
    fn report() -> Report {
        let text = include_str!("../../../tests/fixtures/report.json");
        serde_json::from_str(text).expect("a report")
    }

    #[test]
    fn a_report_reads_well_on_a_terminal() {
        insta::assert_snapshot!(anstream::adapter::strip_str(&text(&report())));
    }

    #[test]
    fn a_report_is_markdown_for_a_pull_request() {
        insta::assert_snapshot!(markdown(&report()));
    }

    #[test]
    fn one_iteration_is_told_of_alone() {
        let only = report().only(2).expect("the second");
        insta::assert_snapshot!(anstream::adapter::strip_str(&text(&only)));
        assert!(report().only(9).is_none());
    }
}
