//! Permission decisions from the defaults and from rules.
#![expect(clippy::expect_used, reason = "a failed expectation fails the test")]

use std::str::FromStr as _;

use cedar_policy::{PolicySet, Schema, ValidationMode, Validator};
use tamma_core::rules::{AccessKind, AgentPermissions, AgentRole, PermissionLists};
use tamma_policy::{
    DEFAULTS, EffectivePermission, PermissionDecision, PermissionEffect, PolicyRequest, RolePolicy,
    SCHEMA,
};

fn permission_lists(rules: [&[&str]; 3]) -> PermissionLists {
    let [allow, ask, deny] =
        rules.map(|list| list.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>());
    PermissionLists { allow, ask, deny }
}

fn decide(policy: &RolePolicy, access: AccessKind, target: &str) -> PermissionDecision {
    let in_worktree = !target.starts_with('/');
    policy.decide(&PolicyRequest { access, target, in_worktree, approved: false, sandboxed: false })
}

fn default(role: AgentRole) -> RolePolicy {
    RolePolicy::new(role, &AgentPermissions::default()).expect("a policy")
}

#[test]
fn defaults_are_valid_in_the_schema() {
    let (schema, warnings) = Schema::from_cedarschema_str(SCHEMA).expect("a schema");
    assert_eq!(warnings.count(), 0);
    let policies = PolicySet::from_str(DEFAULTS).expect("policies");
    let result = Validator::new(schema).validate(&policies, ValidationMode::Strict);
    assert!(result.validation_passed(), "{result}");
    for policy in policies.policies() {
        assert!(policy.annotation("reason").is_some(), "{policy}");
    }
}

#[test]
fn default_denials_apply_to_every_role() {
    for role in [AgentRole::Planner, AgentRole::Implementer, AgentRole::Council] {
        let policy = default(role);
        for access in [AccessKind::Write, AccessKind::Command] {
            let patterns: Vec<String> = policy.denied_patterns(access).map(str::to_owned).collect();
            assert!(!patterns.is_empty());
            for pattern in patterns {
                let target = pattern.replace("**", "x").replace('*', "x");
                assert_eq!(
                    decide(&policy, access, &target).effect,
                    PermissionEffect::Deny,
                    "{target}"
                );
            }
        }
    }
}

#[test]
fn implementer_can_write_and_other_roles_can_only_read() {
    let policy = default(AgentRole::Implementer);
    let effect = |access, target| decide(&policy, access, target).effect;
    assert_eq!(effect(AccessKind::Read, "src/a.rs"), PermissionEffect::Allow);
    assert_eq!(effect(AccessKind::Write, "src/a.rs"), PermissionEffect::Allow);
    assert_eq!(effect(AccessKind::Write, "/etc/passwd"), PermissionEffect::Deny);
    assert_eq!(effect(AccessKind::Read, "/etc/passwd"), PermissionEffect::Deny);
    assert_eq!(effect(AccessKind::Command, "cargo test"), PermissionEffect::Allow);
    assert_eq!(effect(AccessKind::Command, "git push origin"), PermissionEffect::Deny);
    assert_eq!(effect(AccessKind::Command, "git pushing"), PermissionEffect::Allow);
    assert_eq!(effect(AccessKind::Tool, "submit_plan"), PermissionEffect::Allow);
    assert_eq!(effect(AccessKind::Tool, "browser"), PermissionEffect::Deny);
    assert_eq!(effect(AccessKind::Network, "example.org"), PermissionEffect::Deny);
    for role in [AgentRole::Planner, AgentRole::Council] {
        let policy = default(role);
        let effect = |access, target| decide(&policy, access, target).effect;
        assert_eq!(effect(AccessKind::Read, "src/a.rs"), PermissionEffect::Allow);
        assert_eq!(effect(AccessKind::Write, "src/a.rs"), PermissionEffect::Deny);
        assert_eq!(effect(AccessKind::Command, "cargo test"), PermissionEffect::Deny);
        assert_eq!(effect(AccessKind::Command, "git log -3"), PermissionEffect::Allow);
        assert_eq!(effect(AccessKind::Tool, "ask_human"), PermissionEffect::Allow);
    }
}

