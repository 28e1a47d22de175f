//! Accuracy of the chat grammar on labelled messages, without a model.
//!
//! Prints the accuracy by part of the set, by intent and by difficulty, and the mistakes of the tuning
//! part. `--held` also prints the mistakes of the other parts; do not tune on those. The part `seen` is the
//! first blind set, which the grammar has learned from since. The part `blind 2` is by an author who has
//! not seen the grammar; nobody tunes on it. Both are counted on their own.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]

#[expect(clippy::expect_used, reason = "shared with the tests of the chat")]
#[path = "../../crates/chat/tests/it/grammar/labelled.rs"]
mod labelled;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use self::labelled::{Message, Reading, blind_messages, messages, seen_messages, wordings};
use crate::support::verdict::Verdict;

/// Parts of the set.
const PARTS: [&str; 6] = ["tune", "held", "fresh", "seen", "wordings", "blind 2"];

/// Parts that count on their own, besides the whole set.
const OWN_PARTS: [&str; 3] = ["seen", "wordings", "blind 2"];

/// Target share of right intents in the held part and in the whole set.
const GOAL: f64 = 0.9;

/// Target share of right intents in the blind part. It is not reached.
const BLIND_GOAL: f64 = 0.92;

/// Share of right intents that was measured on the blind part. Below it, something was lost.
const BLIND_MEASURED: f64 = 0.84;

/// Blind messages that are read as another change of the right task, which the person has to confirm.
const BLIND_WRONG_CHANGES: u32 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also print the mistakes of the parts that are not for tuning
    #[arg(long)]
    held: bool,
}

/// Number of messages: all, with the right intent, completely right, and read as a change that they do
/// not request.
#[derive(Debug, Default, Clone, Copy)]
struct GrammarScore {
    all: u32,
    intent: u32,
    complete: u32,
    wrong_changes: u32,
}

impl GrammarScore {
    fn add(&mut self, reading: &Reading) {
        self.all += 1;
        self.intent += u32::from(reading.right);
        self.complete += u32::from(reading.whole);
        self.wrong_changes += u32::from(reading.wrong_change);
    }

    fn share(part: u32, all: u32) -> f64 {
        if all == 0 { 1.0 } else { f64::from(part) / f64::from(all) }
    }

    fn intent_share(self) -> f64 {
        Self::share(self.intent, self.all)
    }

    fn complete_share(self) -> f64 {
        Self::share(self.complete, self.all)
    }
}

pub(crate) fn run(arguments: &Args) -> Result<Verdict> {
    let mut parts = BTreeMap::<&str, GrammarScore>::new();
    let mut intents = BTreeMap::<&str, [GrammarScore; 6]>::new();
    let mut hard = BTreeMap::<String, GrammarScore>::new();
    let others = seen_messages().iter().chain(wordings()).chain(blind_messages());
    for message in messages().iter().chain(others) {
        let reading = message.read();
        let whole = (!OWN_PARTS.contains(&&*message.split)).then_some("all");
        for name in whole.into_iter().chain([&*message.split]) {
            parts.entry(name).or_default().add(&reading);
        }
        let part = PARTS.iter().position(|part| *part == message.split);
        let part = part.with_context(|| format!("{}: unknown part of the set", message.id))?;
        intents.entry(&message.intent).or_default()[part].add(&reading);
        for kind in &reading.hard {
            hard.entry(kind.clone()).or_default().add(&reading);
        }
        if !reading.whole && (message.split == "tune" || arguments.held) {
            print_mistake(message, &reading);
        }
    }
    println!(
        "\n{:<16} {:>5} {:>8} {:>8} {:>14}",
        "part", "of", "intent", "complete", "wrong changes"
    );
    for (name, score) in &parts {
        println!(
            "{name:<16} {:>5} {:>8.3} {:>8.3} {:>14}",
            score.all,
            score.intent_share(),
            score.complete_share(),
            score.wrong_changes
        );
    }
    println!("\n{:<16} {}", "intent right of", columns(PARTS.map(str::to_owned)));
    for (name, parts) in &intents {
        let shares = parts.map(|it| format!("{:.2} of {:>3}", it.intent_share(), it.all));
        println!("{name:<16} {}", columns(shares));
    }
    println!("\n{:<16} {:>5} {:>8} {:>8}", "hard", "of", "intent", "complete");
    for (name, score) in &hard {
        println!(
            "{name:<16} {:>5} {:>8.2} {:>8.2}",
            score.all,
            score.intent_share(),
            score.complete_share()
        );
    }
    println!();
    let of = |name: &str| parts.get(name).copied().unwrap_or_default();
    let figures: Vec<_> = PARTS
        .into_iter()
        .chain(["all"])
        .filter(|name| of(name).all > 0)
        .map(|name| format!("{name} {:.3} of {}", of(name).intent_share(), of(name).all))
        .collect();
    let is_safe = parts.iter().all(|(name, score)| {
        let known = if *name == "blind 2" { BLIND_WRONG_CHANGES } else { 0 };
        score.wrong_changes <= known
    });
    let blind = of("blind 2").intent_share();
    let passed = is_safe
        && ["held", "all"].iter().all(|name| of(name).intent_share() >= GOAL)
        && blind >= BLIND_MEASURED;
    let goal = if blind >= BLIND_GOAL { "reached" } else { "not reached" };
    let figures = figures.join(", ");
    Ok(Verdict::new(passed, format!("right intents: {figures}; blind goal {BLIND_GOAL}: {goal}")))
}

fn columns(texts: [String; 6]) -> String {
    texts.map(|text| format!("{text:>12}")).join(" ")
}

fn print_mistake(message: &Message, reading: &Reading) {
    println!(
        "{} {} {:?}\n     expected {} {:?}\n     found    {} {:?} ({})",
        message.id,
        if reading.right { "slots " } else { "INTENT" },
        message.text,
        message.intent,
        reading.wanted,
        reading.found.intent.name(),
        reading.slots,
        reading.found.explanation,
    );
}
