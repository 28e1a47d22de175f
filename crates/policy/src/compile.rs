//! Compilation of permission rules into Cedar policies.

use std::collections::BTreeSet;

use cedar_policy::{Policy, PolicyId};
use tamma_core::rules::{AccessKind, AgentRole, PermissionRule};

use crate::{Error, PermissionEffect};

/// Compiles one rule into a policy.
pub(crate) fn compile_rule(
    id: PolicyId,
    role: AgentRole,
    effect: PermissionEffect,
    rule: &PermissionRule,
) -> Result<Policy, Error> {
    let PermissionRule { access, pattern } = rule;
    let matches: Vec<String> = alternatives(rule)
        .into_iter()
        .map(|alternative| format!("context.target like \"{}\"", escaped(&alternative)))
        .collect();
    let mut when = format!("({})", matches.join(" || "));
    // A relative pattern only applies inside the worktree.
    if matches!(access, AccessKind::Read | AccessKind::Write) && !pattern.starts_with('/') {
        when = format!("context.in_worktree && {when}");
    }
    let reason = escaped(&format!("rule `{effect}: {access}: {pattern}`"));
    let (keyword, unless) = match effect {
        PermissionEffect::Allow => ("permit", ""),
        PermissionEffect::Ask => ("forbid", " unless { context.approved }"),
        PermissionEffect::Deny => ("forbid", ""),
    };
    let text = format!(
        "@reason(\"{reason}\") {keyword} (principal == Role::\"{role}\", action == \
         Action::\"{access}\", resource) when {{ {when} }}{unless};"
    );
    Policy::parse(Some(id), text).map_err(|error| Error::Cedar(error.to_string()))
}

/// Escapes a text for a Cedar string. `*` stays a wildcard.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Expands a pattern into Cedar patterns, in which `*` matches any text.
fn alternatives(rule: &PermissionRule) -> BTreeSet<String> {
    match rule.access {
        AccessKind::Read | AccessKind::Write => paths(&rule.pattern),
        // `cargo *` also matches `cargo` alone.
        AccessKind::Command => {
            let alone = rule.pattern.strip_suffix(" *").map(str::to_owned);
            [rule.pattern.clone()].into_iter().chain(alone).collect()
        }
        AccessKind::Tool | AccessKind::Network => BTreeSet::from([rule.pattern.clone()]),
    }
}

/// Expands a path pattern. A name matches the file or everything in the directory; `**/` also
/// matches the empty path.
fn paths(pattern: &str) -> BTreeSet<String> {
    let named = pattern.trim_end_matches("/**").trim_end_matches('/');
    let mut pending = vec![named.to_owned()];
    let mut done = BTreeSet::new();
    while let Some(next) = pending.pop() {
        if let Some(rest) = next.strip_prefix("**/") {
            pending.push(rest.to_owned());
            pending.push(format!("*/{rest}"));
        } else if let Some((before, after)) = next.split_once("/**/") {
            pending.push(format!("{before}/{after}"));
            pending.push(format!("{before}/*/{after}"));
        } else {
            done.insert(next.replace("**", "*"));
        }
    }
    done.iter().flat_map(|path| [path.clone(), format!("{path}/*")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_pattern_matches_a_file_or_everything_in_a_directory() {
        let all = |pattern: &str| paths(pattern).into_iter().collect::<Vec<_>>();
        assert_eq!(all("src"), ["src", "src/*"]);
        assert_eq!(all("src/**"), all("src"));
        assert_eq!(all("**/.env"), ["*/.env", "*/.env/*", ".env", ".env/*"]);
        assert_eq!(all("a/**/b")[..2], ["a/*/b", "a/*/b/*"]);
        assert!(all("a/**/b").contains(&"a/b".to_owned()));
    }
}
