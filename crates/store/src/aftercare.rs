//! What happened to merged changes: reverts, fixes of the same lines, and a red base branch.

use tamma_core::aftercare::{AftercareKind, MergedChange};
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::{read, read_number, read_word};
use crate::error::{CorruptData, Error, Result};

/// Longest stored detail, in characters.
const MAX_DETAIL: usize = 500;

/// Finding about a merged change. Task, kind and commit identify it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AftercareFinding {
    /// Task of the change.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Kind.
    pub kind: AftercareKind,
    /// Commit that shows it.
    pub commit: CommitId,
    /// Text for people, in one line.
    pub detail: String,
    /// Time at which it was found.
    pub found_at: Timestamp,
}

/// Merge whose effects are traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedMerge {
    /// Task of the change.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Number of the pull request.
    pub number: u64,
    /// Address of the pull request.
    pub url: String,
    /// Branch that it was merged into.
    pub base_branch: String,
    /// Newest commit of the pull request's own branch, if it is known.
    pub head: Option<CommitId>,
    /// Commit of the merge on the base branch.
    pub merged_commit: CommitId,
    /// Time at which the merge was observed.
    pub merged_at: Timestamp,
    /// Commits of the base branch until this one were compared with the merge.
    pub traced_to: Option<CommitId>,
    /// Checks of the merge on the base branch were looked at.
    pub base_checked: bool,
}

struct FindingRow {
    task: Uuid,
    project: Uuid,
    kind: String,
    commit: String,
    detail: String,
    found_at: Timestamp,
}

struct MergeRow {
    task: Uuid,
    project: Uuid,
    repository: String,
    number: i64,
    url: String,
    base_branch: String,
    head: Option<String>,
    merged_commit: String,
    merged_at: Timestamp,
    traced_to: Option<String>,
    base_checked: bool,
}

