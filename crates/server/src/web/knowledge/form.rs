//! Forms to add and edit knowledge entries.

use askama::Template;
use axum::extract::Path;
use chrono::NaiveDate;
use strum::IntoEnumIterator as _;
use tamma_core::ids::KnowledgeId;
use tamma_core::knowledge::{EntryKind, EntryScope, EntrySeverity, EntryStatus, KnowledgeEntry};
use tamma_core::plan::FileAction;
use tamma_core::task::TaskType;

use super::super::board::serialized_name;
use super::super::form_fields::FormFields;
use super::super::layout::{Layout, Notice, SelectOption};
use super::super::session::{Session, redirect_with_notice};
use super::super::{PageError, PageResult, WebState, render};
use crate::app::Error;
use crate::clock;
use crate::dto::{KnowledgeEdit, NewKnowledgeEntry};
use crate::problem::Problem;

#[derive(Template)]
#[template(path = "knowledge_form.html")]
struct EntryFormPage {
    layout: Layout,
    errors: Vec<String>,
    form: EntryForm,
}

struct EntryForm {
    title: &'static str,
    action: String,
    is_edit: bool,
    revision: String,
    id: String,
    button: &'static str,
    consequence: &'static str,
    kinds: Vec<ExplainedOption>,
    text: String,
    scopes: Vec<SelectOption>,
    globs: String,
    keywords: String,
    task_types: Vec<SelectOption>,
    actions: Vec<SelectOption>,
    pattern: String,
    severities: Vec<ExplainedOption>,
    owner: String,
    expires_at: String,
    evidence: String,
}

/// Option with its explanation.
struct ExplainedOption {
    value: String,
    text: String,
    explanation: &'static str,
    selected: bool,
}

/// Submitted fields, before validation.
struct EntryInput {
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

impl EntryInput {
    fn empty() -> Self {
        Self {
            id: clock::new_id().to_string(),
            revision: String::new(),
            kind: serialized_name(&EntryKind::Recommendation),
            text: String::new(),
            scope: String::new(),
            globs: String::new(),
            keywords: String::new(),
            task_types: Vec::new(),
            actions: Vec::new(),
            pattern: String::new(),
            severity: serialized_name(&EntrySeverity::Medium),
            owner: String::new(),
            expires_at: String::new(),
            evidence: String::new(),
        }
    }

