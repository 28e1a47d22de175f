//! Who may do what: decided by Cedar from defaults and from the short form in `tamma.yaml`.
//!
//! Three verdicts are made of Cedar's two. What is denied is forbidden; what is to be asked is
//! forbidden unless a person has approved of it; what is allowed is permitted. So deny stands over
//! ask, and ask over allow, and what nothing permits is denied.
//!
//! This decides about what an agent *says* it will do. A command can do more than its words say, so
//! the sandbox is what holds; this gives early answers that can be explained.

pub mod command;
mod compile;

use std::str::FromStr as _;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityId, EntityTypeName, EntityUid, PolicyId,
    PolicySet, Request, RestrictedExpression, Schema,
};
use tamma_core::rules::{AgentRole, Deed, Line, Permissions};

/// What agents may do where nothing is said.
pub const DEFAULTS: &str = include_str!("defaults.cedar");

/// What a policy can speak about.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// What can go wrong when a policy is made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line of the rules cannot be read.
    #[error("{0}")]
    Line(String),
    /// A policy, of ours or made of a line, is not one that Cedar understands.
    #[error("the permission policy cannot be read: {0}")]
    Cedar(String),
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// It may.
    Allow,
    /// A person is asked.
    Ask,
    /// It may not.
    Deny,
}

/// An answer with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Whether it may.
    pub verdict: Verdict,
    /// Which rule decided, in words.
    pub reason: String,
}

/// One thing that is to be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question<'a> {
    /// What kind of thing it is.
    pub deed: Deed,
    /// Which one: a path, a command, a tool, a host.
    pub what: &'a str,
    /// Whether a path is in the worktree, wherever links lead. True for what is no path.
    pub inside: bool,
    /// Whether a person has approved of exactly this.
    pub approved: bool,
}

/// What one role may do.
#[derive(Debug, Clone)]
pub struct Policy {
    role: EntityUid,
    worktree: EntityUid,
    schema: Schema,
    policies: PolicySet,
    denied: Vec<Line>,
    asked: Vec<Line>,
}

impl Policy {
    /// The defaults, and over them what the rules say of a role.
    pub fn new(role: AgentRole, permissions: &Permissions) -> Result<Self, Error> {
        let wrong = |error: &dyn std::fmt::Display| Error::Cedar(error.to_string());
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA).map_err(|error| wrong(&error))?;
        let mut policies = PolicySet::from_str(DEFAULTS).map_err(|error| wrong(&error))?;
        let (mut denied, mut asked) = (Vec::new(), Vec::new());
        for line in policies.policies().filter_map(|policy| policy.annotation("deny")) {
            denied.push(Line::read(line).map_err(Error::Line)?);
        }
        let lines = permissions.get(role);
        let all = [
            (Verdict::Deny, &lines.deny),
            (Verdict::Ask, &lines.ask),
            (Verdict::Allow, &lines.allow),
        ];
        for (verdict, lines) in all {
            for (number, text) in lines.iter().enumerate() {
                let line = Line::read(text).map_err(Error::Line)?;
                let id = PolicyId::new(format!("{verdict}-{number}"));
                let policy = compile::policy(id, role, verdict, &line)?;
                policies.add(policy).map_err(|error| wrong(&error))?;
                match verdict {
                    Verdict::Deny => denied.push(line),
                    Verdict::Ask => asked.push(line),
                    Verdict::Allow => {}
                }
            }
        }
        let (role, worktree) = (entity("Role", &role.to_string())?, entity("Worktree", "this")?);
        Ok(Self { role, worktree, schema, policies, denied, asked })
    }

    /// Decides.
    pub fn decide(&self, question: &Question<'_>) -> Ruling {
        let plain = self.ask_cedar(question, question.approved);
        if plain.verdict == Verdict::Allow || question.approved {
            return plain;
        }
        // Whatever a person could approve of is asked, and the rest is denied.
        match self.ask_cedar(question, true).verdict {
            Verdict::Allow => Ruling { verdict: Verdict::Ask, ..plain },
            _ => self.worst(question, plain),
        }
    }

    /// The patterns that are denied for a kind of thing, in the short form.
    pub fn denied(&self, deed: Deed) -> impl Iterator<Item = &str> {
        self.denied.iter().filter(move |line| line.deed == deed).map(|line| line.pattern.as_str())
    }

    /// The patterns that a person is asked about for a kind of thing, in the short form.
    pub fn asked(&self, deed: Deed) -> impl Iterator<Item = &str> {
        self.asked.iter().filter(move |line| line.deed == deed).map(|line| line.pattern.as_str())
    }

    /// What is denied may also be something to ask about; the reason is that it is denied.
    fn worst(&self, question: &Question<'_>, plain: Ruling) -> Ruling {
        let denied = self.ask_cedar(question, true);
        if denied.reason == NOTHING { plain } else { denied }
    }

    fn ask_cedar(&self, question: &Question<'_>, approved: bool) -> Ruling {
        let denied = |reason: String| Ruling { verdict: Verdict::Deny, reason };
        let about = [
            ("what", RestrictedExpression::new_string(question.what.to_owned())),
            ("inside", RestrictedExpression::new_bool(question.inside)),
            ("approved", RestrictedExpression::new_bool(approved)),
        ];
        let request = entity("Action", &question.deed.to_string()).and_then(|action| {
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
        // A policy that fails is skipped by Cedar, which must not open anything.
        if let Some(error) = answer.diagnostics().errors().next() {
            return denied(format!("a rule cannot be applied: {error}"));
        }
        let mut reasons: Vec<&str> = answer
            .diagnostics()
            .reason()
            .filter_map(|id| self.policies.annotation(id, "because"))
            .collect();
        // The rules' own words before ours.
        reasons.sort_by_key(|reason| !reason.contains('`'));
        let reason = reasons.first().copied().unwrap_or(NOTHING).to_owned();
        match answer.decision() {
            Decision::Allow => Ruling { verdict: Verdict::Allow, reason },
            Decision::Deny => denied(reason),
        }
    }
}

/// The reason for what nothing permits.
const NOTHING: &str = "no rule allows it";

fn entity(of: &str, name: &str) -> Result<EntityUid, Error> {
    let of = EntityTypeName::from_str(of).map_err(|error| Error::Cedar(error.to_string()))?;
    Ok(EntityUid::from_type_name_and_id(of, EntityId::new(name)))
}
