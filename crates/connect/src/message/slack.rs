//! A message to a channel of Slack, in blocks, with a link to the decision.

use serde_json::{Value, json};

use super::{Error, Message, asked};

/// How many characters a text of a block may have.
const LONGEST: usize = 2_900;

/// How many blocks a message may have.
const MOST: usize = 48;

pub(super) async fn send(
    http: &reqwest::Client,
    url: &str,
    message: &Message,
) -> Result<(), Error> {
    let answer = asked(http.post(url).json(&blocks(message))).await?;
    match what_to_do(&answer.body) {
        Some(words) if !answer.status.is_success() => {
            Err(Error::Refused(format!("Slack answered {}: {words}", answer.body)))
        }
        _ => answer.taken(),
    }
}

/// What the words mean with which Slack refuses a message.
fn what_to_do(said: &str) -> Option<&'static str> {
    Some(match said {
        "no_service" | "no_team" | "invalid_token" | "no_active_hooks" => {
            "this webhook is not there any more; make a new one in Slack and name it as `url`"
        }
        "channel_not_found" | "channel_is_archived" => {
            "its channel is gone or archived; make a webhook for another one"
        }
        "action_prohibited" | "posting_to_general_channel_denied" | "team_disabled" => {
            "an administrator of your Slack does not allow it; ask them"
        }
        _ => return None,
    })
}

fn blocks(message: &Message) -> Value {
    let mut blocks = vec![json!({
        "type": "header",
        "text": { "type": "plain_text", "text": cut(&message.subject, 150) },
    })];
    for item in &message.items {
        let answers = match item.answers.as_slice() {
            [] => String::new(),
            answers => format!("\nYou can answer: {}.", escaped(&answers.join(", "))),
        };
        let text = format!(
            "*{}* ({})\n{}{answers}",
            escaped(&item.title),
            escaped(&item.project),
            escaped(&item.why)
        );
        blocks.push(json!({
            "type": "section",
            "text": { "type": "mrkdwn", "text": cut(&text, LONGEST) },
            "accessory": {
                "type": "button",
                "text": {
                    "type": "plain_text",
                    "text": if item.answers.is_empty() { "Look" } else { "Decide" },
                },
                "url": item.link,
            },
        }));
        if blocks.len() == MOST && message.items.len() > MOST {
            let rest = message.items.len() - (MOST - 1);
            blocks.push(json!({
                "type": "context",
                "elements": [{ "type": "mrkdwn", "text": format!("and {rest} more") }],
            }));
            break;
        }
    }
    json!({ "text": escaped(&message.subject), "blocks": blocks })
}

/// The three characters that mean something to Slack.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn cut(text: &str, longest: usize) -> String {
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
    fn what_a_title_says_is_text_and_no_link() {
        let mut message = message();
        message.items[0].title = "<https://evil.example|click> & <!channel>".to_owned();
        let text = blocks(&message)["blocks"][1]["text"]["text"].to_string();
        assert!(
            text.contains("&lt;https://evil.example|click&gt; &amp; &lt;!channel&gt;"),
            "{text}"
        );
    }

    #[test]
    fn what_slack_says_is_told_with_what_to_do() {
        assert!(what_to_do("no_service").is_some_and(|words| words.contains("make a new one")));
        assert_eq!(what_to_do("ok"), None);
    }

    #[test]
    fn a_digest_of_hundreds_fits() {
        let mut message = message();
        message.items = vec![message.items[0].clone(); 300];
        let blocks = blocks(&message);
        assert_eq!(blocks["blocks"].as_array().map(Vec::len), Some(MOST + 1));
        assert!(blocks["blocks"][MOST].to_string().contains("and 253 more"));
    }
}
