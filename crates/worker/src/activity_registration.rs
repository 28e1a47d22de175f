//! Registration of activities with Temporal.

use std::sync::Arc;

use temporalio_sdk::activities::ActivityError;

use crate::error::Error;

/// Returns the instance that an activity is registered with.
pub(crate) fn registered<T>(receiver: Option<Arc<T>>) -> Result<Arc<T>, ActivityError> {
    let missing = || Error::Internal("activity registered without an instance".to_owned());
    receiver.ok_or_else(|| missing().into_activity_error())
}

/// Declares a marker for an activity, because the SDK registers activities by type.
macro_rules! register_activity {
    (
        $implementer:ty, $type:ident $name:path, $input:ty => $output:ty,
        |$it:ident, $ctx:ident, $request:ident| $work:expr
    ) => {
        struct $type;

        impl ::temporalio_common::ActivityDefinition for $type {
            type Input = $input;
            type Output = $output;

            fn name(&self) -> &str {
                $name
            }
        }

        impl ::temporalio_sdk::activities::ExecutableActivity for $type {
            type Implementer = $implementer;
            const REQUIRES_INSTANCE: bool = true;

            fn definition() -> Self {
                Self
            }

            fn execute(
                receiver: Option<::std::sync::Arc<$implementer>>,
                $ctx: ::temporalio_sdk::activities::ActivityContext,
                $request: $input,
            ) -> ::futures::future::BoxFuture<
                'static,
                Result<$output, ::temporalio_sdk::activities::ActivityError>,
            > {
                Box::pin(async move {
                    let $it = $crate::activity_registration::registered(receiver)?;
                    $work
                })
            }
        }
    };
}

pub(crate) use register_activity;
