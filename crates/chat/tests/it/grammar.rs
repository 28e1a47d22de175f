//! How well the grammar of the chat understands the labelled set of `lab/inputs/chat`, and that nothing
//! anybody writes changes anything without a yes.
//!
//! `just lab chat` prints the accuracy in detail.

#[expect(dead_code, reason = "the lab prints more of a reading than a test needs")]
mod labelled;
mod model;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tamma_chat::{
    Act, Change, Context, Conversation, Heard, Intent, Proposal, Unclear, Unconfirmed, VERBS,
    understand,
};
use tamma_core::ids::PlanHash;
use tamma_core::task_loop::State;

use self::labelled::{Message, messages, worlds};

#[test]
fn chat_accuracy_of_the_grammar_alone_is_at_least_nine_of_ten() {
    for part in ["held", "all"] {
        let of = messages().iter().filter(|it| part == "all" || it.split == part);
        let read: Vec<bool> = of.map(|it| it.read().right).collect();
        let right = read.iter().filter(|right| **right).count();
        assert!(
            right * 10 >= read.len() * 9,
            "{part}: {right} of {} intents are right",
            read.len()
        );
    }
}

/// A message that was tuned on says nothing about those that were not.
#[test]
fn chat_parts_of_the_set_share_no_message() {
    let mut seen: BTreeMap<(String, &str), &Message> = BTreeMap::new();
    let mut shared = Vec::new();
    for message in messages() {
        let letters = |c: char| !c.is_alphanumeric() && c != '#';
        let words: Vec<_> = message.text.split(letters).filter(|it| !it.is_empty()).collect();
        let key = (words.join(" ").to_lowercase(), &*message.intent);
        let other = seen.entry(key).or_insert(message);
        if other.split != message.split {
            shared.push(format!("{} and {}: {:?}", other.id, message.id, message.text));
        }
    }
    assert!(shared.is_empty(), "{shared:#?}");
}

/// The labels that stand for a change.
const CHANGES: [&str; 20] = [
    "approve",
    "reject",
    "accept",
    "rework",
    "override",
    "modify",
    "reply",
    "pause",
    "resume",
    "cancel",
    "retry",
    "continue",
    "roll_back",
    "skip",
    "abandon",
    "acknowledge",
    "add",
    "approve_lesson",
    "reject_lesson",
    "retire_lesson",
];

/// The messages that ask for a change, with what they speak of.
fn orders() -> Vec<(String, Context)> {
    let worlds = worlds();
    let asks = |message: &Message| CHANGES.contains(&&*message.intent);
    let context = |message: &Message| {
        worlds[&message.world].context(message.last.as_deref(), message.proposed)
    };
    messages().iter().filter(|it| asks(it)).map(|it| (it.text.clone(), context(it))).collect()
}

fn change(message: &str, context: &Context) -> Option<Change> {
    match understand(message, context).intent {
        Intent::Change(change) => Some(change),
        _ => None,
    }
}

