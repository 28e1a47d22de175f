//! Fields of submitted forms.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;

use super::layout::Layout;
use super::session::Session;
use super::{PageError, WebServices};
use crate::problem::Problem;

/// Fields of a form, in order. Forms from other sites are refused.
#[derive(Debug)]
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Returns a trimmed field; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> String {
        self.0
            .iter()
            .find(|(field, _)| field == name)
            // Browsers send CRLF line endings.
            .map(|(_, value)| value.replace("\r\n", "\n").trim().to_owned())
            .unwrap_or_default()
    }

    /// Returns a field, or `None` if it is empty.
    pub(super) fn non_empty(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Returns every field with this name, including empty ones.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let named = self.0.iter().filter(|(field, _)| field == name);
        named.map(|(_, value)| value.replace("\r\n", "\n").trim().to_owned()).collect()
    }

    /// Returns the non-empty lines of a field.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Returns all text that the person typed, to show it again if the form is refused.
    pub(super) fn user_text(&self) -> String {
        let hidden = [
            "csrf", "key", "id", "plan", "commit", "action", "back", "revision", "then", "side",
            "line", "view", "anchor", "how", "quiet", "digest",
        ];
        let written = self
            .0
            .iter()
            .filter(|(name, value)| !hidden.contains(&name.as_str()) && !value.trim().is_empty());
        written.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
    }
}

impl FromRequest<WebServices> for FormFields {
    type Rejection = PageError;

    async fn from_request(request: Request, state: &WebServices) -> Result<Self, PageError> {
        let session = request.extensions().get::<Session>().cloned();
        let Some(session) = session else {
            return Err(PageError::new(Layout::anonymous(), csrf_problem()));
        };
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            let problem = Problem::unreadable(rejection.status(), rejection.body_text());
            PageError::new(Layout::anonymous(), problem)
        })?;
        let fields: Vec<(String, String)> = form_urlencoded::parse(&body).into_owned().collect();
        let fields = Self(fields);
        if fields.text("csrf") != session.csrf_token() {
            let layout = Layout::for_session(&session);
            return Err(PageError::new(layout, csrf_problem()).with_unsent_text(fields.user_text()));
        }
        Ok(fields)
    }
}

fn csrf_problem() -> Problem {
    let title = "Form refused";
    let detail = "The form was submitted from another site, or the page was open for too long.";
    Problem::new(StatusCode::FORBIDDEN, "form", title, detail)
        .hint("Go back, reload the page and submit the form again.")
}
