//! Egress proxy: network access of sandboxes, one per worker.
//!
//! A sandbox has a network of its own, without a connection to any other. Signed-in agents, setups
//! and gates with network access get a port on their own loopback, behind which this HTTP proxy
//! connects them to public hosts and to those that the operator lists. It resolves names itself and
//! connects to the addresses that it has checked. So neither the services on this machine's
//! loopback nor those of its local networks are reachable.
//!
//! Entries of the operator that have a port are also forwarded as plain TCP, because databases do
//! not use HTTP proxies.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tamma_core::operator::{HostPort, is_public_address};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::private_socket;
use crate::sandbox::{Forward, Network};

/// Name of the proxy's socket in its folder.
const PROXY_SOCKET: &str = "egress.sock";

/// First port that a program without privileges can listen on.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Maximum number of connections at the same time.
const MAX_CONNECTIONS: usize = 1024;

/// Maximum size of the first line and the headers of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Time limit for the first line and the headers of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for resolving a name, and for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Headers for a proxy, which are not passed on.
const PROXY_HEADERS: [&str; 4] =
    ["connection", "keep-alive", "proxy-authorization", "proxy-connection"];

/// Error from opening the proxy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Port could not be opened.
    #[error("cannot open a local port for the egress proxy")]
    Port(#[source] io::Error),
    /// Socket could not be opened.
    #[error("cannot open the socket `{}` for the egress proxy", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Underlying error.
        #[source]
        source: io::Error,
    },
}

/// Refusal of a connection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum EgressRefusal {
    #[error(
        "the sandbox cannot reach `{host}:{port}`: the address is not public; the operator can \
         allow it with `sandbox.hosts`"
    )]
    NotPublic { host: String, port: u16 },
    #[error("the sandbox cannot reach `{host}:{port}`: {reason}")]
    Unreachable { host: String, port: u16, reason: String },
}

impl EgressRefusal {
    fn status(&self) -> &'static str {
        match self {
            Self::NotPublic { .. } => "403 Forbidden",
            Self::Unreachable { .. } => "502 Bad Gateway",
        }
    }
}

/// Egress proxy, shared by all sandboxes of a worker. It closes with its last clone.
#[derive(Debug, Clone)]
pub struct EgressProxy(Arc<ProxyServer>);

#[derive(Debug)]
struct ProxyServer {
    proxy: Forward,
    services: Vec<Forward>,
    listeners: Vec<JoinHandle<()>>,
}

impl EgressProxy {
    /// Listens on a free local port and on sockets in a folder that no agent can access.
    ///
    /// `hosts` are the operator's, as `host` or `host:port`. `upstream` is the URL of the HTTP proxy
    /// that this machine uses, if it uses one. That proxy resolves names again, so it has to refuse
    /// private addresses too.
    pub async fn open(
        folder: &Path,
        hosts: &[String],
        upstream: Option<&str>,
    ) -> Result<Self, Error> {
        let hosts: Vec<HostPort> = hosts.iter().filter_map(|host| HostPort::parse(host)).collect();
        let upstream = upstream.filter(|url| !url.is_empty()).map(UpstreamProxy::parse);
        let rules = Arc::new(EgressRules { hosts: hosts.clone(), upstream });
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections =
            |service| SandboxConnections { rules: rules.clone(), service, slots: slots.clone() };
        let tcp = TcpListener::bind(("127.0.0.1", 0)).await.map_err(Error::Port)?;
        let port = tcp.local_addr().map_err(Error::Port)?.port();
        let proxy = Forward { port, socket: folder.join(PROXY_SOCKET) };
        let socket = open_socket(&proxy.socket)?;
        // From here on, dropping the server closes what is open.
        let mut server = ProxyServer {
            listeners: vec![
                tokio::spawn(connections(None).serve_tcp(tcp)),
                tokio::spawn(connections(None).serve_socket(socket)),
            ],
            proxy,
            services: Vec::new(),
        };
        for HostPort { host, port } in hosts {
            let Some(port) = port.filter(|port| *port >= FIRST_UNPRIVILEGED_PORT) else { continue };
            if server.services.iter().any(|service| service.port == port) {
                continue;
            }
            let path = folder.join(format!("egress-{port}.sock"));
            let socket = open_socket(&path)?;
            let serving = connections(Some((host, port))).serve_socket(socket);
            server.listeners.push(tokio::spawn(serving));
            server.services.push(Forward { port, socket: path });
        }
        Ok(Self(Arc::new(server)))
    }

