//! Permission decisions for agents, made by Cedar from defaults and the rules in `tamma.yaml`, and
//! policies of the operator about what people do ([`PeoplePolicies`]).
//!
//! Cedar knows permit and forbid; Tamma has three effects. *Deny* is a forbid, *ask* is a forbid
//! unless a person has approved the request, and *allow* is a permit. So deny overrides ask, ask
//! overrides allow, and requests that match no rule are denied.
//!
//! Decisions are based on the request as the agent states it. A command can do more than its text
//! shows, so the sandbox enforces the limits. Decisions here come early and have a reason.

pub mod command;
mod compile;
mod listing;
mod people;

use std::str::FromStr as _;
use std::sync::LazyLock;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityId, EntityTypeName, EntityUid, PolicyId,
    PolicySet, Request, RestrictedExpression, Schema,
};
use tamma_core::rules::{AccessKind, AgentPermissions, AgentRole, PermissionRule};

pub use listing::EffectivePermission;
pub use people::{PeoplePolicies, PersonAction, PolicyFileError, PolicyRefusal, PolicyTask};

/// Stack that an evaluation gets.
const STACK_BYTES: usize = 1024 * 1024;

/// Default permissions of agents, as Cedar policies.
pub const DEFAULTS: &str = include_str!("defaults.cedar");

/// Cedar schema of permission requests.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// Error from compiling a policy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule in `tamma.yaml` could not be parsed.
    #[error("{0}")]
    Rule(String),
    /// Cedar rejected a default policy, or one that was compiled from a rule.
    #[error("invalid permission policy: {0}")]
    Cedar(String),
}

/// Effect of a permission decision, from weakest to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum PermissionEffect {
    /// Request is allowed.
    Allow,
    /// Request needs approval by a person.
    Ask,
    /// Request is denied.
    Deny,
}

/// Effect of a permission request, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionDecision {
    /// Effect of the matching rule.
    pub effect: PermissionEffect,
    /// Rule that decided, in plain English.
    pub reason: String,
}

/// Access that an agent requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyRequest<'a> {
    /// Type of access.
    pub access: AccessKind,
    /// Path, command, tool or host.
    pub target: &'a str,
    /// `true` if a path resolves to a location in the worktree, and for targets that are not paths.
    pub in_worktree: bool,
    /// `true` if a person has approved this exact request.
    pub approved: bool,
    /// `true` if the agent runs in a sandbox.
    pub sandboxed: bool,
}

/// Schema and default policies, parsed once. They never change, and every run of an agent needs them.
static PARSED_DEFAULTS: LazyLock<Result<(Schema, PolicySet), String>> = LazyLock::new(|| {
    let (schema, _) = Schema::from_cedarschema_str(SCHEMA).map_err(|error| error.to_string())?;
    let policies = PolicySet::from_str(DEFAULTS).map_err(|error| error.to_string())?;
    Ok((schema, policies))
});

/// Permissions of one role.
#[derive(Debug, Clone)]
pub struct RolePolicy {
    role: EntityUid,
    worktree: EntityUid,
    schema: Schema,
    policies: PolicySet,
    denied: Vec<PermissionRule>,
    ask: Vec<PermissionRule>,
}

impl RolePolicy {
    /// Combines the defaults with the rules for `role`.
    pub fn new(role: AgentRole, permissions: &AgentPermissions) -> Result<Self, Error> {
        let cedar_error = |error: &dyn std::fmt::Display| Error::Cedar(error.to_string());
        let (schema, mut policies) = Result::clone(&PARSED_DEFAULTS).map_err(Error::Cedar)?;
        let (mut denied, mut ask) = (Vec::new(), Vec::new());
        for line in policies.policies().filter_map(|policy| policy.annotation("deny")) {
            denied.push(PermissionRule::parse(line).map_err(Error::Rule)?);
        }
        let lists = permissions.get(role);
        let rules_by_effect = [
            (PermissionEffect::Deny, &lists.deny),
            (PermissionEffect::Ask, &lists.ask),
            (PermissionEffect::Allow, &lists.allow),
        ];
        for (effect, rules) in rules_by_effect {
            for (number, text) in rules.iter().enumerate() {
                let rule = PermissionRule::parse(text).map_err(Error::Rule)?;
                let id = PolicyId::new(format!("{effect}-{number}"));
                let policy = compile::compile_rule(id, role, effect, &rule)?;
                policies.add(policy).map_err(|error| cedar_error(&error))?;
                match effect {
                    PermissionEffect::Deny => denied.push(rule),
                    PermissionEffect::Ask => ask.push(rule),
                    PermissionEffect::Allow => {}
                }
            }
        }
        let (role, worktree) = (entity("Role", &role.to_string())?, entity("Worktree", "this")?);
        Ok(Self { role, worktree, schema, policies, denied, ask })
    }

