//! Prompt templates of agents: the built-in ones, and those that a project replaces.
//!
//! A task keeps the prompts that it was prepared with, as it keeps its rules. Their digest is part
//! of its pin, so an approval is bound to them. Variables are only ever added, because templates of
//! older tasks and of projects use them.

mod check;
mod facts;

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, IntoEnumIterator as _};
use tamma_core::ids::Digest;

pub use check::{PromptProblem, check_prompt};
pub(crate) use facts::{budget_text, criteria_data, plan_data, shown_gates, task_facts};

use crate::error::Error;

/// Purpose of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Prompt {
    Plan,
    Implement,
    /// Next attempt in the session of the last one.
    Continue,
    /// Failure brief, which becomes part of other prompts.
    Brief,
    Validate,
    Advise,
    Conclude,
    Learn,
    /// Phase of a pipeline.
    Phase,
    /// Split of a story into tasks.
    Split,
}

impl Prompt {
    /// Returns the built-in template.
    fn built_in(self) -> &'static str {
        match self {
            Self::Plan => include_str!("prompts/plan.md"),
            Self::Implement => include_str!("prompts/implement.md"),
            Self::Continue => include_str!("prompts/continue.md"),
            Self::Brief => include_str!("prompts/brief.md"),
            Self::Validate => include_str!("prompts/validate.md"),
            Self::Advise => include_str!("prompts/advise.md"),
            Self::Conclude => include_str!("prompts/conclude.md"),
            Self::Learn => include_str!("prompts/learn.md"),
            Self::Phase => include_str!("prompts/phase.md"),
            Self::Split => include_str!("prompts/split.md"),
        }
    }
}

/// Prompt for an agent, with the digest of its template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenderedPrompt {
    pub(crate) name: Prompt,
    pub(crate) template: Digest,
    pub(crate) text: String,
}

/// Templates of a task, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PromptSet(BTreeMap<String, String>);

impl Default for PromptSet {
    /// Returns the built-in templates.
    fn default() -> Self {
        Self(Prompt::iter().map(|it| (it.to_string(), it.built_in().to_owned())).collect())
    }
}

impl PromptSet {
    /// Replaces a template by its name.
    pub(crate) fn replace(&mut self, name: &str, template: String) {
        self.0.insert(name.to_owned(), template);
    }

    /// Returns the text that is stored. Its hash identifies the set.
    pub(crate) fn to_text(&self) -> String {
        // Serialising a map of texts cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a stored set.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text)
            .map_err(|error| Error::Internal(format!("cannot read stored prompts: {error}")))
    }

    /// Renders a prompt.
    pub(crate) fn render(
        &self,
        prompt: Prompt,
        data: impl Serialize,
    ) -> Result<RenderedPrompt, Error> {
        let name = prompt.to_string();
        // A set from before this prompt existed lacks it.
        let template = self.0.get(&name).map_or(prompt.built_in(), String::as_str);
        let text = render_template(&name, template, data)
            .map_err(|error| Error::Configuration(format!("cannot render a prompt: {error}")))?;
        Ok(RenderedPrompt { name: prompt, template: Digest::of(template.as_bytes()), text })
    }
}

fn render_template(
    name: &str,
    template: &str,
    data: impl Serialize,
) -> Result<String, minijinja::Error> {
    environment()?.render_named_str(name, template, Value::from(Serde(data)))
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    Ok(environment)
}

#[cfg(test)]
mod tests;
