//! Jobs that a worker runs inside a workflow task.

use tamma_core::ids::TaskId;
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

#[tokio::test]
async fn processes_that_never_ended_a_job_are_counted() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    let key = (TaskId(Uuid::from_u128(1)), 4);
    let begin = async |process: &str| {
        store.begin_inline_job(key, process).await.expect("begun").lost_processes
    };
    assert_eq!(begin("a").await, 0);
    assert_eq!(begin("a").await, 0, "the same process tries it again");
    assert_eq!(begin("b").await, 1);
    assert_eq!(begin("a").await, 1, "the first process is not dead");
    assert_eq!(begin("b").await, 1);
    assert_eq!(begin("c").await, 2);
    let other = store.begin_inline_job((key.0, 5), "a").await.expect("begun");
    assert_eq!((other.lost_processes, other.earlier), (0, 0), "another job");
    let again = store.begin_inline_job(key, "c").await.expect("begun");
    assert_eq!(again.earlier, 6, "starts without an end, whatever the process");
    store.end_inline_job(key).await.expect("ended");
    assert_eq!(begin("c").await, 0, "it ended, perhaps with an error");
}
