//! Alert messages: content, receivers and the result of sending.

mod desktop;
mod egress;
mod email;
mod slack;
pub(crate) mod webhook;

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tamma_core::ids::Digest;
use tamma_core::operator::OperatorConfig;
use tamma_core::rules::{AlertChannel, ChannelProblem, ChannelType};
use tamma_core::task_loop::AlertSeverity;
use uuid::Uuid;

use self::egress::EgressPolicy;

/// Time limit for a response of a receiver.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for sending a message, including all round trips of protocols such as SMTP.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a response that is read, in characters.
const MAX_BODY_CHARS: usize = 100_000;

/// Message to people, with one alert or a digest of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlertMessage {
    /// ID that is the same for every attempt, so that receivers can deduplicate.
    pub id: Uuid,
    /// Time at which it was written.
    pub at: DateTime<Utc>,
    /// Highest severity of its items.
    pub severity: AlertSeverity,
    /// One-line summary.
    pub subject: String,
    /// Single alert, or all alerts of a digest.
    pub items: Vec<MessageItem>,
}

/// One alert in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageItem {
    /// Kind of the alert, such as `approval_needed`.
    pub kind: String,
    /// ID of the task or pipeline.
    pub task: Uuid,
    /// Title of the task, or story of the pipeline.
    pub title: String,
    /// Name of the project.
    pub project: String,
    /// Reason for the alert, in words.
    #[serde(rename = "why")]
    pub reason: String,
    /// Possible answers; empty if it asks no question.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// Link to the page with the decision.
    pub link: String,
    /// Number of earlier messages about this alert.
    pub reminder: u32,
}

/// Receiver of messages.
#[derive(Clone, PartialEq, Eq)]
pub enum Receiver {
    /// HTTP endpoint.
    Webhook {
        /// URL of the endpoint.
        url: String,
        /// Signing secret: `whsec_` and a key in base64. Without it, messages are not signed.
        secret: Option<String>,
    },
    /// Slack channel.
    Slack {
        /// URL of its incoming webhook, or of the API method that posts a message.
        url: String,
        /// Name of the channel; `None` for the incoming webhook's own channel.
        channel: Option<String>,
        /// Token of the bot that posts; `None` for an incoming webhook.
        token: Option<String>,
    },
    /// Mailbox.
    Email {
        /// Mail server, such as `smtps://user:password@host`.
        smtp: String,
        /// Sender address.
        from: String,
        /// Recipient address.
        to: String,
    },
    /// Desktop of this machine.
    Desktop,
    /// Terminal of this process, which prints messages itself.
    Terminal,
}

/// Failure to send a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Receiver is unreachable or overloaded, so its other messages have to wait too.
    #[error("{0}")]
    Unreachable(String),
    /// Receiver rejected this message. Its address or secret may be wrong.
    #[error("{0}")]
    Rejected(String),
    /// Receiver accepts no more messages, ever.
    #[error("{0}")]
    Gone(String),
}

impl Error {
    /// Replaces secrets in the error text.
    fn redact(self, secrets: &[&str]) -> Self {
        let clean = |text: String| {
            let secrets = secrets.iter().filter(|secret| secret.len() > 3);
            secrets.fold(text, |text, secret| text.replace(secret, "…"))
        };
        match self {
            Self::Unreachable(text) => Self::Unreachable(clean(text)),
            Self::Rejected(text) => Self::Rejected(clean(text)),
            Self::Gone(text) => Self::Gone(clean(text)),
        }
    }
}