    /// Decides a request.
    pub fn decide(&self, request: &PolicyRequest<'_>) -> PermissionDecision {
        let decision = self.evaluate(request, request.approved);
        if decision.effect == PermissionEffect::Allow || request.approved {
            return decision;
        }
        // Ask if an approval would change the decision; deny otherwise. The reason of a deny rule comes
        // before that of an ask rule that matches too.
        let with_approval = self.evaluate(request, true);
        match with_approval.effect {
            PermissionEffect::Allow => {
                PermissionDecision { effect: PermissionEffect::Ask, ..decision }
            }
            _ if with_approval.reason == NO_RULE_REASON => decision,
            _ => with_approval,
        }
    }

    /// Returns patterns that are denied for a type of access, as in `tamma.yaml`.
    pub fn denied_patterns(&self, access: AccessKind) -> impl Iterator<Item = &str> {
        self.denied
            .iter()
            .filter(move |rule| rule.access == access)
            .map(|rule| rule.pattern.as_str())
    }

    /// Returns patterns that need approval for a type of access, as in `tamma.yaml`.
    pub fn ask_patterns(&self, access: AccessKind) -> impl Iterator<Item = &str> {
        self.ask.iter().filter(move |rule| rule.access == access).map(|rule| rule.pattern.as_str())
    }

    fn evaluate(&self, request: &PolicyRequest<'_>, approved: bool) -> PermissionDecision {
        let denied = |reason: String| PermissionDecision { effect: PermissionEffect::Deny, reason };
        let context_values = [
            ("target", RestrictedExpression::new_string(request.target.to_owned())),
            ("in_worktree", RestrictedExpression::new_bool(request.in_worktree)),
            ("approved", RestrictedExpression::new_bool(approved)),
            ("sandboxed", RestrictedExpression::new_bool(request.sandboxed)),
        ];
        let cedar_request = entity("Action", &request.access.to_string()).and_then(|action| {
            let context_values = context_values.map(|(name, value)| (name.to_owned(), value));
            let context = Context::from_pairs(context_values)
                .map_err(|error| Error::Cedar(error.to_string()))?;
            let (role, worktree) = (self.role.clone(), self.worktree.clone());
            Request::new(role, action, worktree, context, Some(&self.schema))
                .map_err(|error| Error::Cedar(error.to_string()))
        });
        let cedar_request = match cedar_request {
            Ok(cedar_request) => cedar_request,
            Err(error) => return denied(error.to_string()),
        };
        // Cedar fails if little stack is left, and an agent's session is polled deep in the stack.
        let response = stacker::maybe_grow(STACK_BYTES, STACK_BYTES, || {
            Authorizer::new().is_authorized(&cedar_request, &self.policies, &Entities::empty())
        });
        // Cedar skips policies that fail to evaluate. Deny, so that an error never grants access.
        if let Some(error) = response.diagnostics().errors().next() {
            return denied(format!("failed to evaluate a permission rule: {error}"));
        }
        let mut reasons: Vec<&str> = response
            .diagnostics()
            .reason()
            .filter_map(|id| self.policies.annotation(id, "reason"))
            .collect();
        // Rules from `tamma.yaml` come first; their reasons quote the rule.
        reasons.sort_by_key(|reason| !reason.contains('`'));
        let reason = reasons.first().copied().unwrap_or(NO_RULE_REASON).to_owned();
        match response.decision() {
            Decision::Allow => PermissionDecision { effect: PermissionEffect::Allow, reason },
            Decision::Deny => denied(reason),
        }
    }
}

/// Reason for requests that match no rule.
pub const NO_RULE_REASON: &str = "no rule allows it";

fn entity(type_name: &str, name: &str) -> Result<EntityUid, Error> {
    let type_name =
        EntityTypeName::from_str(type_name).map_err(|error| Error::Cedar(error.to_string()))?;
    Ok(EntityUid::from_type_name_and_id(type_name, EntityId::new(name)))
}
