use std::path::PathBuf;

use tamma_core::ids::TaskId;
use tamma_engine::permission::{Ask, Kind, Ruling};
use tamma_engine::process::RunId;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000 + seconds, 0).expect("a moment")
}

fn fold() -> Fold {
    Fold::new(Arc::new(|text| text.replace("sk-secret", "…")), 0)
}

fn said(text: &str) -> Seen {
    Seen::Update(Update::Said(text.to_owned()))
}

fn tool(id: &str, title: Option<&str>, status: Option<&str>) -> Seen {
    let own = |text: Option<&str>| text.map(str::to_owned);
    let (id, title, status) = (id.to_owned(), own(title), own(status));
    Seen::Update(Update::Tool { id, title, status, kind: None, locations: Vec::new() })
}

fn told(fold: &mut Fold) -> Vec<(LineKind, String)> {
    let news = fold.take(at(100), 1000).unwrap_or_default();
    news.lines.into_iter().map(|line| (line.kind, line.text)).collect()
}

fn call(cost: Cost, status: u16) -> Seen {
    let task = "0192a000-0000-7000-8000-000000000001".parse().expect("an id");
    Seen::Update(Update::Called(gateway::ModelCall {
        run: RunId { task: TaskId(task), ticket: 1, generation: 1 },
        dialect: gateway::Dialect::Chat,
        at: at(0),
        model: "large".to_owned(),
        status,
        tokens: (status < 400).then_some(Tokens { input: 100, cached: 20, output: 3 }),
        cost,
        first_byte: Some(Duration::from_millis(10)),
        took: Duration::from_millis(2345),
        note: None,
    }))
}

#[test]
fn pieces_of_speech_become_paragraphs_in_the_order_of_what_happened() {
    let mut fold = fold();
    for piece in ["I will ", "look.\n", "\nThen ", "I wri"] {
        fold.see(at(0), said(piece));
    }
    fold.see(at(1), Seen::Update(Update::Thought("hm".to_owned())));
    fold.see(at(2), tool("1", Some("Read a.rs"), Some("in_progress")));
    fold.see(at(3), said("```\na\n\nb\n```"));
    fold.close();
    let expected = [
        (LineKind::Said, "I will look."),
        (LineKind::Said, "Then I wri"),
        (LineKind::Thought, "hm"),
        (LineKind::Tool, "Read a.rs: in progress"),
        (LineKind::Said, "```\na\n\nb\n```"),
    ];
    assert_eq!(told(&mut fold), expected.map(|(kind, text)| (kind, text.to_owned())));
    assert_eq!(fold.records().len(), 5, "the transcript has the same");
}

#[test]
fn a_secret_in_two_pieces_is_found_and_what_commands_a_terminal_is_taken_out() {
    let mut fold = fold();
    for piece in ["the key is sk-", "sec", "\u{1b}[31mret and \u{1b}", "]52;c;eA==\u{7}more"] {
        fold.see(at(0), said(piece));
    }
    let raw = json!({ "sk-secret": ["a sk-secret", { "b": "\u{9b}2Jsk-secret" }], "n": 1 });
    fold.see(at(1), Seen::Update(Update::Other(raw)));
    assert_eq!(told(&mut fold), [(LineKind::Said, "the key is … and more".to_owned())]);
    let records = json!(fold.records()).to_string();
    assert!(!records.contains("sk-secret") && !records.contains('\u{9b}'), "{records}");
    assert!(records.contains("the key is … and more"), "{records}");
}

#[test]
fn speech_that_goes_on_is_shown_after_a_while_and_no_word_is_cut() {
    let mut fold = fold();
    fold.see(at(0), said("one two th"));
    fold.tick(at(4));
    assert_eq!(told(&mut fold), []);
    fold.tick(at(5));
    assert_eq!(told(&mut fold), [(LineKind::Said, "one two".to_owned())]);
    fold.tick(at(60));
    assert_eq!(told(&mut fold), [], "one word alone waits");
    fold.see(at(61), said("ree"));
    fold.close();
    assert_eq!(told(&mut fold), [(LineKind::Said, "three".to_owned())]);
    // Long ones are cut between words.
    fold.see(at(70), said(&"word ".repeat(1000)));
    fold.close();
    let lines = told(&mut fold);
    assert_eq!(lines.len(), 3);
    for (_, text) in lines {
        assert!(text.len() <= LONG && text.split(' ').all(|word| word == "word"), "{text}");
    }
}

