//! The scripted agent, without anybody to talk to.

use std::process::Stdio;

use tamma_testkit::agent::{self, SCRIPT, Script, Step};

#[test]
fn the_program_is_found_where_cargo_puts_it() {
    let program = agent::program().expect("it is built with this test");
    assert_eq!(program, std::path::Path::new(env!("CARGO_BIN_EXE_scripted-agent")));
}

#[test]
fn a_script_reads_back_as_it_was_written() {
    let script = Script::of([
        Step::Write { path: "a".into(), content: "b".to_owned() },
        Step::Fail { code: 429, message: "no".to_owned(), data: None },
        Step::Hang,
    ]);
    let text = serde_json::to_string(&script).expect("written");
    assert_eq!(serde_json::from_str::<Script>(&text).expect("read"), script);
}

#[tokio::test]
async fn it_ends_when_nobody_talks_to_it_any_more() {
    let folder = tempfile::tempdir().expect("folder");
    let script = folder.path().join("script.json");
    Script::default().write(&script).expect("written");
    let status = tokio::process::Command::new(agent::program().expect("built"))
        .env(SCRIPT, &script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .await
        .expect("it runs");
    assert!(status.success(), "{status}");
}
