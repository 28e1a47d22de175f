//! Person who runs pipelines with the command line.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tamma_core::ids::PipelineId;
use tamma_core::pipeline::PipelineRun;
use tamma_flow::pipeline::PipelineWorkflow;
use tamma_flow::pipeline_workflow_id;
use tamma_server::dto::PipelineView;
use tamma_store::StoryPipeline;
use tamma_testkit::{Cluster, temporal, wait_until};
use temporalio_client::WorkflowGetResultOptions;

use super::project::FEATURE;

/// Time limit for a story to reach its next stop.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(5);

/// Commands of a person in a project.
#[derive(Clone, Copy)]
pub(crate) struct StoryClient<'a> {
    pub(crate) cluster: &'a Cluster,
    /// Name of the project.
    pub(crate) project: &'a str,
}

/// Run that has ended, with its delivered branch.
#[derive(Debug)]
pub(crate) struct FinishedRun {
    pub(crate) story: StoryPipeline,
    pub(crate) run: PipelineRun,
    pub(crate) branch: String,
}

impl StoryClient<'_> {
    /// Starts a run of a story.
    pub(crate) async fn start(&self, story: &str, more: &[&str]) -> Result<PipelineId> {
        let arguments = ["run", FEATURE, story, "--project", self.project];
        Ok(PipelineId(self.act(&[&arguments[..], more].concat()).await?.id))
    }

    /// Runs a command of `tamma pipeline`, and returns the story.
    pub(crate) async fn act(&self, arguments: &[&str]) -> Result<PipelineView> {
        let all = [&["pipeline"][..], arguments, &["--json"]].concat();
        let output = self.cluster.cli.run(&all).await?;
        serde_json::from_str(&output).with_context(|| format!("not a pipeline: {output}"))
    }

    /// Waits until the stored run meets a condition. A run that ends first is an error.
    pub(crate) async fn until(
        &self,
        id: PipelineId,
        condition: impl Fn(&PipelineRun) -> bool,
    ) -> Result<PipelineRun> {
        wait_until("the story", TIMEOUT, async || {
            let run = self.cluster.store.pipeline(id).await?.run.context("no run is stored")?;
            let state = run.describe_state();
            Ok(match (condition(&run), run.state.is_over()) {
                (true, _) => Some(Ok(run)),
                (false, true) => Some(Err(anyhow!("the run is {state}: {:?}", run.state))),
                (false, false) => None,
            })
        })
        .await?
    }

    /// Waits until a run, by its number, has ended and its branch is delivered. The database must have
    /// the run that the workflow ended with.
    pub(crate) async fn finished(&self, id: PipelineId, number: u32) -> Result<FinishedRun> {
        wait_until("the end of the story", TIMEOUT, async || {
            let story = self.cluster.store.pipeline(id).await?;
            let is_over = story.run.as_ref().is_some_and(|run| run.state.is_over());
            Ok((story.number == number && is_over).then_some(()))
        })
        .await?;
        // The branch is delivered, and its name saved, before the workflow ends.
        let ended = wait_until("the end of the workflow", TIMEOUT, async || {
            let client = temporal::connect(&self.cluster.temporal_address()?).await?;
            let handle = client.get_workflow_handle::<PipelineWorkflow>(pipeline_workflow_id(id));
            Ok(Some(handle.get_result(WorkflowGetResultOptions::default()).await?))
        })
        .await?;
        let story = self.cluster.store.pipeline(id).await?;
        let error = story.delivery_error.as_deref();
        ensure!(error.is_none(), "the branch was not delivered: {}", error.unwrap_or_default());
        let run = story.run.clone().context("no run is stored")?;
        ensure!(run == ended, "the workflow ended with {ended:?}, and the database has {run:?}");
        let branch = story.branch.clone().context("the branch has no name")?;
        Ok(FinishedRun { story, run, branch })
    }
}
