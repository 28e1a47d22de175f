//! First access tokens of people, and accounts. Operators manage them.

use std::collections::BTreeMap;

use tamma_core::actor::AuthMethod;
use tamma_core::ids::{Digest, Name};
use tamma_store::{AccountKind, Conflict};

use super::{App, Error, Principal};
use crate::clock;
use crate::dto::{
    AccountView, IdentityLink, IssuedToken, NewPerson, NewToken, PersonList, PersonRecord,
};
use crate::security_events::{SecurityEvent, record};

impl App {
    /// Issues a token to a person. Only its hash is stored, so the response is the only copy.
    pub(crate) async fn add_person(
        &self,
        by: &Principal,
        new: NewPerson,
    ) -> Result<IssuedToken, Error> {
        by.require_operator()?;
        let name = Name::parse_account(&new.name).ok_or_else(|| {
            Error::invalid(
                "The name must be one line of 1 to 100 visible characters, and not `everybody`.",
                "Use the same spelling as in `tamma access grant`.",
            )
        })?;
        if new.service {
            return self.add_service_account(by, &name).await;
        }
        if self.store.account_kind(&name).await? == AccountKind::Service {
            return Err(Error::invalid(
                format!("{name} is a service account."),
                "Give it another token with `tamma token create --for NAME`.",
            ));
        }
        // Before the token is stored: it cannot be read again.
        let roles = self.roles_of(&name).await?;
        let token = clock::new_token();
        let hash = Digest::of(token.as_bytes());
        match self.store.add_person(clock::new_id(), &name, hash, by).await {
            Ok(()) => {}
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => {
                return Err(Error::invalid(
                    format!("{name} already has a token."),
                    "For another token, run `tamma token create --for NAME`. To replace a lost \
                     one, run `tamma person revoke`, which ends all their tokens and sessions, \
                     then add the person again.",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        record(SecurityEvent::TokenCreated, name.as_str(), by.as_str(), "first token");
        Ok(IssuedToken { name: name.to_string(), token, roles })
    }

    /// Adds a service account with its first token.
    async fn add_service_account(&self, by: &Principal, name: &Name) -> Result<IssuedToken, Error> {
        let taken = || {
            Error::invalid(
                format!("The name {name} is already in use."),
                "Choose another name. To give a service account another token, run `tamma token \
                 create --for NAME`.",
            )
        };
        if self.store.is_name_used(name).await? {
            return Err(taken());
        }
        let roles = self.roles_of(name).await?;
        match self.store.add_service_account(clock::new_id(), name, by).await {
            Ok(()) => {}
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => return Err(taken()),
            Err(error) => return Err(error.into()),
        }
        record(SecurityEvent::AccountCreated, name.as_str(), by.as_str(), "service account");
        let person = Some(name.to_string());
        let new = NewToken { label: "first token".to_owned(), person, ..NewToken::default() };
        let created = self.create_token(by, &new).await?;
        Ok(IssuedToken { name: name.to_string(), token: created.secret, roles })
    }

    /// Returns the roles that a person has, by name of the project.
    async fn roles_of(&self, person: &Name) -> Result<BTreeMap<String, String>, Error> {
        let rights = self.identity.rights_of(person).await?;
        let mut roles = BTreeMap::new();
        for project in self.store.projects().await? {
            if let Some(role) = rights.role(project.id) {
                roles.insert(project.name, role.to_string());
            }
        }
        Ok(roles)
    }

    /// Deactivates an account. Its tokens, sessions and streams end at once, on every server.
    pub(crate) async fn deactivate_account(&self, by: &Principal, name: &str) -> Result<(), Error> {
        by.require_operator()?;
        let name = parse_name(name)?;
        // A name with a typing error would leave the real account active.
        if !self.store.is_name_used(&name).await? {
            return Err(Error::NotFound { what: "account", key: name.to_string() });
        }
        if !self.store.deactivate_account(clock::new_id(), &name, by).await? {
            return Err(Error::Refused(format!("The account of {name} is already deactivated.")));
        }
        record(SecurityEvent::AccountDeactivated, name.as_str(), by.as_str(), "");
        Ok(())
    }

    /// Activates an account again.
    pub(crate) async fn activate_account(&self, by: &Principal, name: &str) -> Result<(), Error> {
        by.require_operator()?;
        let name = parse_name(name)?;
        if !self.store.activate_account(&name).await? {
            let what = "a deactivated account of";
            return Err(Error::NotFound { what, key: name.to_string() });
        }
        record(SecurityEvent::AccountActivated, name.as_str(), by.as_str(), "");
        Ok(())
    }

    /// Links a subject at an identity provider to a person, who then needs no group to sign in.
    pub(crate) async fn link_identity(
        &self,
        by: &Principal,
        link: &IdentityLink,
    ) -> Result<(), Error> {
        by.require_operator()?;
        let name = parse_name(&link.name)?;
        let issuer = &self.identity.client(&link.provider)?.settings().issuer;
        if self.store.account_kind(&name).await? == AccountKind::Service {
            return Err(Error::invalid(
                format!("{name} is a service account, which cannot sign in."),
                "Link the subject to a person.",
            ));
        }
        if link.subject.is_empty() || link.subject.len() > 255 {
            return Err(Error::invalid(
                "The subject must have 1 to 255 characters.",
                "Copy it from the message of the refused sign-in, or from the provider.",
            ));
        }
        let ids = [clock::new_id(), clock::new_id()];
        let subject = (issuer.as_str(), link.subject.as_str());
        self.store.link_identity(ids, subject, &name, by, clock::now()).await?;
        record(SecurityEvent::IdentityLinked, name.as_str(), by.as_str(), &link.provider);
        Ok(())
    }

    /// Returns `true` if the account of a person is deactivated.
    pub(super) async fn is_deactivated(&self, name: &Name) -> Result<bool, Error> {
        let wanted = name.as_str().to_lowercase();
        let accounts = self.store.accounts().await?;
        let mut named = accounts.iter().filter(|it| it.name.as_str().to_lowercase() == wanted);
        Ok(named.any(|account| account.deactivated.is_some()))
    }

    /// Lists everyone who has or had a token, and all accounts.
    pub(crate) async fn list_people(&self) -> Result<PersonList, Error> {
        let people = self.store.people().await?;
        let accounts = self.store.accounts().await?;
        Ok(PersonList {
            people: people.into_iter().map(PersonRecord::from).collect(),
            accounts: accounts.into_iter().map(AccountView::from).collect(),
        })
    }

    /// Revokes all tokens and sessions of a person or service account. Sessions of operators who
    /// signed in under that name with the server's token stay open.
    pub(crate) async fn revoke_person(&self, by: &Principal, name: &str) -> Result<(), Error> {
        by.require_operator()?;
        let name = parse_name(name)?;
        let mut is_any_revoked = false;
        // Sessions first: with one, the person could create another token.
        let sessions =
            self.store.open_sessions(Some(&name), self.operator_token, clock::now()).await?;
        for session in sessions.iter().filter(|it| it.method != AuthMethod::ServerToken) {
            if self.store.revoke_session(&session.id, Some(&name)).await?.is_some() {
                record(SecurityEvent::SessionRevoked, name.as_str(), by.as_str(), "");
                is_any_revoked = true;
            }
        }
        if self.store.revoke_person(&name, by).await? {
            record(SecurityEvent::TokenRevoked, name.as_str(), by.as_str(), "first token");
            is_any_revoked = true;
        }
        let tokens = self.store.access_tokens(Some(&name)).await?;
        for token in tokens.iter().filter(|it| it.revoked.is_none()) {
            if self.store.revoke_access_token(token.id, Some(&name), by).await?.is_some() {
                let id = token.id.to_string();
                record(SecurityEvent::TokenRevoked, name.as_str(), by.as_str(), &id);
                is_any_revoked = true;
            }
        }
        if is_any_revoked { Ok(()) } else { Err(Error::NothingToRevoke(name.to_string())) }
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
