//! Account page: the person's sessions and access tokens.

use askama::Template;
use chrono::TimeDelta;
use tamma_core::format::pluralize;
use tamma_store::OpenSession;

use super::form_fields::FormFields;
use super::layout::{DisplayTime, Layout, Notice};
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, render};
use crate::app::Error;
use crate::clock;
use crate::dto::{NewToken, SessionView, TokenView};

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    layout: Layout,
    sessions: Vec<SessionRow>,
    tokens: Vec<TokenRow>,
    /// Token that was just created; empty without one.
    new_token: String,
}

struct SessionRow {
    id: String,
    kind: &'static str,
    client: String,
    method: String,
    opened: DisplayTime,
    used: Option<DisplayTime>,
    is_current: bool,
}

struct TokenRow {
    id: String,
    label: String,
    limit: String,
    created: DisplayTime,
    used: Option<DisplayTime>,
    status: String,
    is_active: bool,
}

/// Renders the page.
pub(super) async fn page(state: WebState, session: Session) -> PageResult {
    render_account(&state, &session, String::new()).await
}

async fn render_account(state: &WebState, session: &Session, new_token: String) -> PageResult {
    let page_error = |error: Error| PageError::new(Layout::for_session(session), error);
    let layout = Layout::for_page(state, session, "account").await?;
    let by = session.acting_person().map_err(page_error)?;
    let name = by.name.to_string();
    let sessions = state.app.list_sessions(&by, Some(&name)).await.map_err(page_error)?;
    let tokens = state.app.list_tokens(&by, Some(&name)).await.map_err(page_error)?;
    let current = OpenSession::id_of(session.hash());
    render(&AccountPage {
        layout,
        sessions: sessions.sessions.into_iter().map(|it| session_row(it, &current)).collect(),
        tokens: tokens.tokens.into_iter().map(token_row).collect(),
        new_token,
    })
}

fn session_row(session: SessionView, current: &str) -> SessionRow {
    SessionRow {
        is_current: session.id == current,
        id: session.id,
        kind: if session.kind == "cli" { "Command line" } else { "Browser" },
        client: session.client.unwrap_or_else(|| "unknown".to_owned()),
        method: session.auth_method.replace('_', " "),
        opened: DisplayTime::ago(session.created_at),
        used: session.last_used_at.map(DisplayTime::ago),
    }
}

fn token_row(token: TokenView) -> TokenRow {
    let now = clock::now();
    let (status, is_active) = match (token.revoked_at, token.expires_at) {
        (Some(_), _) => ("revoked".to_owned(), false),
        (None, Some(end)) if end <= now => ("expired".to_owned(), false),
        (None, Some(end)) => (format!("active until {}", end.format("%Y-%m-%d")), true),
        (None, None) => ("active".to_owned(), true),
    };
    let role =
        token.role.map_or_else(|| "all your roles".to_owned(), |role| format!("{role} at most"));
    let limit = match token.projects {
        Some(projects) => {
            format!("{role}, {}", pluralize(projects.len(), "project"))
        }
        None => role,
    };
    TokenRow {
        id: token.id.to_string(),
        label: token.label,
        limit,
        created: DisplayTime::ago(token.created_at),
        used: token.last_used_at.map(DisplayTime::ago),
        status,
        is_active,
    }
}

/// Revokes a session.
pub(super) async fn revoke_session(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let id = fields.text("id");
    let revoked = async { state.app.revoke_session(&session.acting_person()?, &id).await };
    revoked.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    redirect_with_notice("/account", &Notice::success("Session revoked."))
}

/// Creates a token and shows it once.
pub(super) async fn create_token(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let created = async {
        let days = fields.non_empty("days").map(|days| parse_days(&days)).transpose()?;
        let new = NewToken {
            label: fields.text("label"),
            role: fields.non_empty("role"),
            expires_at: days.map(|days| clock::now() + TimeDelta::days(days)),
            ..NewToken::default()
        };
        state.app.create_token(&session.acting_person()?, &new).await
    };
    let created =
        created.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    render_account(&state, &session, created.secret).await
}

/// Parses the days until a token expires. A mistake must not make a token that never does.
fn parse_days(text: &str) -> Result<i64, Error> {
    let days = text.trim().parse::<i64>().ok().filter(|days| (1..=3650).contains(days));
    days.ok_or_else(|| {
        Error::invalid(
            "A token must expire within 1 to 3650 days.",
            "Enter a number of days, or nothing for a token without an end.",
        )
    })
}

/// Revokes a token.
pub(super) async fn revoke_token(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let revoked = async {
        let id = fields.text("id");
        let unknown = || Error::NotFound { what: "token", key: id.chars().take(40).collect() };
        let id = id.parse().map_err(|_| unknown())?;
        state.app.revoke_token(&session.acting_person()?, id).await
    };
    revoked.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    redirect_with_notice("/account", &Notice::success("Token revoked."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_makes_no_token_without_an_end() {
        assert_eq!(parse_days(" 90 ").ok(), Some(90));
        for text in ["0", "-1", "3651", "soon", "1.5", "99999999999999999999"] {
            assert!(parse_days(text).is_err(), "{text}");
        }
    }
}
