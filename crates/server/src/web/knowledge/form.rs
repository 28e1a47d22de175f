//! Writing an entry down, and changing its words.

use askama::Template;
use axum::extract::{Path, State};
use chrono::NaiveDate;
use strum::IntoEnumIterator as _;
use tamma_core::ids::KnowledgeId;
use tamma_core::knowledge::{Entry, Kind, Scope, Severity, Status};
use tamma_core::plan::Action;
use tamma_core::task::TaskType;

use super::super::board::word;
use super::super::door::{Visitor, done};
use super::super::fields::Fields;
use super::super::shell::{Choice, Notice, Shell};
use super::super::{Hall, Oops, Page, render};
use crate::app::Error;
use crate::clock;
use crate::problem::Problem;
use crate::shape::{KnowledgeEdit, NewKnowledge};

#[derive(Template)]
#[template(path = "knowledge_form.html")]
struct FormPage {
    shell: Shell,
    faults: Vec<String>,
    form: Form,
}

struct Form {
    title: &'static str,
    action: String,
    edit: bool,
    revision: String,
    id: String,
    button: &'static str,
    consequence: &'static str,
    kinds: Vec<Meant>,
    text: String,
    scopes: Vec<Choice>,
    globs: String,
    keywords: String,
    task_types: Vec<Choice>,
    actions: Vec<Choice>,
    pattern: String,
    severities: Vec<Meant>,
    owner: String,
    expires_at: String,
    evidence: String,
}

/// One of several, with what it means.
struct Meant {
    value: String,
    text: String,
    what: &'static str,
    selected: bool,
}

/// What is in the fields, before anybody has looked at it.
struct Said {
    id: String,
    revision: String,
    kind: String,
    text: String,
    scope: String,
    globs: String,
    keywords: String,
    task_types: Vec<String>,
    actions: Vec<String>,
    pattern: String,
    severity: String,
    owner: String,
    expires_at: String,
    evidence: String,
}

impl Said {
    fn nothing() -> Self {
        Self {
            id: clock::new_id().to_string(),
            revision: String::new(),
            kind: word(&Kind::Recommendation),
            text: String::new(),
            scope: String::new(),
            globs: String::new(),
            keywords: String::new(),
            task_types: Vec::new(),
            actions: Vec::new(),
            pattern: String::new(),
            severity: word(&Severity::Medium),
            owner: String::new(),
            expires_at: String::new(),
            evidence: String::new(),
        }
    }

    fn of(fields: &Fields) -> Self {
        Self {
            id: fields.text("id"),
            revision: fields.text("revision"),
            kind: fields.text("kind"),
            text: fields.text("text"),
            scope: fields.text("scope"),
            globs: fields.text("globs"),
            keywords: fields.text("keywords"),
            task_types: fields.all("task_types"),
            actions: fields.all("actions"),
            pattern: fields.text("pattern"),
            severity: fields.text("severity"),
            owner: fields.text("owner"),
            expires_at: fields.text("expires_at"),
            evidence: fields.text("evidence"),
        }
    }

    fn from_entry(entry: &Entry, revision: u64, scope: String) -> Self {
        Self {
            id: entry.id.to_string(),
            revision: revision.to_string(),
            kind: word(&entry.kind),
            text: entry.text.clone(),
            scope,
            globs: entry.globs.join("\n"),
            keywords: entry.keywords.join("\n"),
            task_types: entry.task_types.iter().map(word).collect(),
            actions: entry.actions.iter().map(word).collect(),
            pattern: entry.pattern.clone().unwrap_or_default(),
            severity: word(&entry.severity),
            owner: entry.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
            expires_at: entry.expires_at.map(|at| at.date_naive().to_string()).unwrap_or_default(),
            evidence: entry.evidence.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        }
    }
}

