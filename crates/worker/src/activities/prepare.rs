//! `prepare` activity: pins the newest commit of the base branch, the rules and the prompts.

use tamma_core::approval::Pin;
use tamma_core::ids::CommitId;
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use crate::error::Error;
use crate::job_context::JobContext;
use crate::prompts::{PromptSet, check_prompt};
use crate::services::Services;

pub(super) async fn prepare(services: &Services, ctx: &JobContext) -> Result<JobResult, Error> {
    let base = services.repositories.newest_base(ctx).await?;
    let prompts = prompts_at(services, ctx, base).await?.to_text();
    // Saved, so that the task keeps its prompts when Tamma is upgraded.
    let prompts = Some(services.contents.save_text(&prompts).await?);
    let pin = Pin { base, policy: ctx.request.pending.policy, prompts };
    Ok(JobResult::finished(Outcome::Prepared(pin)))
}

/// Returns the built-in prompts, with those that the project replaces.
async fn prompts_at(
    services: &Services,
    ctx: &JobContext,
    base: CommitId,
) -> Result<PromptSet, Error> {
    let mut prompts = PromptSet::default();
    let mut paths = ctx.rules.prompts.paths().peekable();
    if paths.peek().is_none() {
        return Ok(prompts);
    }
    if !services.config.allow_project_prompts {
        return Err(Error::Configuration(
            "`prompts` replaces built-in prompts, which this worker does not allow: remove the \
             key, or start the worker with `--allow-project-prompts`"
                .to_owned(),
        ));
    }
    let project = services.repositories.project(ctx).await?;
    let mirror = services.repositories.mirror(&project).await?;
    for (name, path) in paths {
        let text = mirror.file_text(base, path).await?.ok_or_else(|| {
            Error::Configuration(format!("`prompts.{name}`: `{path}` is not in commit {base}"))
        })?;
        check_prompt(name, &text).map_err(|problem| {
            let line = problem.line.map(|line| format!(", line {line}")).unwrap_or_default();
            Error::Configuration(format!("`prompts.{name}`: `{path}`{line}: {problem}"))
        })?;
        prompts.replace(name, text);
    }
    Ok(prompts)
}
