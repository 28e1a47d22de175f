//! Decisions about several entries of the knowledge base.

use tamma_core::knowledge::EntryStatus;

use crate::app::Error;
use crate::dto::KnowledgeDecision;
use crate::problem::Problem;
use crate::web::board::bulk::{BulkResultPage, BulkResultView, count_done};
use crate::web::form_fields::FormFields;
use crate::web::layout::{Layout, Link};
use crate::web::session::Session;
use crate::web::{PageError, PageResult, WebState, render};

/// Maximum number of entries in one request.
const MAX_ENTRIES: usize = 100;

/// Approves or rejects the selected entries, each in the revision that the person read. Entries with
/// content warnings are refused: they are decided one at a time.
pub(in crate::web) async fn decide_several(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let page_error = |error: Error| {
        PageError::new(Layout::for_session(&session), error).with_unsent_text(fields.text("reason"))
    };
    let (heading, status) = match fields.text("status").as_str() {
        "approved" => ("Approve entries", EntryStatus::Approved),
        "rejected" => ("Reject entries", EntryStatus::Rejected),
        other => {
            let detail = format!("Unknown decision `{other}`.");
            return Err(page_error(Error::invalid(detail, "Approve or reject the entries.")));
        }
    };
    let entries = fields.all("entry");
    if entries.is_empty() || entries.len() > MAX_ENTRIES {
        let detail = format!("Cannot decide about {} entries at once.", entries.len());
        let hint = format!("Select 1 to {MAX_ENTRIES} entries.");
        return Err(page_error(Error::invalid(detail, hint)));
    }
    let by = session.acting_person().map_err(page_error)?;
    let mut results = Vec::new();
    for entry in &entries {
        let (id, revision) = entry.split_once(' ').unwrap_or((entry.as_str(), ""));
        let Ok(revision) = revision.parse() else {
            let error = Error::invalid("The revision is missing.", "Reload the page.");
            results.push(failed(id, error));
            continue;
        };
        let reason = fields.non_empty("reason");
        let decision = KnowledgeDecision { status, revision, reason, ignore_warnings: false };
        let decided = state.app.decide_knowledge(id, decision, &by).await;
        results.push(match decided {
            Ok(detail) => BulkResultView {
                item: Link::new(entry_href(id), detail.entry.text),
                tone: "good",
                outcome: detail.entry.status.to_string(),
            },
            Err(error) => failed(id, error),
        });
    }
    render(&BulkResultPage {
        layout: Layout::for_page(&state, &session, "knowledge").await?,
        heading,
        summary: count_done(&results, "entry"),
        results,
        back: Link::new("/knowledge", "Back to knowledge base"),
    })
}

fn entry_href(id: &str) -> String {
    let id: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
    format!("/knowledge/{id}")
}

fn failed(id: &str, error: Error) -> BulkResultView {
    let outcome = Problem::from(error).detail;
    BulkResultView { item: Link::new(entry_href(id), id), tone: "bad", outcome }
}
