//! Permission decisions for agents, made by Cedar from defaults and the rules in `tamma.yaml`.
//!
//! Cedar knows permit and forbid; Tamma has three effects. *Deny* is a forbid, *ask* is a forbid
//! unless a person has approved the request, and *allow* is a permit. So deny overrides ask, ask
//! overrides allow, and requests that match no rule are denied.
//!
//! Decisions are based on the request as the agent states it. A command can do more than its text
//! shows, so the sandbox enforces the limits. Decisions here come early and have a reason.

pub mod command;
mod compile;

use std::str::FromStr as _;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityId, EntityTypeName, EntityUid, PolicyId,
    PolicySet, Request, RestrictedExpression, Schema,
};
use tamma_core::rules::{AccessKind, AgentPermissions, AgentRole, PermissionRule};

/// Default permissions of agents, as Cedar policies.
pub const DEFAULTS: &str = include_str!("defaults.cedar");

/// Cedar schema of permission requests.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// Error from compiling a policy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule in `tamma.yaml` could not be parsed.
    #[error("{0}")]
    Line(String),
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
}

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
        let wrong = |error: &dyn std::fmt::Display| Error::Cedar(error.to_string());
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA).map_err(|error| wrong(&error))?;
        let mut policies = PolicySet::from_str(DEFAULTS).map_err(|error| wrong(&error))?;
        let (mut denied, mut asked) = (Vec::new(), Vec::new());
        for line in policies.policies().filter_map(|policy| policy.annotation("deny")) {
            denied.push(PermissionRule::parse(line).map_err(Error::Line)?);
        }
        let lines = permissions.get(role);
        let all = [
            (PermissionEffect::Deny, &lines.deny),
            (PermissionEffect::Ask, &lines.ask),
            (PermissionEffect::Allow, &lines.allow),
        ];
        for (verdict, lines) in all {
            for (number, text) in lines.iter().enumerate() {
                let line = PermissionRule::parse(text).map_err(Error::Line)?;
                let id = PolicyId::new(format!("{verdict}-{number}"));
                let policy = compile::compile_line(id, role, verdict, &line)?;
                policies.add(policy).map_err(|error| wrong(&error))?;
                match verdict {
                    PermissionEffect::Deny => denied.push(line),
                    PermissionEffect::Ask => asked.push(line),
                    PermissionEffect::Allow => {}
                }
            }
        }
        let (role, worktree) = (entity("Role", &role.to_string())?, entity("Worktree", "this")?);
        Ok(Self { role, worktree, schema, policies, denied, ask: asked })
    }

    /// Decides a request.
    pub fn decide(&self, question: &PolicyRequest<'_>) -> PermissionDecision {
        let plain = self.evaluate(question, question.approved);
        if plain.effect == PermissionEffect::Allow || question.approved {
            return plain;
        }
        // Ask if an approval would change the decision; deny otherwise.
        match self.evaluate(question, true).effect {
            PermissionEffect::Allow => {
                PermissionDecision { effect: PermissionEffect::Ask, ..plain }
            }
            _ => self.explain_denial(question, plain),
        }
    }

    /// Returns patterns that are denied for a type of access, as in `tamma.yaml`.
    pub fn denied_patterns(&self, deed: AccessKind) -> impl Iterator<Item = &str> {
        self.denied.iter().filter(move |line| line.access == deed).map(|line| line.pattern.as_str())
    }

    /// Returns patterns that need approval for a type of access, as in `tamma.yaml`.
    pub fn ask_patterns(&self, deed: AccessKind) -> impl Iterator<Item = &str> {
        self.ask.iter().filter(move |line| line.access == deed).map(|line| line.pattern.as_str())
    }

    /// Prefers the reason of a deny rule over the reason of an ask rule that matches too.
    fn explain_denial(
        &self,
        question: &PolicyRequest<'_>,
        plain: PermissionDecision,
    ) -> PermissionDecision {
        let denied = self.evaluate(question, true);
        if denied.reason == NO_RULE_REASON { plain } else { denied }
    }

    fn evaluate(&self, question: &PolicyRequest<'_>, approved: bool) -> PermissionDecision {
        let denied = |reason: String| PermissionDecision { effect: PermissionEffect::Deny, reason };
        let about = [
            ("what", RestrictedExpression::new_string(question.target.to_owned())),
            ("inside", RestrictedExpression::new_bool(question.in_worktree)),
            ("approved", RestrictedExpression::new_bool(approved)),
        ];
        let request = entity("Action", &question.access.to_string()).and_then(|action| {
            let about = about.map(|(name, value)| (name.to_owned(), value));
            let context =
                Context::from_pairs(about).map_err(|error| Error::Cedar(error.to_string()))?;
            let (role, worktree) = (self.role.clone(), self.worktree.clone());
            Request::new(role, action, worktree, context, Some(&self.schema))
                .map_err(|error| Error::Cedar(error.to_string()))
        });
        let request = match request {
            Ok(request) => request,
            Err(error) => return denied(error.to_string()),
        };
        let answer = Authorizer::new().is_authorized(&request, &self.policies, &Entities::empty());
        // Cedar skips policies that fail to evaluate. Deny, so that an error never grants access.
        if let Some(error) = answer.diagnostics().errors().next() {
            return denied(format!("failed to evaluate a permission rule: {error}"));
        }
        let mut reasons: Vec<&str> = answer
            .diagnostics()
            .reason()
            .filter_map(|id| self.policies.annotation(id, "because"))
            .collect();
        // Rules from `tamma.yaml` come first; their reasons quote the rule.
        reasons.sort_by_key(|reason| !reason.contains('`'));
        let reason = reasons.first().copied().unwrap_or(NO_RULE_REASON).to_owned();
        match answer.decision() {
            Decision::Allow => PermissionDecision { effect: PermissionEffect::Allow, reason },
            Decision::Deny => denied(reason),
        }
    }
}

/// Reason for requests that match no rule.
const NO_RULE_REASON: &str = "no rule allows it";

fn entity(of: &str, name: &str) -> Result<EntityUid, Error> {
    let of = EntityTypeName::from_str(of).map_err(|error| Error::Cedar(error.to_string()))?;
    Ok(EntityUid::from_type_name_and_id(of, EntityId::new(name)))
}
