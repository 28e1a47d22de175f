use std::path::PathBuf;

use tamma_core::ids::TaskId;
use tamma_core::rules::Rules;
use tamma_engine::permission::{PermissionDecision, PermissionKind, PermissionRequest};
use tamma_engine::process::RunId;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000 + seconds, 0).expect("valid timestamp")
}

fn builder() -> LineBuilder {
    let redact: Redact = Arc::new(|text| text.replace("sk-secret", "…"));
    LineBuilder::new(redact, "/checkout".to_owned(), 0)
}

fn message(text: &str) -> Observation {
    Observation::Update(AgentUpdate::Message(text.to_owned()))
}

fn tool(id: &str, title: Option<&str>, status: Option<&str>) -> Observation {
    let own = |text: Option<&str>| text.map(str::to_owned);
    let (id, title, status) = (id.to_owned(), own(title), own(status));
    let update = ToolCallUpdate { id, title, status, ..ToolCallUpdate::default() };
    Observation::Update(AgentUpdate::ToolCall(update))
}

fn take_lines(builder: &mut LineBuilder) -> Vec<(LineKind, String)> {
    let batch = builder.take_batch(at(100), 1000).unwrap_or_default();
    batch.lines.into_iter().map(|line| (line.kind, line.text)).collect()
}

fn call(cost: Cost, status: u16) -> Observation {
    let task = "0192a000-0000-7000-8000-000000000001".parse().expect("an id");
    Observation::Update(AgentUpdate::ModelCalled(gateway::ModelCall {
        run: RunId { task: TaskId(task), job_number: 1, generation: 1 },
        dialect: gateway::Dialect::Chat,
        started_at: at(0),
        model: "large".to_owned(),
        status,
        tokens: (status < 400).then_some(Tokens {
            input: 100,
            cached: 20,
            output: 3,
            ..Tokens::default()
        }),
        cost,
        time_to_first_byte: Some(Duration::from_millis(10)),
        duration: Duration::from_millis(2345),
        note: None,
    }))
}

#[test]
fn text_chunks_become_paragraphs_in_order() {
    let mut builder = builder();
    for piece in ["I will ", "look.\n", "\nThen ", "I wri"] {
        builder.observe(at(0), message(piece));
    }
    builder.observe(at(1), Observation::Update(AgentUpdate::Thought("hm".to_owned())));
    builder.observe(at(2), tool("1", Some("Read a.rs"), Some("in_progress")));
    builder.observe(at(3), message("```\na\n\nb\n```"));
    builder.close(at(99));
    let expected = [
        (LineKind::Said, "I will look."),
        (LineKind::Said, "Then I wri"),
        (LineKind::Thought, "hm"),
        (LineKind::Said, "```\na\n\nb\n```"),
        (LineKind::Tool, "Read a.rs: did not finish"),
    ];
    assert_eq!(take_lines(&mut builder), expected.map(|(kind, text)| (kind, text.to_owned())));
    assert_eq!(builder.take_records().len(), 5, "the transcript has the same records");
}

#[test]
fn split_secrets_and_control_sequences_are_removed() {
    let mut builder = builder();
    for piece in ["the key is sk-", "sec", "\u{1b}[31mret and \u{1b}", "]52;c;eA==\u{7}more"] {
        builder.observe(at(0), message(piece));
    }
    let raw = json!({ "sk-secret": ["a sk-secret", { "b": "\u{9b}2Jsk-secret" }], "n": 1 });
    builder.observe(at(1), Observation::Update(AgentUpdate::Other(raw)));
    assert_eq!(take_lines(&mut builder), [(LineKind::Said, "the key is … and more".to_owned())]);
    let records = json!(builder.take_records()).to_string();
    assert!(!records.contains("sk-secret") && !records.contains('\u{9b}'), "{records}");
    assert!(records.contains("the key is … and more"), "{records}");
}

