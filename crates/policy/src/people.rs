//! Policies of the operator about what people do with tasks.
//!
//! They forbid what roles allow, and never permit anything. Each one has an `@id` and a `@reason`, which
//! the person sees who is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::str::FromStr as _;

use cedar_policy::{
    Authorizer, Context, Effect, Entities, Entity, EntityUid, PolicyId, PolicySet, Request,
    RestrictedExpression, Schema, ValidationError, ValidationMode, Validator,
};

use crate::{Error, STACK_BYTES, entity};

/// Cedar schema of the policies.
const PEOPLE_SCHEMA: &str = include_str!("people.cedarschema");

/// Problem of a policy file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileError {
    /// Not a Cedar policy.
    #[error("{file}: cannot parse: {message}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// Message of Cedar.
        message: String,
    },
    /// Policy without a name or an explanation.
    #[error(
        "{file}: policy {number} has no `@{annotation}(\"…\")`; every policy needs an `@id` and a \
         `@reason`, which people see when it refuses them"
    )]
    Unexplained {
        /// Name of the file.
        file: String,
        /// Number of the policy in the file, from 1.
        number: usize,
        /// Missing annotation.
        annotation: &'static str,
    },
    /// Policy that permits.
    #[error("{file}: policy `{policy}` permits; roles permit, and policies can only `forbid`")]
    Permits {
        /// Name of the file.
        file: String,
        /// ID of the policy.
        policy: String,
    },
    /// Two policies with one ID.
    #[error("{file}: there are two policies `{policy}`; give each its own `@id`")]
    Duplicate {
        /// Name of the file.
        file: String,
        /// ID of the policy.
        policy: String,
    },
    /// Policies that name something that does not exist, or compare different types.
    #[error("{}; docs/organisations.md lists the actions and attributes", .0.join("; "))]
    Invalid(Vec<String>),
}

/// Facts about a task that policies can refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyTask {
    /// ID of the task.
    pub id: String,
    /// Project of the task.
    pub project: String,
    /// Organisation of the project.
    pub organisation: String,
    /// Person who added the task.
    pub author: Option<String>,
    /// Labels.
    pub labels: Vec<String>,
    /// Priority.
    pub priority: String,
    /// Type.
    pub task_type: String,
    /// Files of the plan and of the change.
    pub files: BTreeSet<String>,
    /// Set if these are all.
    pub paths_known: bool,
    /// Risk of the plan.
    pub risk: Option<String>,
    /// People who have approved the current plan.
    pub approved_by: Vec<String>,
}

/// Action of a person on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonAction<'a> {
    /// Name of the person.
    pub person: &'a str,
    /// Groups of the person, such as `company/engineers`.
    pub groups: &'a [String],
    /// Role of the person in the project.
    pub role: &'a str,
    /// Method that identified the person.
    pub auth_method: &'a str,
    /// Name of the action, as in the schema.
    pub action: &'a str,
    /// Set if the action gives the task more budget.
    pub raises_budget: bool,
    /// Task.
    pub task: &'a PolicyTask,
}

/// Policy that forbids an action, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRefusal {
    /// ID of the policy.
    pub policy: String,
    /// Reason that its author gave.
    pub reason: String,
}

/// Policies of the operator.
#[derive(Debug, Clone)]
pub struct PeoplePolicies {
    policies: PolicySet,
    schema: Schema,
}

