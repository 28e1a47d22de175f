//! Sessions of people, in browsers and on the command line.

use tamma_core::access::Permission;
use tamma_core::actor::AuthMethod;

use super::access_tokens::managed_person;
use super::{App, Error, Principal};
use crate::clock;
use crate::dto::{SessionList, SessionView};
use crate::security_events::{SecurityEvent, record};

impl App {
    /// Lists the open sessions of the person, or everybody's for an operator who names nobody.
    pub(crate) async fn list_sessions(
        &self,
        by: &Principal,
        person: Option<&str>,
    ) -> Result<SessionList, Error> {
        let person = managed_person(by, person)?;
        let now = clock::now();
        let sessions =
            self.store.open_sessions(person.as_ref(), self.operator_token, now).await?.into_iter();
        // An operator can sign in under any name.
        let is_operator = by.rights.allows_anywhere(Permission::Operate);
        let sessions = sessions.filter(|it| is_operator || it.method != AuthMethod::ServerToken);
        Ok(SessionList { sessions: sessions.map(SessionView::from).collect() })
    }

    /// Revokes a session, effective immediately.
    pub(crate) async fn revoke_session(&self, by: &Principal, id: &str) -> Result<(), Error> {
        let owner = managed_person(by, None)?;
        let person = self.store.revoke_session(id, owner.as_ref()).await?;
        let key: String = id.chars().take(40).collect();
        let person = person.ok_or(Error::NotFound { what: "session", key })?;
        record(SecurityEvent::SessionRevoked, person.as_str(), by.as_str(), "");
        Ok(())
    }
}
