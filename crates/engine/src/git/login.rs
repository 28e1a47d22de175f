//! Logins of remote commands.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tamma_core::repository_address::RepositoryAddress;

use super::Error;

/// Login for a repository, if it has one, or the reason why it cannot be found.
pub type FoundLogin = Pin<Box<dyn Future<Output = Result<Option<GitLogin>, String>> + Send>>;

/// Finds the login for the address of a repository.
pub type FindLogin = Arc<dyn Fn(String) -> FoundLogin + Send + Sync>;

/// User name and password of git for a host, which agents never see. Printing it hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct GitLogin {
    /// User name.
    pub user: String,
    /// Password or token.
    pub password: String,
}

impl fmt::Debug for GitLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

impl GitLogin {
    /// Returns the settings that send the login to the host of an address, and to no other.
    pub(super) fn settings(&self, address: &RepositoryAddress) -> Option<[(String, String); 3]> {
        let (scheme, rest) = http_parts(address)?;
        let place = rest.split('/').next()?;
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        let key = format!("http.{}://{host}/.extraHeader", scheme.to_ascii_lowercase());
        // No helper of the operator is asked, and none stores the login.
        let no_helper = ("credential.helper".to_owned(), String::new());
        // After a redirect, git could send the header to another host.
        let no_redirects = ("http.followRedirects".to_owned(), "false".to_owned());
        let header = format!("Authorization: Basic {}", self.encoded());
        Some([(key, header), no_helper, no_redirects])
    }

    fn encoded(&self) -> String {
        STANDARD.encode(format!("{}:{}", self.user, self.password))
    }

    /// Replaces the login in a text.
    pub(super) fn hide(&self, text: &str) -> String {
        let text = text.replace(&self.encoded(), "***");
        if self.password.is_empty() { text } else { text.replace(&self.password, "***") }
    }
}

/// Returns the scheme of an HTTP address, and the rest.
fn http_parts(address: &RepositoryAddress) -> Option<(&str, &str)> {
    let (scheme, rest) = address.as_git_source().split_once("://")?;
    let is_http = ["https", "http"].iter().any(|it| scheme.eq_ignore_ascii_case(it));
    is_http.then_some((scheme, rest))
}

/// Source of logins. Without one, the operator's credentials are used.
#[derive(Clone, Default)]
pub(super) struct Logins(Option<FindLogin>);

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Logins").field(&self.0.is_some()).finish()
    }
}

impl Logins {
    /// Returns a source with one login for all addresses.
    pub(super) fn always(login: GitLogin) -> Self {
        Self::found_by(Arc::new(move |_| {
            let login = login.clone();
            Box::pin(async move { Ok(Some(login)) })
        }))
    }

    /// Returns a source that asks each time.
    pub(super) fn found_by(find: FindLogin) -> Self {
        Self(Some(find))
    }

