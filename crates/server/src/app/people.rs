//! People who have a token of their own. Whoever runs the server gives them out and takes them away.

use tamma_core::ids::{Digest, Name};
use tamma_store::Conflict;

use super::{App, By, Error};
use crate::clock;
use crate::shape::{NewPerson, Person, Welcome};

impl App {
    /// Gives somebody a token. It is in the answer, and nowhere else: only its hash is kept.
    pub(crate) async fn add_person(&self, by: &By, new: NewPerson) -> Result<Welcome, Error> {
        Self::permit_operator(by)?;
        let name = named(&new.name)?;
        let token = clock::new_token();
        let hash = Digest::of(token.as_bytes());
        match self.store.add_person(clock::new_id(), &name, hash, by).await {
            Ok(()) => {}
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => {
                return Err(Error::invalid(
                    format!("{name} has a token already."),
                    "A lost one is replaced: revoke it with `tamma person revoke`, and add them \
                     again.",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        tracing::info!(%by, known = %by.known, person = %name, "gave out a token");
        Ok(Welcome { name: name.to_string(), token })
    }

    /// Everybody who has a token or had one.
    pub(crate) async fn persons(&self) -> Result<Vec<Person>, Error> {
        let people = self.store.people().await?;
        Ok(people.into_iter().map(Person::from).collect())
    }

    /// Takes somebody's token away. It is good for nothing from then on, in open browsers too.
    pub(crate) async fn revoke_person(&self, by: &By, said: &str) -> Result<(), Error> {
        Self::permit_operator(by)?;
        let name = named(said)?;
        if !self.store.revoke_person(&name, by).await? {
            return Err(Error::NotFound { what: "person with a token", key: name.to_string() });
        }
        tracing::info!(%by, known = %by.known, person = %name, "took a token away");
        Ok(())
    }
}

fn named(said: &str) -> Result<Name, Error> {
    let said = said.trim();
    let name = Some(said).filter(|said| !said.contains(char::is_control));
    name.and_then(|name| name.parse().ok()).ok_or_else(|| {
        Error::invalid(
            "A name has 1 to 100 characters, in one line.",
            "Write it as `people` in `tamma.yaml` has it.",
        )
    })
}
