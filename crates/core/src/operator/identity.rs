//! Identity providers that people sign in with, and the roles that their groups give.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{OperatorConfigError, WebOrigin, is_variable_name, web_origin};
use crate::access::OrganisationRole;

/// Name of the organisation of all projects that nobody has given to another one.
const DEFAULT_ORGANISATION: &str = "default";

/// Names that paths of the server use for something else.
const RESERVED_NAMES: [&str; 1] = ["providers"];

/// Maximum length of a provider's name, in characters.
const MAX_NAME: usize = 40;

/// Range of `check_seconds`. With the time limits of requests, access ends within a minute.
const CHECK_SECONDS: std::ops::RangeInclusive<u32> = 1..=20;

/// Sign-in with identity providers (OIDC). Without providers, people sign in with tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentitySettings {
    /// Age of a check of somebody's groups, in seconds, after which their next request checks again.
    pub check_seconds: u32,
    /// Hosts of providers that are private or do not use TLS, as a name or an IP address.
    pub hosts: Vec<String>,
    /// Providers, in the order of the sign-in page.
    pub providers: Vec<IdentityProvider>,
}

impl Default for IdentitySettings {
    fn default() -> Self {
        Self { check_seconds: 15, hosts: Vec::new(), providers: Vec::new() }
    }
}

/// Identity provider. Nobody gets in until one of their groups has a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityProvider {
    /// Name in paths and commands, such as `company`.
    pub name: String,
    /// Name on the sign-in page. Default: `name`.
    #[serde(default)]
    pub label: Option<String>,
    /// Issuer, exactly as the provider writes it into its tokens.
    pub issuer: String,
    /// ID of Tamma at the provider.
    pub client_id: String,
    /// Variable of the server with the client's secret. Default: none, for a public client.
    #[serde(default)]
    pub secret_variable: Option<String>,
    /// Scopes to request.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// Claim with the name of the person.
    #[serde(default = "default_name_claim")]
    pub name_claim: String,
    /// Claim with the groups of the person.
    #[serde(default = "default_groups_claim")]
    pub groups_claim: String,
    /// Roles of groups.
    #[serde(default)]
    pub roles: Vec<GroupRole>,
}

/// Role of everybody in a group of the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRole {
    /// Name of the group, as the claim has it.
    pub group: String,
    /// Role of its members.
    pub role: OrganisationRole,
    /// Organisation in which they have the role.
    #[serde(default = "default_organisation")]
    pub organisation: String,
    /// Names of projects of the organisation. Empty: all, also future ones.
    #[serde(default)]
    pub projects: Vec<String>,
}

fn default_organisation() -> String {
    DEFAULT_ORGANISATION.to_owned()
}

fn default_scopes() -> Vec<String> {
    ["openid", "profile", "groups", "offline_access"].map(str::to_owned).into()
}

fn default_name_claim() -> String {
    "preferred_username".to_owned()
}

fn default_groups_claim() -> String {
    "groups".to_owned()
}

impl IdentitySettings {
    pub(super) fn check(&self) -> Result<(), OperatorConfigError> {
        if let Some(host) = self.hosts.iter().find(|host| !web_origin::is_host(host)) {
            return Err(OperatorConfigError::IdentityHost(host.clone()));
        }
        if !CHECK_SECONDS.contains(&self.check_seconds) {
            return Err(OperatorConfigError::IdentityCheck(self.check_seconds));
        }
        let (mut names, mut issuers) = (BTreeSet::new(), BTreeSet::new());
        for provider in &self.providers {
            let problem = provider.problem().or_else(|| {
                if !names.insert(&provider.name) {
                    return Some("another provider has the same `name`");
                }
                let is_new = issuers.insert(&provider.issuer);
                (!is_new).then_some("another provider has the same `issuer`")
            });
            if let Some(problem) = problem {
                let name = provider.name.chars().take(MAX_NAME).collect();
                return Err(OperatorConfigError::IdentityProvider { name, problem });
            }
        }
        Ok(())
    }
}

impl IdentityProvider {
    fn problem(&self) -> Option<&'static str> {
        let is_plain =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        let is_name = !self.name.is_empty()
            && self.name.len() <= MAX_NAME
            && self.name.chars().all(is_plain)
            && !RESERVED_NAMES.contains(&self.name.as_str());
        if !is_name {
            return Some("`name` must be 1 to 40 of a-z, 0-9 and `-`, and not `providers`");
        }
        let has_query = self.issuer.contains(['?', '#']);
        if WebOrigin::parse(&self.issuer).is_none() || has_query {
            return Some("`issuer` is not a URL such as `https://id.example.com`");
        }
        if self.client_id.is_empty() {
            return Some("`client_id` is empty");
        }
        if self.secret_variable.as_ref().is_some_and(|name| !is_variable_name(name)) {
            return Some("`secret_variable` is not the name of a variable");
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            return Some("`scopes` must have `openid`");
        }
        if self.scopes.iter().any(|scope| scope.is_empty() || scope.contains(char::is_whitespace)) {
            return Some("an entry of `scopes` is not one word");
        }
        if self.roles.iter().any(|role| role.group.is_empty()) {
            return Some("an entry of `roles` has an empty `group`");
        }
        let is_partial = |role: &GroupRole| {
            role.role == OrganisationRole::Administrator && !role.projects.is_empty()
        };
        if self.roles.iter().any(is_partial) {
            return Some("an `administrator` is one of a whole organisation: remove `projects`");
        }
        None
    }

    /// Returns the name on the sign-in page.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.name)
    }

    /// Returns `true` if one of a person's groups has a role in any project.
    pub fn admits(&self, groups: &[String]) -> bool {
        self.roles.iter().any(|role| groups.contains(&role.group))
    }

    /// Returns `true` if a group can have a role in an organisation.
    pub fn gives_roles_in(&self, organisation: &str) -> bool {
        self.roles.iter().any(|role| role.organisation == organisation)
    }

    /// Returns the organisations in `roles` that are not among the known ones.
    pub fn unknown_organisations(&self, known: &[&str]) -> BTreeSet<&str> {
        let named = self.roles.iter().map(|role| role.organisation.as_str());
        named.filter(|name| !known.contains(name)).collect()
    }

    /// Returns the highest role that groups give in a project of an organisation, or in the
    /// organisation itself.
    pub fn role_in(
        &self,
        organisation: &str,
        project: Option<&str>,
        groups: &[String],
    ) -> Option<OrganisationRole> {
        let is_for = |role: &&GroupRole| {
            let is_named = role.projects.iter().any(|named| Some(named.as_str()) == project);
            role.organisation == organisation
                && (role.projects.is_empty() || is_named)
                && groups.contains(&role.group)
        };
        self.roles.iter().filter(is_for).map(|role| role.role).max()
    }
}

