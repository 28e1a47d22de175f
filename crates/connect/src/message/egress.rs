//! Hosts that alerts can reach: public ones over TLS, and those that the operator lists.
//!
//! A project chooses the URLs of its channels, and the server could reach more than the project can.
//! Names are checked after they are resolved, with the addresses that are then connected to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tamma_core::operator::{OperatorConfig, is_public_address};

use super::Error;

/// Variables with which the operator sets the webhook and the proxies of this process.
const OWN_VARIABLES: [&str; 7] = [
    "TAMMA_ALERT_WEBHOOK_URL",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

/// Refusal of a host whose addresses are not public.
#[derive(Debug, thiserror::Error)]
#[error("the host is not a public one; the operator can list it in `alert_hosts`")]
pub(super) struct PrivateHost;

/// Hosts that alerts can reach. Clones share the list.
#[derive(Debug, Clone)]
pub(super) struct EgressPolicy {
    /// Hosts that can be private or without TLS, in lower case.
    allowed: Arc<BTreeSet<String>>,
}

impl EgressPolicy {
    /// Allows the hosts that the operator lists, and those of the operator's own webhook and
    /// proxies. Behind a proxy, names are resolved there, so that it has to limit them.
    pub(super) fn new(environment: &BTreeMap<String, String>, operator: &OperatorConfig) -> Self {
        let own = OWN_VARIABLES.iter().filter_map(|name| environment.get(*name));
        let own = own.filter_map(|url| reqwest::Url::parse(url).ok());
        let own = own.map(|url| host_of(&url).to_ascii_lowercase());
        let own = own.filter(|host| !host.is_empty());
        let listed = operator.alert_hosts.iter().map(|host| host.to_ascii_lowercase());
        Self { allowed: Arc::new(listed.chain(own).collect()) }
    }

    fn allows(&self, host: &str) -> bool {
        self.allowed.contains(&host.to_ascii_lowercase())
    }

    /// Checks the scheme of a URL, and a host that is an address. Names are checked when they are
    /// resolved.
    pub(super) fn check_url(&self, url: &str) -> Result<(), Error> {
        // Reported by the client, with the fix.
        let Ok(url) = reqwest::Url::parse(url) else { return Ok(()) };
        let host = host_of(&url);
        if self.allows(host) {
            return Ok(());
        }
        if url.scheme() != "https" {
            let reason = "alerts are only sent over https; the operator can list the host in \
                          `alert_hosts`";
            return Err(Error::Rejected(reason.to_owned()));
        }
        match host.parse::<IpAddr>() {
            Ok(address) if !is_public_address(address) => {
                Err(Error::Rejected(PrivateHost.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Checks all addresses of a mail server. Its client resolves the name again.
    pub(super) async fn check_mail_server(&self, smtp: &str) -> Result<(), Error> {
        // Reported by the client, with the fix.
        let Ok(url) = reqwest::Url::parse(smtp) else { return Ok(()) };
        let host = host_of(&url);
        if host.is_empty() || self.allows(host) {
            return Ok(());
        }
        let unknown = |_| Error::Unreachable("cannot resolve the mail server's name".to_owned());
        let mut addresses = tokio::net::lookup_host((host, 0)).await.map_err(unknown)?;
        if addresses.all(|address| is_public_address(address.ip())) {
            Ok(())
        } else {
            Err(Error::Rejected(PrivateHost.to_string()))
        }
    }

    /// Returns the addresses of a host that can be connected to.
    async fn usable_addresses(&self, host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
        let is_allowed = self.allows(host);
        let found = tokio::net::lookup_host((host, 0)).await?;
        let usable = found.filter(|it| is_allowed || is_public_address(it.ip()));
        let usable: Vec<SocketAddr> = usable.collect();
        if usable.is_empty() { Err(PrivateHost.into()) } else { Ok(usable) }
    }
}

/// Error of the HTTP client's resolver.
type ResolveError = Box<dyn std::error::Error + Send + Sync>;

impl Resolve for EgressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.clone();
        Box::pin(async move {
            let usable = policy.usable_addresses(name.as_str()).await;
            usable.map(|usable| Box::new(usable.into_iter()) as Addrs)
        })
    }
}

/// Returns the host of a URL, without the brackets of an IPv6 address.
fn host_of(url: &reqwest::Url) -> &str {
    let host = url.host_str().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns `true` if an error was caused by a refused host.
pub(super) fn is_private_host(error: &reqwest::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<PrivateHost>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(hosts: &[&str], webhook: Option<&str>) -> EgressPolicy {
        let alert_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let operator = OperatorConfig { alert_hosts, ..OperatorConfig::default() };
        let webhook = webhook.map(|url| ("TAMMA_ALERT_WEBHOOK_URL".to_owned(), url.to_owned()));
        EgressPolicy::new(&webhook.into_iter().collect(), &operator)
    }

    #[test]
    fn addresses_in_urls_must_be_public_in_every_spelling() {
        let none = policy(&[], None);
        for url in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://0177.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:169.254.169.254]/",
            "https://10.0.0.1:8443/",
            "http://hooks.example/",
            "ftp://hooks.example/",
        ] {
            assert!(none.check_url(url).is_err(), "{url}");
        }
        for url in ["https://hooks.example/x", "https://1.1.1.1/"] {
            assert_eq!(none.check_url(url), Ok(()), "{url}");
        }
        let some = policy(&["127.0.0.1", "Hooks.intra"], Some("http://10.0.0.1/hook"));
        for url in ["http://127.0.0.1:1/", "http://hooks.INTRA/", "http://10.0.0.1/"] {
            assert_eq!(some.check_url(url), Ok(()), "{url}");
        }
        assert!(some.check_url("http://10.0.0.2/").is_err());
    }
}
