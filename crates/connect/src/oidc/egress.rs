//! Hosts of identity providers: public ones over TLS, and those that the operator lists.
//!
//! The operator names the issuer, and the issuer's own document names the other addresses. None of
//! them leads into the private network unless the operator says so.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tamma_core::operator::{WebOrigin, is_public_address};

/// Refusal of a host whose addresses are not public.
#[derive(Debug, thiserror::Error)]
#[error("the host is not a public one; the operator can list it in `identity.hosts`")]
struct PrivateProvider;

/// Hosts that the client of a provider can reach. Clones share the list.
#[derive(Debug, Clone)]
pub(super) struct ProviderHosts(Arc<BTreeSet<String>>);

impl ProviderHosts {
    pub(super) fn new(hosts: &[String]) -> Self {
        Self(Arc::new(hosts.iter().map(|host| host.to_ascii_lowercase()).collect()))
    }

    fn lists(&self, host: &str) -> bool {
        self.0.contains(&host.to_ascii_lowercase())
    }

    /// Returns `true` if a URL can be requested. Names are checked again when they are resolved.
    pub(super) fn allows_url(&self, url: &str) -> bool {
        let Some(origin) = WebOrigin::parse(url) else { return false };
        if self.lists(origin.host()) {
            return true;
        }
        origin.is_secure() && !origin.is_private()
    }
}

/// Error of the HTTP client's resolver.
type ResolveError = Box<dyn std::error::Error + Send + Sync>;

impl ProviderHosts {
    /// Returns the addresses of a host that can be connected to.
    async fn usable_addresses(&self, host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
        let is_listed = self.lists(host);
        let found = tokio::net::lookup_host((host, 0)).await?;
        let usable = found.filter(|it| is_listed || is_public_address(it.ip()));
        let usable: Vec<SocketAddr> = usable.collect();
        if usable.is_empty() { Err(PrivateProvider.into()) } else { Ok(usable) }
    }
}

impl Resolve for ProviderHosts {
    fn resolve(&self, name: Name) -> Resolving {
        let hosts = self.clone();
        Box::pin(async move {
            let usable = hosts.usable_addresses(name.as_str()).await;
            usable.map(|usable| Box::new(usable.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_hosts_and_plain_http_are_refused_unless_they_are_listed() {
        let none = ProviderHosts::new(&[]);
        for url in [
            "http://id.example/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://[::1]/",
            "https://169.254.169.254/latest",
            "https://10.0.0.1/",
            "https://0x7f000001/",
            "https://a@id.example/",
            "file:///etc/passwd",
            "",
        ] {
            assert!(!none.allows_url(url), "{url}");
        }
        assert!(none.allows_url("https://id.example/token"));
        let some = ProviderHosts::new(&["127.0.0.1".to_owned(), "ID.intra".to_owned()]);
        assert!(some.allows_url("http://127.0.0.1:4000/token"));
        assert!(some.allows_url("http://id.intra/token"));
        assert!(!some.allows_url("http://127.0.0.2/"));
    }
}
