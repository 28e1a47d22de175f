//! Receivers of the audit log: a syslog server (RFC 5424) and a signed webhook.
//!
//! A batch is sent in order, and counts as received if all of it was. After a failure, the caller sends
//! the whole batch again, so a receiver can get an entry twice. Each one has its position and hash.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use tamma_core::audit::{AuditHead, ChainedEntry};
use tamma_core::ids::Digest;
use tamma_core::operator::{AuditSettings, AuditWebhook, SyslogAddress};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};

use crate::message::{Error, RESPONSE_TIMEOUT, webhook};

/// Time limit for a batch.
pub const BATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Priority of messages: facility 13 (log audit), severity 6 (informational).
const PRIORITY: u8 = 13 * 8 + 6;

/// Receiver of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditReceiver {
    /// Syslog server.
    Syslog(SyslogAddress),
    /// HTTP endpoint.
    Webhook(AuditWebhook),
}

impl AuditReceiver {
    /// Returns the receivers that the operator has configured.
    pub fn from_settings(settings: &AuditSettings) -> Vec<Self> {
        let syslog = settings.syslog.as_deref().and_then(SyslogAddress::parse).map(Self::Syslog);
        let webhook = settings.webhook.clone().map(Self::Webhook);
        syslog.into_iter().chain(webhook).collect()
    }

    /// Returns a readable key of this receiver, without secrets. Two URLs have different keys.
    pub fn key(&self) -> String {
        match self {
            Self::Syslog(address) => format!("syslog {address}"),
            Self::Webhook(AuditWebhook { url, .. }) => {
                format!("webhook {}", Digest::of(url.as_bytes()).short())
            }
        }
    }
}

/// Sender of audit entries.
#[derive(Debug, Clone)]
pub struct AuditSender {
    http: reqwest::Client,
}

impl AuditSender {
    /// Creates a sender. The operator chose the receivers, so their addresses can be private.
    pub fn new() -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .timeout(RESPONSE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Error::Rejected(error.to_string()))?;
        Ok(Self { http })
    }

    /// Sends a batch of entries in order, within [`BATCH_TIMEOUT`].
    pub async fn send(&self, to: &AuditReceiver, entries: &[ChainedEntry]) -> Result<(), Error> {
        let sending = async {
            match to {
                AuditReceiver::Syslog(address) => {
                    send_syslog(address, entries).await.map_err(|error| {
                        let text =
                            format!("cannot send to the syslog server at {address}: {error}");
                        Error::Unreachable(text)
                    })
                }
                AuditReceiver::Webhook(AuditWebhook { url, secret }) => {
                    let (id, body) = webhook_body(entries);
                    webhook::post(&self.http, url, Some(secret.as_str()), &id, body).await
                }
            }
        };
        let late = |_| Error::Unreachable(format!("not sent within {} s", BATCH_TIMEOUT.as_secs()));
        tokio::time::timeout(BATCH_TIMEOUT, sending).await.map_err(late).flatten()
    }
}