    /// Returns the network of a sandbox that can use the proxy, and the gateway if there is one.
    pub fn network(&self, gateway: Option<Forward>) -> Network {
        let (proxy, services) = (self.0.proxy.clone(), self.0.services.clone());
        Network::Egress { gateway, proxy, services }
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
        for forward in self.services.iter().chain([&self.proxy]) {
            // The socket may already be removed with its directory.
            let _ = std::fs::remove_file(&forward.socket);
        }
    }
}

fn open_socket(path: &Path) -> Result<UnixListener, Error> {
    private_socket::listen(path).map_err(|source| Error::Socket { path: path.to_owned(), source })
}

/// Connections from sandboxes to one listener.
struct SandboxConnections {
    rules: Arc<EgressRules>,
    /// Host and port that all connections go to; `None` if each one asks for its own.
    service: Option<(String, u16)>,
    slots: Arc<Semaphore>,
}

impl SandboxConnections {
    async fn serve_tcp(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.start(stream).await,
                Err(error) => pause_accepting(&error).await,
            }
        }
    }

    async fn serve_socket(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.start(stream).await,
                Err(error) => pause_accepting(&error).await,
            }
        }
    }

    /// Handles a connection in the background, once there are few enough of them.
    async fn start<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(slot) = self.slots.clone().acquire_owned().await else { return };
        let (rules, service) = (self.rules.clone(), self.service.clone());
        tokio::spawn(async move {
            let ended = match service {
                Some((host, port)) => relay(stream, &host, port).await,
                None => rules.handle(stream).await,
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "sandbox connection failed");
            }
            drop(slot);
        });
    }
}

async fn pause_accepting(error: &io::Error) {
    tracing::warn!(%error, "failed to accept a sandbox connection; retrying");
    sleep(ACCEPT_PAUSE).await;
}

/// Connects a sandbox to a service that the operator lists.
async fn relay<S>(mut client: S, host: &str, port: u16) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
    let mut remote = connecting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    copy_bidirectional(&mut client, &mut remote).await.map(drop)
}

/// Hosts that sandboxes can reach.
#[derive(Debug)]
struct EgressRules {
    /// Hosts of the operator, which need not be public.
    hosts: Vec<HostPort>,
    upstream: Option<UpstreamProxy>,
}

impl EgressRules {
    /// Serves one proxy request.
    async fn handle<S>(&self, mut client: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let head = timeout(HEAD_TIMEOUT, read_head(&mut client)).await;
        let head = head.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let Some(request) = ProxyRequest::parse(&head) else {
            let text = "unsupported request: this proxy accepts CONNECT and absolute http URLs";
            return answer(&mut client, "400 Bad Request", text).await;
        };
        let mut remote = match self.connect(&request.host, request.port).await {
            Ok(remote) => remote,
            Err(refusal) => {
                return answer(&mut client, refusal.status(), &refusal.to_string()).await;
            }
        };
        match request.forwarded_head {
            Some(head) => remote.write_all(head.as_bytes()).await?,
            None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        }
        copy_bidirectional(&mut client, &mut remote).await.map(drop)
    }

    /// Connects to a host, if it is public or listed.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, EgressRefusal> {
        let unreachable = |reason: String| {
            let host = host.to_owned();
            EgressRefusal::Unreachable { host, port, reason }
        };
        let is_listed = self.hosts.iter().any(|entry| entry.covers(host, port));
        let is_allowed = |address: &SocketAddr| is_listed || is_public_address(address.ip());
        let found = match timeout(CONNECT_TIMEOUT, lookup_host((host, port))).await {
            Ok(Ok(found)) => Ok(found.collect::<Vec<_>>()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("resolving the name timed out".to_owned()),
        };
        let upstream = self.upstream.as_ref().filter(|_| !is_listed);
        let addresses = match (found, upstream) {
            // Names that only the other proxy can resolve are its decision.
            (Err(_), Some(upstream)) => {
                return upstream.connect(host, port).await.map_err(unreachable);
            }
            (Err(reason), None) => return Err(unreachable(reason)),
            (Ok(found), _) => found,
        };
        let allowed: Vec<SocketAddr> = addresses.iter().copied().filter(is_allowed).collect();
        if allowed.is_empty() || (upstream.is_some() && allowed.len() < addresses.len()) {
            return Err(EgressRefusal::NotPublic { host: host.to_owned(), port });
        }
        if let Some(upstream) = upstream {
            return upstream.connect(host, port).await.map_err(unreachable);
        }
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(allowed.as_slice())).await {
            Ok(connected) => connected.map_err(|error| unreachable(error.to_string())),
            Err(_) => Err(unreachable("the connection timed out".to_owned())),
        }
    }
}