impl PeoplePolicies {
    /// Parses and validates the policies in files, by the names of the files.
    pub fn parse(files: &BTreeMap<String, String>) -> Result<Self, PolicyFileError> {
        let invalid =
            |error: &dyn std::fmt::Display| PolicyFileError::Invalid(vec![error.to_string()]);
        let (schema, _) =
            Schema::from_cedarschema_str(PEOPLE_SCHEMA).map_err(|error| invalid(&error))?;
        let mut policies = PolicySet::new();
        let mut ids = BTreeSet::new();
        for (file, text) in files {
            let file = || file.clone();
            let parsed = PolicySet::from_str(text).map_err(|error| PolicyFileError::Syntax {
                file: file(),
                message: error.to_string(),
            })?;
            if parsed.num_of_templates() > 0 {
                let message = "policies cannot have slots such as `?principal`".to_owned();
                return Err(PolicyFileError::Syntax { file: file(), message });
            }
            for (index, policy) in parsed.policies().enumerate() {
                let annotation = |annotation: &'static str| {
                    let text = policy.annotation(annotation).map(str::trim);
                    text.filter(|text| !text.is_empty()).ok_or_else(|| {
                        PolicyFileError::Unexplained { file: file(), number: index + 1, annotation }
                    })
                };
                let policy_id = annotation("id")?.to_owned();
                annotation("reason")?;
                if policy.effect() == Effect::Permit {
                    return Err(PolicyFileError::Permits { file: file(), policy: policy_id });
                }
                if !ids.insert(policy_id.clone()) {
                    return Err(PolicyFileError::Duplicate { file: file(), policy: policy_id });
                }
                let named = policy.new_id(PolicyId::new(policy_id));
                policies.add(named).map_err(|error| invalid(&error))?;
            }
        }
        let result = Validator::new(schema.clone()).validate(&policies, ValidationMode::default());
        let named = |error: &ValidationError| format!("policy `{}`: {error}", error.policy_id());
        let errors: Vec<String> = result.validation_errors().map(named).collect();
        if !errors.is_empty() {
            return Err(PolicyFileError::Invalid(errors));
        }
        Ok(Self { policies, schema })
    }

    /// Returns `true` if there are no policies.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Returns the number of policies.
    pub fn len(&self) -> usize {
        self.policies.policies().count()
    }

    /// Returns the policies that forbid an action, by their IDs. A policy that cannot be evaluated
    /// forbids, too.
    pub fn refusals(&self, action: &PersonAction<'_>) -> Vec<PolicyRefusal> {
        if self.is_empty() {
            return Vec::new();
        }
        self.evaluate(action).unwrap_or_else(|error| {
            let reason = format!("the policies could not be evaluated: {error}");
            vec![PolicyRefusal { policy: "policies".to_owned(), reason }]
        })
    }

    fn evaluate(&self, action: &PersonAction<'_>) -> Result<Vec<PolicyRefusal>, Error> {
        let cedar_error = |error: &dyn std::fmt::Display| Error::Cedar(error.to_string());
        let person = entity("Person", action.person)?;
        let task = entity("Task", &action.task.id)?;
        let entities = Entities::from_entities(
            [
                person_entity(person.clone(), action)?,
                project_entity(action.task)?,
                task_entity(task.clone(), action.task)?,
            ],
            Some(&self.schema),
        )
        .map_err(|error| cedar_error(&error))?;
        let context =
            [("raises_budget".to_owned(), RestrictedExpression::new_bool(action.raises_budget))];
        let context = Context::from_pairs(context).map_err(|error| cedar_error(&error))?;
        let name = entity("Action", action.action)?;
        let request = Request::new(person, name, task, context, Some(&self.schema))
            .map_err(|error| cedar_error(&error))?;
        // Cedar fails if little stack is left.
        let response = stacker::maybe_grow(STACK_BYTES, STACK_BYTES, || {
            Authorizer::new().is_authorized(&request, &self.policies, &entities)
        });
        // Cedar skips policies that fail to evaluate.
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(cedar_error(&error));
        }
        // Nothing permits, so the reasons are the policies that forbid.
        let forbidding = response.diagnostics().reason().map(|id| PolicyRefusal {
            policy: id.to_string(),
            reason: self.policies.annotation(id, "reason").unwrap_or_default().to_owned(),
        });
        let mut refusals: Vec<_> = forbidding.collect();
        refusals.sort();
        Ok(refusals)
    }
}

