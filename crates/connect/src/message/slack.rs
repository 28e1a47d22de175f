//! Slack messages in blocks, with a link to the decision.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{AlertMessage, Error, send_request};

/// Length limit for the text of a block, in characters.
const MAX_TEXT_CHARS: usize = 2_900;

/// Limit on the number of blocks in a message.
const MAX_BLOCKS: usize = 48;

/// API method that posts a message to a channel.
pub(super) const POST_MESSAGE_URL: &str = "https://slack.com/api/chat.postMessage";

/// Response of an API method, which is 200 for most errors too.
#[derive(Deserialize)]
struct ApiResponse {
    ok: bool,
    #[serde(default)]
    error: String,
}

/// Sends a message to an incoming webhook or, with a token, to a channel.
pub(super) async fn send(
    http: &reqwest::Client,
    (url, channel, token): (&str, Option<&str>, Option<&str>),
    message: &AlertMessage,
) -> Result<(), Error> {
    let mut body = blocks(message);
    if let Some(channel) = channel {
        body["channel"] = channel.into();
    }
    let mut request = http.post(url).json(&body);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = send_request(request).await?;
    let api_error = token
        .and_then(|_| serde_json::from_str::<ApiResponse>(&response.body).ok())
        .filter(|it| !it.ok)
        .map(|it| it.error);
    let code = api_error.as_deref().unwrap_or(&response.body);
    match error_hint(code) {
        Some(hint) if api_error.is_some() || !response.status.is_success() => {
            Err(Error::Rejected(format!("Slack returned {code}: {hint}")))
        }
        None if api_error.is_some() => Err(match code {
            "ratelimited" | "internal_error" | "service_unavailable" | "request_timeout" => {
                Error::Unreachable(format!("Slack returned {code}"))
            }
            _ => Error::Rejected(format!("Slack returned {code}")),
        }),
        _ => response.into_result(),
    }
}

/// Returns a hint for an error code of Slack.
fn error_hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "invalid_auth" | "not_authed" | "token_revoked" | "token_expired" | "account_inactive" => {
            "the bot's `token` is not valid; create a new one in Slack"
        }
        "missing_scope" => "the bot needs the scope `chat:write`; add it in Slack",
        "not_in_channel" => "the bot is not a member of the channel; invite it",
        "no_service" | "no_team" | "invalid_token" | "no_active_hooks" => {
            "the webhook no longer exists; create a new one in Slack and set it as `url`"
        }
        "channel_not_found" | "channel_is_archived" => {
            "the Slack channel is missing or archived; name another one, or create a webhook for it"
        }
        "action_prohibited" | "posting_to_general_channel_denied" | "team_disabled" => {
            "your Slack workspace does not allow it; ask an administrator"
        }
        _ => return None,
    })
}

fn blocks(message: &AlertMessage) -> Value {
    let mut blocks = vec![json!({
        "type": "header",
        "text": { "type": "plain_text", "text": truncate(&message.subject, 150) },
    })];
    for item in &message.items {
        let answers = match item.answers.as_slice() {
            [] => String::new(),
            answers => format!("\nPossible answers: {}.", escape(&answers.join(", "))),
        };
        let text = format!(
            "*{}* ({})\n{}{answers}",
            escape(&item.title),
            escape(&item.project),
            escape(&item.reason)
        );
        blocks.push(json!({
            "type": "section",
            "text": { "type": "mrkdwn", "text": truncate(&text, MAX_TEXT_CHARS) },
            "accessory": {
                "type": "button",
                "text": {
                    "type": "plain_text",
                    "text": if item.answers.is_empty() { "Look" } else { "Decide" },
                },
                "url": item.link,
            },
        }));
        if blocks.len() == MAX_BLOCKS && message.items.len() > MAX_BLOCKS {
            let rest = message.items.len() - (MAX_BLOCKS - 1);
            blocks.push(json!({
                "type": "context",
                "elements": [{ "type": "mrkdwn", "text": format!("and {rest} more") }],
            }));
            break;
        }
    }
    json!({ "text": escape(&message.subject), "blocks": blocks })
}

/// Escapes the three characters that have a meaning in Slack.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn truncate(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::message;

    #[test]
    fn titles_cannot_contain_links_or_mentions() {
        let mut message = message();
        message.items[0].title = "<https://evil.example|click> & <!channel>".to_owned();
        let text = blocks(&message)["blocks"][1]["text"]["text"].to_string();
        assert!(
            text.contains("&lt;https://evil.example|click&gt; &amp; &lt;!channel&gt;"),
            "{text}"
        );
    }

    #[test]
    fn slack_errors_name_the_fix() {
        assert!(error_hint("no_service").is_some_and(|hint| hint.contains("create a new one")));
        assert_eq!(error_hint("ok"), None);
    }

    #[test]
    fn large_digest_fits_the_limits() {
        let mut message = message();
        message.items = vec![message.items[0].clone(); 300];
        let blocks = blocks(&message);
        assert_eq!(blocks["blocks"].as_array().map(Vec::len), Some(MAX_BLOCKS + 1));
        assert!(blocks["blocks"][MAX_BLOCKS].to_string().contains("and 253 more"));
    }
}
