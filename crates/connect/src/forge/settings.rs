//! Settings of a forge: one file per forge, which only the operator can read.

use std::fmt;

use serde::{Deserialize, Serialize};
use tamma_core::forge::ForgeKind;

/// Longest name of a forge, in characters.
const MAX_NAME: usize = 40;

/// Settings of one forge.
#[derive(Clone, PartialEq, Eq)]
pub struct ForgeSettings {
    /// Name: that of the file, without `.yaml`.
    pub name: String,
    /// Kind, which decides the API.
    pub kind: ForgeKind,
    /// Address of its pages and repositories, such as `https://github.com`. Projects whose repository
    /// is below it use this forge.
    pub url: String,
    /// Address of its API. Default: the usual one of its kind.
    pub api: Option<String>,
    /// Credential of Tamma.
    pub credential: ForgeCredential,
    /// Secret that signs webhooks. Without it, no webhook is accepted.
    pub webhook_secret: Option<String>,
}

/// Credential for a forge.
#[derive(Clone, PartialEq, Eq)]
pub enum ForgeCredential {
    /// Access token.
    Token(String),
    /// GitHub App.
    App(AppCredentials),
}

/// Credential of a GitHub App.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppCredentials {
    /// ID of the app.
    pub id: u64,
    /// ID of its installation.
    pub installation: u64,
    /// Private key, in PEM format.
    pub private_key: String,
}

/// User name and password for git over HTTPS.
#[derive(Clone, PartialEq, Eq)]
pub struct GitLogin {
    /// User name.
    pub user: String,
    /// Password or token.
    pub password: String,
}

/// Invalid or unreadable settings of a forge.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// File or folder cannot be read or written.
    #[error("cannot access {path}: {source}")]
    Unreadable {
        /// Path of the file or the folder.
        path: String,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// Content is invalid.
    #[error(
        "settings of forge `{name}` are invalid: {reason}; add it again with `tamma forge add \
         --replace`"
    )]
    Invalid {
        /// Name of the forge.
        name: String,
        /// Reason, without secrets.
        reason: String,
    },
    /// Other accounts of the machine can read the credential.
    #[error("{path} contains a credential and can be read by others; run `chmod 600 {path}`")]
    Exposed {
        /// Path of the file.
        path: String,
    },
}

/// Content of a settings file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    kind: ForgeKind,
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app: Option<AppCredentials>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    webhook_secret: Option<String>,
}

impl ForgeSettings {
    /// Parses and validates the content of a file.
    pub(super) fn parse(name: &str, yaml: &str) -> Result<Self, SettingsError> {
        // The message of the parser can quote the credential.
        let file: SettingsFile = serde_saphyr::from_str(yaml).map_err(|_| {
            let reason = "expected `kind` (github, gitlab or gitea), `url`, optional `api` and \
                          `webhook_secret`, and `token` or `app` (`id`, `installation`, \
                          `private_key`)";
            invalid(name, reason)
        })?;
        let credential = match (file.token, file.app) {
            (Some(token), None) => ForgeCredential::Token(token),
            (None, Some(app)) => ForgeCredential::App(app),
            (None, None) => return Err(invalid(name, "`token` or `app` is missing")),
            (Some(_), Some(_)) => {
                return Err(invalid(name, "`token` and `app` exclude each other"));
            }
        };
        let settings = Self {
            name: name.to_owned(),
            kind: file.kind,
            url: file.url,
            api: file.api,
            credential,
            webhook_secret: file.webhook_secret,
        };
        settings.validate()?;
        Ok(settings)
    }

    /// Returns the content of a file.
    pub(super) fn to_yaml(&self) -> Result<String, SettingsError> {
        let (token, app) = match &self.credential {
            ForgeCredential::Token(token) => (Some(token.clone()), None),
            ForgeCredential::App(app) => (None, Some(app.clone())),
        };
        let file = SettingsFile {
            kind: self.kind,
            url: self.url.clone(),
            api: self.api.clone(),
            token,
            app,
            webhook_secret: self.webhook_secret.clone(),
        };
        serde_saphyr::to_string(&file).map_err(|_| invalid(&self.name, "cannot be written as YAML"))
    }