#[test]
fn a_tool_call_is_told_when_it_changes_and_not_when_it_is_repeated() {
    let mut fold = fold();
    fold.see(at(0), tool("1", Some("Edit a.rs"), Some("pending")));
    fold.see(at(1), tool("1", None, Some("in_progress")));
    for _ in 0..3 {
        fold.see(at(2), tool("1", None, None));
        fold.see(at(2), tool("1", Some("Edit a.rs"), Some("in_progress")));
    }
    fold.see(at(3), tool("1", None, Some("completed")));
    fold.see(at(4), tool("2", None, None));
    let texts: Vec<_> = told(&mut fold).into_iter().map(|(_, text)| text).collect();
    let expected = ["Edit a.rs: pending", "Edit a.rs: in progress", "Edit a.rs: completed", "2"];
    assert_eq!(texts, expected);
    assert_eq!(fold.records().len(), 10, "the transcript has every one");
}

#[test]
fn what_was_asked_is_told_with_its_ruling() {
    let mut fold = fold();
    let ask = Ask {
        kind: Kind::Command,
        title: "Run".to_owned(),
        paths: vec![PathBuf::from("a.rs")],
        command: Some("git push".to_owned()),
    };
    let ruling = Ruling { verdict: Verdict::Deny, reason: "this run may only look".to_owned() };
    fold.see(at(0), Seen::Update(Update::Asked(ask, ruling)));
    let text = "git push: refused (this run may only look)";
    assert_eq!(told(&mut fold), [(LineKind::Asked, text.to_owned())]);
}

#[test]
fn what_is_counted_stands_over_what_the_agent_says_and_unknown_is_not_zero() {
    let mut fold = fold();
    let usd = |text: &str| Cost::Known(text.parse().expect("money"));
    let reported = Usage { tokens: Tokens { input: 9, cached: 0, output: 9 }, cost: Cost::Unknown };
    fold.see(at(0), Seen::Update(Update::Used(reported)));
    assert_eq!(fold.usage(), Some((reported, false)));
    fold.see(at(1), call(usd("0.25"), 200));
    fold.see(at(1), call(Cost::Unknown, 429));
    fold.see(at(1), call(usd("0.5"), 200));
    fold.see(at(2), Seen::Update(Update::Used(reported)));
    let counted = Usage { tokens: Tokens { input: 200, cached: 40, output: 6 }, cost: usd("0.75") };
    assert_eq!(fold.usage(), Some((counted, true)));
    fold.see(at(3), call(Cost::Unknown, 200));
    assert_eq!(fold.usage().map(|(usage, _)| usage.cost), Some(Cost::Unknown));
    let news = fold.take(at(4), 1000).expect("news");
    assert_eq!(news.model.as_deref(), Some("large"));
    assert_eq!(news.calls.iter().map(|call| call.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let texts: Vec<_> = news.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts[0], "large · 100 in, 20 cached, 3 out · $0.25 · 2.3 s");
    assert_eq!(texts[1], "large · answered 429 · 2.3 s");
    assert_eq!(texts[3], "large · 100 in, 20 cached, 3 out · cost unknown · 2.3 s");
    assert_eq!(fold.take(at(5), 10), None);
}

#[test]
fn what_does_not_fit_while_the_store_is_away_is_counted_and_said() {
    let mut fold = fold();
    for number in 0..WAITING + 7 {
        fold.see(at(0), Seen::Note(number.to_string()));
    }
    assert_eq!(fold.records().len(), WAITING + 7);
    assert_eq!(fold.take(at(1), 500).map(|news| news.lines.len()), Some(500));
    let mut last = None;
    while let Some(news) = fold.take(at(1), 500) {
        last = news.lines.last().map(|line| line.text.clone());
    }
    let expected = "7 lines are only in the transcript: the database was away for too long";
    assert_eq!(last.as_deref(), Some(expected));
}
