//! What somebody may do where, for what their pages offer. The use cases check it again.

use std::collections::BTreeMap;

use tamma_core::ids::{Name, ProjectId};
use tamma_core::rules::{People, Right, Standing};
use uuid::Uuid;

use super::door::Visitor;
use crate::app::App;
use crate::shape;

/// Whom a task waits for that waits for whoever looks.
pub(super) const YOU: &str = "you";

/// What one person may do, by project. Each project's file is read once.
#[derive(Clone)]
pub(super) struct Rights {
    app: App,
    person: Option<Name>,
    /// Nothing where the file has mistakes in it.
    known: BTreeMap<Uuid, Option<People>>,
}

impl Rights {
    pub(super) fn of(app: &App, visitor: &Visitor) -> Self {
        Self { app: app.clone(), person: visitor.person.clone(), known: BTreeMap::new() }
    }

    async fn people(&mut self, project: Uuid) -> Option<&People> {
        if !self.known.contains_key(&project) {
            let people = self.app.people(ProjectId(project)).await.ok();
            self.known.insert(project, people);
        }
        self.known.get(&project).and_then(Option::as_ref)
    }

    /// Whether they may do something in a project. Where it cannot be told, nothing is hidden: whoever
    /// tries is told why not.
    pub(super) async fn may(&mut self, project: Uuid, right: Right) -> bool {
        let person = self.person.clone();
        match (self.people(project).await, person) {
            (Some(people), Some(person)) => people.may(&person, right),
            (None, _) => true,
            (_, None) => false,
        }
    }

    /// Whether they may do something in any of some projects; where there is none, nothing is
    /// protected.
    pub(super) async fn may_in_any(&mut self, projects: &[Uuid], right: Right) -> bool {
        for project in projects {
            if self.may(*project, right).await {
                return true;
            }
        }
        projects.is_empty()
    }

    /// For whom a task waits; empty where it waits for nobody.
    pub(super) async fn waits_for(&mut self, card: &shape::Card) -> String {
        let person = self.person.clone();
        // The first answer is the one that is asked for; the others are always there.
        match card.answers.first().filter(|_| card.waits_for_person) {
            Some(answer) => {
                let people = self.people(card.project).await;
                whom(people, person.as_ref(), Right::from(*answer))
            }
            None => String::new(),
        }
    }
}

/// Who may do something: you, those who are named for it, or a role.
pub(super) fn whom(people: Option<&People>, person: Option<&Name>, right: Right) -> String {
    let Some(people) = people else { return "a person".to_owned() };
    if person.is_some_and(|person| people.may(person, right)) {
        return YOU.to_owned();
    }
    let takes = right.takes();
    let named = people.named.iter().filter(|(_, standing)| **standing >= takes);
    let names: Vec<&str> = named.map(|(name, _)| name.as_str()).collect();
    match names.as_slice() {
        [] if takes == Standing::Approver => "an approver".to_owned(),
        [] => format!("a {takes}"),
        names @ ([_] | [_, _] | [_, _, _]) => names.join(" or "),
        [one, two, rest @ ..] => format!("{one}, {two} or {} others", rest.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_is_told_by_name_where_few_may() {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let approvers = |names: &[&str]| People {
            everybody: Standing::Member,
            named: names.iter().map(|name| ((*name).to_owned(), Standing::Approver)).collect(),
        };
        let (ada, bob) = (name("Ada"), name("Bob"));
        for (people, person, right, expected) in [
            (approvers(&["Ada"]), &ada, Right::Decide, "you"),
            (approvers(&["Ada"]), &bob, Right::Decide, "Ada"),
            (approvers(&["Ada", "Grace"]), &bob, Right::Decide, "Ada or Grace"),
            (approvers(&["A", "B", "C", "D"]), &bob, Right::Decide, "A, B or 2 others"),
            (approvers(&[]), &bob, Right::Decide, "an approver"),
            (approvers(&[]), &bob, Right::Work, "you"),
        ] {
            assert_eq!(whom(Some(&people), Some(person), right), expected);
        }
        assert_eq!(whom(None, Some(&ada), Right::Decide), "a person");
    }
}
