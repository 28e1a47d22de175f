//! A report as Markdown.

use std::fmt::Write as _;

use super::{Gate, Iteration, Report, Sitting, Spent};
use crate::cost::Usd;
use crate::gate::Standing;
use crate::review::Judgement;

/// How many names of one kind are listed.
const LISTED: usize = 20;

/// A report as Markdown, for a pull request.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n\n", line(&report.title));
    let state = report.state.to_string().replace('_', " ");
    let about = if report.spend.estimated { "about " } else { "" };
    let _ = writeln!(
        text,
        "It is {state}, after {}, for {about}{} and {} tokens.",
        counted(report.iterations.len(), "iteration"),
        dollars(report.spend.usd),
        report.spend.tokens
    );
    if !report.tiers.is_empty() {
        let tiers: Vec<_> =
            report.tiers.iter().map(|(tier, times)| format!("{tier} ×{times}")).collect();
        let _ = writeln!(text, "Tiers: {}.", tiers.join(", "));
    }
    for iteration in &report.iterations {
        let _ = write!(text, "\n{}", one(iteration));
        for sitting in report.councils.iter().filter(|it| it.after == iteration.number) {
            let _ = write!(text, "\n{}", sat(sitting));
        }
        for asked in report.asked.iter().filter(|it| it.after == iteration.number) {
            let _ = writeln!(text, "\nA person was asked: {}.", asked.in_words);
        }
    }
    if !report.costs.is_empty() {
        text.push_str(
            "\n## Cost\n\n| runs to | number | cost | tokens |\n| --- | --: | --: | --: |\n",
        );
        for (mode, spent) in &report.costs {
            let _ =
                writeln!(text, "| {mode} | {} | {} | {} |", spent.runs, cost(spent), spent.tokens);
        }
    }
    if let Some(lessons) = report.lessons {
        let _ = writeln!(text, "\n## Learned\n\n{}.", counted(lessons.into(), "lesson"));
    }
    text
}

fn one(it: &Iteration) -> String {
    let tier = it.tier.map(|tier| format!(" ({tier})")).unwrap_or_default();
    let passed = match it.passed {
        Some(true) => "passed",
        Some(false) => "failed",
        None => "not judged",
    };
    let mut text = format!("## Iteration {}{tier}: {passed}\n\n", it.number);
    let mut facts = Vec::new();
    if let Some(commit) = it.commit {
        facts.push(format!("commit `{}`", commit.to_string().get(..12).unwrap_or_default()));
    }
    if let Some(score) = it.score {
        facts.push(format!("score {score}"));
    }
    facts.push(format!("cost {}", cost(&it.cost)));
    let _ = writeln!(text, "{}.", capital(&facts.join(", ")));
    if !it.gates.is_empty() {
        text.push_str("\n| gate | kind | result | what |\n| --- | --- | --- | --- |\n");
        for gate in &it.gates {
            let standing = gate.standing.to_string().replace('_', " ");
            let standing = if failed(gate) { format!("**{standing}**") } else { standing };
            let _ =
                writeln!(text, "| {} | {} | {standing} | {} |", gate.name, gate.kind, what(gate));
        }
    } else if let Some(counts) = it.counts {
        let _ = writeln!(text, "\nGates: {} passed, {} failed.", counts.passed, counts.failed);
    }
    if !it.criteria.is_empty() {
        text.push('\n');
    }
    for criterion in &it.criteria {
        let (sign, why) = match &criterion.judgement {
            Judgement::Met { evidence, .. } if criterion.is_met() => ("x", evidence.as_str()),
            Judgement::Met { .. } => (" ", "no evidence was given"),
            Judgement::Unmet { why } => (" ", why.as_str()),
            Judgement::Unjudged => (" ", "nobody judged it"),
        };
        let _ = writeln!(text, "- [{sign}] {}: {}", line(&criterion.text), line(why));
    }
    if !it.issues.is_empty() {
        text.push('\n');
    }
    for issue in &it.issues {
        let place = match (&issue.file, issue.line) {
            (Some(file), Some(at)) => format!("`{file}:{at}`: "),
            (Some(file), None) => format!("`{file}`: "),
            (None, _) => String::new(),
        };
        let _ = writeln!(
            text,
            "- {} ({}): {place}{}",
            issue.severity,
            issue.category,
            line(&issue.message)
        );
    }
    if let Some(decided) = &it.decided {
        let _ = writeln!(text, "\nDecision: {decided}.");
    }
    text
}

fn failed(gate: &Gate) -> bool {
    matches!(gate.standing, Standing::Failed | Standing::TimedOut)
}

/// What there is to say of a gate.
fn what(gate: &Gate) -> String {
    let mut parts = Vec::new();
    if let Some(tests) = gate.tests {
        parts.push(format!(
            "{} passed, {} failed, {} skipped",
            tests.passed, tests.failed, tests.skipped
        ));
    }
    for (word, names) in [
        ("new", &gate.new),
        ("missing", &gate.missing),
        ("pre-existing", &gate.pre_existing),
        ("flaky", &gate.flaky),
    ] {
        if names.is_empty() {
            continue;
        }
        let more = names.len().saturating_sub(LISTED);
        let mut listed: Vec<_> = names
            .iter()
            .take(LISTED)
            .map(|name| format!("`{}`", line(name).replace('|', "\\|")))
            .collect();
        if more > 0 {
            listed.push(format!("and {more} more"));
        }
        parts.push(format!("{word}: {}", listed.join(", ")));
    }
    parts.join("; ")
}

fn sat(sitting: &Sitting) -> String {
    let mut text = format!("### Council {}\n\n", sitting.number);
    for (seat, said) in &sitting.members {
        let said = if said.is_some() { "gave an opinion" } else { "was absent" };
        let _ = writeln!(text, "- {seat} {said}");
    }
    if let Some(conclusion) = &sitting.conclusion {
        // Its headings go below this one.
        let _ = writeln!(text, "\n<details><summary>What it concluded</summary>\n");
        for line in conclusion.trim().lines() {
            let below = if line.starts_with('#') { "###" } else { "" };
            let _ = writeln!(text, "{below}{line}");
        }
        text.push_str("\n</details>\n");
    }
    text
}

fn cost(spent: &Spent) -> String {
    match spent.unknown {
        0 => dollars(spent.usd),
        all if all == spent.runs => "unknown".to_owned(),
        some => format!("{} and {some} unknown", dollars(spent.usd)),
    }
}

/// An amount of money, with at least two digits after the point.
fn dollars(usd: Usd) -> String {
    let text = usd.to_string();
    match text.split_once('.').map(|(_, cents)| cents.len()) {
        None => format!("{text}.00"),
        Some(1) => format!("{text}0"),
        Some(_) => text,
    }
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A text on one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
