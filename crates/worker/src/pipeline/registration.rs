//! Registration of the pipeline's activities with Temporal.

use std::sync::Arc;

use tamma_core::pipeline::StoryTask;
use tamma_flow::pipeline::{
    CancelTasksRequest, DeliveredStory, MergeRequest, MergedTask, PhaseRequest, PhaseResult,
    PipelineSnapshot, PreparedStory, StoryTasksRequest, names,
};
use temporalio_sdk::activities::{ActivityDefinitions, ActivityImplementer};

use super::PipelineActivities;
use crate::activity_registration::register_activity;
use crate::error::Error;
use crate::heartbeats::with_heartbeats;
use crate::retry::until_stopped;

register_activity!(PipelineActivities, Record names::RECORD, PipelineSnapshot => (),
    |it, _ctx, snapshot| {
    it.record(snapshot).await.map_err(Error::into_activity_error)
});
register_activity!(PipelineActivities, Prepare names::PREPARE, PhaseRequest => PreparedStory,
    |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move {
        until_stopped(&stop.clone(), Box::pin(it.prepare(request, attempt, stop))).await
    })
    .await
});
register_activity!(PipelineActivities, Phase names::PHASE, PhaseRequest => PhaseResult,
    |it, ctx, request| {
    let earlier = request.earlier_attempts;
    with_heartbeats(ctx, |attempt, stop| async move {
        it.run_phase(request, attempt.saturating_add(earlier), stop).await
    })
    .await
});
register_activity!(PipelineActivities, StoryTasks names::STORY_TASKS, StoryTasksRequest => Vec<StoryTask>,
    |it, _ctx, request| {
    it.story_tasks(request).await.map_err(Error::into_activity_error)
});
register_activity!(PipelineActivities, MergeTask names::MERGE_TASK, MergeRequest => MergedTask,
    |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move { it.merge_task(request, attempt, stop).await })
        .await
});
register_activity!(PipelineActivities, CancelTasks names::CANCEL_TASKS, CancelTasksRequest => (),
    |it, ctx, request| {
    let client = ctx.client();
    with_heartbeats(ctx, |_, stop| async move { it.cancel_tasks(&client, request, stop).await })
        .await
});
register_activity!(PipelineActivities, Finish names::FINISH, PhaseRequest => DeliveredStory,
    |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move {
        until_stopped(&stop.clone(), Box::pin(it.finish(request, attempt, stop))).await
    })
    .await
});

impl ActivityImplementer for PipelineActivities {
    fn register_all(self: Arc<Self>, definitions: &mut ActivityDefinitions) {
        definitions.register_activity::<Record>(self.clone());
        definitions.register_activity::<Prepare>(self.clone());
        definitions.register_activity::<Phase>(self.clone());
        definitions.register_activity::<StoryTasks>(self.clone());
        definitions.register_activity::<MergeTask>(self.clone());
        definitions.register_activity::<CancelTasks>(self.clone());
        definitions.register_activity::<Finish>(self);
    }
}
