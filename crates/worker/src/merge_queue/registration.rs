//! Registration of the merge queue's activities with Temporal.

use std::sync::Arc;

use futures::future::BoxFuture;
use tamma_core::merge_queue::BatchBuilt;
use tamma_flow::merge_queue::{
    AdvanceRequest, AdvanceResult, BuildBatchRequest, QueueGatesRequest, QueueGatesResult,
    QueueSnapshot, SettleRequest, VerifyLandedRequest, names,
};
use temporalio_common::ActivityDefinition;
use temporalio_sdk::activities::{
    ActivityContext, ActivityDefinitions, ActivityError, ActivityImplementer, ExecutableActivity,
};

use super::MergeQueueActivities;
use crate::error::Error;
use crate::heartbeats::with_heartbeats;
use crate::retry::until_stopped;

/// Returns the instance that every activity here is registered with.
fn registered(
    receiver: Option<Arc<MergeQueueActivities>>,
) -> Result<Arc<MergeQueueActivities>, ActivityError> {
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
            type Implementer = MergeQueueActivities;
            const REQUIRES_INSTANCE: bool = true;

            fn definition() -> Self {
                Self
            }

            fn execute(
                receiver: Option<Arc<MergeQueueActivities>>,
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

register!(Record RECORD QueueSnapshot => (), |it, _ctx, snapshot| {
    it.record(snapshot).await.map_err(Error::into_activity_error)
});
register!(Build BUILD BuildBatchRequest => BatchBuilt, |it, ctx, request| {
    with_heartbeats(ctx, |_, stop| async move {
        until_stopped(&stop.clone(), Box::pin(it.build(request))).await
    })
    .await
});
register!(Gates GATES QueueGatesRequest => QueueGatesResult, |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move { it.run_gates(request, attempt, stop).await })
        .await
});
register!(Advance ADVANCE AdvanceRequest => AdvanceResult, |it, ctx, request| {
    // It is never stopped: nobody would know whether the branch advanced.
    with_heartbeats(ctx, |_, _| async move { it.advance(request).await }).await
});
register!(Verify VERIFY VerifyLandedRequest => Option<String>, |it, ctx, request| {
    with_heartbeats(ctx, |_, _| async move { it.verify(request).await }).await
});
register!(Settle SETTLE SettleRequest => (), |it, ctx, request| {
    let client = ctx.client();
    with_heartbeats(ctx, |_, _| async move { it.settle(&client, request).await }).await
});

impl ActivityImplementer for MergeQueueActivities {
    fn register_all(self: Arc<Self>, definitions: &mut ActivityDefinitions) {
        definitions.register_activity::<Record>(self.clone());
        definitions.register_activity::<Build>(self.clone());
        definitions.register_activity::<Gates>(self.clone());
        definitions.register_activity::<Advance>(self.clone());
        definitions.register_activity::<Verify>(self.clone());
        definitions.register_activity::<Settle>(self);
    }
}
