//! Access tokens with a label, a limit and an end. People manage their own, operators everybody's.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use tamma_core::access::{Permission, PersonRole, TokenLimit};
use tamma_core::actor::AuthMethod;
use tamma_core::ids::{Digest, Name};
use tamma_store::{AccessToken, NewAccessToken};
use uuid::Uuid;

use super::access::parse_role;
use super::people::parse_name;
use super::{App, Error, Principal};
use crate::clock;
use crate::dto::{CreatedToken, NewToken, TokenList, TokenView};
use crate::security_events::{SecurityEvent, record};

/// Maximum length of a label, in characters.
const MAX_LABEL: usize = 100;

/// Maximum lifetime of a token that has an end.
const MAX_LIFETIME: TimeDelta = TimeDelta::days(3653);

impl App {
    /// Creates a token. Only its hash is stored, so the response is the only copy.
    pub(crate) async fn create_token(
        &self,
        by: &Principal,
        new: &NewToken,
    ) -> Result<CreatedToken, Error> {
        let person = managed_person(by, new.person.as_deref())?;
        let person = person.unwrap_or_else(|| by.name.clone());
        // A name with a typing error would become another person.
        if new.person.is_some() && !self.store.is_name_used(&person).await? {
            return Err(Error::invalid(
                format!("There is nobody called {person}."),
                "Check the name with `tamma person list`. To add a person, run `tamma person add \
                 NAME`; to add a service account, `tamma person add NAME --service`.",
            ));
        }
        let label = new.label.trim();
        let length = label.chars().count();
        if length == 0 || length > MAX_LABEL || label.contains(char::is_control) {
            return Err(Error::invalid(
                "The label must be one line of 1 to 100 characters.",
                "Name the program or machine that uses the token, such as `laptop`.",
            ));
        }
        let now = clock::now();
        let is_possible = |end: DateTime<Utc>| end > now && end < now + MAX_LIFETIME;
        if !new.expires_at.is_none_or(is_possible) {
            return Err(Error::invalid(
                "A token must expire in the future, within 10 years.",
                "Choose another end, or leave it out.",
            ));
        }
        let role = new.role.as_deref().map(parse_role).transpose()?;
        let mut projects = Vec::new();
        for project in &new.projects {
            projects.push(self.resolve_project(Some(project)).await?.id);
        }
        let is_limited = role.is_some() || !projects.is_empty();
        let limit = is_limited.then(|| TokenLimit {
            role: role.unwrap_or(PersonRole::Approver),
            projects: (!projects.is_empty()).then(|| projects.into_iter().collect()),
        });
        let (secret, expires_at) = (clock::new_token(), new.expires_at);
        let token = NewAccessToken {
            id: clock::new_id(),
            person: person.clone(),
            label: label.to_owned(),
            hash: Digest::of(secret.as_bytes()),
            limit: limit.clone(),
            expires_at,
            by: by.name.clone(),
        };
        self.store.add_access_token(&token).await?;
        record(SecurityEvent::TokenCreated, person.as_str(), by.as_str(), label);
        let created = AccessToken {
            id: token.id,
            person,
            label: token.label,
            limit,
            created_by: token.by,
            created_at: now,
            expires_at,
            last_used_at: None,
            revoked: None,
        };
        Ok(CreatedToken { secret, token: TokenView::from(created) })
    }

    /// Lists the tokens of the person, or everybody's for an operator who names nobody.
    pub(crate) async fn list_tokens(
        &self,
        by: &Principal,
        person: Option<&str>,
    ) -> Result<TokenList, Error> {
        let person = managed_person(by, person)?;
        let tokens = self.store.access_tokens(person.as_ref()).await?;
        let mut tokens: Vec<TokenView> = tokens.into_iter().map(TokenView::from).collect();
        // Others list their own, and whoever asks is active.
        if by.rights.allows_anywhere(Permission::Operate) {
            let accounts = self.store.accounts().await?;
            let deactivated = accounts.iter().filter(|it| it.deactivated.is_some());
            let deactivated: BTreeSet<String> =
                deactivated.map(|it| it.name.as_str().to_lowercase()).collect();
            for token in &mut tokens {
                token.account_deactivated = deactivated.contains(&token.person.to_lowercase());
            }
        }
        Ok(TokenList { tokens })
    }

    /// Revokes a token, effective immediately.
    pub(crate) async fn revoke_token(&self, by: &Principal, id: Uuid) -> Result<(), Error> {
        let owner = managed_person(by, None)?;
        let person = self.store.revoke_access_token(id, owner.as_ref(), by).await?;
        let person =
            person.ok_or_else(|| Error::NotFound { what: "token", key: id.to_string() })?;
        record(SecurityEvent::TokenRevoked, person.as_str(), by.as_str(), &id.to_string());
        Ok(())
    }
}

/// Returns the person whose tokens and sessions a caller manages: the named one, else their own, or
/// everybody's (`None`) for an operator.
pub(super) fn managed_person(by: &Principal, person: Option<&str>) -> Result<Option<Name>, Error> {
    if by.auth_method == AuthMethod::ServiceToken {
        return Err(Error::Refused(
            "A service account cannot manage tokens and sessions. Ask an operator (`tamma token \
             create --for NAME`)."
                .to_owned(),
        ));
    }
    if !by.manages_credentials {
        return Err(Error::Refused(
            "A token with a limit cannot manage tokens and sessions. Use one without a limit."
                .to_owned(),
        ));
    }
    let named = person.map(parse_name).transpose()?;
    if by.rights.allows_anywhere(Permission::Operate) {
        return Ok(named);
    }
    match named {
        Some(named) if named.as_str().to_lowercase() != by.as_str().to_lowercase() => {
            Err(Error::NotOperator)
        }
        _ => Ok(Some(by.name.clone())),
    }
}
