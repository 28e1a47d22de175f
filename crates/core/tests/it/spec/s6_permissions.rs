//! Section 6: configured permissions and sandbox of agents.

use rstest::rstest;
use tamma_core::operator::{OperatorConfig, WeakestSandbox};
use tamma_core::rules::{
    self, AccessKind, AgentRole, ConfigFile, PermissionLists, PermissionRule, Rules, SandboxMode,
};

fn load(text: &str) -> Rules {
    let source = ConfigFile { name: "tamma.yaml", text };
    let operator = OperatorConfig {
        weakest_sandbox: WeakestSandbox::Off,
        readable: vec!["/srv".to_owned()],
        ..OperatorConfig::default()
    };
    rules::load(Some(source), &std::collections::BTreeMap::new(), &operator).unwrap().rules
}

#[test]
fn permissions_are_empty_by_default_and_each_role_has_its_own_rules() {
    assert_eq!(Rules::default().permissions.get(AgentRole::Council), &PermissionLists::default());
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
    let expected = PermissionLists {
        allow: line("command: cargo *"),
        ask: line("write: migrations/**"),
        deny: line("read: secrets/**"),
    };
    assert_eq!(rules.permissions.get(AgentRole::Implementer), &expected);
    assert_eq!(rules.permissions.get(AgentRole::Planner).deny, ["tool: browser"]);
    assert_eq!(rules.permissions.get(AgentRole::Validator), &PermissionLists::default());
}

#[rstest]
#[case("read: src/**", AccessKind::Read, "src/**")]
#[case("write:/srv/x", AccessKind::Write, "/srv/x")]
#[case(" command :  git push * ", AccessKind::Command, "git push *")]
#[case("command: a: b", AccessKind::Command, "a: b")]
#[case("tool: *", AccessKind::Tool, "*")]
#[case("network: api.example.org", AccessKind::Network, "api.example.org")]
fn a_permission_rule_is_a_kind_and_a_pattern(
    #[case] text: &str,
    #[case] access: AccessKind,
    #[case] pattern: &str,
) {
    assert_eq!(
        PermissionRule::parse(text),
        Ok(PermissionRule { access, pattern: pattern.to_owned() })
    );
}

#[rstest]
#[case("cargo test", "has no known access kind")]
#[case("Write: a", "has no known access kind")]
#[case("delete: a", "has no known access kind")]
#[case("write:", "has no pattern")]
#[case("write: a/../b", "contains `.` or `..`")]
#[case("read: ./a", "contains `.` or `..`")]
#[case("write: a?", "only `*` and `**`")]
#[case("read: {a,b}", "only `*` and `**`")]
#[case("command: a\u{7}", "control character")]
fn an_invalid_permission_rule_is_refused_with_a_hint(#[case] text: &str, #[case] hint: &str) {
    let error = PermissionRule::parse(text).unwrap_err();
    assert!(error.contains(hint) && error.contains(text), "{error}");
}

#[test]
fn a_permission_rule_has_a_maximum_length() {
    assert!(PermissionRule::parse(&format!("command: {}", "a".repeat(500))).is_ok());
    assert!(PermissionRule::parse(&format!("command: {}", "a".repeat(501))).is_err());
}

#[test]
fn agents_are_sandboxed_unless_configured_otherwise() {
    let pool = Rules::default().engines;
    assert_eq!((pool.sandbox, pool.readable.len()), (SandboxMode::Auto, 0));
    let pool = load("engines: {sandbox: off, readable: [/srv/cache]}").engines;
    assert_eq!(pool.sandbox, SandboxMode::Off);
    assert_eq!(pool.readable, ["/srv/cache"]);
    assert_eq!(load("engines: {sandbox: landlock}").engines.sandbox, SandboxMode::Landlock);
}
