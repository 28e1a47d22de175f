//! Parsing chat messages with the operator's model. The built-in grammar is the fallback.

use tamma_chat::{ChatContext, Interpretation};
use tamma_connect::model::ChatReader;
use tamma_core::operator::ModelApi;
use tamma_core::redaction::Redactor;

use crate::app::App;
use crate::dto::MessageParser;

/// Result of parsing a message with a model.
#[derive(Debug, Default)]
pub(super) struct ParsedMessage {
    /// Meaning according to the model; `None` leaves the message to the grammar.
    pub(super) understood: Option<Interpretation>,
    pub(super) parser: MessageParser,
    /// Reason for the fallback, shown to the person.
    pub(super) note: Option<String>,
}

impl App {
    /// Returns the name of the operator's chat model.
    pub(crate) fn chat_model(&self) -> Option<&str> {
        self.operator.chat.as_ref().map(|api| api.model.as_str())
    }

    /// Parses a message with the operator's model. A project cannot name another one, because it
    /// would get the key and the titles of all tasks.
    pub(super) async fn parse_with_model(
        &self,
        message: &str,
        context: &ChatContext,
    ) -> ParsedMessage {
        let Some(ModelApi { url, model }) = &self.operator.chat else {
            return ParsedMessage::default();
        };
        if tamma_chat::is_about_story(message, context) {
            return ParsedMessage::default();
        }
        // Messages about stories never reach a model.
        let context = &ChatContext { stories: Vec::new(), ..context.clone() };
        let question = tamma_chat::model_prompt(message, context);
        let message_without_secrets = self.redact_secrets(&question.message);
        let key = self.environment.get(ChatReader::KEY_VARIABLE).cloned();
        let answer = match ChatReader::new(url, model, key) {
            Ok(reader) => {
                reader
                    .read(&question.instructions, &message_without_secrets, &question.answer_schema)
                    .await
            }
            Err(error) => Err(error),
        };
        let reason = match answer {
            Ok(answer) => match tamma_chat::interpret_model_answer(&answer, message, context) {
                Ok(understood) => {
                    let understood = Some(understood);
                    return ParsedMessage { understood, parser: MessageParser::Model, note: None };
                }
                Err(error) => {
                    format!("the response of model `{model}` was rejected: {error}")
                }
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(%reason, "chat model failed; used the built-in grammar");
        ParsedMessage {
            note: Some(format!("Parsed by the built-in grammar: {reason}.")),
            ..ParsedMessage::default()
        }
    }

    /// Redacts the values of environment variables whose names mark them as secrets.
    fn redact_secrets(&self, text: &str) -> String {
        Redactor::new(self.secret_values()).redact(text).into_owned()
    }
}