fn person_entity(id: EntityUid, action: &PersonAction<'_>) -> Result<Entity, Error> {
    let groups = action.groups.iter().map(|group| entity("Group", group));
    let attributes =
        [("name", action.person), ("role", action.role), ("auth_method", action.auth_method)];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), text(value)));
    new_entity(id, attributes.into(), groups.collect::<Result<_, _>>()?)
}

fn project_entity(task: &PolicyTask) -> Result<Entity, Error> {
    let organisation = entity("Organisation", &task.organisation)?;
    let attributes = [("name".to_owned(), text(&task.project))];
    new_entity(entity("Project", &task.project)?, attributes.into(), [organisation].into())
}

fn task_entity(id: EntityUid, task: &PolicyTask) -> Result<Entity, Error> {
    let folders = task.files.iter().flat_map(|file| with_folders(file));
    let paths: BTreeSet<&str> = folders.collect();
    let mut attributes = HashMap::from([
        ("labels".to_owned(), set(task.labels.iter().map(String::as_str))),
        ("priority".to_owned(), text(&task.priority)),
        ("task_type".to_owned(), text(&task.task_type)),
        ("paths".to_owned(), set(paths)),
        ("paths_known".to_owned(), RestrictedExpression::new_bool(task.paths_known)),
        ("approved_by".to_owned(), set(task.approved_by.iter().map(String::as_str))),
    ]);
    attributes.extend(task.author.as_ref().map(|author| ("author".to_owned(), text(author))));
    attributes.extend(task.risk.as_ref().map(|risk| ("risk".to_owned(), text(risk))));
    new_entity(id, attributes, [entity("Project", &task.project)?].into())
}

fn new_entity(
    id: EntityUid,
    attributes: HashMap<String, RestrictedExpression>,
    parents: HashSet<EntityUid>,
) -> Result<Entity, Error> {
    Entity::new(id, attributes, parents).map_err(|error| Error::Cedar(error.to_string()))
}

fn set<'a>(words: impl IntoIterator<Item = &'a str>) -> RestrictedExpression {
    RestrictedExpression::new_set(words.into_iter().map(text))
}

fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

