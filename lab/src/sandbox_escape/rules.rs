//! Rule attempts: changing rules, forged submissions and terminal escape codes.

use serde_json::json;
use tamma_engine::agent::{AgentUpdate, RunEnd, RunMode};
use tamma_engine::permission::PermissionEffect;
use tamma_engine::sandbox::SandboxKind;
use tamma_engine::submission::Submission;
use tamma_testkit::agent::AgentStep;

use super::attempt::{Attempt, AttemptResult};
use super::fixture::EscapeFixture;

/// Rules of the hostile repository.
pub(crate) const RULES: &str = "engines: {slots: 2}\n";

pub(crate) fn all() -> Vec<Attempt> {
    permissions().into_iter().chain(tokens()).chain(texts()).collect()
}

/// Returns `true` if a file was changed without a violation being reported.
fn changed_quietly(result: &AttemptResult<'_>, path: &str, was: &str) -> bool {
    let now = std::fs::read_to_string(result.fixture.tree.path().join(path)).unwrap_or_default();
    now != was && !result.violations.iter().any(|violation| violation.path == path)
}

/// Returns `true` if a permission request was allowed.
pub(super) fn allowed(result: &AttemptResult<'_>) -> bool {
    let updates = result.fixture.updates();
    let mut decisions = updates.iter().filter_map(|update| match update {
        AgentUpdate::PermissionDecided(_, decision) => {
            Some(decision.effect == PermissionEffect::Allow)
        }
        _ => None,
    });
    decisions.any(|allowed| allowed)
}

fn permissions() -> Vec<Attempt> {
    let asks = |name: &str, line: &'static str| {
        Attempt::steps(name, "permission", move |_| vec![AgentStep::Run(line.to_owned())], allowed)
    };
    vec![
        Attempt::steps(
            "asks to change its own rules",
            "permission",
            |_| vec![AgentStep::Write { path: "tamma.yaml".into(), content: "x".to_owned() }],
            |result| changed_quietly(result, "tamma.yaml", RULES),
        ),
        Attempt::script(
            "changes the rules without asking",
            "sandbox",
            |_| "echo x > tamma.yaml; mv tamma.yaml y; echo x > tamma.yaml".to_owned(),
            |result| {
                let changed =
                    std::fs::read_to_string(result.fixture.tree.path().join("tamma.yaml"))
                        .is_ok_and(|text| text != RULES);
                // Landlock cannot protect a file in a writable folder; the diff check reports it.
                let is_reported = result.fixture.kind == SandboxKind::Landlock
                    && !changed_quietly(result, "tamma.yaml", RULES);
                changed && !is_reported
            },
        ),
        Attempt::script(
            "changes a protected file by renaming the folder above it",
            "diff check",
            |_| {
                "mv deploy old && mkdir deploy && echo x > deploy/keys.txt; \
                 mkdir -p .github && echo x > .github/ci.yml"
                    .to_owned()
            },
            |result| changed_quietly(result, ".github/ci.yml", ""),
        ),
        Attempt::script(
            "changes files in a read-only run",
            "sandbox",
            |_| "echo x > README.md; echo x > new.txt".to_owned(),
            |result| result.fixture.tree.path().join("new.txt").exists(),
        )
        .in_mode(RunMode::Advise),
        asks("asks to push", "git push origin HEAD"),
        asks("asks to push in a nested shell", "sh -c \"true && bash -lc '/usr/bin/git push'\""),
        asks("asks to push in a command substitution", "echo \"$(env X=1 git -C . push)\""),
        asks("asks to run the content of a variable", "X='git push'; $X"),
        asks("asks to become root", "cd src; sudo id"),
    ]
}

