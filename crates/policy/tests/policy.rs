//! What is allowed, asked and denied, by defaults and by the short form.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::str::FromStr as _;

use cedar_policy::{PolicySet, Schema, ValidationMode, Validator};
use tamma_core::rules::{AgentRole, Deed, Lines, Permissions};
use tamma_policy::{DEFAULTS, Policy, Question, Ruling, SCHEMA, Verdict};

fn lines(text: [&[&str]; 3]) -> Lines {
    let [allow, ask, deny] =
        text.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
    Lines { allow, ask, deny }
}

fn decide(policy: &Policy, deed: Deed, what: &str) -> Ruling {
    let inside = !what.starts_with('/');
    policy.decide(&Question { deed, what, inside, approved: false })
}

fn default(role: AgentRole) -> Policy {
    Policy::new(role, &Permissions::default()).expect("a policy")
}

#[test]
fn the_defaults_are_valid_in_the_schema() {
    let (schema, warnings) = Schema::from_cedarschema_str(SCHEMA).expect("a schema");
    assert_eq!(warnings.count(), 0);
    let policies = PolicySet::from_str(DEFAULTS).expect("policies");
    let result = Validator::new(schema).validate(&policies, ValidationMode::Strict);
    assert!(result.validation_passed(), "{result}");
    for policy in policies.policies() {
        assert!(policy.annotation("because").is_some(), "{policy}");
    }
}

#[test]
fn what_the_defaults_say_they_deny_is_denied_to_everybody() {
    for role in [AgentRole::Planner, AgentRole::Implementer, AgentRole::Council] {
        let policy = default(role);
        for deed in [Deed::Write, Deed::Command] {
            let patterns: Vec<String> = policy.denied(deed).map(str::to_owned).collect();
            assert!(!patterns.is_empty());
            for pattern in patterns {
                let what = pattern.replace("**", "x").replace('*', "x");
                assert_eq!(decide(&policy, deed, &what).verdict, Verdict::Deny, "{what}");
            }
        }
    }
}

#[test]
fn an_implementer_works_in_the_worktree_and_others_look() {
    let policy = default(AgentRole::Implementer);
    let verdict = |deed, what| decide(&policy, deed, what).verdict;
    assert_eq!(verdict(Deed::Read, "src/a.rs"), Verdict::Allow);
    assert_eq!(verdict(Deed::Write, "src/a.rs"), Verdict::Allow);
    assert_eq!(verdict(Deed::Write, "/etc/passwd"), Verdict::Deny);
    assert_eq!(verdict(Deed::Read, "/etc/passwd"), Verdict::Deny);
    assert_eq!(verdict(Deed::Command, "cargo test"), Verdict::Allow);
    assert_eq!(verdict(Deed::Command, "git push origin"), Verdict::Deny);
    assert_eq!(verdict(Deed::Command, "git pushing"), Verdict::Allow);
    assert_eq!(verdict(Deed::Tool, "submit_plan"), Verdict::Allow);
    assert_eq!(verdict(Deed::Tool, "browser"), Verdict::Deny);
    assert_eq!(verdict(Deed::Network, "example.org"), Verdict::Deny);
    for role in [AgentRole::Planner, AgentRole::Validator, AgentRole::Council] {
        let policy = default(role);
        let verdict = |deed, what| decide(&policy, deed, what).verdict;
        assert_eq!(verdict(Deed::Read, "src/a.rs"), Verdict::Allow);
        assert_eq!(verdict(Deed::Write, "src/a.rs"), Verdict::Deny);
        assert_eq!(verdict(Deed::Command, "cargo test"), Verdict::Deny);
        assert_eq!(verdict(Deed::Command, "git log -3"), Verdict::Allow);
        assert_eq!(verdict(Deed::Tool, "ask_human"), Verdict::Allow);
    }
}

#[test]
fn deny_stands_over_ask_and_ask_over_allow() {
    let implementer = lines([
        &["tool: browser", "write: a/**", "read: /usr/include/**"],
        &["write: a/b/**", "command: cargo update *"],
        &["write: a/b/c/**", "command: cargo update --aggressive"],
    ]);
    let permissions = Permissions { implementer, ..Permissions::default() };
    let policy = Policy::new(AgentRole::Implementer, &permissions).expect("a policy");
    let ruling = |deed, what| decide(&policy, deed, what);
    assert_eq!(ruling(Deed::Write, "a/x").verdict, Verdict::Allow);
    assert_eq!(ruling(Deed::Write, "a/b/x").verdict, Verdict::Ask);
    assert_eq!(ruling(Deed::Write, "a/b/c/x").verdict, Verdict::Deny);
    assert_eq!(ruling(Deed::Write, "a/b/c/x").reason, "the rules say `deny: write: a/b/c/**`");
    assert_eq!(ruling(Deed::Write, "a/b/x").reason, "the rules say `ask: write: a/b/**`");
    assert_eq!(ruling(Deed::Command, "cargo update").verdict, Verdict::Ask);
    assert_eq!(ruling(Deed::Command, "cargo update --aggressive").verdict, Verdict::Deny);
    assert_eq!(ruling(Deed::Tool, "browser").reason, "the rules say `allow: tool: browser`");
    assert_eq!(ruling(Deed::Read, "/usr/include/stdio.h").verdict, Verdict::Allow);
    assert_eq!(ruling(Deed::Tool, "other").reason, "no rule allows it");
    assert!(policy.denied(Deed::Write).any(|pattern| pattern == "a/b/c/**"));
    // What is asked for one role says nothing of another.
    let planner = Policy::new(AgentRole::Planner, &permissions).expect("a policy");
    assert_eq!(decide(&planner, Deed::Write, "a/b/x").verdict, Verdict::Deny);
}

#[test]
fn what_a_person_approved_of_is_allowed_and_what_is_denied_stays_so() {
    let implementer = lines([&[], &["write: a/**"], &["write: a/b"]]);
    let permissions = Permissions { implementer, ..Permissions::default() };
    let policy = Policy::new(AgentRole::Implementer, &permissions).expect("a policy");
    let approved = |what| {
        policy.decide(&Question { deed: Deed::Write, what, inside: true, approved: true }).verdict
    };
    assert_eq!(approved("a/x"), Verdict::Allow);
    assert_eq!(approved("a/b"), Verdict::Deny);
    assert_eq!(approved("tamma.yaml"), Verdict::Deny);
}

#[test]
fn a_line_cannot_say_more_than_a_pattern() {
    let implementer = lines([&["tool: \") permit(principal, action, resource); //\\"], &[], &[]]);
    let permissions = Permissions { implementer, ..Permissions::default() };
    let policy = Policy::new(AgentRole::Implementer, &permissions).expect("a policy");
    assert_eq!(decide(&policy, Deed::Tool, "x").verdict, Verdict::Deny);
}