/// Returns a path and all folders that it is in, such as `src/pay/card.rs`, `src/pay` and `src`.
fn with_folders(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(folder, _)| folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: &str = r#"
@id("no-self-approval")
@reason("You added this task; somebody else approves its plan.")
forbid (principal, action == Action::"approve", resource)
when { resource has author && resource.author == principal.name };

@id("four-eyes-on-payments")
@reason("Payments need two people: you approved the plan, so somebody else accepts the change.")
forbid (principal, action == Action::"accept", resource)
when {
    (resource.paths.contains("src/payments") || !resource.paths_known) &&
    resource.approved_by.contains(principal.name)
};

@id("budgets-by-finance")
@reason("Only the group finance raises budgets.")
forbid (principal, action in Action::"decide", resource in Organisation::"acme")
when { context.raises_budget }
unless { principal in Group::"company/finance" };
"#;

    fn parse(text: &str) -> Result<PeoplePolicies, PolicyFileError> {
        PeoplePolicies::parse(&[("team.cedar".to_owned(), text.to_owned())].into())
    }

    fn task() -> PolicyTask {
        PolicyTask {
            id: "01920000-0000-7000-8000-000000000002".to_owned(),
            project: "shop".to_owned(),
            organisation: "acme".to_owned(),
            author: Some("Ada".to_owned()),
            priority: "medium".to_owned(),
            task_type: "feature".to_owned(),
            files: ["src/payments/card.rs".to_owned()].into(),
            paths_known: true,
            approved_by: vec!["Grace".to_owned()],
            ..PolicyTask::default()
        }
    }

    fn refused(person: &str, groups: &[&str], action: &str, task: &PolicyTask) -> Vec<String> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let (action, raises_budget) = match action.strip_suffix(" more") {
            Some(action) => (action, true),
            None => (action, false),
        };
        let policies = parse(POLICIES).expect("valid");
        let action = PersonAction {
            person,
            groups: &groups,
            role: "approver",
            auth_method: "own_token",
            action,
            raises_budget,
            task,
        };
        policies.refusals(&action).into_iter().map(|refusal| refusal.policy).collect()
    }

    #[test]
    fn policies_forbid_what_roles_cannot_express() {
        let none: [&str; 0] = [];
        assert_eq!(refused("Ada", &[], "approve", &task()), ["no-self-approval"]);
        assert_eq!(refused("Grace", &[], "approve", &task()), none);
        assert_eq!(refused("Ada", &[], "reject", &task()), none);
        assert_eq!(refused("Grace", &[], "accept", &task()), ["four-eyes-on-payments"]);
        assert_eq!(refused("Ada", &[], "accept", &task()), none);
        let elsewhere = PolicyTask { files: ["src/pay.rs".to_owned()].into(), ..task() };
        assert_eq!(refused("Grace", &[], "accept", &elsewhere), none);
        let unknown = PolicyTask { paths_known: false, ..elsewhere };
        assert_eq!(refused("Grace", &[], "accept", &unknown), ["four-eyes-on-payments"]);
        assert_eq!(refused("Grace", &[], "continue more", &task()), ["budgets-by-finance"]);
        assert_eq!(refused("Grace", &["company/finance"], "continue more", &task()), none);
        assert_eq!(refused("Grace", &[], "continue", &task()), none);
        let other = PolicyTask { organisation: "globex".to_owned(), ..task() };
        assert_eq!(refused("Grace", &[], "continue more", &other), none);
        let by_nobody = PolicyTask { author: None, ..task() };
        assert_eq!(refused("Ada", &[], "approve", &by_nobody), none);
        // What cannot be evaluated is refused.
        assert_eq!(refused("Ada", &[], "fly", &task()), ["policies"]);
    }

    #[test]
    fn refusals_carry_the_reason_of_the_policy() {
        let policies = parse(POLICIES).expect("valid");
        assert_eq!((policies.len(), policies.is_empty()), (3, false));
        let task = task();
        let action = PersonAction {
            person: "Ada",
            groups: &[],
            role: "operator",
            auth_method: "server_token",
            action: "approve",
            raises_budget: false,
            task: &task,
        };
        let reason = "You added this task; somebody else approves its plan.";
        let refusal =
            PolicyRefusal { policy: "no-self-approval".to_owned(), reason: reason.to_owned() };
        assert_eq!(policies.refusals(&action), [refusal]);
        let none = PeoplePolicies::parse(&BTreeMap::new()).expect("empty");
        assert!(none.is_empty() && none.refusals(&action).is_empty());
    }

    #[test]
    fn a_policy_file_that_could_not_work_is_refused_with_the_reason() {
        let error = |text: &str| parse(text).expect_err("invalid").to_string();
        let policy = |head: &str, when: &str| {
            format!("{head} forbid (principal, action == Action::\"approve\", resource) {when};")
        };
        let named = "@id(\"a\") @reason(\"b\")";
        assert!(parse(&policy(named, "")).is_ok());
        assert!(error("forbid (").starts_with("team.cedar: cannot parse"));
        assert!(error(&policy("@id(\"a\")", "")).contains("policy 1 has no `@reason"));
        assert!(error(&policy("@reason(\"a\")", "")).contains("policy 1 has no `@id"));
        let twice = policy(named, "").repeat(2);
        assert!(error(&twice).contains("two policies `a`"));
        let permit = format!("{named} permit (principal, action, resource);");
        assert!(error(&permit).contains("policy `a` permits"));
        for when in ["when { resource.price > 3 }", "when { principal.name == 3 }"] {
            assert!(error(&policy(named, when)).contains("docs/organisations.md"), "{when}");
        }
        let unknown = policy(named, "").replace("approve", "fly");
        assert!(error(&unknown).contains("fly"), "{}", error(&unknown));
    }
}