#[test]
fn long_text_is_shown_after_a_delay_and_words_are_not_split() {
    let mut builder = builder();
    builder.observe(at(0), message("one two th"));
    builder.tick(at(4));
    assert_eq!(take_lines(&mut builder), []);
    builder.tick(at(5));
    assert_eq!(take_lines(&mut builder), [(LineKind::Said, "one two".to_owned())]);
    builder.tick(at(60));
    assert_eq!(take_lines(&mut builder), [], "a single word is held back");
    builder.observe(at(61), message("ree"));
    builder.close(at(99));
    assert_eq!(take_lines(&mut builder), [(LineKind::Said, "three".to_owned())]);
    // Long text is split between words.
    builder.observe(at(70), message(&"word ".repeat(1000)));
    builder.close(at(99));
    let lines = take_lines(&mut builder);
    assert_eq!(lines.len(), 3);
    for (_, text) in lines {
        assert!(
            text.len() <= MAX_SPEECH_BYTES && text.split(' ').all(|word| word == "word"),
            "{text}"
        );
    }
}

#[test]
fn a_tool_call_is_one_line_at_its_end() {
    let mut builder = builder();
    builder.observe(at(0), tool("1", Some("Edit /checkout/a.rs"), Some("pending")));
    builder.observe(at(1), tool("1", None, Some("in_progress")));
    builder.observe(at(2), tool("2", Some("Run"), Some("in_progress")));
    let running = builder.take_batch(at(2), 10).and_then(|batch| batch.running).expect("calls");
    let titles: Vec<_> = running.iter().map(|call| (call.title.as_str(), call.since)).collect();
    assert_eq!(titles, [("Edit a.rs", at(0)), ("Run", at(2))]);
    for _ in 0..3 {
        builder.observe(at(2), tool("1", None, None));
        builder.observe(at(2), tool("1", Some("Edit /checkout/a.rs"), Some("in_progress")));
    }
    assert_eq!(builder.take_batch(at(3), 10), None, "nothing has changed");
    builder.observe(at(3), tool("1", None, Some("completed")));
    builder.observe(at(4), tool("1", Some("late"), None));
    let batch = builder.take_batch(at(4), 10).expect("a batch");
    let texts: Vec<_> = batch.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["Edit a.rs"]);
    assert_eq!(batch.running.map(|calls| calls.len()), Some(1));
    builder.close(at(5));
    assert_eq!(take_lines(&mut builder), [(LineKind::Tool, "Run: did not finish".to_owned())]);
    assert_eq!(builder.take_records().len(), 11, "the transcript has every update");
}

#[test]
fn paths_are_relative_in_lines_and_absolute_in_the_transcript() {
    let mut builder = builder();
    builder.observe(at(0), message("See /checkout/src/a.rs.\n\n"));
    assert_eq!(take_lines(&mut builder), [(LineKind::Said, "See src/a.rs.".to_owned())]);
    assert!(json!(builder.take_records()).to_string().contains("/checkout/src/a.rs"));
}

#[test]
fn a_block_of_json_stays_in_one_piece_and_out_of_the_text() {
    let mut builder = builder();
    let fields: Vec<_> = (0..300).map(|number| format!("  \"field {number}\": 1")).collect();
    let block = format!("{{\n{}\n}}", fields.join(",\n"));
    let text = format!("Here it is.\n```json\n{block}\n```\n");
    for (second, piece) in text.as_bytes().chunks(100).enumerate() {
        let now = at(i64::try_from(second).expect("small"));
        builder.observe(now, message(std::str::from_utf8(piece).expect("ASCII")));
        builder.tick(now);
    }
    builder.close(at(99));
    let lines = builder.take_batch(at(100), 1000).expect("a batch").lines;
    let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["Here it is.", "JSON block"]);
    assert_eq!(lines[1].data, Some(json!({ "json": block })));
}

#[test]
fn plans_and_verdicts_are_documents() {
    let mut builder = builder();
    let verdict = json!({
        "criteria": { "C1": { "met": { "evidence": "a test" } }, "C2": { "unmet": { "why": "b" } } },
        "issues": [],
    });
    for (name, content) in [("plan", json!({ "summary": "Greet." })), ("verdict", verdict)] {
        let update = AgentUpdate::DocumentSubmitted { name, content };
        builder.observe(at(0), Observation::Update(update));
    }
    let lines = builder.take_batch(at(1), 10).expect("a batch").lines;
    let shown: Vec<_> = lines.iter().map(|line| (line.kind, line.text.as_str())).collect();
    let expected = [
        (LineKind::Document, "plan: Greet."),
        (LineKind::Document, "verdict: 1 of 2 criteria met, 0 issues"),
    ];
    assert_eq!(shown, expected);
    let data = lines[0].data.as_ref().expect("data");
    assert_eq!(
        (&data["document"], &data["content"]["summary"]),
        (&json!("plan"), &json!("Greet."))
    );
}

