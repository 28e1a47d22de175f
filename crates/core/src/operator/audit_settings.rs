//! Receivers of the audit log outside of the installation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::HostPort;

/// Port of syslog servers, if the address names none.
const SYSLOG_PORT: u16 = 514;

/// Receivers of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSettings {
    /// Syslog server: `udp://host:port`, `tcp://host:port` or `unix:///path`. Default: none.
    pub syslog: Option<String>,
    /// HTTP endpoint. Default: none.
    pub webhook: Option<AuditWebhook>,
}

/// HTTP endpoint that receives the audit log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditWebhook {
    /// URL of the endpoint.
    pub url: String,
    /// Signing secret: `whsec_` and a key in base64.
    pub secret: String,
}

impl fmt::Debug for AuditWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both can contain secrets.
        f.write_str("AuditWebhook")
    }
}

/// Address of a syslog server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogAddress {
    /// One datagram per message, which can get lost.
    Udp(String, u16),
    /// Messages with their lengths, on one connection.
    Tcp(String, u16),
    /// Path of a datagram socket on this machine.
    Unix(String),
}

impl SyslogAddress {
    /// Parses `udp://host:port`, `tcp://host:port` or `unix:///path`.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let host_port = || {
            let HostPort { host, port } = HostPort::parse(rest)?;
            Some((host, port.unwrap_or(SYSLOG_PORT)))
        };
        match scheme {
            "udp" => host_port().map(|(host, port)| Self::Udp(host, port)),
            "tcp" => host_port().map(|(host, port)| Self::Tcp(host, port)),
            "unix" => rest.starts_with('/').then(|| Self::Unix(rest.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(host, port) => write!(f, "udp://{host}:{port}"),
            Self::Tcp(host, port) => write!(f, "tcp://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix://{path}"),
        }
    }
}
