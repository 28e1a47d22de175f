//! Effective permissions of a role, as a list for people.

use cedar_policy::{ActionConstraint, Effect, Policy, PrincipalConstraint};

use crate::{PermissionEffect, RolePolicy};

/// One permission of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectivePermission {
    /// Effect on requests that match.
    pub effect: PermissionEffect,
    /// Type of access, such as `write`.
    pub access: String,
    /// Rule in the syntax of `tamma.yaml`; `None` for defaults that have none.
    pub rule: Option<String>,
    /// Reason that agents and people see.
    pub reason: String,
    /// Set if the permission comes from Tamma, and not from `tamma.yaml`.
    pub is_default: bool,
}

impl RolePolicy {
    /// Returns the permissions of the role, strongest effect first. Requests that match none of
    /// them are denied.
    pub fn permissions(&self) -> Vec<EffectivePermission> {
        let mut all: Vec<_> = self
            .policies
            .policies()
            .filter(|policy| match policy.principal_constraint() {
                PrincipalConstraint::Eq(principal) => principal == self.role,
                _ => true,
            })
            .map(effective_permission)
            .collect();
        all.sort_by(|one, other| other.effect.cmp(&one.effect).then_with(|| one.cmp(other)));
        all
    }
}

fn effective_permission(policy: &Policy) -> EffectivePermission {
    let id: &str = policy.id().as_ref();
    // The IDs of compiled rules start with their effect; those of the defaults do not.
    let configured = [PermissionEffect::Allow, PermissionEffect::Ask, PermissionEffect::Deny]
        .into_iter()
        .find(|effect| id.starts_with(&format!("{effect}-")));
    let by_default = match policy.effect() {
        Effect::Permit => PermissionEffect::Allow,
        Effect::Forbid => PermissionEffect::Deny,
    };
    let reason = policy.annotation("reason").unwrap_or_default().to_owned();
    let effect = configured.unwrap_or(by_default);
    let quoted =
        reason.strip_prefix(&format!("rule `{effect}: ")).and_then(|it| it.strip_suffix('`'));
    EffectivePermission {
        effect,
        access: match policy.action_constraint() {
            ActionConstraint::Eq(action) => {
                let id: &str = action.id().as_ref();
                id.to_owned()
            }
            _ => "any".to_owned(),
        },
        rule: quoted.or_else(|| policy.annotation("deny")).map(str::to_owned),
        is_default: configured.is_none(),
        reason,
    }
}
