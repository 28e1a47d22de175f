//! Registration of the merge queue's activities with Temporal.

use std::sync::Arc;

use tamma_core::merge_queue::BatchBuilt;
use tamma_flow::merge_queue::{
    AdvanceRequest, AdvanceResult, BuildBatchRequest, QueueGatesRequest, QueueGatesResult,
    QueueSnapshot, SettleRequest, VerifyLandedRequest, names,
};
use temporalio_sdk::activities::{ActivityDefinitions, ActivityImplementer};

use super::MergeQueueActivities;
use crate::activity_registration::register_activity;
use crate::error::Error;
use crate::heartbeats::with_heartbeats;
use crate::retry::until_stopped;

register_activity!(MergeQueueActivities, Record names::RECORD, QueueSnapshot => (),
    |it, _ctx, snapshot| {
    it.record(snapshot).await.map_err(Error::into_activity_error)
});
register_activity!(MergeQueueActivities, Build names::BUILD, BuildBatchRequest => BatchBuilt,
    |it, ctx, request| {
    with_heartbeats(ctx, |_, stop| async move {
        until_stopped(&stop.clone(), Box::pin(it.build(request))).await
    })
    .await
});
register_activity!(MergeQueueActivities, Gates names::GATES, QueueGatesRequest => QueueGatesResult,
    |it, ctx, request| {
    with_heartbeats(ctx, |attempt, stop| async move { it.run_gates(request, attempt, stop).await })
        .await
});
register_activity!(MergeQueueActivities, Advance names::ADVANCE, AdvanceRequest => AdvanceResult,
    |it, ctx, request| {
    // It is never stopped: nobody would know whether the branch advanced.
    with_heartbeats(ctx, |_, _| async move { it.advance(request).await }).await
});
register_activity!(MergeQueueActivities, Verify names::VERIFY, VerifyLandedRequest => Option<String>,
    |it, ctx, request| {
    with_heartbeats(ctx, |_, _| async move { it.verify(request).await }).await
});
register_activity!(MergeQueueActivities, Settle names::SETTLE, SettleRequest => (),
    |it, ctx, request| {
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
