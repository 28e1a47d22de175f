//! Messages as a model reads them, where the project has one. The grammar is always there.

use std::collections::BTreeSet;

use tamma_chat::{Context, Understood};
use tamma_connect::model::Reader;
use tamma_core::ids::ProjectId;
use tamma_core::knowledge::Scope;

use super::Known;
use crate::app::{App, Error};
use crate::shape::ReadBy;

/// A shorter value of a variable is in too many harmless texts to be taken out of them.
const SHORTEST: usize = 8;

/// How a message was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// What a model understood. The grammar reads it where there is nothing here.
    pub(super) understood: Option<Understood>,
    pub(super) by: ReadBy,
    /// Why it was not the model, for the person.
    pub(super) note: Option<String>,
}

impl App {
    /// The name of the model that reads messages, if one is configured.
    pub(crate) async fn chat_model(&self) -> Result<Option<String>, Error> {
        Ok(self.endpoints().await?.into_iter().next().map(|(_, (_, model))| model))
    }

    /// Asks the model of the project that is spoken of, if it has one.
    pub(super) async fn read_by_model(&self, message: &str, known: &Known) -> Result<Read, Error> {
        let endpoints = self.endpoints().await?;
        let spoken_of = known.context.last.and_then(|task| known.projects.get(&task));
        let of_task = endpoints.iter().find(|(project, _)| Some(project) == spoken_of);
        let Some((_, endpoint)) = of_task.or(endpoints.first()) else { return Ok(Read::default()) };
        // A project's tasks are shown to the model that the project has chosen, and to no other.
        let mine = endpoints.iter().filter(|(_, it)| it == endpoint).map(|(project, _)| *project);
        let context = shown(known, &mine.collect());
        let question = tamma_chat::question(message, &context);
        let asked = self.without_our_secrets(&question.message);
        let key = self.environment.get(Reader::KEY).cloned();
        let (url, model) = endpoint;
        let answer = match Reader::new(url, model, key) {
            Ok(reader) => reader.read(&question.instructions, &asked, &question.form).await,
            Err(error) => Err(error),
        };
        let why = match answer {
            Ok(answer) => match tamma_chat::answered(&answer, message, &context) {
                Ok(understood) => {
                    let understood = Some(understood);
                    return Ok(Read { understood, by: ReadBy::Model, note: None });
                }
                Err(nonsense) => format!("the model `{model}` was not of use, because {nonsense}"),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(%why, "the grammar reads a message in place of the model");
        Ok(Read { note: Some(format!("Read by the small grammar: {why}.")), ..Read::default() })
    }

    /// The projects that have a model for the chat. One whose file has mistakes in it has none.
    async fn endpoints(&self) -> Result<Vec<(ProjectId, (String, String))>, Error> {
        let mut found = Vec::new();
        for project in self.store.projects().await? {
            let Ok(rules) = self.rules_of(&project.repository).await else { continue };
            let endpoint = rules.chat.endpoint();
            let endpoint = endpoint.map(|(url, model)| (url.to_owned(), model.to_owned()));
            found.extend(endpoint.map(|endpoint| (project.id, endpoint)));
        }
        Ok(found)
    }

    /// A text without the values of variables of ours that are secrets by their names.
    fn without_our_secrets(&self, text: &str) -> String {
        let secret = |name: &str| {
            ["KEY", "TOKEN", "SECRET", "PASSWORD"].iter().any(|end| name.ends_with(end))
        };
        let secrets = self
            .environment
            .iter()
            .filter(|(name, value)| secret(&name.to_ascii_uppercase()) && value.len() >= SHORTEST);
        secrets.fold(text.to_owned(), |text, (_, value)| text.replace(value, "[redacted]"))
    }
}

/// What can be spoken of in some projects.
fn shown(known: &Known, projects: &BTreeSet<ProjectId>) -> Context {
    let Context { tasks, lessons, last, proposed } = known.context.clone();
    let of = |task| known.projects.get(&task).is_some_and(|it| projects.contains(it));
    let covers = |scope: &Scope| match scope {
        Scope::Project(project) => projects.contains(project),
        Scope::Organisation => true,
    };
    Context {
        tasks: tasks.into_iter().filter(|task| of(task.id)).collect(),
        lessons: lessons
            .into_iter()
            .filter(|lesson| known.scopes.get(&lesson.id).is_some_and(covers))
            .collect(),
        last: last.filter(|task| of(*task)),
        proposed,
    }
}
