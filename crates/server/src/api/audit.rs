//! Audit endpoints.

use axum::Json;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use tamma_core::ids::TaskId;
use utoipa::IntoParams;
use uuid::Uuid;

use super::ApiState;
use super::extract::{QueryParams, page_request};
use crate::app::Error;
use crate::dto::{AuditLogPage, AuditPage};
use crate::problem::Problem;

/// Histories to verify.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Task ID; all tasks by default.
    task: Option<Uuid>,
    /// Time before which months of the history may have been archived. Without it, a missing entry is
    /// always broken.
    archived_before: Option<DateTime<Utc>>,
    /// `next` value of the previous page.
    after: Option<String>,
    /// Maximum number of tasks, 1 to 500; default 50.
    limit: Option<u32>,
}

/// Verifies histories against their hash chains, and names the first broken entry of each.
#[utoipa::path(
    get, path = "/audit", tag = "log", operation_id = "verify_histories", params(AuditQuery),
    responses(
        (status = OK, body = AuditPage),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
    )
)]
pub(super) async fn verify(
    state: ApiState,
    QueryParams(query): QueryParams<AuditQuery>,
) -> Result<Json<AuditPage>, Problem> {
    let AuditQuery { task, archived_before, after, limit } = query;
    Ok(Json(match task {
        Some(task) => state.app.verify_task(TaskId(task), archived_before).await?,
        None => state.app.verify_tasks(&page_request(after, limit)?, archived_before).await?,
    }))
}

/// Maximum page size of the audit log.
const MAX_ENTRIES: u32 = 5000;

/// Part of the audit log to read.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditLogQuery {
    /// Position of the last entry that you have; default 0.
    after: u64,
    /// Maximum number of entries, 1 to 5000; default 1000.
    limit: Option<u32>,
}

/// Returns entries of the audit log in order, with the end of its hash chain.
#[utoipa::path(
    get, path = "/audit/log", tag = "log", operation_id = "audit_log", params(AuditLogQuery),
    responses((status = OK, body = AuditLogPage))
)]
pub(super) async fn list(
    state: ApiState,
    QueryParams(query): QueryParams<AuditLogQuery>,
) -> Result<Json<AuditLogPage>, Problem> {
    let AuditLogQuery { after, limit } = query;
    let limit = limit.unwrap_or(1000);
    if !(1..=MAX_ENTRIES).contains(&limit) {
        let detail = format!("The limit {limit} is out of range.");
        let hint = format!("Use 1 to {MAX_ENTRIES}, and get further pages with `after`.");
        return Err(Error::invalid(detail, hint).into());
    }
    Ok(Json(state.app.audit_log(after, limit).await?))
}
