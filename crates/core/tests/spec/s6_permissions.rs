//! Section 6: what agents may do, as `tamma.yaml` says it, and what confines them.

use rstest::rstest;
use tamma_core::rules::{self, AgentRole, Deed, Line, Lines, Rules, Sandbox, Source};

fn load(text: &str) -> Rules {
    let source = Source { name: "tamma.yaml", text };
    rules::load(Some(source), &std::collections::BTreeMap::new()).unwrap().rules
}

#[test]
fn nothing_is_said_by_default_and_each_role_has_its_own_lines() {
    assert_eq!(Rules::default().permissions.get(AgentRole::Council), &Lines::default());
    let rules = load(
        "\
permissions:
  implementer:
    allow: [\"command: cargo *\"]
    ask: [\"write: migrations/**\"]
    deny: [\"read: secrets/**\"]
  planner: {deny: [\"tool: browser\"]}
",
    );
    let line = |text: &str| vec![text.to_owned()];
    let expected = Lines {
        allow: line("command: cargo *"),
        ask: line("write: migrations/**"),
        deny: line("read: secrets/**"),
    };
    assert_eq!(rules.permissions.get(AgentRole::Implementer), &expected);
    assert_eq!(rules.permissions.get(AgentRole::Planner).deny, ["tool: browser"]);
    assert_eq!(rules.permissions.get(AgentRole::Validator), &Lines::default());
}

#[rstest]
#[case("read: src/**", Deed::Read, "src/**")]
#[case("write:/srv/x", Deed::Write, "/srv/x")]
#[case(" command :  git push * ", Deed::Command, "git push *")]
#[case("command: a: b", Deed::Command, "a: b")]
#[case("tool: *", Deed::Tool, "*")]
#[case("network: api.example.org", Deed::Network, "api.example.org")]
fn a_line_is_a_kind_and_a_pattern(#[case] text: &str, #[case] deed: Deed, #[case] pattern: &str) {
    assert_eq!(Line::read(text), Ok(Line { deed, pattern: pattern.to_owned() }));
}

#[rstest]
#[case("cargo test", "does not say what it is about")]
#[case("Write: a", "does not say what it is about")]
#[case("delete: a", "does not say what it is about")]
#[case("write:", "names nothing")]
#[case("write: a/../b", "leads around")]
#[case("read: ./a", "leads around")]
#[case("write: a?", "only `*` and `**`")]
#[case("read: {a,b}", "only `*` and `**`")]
#[case("command: a\u{7}", "control character")]
fn a_line_that_means_nothing_is_told_with_what_would_be_right(
    #[case] text: &str,
    #[case] told: &str,
) {
    let error = Line::read(text).unwrap_err();
    assert!(error.contains(told) && error.contains(text), "{error}");
}

#[test]
fn a_line_has_its_longest() {
    assert!(Line::read(&format!("command: {}", "a".repeat(500))).is_ok());
    assert!(Line::read(&format!("command: {}", "a".repeat(501))).is_err());
}

#[test]
fn agents_are_confined_unless_a_person_writes_that_they_are_not() {
    let engines = Rules::default().engines;
    assert_eq!((engines.sandbox, engines.readable.len()), (Sandbox::Auto, 0));
    let engines = load("engines: {sandbox: off, readable: [/srv/cache]}").engines;
    assert_eq!(engines.sandbox, Sandbox::Off);
    assert_eq!(engines.readable, ["/srv/cache"]);
    assert_eq!(load("engines: {sandbox: landlock}").engines.sandbox, Sandbox::Landlock);
}