impl Store {
    /// Traces effects of a task's merge for some days from now on. Calling it again changes nothing.
    pub async fn watch_pull_request(&self, task: TaskId, days: u16) -> Result<()> {
        sqlx::query!(
            "UPDATE pull_requests SET watched_until = merged_at + make_interval(days => $2)
             WHERE task = $1 AND status = 'merged' AND watched_until IS NULL",
            task.0,
            i32::from(days),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns merges whose effects are traced, oldest first.
    pub async fn watched_merges(&self, now: Timestamp) -> Result<Vec<WatchedMerge>> {
        let rows = sqlx::query_as!(
            MergeRow,
            "SELECT
                task, project, repository, number, url, base_branch, facts ->> 'head' AS head,
                merged_commit AS \"merged_commit!\", merged_at AS \"merged_at!\", traced_to,
                base_checked
             FROM pull_requests
             WHERE status = 'merged' AND watched_until > $1 AND merged_commit IS NOT NULL
                AND ($2::bool OR project = ANY($3::uuid []))
             ORDER BY merged_at LIMIT 10000",
            now,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter().map(read_merge).collect()
    }

    /// Records how far the effects of a merge were traced.
    pub async fn save_aftercare_progress(
        &self,
        task: TaskId,
        traced_to: CommitId,
        base_checked: bool,
    ) -> Result<()> {
        sqlx::query!(
            "UPDATE pull_requests SET traced_to = $2, base_checked = $3 WHERE task = $1",
            task.0,
            traced_to.to_string(),
            base_checked,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the newest merges of a project's tasks that fix a bug.
    pub async fn bug_fix_merges(&self, project: ProjectId) -> Result<Vec<CommitId>> {
        let rows = sqlx::query_scalar!(
            "SELECT merged.merged_commit AS \"merged_commit!\"
             FROM pull_requests AS merged JOIN tasks ON tasks.id = merged.task
             WHERE merged.project = $1 AND merged.status = 'merged' AND tasks.type = 'bugfix'
                AND merged.merged_commit IS NOT NULL
                AND ($2::bool OR merged.project = ANY($3::uuid []))
             ORDER BY merged.merged_at DESC LIMIT 1000",
            project.0,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let commits = rows.into_iter().map(|commit| read_word("pull request", commit));
        Ok(commits.collect::<Result<_, CorruptData>>()?)
    }

    /// Records a finding. Returns `false` if it is recorded already.
    pub async fn record_aftercare(&self, finding: &AftercareFinding) -> Result<bool> {
        let detail: String = finding.detail.replace('\0', "").chars().take(MAX_DETAIL).collect();
        let recorded = sqlx::query!(
            "INSERT INTO aftercare_findings (task, project, kind, commit, detail, found_at)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (task, kind, commit) DO NOTHING",
            finding.task.0,
            finding.project.0,
            finding.kind.to_string(),
            finding.commit.to_string(),
            detail,
            finding.found_at,
        )
        .execute(&self.steps)
        .await?;
        Ok(recorded.rows_affected() > 0)
    }

    /// Returns the findings about a task's change, oldest first.
    pub async fn aftercare_findings(&self, task: TaskId) -> Result<Vec<AftercareFinding>> {
        let rows = sqlx::query_as!(
            FindingRow,
            "SELECT task, project, kind, commit, detail, found_at FROM aftercare_findings
             WHERE task = $1 AND ($2::bool OR project = ANY($3::uuid []))
             ORDER BY found_at, kind, commit LIMIT 200",
            task.0,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter().map(read_finding).collect()
    }

    /// Returns changes that were merged since a time and watched, each with its predicted risk and the
    /// kinds of its findings.
    pub async fn merged_changes(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
    ) -> Result<Vec<MergedChange>> {
        let rows = sqlx::query!(
            "SELECT
                merged.task, tasks.memory -> 'check' -> 'risk' AS risk,
                ARRAY(
                    SELECT DISTINCT found.kind FROM aftercare_findings AS found
                    WHERE found.task = merged.task ORDER BY found.kind
                ) AS \"kinds!\"
             FROM pull_requests AS merged LEFT JOIN tasks ON tasks.id = merged.task
             WHERE merged.status = 'merged' AND merged.watched_until IS NOT NULL
                AND merged.merged_at >= $1
                AND ($2::uuid IS NULL OR merged.project = $2)
                AND ($3::bool OR merged.project = ANY($4::uuid []))
             ORDER BY merged.merged_at DESC LIMIT 100000",
            since,
            project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let kinds = row.kinds.into_iter().map(|kind| read_word("finding", kind));
                let findings = kinds.collect::<Result<_, CorruptData>>();
                Ok(MergedChange {
                    // A plan of another version may have another form; it counts without its risk.
                    risk: row.risk.and_then(|risk| read("risk", risk).ok()),
                    findings: findings.map_err(|damage| damage.with_key(row.task.to_string()))?,
                })
            })
            .collect()
    }
}

fn read_merge(row: MergeRow) -> Result<WatchedMerge> {
    let what = "pull request";
    let key = row.task.to_string();
    let decode = move || -> Result<WatchedMerge, CorruptData> {
        Ok(WatchedMerge {
            task: TaskId(row.task),
            project: ProjectId(row.project),
            repository: row.repository,
            number: read_number(what, row.number)?,
            url: row.url,
            base_branch: row.base_branch,
            head: row.head.map(|head| read_word(what, head)).transpose()?,
            merged_commit: read_word(what, row.merged_commit)?,
            merged_at: row.merged_at,
            traced_to: row.traced_to.map(|commit| read_word(what, commit)).transpose()?,
            base_checked: row.base_checked,
        })
    };
    decode().map_err(|damage| Error::Corrupt(damage.with_key(key)))
}

fn read_finding(row: FindingRow) -> Result<AftercareFinding> {
    let what = "finding";
    let key = row.task.to_string();
    let decode = move || -> Result<AftercareFinding, CorruptData> {
        Ok(AftercareFinding {
            task: TaskId(row.task),
            project: ProjectId(row.project),
            kind: read_word(what, row.kind)?,
            commit: read_word(what, row.commit)?,
            detail: row.detail,
            found_at: row.found_at,
        })
    };
    decode().map_err(|damage| Error::Corrupt(damage.with_key(key)))
}