/// Returns the ID and the body of a webhook request. Entries are as they were hashed.
///
/// The ID has the start of the last hash: after a restore of the database, positions are used again, and
/// receivers drop messages whose ID they have.
fn webhook_body(entries: &[ChainedEntry]) -> (String, Vec<u8>) {
    let first = entries.first().map_or(0, |entry| entry.position);
    let last = entries.last().map_or_else(AuditHead::empty, ChainedEntry::head);
    let lines: Vec<_> = entries.iter().map(ChainedEntry::to_line).collect();
    let body = format!(r#"{{"type":"tamma.audit","data":[{}]}}"#, lines.join(","));
    (format!("audit-{first}-{}-{}", last.position, last.hash.short()), body.into_bytes())
}

/// Returns a message in the format of RFC 5424. Host and process are left to the receiver.
fn syslog_message(entry: &ChainedEntry) -> String {
    #[derive(Deserialize)]
    struct EntryTime {
        at: DateTime<Utc>,
    }
    let at = serde_json::from_str::<EntryTime>(&entry.content).ok();
    let at = at.map(|it| it.at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string());
    let at = at.as_deref().unwrap_or("-");
    format!("<{PRIORITY}>1 {at} - tamma - audit - {}", entry.to_line())
}

async fn send_syslog(address: &SyslogAddress, entries: &[ChainedEntry]) -> std::io::Result<()> {
    match address {
        SyslogAddress::Udp(host, port) => {
            let is_ipv6 = host.contains(':');
            let socket = UdpSocket::bind(if is_ipv6 { "[::]:0" } else { "0.0.0.0:0" }).await?;
            socket.connect((host.as_str(), *port)).await?;
            for entry in entries {
                socket.send(syslog_message(entry).as_bytes()).await?;
            }
            Ok(())
        }
        SyslogAddress::Tcp(host, port) => {
            let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
            for entry in entries {
                // Each message follows its length (RFC 6587), so that it can contain anything.
                let message = syslog_message(entry);
                let frame = format!("{} {message}", message.len());
                stream.write_all(frame.as_bytes()).await?;
            }
            stream.shutdown().await
        }
        SyslogAddress::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            for entry in entries {
                socket.send(syslog_message(entry).as_bytes()).await?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn entries() -> Vec<ChainedEntry> {
        let mut head = AuditHead::empty();
        let contents = [r#"{"id":1,"at":"2026-11-17T18:00:00.123456789Z"}"#, r#"{"id":2}"#];
        let next = |content: &str| {
            let entry = ChainedEntry::following(head, content.to_owned());
            head = entry.head();
            entry
        };
        contents.into_iter().map(next).collect()
    }

    async fn send(to: SyslogAddress) -> Result<(), Error> {
        AuditSender::new().expect("sender").send(&AuditReceiver::Syslog(to), &entries()).await
    }

    #[test]
    fn message_has_the_format_of_rfc_5424() {
        let all = entries();
        let line = all[0].to_line();
        let expected = format!("<110>1 2026-11-17T18:00:00.123456Z - tamma - audit - {line}");
        assert_eq!(syslog_message(&all[0]), expected);
        assert!(syslog_message(&all[1]).starts_with("<110>1 - - tamma - audit - {"));
    }

    #[test]
    fn webhook_body_contains_the_entries_as_they_were_hashed() {
        let all = entries();
        let (id, body) = webhook_body(&all);
        assert_eq!(id, format!("audit-1-2-{}", all[1].hash.short()));
        // After a restore, another entry can have the same position.
        let other = ChainedEntry::following(all[0].head(), r#"{"id":3}"#.to_owned());
        assert_ne!(webhook_body(&[all[0].clone(), other]).0, id);
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["data"][1]["entry"].to_string(), r#"{"id":2}"#);
        assert_eq!(body["data"][1]["position"], 2);
    }

    #[test]
    fn keys_of_receivers_contain_no_secrets() {
        let webhook = AuditWebhook {
            url: "https://example.com/s3cret".to_owned(),
            secret: "whsec_s3cret".to_owned(),
        };
        let settings =
            AuditSettings { syslog: Some("tcp://logs:601".to_owned()), webhook: Some(webhook) };
        let receivers = AuditReceiver::from_settings(&settings);
        let keys: Vec<_> = receivers.iter().map(AuditReceiver::key).collect();
        assert_eq!(keys[0], "syslog tcp://logs:601");
        assert!(!keys[1].contains("s3cret") && !format!("{receivers:?}").contains("s3cret"));
    }

    #[tokio::test]
    async fn every_transport_delivers_all_messages_in_order() {
        let messages: Vec<_> = entries().iter().map(syslog_message).collect();
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("bound");
        let port = udp.local_addr().expect("address").port();
        send(SyslogAddress::Udp("127.0.0.1".to_owned(), port)).await.expect("sent");
        let mut buffer = vec![0; 4096];
        for message in &messages {
            let length = udp.recv(&mut buffer).await.expect("received");
            assert_eq!(&buffer[..length], message.as_bytes());
        }

        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = tcp.local_addr().expect("address").port();
        let receive = async {
            let (mut stream, _) = tcp.accept().await.expect("accepted");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("read");
            text
        };
        let address = SyslogAddress::Tcp("127.0.0.1".to_owned(), port);
        let (sent, text) = tokio::join!(send(address), receive);
        sent.expect("sent");
        let frames: Vec<_> = messages.iter().map(|it| format!("{} {it}", it.len())).collect();
        assert_eq!(text, frames.concat());

        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("log");
        let unix = UnixDatagram::bind(&path).expect("bound");
        let path = path.to_str().expect("text").to_owned();
        send(SyslogAddress::Unix(path)).await.expect("sent");
        for message in &messages {
            let length = unix.recv(&mut buffer).await.expect("received");
            assert_eq!(&buffer[..length], message.as_bytes());
        }
    }

    #[tokio::test]
    async fn an_unreachable_server_is_an_error_that_can_be_retried() {
        let sent = send(SyslogAddress::Unix("/nowhere/log".to_owned())).await;
        assert!(matches!(sent, Err(Error::Unreachable(text)) if text.contains("unix:///nowhere")));
    }
}