impl Receiver {
    /// Builds the receiver of a configured channel.
    pub fn from_channel(channel: &AlertChannel) -> Result<Self, ChannelProblem> {
        if let Some(problem) = channel.problem() {
            return Err(problem);
        }
        let optional = |key: &str| channel.setting(key).map(str::to_owned);
        // The check above has found every required setting.
        let required = |key: &str| optional(key).unwrap_or_default();
        Ok(match channel.r#type {
            ChannelType::Webhook => {
                Self::Webhook { url: required("url"), secret: optional("secret") }
            }
            ChannelType::Slack => match optional("url") {
                Some(url) => Self::Slack { url, channel: optional("channel"), token: None },
                None => Self::Slack {
                    url: slack::POST_MESSAGE_URL.to_owned(),
                    channel: optional("channel"),
                    token: optional("token"),
                },
            },
            ChannelType::Email => {
                Self::Email { smtp: required("smtp"), from: required("from"), to: required("to") }
            }
            ChannelType::Desktop => Self::Desktop,
            ChannelType::Cli => Self::Terminal,
        })
    }

    /// Returns a readable key of this receiver, without secrets. Two URLs on one host have
    /// different keys.
    pub fn key(&self) -> String {
        let mark = |url: &str| {
            Digest::of(url.as_bytes()).to_string().get(..6).unwrap_or_default().to_owned()
        };
        match self {
            Self::Webhook { url, .. } | Self::Slack { url, .. } => {
                format!("{} ({})", self.label(), mark(url))
            }
            Self::Email { .. } | Self::Desktop | Self::Terminal => self.label(),
        }
    }

    /// Returns a readable label without secrets.
    pub fn label(&self) -> String {
        match self {
            Self::Webhook { url, .. } => format!("webhook at {}", host(url)),
            Self::Slack { channel: None, .. } => "Slack".to_owned(),
            Self::Slack { channel: Some(channel), .. } => format!("Slack channel {channel}"),
            Self::Email { to, .. } => format!("e-mail to {to}"),
            Self::Desktop => "desktop".to_owned(),
            Self::Terminal => TERMINAL.to_owned(),
        }
    }

    /// Returns the secrets of the receiver, longest first. A server may repeat them in an error.
    fn secrets(&self) -> Vec<&str> {
        match self {
            Self::Webhook { url, secret } => {
                secret.as_deref().into_iter().chain(url_secrets(url)).collect()
            }
            Self::Slack { token: Some(token), .. } => vec![token.as_str()],
            Self::Slack { url, .. } => url_secrets(url),
            Self::Email { smtp, .. } => url_secrets(smtp),
            Self::Desktop | Self::Terminal => Vec::new(),
        }
    }
}

/// Key of the terminal.
pub const TERMINAL: &str = "terminal";

/// Returns the secret parts of a URL: all of it, the credentials, and everything after the host.
fn url_secrets(url: &str) -> Vec<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    let account = authority.rsplit_once('@').map_or("", |(account, _)| account);
    let password = account.split_once(':').map_or("", |(_, password)| password);
    vec![url, account, password, path]
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // URLs and secrets must not be printed.
        f.write_str(&self.key())
    }
}

/// Sender of messages to all kinds of receivers.
#[derive(Debug, Clone)]
pub struct MessageSender {
    http: reqwest::Client,
    egress: EgressPolicy,
    /// Environment of the desktop notification program.
    environment: BTreeMap<String, String>,
}

impl MessageSender {
    /// Creates a sender. The environment is passed to the desktop notification program. Messages
    /// only go to public hosts and to those that the operator lists.
    pub fn new(
        environment: &BTreeMap<String, String>,
        operator: &OperatorConfig,
    ) -> Result<Self, Error> {
        let egress = EgressPolicy::new(environment, operator);
        // A redirect leads to a receiver that nobody configured.
        let http = reqwest::Client::builder()
            .timeout(RESPONSE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(egress.clone())
            .build()
            .map_err(|error| Error::Rejected(error.to_string()))?;
        Ok(Self { http, egress, environment: environment.clone() })
    }

    /// Sends a message once, within [`SEND_TIMEOUT`].
    pub async fn send(&self, to: &Receiver, message: &AlertMessage) -> Result<(), Error> {
        let sending = async {
            match to {
                Receiver::Webhook { url, secret } => {
                    self.egress.check_url(url)?;
                    webhook::send(&self.http, url, secret.as_deref(), message).await
                }
                Receiver::Slack { url, channel, token } => {
                    self.egress.check_url(url)?;
                    let to = (url.as_str(), channel.as_deref(), token.as_deref());
                    slack::send(&self.http, to, message).await
                }
                Receiver::Email { smtp, from, to } => {
                    self.egress.check_mail_server(smtp).await?;
                    email::send(smtp, from, to, message).await
                }
                Receiver::Desktop => desktop::send(&self.environment, message).await,
                // The process with the terminal prints it.
                Receiver::Terminal => Ok(()),
            }
        };
        let sent = tokio::time::timeout(SEND_TIMEOUT, sending).await;
        let late = |_| Error::Unreachable(format!("not sent within {} s", SEND_TIMEOUT.as_secs()));
        sent.map_err(late).flatten().map_err(|error| error.redact(&to.secrets()))
    }
}

/// HTTP response of a receiver.
struct SendOutcome {
    status: reqwest::StatusCode,
    /// Start of the body.
    body: String,
}

/// Sends a request and explains why there is no response.
async fn send_request(request: reqwest::RequestBuilder) -> Result<SendOutcome, Error> {
    let response = request.send().await.map_err(|error| {
        // A URL may contain a secret.
        let error = error.without_url();
        if error.is_builder() {
            let message = "the channel's `url` is not a URL such as https://host/path; correct it \
                         in tamma.yaml";
            return Error::Rejected(message.to_owned());
        }
        if egress::is_private_host(&error) {
            return Error::Rejected(egress::PrivateHost.to_string());
        }
        Error::Unreachable(if error.is_timeout() {
            format!("no response within {} s", RESPONSE_TIMEOUT.as_secs())
        } else if error.is_connect() {
            "cannot connect: check the channel's `url`, and that the server's machine can \
             reach it"
                .to_owned()
        } else {
            error.to_string()
        })
    })?;
    let status = response.status();
    let body = response.text().await.unwrap_or_default();
    Ok(SendOutcome { status, body: body.trim().chars().take(MAX_BODY_CHARS).collect() })
}

impl SendOutcome {
    /// Returns an error that explains why the message was not accepted.
    fn into_result(self) -> Result<(), Error> {
        let Self { status, body } = self;
        if status.is_success() {
            return Ok(());
        }
        let body: String = body.chars().take(200).collect();
        let response = format!("receiver returned {status} {body}").trim_end().to_owned();
        Err(match status.as_u16() {
            410 => Error::Gone(format!("{response}: it accepts no more messages")),
            300..=399 => Error::Rejected(format!(
                "{response}: the endpoint has moved; set `url` to its new address"
            )),
            401 | 403 => {
                Error::Rejected(format!("{response}: check that `secret` matches the receiver's"))
            }
            404 => Error::Rejected(format!("{response}: check the channel's `url`")),
            408 | 429 | 500.. => Error::Unreachable(response),
            _ => Error::Rejected(response),
        })
    }
}

fn host(url: &str) -> String {
    let url = reqwest::Url::parse(url).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "nowhere".to_owned())
}

