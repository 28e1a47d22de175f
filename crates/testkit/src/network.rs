//! Hosts of a cluster: one network namespace each, or loopback addresses where those are not possible.
//!
//! Namespaces need root and the programs `ip` and `nsenter`. A bridge joins them, and the test's own
//! process reaches them through it. Links between two hosts can then be cut in one direction, and all
//! packets of a host can be delayed.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Prefix of the names of our namespaces. The ID of the process that created them follows.
const PREFIX: &str = "tamma-";

/// Folder of the namespaces.
const NAMESPACES: &str = "/run/netns";

/// Hardware address that no host has. What is sent to it is lost.
const NOWHERE: &str = "02:00:00:00:00:01";

/// Most hosts of a network.
const MAX_HOSTS: usize = 100;

/// Hosts of a cluster. Dropping it removes the namespaces.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Host>,
    kind: NetworkKind,
}

#[derive(Debug)]
enum NetworkKind {
    /// Namespaces, joined by this bridge.
    Namespaces { bridge: String, has_netem: bool },
    /// Loopback addresses, with the reason.
    Loopback { reason: String },
}

/// Host of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    namespace: Option<String>,
}

impl Host {
    /// Returns this machine, with the usual loopback address.
    pub fn local() -> Self {
        Self { name: "local".to_owned(), address: Ipv4Addr::LOCALHOST, namespace: None }
    }

    /// Returns its name within the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns a command that runs a program on this host, with the ID of the started process.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(namespace) = &self.namespace else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={NAMESPACES}/{namespace}")).arg(program);
        command
    }
}

impl Network {
    /// Creates hosts with these names: in namespaces if possible, otherwise with loopback addresses.
    pub async fn create(names: &[String]) -> Result<Self> {
        ensure!(names.len() <= MAX_HOSTS, "a network has at most {MAX_HOSTS} hosts");
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::loopback(names, "only root can create network namespaces"));
        }
        remove_stale();
        match Self::with_namespaces(names).await {
            Ok(network) => Ok(network),
            Err(error) => {
                let reason = format!("cannot create network namespaces: {error:#}");
                Ok(Self::loopback(names, &reason))
            }
        }
    }

    /// Creates hosts that are loopback addresses of this machine.
    pub fn loopback(names: &[String], reason: &str) -> Self {
        let process = std::process::id();
        let host = |(number, name): (u8, &String)| Host {
            name: name.clone(),
            address: Ipv4Addr::new(127, octet(process / 250), octet(process), number),
            namespace: None,
        };
        let hosts = (2..).zip(names).map(host).collect();
        Self { hosts, kind: NetworkKind::Loopback { reason: reason.to_owned() } }
    }

    async fn with_namespaces(names: &[String]) -> Result<Self> {
        let process = std::process::id();
        let bridge = format!("tmb{process:x}");
        let address = |number| Ipv4Addr::new(10, 213, octet(process), number);
        let hosts: Vec<_> = (2..)
            .zip(names)
            .map(|(number, name)| Host {
                name: name.clone(),
                address: address(number),
                namespace: Some(format!("{PREFIX}{process}-{name}")),
            })
            .collect();
        // Dropped with what exists so far if a command fails.
        let kind = NetworkKind::Namespaces { bridge: bridge.clone(), has_netem: false };
        let mut network = Self { hosts, kind };
        let own = address(1);
        let mut batch = format!(
            "link add {bridge} type bridge\naddress add {own}/24 dev {bridge}\nlink set {bridge} up\n"
        );
        batch.extend(network.hosts.iter().enumerate().filter_map(|(number, host)| {
            let (namespace, link) = (host.namespace.as_ref()?, format!("tmv{process:x}-{number}"));
            Some(format!(
                "netns add {namespace}\nlink add {link} type veth peer name eth0 netns {namespace}\n\
                 link set {link} master {bridge} up\n"
            ))
        }));
        ip(None, &batch).await?;
        for host in &network.hosts {
            let batch = format!(
                "address add {}/24 dev eth0\nlink set eth0 up\nlink set lo up\n",
                host.address
            );
            ip(host.namespace.as_deref(), &batch).await?;
        }
        let works = match network.hosts.first() {
            Some(host) => delay_command(host, "add", 0).await.is_ok(),
            None => false,
        };
        if works && let Some(host) = network.hosts.first() {
            delay_command(host, "del", 0).await?;
        }
        network.kind = NetworkKind::Namespaces { bridge, has_netem: works };
        Ok(network)
    }

    /// Returns a host.
    pub fn host(&self, name: &str) -> Result<&Host> {
        let host = self.hosts.iter().find(|host| host.name == name);
        host.with_context(|| format!("the network has no host `{name}`"))
    }

    /// Describes the hosts for a result.
    pub fn describe(&self) -> String {
        let count = self.hosts.len();
        match &self.kind {
            NetworkKind::Namespaces { .. } => format!("{count} hosts in network namespaces"),
            NetworkKind::Loopback { reason } => {
                format!("{count} loopback addresses, no network namespaces ({reason})")
            }
        }
    }

    /// Returns why links between hosts cannot be cut; `None` if they can.
    pub fn why_no_cuts(&self) -> Option<&str> {
        match &self.kind {
            NetworkKind::Namespaces { .. } => None,
            NetworkKind::Loopback { reason } => Some(reason),
        }
    }

    /// Returns why packets cannot be delayed; `None` if they can.
    pub fn why_no_delay(&self) -> Option<&str> {
        match &self.kind {
            NetworkKind::Namespaces { has_netem: true, .. } => None,
            NetworkKind::Namespaces { .. } => Some("`tc` or the kernel has no netem"),
            NetworkKind::Loopback { reason } => Some(reason),
        }
    }

    /// Loses everything that one host sends to another, silently. The other direction still works.
    pub async fn cut(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.host(from)?, self.host(to)?);
        let Some(namespace) = &from.namespace else { bail!("the hosts have no links") };
        let neighbour =
            format!("neigh replace {} lladdr {NOWHERE} dev eth0 nud permanent\n", to.address);
        ip(Some(namespace), &neighbour).await
    }

    /// Ends [`cut`](Self::cut).
    pub async fn mend(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.host(from)?, self.host(to)?);
        let Some(namespace) = &from.namespace else { bail!("the hosts have no links") };
        ip(Some(namespace), &format!("neigh del {} dev eth0\n", to.address)).await
    }

    /// Delays everything that a host sends.
    pub async fn delay(&self, host: &str, milliseconds: u32) -> Result<()> {
        delay_command(self.host(host)?, "add", milliseconds).await
    }

    /// Ends [`delay`](Self::delay).
    pub async fn end_delay(&self, host: &str) -> Result<()> {
        delay_command(self.host(host)?, "del", 0).await
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let NetworkKind::Namespaces { bridge, .. } = &self.kind else { return };
        let namespaces = self.hosts.iter().filter_map(|host| host.namespace.as_deref());
        remove(namespaces, bridge);
    }
}

