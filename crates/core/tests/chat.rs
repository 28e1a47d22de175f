//! How well the grammar of the chat understands the labelled set of `eval/chat`, and that nothing
//! anybody writes changes anything without a yes.
//!
//! The accuracy is printed (`cargo nextest run -p tamma-core -E 'test(chat)' --no-capture`), with
//! the mistakes of the part that is for tuning; those of the others only with `TAMMA_CHAT_HELD`.
#![expect(clippy::disallowed_methods, reason = "whether held mistakes are shown is for the person")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "chat/model.rs"]
mod model;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde::Deserialize;
use tamma_core::chat::{
    Act, Change, Context, Conversation, Heard, Intent, Lesson, Proposal, Subject, Unclear,
    Unconfirmed, VERBS, understand,
};
use tamma_core::ids::{KnowledgeId, PlanHash, TaskId};
use tamma_core::task_loop::State;

const MESSAGES: &str = include_str!("../../../eval/chat/messages.yaml");
const WORLDS: &str = include_str!("../../../eval/chat/worlds.yaml");

#[derive(Debug, Deserialize)]
struct World {
    tasks: Vec<Keyed<Subject>>,
    lessons: Vec<Keyed<Lesson>>,
}

#[derive(Debug, Deserialize)]
struct Keyed<T> {
    key: String,
    #[serde(flatten)]
    it: T,
}

/// A message with its labels, as eval/chat/README.md describes them.
#[derive(Debug, Deserialize)]
struct Message {
    id: String,
    split: String,
    text: String,
    #[serde(default = "shop")]
    world: String,
    last: Option<String>,
    #[serde(default)]
    proposed: bool,
    intent: String,
    #[serde(flatten)]
    slots: BTreeMap<String, Slot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Slot {
    Text(String),
    Number(u32),
    Several(Vec<String>),
}

fn shop() -> String {
    "shop".to_owned()
}

fn worlds() -> &'static BTreeMap<String, World> {
    static READ: LazyLock<BTreeMap<String, World>> =
        LazyLock::new(|| serde_saphyr::from_str(WORLDS).expect("the worlds are well formed"));
    &READ
}

fn messages() -> &'static [Message] {
    static READ: LazyLock<Vec<Message>> =
        LazyLock::new(|| serde_saphyr::from_str(MESSAGES).expect("the messages are well formed"));
    &READ
}

impl World {
    fn task(&self, key: &str) -> TaskId {
        self.tasks.iter().find(|task| task.key == key).map(|task| task.it.id).expect("a task")
    }

    fn task_key(&self, id: TaskId) -> String {
        let found = self.tasks.iter().find(|task| task.it.id == id);
        found.map(|task| task.key.clone()).expect("a task")
    }

    fn lesson_key(&self, id: KnowledgeId) -> String {
        let found = self.lessons.iter().find(|lesson| lesson.it.id == id);
        found.map(|lesson| lesson.key.clone()).expect("a lesson")
    }

    fn context(&self, last: Option<&str>, proposed: bool) -> Context {
        Context {
            tasks: self.tasks.iter().map(|task| task.it.clone()).collect(),
            lessons: self.lessons.iter().map(|lesson| lesson.it.clone()).collect(),
            last: last.map(|key| self.task(key)),
            proposed,
        }
    }