#[cfg(test)]
mod tests {
    use super::super::OperatorConfig;
    use super::*;

    const TEXT: &str = "
identity:
  hosts: [127.0.0.1]
  providers:
    - name: company
      issuer: https://id.example.com
      client_id: tamma
      roles:
        - { group: engineers, role: viewer }
        - { group: leads, role: approver, projects: [shop] }
        - { group: shop, role: member, projects: [shop, site] }
        - { group: acme, role: administrator, organisation: acme }
";

    fn groups(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nobody_has_a_role_until_a_group_has_one() {
        let config = OperatorConfig::parse(TEXT).expect("valid").identity;
        let company = config.providers.first().expect("provider");
        assert_eq!(company.label(), "company");
        assert!(!company.admits(&[]));
        assert!(!company.admits(&groups(&["Engineers", "everybody", ""])));
        assert!(company.admits(&groups(&["other", "leads"])));
        let role = |project, names: &[&str]| {
            company.role_in(DEFAULT_ORGANISATION, Some(project), &groups(names))
        };
        assert_eq!(role("shop", &[]), None);
        assert_eq!(role("vault", &["engineers"]), Some(OrganisationRole::Viewer));
        assert_eq!(role("vault", &["leads", "shop"]), None);
        assert_eq!(role("shop", &["leads", "shop", "engineers"]), Some(OrganisationRole::Approver));
        assert_eq!(role("site", &["leads", "shop", "engineers"]), Some(OrganisationRole::Member));
        assert_eq!(role("shop", &["acme"]), None);
        let administrator = Some(OrganisationRole::Administrator);
        assert_eq!(
            company.role_in("acme", Some("shop"), &groups(&["acme", "leads"])),
            administrator
        );
        assert_eq!(company.role_in("acme", None, &groups(&["acme"])), administrator);
        assert_eq!(company.role_in("acme", Some("shop"), &groups(&["engineers"])), None);
        assert!(company.gives_roles_in("acme") && !company.gives_roles_in("globex"));
        assert_eq!(company.unknown_organisations(&["default"]), BTreeSet::from(["acme"]));
        assert_eq!(company.unknown_organisations(&["acme", "default"]), BTreeSet::new());
    }

    #[test]
    fn a_provider_that_could_not_work_is_refused() {
        let problem = |from: &str, to: &str| match OperatorConfig::parse(&TEXT.replace(from, to)) {
            Err(OperatorConfigError::IdentityProvider { problem, .. }) => problem.to_owned(),
            other => format!("{other:?}"),
        };
        for (from, to, expected) in [
            ("name: company", "name: Company SSO", "`name` must"),
            ("name: company", "name: providers", "`name` must"),
            ("https://id.example.com", "https://ada@id.example.com", "`issuer` is not"),
            ("https://id.example.com", "https://id.example.com/?a", "`issuer` is not"),
            ("client_id: tamma", "client_id: ''", "`client_id` is"),
            ("client_id: tamma", "client_id: t\n      scopes: [profile]", "`scopes` must"),
            ("client_id: tamma", "client_id: t\n      secret_variable: a b", "`secret_variable`"),
            ("group: leads", "group: ''", "an entry of `roles`"),
            ("role: approver", "role: administrator", "an `administrator` is"),
        ] {
            let found = problem(from, to);
            assert!(found.starts_with(expected), "{to}: {found}");
        }
        let twice = TEXT.replace(
            "    - name: company",
            "    - { name: a, issuer: https://id.example.com, client_id: b }\n    - name: company",
        );
        let error = OperatorConfig::parse(&twice).expect_err("twice").to_string();
        assert!(error.contains("same `issuer`"), "{error}");
        let rare = TEXT.replace("identity:", "identity:\n  check_seconds: 21");
        let error = OperatorConfig::parse(&rare).expect_err("too rare");
        assert_eq!(error, OperatorConfigError::IdentityCheck(21));
        let error = OperatorConfig::parse(&TEXT.replace("127.0.0.1", "http://a")).expect_err("URL");
        assert_eq!(error, OperatorConfigError::IdentityHost("http://a".to_owned()));
    }
}
