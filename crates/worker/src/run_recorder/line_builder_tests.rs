use std::path::PathBuf;

use tamma_core::ids::TaskId;
use tamma_engine::permission::{PermissionDecision, PermissionKind, PermissionRequest};
use tamma_engine::process::RunId;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000 + seconds, 0).expect("a moment")
}

fn fold() -> LineBuilder {
    LineBuilder::new(Arc::new(|text| text.replace("sk-secret", "…")), 0)
}

fn said(text: &str) -> Observation {
    Observation::Update(AgentUpdate::Message(text.to_owned()))
}

fn tool(id: &str, title: Option<&str>, status: Option<&str>) -> Observation {
    let own = |text: Option<&str>| text.map(str::to_owned);
    let (id, title, status) = (id.to_owned(), own(title), own(status));
    Observation::Update(AgentUpdate::ToolCall {
        id,
        title,
        status,
        kind: None,
        locations: Vec::new(),
    })
}

fn told(fold: &mut LineBuilder) -> Vec<(LineKind, String)> {
    let news = fold.take_batch(at(100), 1000).unwrap_or_default();
    news.lines.into_iter().map(|line| (line.kind, line.text)).collect()
}

fn call(cost: Cost, status: u16) -> Observation {
    let task = "0192a000-0000-7000-8000-000000000001".parse().expect("an id");
    Observation::Update(AgentUpdate::ModelCalled(gateway::ModelCall {
        run: RunId { task: TaskId(task), job_number: 1, generation: 1 },
        dialect: gateway::Dialect::Chat,
        started_at: at(0),
        model: "large".to_owned(),
        status,
        tokens: (status < 400).then_some(Tokens { input: 100, cached: 20, output: 3 }),
        cost,
        time_to_first_byte: Some(Duration::from_millis(10)),
        duration: Duration::from_millis(2345),
        note: None,
    }))
}

#[test]
fn text_chunks_become_paragraphs_in_order() {
    let mut fold = fold();
    for piece in ["I will ", "look.\n", "\nThen ", "I wri"] {
        fold.observe(at(0), said(piece));
    }
    fold.observe(at(1), Observation::Update(AgentUpdate::Thought("hm".to_owned())));
    fold.observe(at(2), tool("1", Some("Read a.rs"), Some("in_progress")));
    fold.observe(at(3), said("```\na\n\nb\n```"));
    fold.close();
    let expected = [
        (LineKind::Said, "I will look."),
        (LineKind::Said, "Then I wri"),
        (LineKind::Thought, "hm"),
        (LineKind::Tool, "Read a.rs: in progress"),
        (LineKind::Said, "```\na\n\nb\n```"),
    ];
    assert_eq!(told(&mut fold), expected.map(|(kind, text)| (kind, text.to_owned())));
    assert_eq!(fold.take_records().len(), 5, "the transcript has the same records");
}

#[test]
fn split_secrets_and_control_sequences_are_removed() {
    let mut fold = fold();
    for piece in ["the key is sk-", "sec", "\u{1b}[31mret and \u{1b}", "]52;c;eA==\u{7}more"] {
        fold.observe(at(0), said(piece));
    }
    let raw = json!({ "sk-secret": ["a sk-secret", { "b": "\u{9b}2Jsk-secret" }], "n": 1 });
    fold.observe(at(1), Observation::Update(AgentUpdate::Other(raw)));
    assert_eq!(told(&mut fold), [(LineKind::Said, "the key is … and more".to_owned())]);
    let records = json!(fold.take_records()).to_string();
    assert!(!records.contains("sk-secret") && !records.contains('\u{9b}'), "{records}");
    assert!(records.contains("the key is … and more"), "{records}");
}

#[test]
fn long_text_is_shown_after_a_delay_and_words_are_not_split() {
    let mut fold = fold();
    fold.observe(at(0), said("one two th"));
    fold.tick(at(4));
    assert_eq!(told(&mut fold), []);
    fold.tick(at(5));
    assert_eq!(told(&mut fold), [(LineKind::Said, "one two".to_owned())]);
    fold.tick(at(60));
    assert_eq!(told(&mut fold), [], "a single word is held back");
    fold.observe(at(61), said("ree"));
    fold.close();
    assert_eq!(told(&mut fold), [(LineKind::Said, "three".to_owned())]);
    // Long text is split between words.
    fold.observe(at(70), said(&"word ".repeat(1000)));
    fold.close();
    let lines = told(&mut fold);
    assert_eq!(lines.len(), 3);
    for (_, text) in lines {
        assert!(
            text.len() <= MAX_SPEECH_BYTES && text.split(' ').all(|word| word == "word"),
            "{text}"
        );
    }
}

