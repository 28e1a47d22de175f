//! Scripted agent without a client.

use std::process::Stdio;

use tamma_testkit::agent::{self, AgentStep, SCRIPT_VARIABLE, Script};

#[test]
fn binary_is_found() {
    let program = agent::program().expect("built with this test");
    assert_eq!(program, std::path::Path::new(env!("CARGO_BIN_EXE_scripted-agent")));
}

#[test]
fn script_round_trips() {
    let script = Script::new([
        AgentStep::Write { path: "a".into(), content: "b".to_owned() },
        AgentStep::Fail { code: 429, message: "no".to_owned(), data: None },
        AgentStep::Hang,
    ]);
    let text = serde_json::to_string(&script).expect("written");
    assert_eq!(serde_json::from_str::<Script>(&text).expect("read"), script);
}

#[tokio::test]
async fn agent_exits_when_its_input_closes() {
    let folder = tempfile::tempdir().expect("folder");
    let script = folder.path().join("script.json");
    Script::default().write(&script).expect("written");
    let status = tokio::process::Command::new(agent::program().expect("built"))
        .env(SCRIPT_VARIABLE, &script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .await
        .expect("process started");
    assert!(status.success(), "{status}");
}