#[test]
fn permission_requests_are_shown_with_their_decision() {
    let mut builder = builder();
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
    builder
        .observe(at(0), Observation::Update(AgentUpdate::PermissionDecided(ask.clone(), ruling)));
    let text = "git push: denied (this run may only look)";
    assert_eq!(take_lines(&mut builder), [(LineKind::Asked, text.to_owned())]);
    let allowed =
        PermissionDecision { effect: PermissionEffect::Allow, reason: "allowed".to_owned() };
    builder.observe(at(1), Observation::Update(AgentUpdate::PermissionDecided(ask, allowed)));
    assert_eq!(take_lines(&mut builder), [], "the tool call has a line of its own");
}

#[test]
fn metered_usage_takes_precedence_and_unknown_is_not_zero() {
    let mut builder = builder();
    let usd = |text: &str| Cost::Known(text.parse().expect("money"));
    let reported =
        Usage { tokens: Tokens { input: 9, output: 9, ..Tokens::default() }, cost: Cost::Unknown };
    builder.observe(at(0), Observation::Update(AgentUpdate::UsageReported(reported)));
    assert_eq!(builder.usage(), Some((reported, false)));
    builder.observe(at(1), call(usd("0.25"), 200));
    builder.observe(at(1), call(Cost::Unknown, 429));
    builder.observe(at(1), call(usd("0.5"), 200));
    builder.observe(at(2), Observation::Update(AgentUpdate::UsageReported(reported)));
    let counted = Usage {
        tokens: Tokens { input: 200, cached: 40, output: 6, ..Tokens::default() },
        cost: usd("0.75"),
    };
    assert_eq!(builder.usage(), Some((counted, true)));
    builder.observe(at(3), call(Cost::Unknown, 200));
    assert_eq!(builder.usage().map(|(usage, _)| usage.cost), Some(Cost::Unknown));
    let batch = builder.take_batch(at(4), 1000).expect("a batch");
    assert_eq!(batch.model.as_deref(), Some("large"));
    assert_eq!(batch.calls.iter().map(|call| call.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let texts: Vec<_> = batch.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts[0], "large · 100 in, 20 cached, 3 out · $0.25 · 2.3 s");
    assert_eq!(texts[1], "large · status 429 · 2.3 s");
    assert_eq!(texts[3], "large · 100 in, 20 cached, 3 out · cost unknown · 2.3 s");
    assert_eq!(builder.take_batch(at(5), 10), None);
}

#[test]
fn lines_dropped_during_an_outage_are_counted_and_mentioned() {
    let mut builder = builder();
    for number in 0..MAX_PENDING_LINES + 7 {
        builder.observe(at(0), Observation::Note(number.to_string()));
    }
    assert_eq!(builder.take_records().len(), MAX_PENDING_LINES + 7);
    assert_eq!(builder.take_batch(at(1), 500).map(|batch| batch.lines.len()), Some(500));
    let mut last = None;
    while let Some(batch) = builder.take_batch(at(1), 500) {
        last = batch.lines.last().map(|line| line.text.clone());
    }
    let expected = "7 lines are only in the transcript: the database was unavailable for too long";
    assert_eq!(last.as_deref(), Some(expected));
}

#[test]
fn a_resumed_session_names_the_prompt_that_it_got() {
    let template = Digest::of(b"continue");
    let record = PromptRecord {
        name: "implement".to_owned(),
        template: Digest::of(b"implement"),
        set: None,
        continuation: Some(("continue".to_owned(), template)),
    };
    for (resumed, lines) in [(false, 1), (true, 2)] {
        let mut builder = builder();
        let start = RunStart { prompt: record.clone(), model: None, iteration: None };
        builder.observe(at(0), Observation::Started(start));
        let session = AgentUpdate::Session { name: "s1".to_owned(), resumed };
        builder.observe(at(1), Observation::Update(session));
        let shown = take_lines(&mut builder);
        assert_eq!(shown.len(), lines);
        let names_it = shown.last().is_some_and(|(_, text)| text.contains("prompt `continue`"));
        assert_eq!(names_it, resumed, "{shown:?}");
    }
}

#[test]
fn the_first_line_has_the_iteration_and_the_maximum() {
    let prompt = PromptRecord {
        name: "implement".to_owned(),
        template: Digest::of(b"implement"),
        set: None,
        continuation: None,
    };
    let mut builder = builder();
    let start = RunStart { prompt, model: None, iteration: Some((2, 10)) };
    builder.observe(at(0), Observation::Started(start));
    let batch = builder.take_batch(at(1), 10).expect("a batch");
    let line = batch.lines.first().expect("a line");
    assert!(line.text.starts_with("attempt 2 of 10, prompt `implement`, version "), "{line:?}");
    let data = line.data.as_ref().expect("data");
    assert_eq!((&data["iteration"], &data["max_iterations"]), (&json!(2), &json!(10)));
}

/// Progress reports of a run of four hours with a busy agent, ticked every quarter of a second.
fn reports_of_four_hours(interval_ms: u64) -> Vec<NewLine> {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.progress_update_interval_ms = interval_ms;
    let mut builder = builder();
    builder.report_progress(at(0), rules.scrum_master.task_loop.progress_clock(at(0)));
    let mut reports = Vec::new();
    for quarter in 1..=4 * 3600 * 4 {
        let now = at(0) + TimeDelta::milliseconds(quarter * 250);
        builder.observe(now, tool(&quarter.to_string(), Some("Edit"), Some("completed")));
        builder.tick(now);
        let batch = builder.take_batch(now, 1000).unwrap_or_default();
        reports.extend(batch.lines.into_iter().filter(|line| line.kind == LineKind::Progress));
    }
    reports
}

#[test]
fn progress_is_reported_at_the_configured_interval_and_never_more_often() {
    for (interval_ms, count) in [(30_000, 480), (750, 19_200), (3_600_000, 4)] {
        let reports = reports_of_four_hours(interval_ms);
        let times = reports.iter().map(|line| (line.at - at(0)).num_milliseconds());
        let expected =
            (1..=count).map(|number| number * i64::try_from(interval_ms).expect("small"));
        assert!(times.eq(expected), "{interval_ms} ms: {} reports", reports.len());
    }
    let reports = reports_of_four_hours(30_000);
    let data = reports[1].data.as_ref().expect("data");
    assert_eq!(data["event"], "SM_IMPLEMENTATION_PROGRESS");
    assert_eq!((&data["elapsed_seconds"], &data["tool_calls"]), (&json!(60), &json!(240)));
    assert_eq!(reports[1].text, "1 min, 240 tool calls");
}

#[test]
fn a_progress_report_has_the_cost_and_the_latest_message_without_secrets() {
    let mut builder = builder();
    builder.report_progress(at(0), UpdateClock::new(at(0), TimeDelta::seconds(30)));
    builder.observe(at(1), call(Cost::Known(Usd::from_cents(25)), 200));
    let said = AgentUpdate::Progress("half done with sk-secret".to_owned());
    builder.observe(at(2), Observation::Update(said));
    builder.tick(at(30));
    let lines = take_lines(&mut builder);
    let (kind, text) = lines.last().expect("a line");
    assert_eq!(*kind, LineKind::Progress);
    assert_eq!(text, "30 s, 0 tool calls, 123 tokens, $0.25: half done with …");
}

#[test]
fn runs_without_progress_reports_have_none() {
    let mut builder = builder();
    builder.tick(at(3600));
    assert_eq!(take_lines(&mut builder), []);
}

#[test]
fn calls_to_models_are_taken_once_for_their_spans() {
    let mut builder = builder();
    builder.observe(at(0), call(Cost::Unknown, 200));
    builder.observe(at(1), call(Cost::Unknown, 429));
    let taken = builder.take_ended_model_calls();
    let calls: Vec<_> = taken.iter().map(|it| (it.call.sequence, it.call.status)).collect();
    assert_eq!(calls, [(1, 200), (2, 429)]);
    assert_eq!(builder.take_ended_model_calls(), []);
}
