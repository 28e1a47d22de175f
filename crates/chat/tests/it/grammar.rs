//! Accuracy of the chat grammar on the labelled messages in `lab/inputs/chat`, and proof that no
//! message changes anything without confirmation.
//!
//! `just lab chat` prints the accuracy in detail.

#[expect(dead_code, reason = "the lab prints more fields than the tests use")]
mod labelled;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tamma_chat::{
    COMMAND_WORDS, ChatAction, ChatContext, Clarification, ConfirmError, Conversation, Intent,
    MessageOutcome, Proposal, RequestedChange, interpret,
};
use tamma_core::ids::PlanHash;
use tamma_core::task_loop::State;

use self::labelled::{Message, Slot, blind_messages, messages, seen_messages, wordings, worlds};

#[test]
fn chat_grammar_accuracy_is_at_least_90_percent() {
    for part in ["held", "all"] {
        let of = messages().iter().filter(|it| part == "all" || it.split == part);
        let read: Vec<bool> = of.map(|it| it.read().right).collect();
        let right = read.iter().filter(|right| **right).count();
        assert!(
            right * 10 >= read.len() * 9,
            "{part}: {right} of {} intents are correct",
            read.len()
        );
    }
}

/// The author of the wordings wrote the grammar, so every one is read right.
#[test]
fn chat_grammar_reads_the_wordings_of_every_class() {
    let wrong: Vec<_> = wordings()
        .iter()
        .map(|it| (it, it.read()))
        .filter(|(_, reading)| !reading.right || reading.wrong_change)
        .map(|(it, reading)| {
            format!("{} {:?}: {} {:?}", it.id, it.text, reading.found.intent.name(), reading.slots)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The measurement: nobody has tuned on these messages. The goal of 92 per cent is not reached; this holds
/// what was measured.
#[test]
fn chat_grammar_accuracy_on_blind_messages_is_as_measured() {
    let read: Vec<_> = blind_messages().iter().map(|it| (it, it.read())).collect();
    // Both name the right task and another change of it, which the person would have to confirm.
    let wrong: Vec<_> = read.iter().filter(|(_, it)| it.wrong_change).map(|it| &*it.0.id).collect();
    assert_eq!(wrong, ["c006", "c159"], "read as a change that they do not request");
    let right = read.iter().filter(|(_, it)| it.right).count();
    assert!(right * 100 >= read.len() * 84, "{right} of {} intents are correct", read.len());
}

/// Messages used for tuning must not be used for measuring.
#[test]
fn chat_splits_share_no_message() {
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

#[test]
fn chat_messages_of_the_other_files_are_new_and_well_labelled() {
    const OTHERS: [&str; 13] = [
        "status", "list", "inbox", "cost", "show", "ask", "lessons", "help", "talk", "confirm",
        "decline", "unclear", "stories",
    ];
    let blind = blind_messages();
    // Empty until another author has written the set.
    assert!(blind.is_empty() || blind.len() >= 150, "{} messages are too few", blind.len());
    let mut ids = BTreeSet::new();
    for message in blind.iter().chain(seen_messages()).chain(wordings()) {
        let known = CHANGES.contains(&&*message.intent) || OTHERS.contains(&&*message.intent);
        assert!(known, "{}: unknown intent {}", message.id, message.intent);
        assert!(ids.insert(&message.id), "{} occurs twice", message.id);
        let same = messages().iter().find(|it| it.text.eq_ignore_ascii_case(&message.text));
        assert!(
            message.split == "blind 2" || same.is_none(),
            "{} is in the tuned set too",
            message.id
        );
        // Panics if the world or a task of it is unknown.
        let world = &worlds()[&message.world];
        world.context(message.last.as_deref(), message.proposed);
        if let Some(Slot::Text(task)) = message.slots.get("task") {
            world.task(task);
        }
    }
}

/// Labels of changes.
const CHANGES: [&str; 22] = [
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
    "rate",
    "convene",
    "add",
    "approve_lesson",
    "reject_lesson",
    "retire_lesson",
];

/// Requests that the labelled set does not have, about tasks of the world `shop`.
const MORE_REQUESTS: [&str; 6] = [
    "rate the rate limit task 2 stars",
    "rate #8 5/5",
    "give the flaky test four out of five",
    "ask the council why the dark mode task is slow",
    "ask the council about the German translation: is the glossary right",
    "consult the council on #11, does it need examples",
];

#[test]
fn chat_reads_ratings_and_questions_to_the_council() {
    let now = worlds()["shop"].context(None, false);
    for message in MORE_REQUESTS {
        let name = change(message, &now).map(|change| change.name());
        assert!(matches!(name, Some("rate" | "convene")), "{message}: {name:?}");
    }
}

/// Messages that request a change, with their context.
fn change_requests() -> Vec<(String, ChatContext)> {
    let worlds = worlds();
    let more = MORE_REQUESTS.map(|text| (text.to_owned(), worlds["shop"].context(None, false)));
    let is_change = |message: &Message| CHANGES.contains(&&*message.intent);
    let context = |message: &Message| {
        worlds[&message.world].context(message.last.as_deref(), message.proposed)
    };
    messages()
        .iter()
        .chain(wordings())
        .chain(seen_messages())
        .filter(|message| is_change(message))
        .map(|message| (message.text.clone(), context(message)))
        .chain(more)
        .collect()
}

fn change(message: &str, context: &ChatContext) -> Option<RequestedChange> {
    match interpret(message, context).intent {
        Intent::Change(change) => Some(change),
        _ => None,
    }
}

#[test]
fn chat_messages_labelled_as_no_change_are_never_a_change() {
    let worlds = worlds();
    let mut wrong = Vec::new();
    for message in messages().iter().chain(wordings()).chain(seen_messages()) {
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
fn chat_ignores_commands_in_quoted_pasted_or_reported_text() {
    let frames: [fn(&str) -> String; 9] = [
        |text| format!("the agent said \"{text}\""),
        |text| format!("the agent said “{text}”"),
        |text| format!("it prints `{text}` all the time"),
        |text| format!("look:\n```\n{text}\n```\n"),
        |text| format!("> {text}"),
        |text| format!("$ tamma {text}"),
        |text| format!("2026-11-15T10:02:11Z INFO agent: {text}"),
        |text| format!("the README says: {text}"),
        |text| format!("| {text} |"),
    ];
    for (text, context) in change_requests() {
        // Text with its own quotes or lines would end the frame early.
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
fn chat_ignores_negated_hypothetical_and_questioned_commands() {
    let frames: [fn(&str) -> String; 9] = [
        |text| format!("don't {text}"),
        |text| format!("please do not {text}"),
        |text| format!("never {text}"),
        |text| format!("what happens if i {text}?"),
        |text| format!("should i {text}?"),
        |text| format!("Mia wants to {text}"),
        |text| format!("i decided not to {text}"),
        |text| format!("imagine we {text}"),
        |text| format!("who told you to {text}"),
    ];
    for (text, context) in change_requests() {
        // The frame covers only the first part of a message with several parts.
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
fn chat_hostile_messages_lead_to_a_proposal_at_most() {
    let worlds = worlds();
    for message in messages() {
        let world = &worlds[&message.world];
        let now = world.context(message.last.as_deref(), false);
        let mut conversation = Conversation::default();
        let outcome = conversation.handle(&message.text, &now);
        assert!(!matches!(outcome, MessageOutcome::Confirmed(_)), "{}", message.text);
        // With a pending proposal, only a plain confirmation may confirm it.
        let pause =
            RequestedChange::Task { task: worlds["shop"].task("dark"), action: ChatAction::Pause };
        let now = worlds["shop"].context(None, false);
        let mut conversation = Conversation::default();
        conversation.propose(pause, &now);
        if let MessageOutcome::Confirmed(confirmed) = conversation.handle(&message.text, &now) {
            let is_plain = message.intent == "confirm"
                || (message.intent == "unclear" && message.text.split_whitespace().count() <= 3);
            assert!(is_plain, "{:?} confirmed {}", message.text, confirmed.command());
        }
    }
}

/// Any message: labelled ones, plain answers, noise.
fn any_message() -> impl Strategy<Value = String> {
    const PLAIN_ANSWERS: [&str; 9] =
        ["yes", "y", "ok", "no", "never mind", "yes please", "do it", "thanks", "cancel"];
    let labelled: Vec<_> = messages().iter().map(|message| message.text.clone()).collect();
    prop_oneof![
        3 => proptest::sample::select(labelled),
        3 => proptest::sample::select(&PLAIN_ANSWERS[..]).prop_map(str::to_owned),
        1 => "\\PC{0,40}",
    ]
}

/// Words that are not commands; some are similar to one.
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
    let is_separator = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    lower.split(is_separator).any(|word| COMMAND_WORDS.contains(&word))
}

proptest! {
    #[test]
    fn chat_message_without_a_command_word_changes_nothing(
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
    fn chat_interpretation_is_deterministic(text in "\\PC{0,80}", word in "[a-z]{3,8}") {
        let now = worlds()["shop"].context(None, false);
        for message in [text.clone(), format!("{word} {text}"), format!("approve {text}")] {
            prop_assert_eq!(interpret(&message, &now), interpret(&message, &now));
        }
    }

    /// Only the latest proposal is confirmed, by a plain confirmation directly after it or by its
    /// name, and only if its target has not changed.
    #[test]
    fn chat_confirms_only_the_latest_unchanged_proposal(
        inputs in proptest::collection::vec((any_message(), 0_u8..8), 1..12),
    ) {
        let worlds = worlds();
        let mut now = worlds["shop"].context(Some("webhook"), false);
        let mut conversation = Conversation::default();
        // State of the oracle: command, change, context, and whether it was just shown.
        let mut pending: Option<(String, RequestedChange, ChatContext, bool)> = None;
        for (message, event) in inputs {
            match event {
                0 => now.tasks[0].plan = Some(PlanHash::of(message.as_bytes())),
                1 => now.tasks[2].state = State::Testing,
                2 => now.tasks[2].paused = !now.tasks[2].paused,
                _ => {}
            }
            // Sometimes the person sends the command or an old digest instead.
            let message = match (event, &pending) {
                (7, Some((command, ..))) => command.clone(),
                _ => message,
            };
            match conversation.handle(&message, &now) {
                MessageOutcome::Confirmed(confirmed) => {
                    let (command, change, proposed_context, just_shown) = pending.take().expect("pending proposal");
                    prop_assert_eq!(confirmed.command().to_string(), command.clone());
                    prop_assert_eq!(confirmed.change(), &change);
                    prop_assert!(just_shown || message == command, "a late yes: {}", message);
                    if let RequestedChange::Task { task, .. } = change {
                        prop_assert_eq!(proposed_context.task(task), now.task(task));
                    }
                    prop_assert!(conversation.pending().is_none(), "confirmed only once");
                }
                MessageOutcome::Interpreted(interpretation) => match interpretation.intent {
                    Intent::Change(change) => {
                        let command = conversation.pending().expect("pending proposal").command();
                        pending = Some((command.to_string(), change, now.clone(), true));
                    }
                    _ => pending = pending.map(|(a, b, c, _)| (a, b, c, false)),
                },
                MessageOutcome::Declined | MessageOutcome::Refused(_) => {
                    prop_assert!(conversation.pending().is_none());
                    pending = None;
                }
            }
        }
    }

    #[test]
    fn chat_proposal_accepts_only_a_confirmation(text in any_message()) {
        let world = &worlds()["shop"];
        let now = world.context(None, false);
        let action = ChatAction::Cancel { reason: None };
        let proposal = Proposal::new(RequestedChange::Task { task: world.task("dark"), action }, &now);
        let labelled = messages().iter().filter(|message| message.intent == "confirm").map(|message| &*message.text);
        let confirmations: Vec<_> = labelled.chain(["yes", "y", "ok", "yes please", "do it"]).collect();
        match proposal.confirm(&text, &now) {
            Ok(_) => prop_assert!(confirmations.contains(&&*text), "{} is not a confirmation", text),
            Err(error) => prop_assert_eq!(error, ConfirmError::NotConfirmed),
        }
    }
}

#[test]
fn chat_asks_which_candidate_is_meant() {
    let world = &worlds()["shop"];
    let intent = interpret("approve", &world.context(None, false)).intent;
    let Intent::Unclear(Clarification::WhichTask { tasks, .. }) = &intent else {
        panic!("{intent:?}");
    };
    let keys: Vec<_> = tasks.iter().map(|task| world.task_key(*task)).collect();
    assert_eq!(keys, ["webhook", "refund", "login"]);
}