#[test]
fn deny_overrides_ask_and_ask_overrides_allow() {
    let implementer = permission_lists([
        &["tool: browser", "write: a/**", "read: /usr/include/**"],
        &["write: a/b/**", "command: cargo update *"],
        &["write: a/b/c/**", "command: cargo update --aggressive"],
    ]);
    let permissions = AgentPermissions { implementer, ..AgentPermissions::default() };
    let policy = RolePolicy::new(AgentRole::Implementer, &permissions).expect("a policy");
    let decision = |access, target| decide(&policy, access, target);
    assert_eq!(decision(AccessKind::Write, "a/x").effect, PermissionEffect::Allow);
    assert_eq!(decision(AccessKind::Write, "a/b/x").effect, PermissionEffect::Ask);
    assert_eq!(decision(AccessKind::Write, "a/b/c/x").effect, PermissionEffect::Deny);
    assert_eq!(decision(AccessKind::Write, "a/b/c/x").reason, "rule `deny: write: a/b/c/**`");
    assert_eq!(decision(AccessKind::Write, "a/b/x").reason, "rule `ask: write: a/b/**`");
    assert_eq!(decision(AccessKind::Command, "cargo update").effect, PermissionEffect::Ask);
    assert_eq!(
        decision(AccessKind::Command, "cargo update --aggressive").effect,
        PermissionEffect::Deny
    );
    assert_eq!(decision(AccessKind::Tool, "browser").reason, "rule `allow: tool: browser`");
    assert_eq!(decision(AccessKind::Read, "/usr/include/stdio.h").effect, PermissionEffect::Allow);
    assert_eq!(decision(AccessKind::Tool, "other").reason, "no rule allows it");
    assert!(policy.denied_patterns(AccessKind::Write).any(|pattern| pattern == "a/b/c/**"));
    // Rules of one role do not affect another.
    let planner = RolePolicy::new(AgentRole::Planner, &permissions).expect("a policy");
    assert_eq!(decide(&planner, AccessKind::Write, "a/b/x").effect, PermissionEffect::Deny);
}

#[test]
fn approval_lifts_ask_rules_and_leaves_deny_rules() {
    let implementer = permission_lists([&[], &["write: a/**"], &["write: a/b"]]);
    let permissions = AgentPermissions { implementer, ..AgentPermissions::default() };
    let policy = RolePolicy::new(AgentRole::Implementer, &permissions).expect("a policy");
    let approved = |target| {
        policy
            .decide(&PolicyRequest {
                access: AccessKind::Write,
                target,
                in_worktree: true,
                approved: true,
                sandboxed: false,
            })
            .effect
    };
    assert_eq!(approved("a/x"), PermissionEffect::Allow);
    assert_eq!(approved("a/b"), PermissionEffect::Deny);
    assert_eq!(approved("tamma.yaml"), PermissionEffect::Deny);
}

#[test]
fn rule_cannot_inject_a_policy() {
    let implementer =
        permission_lists([&["tool: \") permit(principal, action, resource); //\\"], &[], &[]]);
    let permissions = AgentPermissions { implementer, ..AgentPermissions::default() };
    let policy = RolePolicy::new(AgentRole::Implementer, &permissions).expect("a policy");
    assert_eq!(decide(&policy, AccessKind::Tool, "x").effect, PermissionEffect::Deny);
}

#[test]
fn effective_permissions_are_the_defaults_of_the_role_and_its_rules() {
    let lists = permission_lists([&["network: crates.io"], &["command: npm *"], &["write: db/**"]]);
    let permissions = AgentPermissions { implementer: lists, ..AgentPermissions::default() };
    let policy = RolePolicy::new(AgentRole::Implementer, &permissions).expect("a policy");
    let all = policy.permissions();
    let configured: Vec<_> = all
        .iter()
        .filter(|it| !it.is_default)
        .map(|it| (it.effect, it.access.as_str(), it.rule.as_deref()))
        .collect();
    assert_eq!(
        configured,
        [
            (PermissionEffect::Deny, "write", Some("write: db/**")),
            (PermissionEffect::Ask, "command", Some("command: npm *")),
            (PermissionEffect::Allow, "network", Some("network: crates.io")),
        ]
    );
    let has =
        |list: &[EffectivePermission], reason: &str| list.iter().any(|it| it.reason == reason);
    assert!(has(&all, "implementers can change files in the worktree"));
    assert!(has(&all, "only people can change tamma.yaml"));
    let planner = default(AgentRole::Planner).permissions();
    assert!(planner.iter().all(|it| it.is_default && !it.reason.starts_with("implementers")));
    assert!(has(&planner, "every role can read files in the worktree"));
    assert!(all.is_sorted_by(|one, other| one.effect >= other.effect));
}
