//! Messages to people: what they say, where they go, and whether they arrived.

mod desktop;
mod email;
mod slack;
mod webhook;

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tamma_core::ids::Digest;
use tamma_core::rules::{Channel, ChannelType};
use tamma_core::task_loop::Severity;
use uuid::Uuid;

/// How long a receiver may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long sending a message takes at most: one that is handed over in several answers, such as a
/// mail, has to be done by then.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Something that people are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Which one it is: the same, however often it is tried, so that a receiver can tell.
    pub id: Uuid,
    /// When it was written.
    pub at: DateTime<Utc>,
    /// How urgent its most urgent item is.
    pub severity: Severity,
    /// One line that says it all.
    pub subject: String,
    /// What it tells: one thing, or all those of a digest.
    pub items: Vec<Item>,
}

/// One thing that a message tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What kind of alert it is, such as `approval_needed`.
    pub kind: String,
    /// The task.
    pub task: Uuid,
    /// Its title.
    pub title: String,
    /// What its project is called.
    pub project: String,
    /// What happened, in words.
    pub why: String,
    /// What may be answered; nothing where nothing is asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// Where it can be looked at and answered.
    pub link: String,
    /// How often this was told before.
    pub reminder: u32,
}

/// Somebody who receives messages.
#[derive(Clone, PartialEq, Eq)]
pub enum Receiver {
    /// An HTTP endpoint.
    Webhook {
        /// Where it is.
        url: String,
        /// What messages are signed with: `whsec_` and a key in base64.
        secret: String,
    },
    /// A channel of Slack.
    Slack {
        /// Its incoming webhook.
        url: String,
    },
    /// A mail box.
    Email {
        /// The server that takes the mail, such as `smtps://user:password@host`.
        smtp: String,
        /// Who it is from.
        from: String,
        /// Who it is to.
        to: String,
    },
    /// The desktop of this machine.
    Desktop,
    /// The terminal of this process, which shows messages itself.
    Terminal,
}

/// Why a channel of the configuration is no receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the channel `{channel}` has no `{key}`: {hint}")]
pub struct Incomplete {
    channel: ChannelType,
    key: &'static str,
    hint: &'static str,
}

/// Why a message did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nobody was there, or they cannot take anything at the moment: other messages have to wait too.
    #[error("{0}")]
    Away(String),
    /// They did not take this one. It may be our address or key that is wrong.
    #[error("{0}")]
    Refused(String),
    /// They will never take it.
    #[error("{0}")]
    Gone(String),
}

impl Error {
    /// The same, without some words that are secret.
    fn without(self, secrets: &[&str]) -> Self {
        let clean = |words: String| {
            let secrets = secrets.iter().filter(|secret| secret.len() > 3);
            secrets.fold(words, |words, secret| words.replace(secret, "…"))
        };
        match self {
            Self::Away(words) => Self::Away(clean(words)),
            Self::Refused(words) => Self::Refused(clean(words)),
            Self::Gone(words) => Self::Gone(clean(words)),
        }
    }
}

impl Receiver {
    /// The receiver that a channel of the configuration stands for.
    pub fn of(channel: &Channel) -> Result<Self, Incomplete> {
        let wanted = |key: &'static str, hint: &'static str| {
            let value = channel.config.get(key).map(|value| value.trim().to_owned());
            value.filter(|value| !value.is_empty()).ok_or(Incomplete {
                channel: channel.r#type,
                key,
                hint,
            })
        };
        Ok(match channel.r#type {
            ChannelType::Webhook => Self::Webhook {
                url: wanted("url", "name the address that takes the messages")?,
                secret: wanted(
                    "secret",
                    "make one with `echo whsec_$(openssl rand -base64 32)`, keep it in a variable, \
                     and write `${THE_VARIABLE}`",
                )?,
            },
            ChannelType::Slack => Self::Slack {
                url: wanted("url", "make an incoming webhook in Slack and name its address")?,
            },
            ChannelType::Email => Self::Email {
                smtp: wanted("smtp", "name the mail server, such as smtps://user:password@host")?,
                from: wanted("from", "name the address that the mail is from")?,
                to: wanted("to", "name the address that the mail goes to")?,
            },
            ChannelType::Desktop => Self::Desktop,
            ChannelType::Cli => Self::Terminal,
        })
    }

    /// What tells this receiver from others, in words and without a secret. Two addresses at the same
    /// host are two receivers.
    pub fn key(&self) -> String {
        let mark = |url: &str| {
            Digest::of(url.as_bytes()).to_string().get(..6).unwrap_or_default().to_owned()
        };
        match self {
            Self::Webhook { url, .. } | Self::Slack { url } => {
                format!("{} ({})", self.shown(), mark(url))
            }
            Self::Email { .. } | Self::Desktop | Self::Terminal => self.shown(),
        }
    }

    /// In words, without a secret.
    pub fn shown(&self) -> String {
        match self {
            Self::Webhook { url, .. } => format!("webhook at {}", host(url)),
            Self::Slack { .. } => "Slack".to_owned(),
            Self::Email { to, .. } => format!("e-mail to {to}"),
            Self::Desktop => "desktop".to_owned(),
            Self::Terminal => TERMINAL.to_owned(),
        }
    }

    /// What nobody may read, longest first: a server may say it back to us.
    fn secrets(&self) -> Vec<&str> {
        match self {
            Self::Webhook { url, secret } => [vec![secret.as_str()], hidden(url)].concat(),
            Self::Slack { url } => hidden(url),
            Self::Email { smtp, .. } => hidden(smtp),
            Self::Desktop | Self::Terminal => Vec::new(),
        }
    }
}