async fn show(hall: &Hall, visitor: &Visitor, said: Said, edit: bool, faults: Vec<String>) -> Page {
    let shell = Shell::at(hall, visitor, "knowledge").await?;
    let projects = hall.app.store.projects().await;
    let projects = projects.map_err(|error| Oops::new(Shell::of(visitor), Error::from(error)))?;
    let first = projects.first().map(|project| project.name.clone()).unwrap_or_default();
    let scope = if said.scope.is_empty() { first } else { said.scope.clone() };
    let scopes = projects
        .iter()
        .map(|it| Choice::new(&it.name, format!("in {}", it.name), &scope))
        .chain([Choice::new("organisation", "in every project", &scope)]);
    let kinds = Kind::iter().map(|kind| Meant {
        value: word(&kind),
        text: kind.to_string(),
        what: match kind {
            Kind::Recommendation => "do it this way",
            Kind::Prohibition => "never do this; a critical one stops plans",
            Kind::Convention => "how it is done here",
            Kind::Learning => "what happened, and what came of it",
        },
        selected: word(&kind) == said.kind,
    });
    let severities = Severity::iter().map(|severity| Meant {
        value: word(&severity),
        text: severity.to_string(),
        what: match severity {
            Severity::Low => "a matter of taste",
            Severity::Medium => "costs somebody an hour",
            Severity::High => "breaks something",
            Severity::Critical => "no plan that does it goes on without a person",
        },
        selected: word(&severity) == said.severity,
    });
    let types = TaskType::iter().map(|it| Choice {
        selected: said.task_types.contains(&word(&it)),
        value: word(&it),
        text: it.to_string(),
    });
    let actions =
        [(Action::Create, "created"), (Action::Modify, "changed"), (Action::Delete, "deleted")];
    let actions = actions.into_iter().map(|(action, text)| Choice {
        selected: said.actions.contains(&word(&action)),
        value: word(&action),
        text: text.to_owned(),
    });
    let form = Form {
        title: if edit { "Edit an entry" } else { "Add an entry" },
        action: if edit { format!("/knowledge/{}/edit", said.id) } else { "/knowledge".to_owned() },
        edit,
        button: if edit { "Keep this wording" } else { "Add it" },
        consequence: if edit {
            "Another wording is pending again: until somebody approves it, the entry has no effect."
        } else {
            "It is pending: until somebody approves it, it has no effect."
        },
        kinds: kinds.collect(),
        scopes: scopes.collect(),
        task_types: types.collect(),
        actions: actions.collect(),
        severities: severities.collect(),
        revision: said.revision,
        id: said.id,
        text: said.text,
        globs: said.globs,
        keywords: said.keywords,
        pattern: said.pattern,
        owner: said.owner,
        expires_at: said.expires_at,
        evidence: said.evidence,
    };
    let bad = !faults.is_empty();
    let mut page = render(&FormPage { shell, faults, form })?;
    if bad {
        *page.status_mut() = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
    }
    Ok(page)
}

pub(in crate::web) async fn new(State(hall): State<Hall>, visitor: Visitor) -> Page {
    show(&hall, &visitor, Said::nothing(), false, Vec::new()).await
}