    /// Checks everything that can be checked without the forge.
    pub(super) fn validate(&self) -> Result<(), SettingsError> {
        let invalid = |reason: &str| invalid(&self.name, reason);
        if !is_forge_name(&self.name) {
            return Err(invalid("a name has up to 40 lower-case letters, digits and `-`"));
        }
        for (key, url) in [("url", Some(&self.url)), ("api", self.api.as_ref())] {
            let Some(url) = url else { continue };
            let is_web_address = reqwest::Url::parse(url).is_ok_and(|it| {
                let has_login = !it.username().is_empty() || it.password().is_some();
                let has_extra = it.query().is_some() || it.fragment().is_some();
                matches!(it.scheme(), "http" | "https") && it.has_host() && !has_login && !has_extra
            });
            if !is_web_address {
                return Err(invalid(&format!("`{key}` is not an http or https address")));
            }
            if !is_encrypted_or_local(url) {
                let reason = "would send the credential in clear text; use https instead of http";
                return Err(invalid(&format!("`{key}` {reason}")));
            }
        }
        match &self.credential {
            ForgeCredential::Token(token) => {
                if token.is_empty() || !token.chars().all(|it| it.is_ascii_graphic()) {
                    return Err(invalid("`token` is empty or contains spaces"));
                }
            }
            ForgeCredential::App(app) => {
                if self.kind != ForgeKind::Github {
                    return Err(invalid("only GitHub has apps; use `token`"));
                }
                super::github_app::read_private_key(&app.private_key).map_err(invalid)?;
            }
        }
        if self.webhook_secret.as_ref().is_some_and(|secret| secret.chars().count() < 16) {
            return Err(invalid("`webhook_secret` has fewer than 16 characters"));
        }
        Ok(())
    }

    /// Returns the address of the API, without a slash at its end.
    pub(super) fn api_url(&self) -> String {
        if let Some(api) = &self.api {
            return api.trim_end_matches('/').to_owned();
        }
        let url = self.url.trim_end_matches('/');
        match self.kind {
            ForgeKind::Github if url == "https://github.com" => "https://api.github.com".to_owned(),
            ForgeKind::Github => format!("{url}/api/v3"),
            ForgeKind::Gitlab => format!("{url}/api/v4"),
            ForgeKind::Gitea => format!("{url}/api/v1"),
        }
    }

    /// Returns the repository's path below this forge, such as `owner/name`, with the length of the
    /// matching part of the address. HTTPS and SSH addresses match.
    pub(super) fn repository_path(&self, address: &str) -> Option<(usize, String)> {
        let (host, path) = host_and_path(address)?;
        let url = reqwest::Url::parse(&self.url).ok()?;
        let own_host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
        let is_web = address.starts_with("http://") || address.starts_with("https://");
        let own_host = match (is_web, url.port()) {
            (true, Some(port)) => format!("{own_host}:{port}"),
            _ => own_host.to_owned(),
        };
        if !host.eq_ignore_ascii_case(&own_host) {
            return None;
        }
        let prefix = url.path().trim_matches('/');
        let rest = match path.strip_prefix(prefix) {
            Some(rest) if prefix.is_empty() || rest.starts_with('/') => rest,
            // SSH addresses do not contain the folder that the pages are in.
            _ if !is_web => path.as_str(),
            _ => return None,
        };
        let rest = rest.trim_matches('/');
        let rest = rest.strip_suffix(".git").unwrap_or(rest);
        let parts: Vec<&str> = rest.split('/').collect();
        let is_valid = parts.iter().all(|part| is_path_part(part));
        let is_long_enough = match self.kind {
            ForgeKind::Github | ForgeKind::Gitea => parts.len() == 2,
            ForgeKind::Gitlab => parts.len() >= 2,
        };
        (is_valid && is_long_enough).then(|| (own_host.len() + prefix.len(), rest.to_owned()))
    }
}

/// Returns `true` for names that are safe as a file name and in messages.
pub(super) fn is_forge_name(name: &str) -> bool {
    let is_part = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('-')
        && name.chars().all(is_part)
}

/// Returns `true` if nobody else on the network sees what is sent to an address.
fn is_encrypted_or_local(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|it| {
        let is_local = matches!(it.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        it.scheme() == "https" || is_local
    })
}

/// Splits an address into its host, with the port of a web address, and its path.
pub(super) fn host_and_path(address: &str) -> Option<(String, String)> {
    if address.contains("://") {
        let url = reqwest::Url::parse(address).ok()?;
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
        let path = url.path().trim_matches('/').to_owned();
        return match (url.scheme(), url.port()) {
            ("http" | "https", Some(port)) => Some((format!("{host}:{port}"), path)),
            ("http" | "https" | "ssh" | "git+ssh", _) => Some((host.to_owned(), path)),
            _ => None,
        };
    }
    // The short form of SSH: `git@host:owner/name.git`.
    let (login, path) = address.split_once(':')?;
    let host = login.rsplit_once('@').map(|(_, host)| host)?;
    let is_host = !host.is_empty() && !host.contains('/');
    is_host.then(|| (host.to_owned(), path.trim_matches('/').to_owned()))
}

