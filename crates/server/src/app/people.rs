//! Personal access tokens. Operators issue and revoke them.

use tamma_core::ids::{Digest, Name};
use tamma_store::Conflict;

use super::{App, Error, Principal};
use crate::audit;
use crate::clock;
use crate::dto::{IssuedToken, NewPerson, PersonRecord};

impl App {
    /// Issues a token to a person. Only its hash is stored, so the response is the only copy.
    pub(crate) async fn add_person(
        &self,
        by: &Principal,
        new: NewPerson,
    ) -> Result<IssuedToken, Error> {
        by.require_operator()?;
        let name = parse_name(&new.name)?;
        let token = clock::new_token();
        let hash = Digest::of(token.as_bytes());
        match self.store.add_person(clock::new_id(), &name, hash, by).await {
            Ok(()) => {}
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => {
                return Err(Error::invalid(
                    format!("{name} already has a token."),
                    "To replace a lost token, revoke it with `tamma person revoke`, then add the \
                     person again.",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        audit::note_action("issue_token", &name);
        tracing::info!(%by, auth_method = %by.auth_method, person = %name, "token issued");
        Ok(IssuedToken { name: name.to_string(), token })
    }

    /// Lists everyone who has or had a token.
    pub(crate) async fn list_people(&self) -> Result<Vec<PersonRecord>, Error> {
        let people = self.store.people().await?;
        Ok(people.into_iter().map(PersonRecord::from).collect())
    }

    /// Revokes a person's token. Open browser sessions end too.
    pub(crate) async fn revoke_person(&self, by: &Principal, name: &str) -> Result<(), Error> {
        by.require_operator()?;
        let name = parse_name(name)?;
        if !self.store.revoke_person(&name, by).await? {
            return Err(Error::NotFound { what: "a token of", key: name.to_string() });
        }
        audit::note_action("revoke_token", &name);
        tracing::info!(%by, auth_method = %by.auth_method, person = %name, "token revoked");
        Ok(())
    }
}

pub(super) fn parse_name(text: &str) -> Result<Name, Error> {
    let text = text.trim();
    let name = Some(text).filter(|text| !text.contains(char::is_control));
    name.and_then(|name| name.parse().ok()).ok_or_else(|| {
        Error::invalid(
            "The name must be one line of 1 to 100 characters.",
            "Use the same spelling as in `tamma access grant`.",
        )
    })
}
