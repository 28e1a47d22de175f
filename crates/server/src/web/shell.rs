//! What every page has around it.

use chrono::{DateTime, Utc};

use super::assets::PLACE;
use super::door::Visitor;
use super::{Hall, Oops};
use crate::app::{App, Error};
use crate::clock;
use crate::web::words;

/// What is around a page.
#[derive(Clone)]
pub(super) struct Shell {
    pub(super) assets: &'static str,
    pub(super) csrf: String,
    pub(super) keys: &'static str,
    pub(super) nav: &'static str,
    pub(super) notice: Notice,
    pub(super) now: When,
    pub(super) person: String,
    pub(super) role: &'static str,
    pub(super) theme: &'static str,
    pub(super) version: &'static str,
    /// How many tasks wait for a person.
    pub(super) waiting: u64,
}

/// What somebody is told at the top of the next page.
#[derive(Debug, Clone, Default)]
pub(super) struct Notice {
    pub(super) tone: String,
    pub(super) text: String,
}

impl Notice {
    pub(super) fn good(text: impl Into<String>) -> Self {
        Self { tone: "good".to_owned(), text: text.into() }
    }

    /// As a cookie.
    pub(super) fn write(&self) -> String {
        let text: String = self.text.chars().take(300).collect();
        form_urlencoded::byte_serialize(format!("{} {text}", self.tone).as_bytes()).collect()
    }

    pub(super) fn read(cookie: &str) -> Option<Self> {
        let pairs = format!("n={cookie}");
        let (_, text) = form_urlencoded::parse(pairs.as_bytes()).next()?;
        let (tone, text) = text.split_once(' ')?;
        let tone = ["good", "info", "bad"].into_iter().find(|known| *known == tone)?;
        Some(Self { tone: tone.to_owned(), text: text.to_owned() })
    }
}

/// A moment, for programs and for people.
#[derive(Debug, Clone)]
pub(super) struct When {
    pub(super) iso: String,
    pub(super) text: String,
}

impl When {
    /// By the clock.
    pub(super) fn clock(at: DateTime<Utc>) -> Self {
        Self { iso: iso(at), text: words::moment(at, clock::now()) }
    }

    /// How long ago it was.
    pub(super) fn ago(at: DateTime<Utc>) -> Self {
        Self { iso: iso(at), text: format!("{} ago", words::lasting(clock::now() - at)) }
    }

    /// For how long it has been so.
    pub(super) fn lasting(since: DateTime<Utc>) -> Self {
        Self { iso: iso(since), text: words::lasting(clock::now() - since) }
    }
}

fn iso(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// Something to follow.
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

/// A part of a page that has a page of its own.
#[derive(Debug, Clone)]
pub(super) struct Tab {
    pub(super) href: String,
    pub(super) name: &'static str,
    pub(super) note: String,
    pub(super) tone: &'static str,
    pub(super) here: bool,
}

/// One of several to choose.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) text: String,
    pub(super) selected: bool,
}

impl Choice {
    pub(super) fn new(value: impl Into<String>, text: impl Into<String>, chosen: &str) -> Self {
        let value = value.into();
        Self { selected: value == chosen, value, text: text.into() }
    }
}

/// Several to choose from.
#[derive(Debug, Clone)]
pub(super) struct Select {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) options: Vec<Choice>,
}

impl Shell {
    /// Around a page that needs nothing of the store.
    pub(super) fn of(visitor: &Visitor) -> Self {
        Self {
            csrf: visitor.csrf(),
            keys: visitor.keys,
            notice: visitor.notice.clone().unwrap_or_default(),
            person: visitor.person.as_ref().map(ToString::to_string).unwrap_or_default(),
            theme: visitor.theme,
            ..Self::bare()
        }
    }

    /// Around a page for nobody in particular.
    pub(super) fn bare() -> Self {
        Self {
            assets: PLACE.as_str(),
            csrf: String::new(),
            keys: "on",
            nav: "",
            notice: Notice::default(),
            now: When::clock(clock::now()),
            person: String::new(),
            role: "what you may do is for each project's rules to say",
            theme: "auto",
            version: env!("CARGO_PKG_VERSION"),
            waiting: 0,
        }
    }

    /// Around a page of a part of the site.
    pub(super) async fn at(
        hall: &Hall,
        visitor: &Visitor,
        nav: &'static str,
    ) -> Result<Self, Oops> {
        let shell = Self { nav, ..Self::of(visitor) };
        let waiting = count_waiting(&hall.app).await;
        waiting
            .map(|waiting| Self { waiting, ..shell.clone() })
            .map_err(|error| Oops::new(shell, error))
    }
}

async fn count_waiting(app: &App) -> Result<u64, Error> {
    Ok(app.store.waiting(None).await?)
}
