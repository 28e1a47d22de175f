//! Sample task of the [`Repository`](crate::repository::Repository), with its plan and script.

use std::collections::BTreeMap;

use tamma_core::actor::Actor;
use tamma_core::complexity::Signals;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::plan::{FileAction, FileChange, Plan, PlannedTest};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{TaskLoop, TaskReceived, Timestamp, begin};
use tamma_core::version::Edition;
use uuid::Uuid;

use crate::agent::{AgentStep, Script};

/// New content of each file of the sample plan. With it, the repository's check passes.
pub const SAMPLE_CONTENT: &str = "ann\nbo\ncy\n";

/// Returns the fixed ID of a numbered project.
pub fn project_id(number: u32) -> ProjectId {
    ProjectId(fixed_id(1, number))
}

/// Returns the fixed ID of a numbered task.
pub fn task_id(number: u32) -> TaskId {
    TaskId(fixed_id(2, number))
}

fn fixed_id(kind: u128, number: u32) -> Uuid {
    let number = (kind << 32) + u128::from(number);
    Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + number)
}

/// Returns a plan that changes `files` files. It is low-risk with up to five, and medium-risk with
/// more.
pub fn sample_plan(files: usize) -> Plan {
    let change = |number| match number {
        0 => sample_change("names.txt", FileAction::Modify),
        _ => sample_change(format!("names/{number}.txt"), FileAction::Create),
    };
    Plan {
        summary: "Cy is greeted".to_owned(),
        approach: "Add the name to the list.".to_owned(),
        file_changes: (0..files).map(change).collect(),
        testing_strategy: "The check counts the greetings.".to_owned(),
        signals: Signals::default().into(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
        criteria: vec!["Every listed name is greeted.".to_owned()],
        assumptions: Vec::new(),
        questions: Vec::new(),
        verification: vec![PlannedTest { criterion: "C1".to_owned(), test: "check.sh".to_owned() }],
        estimated_signals: Vec::new(),
    }
}

/// Returns a change of one line.
pub fn sample_change(path: impl Into<String>, action: FileAction) -> FileChange {
    FileChange {
        path: path.into(),
        action,
        description: "one more name".to_owned(),
        estimated_lines: 1,
    }
}

/// Returns steps that write every file of a plan.
pub fn sample_work(plan: &Plan) -> impl Iterator<Item = AgentStep> {
    plan.file_changes.iter().map(|change| AgentStep::Write {
        path: (&change.path).into(),
        content: SAMPLE_CONTENT.to_owned(),
    })
}

/// Returns the script of an agent that submits the sample plan and implements it.
pub fn sample_script(files: usize) -> Script {
    let plan = sample_plan(files);
    let work: Vec<_> = sample_work(&plan).collect();
    Script::planned(plan, work)
}

/// Returns a task for the sample plan.
pub fn sample_task(id: TaskId, project: ProjectId) -> Task {
    Task {
        id,
        project,
        title: "Greet Cy".to_owned(),
        description: "Cy should be greeted too.".to_owned(),
        r#type: TaskType::Feature,
        priority: Priority::Medium,
        acceptance_criteria: Vec::new(),
        labels: Vec::new(),
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
        issue_number: None,
        metadata: BTreeMap::new(),
    }
}

/// Returns the state machine of a new task under the default rules.
pub fn sample_task_loop() -> TaskLoop {
    let received = TaskReceived {
        task: task_id(1),
        project: project_id(1),
        priority: Priority::Medium,
        at: Timestamp::UNIX_EPOCH,
        by: Actor::Tamma,
        auth: None,
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    begin(&received, &Rules::default()).next
}