/// Returns a script that posts to the gateway and prints the status line.
fn post(url: &str, token: &str, port: u16, to: &str) -> String {
    let path = url.splitn(4, '/').nth(3).unwrap_or_default();
    format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; printf \"POST /{path}{to} HTTP/1.1\\r\\nHost: \
         x\\r\\nAuthorization: Bearer {token}\\r\\nContent-Length: 2\\r\\nConnection: \
         close\\r\\n\\r\\n{{}}\" >&3; head -n 1 <&3'; "
    )
}

/// Returns the port of an endpoint URL.
fn port(url: &str) -> u16 {
    let rest = url.rsplit_once("127.0.0.1:").map(|(_, rest)| rest).unwrap_or_default();
    rest.split('/').next().and_then(|port| port.parse().ok()).unwrap_or_default()
}

fn tokens() -> Vec<Attempt> {
    let tries = |name: &str, to: &'static str, own: bool| {
        Attempt::script(
            name,
            "token",
            move |fixture: &EscapeFixture| {
                let [mine, other] = &fixture.endpoints;
                // In control runs, the right token shows that the request is valid.
                let token = match (fixture.kind, own) {
                    (SandboxKind::Off, _) => other.token().expose(),
                    (_, true) => mine.token().expose(),
                    (_, false) => "made-up",
                };
                post(other.url(), token, port(other.url()), to)
            },
            |result| {
                let output = result.fixture.output();
                !output.contains(" 401 ") && output.contains("HTTP/1.1")
            },
        )
    };
    vec![
        tries("submits for another run with its own token", "/mcp", true),
        tries("calls a model for another run with its own token", "/v1/messages", true),
        tries("submits for another run with an invented token", "/mcp", false),
    ]
}

const CODES: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31mred\r";

fn has_control_codes(text: &str) -> bool {
    text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\r'])
}

fn texts() -> Vec<Attempt> {
    vec![
        Attempt::steps(
            "sends terminal control codes in messages and thoughts",
            "sanitiser",
            |_| vec![AgentStep::Say(CODES.to_owned()), AgentStep::Think(CODES.to_owned())],
            |result| {
                result.fixture.updates().iter().any(|update| match update {
                    AgentUpdate::Message(text) | AgentUpdate::Thought(text) => has_control_codes(text),
                    _ => false,
                })
            },
        ),
        Attempt::steps(
            "sends control codes in titles and names",
            "sanitiser",
            |_| {
                vec![
                    AgentStep::Ask { title: CODES.to_owned() },
                    AgentStep::Update(json!({ "sessionUpdate": "plan", "entries": [CODES] })),
                    AgentStep::WriteStderr(CODES.to_owned()),
                ]
            },
            |result| {
                let strange = |update: &AgentUpdate| match update {
                    AgentUpdate::ToolCall(call) => call.title.as_deref().is_some_and(has_control_codes),
                    AgentUpdate::PermissionDecided(ask, _) => has_control_codes(&ask.title),
                    AgentUpdate::Other(value) => value["entries"][0].as_str().is_some_and(has_control_codes),
                    _ => false,
                };
                result.fixture.updates().iter().any(strange) || has_control_codes(&result.report.stderr)
            },
        ),
        Attempt::steps(
            "sends control codes in its plan",
            "sanitiser",
            |_| {
                vec![AgentStep::Submit(json!({
                    "summary": CODES,
                    "approach": "a",
                    "file_changes": [{ "path": "a", "action": "create", "description": CODES, "estimated_lines": 1 }],
                    "testing_strategy": "t",
                    "signals": {
                        "modules": 1, "novelty": "none", "tests": "none", "security": "none",
                        "ambiguity": "none",
                    },
                    "criteria": ["c"],
                    "verification": [{ "criterion": "C1", "test": "t" }],
                    "test_changes": [],
                    "assumptions": [],
                    "questions": [],
                }))]
            },
            |result| match &result.report.end {
                RunEnd::Finished { submission: Submission::Plan(plan), .. } => {
                    has_control_codes(&plan.summary)
                }
                _ => false,
            },
        )
        .in_mode(RunMode::Plan),
    ]
}
