//! Pipelines of stories, for people with different roles.

use tamma_core::ids::{PipelineId, ProjectId};
use tamma_core::pipeline::signal::{PhaseSignal, SignalSource};
use tamma_core::pipeline::{
    PhaseWork, PipelineDefinition, PipelineEvent, PipelineRequest, PipelineRun, step,
};
use tamma_core::task_loop::Timestamp;
use tamma_store::PipelineWrite;

use crate::browser::between;
use crate::people::Team;
use crate::test_server::new_id;

const STORY: &str = "WISH-001";

fn at() -> Timestamp {
    Timestamp::UNIX_EPOCH + chrono::TimeDelta::days(20_000)
}

/// Run of the built-in pipeline with a gate before its second phase.
fn new_run() -> PipelineRun {
    let request = PipelineRequest {
        definition: PipelineDefinition::built_in(),
        feature_dir: "plans/wishlist".to_owned(),
        story_id: STORY.to_owned(),
        from: 1,
        to: 3,
        approve: [2].into(),
    };
    step(&PipelineRun::new(request).expect("valid"), at(), PipelineEvent::Start).expect("step").0
}

/// Run that waits at the gate, with the output of its first phase.
async fn run_at_gate(team: &Team, output: &str) -> PipelineRun {
    let output = team.server.store.save_text(output).await.expect("stored");
    let event = PipelineEvent::PhaseEnded {
        phase: 1,
        signal: PhaseSignal::Success,
        source: SignalSource::LastLine,
        work: PhaseWork { output: Some(output), ..PhaseWork::default() },
    };
    step(&new_run(), at(), event).expect("step").0
}

/// Stores the first run of the story. It has no workflow.
async fn store_run(team: &Team, run: PipelineRun) -> PipelineId {
    let (id, store) = (PipelineId(new_id()), &team.server.store);
    let request = &run.request;
    let project = ProjectId(team.project);
    store
        .ensure_pipeline(id, project, &request.feature_dir, &request.story_id)
        .await
        .expect("created");
    let write = PipelineWrite {
        pipeline: id,
        number: 1,
        revision: 1,
        started_by: "Ada".parse().expect("name"),
        started_at: at(),
        run,
        base: None,
        story_path: None,
        delivered: None,
        delivery_error: None,
    };
    store.save_pipeline(&write).await.expect("saved");
    id
}

#[tokio::test]
async fn a_session_opens_the_output_of_a_phase() {
    let team = Team::new().await;
    let vera = team.add("Vera").await;
    let id = store_run(&team, run_at_gate(&team, "All <good>.\n\nPM COMPLETE\n").await).await;
    let mut browser = team.browser(&vera).await;
    let page = browser.page(&format!("/pipelines/{id}")).await;
    let href = between(&page, "<td data-h=\"Output\"><a href=\"", "\"");
    let output = browser.page(href).await;
    assert!(output.contains("<pre>All &#60;good&#62;.\n\nPM COMPLETE\n</pre>"), "{output}");
    let (status, _) = browser.get(&format!("/pipelines/{id}/phases/2/output")).await;
    assert_eq!(status, 404, "the second phase has no output");
    team.server.end().await;
}
