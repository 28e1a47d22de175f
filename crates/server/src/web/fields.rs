//! What a form says.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;

use super::door::Visitor;
use super::shell::Shell;
use super::{Hall, Oops};
use crate::problem::Problem;

/// The fields of a form that one of our own pages has sent, in their order.
#[derive(Debug)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// A field, without the space around it; empty where it is not there.
    pub(super) fn text(&self, name: &str) -> String {
        self.0
            .iter()
            .find(|(field, _)| field == name)
            // Browsers end lines with two characters.
            .map(|(_, value)| value.replace("\r\n", "\n").trim().to_owned())
            .unwrap_or_default()
    }

    /// A field, if something was written in it.
    pub(super) fn given(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Every field of a name, also those that are empty.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let named = self.0.iter().filter(|(field, _)| field == name);
        named.map(|(_, value)| value.replace("\r\n", "\n").trim().to_owned()).collect()
    }

    /// The lines of a field in which something is written.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Everything that a person wrote, to be given back when it cannot be taken.
    pub(super) fn written(&self) -> String {
        let hidden = ["csrf", "key", "id", "plan", "commit", "action", "back", "revision"];
        let written = self
            .0
            .iter()
            .filter(|(name, value)| !hidden.contains(&name.as_str()) && !value.trim().is_empty());
        written.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
    }
}

impl FromRequest<Hall> for Fields {
    type Rejection = Oops;

    async fn from_request(request: Request, state: &Hall) -> Result<Self, Oops> {
        let visitor = request.extensions().get::<Visitor>().cloned();
        let Some(visitor) = visitor else {
            return Err(Oops::new(Shell::bare(), stranger()));
        };
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            let problem = Problem::unreadable(rejection.status(), rejection.body_text());
            Oops::new(Shell::bare(), problem)
        })?;
        let fields: Vec<(String, String)> = form_urlencoded::parse(&body).into_owned().collect();
        let fields = Self(fields);
        if fields.text("csrf") != visitor.csrf() {
            let shell = Shell::of(&visitor);
            return Err(Oops::new(shell, stranger()).keeping(fields.written()));
        }
        Ok(fields)
    }
}

fn stranger() -> Problem {
    let title = "This form is not from a page of yours";
    let detail = "It was sent by another page, or from a page that has been open for too long.";
    Problem::new(StatusCode::FORBIDDEN, "form", title, detail)
        .hint("Go back, load the page again, and send it once more.")
}