#[test]
fn a_tool_call_is_shown_only_when_it_changes() {
    let mut fold = fold();
    fold.observe(at(0), tool("1", Some("Edit a.rs"), Some("pending")));
    fold.observe(at(1), tool("1", None, Some("in_progress")));
    for _ in 0..3 {
        fold.observe(at(2), tool("1", None, None));
        fold.observe(at(2), tool("1", Some("Edit a.rs"), Some("in_progress")));
    }
    fold.observe(at(3), tool("1", None, Some("completed")));
    fold.observe(at(4), tool("2", None, None));
    let texts: Vec<_> = told(&mut fold).into_iter().map(|(_, text)| text).collect();
    let expected = ["Edit a.rs: pending", "Edit a.rs: in progress", "Edit a.rs: completed", "2"];
    assert_eq!(texts, expected);
    assert_eq!(fold.take_records().len(), 10, "the transcript has every update");
}

#[test]
fn permission_requests_are_shown_with_their_decision() {
    let mut fold = fold();
    let ask = PermissionRequest {
        kind: PermissionKind::Command,
        title: "Run".to_owned(),
        paths: vec![PathBuf::from("a.rs")],
        command: Some("git push".to_owned()),
    };
    let ruling = PermissionDecision {
        effect: PermissionEffect::Deny,
        reason: "this run may only look".to_owned(),
    };
    fold.observe(at(0), Observation::Update(AgentUpdate::PermissionDecided(ask, ruling)));
    let text = "git push: refused (this run may only look)";
    assert_eq!(told(&mut fold), [(LineKind::Asked, text.to_owned())]);
}

#[test]
fn metered_usage_takes_precedence_and_unknown_is_not_zero() {
    let mut fold = fold();
    let usd = |text: &str| Cost::Known(text.parse().expect("money"));
    let reported = Usage { tokens: Tokens { input: 9, cached: 0, output: 9 }, cost: Cost::Unknown };
    fold.observe(at(0), Observation::Update(AgentUpdate::UsageReported(reported)));
    assert_eq!(fold.usage(), Some((reported, false)));
    fold.observe(at(1), call(usd("0.25"), 200));
    fold.observe(at(1), call(Cost::Unknown, 429));
    fold.observe(at(1), call(usd("0.5"), 200));
    fold.observe(at(2), Observation::Update(AgentUpdate::UsageReported(reported)));
    let counted = Usage { tokens: Tokens { input: 200, cached: 40, output: 6 }, cost: usd("0.75") };
    assert_eq!(fold.usage(), Some((counted, true)));
    fold.observe(at(3), call(Cost::Unknown, 200));
    assert_eq!(fold.usage().map(|(usage, _)| usage.cost), Some(Cost::Unknown));
    let news = fold.take_batch(at(4), 1000).expect("news");
    assert_eq!(news.model.as_deref(), Some("large"));
    assert_eq!(news.calls.iter().map(|call| call.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let texts: Vec<_> = news.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts[0], "large · 100 in, 20 cached, 3 out · $0.25 · 2.3 s");
    assert_eq!(texts[1], "large · status 429 · 2.3 s");
    assert_eq!(texts[3], "large · 100 in, 20 cached, 3 out · cost unknown · 2.3 s");
    assert_eq!(fold.take_batch(at(5), 10), None);
}

#[test]
fn lines_dropped_during_an_outage_are_counted_and_mentioned() {
    let mut fold = fold();
    for number in 0..MAX_PENDING_LINES + 7 {
        fold.observe(at(0), Observation::Note(number.to_string()));
    }
    assert_eq!(fold.take_records().len(), MAX_PENDING_LINES + 7);
    assert_eq!(fold.take_batch(at(1), 500).map(|news| news.lines.len()), Some(500));
    let mut last = None;
    while let Some(news) = fold.take_batch(at(1), 500) {
        last = news.lines.last().map(|line| line.text.clone());
    }
    let expected = "7 lines are only in the transcript: the database was unavailable for too long";
    assert_eq!(last.as_deref(), Some(expected));
}
