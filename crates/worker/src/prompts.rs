//! Prompt templates of agents.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

use crate::error::Error;

/// Purpose of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prompt {
    Plan,
    Implement,
    Validate,
    Advise,
    Conclude,
    Learn,
}

/// Renders the template of a prompt.
pub(crate) fn render(prompt: Prompt, about: impl Serialize) -> Result<String, Error> {
    let (name, template) = match prompt {
        Prompt::Plan => ("plan", include_str!("prompts/plan.md")),
        Prompt::Implement => ("implement", include_str!("prompts/implement.md")),
        Prompt::Validate => ("validate", include_str!("prompts/validate.md")),
        Prompt::Advise => ("advise", include_str!("prompts/advise.md")),
        Prompt::Conclude => ("conclude", include_str!("prompts/conclude.md")),
        Prompt::Learn => ("learn", include_str!("prompts/learn.md")),
    };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| Error::Internal(error.to_string()))?,
    );
    environment
        .render_named_str(name, template, Value::from(Serde(about)))
        .map_err(|error| Error::Internal(format!("cannot render the prompt `{name}`: {error}")))
}
