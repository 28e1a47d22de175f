//! Who asks, and what they may do by the rules of the project.

use std::fmt;
use std::ops::Deref;

use strum::Display;
use tamma_core::ids::{Name, ProjectId};
use tamma_core::rules::{People, Right, Standing};

use super::{App, Error};

/// Who asks, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) name: Name,
    pub(crate) known: Known,
}

/// How it is known who somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Known {
    /// They have shown a token that is theirs alone.
    OwnToken,
    /// They have shown the server's own token, and have said their name.
    ServerToken,
    /// They are on the server's machine, it wants no token, and they have said their name.
    Machine,
}

impl Known {
    /// Whether they run this server, and so may speak for anybody.
    pub(crate) fn is_operator(self) -> bool {
        self != Self::OwnToken
    }
}

/// Most of what takes somebody only wants their name.
impl Deref for By {
    type Target = Name;

    fn deref(&self) -> &Name {
        &self.name
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl App {
    /// Refuses what a person may not do in a project. Either way it is said in the server's log.
    pub(crate) async fn permit(
        &self,
        by: &By,
        right: Right,
        project: ProjectId,
    ) -> Result<(), Error> {
        let people = self.people(project).await?;
        if people.may(by, right) {
            tracing::info!(%by, known = %by.known, %right, %project, "is permitted");
            Ok(())
        } else {
            Err(refusal(by, right, people.standing(by)))
        }
    }

    /// Refuses what a person may not do in any project.
    pub(crate) async fn permit_anywhere(&self, by: &By, right: Right) -> Result<(), Error> {
        let (mut refused, mut broken) = (None, None);
        for project in self.store.projects().await? {
            match self.people(project.id).await {
                Ok(people) if people.may(by, right) => {
                    tracing::info!(%by, known = %by.known, %right, "is permitted");
                    return Ok(());
                }
                Ok(people) => refused = Some(people.standing(by)),
                // What it would have said is not known; another project may still say yes.
                Err(error @ Error::Unruled { .. }) => broken = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (refused, broken) {
            (Some(standing), _) => Err(refusal(by, right, standing)),
            (None, Some(error)) => Err(error),
            // Where there is no project, there is nothing to protect.
            (None, None) => Ok(()),
        }
    }

    /// Refuses what only those may do who run this server.
    pub(super) fn permit_operator(by: &By) -> Result<(), Error> {
        if by.known.is_operator() {
            return Ok(());
        }
        tracing::warn!(%by, known = %by.known, "was refused: does not run this server");
        Err(Error::NotOperator)
    }

    /// What people may do in a project, by its file as it is now: a right that was taken away is gone
    /// at once. Where the file cannot be read, nobody may do anything until it is mended.
    pub(crate) async fn people(&self, project: ProjectId) -> Result<People, Error> {
        let project = self.store.project(project).await?;
        match self.rules_of(&project.repository).await {
            Ok(rules) => Ok(rules.people),
            Err(Error::Rules { file, faults }) => {
                Err(Error::Unruled { why: format!("{file} has mistakes in it."), faults })
            }
            Err(Error::Invalid { detail: why, .. }) => {
                Err(Error::Unruled { why, faults: Vec::new() })
            }
            Err(error) => Err(error),
        }
    }
}

fn refusal(by: &By, right: Right, standing: Standing) -> Error {
    tracing::warn!(%by, known = %by.known, %right, %standing, "was refused");
    Error::Forbidden { by: by.to_string(), right, standing }
}