    fn from_fields(fields: &FormFields) -> Self {
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

    fn from_entry(entry: &KnowledgeEntry, revision: u64, scope: String) -> Self {
        Self {
            id: entry.id.to_string(),
            revision: revision.to_string(),
            kind: serialized_name(&entry.kind),
            text: entry.text.clone(),
            scope,
            globs: entry.globs.join("\n"),
            keywords: entry.keywords.join("\n"),
            task_types: entry.task_types.iter().map(serialized_name).collect(),
            actions: entry.actions.iter().map(serialized_name).collect(),
            pattern: entry.pattern.clone().unwrap_or_default(),
            severity: serialized_name(&entry.severity),
            owner: entry.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
            expires_at: entry.expires_at.map(|at| at.date_naive().to_string()).unwrap_or_default(),
            evidence: entry.evidence.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        }
    }
}

async fn render_form(
    state: &WebState,
    session: &Session,
    input: EntryInput,
    is_edit: bool,
    errors: Vec<String>,
) -> PageResult {
    let layout = Layout::for_page(state, session, "knowledge").await?;
    let projects = state.app.store.projects().await;
    let projects = projects
        .map_err(|error| PageError::new(Layout::for_session(session), Error::from(error)))?;
    let first = projects.first().map(|project| project.name.clone()).unwrap_or_default();
    let scope = if input.scope.is_empty() { first } else { input.scope.clone() };
    let scopes = projects
        .iter()
        .map(|it| SelectOption::new(&it.name, format!("{} only", it.name), &scope))
        .chain([SelectOption::new("organisation", "every project", &scope)]);
    let kinds = EntryKind::iter().map(|kind| ExplainedOption {
        value: serialized_name(&kind),
        text: kind.to_string(),
        explanation: match kind {
            EntryKind::Recommendation => "preferred approach",
            EntryKind::Prohibition => "forbidden; a critical one blocks plans",
            EntryKind::Convention => "practice of this project",
            EntryKind::Learning => "lesson from earlier work",
        },
        selected: serialized_name(&kind) == input.kind,
    });
    let severities = EntrySeverity::iter().map(|severity| ExplainedOption {
        value: serialized_name(&severity),
        text: severity.to_string(),
        explanation: match severity {
            EntrySeverity::Low => "a preference",
            EntrySeverity::Medium => "costs time",
            EntrySeverity::High => "breaks something",
            EntrySeverity::Critical => "plans that violate it need a person's decision",
        },
        selected: serialized_name(&severity) == input.severity,
    });
    let types = TaskType::iter().map(|it| SelectOption {
        selected: input.task_types.contains(&serialized_name(&it)),
        value: serialized_name(&it),
        text: it.to_string(),
    });
    let actions = [
        (FileAction::Create, "created"),
        (FileAction::Modify, "changed"),
        (FileAction::Delete, "deleted"),
    ];
    let actions = actions.into_iter().map(|(action, text)| SelectOption {
        selected: input.actions.contains(&serialized_name(&action)),
        value: serialized_name(&action),
        text: text.to_owned(),
    });
    let form = EntryForm {
        title: if is_edit { "Edit entry" } else { "Add entry" },
        action: if is_edit {
            format!("/knowledge/{}/edit", input.id)
        } else {
            "/knowledge".to_owned()
        },
        is_edit,
        button: if is_edit { "Save" } else { "Add entry" },
        consequence: if is_edit {
            "The edited entry needs approval again. Until then, it has no effect."
        } else {
            "The entry takes effect after approval."
        },
        kinds: kinds.collect(),
        scopes: scopes.collect(),
        task_types: types.collect(),
        actions: actions.collect(),
        severities: severities.collect(),
        revision: input.revision,
        id: input.id,
        text: input.text,
        globs: input.globs,
        keywords: input.keywords,
        pattern: input.pattern,
        owner: input.owner,
        expires_at: input.expires_at,
        evidence: input.evidence,
    };
    let has_errors = !errors.is_empty();
    let mut page = render(&EntryFormPage { layout, errors, form })?;
    if has_errors {
        *page.status_mut() = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
    }
    Ok(page)
}

pub(in crate::web) async fn new_form(state: WebState, session: Session) -> PageResult {
    render_form(&state, &session, EntryInput::empty(), false, Vec::new()).await
}

pub(in crate::web) async fn edit_form(
    state: WebState,
    session: Session,
    Path(id): Path<String>,
) -> PageResult {
    let read = async {
        let detail = state.app.knowledge_entry(&id).await?;
        let scope = match detail.entry.scope {
            EntryScope::Organisation => "organisation".to_owned(),
            EntryScope::Project(id) => state.app.project_by_id(id).await?.name,
        };
        Ok::<_, Error>(EntryInput::from_entry(&detail.entry, detail.revision, scope))
    };
    let input = read.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    render_form(&state, &session, input, true, Vec::new()).await
}

/// Adds an entry.
pub(in crate::web) async fn add(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let added = async {
        let entry = parse_entry(&state, &fields).await?;
        let (organisation, project) = match entry.scope {
            EntryScope::Organisation => (true, None),
            EntryScope::Project(id) => (false, Some(id.to_string())),
        };
        let new = NewKnowledgeEntry {
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
        state.app.add_knowledge(new, &session.acting_person()?).await
    };
    match added.await {
        Ok(detail) => redirect_with_notice(
            &format!("/knowledge/{}", detail.entry.id),
            &Notice::success("Entry added. It needs approval."),
        ),
        Err(error) => {
            render_form(
                &state,
                &session,
                EntryInput::from_fields(&fields),
                false,
                error_lines(error),
            )
            .await
        }
    }
}

/// Edits an entry.
pub(in crate::web) async fn update(
    state: WebState,
    session: Session,
    Path(id): Path<String>,
    fields: FormFields,
) -> PageResult {
    let changed = async {
        let missing = |_| Error::invalid("The revision is missing.", "Reload the page.");
        let revision = fields.text("revision").parse().map_err(missing)?;
        let edit = KnowledgeEdit {
            revision,
            entry: parse_entry(&state, &fields).await?,
            reason: fields.non_empty("reason"),
        };
        state.app.edit_knowledge(&id, edit, &session.acting_person()?).await
    };
    match changed.await {
        Ok(detail) => {
            let notice = Notice::success("Entry saved. It needs approval again.");
            redirect_with_notice(&format!("/knowledge/{}", detail.entry.id), &notice)
        }
        Err(error) => {
            render_form(
                &state,
                &session,
                EntryInput::from_fields(&fields),
                true,
                error_lines(error),
            )
            .await
        }
    }
}

fn error_lines(error: Error) -> Vec<String> {
    let problem = Problem::from(error);
    std::iter::once(problem.detail).chain(problem.hint).collect()
}

/// Parses the entry from a form.
async fn parse_entry(state: &WebState, fields: &FormFields) -> Result<KnowledgeEntry, Error> {
    fn named<T: serde::de::DeserializeOwned>(what: &str, text: String) -> Result<T, Error> {
        serde_json::from_value(serde_json::Value::String(text))
            .map_err(|_| Error::invalid(format!("Unknown {what}."), "Choose one from the list."))
    }
    let scope = match fields.text("scope").as_str() {
        "organisation" => EntryScope::Organisation,
        name => EntryScope::Project(state.app.resolve_project(Some(name)).await?.id),
    };
    let expires_at = fields.non_empty("expires_at").map(|day| {
        let day = day.parse::<NaiveDate>().ok();
        day.and_then(|day| day.and_hms_opt(0, 0, 0)).map(|at| at.and_utc()).ok_or_else(|| {
            Error::invalid("The expiry date is not valid.", "Use the format 2027-01-31.")
        })
    });
    let evidence = fields.lines("evidence").into_iter().map(|text| {
        let detail = format!("`{text}` is not valid evidence.");
        text.parse().map_err(|_| Error::invalid(detail, "Name a task, a commit or a URL."))
    });
    let owner = fields.non_empty("owner").map(|name| {
        name.parse().map_err(|_| {
            Error::invalid(
                "The owner's name is not valid.",
                "A name must have 1 to 100 characters.",
            )
        })
    });
    let id = fields
        .text("id")
        .parse()
        .map_err(|_| Error::invalid("The entry ID is missing.", "Reload the page."))?;
    Ok(KnowledgeEntry {
        id: KnowledgeId(id),
        kind: named("kind", fields.text("kind"))?,
        text: fields.text("text"),
        scope,
        globs: fields.lines("globs"),
        task_types: fields
            .all("task_types")
            .into_iter()
            .map(|text| named("task type", text))
            .collect::<Result<_, _>>()?,
        keywords: fields.lines("keywords"),
        actions: fields
            .all("actions")
            .into_iter()
            .map(|text| named("action", text))
            .collect::<Result<_, _>>()?,
        pattern: fields.non_empty("pattern"),
        severity: named("severity", fields.text("severity"))?,
        owner: owner.transpose()?,
        evidence: evidence.collect::<Result<_, _>>()?,
        status: EntryStatus::Pending,
        expires_at: expires_at.transpose()?,
        origin: None,
    })
}
