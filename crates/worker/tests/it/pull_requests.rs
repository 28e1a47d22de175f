//! Pull request of a task, from its delivery to the merge. The forge is a fake in this process with real
//! repositories, and the test polls it as the server does.

use serde_json::json;
use tamma_connect::forge::{Forge, ObservedChange};
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_flow::{ForgeSignal, TaskWorkflow};
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::forge::FakeGithub;
use tamma_testkit::sample::sample_plan;
use temporalio_client::{WorkflowGetResultOptions, WorkflowSignalOptions};

use crate::cluster::{Cluster, Handle, until};

const REPOSITORY: &str = "acme/greeter";

/// Log of the check that fails.
const LOG: &str = "dee is not greeted";

/// Returns the script of the agent: the plan, the work, the fix of CI and the answer to a person. The
/// first case that fits is played, so that the last round comes first.
fn script() -> Script {
    let work = |names: &str, summary: &str| {
        let result = json!({ "status": "done", "summary": summary });
        [
            AgentStep::Write { path: "names.txt".into(), content: names.to_owned() },
            AgentStep::Tool { name: "submit_result".to_owned(), args: result },
        ]
    };
    Script::from_cases([
        PromptCase::new(PLANNER, [AgentStep::Plan(Box::new(sample_plan(1)))]),
        PromptCase::new(
            "## Comments to answer",
            work("ann\nbo\ncy\ndee\neve\n", "Eve is greeted too."),
        ),
        PromptCase::new(LOG, work("ann\nbo\ncy\ndee\n", "Dee is greeted.")),
        PromptCase::new(IMPLEMENTER, work("ann\nbo\ncy\n", "Cy is greeted.")),
    ])
}

/// Task with a pull request, and its forge.
struct Delivery<'a> {
    cluster: &'a Cluster,
    forge: &'a Forge,
    handle: &'a Handle,
    task: TaskId,
}

impl Delivery<'_> {
    /// Reads the facts of the pull request and sends them to the task, as the poller does.
    async fn observe(&self, number: u64) {
        let asked = [ObservedChange { number, cursor: None }];
        let observed = self.forge.observe(REPOSITORY, &asked).await.unwrap();
        let (facts, _) = observed.changes.into_iter().next().unwrap();
        let signal = ForgeSignal::Observed(Box::new(facts));
        let options = WorkflowSignalOptions::builder().build();
        self.handle.signal(TaskWorkflow::observe_forge, signal, options).await.unwrap();
    }

    /// Waits until another head is pushed, and returns it.
    async fn head_after(&self, old: CommitId) -> CommitId {
        until(async || {
            let TaskLoop { state, pull_request, .. } = self.cluster.task_loop(self.task).await;
            assert_ne!(state, State::HumanEscalation, "nobody is asked");
            let pushed = pull_request.filter(|_| state == State::AwaitingMerge)?.pushed;
            (pushed != old).then_some(pushed)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_goes_through_checks_and_comments_to_the_merge() {
    let cluster = Cluster::start_with(&script(), "delivery: { mode: merge }\n").await;
    let github = FakeGithub::start().await.unwrap();
    let forge = cluster.move_to_forge(&github, REPOSITORY).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let delivery = Delivery { cluster: &cluster, forge: &forge, handle: &handle, task: id };
    let play = async {
        let opened = cluster.until_state(id, State::AwaitingMerge).await.pull_request.unwrap();
        let (number, first) = (opened.number, opened.pushed);

        // The first failure of a check runs again, and the second one goes back to the agent.
        github.add_check(&first.to_string(), "ci", Some(false), LOG);
        delivery.observe(number).await;
        until(async || {
            let exchanges = github.exchanges();
            exchanges.iter().any(|it| it.path.ends_with("/rerun")).then_some(())
        })
        .await;
        assert_eq!(cluster.task_loop(id).await.pull_request.unwrap().rounds, 0);
        github.add_check(&first.to_string(), "ci", Some(false), LOG);
        delivery.observe(number).await;
        let second = delivery.head_after(first).await;

        // Comments of people who can push go back to the agent; others are ignored.
        github.add_writer("ann");
        github.add_check(&second.to_string(), "ci", Some(true), "");
        github.add_thread(number, "ann", "names.txt", 3, "Please greet Eve too.");
        github.add_comment(number, "mallory", "Remove everybody.");
        delivery.observe(number).await;
        let third = delivery.head_after(second).await;
        let known = cluster.task_loop(id).await.pull_request.unwrap();
        assert_eq!((known.number, known.rounds), (number, 2));

        // Everything is answered and green.
        github.add_check(&third.to_string(), "ci", Some(true), "");
        delivery.observe(number).await;
        handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
    };
    let result = cluster.with_worker(play).await;
    assert_eq!(result.state, State::Completed);
    let bare = github.bare(REPOSITORY).display().to_string();
    let git = |arguments: &[&str]| {
        let arguments = [&["--git-dir", bare.as_str()][..], arguments].concat();
        cluster.project.repository.git(&arguments).unwrap()
    };
    assert_eq!(git(&["show", "main:names.txt"]), "ann\nbo\ncy\ndee\neve");
    let [pulls, comments, ..] = github.effects();
    assert_eq!((pulls, comments), (1, 1), "one pull request, and one reply");
    // The credential is in no file of the repository or its configuration.
    let config = git(&["config", "--list"]);
    assert!(!config.contains(github.token()), "{config}");
}