/// HTTP proxy that this machine uses.
#[derive(Debug)]
struct UpstreamProxy {
    /// Host and port, or the reason if it cannot be used.
    address: Result<(String, u16), &'static str>,
}

impl UpstreamProxy {
    fn parse(url: &str) -> Self {
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let address = match reqwest::Url::parse(&url) {
            Ok(url) if url.scheme() != "http" => Err("the worker's proxy is not an `http` URL"),
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                Err("the worker's proxy needs a password, which sandboxes do not support")
            }
            Ok(url) => match (url.host_str(), url.port_or_known_default()) {
                (Some(host), Some(port)) => Ok((host.trim_matches(['[', ']']).to_owned(), port)),
                _ => Err("the URL of the worker's proxy has no host"),
            },
            Err(_) => Err("the URL of the worker's proxy is invalid"),
        };
        Self { address }
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let (proxy, proxy_port) = self.address.as_ref().map_err(|reason| (*reason).to_owned())?;
        let connecting = async {
            let mut stream = TcpStream::connect((proxy.as_str(), *proxy_port)).await?;
            let target = if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            };
            let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let head = read_head(&mut stream).await?;
            Ok::<_, io::Error>((stream, head))
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok((stream, head))) => match head.split_ascii_whitespace().nth(1) {
                Some("200") => Ok(stream),
                status => Err(format!(
                    "the worker's proxy answered with status {}",
                    status.unwrap_or("unknown")
                )),
            },
            Ok(Err(error)) => Err(format!("the worker's proxy failed: {error}")),
            Err(_) => Err("the worker's proxy timed out".to_owned()),
        }
    }
}

/// Request to the proxy.
#[derive(Debug, PartialEq, Eq)]
struct ProxyRequest {
    host: String,
    port: u16,
    /// First line and headers for the server; `None` for a tunnel.
    forwarded_head: Option<String>,
}

impl ProxyRequest {
    /// Parses the first line and the headers of a request: `CONNECT`, or any method with an `http`
    /// URL.
    fn parse(head: &str) -> Option<Self> {
        let mut lines = head.strip_suffix("\r\n\r\n")?.split("\r\n");
        let mut parts = lines.next()?.split(' ');
        let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        if method == "CONNECT" {
            let HostPort { host, port } = HostPort::parse(target)?;
            return Some(Self { host, port: port?, forwarded_head: None });
        }
        let rest = target.strip_prefix("http://")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let HostPort { host, port } = HostPort::parse(authority)?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut forwarded = vec![format!("{method} {slash}{path} {version}")];
        let is_passed_on = |line: &&str| {
            let name = line.split(':').next().unwrap_or_default().trim();
            !PROXY_HEADERS.iter().any(|header| name.eq_ignore_ascii_case(header))
        };
        forwarded.extend(lines.filter(is_passed_on).map(str::to_owned));
        // The next request of the sandbox may be for another host.
        forwarded.push("Connection: close\r\n\r\n".to_owned());
        let (port, head) = (port.unwrap_or(80), forwarded.join("\r\n"));
        Some(Self { host, port, forwarded_head: Some(head) })
    }
}