pub(in crate::web) async fn edit(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Page {
    let read = async {
        let known = hall.app.knowledge_one(&id).await?;
        let scope = match known.entry.scope {
            Scope::Organisation => "organisation".to_owned(),
            Scope::Project(id) => hall.app.project_by_id(id).await?.name,
        };
        Ok::<_, Error>(Said::from_entry(&known.entry, known.revision, scope))
    };
    let said = read.await.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    show(&hall, &visitor, said, true, Vec::new()).await
}

/// Adds an entry.
pub(in crate::web) async fn add(
    State(hall): State<Hall>,
    visitor: Visitor,
    fields: Fields,
) -> Page {
    let added = async {
        let entry = entry(&hall, &fields).await?;
        let (organisation, project) = match entry.scope {
            Scope::Organisation => (true, None),
            Scope::Project(id) => (false, Some(id.to_string())),
        };
        let new = NewKnowledge {
            id: Some(entry.id.0),
            kind: entry.kind,
            text: entry.text,
            project,
            organisation,
            globs: entry.globs,
            task_types: entry.task_types,
            keywords: entry.keywords,
            actions: entry.actions,
            pattern: entry.pattern,
            severity: entry.severity,
            owner: entry.owner.map(|owner| owner.to_string()),
            evidence: entry.evidence.iter().map(ToString::to_string).collect(),
            expires_at: entry.expires_at,
            imported: false,
        };
        hall.app.add_knowledge(new, &visitor.name()?).await
    };
    match added.await {
        Ok(known) => {
            done(&format!("/knowledge/{}", known.entry.id), &Notice::good("It is there, pending."))
        }
        Err(error) => show(&hall, &visitor, Said::of(&fields), false, faults(error)).await,
    }
}

/// Changes an entry.
pub(in crate::web) async fn change(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<String>,
    fields: Fields,
) -> Page {
    let changed = async {
        let odd =
            |_| Error::invalid("It is not known which wording you saw.", "Load the page again.");
        let revision = fields.text("revision").parse().map_err(odd)?;
        let edit = KnowledgeEdit {
            revision,
            entry: entry(&hall, &fields).await?,
            reason: fields.given("reason"),
        };
        hall.app.edit_knowledge(&id, edit, &visitor.name()?).await
    };
    match changed.await {
        Ok(known) => {
            let notice = Notice::good("The new wording is pending.");
            done(&format!("/knowledge/{}", known.entry.id), &notice)
        }
        Err(error) => show(&hall, &visitor, Said::of(&fields), true, faults(error)).await,
    }
}

fn faults(error: Error) -> Vec<String> {
    let problem = Problem::from(error);
    std::iter::once(problem.detail).chain(problem.what_to_do).collect()
}

/// The entry that a form describes.
async fn entry(hall: &Hall, fields: &Fields) -> Result<Entry, Error> {
    fn named<T: serde::de::DeserializeOwned>(what: &str, text: String) -> Result<T, Error> {
        serde_json::from_value(serde_json::Value::String(text)).map_err(|_| {
            Error::invalid(format!("There is no such {what}."), "Choose one of the list.")
        })
    }
    let scope = match fields.text("scope").as_str() {
        "organisation" => Scope::Organisation,
        name => Scope::Project(hall.app.project(Some(name)).await?.id),
    };
    let expires_at = fields.given("expires_at").map(|day| {
        let day = day.parse::<NaiveDate>().ok();
        day.and_then(|day| day.and_hms_opt(0, 0, 0)).map(|at| at.and_utc()).ok_or_else(|| {
            Error::invalid("The day it stops counting on is no day.", "Write it as 2027-01-31.")
        })
    });
    let evidence = fields.lines("evidence").into_iter().map(|text| {
        let detail = format!("`{text}` cannot be evidence.");
        text.parse().map_err(|_| Error::invalid(detail, "Name a task, a commit or an address."))
    });
    let owner = fields.given("owner").map(|name| {
        name.parse().map_err(|_| {
            Error::invalid("The owner is not a name.", "A name has 1 to 100 characters.")
        })
    });
    let id = fields.text("id").parse().map_err(|_| {
        Error::invalid("It is not known which entry this is.", "Load the page again.")
    })?;
    Ok(Entry {
        id: KnowledgeId(id),
        kind: named("kind", fields.text("kind"))?,
        text: fields.text("text"),
        scope,
        globs: fields.lines("globs"),
        task_types: fields
            .all("task_types")
            .into_iter()
            .map(|text| named("kind of task", text))
            .collect::<Result<_, _>>()?,
        keywords: fields.lines("keywords"),
        actions: fields
            .all("actions")
            .into_iter()
            .map(|text| named("action", text))
            .collect::<Result<_, _>>()?,
        pattern: fields.given("pattern"),
        severity: named("severity", fields.text("severity"))?,
        owner: owner.transpose()?,
        evidence: evidence.collect::<Result<_, _>>()?,
        status: Status::Pending,
        expires_at: expires_at.transpose()?,
    })
}