/// Returns `true` for one part of a repository's path. Others could change the path of a request.
fn is_path_part(part: &str) -> bool {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '+');
    !part.is_empty()
        && part.len() <= 255
        && !matches!(part, "." | "..")
        && part.chars().all(is_allowed)
}

fn invalid(name: &str, reason: &str) -> SettingsError {
    SettingsError::Invalid { name: name.to_owned(), reason: reason.to_owned() }
}

impl fmt::Debug for ForgeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForgeSettings")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GitLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(kind: &str, url: &str) -> ForgeSettings {
        ForgeSettings::parse("acme", &format!("kind: {kind}\nurl: {url}\ntoken: t0ken\n")).unwrap()
    }

    #[test]
    fn settings_survive_their_file() {
        let yaml = "kind: gitea\nurl: https://git.acme.example\ntoken: t0ken\n\
                    webhook_secret: 0123456789abcdef\n";
        let parsed = ForgeSettings::parse("acme", yaml).unwrap();
        let again = ForgeSettings::parse("acme", &parsed.to_yaml().unwrap()).unwrap();
        assert_eq!(parsed, again);
        assert!(!format!("{parsed:?}").contains("t0ken"));
    }

    #[test]
    fn invalid_settings_are_refused_without_quoting_the_credential() {
        for yaml in [
            "kind: svn\nurl: https://x.example\ntoken: t0ken",
            "kind: gitea\nurl: https://x.example",
            "kind: gitea\nurl: ftp://x.example\ntoken: t0ken",
            "kind: gitea\nurl: http://x.example\ntoken: t0ken",
            "kind: gitea\nurl: https://x.example\napi: http://x.example/api\ntoken: t0ken",
            "kind: gitea\nurl: https://me:pw@x.example\ntoken: t0ken",
            "kind: gitea\nurl: https://x.example\ntoken: 't0 ken'",
            "kind: gitea\nurl: https://x.example\ntoken: t0ken\nwebhook_secret: short",
            "kind: gitea\nurl: https://x.example\ntoken: t0ken\ncolour: red",
            "kind: gitea\nurl: https://x.example\napp: { id: 1, installation: 2, private_key: x }",
            "kind: github\nurl: https://x.example\napp: { id: 1, installation: 2, private_key: x }",
        ] {
            let error = ForgeSettings::parse("acme", yaml).unwrap_err().to_string();
            assert!(error.contains("forge `acme`") && !error.contains("t0ken"), "{error}");
        }
        let named = ForgeSettings::parse("../up", "kind: gitea\nurl: https://x.example\ntoken: t");
        assert!(named.is_err());
    }

    #[test]
    fn api_has_the_usual_address_of_its_kind() {
        for (kind, url, api) in [
            ("github", "https://github.com/", "https://api.github.com"),
            ("github", "https://git.acme.example", "https://git.acme.example/api/v3"),
            ("gitlab", "https://gitlab.com", "https://gitlab.com/api/v4"),
            ("gitea", "https://acme.example/git/", "https://acme.example/git/api/v1"),
        ] {
            assert_eq!(settings(kind, url).api_url(), api);
        }
    }

    #[test]
    fn web_and_ssh_addresses_match_a_forge() {
        let github = settings("github", "https://github.com");
        for address in [
            "https://github.com/acme/app",
            "https://github.com/acme/app.git",
            "https://x-access-token@GitHub.com/acme/app/",
            "git@github.com:acme/app.git",
            "ssh://git@github.com/acme/app.git",
            "ssh://git@github.com:22/acme/app",
        ] {
            let found = github.repository_path(address).map(|(_, path)| path);
            assert_eq!(found.as_deref(), Some("acme/app"), "{address}");
        }
        for address in [
            "https://github.com.evil.example/acme/app",
            "https://github.com/acme",
            "https://github.com/acme/app/tree/main",
            "https://github.com/acme/..",
            "https://github.com:8443/acme/app",
            "/srv/git/app",
            "file:///srv/git/app",
            "git@gitlab.com:acme/app.git",
        ] {
            assert_eq!(github.repository_path(address), None, "{address}");
        }
        let gitlab = settings("gitlab", "https://acme.example/gitlab");
        let found = gitlab.repository_path("https://acme.example/gitlab/team/sub/app.git");
        assert_eq!(found.map(|(_, path)| path).as_deref(), Some("team/sub/app"));
        assert_eq!(gitlab.repository_path("https://acme.example/gitlabs/team/app"), None);
        let local = settings("gitea", "http://127.0.0.1:3000");
        let found = local.repository_path("http://127.0.0.1:3000/acme/app.git");
        assert_eq!(found.map(|(_, path)| path).as_deref(), Some("acme/app"));
    }
}
