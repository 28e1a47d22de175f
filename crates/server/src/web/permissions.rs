//! Permissions that decide which actions a page offers. The use cases check them again.

use std::collections::BTreeMap;

use tamma_core::ids::{Name, ProjectId};
use tamma_core::rules::{PeopleRules, Permission, PersonRole};
use uuid::Uuid;

use super::session::Session;
use crate::app::App;
use crate::dto;

/// Text for a task that waits on the viewer.
pub(super) const YOU: &str = "you";

/// Permissions of one person, by project. Each project's configuration is read once.
#[derive(Clone)]
pub(super) struct PagePermissions {
    app: App,
    person: Option<Name>,
    /// Roles by project; `None` if the configuration has errors.
    people_by_project: BTreeMap<Uuid, Option<PeopleRules>>,
}

impl PagePermissions {
    pub(super) fn for_session(app: &App, visitor: &Session) -> Self {
        Self {
            app: app.clone(),
            person: visitor.person.clone(),
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
    pub(super) async fn allows(&mut self, project: Uuid, right: Permission) -> bool {
        let person = self.person.clone();
        match (self.load_people(project).await, person) {
            (Some(people), Some(person)) => people.has_permission(&person, right),
            (None, _) => true,
            (_, None) => false,
        }
    }

    /// Returns whether the person has a permission in at least one project. Without projects, every
    /// action is allowed.
    pub(super) async fn allows_in_any(&mut self, projects: &[Uuid], right: Permission) -> bool {
        for project in projects {
            if self.allows(*project, right).await {
                return true;
            }
        }
        projects.is_empty()
    }

    /// Returns the people that a task waits on; empty if it waits on nobody.
    pub(super) async fn waiting_on(&mut self, card: &dto::TaskCard) -> String {
        let person = self.person.clone();
        // The first answer is the one requested; the others are always available.
        match card.answers.first().filter(|_| card.waits_for_person) {
            Some(answer) => {
                let people = self.load_people(card.project).await;
                responsible_people(people, person.as_ref(), Permission::from(*answer))
            }
            None => String::new(),
        }
    }
}

/// Names the people who can act: "you", people with the role, or the role itself.
pub(super) fn responsible_people(
    people: Option<&PeopleRules>,
    person: Option<&Name>,
    right: Permission,
) -> String {
    let Some(people) = people else { return "a person".to_owned() };
    if person.is_some_and(|person| people.has_permission(person, right)) {
        return YOU.to_owned();
    }
    let takes = right.required_role();
    let named = people.named.iter().filter(|(_, standing)| **standing >= takes);
    let names: Vec<&str> = named.map(|(name, _)| name.as_str()).collect();
    match names.as_slice() {
        [] if takes == PersonRole::Approver => "an approver".to_owned(),
        [] => format!("a {takes}"),
        names @ ([_] | [_, _] | [_, _, _]) => names.join(" or "),
        [one, two, rest @ ..] => format!("{one}, {two} or {} others", rest.len()),
    }
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
        for (people, person, right, expected) in [
            (approvers(&["Ada"]), &ada, Permission::Decide, "you"),
            (approvers(&["Ada"]), &bob, Permission::Decide, "Ada"),
            (approvers(&["Ada", "Grace"]), &bob, Permission::Decide, "Ada or Grace"),
            (approvers(&["A", "B", "C", "D"]), &bob, Permission::Decide, "A, B or 2 others"),
            (approvers(&[]), &bob, Permission::Decide, "an approver"),
            (approvers(&[]), &bob, Permission::Work, "you"),
        ] {
            assert_eq!(responsible_people(Some(&people), Some(person), right), expected);
        }
        assert_eq!(responsible_people(None, Some(&ada), Permission::Decide), "a person");
    }
}
