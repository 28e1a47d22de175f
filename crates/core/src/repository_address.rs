//! Address of a git repository: a path, or a URL with an allowed scheme.
//!
//! Git treats some texts as commands: options (`--upload-pack=…`), transport helpers (`ext::…`), and
//! hosts that ssh takes for options. None of them is an address.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Maximum length of an address, in bytes.
const MAX_BYTES: usize = 2_000;

/// Reason why a text is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Text is empty.
    #[error("the address is empty")]
    Empty,
    /// Text is too long.
    #[error("the address is longer than 2,000 bytes")]
    TooLong,
    /// Text has a control character.
    #[error("the address has a control character")]
    ControlCharacter,
    /// Text, its user, host or path would be read as an option of a program.
    #[error("the address, its host or its path starts with `-`")]
    Option,
    /// Text names a transport helper, which is a program.
    #[error("the address names a transport helper (`…::`)")]
    TransportHelper,
    /// Scheme is not allowed.
    #[error(
        "the scheme is not allowed; use https://, ssh:// or file://, or http:// on this machine"
    )]
    Scheme,
    /// URL has no host or no path.
    #[error("the URL has no host or no path")]
    Incomplete,
    /// Path is relative, so it would depend on the folder of the process.
    #[error("the path is not absolute")]
    RelativePath,
}

/// Address of a git repository. Printing it hides credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct RepositoryAddress(String);

impl RepositoryAddress {
    /// Returns the address as git needs it, including credentials.
    pub fn as_git_source(&self) -> &str {
        &self.0
    }
}

impl FromStr for RepositoryAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.trim().is_empty() {
            return Err(AddressError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(AddressError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(AddressError::ControlCharacter);
        }
        check_form(text)?;
        Ok(Self(text.to_owned()))
    }
}

/// Checks that a text is a path or a URL with an allowed scheme.
fn check_form(text: &str) -> Result<(), AddressError> {
    if text.starts_with('-') {
        return Err(AddressError::Option);
    }
    if text.starts_with('/') {
        return Ok(());
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        // A helper such as `ext::` can come before a URL.
        if scheme.contains(':') {
            return Err(AddressError::TransportHelper);
        }
        return match scheme.to_ascii_lowercase().as_str() {
            "file" if rest.starts_with('/') => Ok(()),
            "file" => Err(AddressError::RelativePath),
            "https" | "ssh" => check_url(rest),
            "http" if is_on_this_machine(rest) => check_url(rest),
            _ => Err(AddressError::Scheme),
        };
    }
    // `host:path` is SSH if no slash comes before the colon.
    match text.split_once(':') {
        Some((before, _)) if before.contains('/') => Err(AddressError::RelativePath),
        Some((_, rest)) if rest.starts_with(':') => Err(AddressError::TransportHelper),
        Some((place, path)) => check_place(place, path),
        None => Err(AddressError::RelativePath),
    }
}

/// Checks the part of a URL after its scheme.
fn check_url(rest: &str) -> Result<(), AddressError> {
    let (place, path) = rest.split_once('/').ok_or(AddressError::Incomplete)?;
    check_place(place, path)
}

/// Returns true if the host of a URL, after its scheme, is this machine. A URL with a user is not,
/// because programs disagree about its host.
fn is_on_this_machine(rest: &str) -> bool {
    let place = rest.split('/').next().unwrap_or_default();
    let (host, port) = match place.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let is_local = host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|it: Ipv4Addr| it.is_loopback())
        || host.parse().is_ok_and(|it: Ipv6Addr| it.is_loopback());
    is_local && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn check_place(place: &str, path: &str) -> Result<(), AddressError> {
    let (user, host) = place.rsplit_once('@').unwrap_or(("", place));
    if host.is_empty() || path.trim_matches('/').is_empty() {
        return Err(AddressError::Incomplete);
    }
    let host = host.trim_start_matches('[');
    if [user, host, path.trim_start_matches('/')].iter().any(|part| part.starts_with('-')) {
        return Err(AddressError::Option);
    }
    Ok(())
}

impl fmt::Display for RepositoryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hide_url_credentials(&self.0))
    }
}

impl fmt::Debug for RepositoryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RepositoryAddress({self})")
    }
}

