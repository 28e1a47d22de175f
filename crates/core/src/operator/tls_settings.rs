//! Certificate of the API and the pages: two files, or one that the server gets by itself (ACME).

use serde::{Deserialize, Serialize};

use super::{OperatorConfigError, WebOrigin};

/// Source of the server's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TlsKeys", into = "TlsKeys")]
pub enum TlsSettings {
    /// Files that somebody else renews.
    Files(TlsFiles),
    /// Authority that the server gets its certificate from.
    Acme(AcmeSettings),
}

/// Certificate of the server. Both files are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Absolute path of the certificate and its intermediate ones, in PEM.
    pub certificate: String,
    /// Absolute path of the private key, in PEM.
    pub key: String,
}

/// Certificate authority that speaks ACME (RFC 8555). The certificate is for the host of the server's URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcmeSettings {
    /// URL of the authority's directory, such as `https://acme-v02.api.letsencrypt.org/directory`.
    pub directory: String,
    /// Email address that the authority can write to. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// Absolute path of the certificate authority of the directory itself, in PEM, if it is private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Absolute path of the folder for the account, the key and the certificate. Default: `acme` in the data
    /// folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
}

/// Keys of `tls` in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsKeys {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acme: Option<AcmeSettings>,
}

impl TryFrom<TlsKeys> for TlsSettings {
    type Error = &'static str;

    fn try_from(keys: TlsKeys) -> Result<Self, Self::Error> {
        match (keys.certificate, keys.key, keys.acme) {
            (Some(certificate), Some(key), None) => Ok(Self::Files(TlsFiles { certificate, key })),
            (None, None, Some(acme)) => Ok(Self::Acme(acme)),
            _ => Err("either `certificate` and `key`, or `acme`"),
        }
    }
}

impl From<TlsSettings> for TlsKeys {
    fn from(settings: TlsSettings) -> Self {
        match settings {
            TlsSettings::Files(TlsFiles { certificate, key }) => {
                Self { certificate: Some(certificate), key: Some(key), acme: None }
            }
            TlsSettings::Acme(acme) => Self { certificate: None, key: None, acme: Some(acme) },
        }
    }
}

impl TlsSettings {
    /// Checks paths and addresses.
    pub(super) fn check(&self) -> Result<(), OperatorConfigError> {
        let (key, paths) = match self {
            Self::Files(files) => ("tls", [Some(&files.certificate), Some(&files.key)]),
            Self::Acme(acme) => {
                if !WebOrigin::parse(&acme.directory).is_some_and(|origin| origin.is_secure()) {
                    return Err(OperatorConfigError::AcmeDirectory(acme.directory.clone()));
                }
                if let Some(contact) = acme.contact.as_ref().filter(|it| !is_email_address(it)) {
                    return Err(OperatorConfigError::AcmeContact(contact.clone()));
                }
                ("tls.acme", [acme.ca.as_ref(), acme.cache.as_ref()])
            }
        };
        let is_below_root =
            |path: &str| path.starts_with('/') && !path.trim_matches('/').is_empty();
        match paths.into_iter().flatten().find(|path| !is_below_root(path)) {
            Some(path) => Err(OperatorConfigError::RelativePath { key, path: path.clone() }),
            None => Ok(()),
        }
    }
}

/// Returns `true` for an address that fits in a `mailto:` URL as it is.
fn is_email_address(text: &str) -> bool {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '+');
    text.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty() && !host.is_empty() && name.chars().chain(host.chars()).all(is_plain)
    })
}

#[cfg(test)]
mod tests {
    use super::super::OperatorConfig;
    use super::*;

    const DIRECTORY: &str = "https://acme.example.com/directory";

    fn parse(tls: &str) -> Result<TlsSettings, OperatorConfigError> {
        OperatorConfig::parse(&format!("tls: {tls}")).map(|config| config.tls.expect("tls"))
    }

    #[test]
    fn a_certificate_is_two_absolute_paths_or_comes_from_an_authority() {
        let files = parse("{certificate: /etc/a.pem, key: /etc/b.pem}").expect("valid");
        let expected = TlsFiles { certificate: "/etc/a.pem".into(), key: "/etc/b.pem".into() };
        assert_eq!(files, TlsSettings::Files(expected));
        let error = parse("{certificate: /etc/a.pem, key: b.pem}").expect_err("relative");
        let expected = OperatorConfigError::RelativePath { key: "tls", path: "b.pem".to_owned() };
        assert_eq!(error, expected);

        let acme = parse(&format!("{{acme: {{directory: '{DIRECTORY}'}}}}")).expect("valid");
        let directory = DIRECTORY.to_owned();
        let expected = AcmeSettings { directory, contact: None, ca: None, cache: None };
        assert_eq!(acme, TlsSettings::Acme(expected));
        let all = "contact: ops@example.com, ca: /etc/ca.pem, cache: /srv/acme";
        let all = parse(&format!("{{acme: {{directory: '{DIRECTORY}', {all}}}}}")).expect("valid");
        let text = serde_json::to_string(&all).expect("serialised");
        assert_eq!(serde_json::from_str::<TlsSettings>(&text).expect("read"), all);

        for neither in [
            "{}",
            "{certificate: /etc/a.pem}",
            "{acme: {}}",
            "{acme: {directory: 'https://a.example', account: 1}}",
            "{certificate: /etc/a.pem, key: /etc/b.pem, acme: {directory: 'https://a.example'}}",
        ] {
            let error = parse(neither).expect_err(neither);
            assert!(matches!(error, OperatorConfigError::Syntax { .. }), "{neither}: {error}");
        }
    }

    #[test]
    fn an_authority_has_an_https_url_a_contact_an_email_address_and_files_absolute_paths() {
        for directory in ["http://acme.example.com/directory", "acme.example.com", "https://a@b/"] {
            let error = parse(&format!("{{acme: {{directory: '{directory}'}}}}"));
            let expected = OperatorConfigError::AcmeDirectory(directory.to_owned());
            assert_eq!(error.expect_err(directory), expected);
        }
        for contact in ["mailto:ops@example.com", "ops", "@example.com", "a@b?cc=c@d", "a@b,c@d"] {
            let error =
                parse(&format!("{{acme: {{directory: '{DIRECTORY}', contact: '{contact}'}}}}"));
            let expected = OperatorConfigError::AcmeContact(contact.to_owned());
            assert_eq!(error.expect_err(contact), expected);
        }
        for (name, path) in [("ca", "ca.pem"), ("cache", "acme"), ("cache", "/")] {
            let error = parse(&format!("{{acme: {{directory: '{DIRECTORY}', {name}: {path}}}}}"));
            let (key, path) = ("tls.acme", path.to_owned());
            let expected = OperatorConfigError::RelativePath { key, path };
            assert_eq!(error.expect_err(name), expected);
        }
    }
}