/// Reads up to the empty line, and nothing after it.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// Answers a request that is not forwarded, with the reason as its text.
async fn answer(
    client: &mut (impl AsyncWrite + Unpin),
    status: &str,
    text: &str,
) -> io::Result<()> {
    let length = text.len() + 1;
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    );
    client.write_all(response.as_bytes()).await?;
    client.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    /// Sends a request to the proxy and returns everything that comes back.
    async fn ask(proxy: &EgressProxy, request: &str) -> String {
        let mut stream = UnixStream::connect(&proxy.0.proxy.socket).await.expect("connected");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("shut down");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    /// Listens on loopback, and answers each connection with a text, after a request if it is an
    /// HTTP proxy.
    async fn service(text: &'static str, is_proxy: bool) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if is_proxy {
                    let _ = read_head(&mut stream).await;
                }
                let _ = stream.write_all(text.as_bytes()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn loopback_is_refused_in_every_spelling() {
        let folder = tempfile::tempdir().expect("folder");
        let proxy = EgressProxy::open(folder.path(), &[], None).await.expect("open");
        let port = service("REACHED", false).await;
        let hosts =
            ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.9.9.9"];
        for host in hosts.into_iter().chain(["169.254.169.254", "10.0.0.1", "[fd00::1]"]) {
            let answer = ask(&proxy, &format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{host}: {answer}");
            assert!(
                answer.ends_with("the operator can allow it with `sandbox.hosts`\n"),
                "{answer}"
            );
            let answer = ask(&proxy, &format!("GET http://{host}:{port}/ HTTP/1.1\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{host}: {answer}");
        }
        for target in ["0x7f.1", "2130706433", "a@127.0.0.1", "127.1"] {
            let answer = ask(&proxy, &format!("CONNECT {target}:{port} HTTP/1.1\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{target}: {answer}");
        }
    }

    #[tokio::test]
    async fn host_of_the_operator_is_reached_by_the_proxy_and_at_its_own_port() {
        let folder = tempfile::tempdir().expect("folder");
        let (listed, other) = (service("listed", false).await, service("other", false).await);
        let hosts = [format!("127.0.0.1:{listed}")];
        let proxy = EgressProxy::open(folder.path(), &hosts, None).await.expect("open");
        let tunnel = format!("CONNECT 127.0.0.1:{listed} HTTP/1.1\r\nHost: x\r\n\r\n");
        let answer = ask(&proxy, &tunnel).await;
        assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\nlisted");
        let answer = ask(&proxy, &format!("CONNECT 127.0.0.1:{other} HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");

        let Network::Egress { gateway, proxy: own, services } = proxy.network(None) else {
            panic!("another network")
        };
        assert_eq!((gateway, own.port > 0), (None, true));
        assert_eq!(services.iter().map(|it| it.port).collect::<Vec<_>>(), [listed]);
        let mut stream = UnixStream::connect(&services[0].socket).await.expect("connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        assert_eq!(answer, "listed");
        drop(proxy);
        assert!(!services[0].socket.exists() && !own.socket.exists(), "the sockets are removed");
    }

    #[tokio::test]
    async fn other_proxy_of_the_machine_is_used_for_public_hosts_only() {
        let folder = tempfile::tempdir().expect("folder");
        let upstream = service("HTTP/1.1 200 OK\r\n\r\nthrough", true).await;
        let url = format!("http://127.0.0.1:{upstream}");
        let proxy = EgressProxy::open(folder.path(), &[], Some(&url)).await.expect("open");
        // An address needs no name server.
        let answer = ask(&proxy, "CONNECT 8.8.8.8:443 HTTP/1.1\r\n\r\n").await;
        assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\nthrough");
        let answer = ask(&proxy, "CONNECT localhost:443 HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        let secret = UpstreamProxy::parse("http://ann:secret@proxy.example:3128");
        let refusal = secret.connect("example.org", 443).await.expect_err("not supported");
        assert!(refusal.contains("needs a password") && !refusal.contains("secret@"), "{refusal}");
    }

    #[test]
    fn request_is_parsed_strictly_and_rewritten() {
        let parsed = ProxyRequest::parse(
            "GET http://Example.org:8080/a?b HTTP/1.1\r\nHost: example.org\r\n\
             Proxy-Authorization: x\r\nConnection: keep-alive\r\n\r\n",
        );
        let head = "GET /a?b HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n".to_owned();
        let (host, forwarded_head) = ("example.org".to_owned(), Some(head));
        assert_eq!(parsed, Some(ProxyRequest { host, port: 8080, forwarded_head }));
        let parsed =
            ProxyRequest::parse("HEAD http://a.example?q HTTP/1.1\r\n\r\n").expect("valid");
        let head = "HEAD /?q HTTP/1.1\r\nConnection: close\r\n\r\n";
        assert_eq!((parsed.port, parsed.forwarded_head.as_deref()), (80, Some(head)));
        for head in [
            "",
            "\r\n\r\n",
            "CONNECT a HTTP/1.1\r\n\r\n",
            "CONNECT a:1 HTTP/2\r\n\r\n",
            "CONNECT a:1 b HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a/ HTTP/1.1\r\n\r\n",
            "GET http://u@a/ HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(ProxyRequest::parse(head), None, "{head}");
        }
    }
}
