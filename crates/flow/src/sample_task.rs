//! New task for unit tests.

use tamma_core::actor::Actor;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::Priority;
use tamma_core::task_loop::{TaskLoop, TaskReceived, Timestamp, begin};
use tamma_core::version::Edition;

/// Returns the state machine of a new task under the default rules.
pub(crate) fn sample_task_loop() -> TaskLoop {
    let task = TaskId::from_parts(Timestamp::UNIX_EPOCH, 1);
    let received = TaskReceived {
        task,
        project: ProjectId(task.0),
        priority: Priority::Medium,
        at: Timestamp::UNIX_EPOCH,
        by: Actor::Tamma,
        auth: None,
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    begin(&received, &Rules::default()).next
}