    /// An intent in the words of the labels.
    fn labels(&self, intent: &Intent) -> BTreeMap<String, Slot> {
        let mut slots = BTreeMap::new();
        let mut put = |name: &str, value: Option<String>| {
            slots.extend(value.map(|value| (name.to_owned(), Slot::Text(value))));
        };
        let text = |it: &dyn ToString| Some(it.to_string());
        match intent {
            Intent::Status { task } => put("task", Some(self.task_key(*task))),
            Intent::List { which, period, search } => {
                put("filter", text(which));
                put("period", period.map(|it| it.to_string()));
                put("search", search.clone());
            }
            Intent::Cost { task, period } => {
                put("task", task.map(|task| self.task_key(task)));
                put("period", period.map(|it| it.to_string()));
            }
            Intent::Show { task, aspect } => {
                put("task", Some(self.task_key(*task)));
                put("aspect", text(aspect));
            }
            Intent::Ask { task, .. } => put("task", task.map(|task| self.task_key(task))),
            Intent::Lessons { period, search } => {
                put("period", period.map(|it| it.to_string()));
                put("search", search.clone());
            }
            Intent::Unclear(unclear) => put("asks", Some(<&str>::from(unclear).to_owned())),
            Intent::Change(Change::Add(new)) => {
                put("title", Some(new.title.clone()));
                put("type", text(&new.r#type));
                put("priority", new.priority.map(|it| it.to_string()));
            }
            Intent::Change(Change::Lesson { lesson, reason, .. }) => {
                put("lesson", Some(self.lesson_key(*lesson)));
                put("reason", reason.clone());
            }
            Intent::Change(Change::Task { task, act }) => {
                put("task", Some(self.task_key(*task)));
                match act {
                    Act::Approve { reason }
                    | Act::Reject { reason }
                    | Act::Accept { reason }
                    | Act::Rework { reason }
                    | Act::Cancel { reason }
                    | Act::Skip { reason }
                    | Act::Abandon { reason } => put("reason", reason.clone()),
                    Act::RollBack { to, reason } => {
                        put("to", text(to));
                        put("reason", reason.clone());
                    }
                    Act::Override { reason } => put("reason", Some(reason.clone())),
                    Act::Modify { words } | Act::Reply { words } => {
                        put("words", Some(words.clone()));
                    }
                    Act::Retry { grant } | Act::Continue { grant } => {
                        let usd = grant.usd.to_string().replace('$', "");
                        put("grant_usd", Some(usd).filter(|usd| usd != "0"));
                        if grant.iterations > 0 {
                            let runs = Slot::Number(grant.iterations.into());
                            slots.insert("grant_runs".to_owned(), runs);
                        }
                    }
                    Act::Pause | Act::Resume | Act::Acknowledge => {}
                }
            }
            Intent::Inbox | Intent::Help | Intent::Talk | Intent::Confirm | Intent::Decline => {}
        }
        slots
    }
}

/// Right and all, of intents and of whole readings.
#[derive(Debug, Default, Clone, Copy)]
struct Score {
    all: u32,
    intent: u32,
    whole: u32,
}

impl Score {
    fn add(&mut self, intent: bool, whole: bool) {
        self.all += 1;
        self.intent += u32::from(intent);
        self.whole += u32::from(intent && whole);
    }

    fn share(part: u32, all: u32) -> f64 {
        if all == 0 { 1.0 } else { f64::from(part) / f64::from(all) }
    }

    fn intents(self) -> f64 {
        Self::share(self.intent, self.all)
    }

    fn wholes(self) -> f64 {
        Self::share(self.whole, self.all)
    }
}

#[test]
fn chat_accuracy_of_the_grammar_alone_is_at_least_nine_of_ten() {
    let worlds = worlds();
    let show_held = std::env::var_os("TAMMA_CHAT_HELD").is_some();
    let mut splits: BTreeMap<String, Score> = BTreeMap::new();
    let mut intents: BTreeMap<String, [Score; 3]> = BTreeMap::new();
    let mut hard: BTreeMap<String, Score> = BTreeMap::new();
    for message in messages() {
        let world = &worlds[&message.world];
        let context = world.context(message.last.as_deref(), message.proposed);
        let found = understand(&message.text, &context);
        let mut wanted = message.slots.clone();
        let kinds = wanted.remove("hard");
        let slots = world.labels(&found.intent);
        // An addition to a task is said in many ways: where no words are labelled, none are compared.
        let mut compared = slots.clone();
        if !wanted.contains_key("words") {
            compared.remove("words");
        }
        let right = found.intent.name() == message.intent;
        let whole = compared == wanted;
        for name in [&*message.split, "all"] {
            splits.entry(name.to_owned()).or_default().add(right, whole);
        }
        let place = ["tune", "held", "fresh"].iter().position(|it| *it == message.split);
        let place = place.expect("a part of the set");
        intents.entry(message.intent.clone()).or_default()[place].add(right, whole);
        if let Some(Slot::Several(kinds)) = kinds {
            for kind in kinds {
                hard.entry(kind).or_default().add(right, whole);
            }
        }
        if !(right && whole) && (message.split == "tune" || show_held) {
            println!(
                "{} {} {:?}\n     wanted {} {wanted:?}\n     found  {} {slots:?} ({})",
                message.id,
                if right { "slots " } else { "INTENT" },
                message.text,
                message.intent,
                found.intent.name(),
                found.why,
            );
        }
    }
    println!("\n{:<16} {:>5} {:>8} {:>8}", "split", "of", "intent", "whole");
    for (name, score) in &splits {
        let (intents, wholes) = (score.intents(), score.wholes());
        println!("{name:<16} {:>5} {intents:>8.3} {wholes:>8.3}", score.all);
    }
    println!("\n{:<16} {:>14} {:>14} {:>14}", "intent right of", "tune", "held", "fresh");
    for (name, parts) in &intents {
        let [tune, held, fresh] = parts.map(|it| format!("{:.2} of {:>3}", it.intents(), it.all));
        println!("{name:<16} {tune:>14} {held:>14} {fresh:>14}");
    }
    println!("\n{:<16} {:>5} {:>8} {:>8}", "hard", "of", "intent", "whole");
    for (name, score) in &hard {
        println!("{name:<16} {:>5} {:>8.2} {:>8.2}", score.all, score.intents(), score.wholes());
    }
    println!();
    for name in ["tune", "held", "fresh", "all"] {
        let score = splits[name];
        println!("{name}: {:.3} of {} intents are right", score.intents(), score.all);
    }
    for name in ["held", "all"] {
        let accuracy = splits[name].intents();
        assert!(accuracy >= 0.9, "{name}: {accuracy:.3} of the intents are right, under 0.9");
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
