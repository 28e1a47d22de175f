//! Settings of sandboxes: hosts that they can reach, and resources that they can use.

use serde::{Deserialize, Serialize};

use super::web_origin::is_host;

/// Settings for the sandboxes of agents, gates, setups and commands of pipelines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxSettings {
    /// Hosts that sandboxes with network access can reach although their addresses are not public,
    /// as `host` or `host:port`. An entry with a port is also reachable at that port of
    /// `127.0.0.1` inside the sandbox.
    pub hosts: Vec<String>,
    /// Resources that one run can use.
    pub limits: ResourceLimits,
}

/// Resources that one run can use, with all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLimits {
    /// Memory of all processes together, in MiB.
    pub memory_mb: u64,
    /// Number of processes and threads.
    pub processes: u64,
    /// CPU time of all processes together, in seconds.
    pub cpu_seconds: u64,
    /// Size of one file, in MiB.
    pub file_mb: u64,
    /// Open files of one process.
    pub open_files: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            memory_mb: 8 * 1024,
            processes: 4096,
            cpu_seconds: 24 * 60 * 60,
            file_mb: 10 * 1024,
            open_files: 65_536,
        }
    }
}

impl ResourceLimits {
    /// Returns the name of a limit that is too low for any program.
    pub(super) fn too_low(&self) -> Option<&'static str> {
        [
            ("memory_mb", self.memory_mb, 64),
            ("processes", self.processes, 16),
            ("cpu_seconds", self.cpu_seconds, 1),
            ("file_mb", self.file_mb, 1),
            ("open_files", self.open_files, 64),
        ]
        .into_iter()
        .find(|(_, value, least)| value < least)
        .map(|(name, ..)| name)
    }
}

/// Host with an optional port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// Name or IP address, in lower case. An IPv6 address has no brackets.
    pub host: String,
    /// Port; `None` if the text has none.
    pub port: Option<u16>,
}

impl HostPort {
    /// Parses `host`, `host:port`, `[address]` or `[address]:port`.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            (address, port)
        } else if is_host(text) {
            (text, None)
        } else {
            let (host, port) = text.rsplit_once(':')?;
            (host, Some(port))
        };
        let is_digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let port = match port {
            Some(port) if is_digits(port) => Some(port.parse::<u16>().ok().filter(|it| *it > 0)?),
            Some(_) => return None,
            None => None,
        };
        is_host(host).then(|| Self { host: host.to_ascii_lowercase(), port })
    }

    /// Returns `true` if this entry of a list covers a host and a port.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        self.host.eq_ignore_ascii_case(host) && self.port.is_none_or(|own| own == port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_an_optional_port() {
        let parsed = |text: &str| HostPort::parse(text).map(|it| (it.host, it.port));
        let expected = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(parsed("Packages.example"), expected("packages.example", None));
        assert_eq!(parsed("127.0.0.1:5432"), expected("127.0.0.1", Some(5432)));
        assert_eq!(parsed("[::1]:5432"), expected("::1", Some(5432)));
        assert_eq!(parsed("::1"), expected("::1", None));
        for text in ["", "a:0", "a:+1", "a:x", "a:", "a b", "http://a", "[::1]5", "0x7f.1:80"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn entry_without_a_port_covers_every_port() {
        let entry = HostPort::parse("db.example").expect("valid");
        assert!(entry.covers("DB.example", 1) && !entry.covers("db.example.org", 1));
        let entry = HostPort::parse("db.example:5432").expect("valid");
        assert!(entry.covers("db.example", 5432) && !entry.covers("db.example", 5433));
    }
}