    /// Finds the login for an address, if it is an HTTP one.
    pub(super) async fn find(
        &self,
        address: &RepositoryAddress,
    ) -> Result<Option<GitLogin>, Error> {
        match &self.0 {
            Some(find) if http_parts(address).is_some() => {
                let found = find(address.as_git_source().to_owned()).await;
                found.map_err(|reason| Error::Login { reason })
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::{Git, QUERY_LIMIT, remote_arguments};
    use super::*;

    #[test]
    fn login_is_for_one_host_and_only_over_http() {
        let login = GitLogin { user: "bot".to_owned(), password: "t0ken".to_owned() };
        let key = |address: &str| {
            let address: RepositoryAddress = address.parse().expect("an address");
            login.settings(&address).map(|[(key, _), ..]| key)
        };
        assert_eq!(
            key("https://git.example:8443/a/b").as_deref(),
            Some("http.https://git.example:8443/.extraHeader")
        );
        assert_eq!(
            key("HTTPS://ann:x@git.example/a").as_deref(),
            Some("http.https://git.example/.extraHeader")
        );
        assert_eq!(
            key("http://127.0.0.1:3000/a").as_deref(),
            Some("http.http://127.0.0.1:3000/.extraHeader")
        );
        for other in ["/srv/app", "file:///srv/app", "ssh://git@git.example/a", "git@a.example:b"] {
            assert_eq!(key(other), None, "{other}");
        }
    }

    /// Answers one request with a status, which may have headers after it, and returns its head.
    async fn answer_once(
        listener: tokio::net::TcpListener,
        status: String,
        body: String,
    ) -> String {
        let (mut stream, _) = listener.accept().await.expect("a request");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.expect("a byte");
            head.push(byte[0]);
        }
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.expect("answered");
        String::from_utf8_lossy(&head).into_owned()
    }

    #[tokio::test]
    async fn login_is_sent_to_its_host_and_shown_nowhere() {
        let login = GitLogin { user: "bot".to_owned(), password: "t0ken-of-tamma".to_owned() };
        let encoded = login.encoded();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let address: RepositoryAddress =
            format!("http://127.0.0.1:{port}/a/b").parse().expect("an address");
        // A hostile server prints what it got.
        let echo = format!("got {encoded} and t0ken-of-tamma\n");
        let server = tokio::spawn(answer_once(listener, "403 No".to_owned(), echo));
        let git = Git::find("git").await.expect("git").with_login(Some(login.clone()));
        let call: Vec<_> =
            ["ls-remote"].into_iter().chain(remote_arguments(&address, [])).collect();
        let command = git.outside(Path::new("/")).remote(&address, QUERY_LIMIT);
        let arguments = format!("{:?}", command.command(&call, Some(&login)).as_std().get_args());
        let error = command.run(call).await.expect_err("refused");
        let head = server.await.expect("a request").to_ascii_lowercase();
        assert!(
            head.contains(&format!("authorization: basic {}", encoded.to_lowercase())),
            "{head}"
        );
        let shown = format!("{error} {error:?} {git:?} {arguments}");
        assert!(!shown.contains("t0ken") && !shown.contains(&encoded), "{shown}");

        // A local command gets no login.
        let local = git.bare(Path::new("/")).command(&["version"], Some(&login));
        let has_login = local.as_std().get_envs().any(|(_, value)| {
            value.is_some_and(|value| value.to_string_lossy().contains(&encoded))
        });
        assert!(!has_login);
    }

    #[tokio::test]
    async fn login_does_not_follow_a_redirect() {
        let login = GitLogin { user: "bot".to_owned(), password: "t0ken".to_owned() };
        let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        other.set_nonblocking(true).expect("set");
        let other_port = other.local_addr().expect("an address").port();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let place = format!("http://127.0.0.1:{other_port}/a/b/info/refs?service=git-upload-pack");
        let status = format!("302 Found\r\nLocation: {place}");
        let server = tokio::spawn(answer_once(listener, status, String::new()));
        let address: RepositoryAddress =
            format!("http://127.0.0.1:{port}/a/b").parse().expect("an address");
        let git = Git::find("git").await.expect("git").with_login(Some(login));
        let call: Vec<_> =
            ["ls-remote"].into_iter().chain(remote_arguments(&address, [])).collect();
        let command = git.outside(Path::new("/")).remote(&address, QUERY_LIMIT);
        command
            .time_limit(std::time::Duration::from_secs(20))
            .run(call)
            .await
            .expect_err("refused");
        server.await.expect("a request");
        let asked = other.accept().map(|_| ()).map_err(|error| error.kind());
        assert_eq!(asked, Err(std::io::ErrorKind::WouldBlock), "nobody asked the other host");
    }

    #[tokio::test]
    async fn each_remote_command_asks_for_its_login() {
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let find: FindLogin = Arc::new(move |address| {
            assert_eq!(address, "https://127.0.0.1:1/a");
            let number = count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { Err(format!("the forge is away ({number})")) })
        });
        let git = Git::find("git").await.expect("git").with_logins(find);
        for number in 0..2 {
            let address: RepositoryAddress = "https://127.0.0.1:1/a".parse().expect("an address");
            let call: Vec<_> =
                ["ls-remote"].into_iter().chain(remote_arguments(&address, [])).collect();
            let command = git.outside(Path::new("/")).remote(&address, QUERY_LIMIT);
            let error = command.run(call).await.expect_err("no login").to_string();
            assert!(error.ends_with(&format!("the forge is away ({number})")), "{error}");
        }
        git.outside(Path::new("/")).run(["version"]).await.expect("a local command");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
