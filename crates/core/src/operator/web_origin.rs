//! Origin of a URL: scheme, host and port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Scheme, host and port of a plain URL.
///
/// Parsed strictly, so that no HTTP client can read another host from the same text: no account, no
/// backslash, no space, no escapes and no other alphabet in the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin {
    secure: bool,
    host: String,
    port: Option<u16>,
}

impl WebOrigin {
    /// Returns the origin of an `http` or `https` URL, or `None` if the URL is not plain.
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let is_plain = |letter: char| letter.is_ascii_graphic() && letter != '\\';
        if !rest.chars().all(is_plain) {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = &rest[..end];
        let (host, port) = match authority.rfind(':') {
            // The colons of an IPv6 address are inside its brackets.
            Some(at) if !authority[at..].contains(']') => {
                (&authority[..at], Some(authority[at + 1..].parse().ok()?))
            }
            _ => (authority, None),
        };
        let host = match host.strip_prefix('[') {
            Some(address) => address.strip_suffix(']').filter(|it| is_ipv6(it))?,
            None => Some(host).filter(|host| is_name_or_ipv4(host))?,
        };
        Some(Self { secure, host: host.to_ascii_lowercase(), port })
    }

    /// Returns `true` for `https`.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Returns the host in lower case; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns `true` if the host is this machine, or an address that is not public. Other names have
    /// to be resolved first.
    pub fn is_private(&self) -> bool {
        let name = self.host.strip_suffix('.').unwrap_or(&self.host);
        let is_this_machine = name == "localhost" || name.ends_with(".localhost");
        is_this_machine || self.host.parse().is_ok_and(|address| !is_public_address(address))
    }

    /// Returns `true` if `other` has the same scheme and host. Without a port, every port of `other`
    /// is covered.
    pub fn covers(&self, other: &Self) -> bool {
        let default = |origin: &Self| if origin.secure { 443 } else { 80 };
        let port = |origin: &Self| origin.port.unwrap_or_else(|| default(origin));
        self.secure == other.secure
            && self.host == other.host
            && (self.port.is_none() || port(self) == port(other))
    }
}

/// Returns `true` for a host name or an IP address, without a port.
pub(super) fn is_host(text: &str) -> bool {
    is_name_or_ipv4(text) || is_ipv6(text)
}

fn is_name_or_ipv4(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        !label.is_empty() && label.chars().all(is_allowed)
    };
    let labels = text.strip_suffix('.').unwrap_or(text);
    let last = labels.rsplit('.').next().unwrap_or_default();
    // A last label that starts with a digit makes a client read the host as an IPv4 address, also in
    // its short and hexadecimal forms.
    let is_number = last.starts_with(|first: char| first.is_ascii_digit());
    text.len() <= 253
        && labels.split('.').all(is_label)
        && (!is_number || text.parse::<Ipv4Addr>().is_ok())
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

/// Returns `true` for an address that everyone on the internet reaches as the same machine: not
/// loopback, link-local, private, reserved or multicast, in whatever form it is embedded.
pub fn is_public_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_ipv4(address),
        IpAddr::V6(address) => {
            if let Some(embedded) = embedded_ipv4(address) {
                return is_public_ipv4(embedded);
            }
            let [first, second, ..] = address.segments();
            let is_global_unicast = first & 0xe000 == 0x2000;
            // Protocol assignments such as Teredo, and documentation.
            let is_assigned = first == 0x2001 && (second < 0x0200 || second == 0x0db8);
            let is_documentation = first == 0x3fff && second < 0x1000;
            is_global_unicast && !is_assigned && !is_documentation
        }
    }
}

fn is_public_ipv4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && b & 0xc0 == 64;
    let is_protocol = a == 192 && b == 0 && c == 0;
    let is_relay = a == 192 && b == 88 && c == 99;
    let is_benchmark = a == 198 && b & 0xfe == 18;
    !(a == 0
        || a >= 224
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_protocol
        || is_relay
        || is_benchmark)
}

/// Returns the IPv4 address that an IPv6 address leads to: mapped, translated (NAT64) or 6to4.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(from(high, low))
        }
        [0x2002, high, low, ..] => Some(from(high, low)),
        _ => None,
    }
}