impl AlertMessage {
    /// Returns the message as plain text, for mails and terminals.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            use std::fmt::Write as _;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} ({})\n  {}", item.title, item.project, item.reason);
            if !item.answers.is_empty() {
                let _ = writeln!(text, "  Possible answers: {}.", item.answers.join(", "));
            }
            let _ = writeln!(text, "  {}\n", item.link);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn message() -> AlertMessage {
        AlertMessage {
            id: Uuid::from_u128(7),
            at: DateTime::from_timestamp(1_790_000_000, 0).expect("timestamp"),
            severity: AlertSeverity::Warning,
            subject: "Plan needs approval: Charge once".to_owned(),
            items: vec![MessageItem {
                kind: "approval_needed".to_owned(),
                task: Uuid::from_u128(1),
                title: "Charge once".to_owned(),
                project: "shop".to_owned(),
                reason: "the plan needs an approval".to_owned(),
                answers: vec!["approve".to_owned(), "reject".to_owned()],
                link: "http://127.0.0.1:8622/tasks/1".to_owned(),
                reminder: 0,
            }],
        }
    }

    fn channel(kind: ChannelType, config: &[(&str, &str)]) -> AlertChannel {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        AlertChannel { r#type: kind, enabled: true, config: config.collect() }
    }

    #[test]
    fn incomplete_channel_names_the_missing_setting_and_the_fix() {
        for (kind, config, expected) in [
            (ChannelType::Webhook, vec![], "channel `webhook` has no `url`: set it to the URL"),
            (ChannelType::Slack, vec![], "channel `slack` has no `url`: create an incoming"),
            (
                ChannelType::Slack,
                vec![("channel", "#tamma-alerts")],
                "channel `slack` has no `token`: Slack accepts messages to a channel only",
            ),
            (
                ChannelType::Email,
                vec![("smtp", "smtp://h"), ("from", "a@b.c")],
                "channel `email` has no `to`: set the recipient",
            ),
            (
                ChannelType::Webhook,
                vec![("url", "https://x"), ("secrets", "s")],
                "channel `webhook` does not use `secrets`: its settings are url, secret",
            ),
        ] {
            let error = Receiver::from_channel(&channel(kind, &config)).expect_err(expected);
            assert!(error.to_string().starts_with(expected), "{error}");
        }
    }

    #[test]
    fn receiver_labels_contain_no_secrets() {
        let url = "https://hooks.example/T0/B0/s3cret";
        for (kind, config) in [
            (ChannelType::Slack, vec![("url", url)]),
            (ChannelType::Webhook, vec![("url", url), ("secret", "whsec_s3cret")]),
        ] {
            let receiver = Receiver::from_channel(&channel(kind, &config)).expect("complete");
            for text in [receiver.key(), receiver.label(), format!("{receiver:?}")] {
                assert!(!text.contains("s3cret"), "{text}");
            }
        }
    }

    #[test]
    fn two_urls_on_one_host_are_two_receivers() {
        let receiver_key = |url: &str| {
            Receiver::from_channel(&channel(ChannelType::Slack, &[("url", url)]))
                .expect("complete")
                .key()
        };
        assert_ne!(
            receiver_key("https://hooks.example/a"),
            receiver_key("https://hooks.example/b")
        );
        assert_eq!(
            receiver_key("https://hooks.example/a"),
            receiver_key(" https://hooks.example/a ")
        );
    }

    #[test]
    fn secrets_in_responses_are_redacted() {
        for (kind, config, response) in [
            (
                ChannelType::Webhook,
                vec![("url", "https://h.example/T0/s3cret"), ("secret", "whsec_s3cret")],
                "no /T0/s3cret here, and whsec_s3cret is wrong at https://h.example/T0/s3cret",
            ),
            (
                ChannelType::Email,
                vec![("smtp", "smtps://ada:s3cret@h"), ("from", "a@b.c"), ("to", "d@e.f")],
                "535 s3cret is not the password of ada:s3cret",
            ),
        ] {
            let receiver = Receiver::from_channel(&channel(kind, &config)).expect("complete");
            let text = Error::Rejected(response.to_owned()).redact(&receiver.secrets()).to_string();
            assert!(!text.contains("s3cret"), "{text}");
            assert!(text.contains('…'), "{text}");
        }
    }

    #[test]
    fn responses_are_explained_and_classified() {
        let result = |status: u16, body: &str| {
            let status = reqwest::StatusCode::from_u16(status).expect("status");
            SendOutcome { status, body: body.to_owned() }.into_result()
        };
        assert_eq!(result(204, ""), Ok(()));
        assert!(
            matches!(result(503, "busy"), Err(Error::Unreachable(text)) if text.contains("busy"))
        );
        assert!(matches!(result(429, ""), Err(Error::Unreachable(_))));
        assert!(matches!(result(400, "odd"), Err(Error::Rejected(text)) if text.ends_with("odd")));
        assert!(matches!(result(401, ""), Err(Error::Rejected(text)) if text.contains("secret")));
        assert!(matches!(result(302, ""), Err(Error::Rejected(text)) if text.contains("moved")));
        assert!(matches!(result(410, ""), Err(Error::Gone(_))));
    }

    #[tokio::test]
    async fn channel_errors_name_the_fix() {
        let operator = OperatorConfig {
            alert_hosts: vec!["127.0.0.1".to_owned()],
            ..OperatorConfig::default()
        };
        let sender = MessageSender::new(&BTreeMap::new(), &operator).expect("message sender");
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        // Port that was free a moment ago, so nothing listens on it.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
        let closed = format!("127.0.0.1:{}", free.local_addr().expect("address").port());
        drop(free);
        let (http, smtp) =
            (format!("http://{closed}/s3cret"), format!("smtp://ada:s3cret@{closed}"));
        for (kind, config, expected) in [
            (ChannelType::Webhook, vec![("url", "not a url"), ("secret", key)], "is not a URL"),
            (ChannelType::Webhook, vec![("url", &http), ("secret", "s3cret!")], "openssl rand"),
            (ChannelType::Webhook, vec![("url", &http), ("secret", key)], "cannot connect"),
            (ChannelType::Slack, vec![("url", &http)], "cannot connect"),
            (
                ChannelType::Email,
                vec![("smtp", &smtp), ("from", "a@b.example"), ("to", "c@d.example")],
                "cannot reach the mail server",
            ),
            (
                ChannelType::Email,
                vec![("smtp", "s3cret"), ("from", "a@b.example"), ("to", "c@d.example")],
                "is not a URL such as smtps://",
            ),
            (
                ChannelType::Email,
                vec![("smtp", &smtp), ("from", "nobody"), ("to", "c@d.example")],
                "`from` is not an e-mail address",
            ),
            // With an empty PATH, no program can be started.
            (ChannelType::Desktop, vec![], "notify-send"),
        ] {
            let receiver = Receiver::from_channel(&channel(kind, &config)).expect("complete");
            let error = sender.send(&receiver, &message()).await.expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