#[test]
fn chat_takes_nothing_for_a_change_that_is_labelled_as_none() {
    let worlds = worlds();
    let mut wrong = Vec::new();
    for message in messages() {
        let world = &worlds[&message.world];
        let context = world.context(message.last.as_deref(), message.proposed);
        let Some(change) = change(&message.text, &context) else { continue };
        let task = world.labels(&Intent::Change(change.clone())).remove("task");
        if change.name() != message.intent || task != message.slots.get("task").cloned() {
            wrong.push(format!("{}: {:?} as {}", message.id, message.text, change.name()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn chat_never_takes_orders_from_what_is_quoted_pasted_or_told() {
    let frames: [fn(&str) -> String; 9] = [
        |it| format!("the agent said \"{it}\""),
        |it| format!("the agent said “{it}”"),
        |it| format!("it prints `{it}` all the time"),
        |it| format!("look:\n```\n{it}\n```\n"),
        |it| format!("> {it}"),
        |it| format!("$ tamma {it}"),
        |it| format!("2026-11-15T10:02:11Z INFO agent: {it}"),
        |it| format!("the README says: {it}"),
        |it| format!("| {it} |"),
    ];
    for (text, context) in orders() {
        // What has quotes or lines of its own ends the frame early, and is no test of it.
        if text.contains(['"', '`', '“', '\n']) {
            continue;
        }
        for frame in frames {
            let framed = frame(&text);
            assert_eq!(change(&framed, &context), None, "{framed}");
        }
    }
}

#[test]
fn chat_never_takes_orders_that_are_denied_supposed_or_asked_about() {
    let frames: [fn(&str) -> String; 9] = [
        |it| format!("don't {it}"),
        |it| format!("please do not {it}"),
        |it| format!("never {it}"),
        |it| format!("what happens if i {it}?"),
        |it| format!("should i {it}?"),
        |it| format!("Mia wants to {it}"),
        |it| format!("i decided not to {it}"),
        |it| format!("imagine we {it}"),
        |it| format!("who told you to {it}"),
    ];
    for (text, context) in orders() {
        // Of a message with several parts the frame holds only the first.
        if text.contains([',', '.', ':', ';', '?', '!', '\n']) || text.contains(" and ") {
            continue;
        }
        for frame in frames {
            let framed = frame(&text);
            assert_eq!(change(&framed, &context), None, "{framed}");
        }
    }
}

#[test]
fn chat_hostile_messages_get_no_further_than_a_proposal() {
    let worlds = worlds();
    for message in messages() {
        let world = &worlds[&message.world];
        let now = world.context(message.last.as_deref(), false);
        let mut conversation = Conversation::default();
        let heard = conversation.hear(&message.text, &now);
        assert!(!matches!(heard, Heard::Confirmed(_)), "{}", message.text);
        // The same with a proposal that waits: only a plain yes may confirm it.
        let pause = Change::Task { task: worlds["shop"].task("dark"), act: Act::Pause };
        let now = worlds["shop"].context(None, false);
        let mut conversation = Conversation::default();
        conversation.propose(pause, &now);
        if let Heard::Confirmed(confirmed) = conversation.hear(&message.text, &now) {
            let plain = message.intent == "confirm"
                || (message.intent == "unclear" && message.text.split_whitespace().count() <= 3);
            assert!(plain, "{:?} confirmed {}", message.text, confirmed.command());
        }
    }
}

/// A message of any kind: labelled ones, plain answers, noise.
fn any_message() -> impl Strategy<Value = String> {
    const PLAIN: [&str; 9] =
        ["yes", "y", "ok", "no", "never mind", "yes please", "do it", "thanks", "cancel"];
    let labelled: Vec<_> = messages().iter().map(|message| message.text.clone()).collect();
    prop_oneof![
        3 => proptest::sample::select(labelled),
        3 => proptest::sample::select(&PLAIN[..]).prop_map(str::to_owned),
        1 => "\\PC{0,40}",
    ]
}

/// Words that are no orders, some of them close to one.
fn harmless_word() -> impl Strategy<Value = String> {
    const WORDS: [&str; 46] = [
        "please",
        "the",
        "webhook",
        "plan",
        "#1",
        "a7f31c",
        "it",
        "now",
        "all",
        "everything",
        "you",
        "can",
        "could",
        "i",
        "we",
        "must",
        "yes",
        "approval",
        "cancellation",
        "rejection",
        "paused",
        "retries",
        "dark",
        "mode",
        "and",
        "then",
        ",",
        ".",
        ":",
        "?",
        "\n",
        "tamma",
        "--reason",
        "x",
        "$",
        ";",
        "&&",
        "skipped",
        "abandoned",
        "overridden",
        "why",
        "if",
        "not",
        "lesson",
        "é",
        "'",
    ];
    prop_oneof![4 => proptest::sample::select(&WORDS[..]).prop_map(str::to_owned), 1 => "\\PC{0,8}"]
}

fn has_verb(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    lower.split(word).any(|word| VERBS.contains(&word))
}

proptest! {
    #[test]
    fn chat_without_a_listed_verb_changes_nothing(
        words in proptest::collection::vec(harmless_word(), 0..14),
        last in any::<bool>(),
        proposed in any::<bool>(),
    ) {
        let message = words.join(" ");
        prop_assume!(!has_verb(&message));
        let now = worlds()["shop"].context(last.then_some("webhook"), proposed);
        prop_assert_eq!(change(&message, &now), None);
    }

    #[test]
    fn chat_understands_any_text_alike_twice(text in "\\PC{0,80}", order in "[a-z]{3,8}") {
        let now = worlds()["shop"].context(None, false);
        for message in [text.clone(), format!("{order} {text}"), format!("approve {text}")] {
            prop_assert_eq!(understand(&message, &now), understand(&message, &now));
        }
    }

    /// The invariant of proposals: what is confirmed is the command that was proposed last, by a
    /// plain yes right after it or by its name, and what it is about has not changed since.
    #[test]
    fn chat_confirms_only_the_latest_proposal_and_only_as_it_was(
        turns in proptest::collection::vec((any_message(), 0_u8..8), 1..12),
    ) {
        let worlds = worlds();
        let mut now = worlds["shop"].context(Some("webhook"), false);
        let mut conversation = Conversation::default();
        // What the oracle knows: the command, what was there, and whether it was just shown.
        let mut waits: Option<(String, Change, Context, bool)> = None;
        for (message, event) in turns {
            match event {
                0 => now.tasks[0].plan = Some(PlanHash::of(message.as_bytes())),
                1 => now.tasks[2].state = State::Testing,
                2 => now.tasks[2].paused = !now.tasks[2].paused,
                _ => {}
            }
            // Now and then the person names the command or an old digest instead.
            let message = match (event, &waits) {
                (7, Some((command, ..))) => command.clone(),
                _ => message,
            };
            match conversation.hear(&message, &now) {
                Heard::Confirmed(confirmed) => {
                    let (command, change, then, fresh) = waits.take().expect("something waited");
                    prop_assert_eq!(confirmed.command().to_string(), command.clone());
                    prop_assert_eq!(confirmed.change(), &change);
                    prop_assert!(fresh || message == command, "a late yes: {}", message);
                    if let Change::Task { task, .. } = change {
                        prop_assert_eq!(then.task(task), now.task(task));
                    }
                    prop_assert!(conversation.pending().is_none(), "it is confirmed once");
                }
                Heard::Understood(understood) => match understood.intent {
                    Intent::Change(change) => {
                        let command = conversation.pending().expect("it waits").command();
                        waits = Some((command.to_string(), change, now.clone(), true));
                    }
                    _ => waits = waits.map(|(a, b, c, _)| (a, b, c, false)),
                },
                Heard::Declined | Heard::Refused(_) => {
                    prop_assert!(conversation.pending().is_none());
                    waits = None;
                }
            }
        }
    }

    #[test]
    fn chat_proposal_takes_no_other_word_for_a_yes(said in any_message()) {
        let world = &worlds()["shop"];
        let now = world.context(None, false);
        let act = Act::Cancel { reason: None };
        let proposal = Proposal::new(Change::Task { task: world.task("dark"), act }, &now);
        let labelled = messages().iter().filter(|it| it.intent == "confirm").map(|it| &*it.text);
        let plain: Vec<_> = labelled.chain(["yes", "y", "ok", "yes please", "do it"]).collect();
        match proposal.confirm(&said, &now) {
            Ok(_) => prop_assert!(plain.contains(&&*said), "{} is no yes", said),
            Err(why) => prop_assert_eq!(why, Unconfirmed::NotAYes),
        }
    }
}

#[test]
fn chat_asks_back_with_the_candidates() {
    let world = &worlds()["shop"];
    let intent = understand("approve", &world.context(None, false)).intent;
    let Intent::Unclear(Unclear::Which { tasks, .. }) = &intent else {
        panic!("{intent:?}");
    };
    let keys: Vec<_> = tasks.iter().map(|task| world.task_key(*task)).collect();
    assert_eq!(keys, ["webhook", "refund", "login"]);
}
