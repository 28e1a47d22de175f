//! Targets. Each takes any bytes; a panic, a time-out or too much memory is a finding, and so is a
//! violated property.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;
use tamma_chat::ChatContext;
use tamma_core::knowledge::{import, markdown};
use tamma_core::operator::OperatorConfig;
use tamma_core::pipeline::signal;
use tamma_core::pipeline::{PhaseDefinition, PipelineDefinition};
use tamma_core::repository_address::{RepositoryAddress, hide_url_credentials};
use tamma_core::review::patch;
use tamma_core::rules::{self, ConfigFile, ReportFormat};
use tamma_engine::agent::RunMode;
use tamma_engine::gateway::Dialect;
use tamma_engine::{fuzzing, sanitize};

/// Target.
pub(crate) type Target = fn(&[u8]);

/// All targets by name.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("rules", rules_file),
    ("operator", operator_file),
    ("submission", submission),
    ("junit", |data| fuzzing::report(ReportFormat::Junit, &text(data))),
    ("sarif", |data| fuzzing::report(ReportFormat::Sarif, &text(data))),
    ("patch", patch_text),
    ("model_stream", model_stream),
    ("permission", permission),
    ("shell", shell),
    ("chat", chat),
    ("knowledge_file", knowledge_file),
    ("knowledge_import", knowledge_import),
    ("phase_signal", phase_signal),
    ("address", address),
    ("terminal_text", terminal_text),
];

fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// Splits off the first byte as a choice of one of the values.
fn choose<T: Copy>(data: &[u8], values: &[T]) -> Option<(T, Vec<u8>)> {
    let (first, rest) = data.split_first()?;
    Some((values[usize::from(*first) % values.len()], rest.to_vec()))
}

/// `tamma.yaml`, which a repository writes.
fn rules_file(data: &[u8]) {
    let text = text(data);
    let file = ConfigFile { name: "tamma.yaml", text: &text };
    match rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default()) {
        Ok(loaded) => drop(loaded.settings()),
        Err(problems) => drop(problems.to_string()),
    }
}

fn operator_file(data: &[u8]) {
    if let Err(error) = OperatorConfig::parse(&text(data)) {
        drop(error.to_string());
    }
}

/// Plans, verdicts and other submissions of agents.
fn submission(data: &[u8]) {
    use RunMode::{Advise, Conclude, Implement, Learn, Phase, Plan, Split, Validate};
    let modes = [Plan, Implement, Validate, Advise, Conclude, Learn, Phase, Split];
    if let Some((mode, rest)) = choose(data, &modes) {
        fuzzing::submission(mode, &text(&rest));
    }
}

fn patch_text(data: &[u8]) {
    let text = text(data);
    let rows = patch::lines(&text);
    // A line such as `rename to b` is a header, and names the file.
    assert!(rows.len() <= 2 * text.lines().count(), "more rows than the patch has lines for");
    drop(patch::added_lines(&text));
}

/// Responses of model providers. The size of the chunks must not change the tokens.
fn model_stream(data: &[u8]) {
    let dialects = [Dialect::Anthropic, Dialect::Chat, Dialect::Responses, Dialect::Gemini];
    let Some((dialect, rest)) = choose(data, &dialects) else { return };
    let Some((content_type, body)) = choose(&rest, &["text/event-stream", "application/json"])
    else {
        return;
    };
    let whole = fuzzing::response(dialect, content_type, &body, body.len());
    for size in [1, 7] {
        let chunked = fuzzing::response(dialect, content_type, &body, size);
        assert_eq!(whole, chunked, "chunks of {size} bytes");
    }
}

/// Permission requests of agents, over the protocol and through a hook.
fn permission(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    drop(fuzzing::hook(&value));
    drop(fuzzing::permission(value.clone(), Value::Null));
    drop(fuzzing::permission(value.clone(), value));
}

/// Commands of agents.
fn shell(data: &[u8]) {
    drop(tamma_policy::command::parse(&text(data)));
}

fn chat(data: &[u8]) {
    static CONTEXT: OnceLock<ChatContext> = OnceLock::new();
    let context = CONTEXT.get_or_init(ChatContext::default);
    let text = text(data);
    drop(tamma_chat::interpret(&text, context));
    drop(tamma_chat::interpret_model_answer(&text, "approve it", context));
}

/// Knowledge files. Entries survive being written and read again.
fn knowledge_file(data: &[u8]) {
    if let Ok(entries) = markdown::parse(&text(data)) {
        let again = markdown::parse(&markdown::render(&entries));
        assert_eq!(again.as_ref().ok(), Some(&entries), "entries changed: {again:?}");
    }
}

/// Instruction files of a repository.
fn knowledge_import(data: &[u8]) {
    let paths =
        ["a/AGENTS.md", ".cursor/rules/a.mdc", "clippy.toml", "ruff.toml", ".eslintrc.yaml"];
    if let Some((path, rest)) = choose(data, &paths) {
        drop(import::candidates(path, &text(&rest)));
    }
}

/// Last lines of a pipeline's phases. Only the exact signal is a success.
fn phase_signal(data: &[u8]) {
    let pipeline = PipelineDefinition::built_in();
    let Some(phase) = pipeline.phase(1) else { return };
    let text = text(data);
    let signal = signal::parse(&text, phase);
    let is_exact =
        text.lines().any(|line| line.trim_end() == PhaseDefinition::success_signal(phase));
    assert!(signal != signal::PhaseSignal::Success || is_exact, "a success without its signal");
}

/// Addresses of repositories. An accepted one is no option of git.
fn address(data: &[u8]) {
    let text = text(data);
    if let Ok(address) = text.parse::<RepositoryAddress>() {
        assert!(!address.as_git_source().starts_with('-'), "an option: {address:?}");
    }
    drop(hide_url_credentials(&text));
}

/// Text of agents that reaches a terminal. Cleaning is idempotent.
fn terminal_text(data: &[u8]) {
    let text = text(data);
    let clean = sanitize::text(&text);
    assert_eq!(sanitize::text(&clean), clean);
    assert!(!clean.contains('\u{1b}'), "an escape sequence is left");
}
