//! Permissions that decide which actions a page offers. The use cases check them again.

use std::collections::BTreeMap;
use std::fmt;

use tamma_core::ids::{Name, ProjectId};
use tamma_core::rules::{PeopleRules, Permission, PersonRole};
use uuid::Uuid;

use super::session::Session;
use crate::app::App;
use crate::dto;

/// People that a task waits on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WaitingOn {
    /// The viewer of the page can decide.
    Viewer,
    /// Names or role of others who can decide.
    Others(String),
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Viewer => f.write_str("Needs you"),
            Self::Others(people) => write!(f, "Waiting on {people}"),
        }
    }
}

/// Permissions of one person, by project. Each project's configuration is read once.
#[derive(Clone)]
pub(super) struct PagePermissions {
    app: App,
    person: Option<Name>,
    /// Roles by project; `None` if the configuration has errors.
    people_by_project: BTreeMap<Uuid, Option<PeopleRules>>,
}

impl PagePermissions {
    pub(super) fn for_session(app: &App, session: &Session) -> Self {
        Self {
            app: app.clone(),
            person: session.person.clone(),
            people_by_project: BTreeMap::new(),
        }
    }

    async fn load_people(&mut self, project: Uuid) -> Option<&PeopleRules> {
        if !self.people_by_project.contains_key(&project) {
            let people = self.app.project_people(ProjectId(project)).await.ok();
            self.people_by_project.insert(project, people);
        }
        self.people_by_project.get(&project).and_then(Option::as_ref)
    }

    /// Returns whether the person has a permission in a project. If the roles cannot be read, the
    /// action is offered, and its error explains the problem.
    pub(super) async fn allows(&mut self, project: Uuid, permission: Permission) -> bool {
        let person = self.person.clone();
        match (self.load_people(project).await, person) {
            (Some(people), Some(person)) => people.has_permission(&person, permission),
            (None, _) => true,
            (_, None) => false,
        }
    }

    /// Returns whether the person has a permission in at least one project. Without projects, every
    /// action is allowed.
    pub(super) async fn allows_in_any(
        &mut self,
        projects: &[Uuid],
        permission: Permission,
    ) -> bool {
        for project in projects {
            if self.allows(*project, permission).await {
                return true;
            }
        }
        projects.is_empty()
    }

    /// Returns the people that a task waits on; `None` if it waits on nobody.
    pub(super) async fn waiting_on(&mut self, card: &dto::TaskCard) -> Option<WaitingOn> {
        let person = self.person.clone();
        // The first answer is the one requested; the others are always available.
        let answer = card.answers.first().filter(|_| card.waits_for_person)?;
        let people = self.load_people(card.project).await;
        Some(responsible_people(people, person.as_ref(), Permission::from(*answer)))
    }

    /// Returns the people that a pipeline waits on; `None` if it waits on nobody.
    pub(super) async fn pipeline_waiting_on(
        &mut self,
        view: &dto::PipelineView,
    ) -> Option<WaitingOn> {
        if !view.needs_person {
            return None;
        }
        let needed = if view.question.is_some() { Permission::Decide } else { Permission::Work };
        let person = self.person.clone();
        let people = self.load_people(view.project_id).await;
        Some(responsible_people(people, person.as_ref(), needed))
    }
}

/// Names the people who can act: the viewer, people with the role, or the role itself.
fn responsible_people(
    people: Option<&PeopleRules>,
    person: Option<&Name>,
    permission: Permission,
) -> WaitingOn {
    let Some(people) = people else { return WaitingOn::Others("a person".to_owned()) };
    if person.is_some_and(|person| people.has_permission(person, permission)) {
        return WaitingOn::Viewer;
    }
    let required = permission.required_role();
    let named = people.named.iter().filter(|(_, role)| **role >= required);
    let names: Vec<&str> = named.map(|(name, _)| name.as_str()).collect();
    WaitingOn::Others(match names.as_slice() {
        [] if required == PersonRole::Approver => "an approver".to_owned(),
        [] => format!("a {required}"),
        names @ ([_] | [_, _] | [_, _, _]) => names.join(" or "),
        [one, two, rest @ ..] => format!("{one}, {two} or {} others", rest.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responsible_people_are_named_when_they_are_few() {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let approvers = |names: &[&str]| PeopleRules {
            everybody: PersonRole::Member,
            named: names.iter().map(|name| ((*name).to_owned(), PersonRole::Approver)).collect(),
        };
        let (ada, bob) = (name("Ada"), name("Bob"));
        for (people, person, permission, expected) in [
            (approvers(&["Ada"]), &ada, Permission::Decide, "Needs you"),
            (approvers(&["Ada"]), &bob, Permission::Decide, "Waiting on Ada"),
            (approvers(&["Ada", "Grace"]), &bob, Permission::Decide, "Waiting on Ada or Grace"),
            (
                approvers(&["A", "B", "C", "D"]),
                &bob,
                Permission::Decide,
                "Waiting on A, B or 2 others",
            ),
            (approvers(&[]), &bob, Permission::Decide, "Waiting on an approver"),
            (approvers(&[]), &bob, Permission::Work, "Needs you"),
        ] {
            let waiting_on = responsible_people(Some(&people), Some(person), permission);
            assert_eq!(waiting_on.to_string(), expected);
        }
        let waiting_on = responsible_people(None, Some(&ada), Permission::Decide);
        assert_eq!(waiting_on.to_string(), "Waiting on a person");
    }
}