/// The terminal's key.
pub const TERMINAL: &str = "terminal";

/// What is secret of an address: itself, who asks, and everything after the host.
fn hidden(url: &str) -> Vec<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (place, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    let account = place.rsplit_once('@').map_or("", |(account, _)| account);
    let password = account.split_once(':').map_or("", |(_, password)| password);
    vec![url, account, password, path]
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Addresses and keys are secrets.
        f.write_str(&self.key())
    }
}

/// Where messages leave.
#[derive(Debug, Clone)]
pub struct Post {
    http: reqwest::Client,
    /// For the desktop's own program.
    environment: BTreeMap<String, String>,
}

impl Post {
    /// A post office.
    pub fn new(environment: &BTreeMap<String, String>) -> Result<Self, Error> {
        // A receiver that sends us elsewhere is not the one that was named.
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Error::Refused(error.to_string()))?;
        Ok(Self { http, environment: environment.clone() })
    }

    /// Sends a message, once, within [`LONGEST`].
    pub async fn send(&self, to: &Receiver, message: &Message) -> Result<(), Error> {
        let sending = async {
            match to {
                Receiver::Webhook { url, secret } => {
                    webhook::send(&self.http, url, secret, message).await
                }
                Receiver::Slack { url } => slack::send(&self.http, url, message).await,
                Receiver::Email { smtp, from, to } => email::send(smtp, from, to, message).await,
                Receiver::Desktop => desktop::send(&self.environment, message).await,
                // Whoever has the terminal shows it.
                Receiver::Terminal => Ok(()),
            }
        };
        let sent = tokio::time::timeout(LONGEST, sending).await;
        let late = |_| Error::Away(format!("it took more than {} seconds", LONGEST.as_secs()));
        sent.map_err(late).flatten().map_err(|error| error.without(&to.secrets()))
    }
}

/// What an answer over HTTP says.
struct Answer {
    status: reqwest::StatusCode,
    /// How it begins.
    body: String,
}

/// Asks, and says in words why there is no answer.
async fn asked(request: reqwest::RequestBuilder) -> Result<Answer, Error> {
    let answer = request.send().await.map_err(|error| {
        // An address may have a secret in it.
        let error = error.without_url();
        if error.is_builder() {
            let words = "the channel's `url` is not an address such as https://host/path: correct it \
                         in tamma.yaml";
            return Error::Refused(words.to_owned());
        }
        Error::Away(if error.is_timeout() {
            format!("it did not answer within {} seconds", PATIENCE.as_secs())
        } else if error.is_connect() {
            "nobody answers at its address: is the `url` right, and can it be reached from the \
             machine of the server?"
                .to_owned()
        } else {
            error.to_string()
        })
    })?;
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    Ok(Answer { status, body: body.trim().chars().take(200).collect() })
}

impl Answer {
    /// Whether the message was taken, and if not, why.
    fn taken(self) -> Result<(), Error> {
        let Self { status, body } = self;
        if status.is_success() {
            return Ok(());
        }
        let said = format!("it answered {status} {body}").trim_end().to_owned();
        Err(match status.as_u16() {
            410 => Error::Gone(format!("{said}: it wants no messages any more")),
            300..=399 => {
                Error::Refused(format!("{said}: it is elsewhere; name the new address as `url`"))
            }
            401 | 403 => Error::Refused(format!("{said}: is the `secret` the one that it knows?")),
            404 => Error::Refused(format!("{said}: is the `url` right?")),
            408 | 429 | 500.. => Error::Away(said),
            _ => Error::Refused(said),
        })
    }
}

fn host(url: &str) -> String {
    let url = reqwest::Url::parse(url).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "nowhere".to_owned())
}

impl Message {
    /// As plain text, for a mail or a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            use std::fmt::Write as _;
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{} ({})\n  {}", item.title, item.project, item.why);
            if !item.answers.is_empty() {
                let _ = writeln!(text, "  You can answer: {}.", item.answers.join(", "));
            }
            let _ = writeln!(text, "  {}\n", item.link);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn message() -> Message {
        Message {
            id: Uuid::from_u128(7),
            at: DateTime::from_timestamp(1_790_000_000, 0).expect("a moment"),
            severity: Severity::Warning,
            subject: "A plan waits for you: Charge once".to_owned(),
            items: vec![Item {
                kind: "approval_needed".to_owned(),
                task: Uuid::from_u128(1),
                title: "Charge once".to_owned(),
                project: "shop".to_owned(),
                why: "the plan needs an approval".to_owned(),
                answers: vec!["approve".to_owned(), "reject".to_owned()],
                link: "http://127.0.0.1:8622/tasks/1".to_owned(),
                reminder: 0,
            }],
        }
    }

