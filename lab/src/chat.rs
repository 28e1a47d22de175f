//! Accuracy of the chat grammar on labelled messages, without a model.
//!
//! Prints the accuracy by part of the set, by intent and by difficulty, and the mistakes of the tuning
//! part. `--held` also prints the mistakes of the other parts; do not tune on those. The `blind` part is
//! by an author who has not seen the grammar, and is counted on its own.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]

#[expect(clippy::expect_used, reason = "shared with the tests of the chat")]
#[path = "../../crates/chat/tests/it/grammar/labelled.rs"]
mod labelled;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use self::labelled::{Message, Reading, blind_messages, messages};
use crate::support::verdict::Verdict;

/// Parts of the set.
const PARTS: [&str; 4] = ["tune", "held", "fresh", "blind"];

/// Target share of right intents in the held part and in the whole set.
const GOAL: f64 = 0.9;

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
    let mut intents = BTreeMap::<&str, [GrammarScore; 4]>::new();
    let mut hard = BTreeMap::<String, GrammarScore>::new();
    for message in messages().iter().chain(blind_messages()) {
        let reading = message.read();
        // The blind messages are a measurement of their own.
        let whole = (message.split != "blind").then_some("all");
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
    let [tune, held, fresh, blind] = PARTS;
    println!("\n{:<16} {tune:>14} {held:>14} {fresh:>14} {blind:>14}", "intent right of");
    for (name, parts) in &intents {
        let [tune, held, fresh, blind] =
            parts.map(|it| format!("{:.2} of {:>3}", it.intent_share(), it.all));
        println!("{name:<16} {tune:>14} {held:>14} {fresh:>14} {blind:>14}");
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
    let shown = ["tune", "held", "fresh", "blind", "all"].into_iter();
    let figures: Vec<_> = shown
        .filter(|name| of(name).all > 0)
        .map(|name| format!("{name} {:.3} of {}", of(name).intent_share(), of(name).all))
        .collect();
    // No message may be read as a change that it does not request, whoever wrote it.
    let is_safe = ["all", "blind"].iter().all(|name| of(name).wrong_changes == 0);
    let passed = is_safe && ["held", "all"].iter().all(|name| of(name).intent_share() >= GOAL);
    Ok(Verdict::new(passed, format!("right intents: {}", figures.join(", "))))
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
