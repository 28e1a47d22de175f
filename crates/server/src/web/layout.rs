//! Layout around every page: navigation, notices and preferences.

use chrono::{DateTime, Utc};
use tamma_core::format::format_duration;

use super::assets::ASSETS_PATH;
use super::session::Session;
use super::{PageError, WebState};
use crate::app::{App, Error};
use crate::clock;
use crate::web::labels;

/// Values of the layout around a page.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) assets: &'static str,
    pub(super) csrf: String,
    pub(super) editor: &'static EditorChoice,
    pub(super) editors: &'static [EditorChoice],
    pub(super) shortcuts: &'static str,
    pub(super) nav: &'static str,
    /// Reason of maintenance, during which no runs start.
    pub(super) maintenance: Option<String>,
    pub(super) notice: Option<Notice>,
    pub(super) now: DisplayTime,
    pub(super) person: String,
    pub(super) role: &'static str,
    pub(super) theme: &'static str,
    pub(super) version: &'static str,
    /// Number of tasks and stories that need a decision.
    pub(super) waiting: u64,
}

/// Editor that links to files open.
#[derive(Debug)]
pub(super) struct EditorChoice {
    pub(super) value: &'static str,
    pub(super) name: &'static str,
    /// Link with `{path}` and `{line}`; empty without links.
    pub(super) link: &'static str,
}

/// Editors that a person can choose. The first one is the default.
pub(super) static EDITORS: [EditorChoice; 6] = [
    EditorChoice { value: "none", name: "No editor", link: "" },
    EditorChoice { value: "vscode", name: "VS Code", link: "vscode://file{path}:{line}" },
    EditorChoice { value: "cursor", name: "Cursor", link: "cursor://file{path}:{line}" },
    EditorChoice { value: "zed", name: "Zed", link: "zed://file{path}:{line}" },
    EditorChoice { value: "idea", name: "JetBrains", link: "idea://open?file={path}&line={line}" },
    EditorChoice {
        value: "sublime",
        name: "Sublime Text",
        link: "subl://open?url=file://{path}&line={line}",
    },
];

impl EditorChoice {
    /// Returns the editor with this value, or the default.
    pub(super) fn find(value: Option<&str>) -> &'static Self {
        EDITORS.iter().find(|it| Some(it.value) == value).unwrap_or(&EDITORS[0])
    }
}

/// Message shown at the top of the next page.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    pub(super) tone: &'static str,
    pub(super) text: String,
}

impl Notice {
    pub(super) fn success(text: impl Into<String>) -> Self {
        Self { tone: "good", text: text.into() }
    }

    /// Encodes the notice as a cookie value of at most 300 characters.
    pub(super) fn to_cookie(&self) -> String {
        let text: String = self.text.chars().take(300).collect();
        form_urlencoded::byte_serialize(format!("{} {text}", self.tone).as_bytes()).collect()
    }

    pub(super) fn from_cookie(cookie: &str) -> Option<Self> {
        let pairs = format!("n={cookie}");
        let (_, text) = form_urlencoded::parse(pairs.as_bytes()).next()?;
        let (tone, text) = text.split_once(' ')?;
        let tone = ["good", "info", "bad"].into_iter().find(|allowed| *allowed == tone)?;
        Some(Self { tone, text: text.to_owned() })
    }
}

/// Point in time, as ISO 8601 and as text.
#[derive(Debug, Clone)]
pub(super) struct DisplayTime {
    pub(super) iso: String,
    pub(super) text: String,
}

impl DisplayTime {
    /// Shows the time of day, with the date if it is not today.
    pub(super) fn absolute(at: DateTime<Utc>) -> Self {
        Self { iso: iso(at), text: labels::format_time(at, clock::now()) }
    }

    /// Shows the time of a log line to the second. The page's script shows local times; without it,
    /// they are marked as UTC.
    pub(super) fn of_log_line(at: DateTime<Utc>) -> Self {
        let is_today = at.date_naive() == clock::now().date_naive();
        let format = if is_today { "%H:%M:%S UTC" } else { "%Y-%m-%d %H:%M:%S UTC" };
        Self { iso: iso(at), text: at.format(format).to_string() }
    }

    /// Shows the time since then, such as "3 min ago".
    pub(super) fn ago(at: DateTime<Utc>) -> Self {
        Self { iso: iso(at), text: format!("{} ago", format_duration(clock::now() - at)) }
    }

    /// Shows the duration since then, such as "3 min".
    pub(super) fn elapsed(since: DateTime<Utc>) -> Self {
        Self { iso: iso(since), text: format_duration(clock::now() - since) }
    }
}

fn iso(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// Hyperlink.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) href: String,
    pub(super) text: String,
}

impl Link {
    pub(super) fn new(href: impl Into<String>, text: impl Into<String>) -> Self {
        Self { href: href.into(), text: text.into() }
    }
}

/// Tab of a page.
#[derive(Debug, Clone)]
pub(super) struct Tab {
    pub(super) href: String,
    pub(super) name: &'static str,
    pub(super) note: String,
    pub(super) tone: &'static str,
    pub(super) is_current: bool,
}

/// Option of a select field.
#[derive(Debug, Clone)]
pub(super) struct SelectOption {
    pub(super) value: String,
    pub(super) text: String,
    pub(super) selected: bool,
}

impl SelectOption {
    pub(super) fn new(value: impl Into<String>, text: impl Into<String>, chosen: &str) -> Self {
        let value = value.into();
        Self { selected: value == chosen, value, text: text.into() }
    }
}

/// Select field with its options.
#[derive(Debug, Clone)]
pub(super) struct SelectField {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) options: Vec<SelectOption>,
}

impl Layout {
    /// Builds the layout without reading the store.
    pub(super) fn for_session(session: &Session) -> Self {
        Self {
            csrf: session.csrf_token(),
            editor: session.editor,
            shortcuts: session.shortcuts,
            notice: session.notice.clone(),
            person: session.person.as_ref().map(ToString::to_string).unwrap_or_default(),
            theme: session.theme,
            ..Self::anonymous()
        }
    }

    /// Builds the layout of a page without a session.
    pub(super) fn anonymous() -> Self {
        Self {
            assets: ASSETS_PATH.as_str(),
            csrf: String::new(),
            editor: EditorChoice::find(None),
            editors: &EDITORS,
            shortcuts: "on",
            nav: "",
            maintenance: None,
            notice: None,
            now: DisplayTime::absolute(clock::now()),
            person: String::new(),
            role: "permissions are set per project",
            theme: "auto",
            version: env!("CARGO_PKG_VERSION"),
            waiting: 0,
        }
    }

    /// Builds the layout of a section of the site, with the number of open decisions, and maintenance.
    pub(super) async fn for_page(
        state: &WebState,
        session: &Session,
        nav: &'static str,
    ) -> Result<Self, PageError> {
        let layout = Self { nav, ..Self::for_session(session) };
        match read_status(&state.app).await {
            Ok((waiting, maintenance)) => Ok(Self { maintenance, waiting, ..layout }),
            Err(error) => Err(PageError::new(layout, error)),
        }
    }
}

/// Returns the number of open decisions, and the reason of maintenance.
async fn read_status(app: &App) -> Result<(u64, Option<String>), Error> {
    let waiting = app.store.count_waiting(None).await?;
    let maintenance = app.maintenance().await?.maintenance;
    Ok((waiting, maintenance.map(|it| it.reason)))
}