    fn channel(kind: ChannelType, config: &[(&str, &str)]) -> Channel {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Channel { r#type: kind, enabled: true, config: config.collect() }
    }

    #[test]
    fn a_channel_that_lacks_something_says_what_and_where_to_get_it() {
        let error = Receiver::of(&channel(ChannelType::Webhook, &[("url", "https://x")]));
        let text = error.expect_err("no secret").to_string();
        assert!(text.starts_with("the channel `webhook` has no `secret`: make one with"), "{text}");
    }

    #[test]
    fn what_is_shown_of_a_receiver_has_no_secret_in_it() {
        let url = "https://hooks.example/T0/B0/s3cret";
        for (kind, config) in [
            (ChannelType::Slack, vec![("url", url)]),
            (ChannelType::Webhook, vec![("url", url), ("secret", "whsec_s3cret")]),
        ] {
            let receiver = Receiver::of(&channel(kind, &config)).expect("complete");
            for text in [receiver.key(), receiver.shown(), format!("{receiver:?}")] {
                assert!(!text.contains("s3cret"), "{text}");
            }
        }
    }

    #[test]
    fn two_addresses_at_one_host_are_two_receivers() {
        let of = |url: &str| {
            Receiver::of(&channel(ChannelType::Slack, &[("url", url)])).expect("complete").key()
        };
        assert_ne!(of("https://hooks.example/a"), of("https://hooks.example/b"));
        assert_eq!(of("https://hooks.example/a"), of(" https://hooks.example/a "));
    }

    #[test]
    fn what_a_server_says_back_is_shown_without_the_secrets() {
        for (kind, config, said) in [
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
            let receiver = Receiver::of(&channel(kind, &config)).expect("complete");
            let words = Error::Refused(said.to_owned()).without(&receiver.secrets()).to_string();
            assert!(!words.contains("s3cret"), "{words}");
            assert!(words.contains('…'), "{words}");
        }
    }

    #[test]
    fn an_answer_is_told_in_words_and_says_who_has_to_wait() {
        let taken = |status: u16, body: &str| {
            let status = reqwest::StatusCode::from_u16(status).expect("a status");
            Answer { status, body: body.to_owned() }.taken()
        };
        assert_eq!(taken(204, ""), Ok(()));
        assert!(matches!(taken(503, "busy"), Err(Error::Away(words)) if words.contains("busy")));
        assert!(matches!(taken(429, ""), Err(Error::Away(_))));
        assert!(matches!(taken(400, "odd"), Err(Error::Refused(words)) if words.ends_with("odd")));
        assert!(matches!(taken(401, ""), Err(Error::Refused(words)) if words.contains("secret")));
        assert!(
            matches!(taken(302, ""), Err(Error::Refused(words)) if words.contains("elsewhere"))
        );
        assert!(matches!(taken(410, ""), Err(Error::Gone(_))));
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_channel_is_said_with_what_to_do() {
        let post = Post::new(&BTreeMap::new()).expect("a post office");
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        // A port that nobody has: it was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let closed = format!("127.0.0.1:{}", free.local_addr().expect("an address").port());
        drop(free);
        let (http, smtp) =
            (format!("http://{closed}/s3cret"), format!("smtp://ada:s3cret@{closed}"));
        for (kind, config, words) in [
            (
                ChannelType::Webhook,
                vec![("url", "not a url"), ("secret", key)],
                "is not an address",
            ),
            (ChannelType::Webhook, vec![("url", &http), ("secret", "s3cret!")], "openssl rand"),
            (ChannelType::Webhook, vec![("url", &http), ("secret", key)], "nobody answers"),
            (ChannelType::Slack, vec![("url", &http)], "nobody answers"),
            (
                ChannelType::Email,
                vec![("smtp", &smtp), ("from", "a@b.example"), ("to", "c@d.example")],
                "cannot be reached",
            ),
            (
                ChannelType::Email,
                vec![("smtp", "s3cret"), ("from", "a@b.example"), ("to", "c@d.example")],
                "is not an address such as smtps://",
            ),
            (
                ChannelType::Email,
                vec![("smtp", &smtp), ("from", "nobody"), ("to", "c@d.example")],
                "`from` is not an address",
            ),
            // There is no program by any name where nothing is on the path.
            (ChannelType::Desktop, vec![], "notify-send"),
        ] {
            let receiver = Receiver::of(&channel(kind, &config)).expect("complete");
            let error = post.send(&receiver, &message()).await.expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