/// Replaces the credentials of every URL in a text with `***`. The user of an SSH URL without a
/// password stays.
pub fn hide_url_credentials(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let is_end = |it: char| it == '/' || it.is_whitespace() || "'\"`<>".contains(it);
        let (place, tail) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        match place.rsplit_once('@') {
            Some((user, host)) if user.contains(':') || !before.ends_with("ssh://") => {
                shown.push_str("***@");
                shown.push_str(host);
            }
            _ => shown.push_str(place),
        }
        rest = tail;
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_with_allowed_schemes_are_addresses() {
        for text in [
            "/srv/git/app",
            "/srv/a b/é",
            "file:///srv/git/app",
            "https://git.example/app.git",
            "HTTPS://user:word@git.example:8443/a/b",
            "ssh://git@git.example:22/app",
            "ssh://[::1]:22/app",
            "git@git.example:team/app.git",
            "http://127.0.0.1:3000/team/app.git",
            "http://localhost/app",
            "http://[::1]:3000/app",
        ] {
            let address: RepositoryAddress = text.parse().expect(text);
            assert_eq!(address.as_git_source(), text);
        }
    }

    #[test]
    fn options_helpers_and_other_schemes_are_refused() {
        for (text, error) in [
            ("", AddressError::Empty),
            (" ", AddressError::Empty),
            ("--upload-pack=touch /tmp/x", AddressError::Option),
            ("-u", AddressError::Option),
            ("ext::sh -c touch% /tmp/x", AddressError::TransportHelper),
            ("ext::https://a/b", AddressError::TransportHelper),
            ("fd::17", AddressError::TransportHelper),
            ("git://git.example/app", AddressError::Scheme),
            ("http://git.example/app", AddressError::Scheme),
            ("http://127.0.0.1.example/app", AddressError::Scheme),
            ("http://127.0.0.1:x@git.example/app", AddressError::Scheme),
            ("http://git.example#@127.0.0.1/app", AddressError::Scheme),
            ("http://ann@127.0.0.1/app", AddressError::Scheme),
            ("http://localhost", AddressError::Incomplete),
            ("ftp://git.example/app", AddressError::Scheme),
            ("ssh://-oProxyCommand=x/app", AddressError::Option),
            ("ssh://git@-oProxyCommand=x/app", AddressError::Option),
            ("ssh://git.example/--upload-pack", AddressError::Option),
            ("-oProxyCommand=x:app", AddressError::Option),
            ("git@-oProxyCommand=x:app", AddressError::Option),
            ("git.example:-x", AddressError::Option),
            ("https:///app", AddressError::Incomplete),
            ("https://git.example", AddressError::Incomplete),
            ("file://host/app", AddressError::RelativePath),
            ("../app", AddressError::RelativePath),
            ("app", AddressError::RelativePath),
            ("./a:b", AddressError::RelativePath),
            ("/a\nb", AddressError::ControlCharacter),
        ] {
            assert_eq!(text.parse::<RepositoryAddress>(), Err(error), "{text}");
        }
        let long = format!("/{}", "x".repeat(MAX_BYTES));
        assert_eq!(long.parse::<RepositoryAddress>(), Err(AddressError::TooLong));
    }

    #[test]
    fn credentials_are_hidden() {
        for (text, shown) in [
            ("https://ann:s3cret@git.example/a", "https://***@git.example/a"),
            ("https://t0ken@git.example/a", "https://***@git.example/a"),
            ("ssh://git@git.example/a", "ssh://git@git.example/a"),
            ("ssh://git:s3cret@git.example/a", "ssh://***@git.example/a"),
            (
                "fatal: 'https://a:b@x/y': no; https://c:d@e",
                "fatal: 'https://***@x/y': no; https://***@e",
            ),
            ("https://a:p@ss@host/x", "https://***@host/x"),
            ("no URL, ann@example.org", "no URL, ann@example.org"),
        ] {
            assert_eq!(hide_url_credentials(text), shown);
        }
        let address: RepositoryAddress = "https://a:b@x/y".parse().expect("an address");
        assert_eq!(
            format!("{address} {address:?}"),
            "https://***@x/y RepositoryAddress(https://***@x/y)"
        );
    }
}
