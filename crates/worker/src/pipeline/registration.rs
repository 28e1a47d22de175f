//! Registration of the pipeline's activities with Temporal.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tamma_core::pipeline::StoryTask;
use tamma_flow::pipeline::{
    CancelTasksRequest, DeliveredStory, MergeRequest, MergedTask, PhaseRequest, PhaseResult,
    PipelineSnapshot, PreparedStory, StoryTasksRequest, names,
};
use temporalio_common::ActivityDefinition;
use temporalio_sdk::activities::{
    ActivityContext, ActivityDefinitions, ActivityError, ActivityImplementer, ExecutableActivity,
};
use tokio_util::sync::CancellationToken;

use super::PipelineActivities;
use crate::error::Error;
use crate::lost_attempts::AttemptHeartbeat;

/// Heartbeat interval of long activities.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Runs an activity with heartbeats, and stops it on cancellation.
async fn with_heartbeats<T, F: Future<Output = Result<T, Error>> + Send>(
    ctx: ActivityContext,
    work: impl FnOnce(u32, CancellationToken) -> F,
) -> Result<T, ActivityError> {
    let (attempt, stop) = (ctx.info().attempt, CancellationToken::new());
    // Heartbeats of another version are not counted.
    let previous = ctx.heartbeat_details().deserialize().unwrap_or_default();
    let heartbeat = AttemptHeartbeat::first(attempt, previous);
    if let Some(lost) = heartbeat.too_many_lost() {
        return Err(Error::LostWorkers(lost).into_activity_error());
    }
    // Recorded before the work starts, so that its end can be told from that of the worker.
    ctx.record_heartbeat(heartbeat).await?;
    let mut work = Box::pin(work(attempt, stop.clone()));
    let mut interval = tokio::time::interval(HEARTBEAT_INTERVAL);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            result = &mut work => {
                if result.is_err() {
                    ctx.record_heartbeat(heartbeat.ended()).await?;
                }
                return result.map_err(Error::into_activity_error);
            }
            _ = interval.tick() => ctx.record_heartbeat(heartbeat).await?,
            () = ctx.cancelled(), if !is_stopping => {
                is_stopping = true;
                stop.cancel();
            }
        }
    }
}

/// Returns the instance that every activity here is registered with.
fn registered(
    receiver: Option<Arc<PipelineActivities>>,
) -> Result<Arc<PipelineActivities>, ActivityError> {
    let missing = || Error::Internal("activity registered without an instance".to_owned());
    receiver.ok_or_else(|| missing().into_activity_error())
}

/// Declares a marker for an activity, because the SDK registers activities by type.
macro_rules! register {
    ($type:ident $name:ident $input:ty => $output:ty, |$it:ident, $ctx:ident, $request:ident| $work:expr) => {
        struct $type;

        impl ActivityDefinition for $type {
            type Input = $input;
            type Output = $output;

            fn name(&self) -> &str {
                names::$name
            }
        }

        impl ExecutableActivity for $type {
            type Implementer = PipelineActivities;
            const REQUIRES_INSTANCE: bool = true;

            fn definition() -> Self {
                Self
            }

            fn execute(
                receiver: Option<Arc<PipelineActivities>>,
                $ctx: ActivityContext,
                $request: $input,
            ) -> BoxFuture<'static, Result<$output, ActivityError>> {
                Box::pin(async move {
                    let $it = registered(receiver)?;
                    $work
                })
            }
        }
    };
}

register!(Record RECORD PipelineSnapshot => (), |it, _ctx, snapshot| {
    it.record(snapshot).await.map_err(Error::into_activity_error)
});
register!(Prepare PREPARE PhaseRequest => PreparedStory, |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move { it.prepare(request, attempt, stop).await })
        .await
});
register!(Phase PHASE PhaseRequest => PhaseResult, |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move { it.run_phase(request, attempt, stop).await })
        .await
});
register!(StoryTasks STORY_TASKS StoryTasksRequest => Vec<StoryTask>, |it, _ctx, request| {
    it.story_tasks(request).await.map_err(Error::into_activity_error)
});
register!(MergeTask MERGE_TASK MergeRequest => MergedTask, |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move { it.merge_task(request, attempt, stop).await })
        .await
});
register!(CancelTasks CANCEL_TASKS CancelTasksRequest => (), |it, ctx, request| {
    let client = ctx.client();
    with_heartbeats(ctx, |_, stop| async move { it.cancel_tasks(&client, request, stop).await })
        .await
});
register!(Finish FINISH PhaseRequest => DeliveredStory, |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move { it.finish(request, attempt, stop).await })
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