/// Removes namespaces and their bridge, as far as they exist.
#[expect(clippy::disallowed_methods, reason = "removed synchronously, when the network is dropped")]
fn remove<'a>(namespaces: impl Iterator<Item = &'a str>, bridge: &str) {
    let calls = namespaces.map(|name| ["netns", "del", name]).chain([["link", "del", bridge]]);
    for arguments in calls {
        let mut command = std::process::Command::new("ip");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(command.status());
    }
}

/// Removes the namespaces of processes that were killed.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        let Some(owner): Option<u32> = owner else { continue };
        if !std::path::Path::new(&format!("/proc/{owner}")).exists() {
            remove([name.as_str()].into_iter(), &format!("tmb{owner:x}"));
        }
    }
}

/// Runs commands of `ip`, one per line.
async fn ip(namespace: Option<&str>, batch: &str) -> Result<()> {
    let mut command = Command::new("ip");
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start `ip`")?;
    let mut input = child.stdin.take().context("`ip` has no standard input")?;
    input.write_all(batch.as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip` failed: {}", stderr.trim());
    Ok(())
}

/// Adds or removes the delay of a host.
async fn delay_command(host: &Host, verb: &str, milliseconds: u32) -> Result<()> {
    let mut command = host.command("tc");
    command.args(["qdisc", verb, "dev", "eth0", "root", "netem"]);
    if verb == "add" {
        command.args(["delay", &format!("{milliseconds}ms")]);
    }
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`tc` failed: {}", stderr.trim());
    Ok(())
}

/// Returns a number between 1 and 250 for an address.
fn octet(number: u32) -> u8 {
    u8::try_from(number % 250 + 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["one", "two"].map(str::to_owned).to_vec()
    }

    /// Sends a datagram from one host to another and returns `true` if it arrives.
    async fn arrives(from: &Host, to: &Host) -> bool {
        let receive = format!(
            "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.bind(('{}', 4711))\ns.settimeout(1)\nprint('ready', flush=True)\ns.recv(1)",
            to.address
        );
        let send = format!(
            "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.sendto(b'x', ('{}', 4711))",
            to.address
        );
        let mut receiver = to.command("python3");
        receiver.args(["-c", &receive]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut receiver = receiver.spawn().expect("python3");
        let mut ready = [0; 6];
        let output = receiver.stdout.as_mut().expect("piped");
        tokio::io::AsyncReadExt::read_exact(output, &mut ready).await.expect("ready");
        let sent = from.command("python3").args(["-c", &send]).status().await.expect("python3");
        assert!(sent.success());
        receiver.wait().await.expect("exit").success()
    }

    #[tokio::test]
    async fn a_cut_loses_packets_in_one_direction_until_it_is_mended() {
        let network = Network::create(&names()).await.expect("hosts");
        let hosts = ["one", "two"].map(|name| network.host(name).expect("host"));
        assert!(arrives(hosts[0], hosts[1]).await && arrives(hosts[1], hosts[0]).await);
        if network.why_no_cuts().is_some() {
            assert!(network.cut("one", "two").await.is_err());
            return;
        }
        network.cut("one", "two").await.expect("cut");
        assert!(!arrives(hosts[0], hosts[1]).await);
        assert!(arrives(hosts[1], hosts[0]).await);
        network.mend("one", "two").await.expect("mended");
        assert!(arrives(hosts[0], hosts[1]).await);
    }

    #[test]
    fn loopback_hosts_have_different_addresses_and_a_reason() {
        let network = Network::loopback(&names(), "a test");
        let address = |name| network.host(name).expect("host").address();
        assert_ne!(address("one"), address("two"));
        assert!(address("one").is_loopback() && address("one") != Ipv4Addr::LOCALHOST);
        assert_eq!(network.why_no_cuts(), Some("a test"));
        assert!(network.host("three").is_err());
    }
}
