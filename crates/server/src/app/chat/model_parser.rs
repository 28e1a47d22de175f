//! Parsing chat messages with a model. The built-in grammar is the fallback.

use std::collections::BTreeSet;

use tamma_chat::{ChatContext, Interpretation};
use tamma_connect::model::ChatReader;
use tamma_core::ids::ProjectId;
use tamma_core::knowledge::EntryScope;
use tamma_core::redaction::Redactor;

use super::ChatSubjects;
use crate::app::{App, Error};
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
    /// Returns the name of the configured chat model.
    pub(crate) async fn chat_model(&self) -> Result<Option<String>, Error> {
        Ok(self.chat_endpoints().await?.into_iter().next().map(|(_, (_, model))| model))
    }

    /// Parses a message with the model of the project that the conversation is about.
    pub(super) async fn parse_with_model(
        &self,
        message: &str,
        subjects: &ChatSubjects,
    ) -> Result<ParsedMessage, Error> {
        if tamma_chat::is_about_story(message, &subjects.context) {
            return Ok(ParsedMessage::default());
        }
        let endpoints = self.chat_endpoints().await?;
        let current_project = subjects.context.last.and_then(|task| subjects.projects.get(&task));
        let of_task = endpoints.iter().find(|(project, _)| Some(project) == current_project);
        let Some((_, endpoint)) = of_task.or(endpoints.first()) else {
            return Ok(ParsedMessage::default());
        };
        // Only the model that a project has configured may see its tasks.
        let projects =
            endpoints.iter().filter(|(_, it)| it == endpoint).map(|(project, _)| *project);
        let context = context_for_projects(subjects, &projects.collect());
        let question = tamma_chat::model_prompt(message, &context);
        let message_without_secrets = self.redact_secrets(&question.message);
        let key = self.environment.get(ChatReader::KEY_VARIABLE).cloned();
        let (url, model) = endpoint;
        let answer = match ChatReader::new(url, model, key) {
            Ok(reader) => {
                reader
                    .read(&question.instructions, &message_without_secrets, &question.answer_schema)
                    .await
            }
            Err(error) => Err(error),
        };
        let reason = match answer {
            Ok(answer) => match tamma_chat::interpret_model_answer(&answer, message, &context) {
                Ok(understood) => {
                    let understood = Some(understood);
                    return Ok(ParsedMessage {
                        understood,
                        parser: MessageParser::Model,
                        note: None,
                    });
                }
                Err(error) => {
                    format!("the response of model `{model}` was rejected: {error}")
                }
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(%reason, "chat model failed; used the built-in grammar");
        Ok(ParsedMessage {
            note: Some(format!("Parsed by the built-in grammar: {reason}.")),
            ..ParsedMessage::default()
        })
    }

    /// Returns the chat model of each project. Projects with configuration errors are left out.
    async fn chat_endpoints(&self) -> Result<Vec<(ProjectId, (String, String))>, Error> {
        let mut endpoints = Vec::new();
        for project in self.store.projects().await? {
            let Ok(rules) = self.project_rules(&project.repository).await else { continue };
            let endpoint = rules.chat.endpoint();
            let endpoint = endpoint.map(|(url, model)| (url.to_owned(), model.to_owned()));
            endpoints.extend(endpoint.map(|endpoint| (project.id, endpoint)));
        }
        Ok(endpoints)
    }

    /// Redacts the values of environment variables whose names mark them as secrets.
    fn redact_secrets(&self, text: &str) -> String {
        Redactor::new(self.secret_values()).redact(text).into_owned()
    }
}

/// Restricts a context to some projects.
fn context_for_projects(subjects: &ChatSubjects, projects: &BTreeSet<ProjectId>) -> ChatContext {
    // Messages about stories never reach a model.
    let ChatContext { tasks, lessons, stories: _, last, proposed } = subjects.context.clone();
    let of = |task| subjects.projects.get(&task).is_some_and(|it| projects.contains(it));
    let covers = |scope: &EntryScope| match scope {
        EntryScope::Project(project) => projects.contains(project),
        EntryScope::Organisation => true,
    };
    ChatContext {
        tasks: tasks.into_iter().filter(|task| of(task.id)).collect(),
        lessons: lessons
            .into_iter()
            .filter(|lesson| subjects.scopes.get(&lesson.id).is_some_and(covers))
            .collect(),
        stories: Vec::new(),
        last: last.filter(|task| of(*task)),
        proposed,
    }
}
