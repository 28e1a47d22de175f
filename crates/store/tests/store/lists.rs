//! Lists and details that people see: board, inbox, task page.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use sqlx::AssertSqlSafe;
use tamma_core::cause::AlertCause;
use tamma_core::cost::Usd;
use tamma_core::ids::TaskId;
use tamma_core::task::{Priority, TaskEdit, branch_name};
use tamma_core::task_loop::{Action, AlertKind, AlertSeverity, AnswerKind, Outcome, Phase, State};
use tamma_store::{
    IterationOutcome, ListedTask, PlanVerdict, SavedView, Store, TaskFilter, TaskOrder,
};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{PROJECT, RecordedTask, careful, quick, register, to_micros};
use crate::world::{note, reason, red};

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

async fn write(store: &Store, recorded: &RecordedTask) {
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
}

fn ids(tasks: &[ListedTask]) -> Vec<TaskId> {
    tasks
        .iter()
        .map(|listed| match listed {
            ListedTask::Card(card) => card.task,
            ListedTask::Damaged { task, .. } => *task,
        })
        .collect()
}

#[tokio::test]
async fn pages_have_no_gaps_or_repetitions() {
    let (_database, store) = fresh().await;
    let mut expected = Vec::new();
    for number in 1..=23 {
        let recorded = RecordedTask::new(number, careful());
        write(&store, &recorded).await;
        expected.insert(0, recorded.task.id);
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.tasks(&TaskFilter::default(), after, 5).await.expect("page");
        listed.extend(ids(&page.tasks));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn filters_narrow_the_list() {
    let (_database, store) = fresh().await;
    let waiting = RecordedTask::new(1, careful()).until(State::AwaitingApproval);
    let ended = RecordedTask::new(2, quick()).until(State::Completed);
    for recorded in [&waiting, &ended] {
        write(&store, recorded).await;
    }
    let one = vec![waiting.task.id];
    let matching =
        async |filter: TaskFilter| ids(&store.tasks(&filter, None, 9).await.expect("page").tasks);
    let none = TaskFilter::default;
    let states = vec![State::AwaitingApproval, State::Failed];
    assert_eq!(matching(TaskFilter { states, project: Some(PROJECT), ..none() }).await, one);
    assert_eq!(matching(TaskFilter { phase: Some(Phase::Approve), ..none() }).await, one);
    assert_eq!(matching(TaskFilter { text: Some("\"task 1\"".to_owned()), ..none() }).await, one);
    assert_eq!(matching(TaskFilter { label: Some("nice".to_owned()), ..none() }).await.len(), 2);
    assert_eq!(matching(TaskFilter { paused: Some(true), ..none() }).await, []);
    let counts = store.count_by_state(Some(PROJECT)).await.expect("counts");
    assert_eq!(counts, [(State::AwaitingApproval, 1), (State::Completed, 1)].into());
}

#[tokio::test]
async fn a_search_matches_the_start_of_words_and_no_text_breaks_it() {
    let (_database, store) = fresh().await;
    let titles = ["Greet people by name", "Round totals in src/main.rs", "Don't greet Ümlauts"];
    let mut tasks = Vec::new();
    for (number, title) in (1..).zip(titles) {
        let mut recorded = RecordedTask::new(number, careful());
        recorded.task.title = title.to_owned();
        recorded.task.description = String::new();
        write(&store, &recorded).await;
        tasks.push(recorded.task.id);
    }
    let found = async |text: &str| {
        let filter = TaskFilter { text: Some(text.to_owned()), ..TaskFilter::default() };
        let listed = ids(&store.tasks(&filter, None, 9).await.expect("page").tasks);
        let board = store.board(&filter, TaskOrder::Newest, 9).await.expect("board");
        assert_eq!(ids(&board.tasks), listed, "{text}");
        listed
    };
    let [people, totals, letters] = tasks[..] else { panic!("{tasks:?}") };
    for (text, expected) in [
        ("gre", vec![letters, people]),
        ("GREET peo", vec![people]),
        ("na gre", vec![people]),
        ("reet", vec![]),
        ("greets", vec![]),
        ("\"greet people\"", vec![people]),
        ("\"greet peo\"", vec![]),
        ("\"gre\"", vec![]),
        ("\"people greet\"", vec![]),
        ("gre -people", vec![letters]),
        ("gre -peo", vec![letters, people]),
        ("gre -\"by name\"", vec![letters]),
        ("tot - round", vec![totals]),
        ("tot or Üml", vec![letters, totals]),
        ("src/ma", vec![totals]),
        ("don't", vec![letters]),
    ] {
        assert_eq!(found(text).await, expected, "{text}");
    }
    let many = "a or ".repeat(50_000);
    let long = "x".repeat(5_000);
    for text in [
        "",
        "!!!",
        "':*",
        "\\",
        "''",
        "gre':* | 'a",
        "\"",
        "-",
        "-\"\"",
        "\" \"",
        "\"<b>\"",
        "-'",
        "or",
        "a or",
        "\u{a0}",
        "\u{200b}",
        "\u{1}",
        "a & | ! ( <-> )",
        "\0",
        many.as_str(),
        long.as_str(),
    ] {
        found(text).await;
    }
}

#[tokio::test]
async fn question_is_in_the_inbox_until_it_is_answered() {
    let (_database, store) = fresh().await;
    let mut recorded = RecordedTask::new(1, careful()).until(State::Validated);
    write(&store, &recorded).await;
    let inbox = store.inbox(Some(PROJECT), None, 10).await.expect("inbox");
    let [ListedTask::Card(card)] = &inbox.tasks[..] else { panic!("{inbox:?}") };
    assert!(card.answers().contains(&AnswerKind::Approve));
    assert_eq!(card.question, recorded.it().open_question);
    assert_eq!(card.next, recorded.it().next_step(&recorded.rules));
    let ids = [recorded.task.id, TaskId(uuid::Uuid::from_u128(404))];
    let machines = store.task_loops(&ids).await.expect("machines");
    assert_eq!(machines, BTreeMap::from([(recorded.task.id, recorded.it().clone())]));
    let alerts = store.alerts(recorded.task.id).await.expect("alerts");
    let newest = alerts.iter().map(|alert| (recorded.task.id, alert.severity)).collect();
    assert_eq!(store.newest_severities(&ids).await.expect("severities"), newest);
    assert_eq!(store.count_waiting(None).await.expect("count"), 1);
    let late = recorded.now + TimeDelta::days(2);
    assert_eq!(store.over_timeout(None, late, None, 10).await.expect("page").tasks.len(), 1);
    assert_eq!(
        store.over_timeout(None, recorded.now, None, 10).await.expect("page").tasks.len(),
        0
    );

    // Acknowledged, reminded no more, and approved.
    let before = recorded.steps.len() - 1;
    assert!(recorded.ask(Action::Acknowledge));
    let scope = recorded.it().current_scope().expect("plan");
    assert!(recorded.ask(Action::Approve { scope, reason: None }));
    store.save_steps(&recorded.records()[before..], &recorded.rules).await.expect("recorded");
    assert_eq!(store.count_waiting(None).await.expect("count"), 0);
    let [alert] = &store.alerts(recorded.task.id).await.expect("alerts")[..] else { panic!() };
    assert_eq!(alert.acknowledged.as_ref().map(|(by, _)| by.as_str()), Some("ann"));
    assert!(alert.settled_at.is_some());
    let [decision] = &store.decisions(recorded.task.id).await.expect("decisions")[..] else {
        panic!()
    };
    assert_eq!((decision.verdict, decision.by.as_deref()), (PlanVerdict::Approve, Some("ann")));
    assert_eq!(decision.plan, Some(scope.plan.to_string()));
}

#[tokio::test]
async fn the_newest_alert_has_the_severity_of_the_task() {
    let (_database, store) = fresh().await;
    let recorded = RecordedTask::new(1, careful()).until(State::Validated);
    write(&store, &recorded).await;
    let task = recorded.task.id;
    let [question] = &store.alerts(task).await.expect("alerts")[..] else { panic!() };
    assert_ne!(question.severity, AlertSeverity::Critical);
    let (cause, severity) = (AlertCause::CostWarning, AlertSeverity::Critical);
    store.send_alert(task, PROJECT, cause, severity).await.expect("sent");
    let newest = store.newest_severities(&[task]).await.expect("severities");
    assert_eq!(newest, BTreeMap::from([(task, severity)]));
}

#[tokio::test]
async fn an_alert_about_failed_gates_does_not_blame_the_review() {
    let (_database, store) = fresh().await;
    let mut recorded = RecordedTask::new(1, quick()).until(State::Testing);
    assert!(recorded.done(red(1)));
    write(&store, &recorded).await;
    let [alert] = &store.alerts(recorded.task.id).await.expect("alerts")[..] else { panic!() };
    assert_eq!((alert.kind, alert.cause), (AlertKind::ReviewFailed, AlertCause::GatesFailed(1)));
}

#[tokio::test]
async fn decisions_are_stored_with_the_risk_at_that_time() {
    let (_database, store) = fresh().await;
    let mut recorded = RecordedTask::new(1, careful()).until(State::Validated);
    let scope = recorded.it().current_scope().expect("plan");
    assert!(recorded.ask(Action::RevisePlan { scope, changes: crate::world::note() }));
    let mut recorded = recorded.until(State::Validated);
    let scope = recorded.it().current_scope().expect("plan");
    assert!(recorded.ask(Action::Reject { scope, reason: reason() }));
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    for record in recorded.records() {
        store.save_steps(&[record], &recorded.rules).await.expect("recorded");
    }
    let decisions = store.decisions(recorded.task.id).await.expect("decisions");
    let verdicts: Vec<_> = decisions.iter().map(|decision| decision.verdict).collect();
    assert_eq!(verdicts, [PlanVerdict::Changes, PlanVerdict::Reject]);
    assert!(decisions.iter().all(|decision| decision.risk.is_some() && decision.plan.is_some()));
    assert_eq!(decisions[1].reason.as_deref(), Some("because"));
}

#[tokio::test]
async fn iterations_and_usage_are_stored_one_by_one() {
    let (_database, store) = fresh().await;
    let mut recorded = RecordedTask::new(1, quick()).until(State::Testing);
    assert!(recorded.done(red(1)));
    let mut recorded = recorded.until(State::Testing);
    assert!(recorded.done(red(2)));
    assert!(recorded.done(Outcome::Interrupted) || recorded.advance());
    let recorded = recorded.until(State::Completed);
    write(&store, &recorded).await;
    let runs = store.iterations(recorded.task.id).await.expect("iterations");
    let endings: Vec<_> = runs.iter().map(|run| run.outcome).collect();
    assert_eq!(endings.len(), usize::from(recorded.it().iterations));
    assert_eq!(
        endings[..2],
        [Some(IterationOutcome::GatesFailed), Some(IterationOutcome::GatesFailed)]
    );
    assert_eq!(endings.last(), Some(&Some(IterationOutcome::Passed)));
    assert!(runs[0].fingerprint.is_some() && runs[0].commit.is_some() && runs[0].tier.is_some());
    let used = store.usage(recorded.task.id).await.expect("usage");
    let expected: Vec<_> = recorded
        .steps
        .iter()
        .filter_map(|(at, _, used)| Some((to_micros(*at), (*used)?)))
        .collect();
    assert_eq!(used, expected);
    let total = store.usage_since(PROJECT, recorded.steps[0].0).await.expect("sum");
    assert_eq!(total.usd, used.iter().fold(Usd::ZERO, |sum, _| sum + Usd::from_cents(5)));
    assert_eq!(total.unpriced_jobs, 0);
}

#[tokio::test]
async fn an_attempt_that_a_person_sent_back_did_not_fail_the_review() {
    let (_database, store) = fresh().await;
    let mut rules = quick();
    rules.ceremony.low.human_review = true;
    rules.ceremony.medium.human_review = true;
    let mut recorded = RecordedTask::new(1, rules).until(State::QualityReview);
    assert!(recorded.advance(), "the automatic review passes");
    let commit = recorded.it().commit.expect("commit");
    assert!(recorded.ask(Action::RequestChanges { commit, comments: note() }));
    write(&store, &recorded).await;
    let runs = store.iterations(recorded.task.id).await.expect("iterations");
    let endings: Vec<_> = runs.iter().map(|run| run.outcome).collect();
    assert_eq!(endings, [Some(IterationOutcome::ChangesRequested)]);
}

#[tokio::test]
async fn damaged_task_does_not_hide_others() {
    let (database, store) = fresh().await;
    let recorded_tasks: Vec<_> = (1..=3)
        .map(|number| RecordedTask::new(number, careful()).until(State::Validated))
        .collect();
    for recorded in &recorded_tasks {
        write(&store, recorded).await;
    }
    let damaged = recorded_tasks[1].task.id;
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let sql =
        format!(r#"UPDATE tasks SET memory = '{{}}', question = '"?"' WHERE id = '{damaged}'"#);
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.expect("damaged");
    let inbox = store.inbox(None, None, 10).await.expect("inbox");
    assert_eq!(inbox.tasks.len(), 3);
    let damaged_tasks = inbox.tasks.iter().filter_map(|listed| match listed {
        ListedTask::Damaged { task, damage, .. } => Some((*task, damage.what)),
        ListedTask::Card(_) => None,
    });
    assert_eq!(damaged_tasks.collect::<Vec<_>>(), [(damaged, "question")]);
    let detail = store.task(damaged).await.expect("submitted task");
    assert_eq!(detail.task, recorded_tasks[1].task);
    assert!(detail.task_loop.is_err());
}

#[tokio::test]
async fn an_edit_changes_title_priority_and_labels_of_the_stored_task() {
    let (_database, store) = fresh().await;
    let mut recorded = RecordedTask::new(1, careful());
    let branch = branch_name(recorded.task.id, "task 1");
    assert!(recorded.ask(Action::Edit(TaskEdit {
        title: Some("A better title".to_owned()),
        labels: Some(vec!["login".to_owned(), "ui".to_owned()]),
        ..TaskEdit::default()
    })));
    let high = TaskEdit { priority: Some(Priority::High), ..TaskEdit::default() };
    assert!(recorded.ask(Action::Edit(high)));
    write(&store, &recorded).await;
    let stored = store.submitted_task(recorded.task.id).await.expect("task");
    assert_eq!((stored.title.as_str(), stored.priority), ("A better title", Priority::High));
    let filter = TaskFilter { label: Some("ui".to_owned()), ..TaskFilter::default() };
    let page = store.tasks(&filter, None, 9).await.expect("page");
    let [ListedTask::Card(card)] = &page.tasks[..] else { panic!("{page:?}") };
    assert_eq!(card.labels, ["login", "ui"]);
    // Later steps leave them as they are.
    let before = recorded.steps.len() - 1;
    assert!(recorded.ask(Action::Pause));
    store.save_steps(&recorded.records()[before..], &recorded.rules).await.expect("recorded");
    let stored = store.submitted_task(recorded.task.id).await.expect("task");
    assert_eq!((stored.title.as_str(), stored.labels.len()), ("A better title", 2));
    // The branch may have been pushed, so it keeps its name.
    assert_eq!(store.task_branch(recorded.task.id).await.expect("branch"), branch);
    assert_eq!(store.task(recorded.task.id).await.expect("task").branch, branch);
}

#[tokio::test]
async fn a_task_of_an_earlier_version_keeps_its_branch() {
    let (database, store) = fresh().await;
    let recorded = RecordedTask::new(1, careful());
    write(&store, &recorded).await;
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    sqlx::raw_sql("UPDATE tasks SET branch = NULL").execute(&pool).await.expect("updated");
    let id = recorded.task.id;
    assert_eq!(store.task_branch(id).await.expect("branch"), format!("tamma/{id}"));
    assert_eq!(store.task(id).await.expect("task").branch, format!("tamma/{id}"));
}

#[tokio::test]
async fn a_board_keeps_the_first_tasks_of_its_order() {
    let (_database, store) = fresh().await;
    let mut tasks = Vec::new();
    for number in 1..=3 {
        let mut recorded = RecordedTask::new(number, careful());
        if number == 2 {
            let first = TaskEdit { priority: Some(Priority::Critical), ..TaskEdit::default() };
            assert!(recorded.ask(Action::Edit(first)));
        }
        write(&store, &recorded).await;
        tasks.push(recorded.task.id);
    }
    for (order, expected) in
        [(TaskOrder::Newest, 2), (TaskOrder::Oldest, 0), (TaskOrder::Priority, 1)]
    {
        let board = store.board(&TaskFilter::default(), order, 1).await.expect("board");
        assert_eq!(ids(&board.tasks), [tasks[expected]], "{order}");
        assert_eq!(board.counts.values().sum::<u64>(), 3);
    }
    for order in [TaskOrder::Waiting, TaskOrder::Cost, TaskOrder::Updated] {
        let board = store.board(&TaskFilter::default(), order, 9).await.expect("board");
        assert_eq!(board.tasks.len(), 3, "{order}");
    }
}

/// Inserts 10,050 older copies of the completed task.
const MANY_CLOSED: &str = "
    DO $$
    DECLARE names text := (
        SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
        WHERE attrelid = 'tasks'::regclass AND attnum > 0 AND NOT attisdropped
            AND attname NOT IN ('words', 'id', 'title'));
    BEGIN
        EXECUTE format('INSERT INTO tasks (id, title, %1$s)
            SELECT (''0190000000007000800000'' || lpad(to_hex(n), 10, ''0''))::uuid,
                ''Older task '' || lpad(n::text, 5, ''0''), %1$s
            FROM tasks, generate_series(1, 10050) n WHERE title = ''task 2''', names);
    END $$;
";

#[tokio::test]
async fn a_board_covers_the_newest_closed_tasks_and_finds_words_in_older_ones() {
    let (database, store) = fresh().await;
    write(&store, &RecordedTask::new(1, careful())).await;
    write(&store, &RecordedTask::new(2, quick()).until(State::Completed)).await;
    let board = store.board(&TaskFilter::default(), TaskOrder::Newest, 3).await.expect("board");
    assert!(board.more.is_empty(), "few tasks are counted exactly");
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    sqlx::raw_sql(MANY_CLOSED).execute(&pool).await.expect("many");
    for order in [TaskOrder::Newest, TaskOrder::Cost] {
        let board = store.board(&TaskFilter::default(), order, 3).await.expect("board");
        assert_eq!(board.counts.get(&State::Completed), Some(&10_000));
        assert_eq!(board.counts.values().sum::<u64>(), 10_001, "open tasks are counted, too");
        assert!(board.more.contains(&State::Completed));
        assert_eq!(board.tasks.len(), 4);
    }
    // The seventh is older than those that the board covers.
    let words = TaskFilter { text: Some("older 00007".to_owned()), ..TaskFilter::default() };
    let board = store.board(&words, TaskOrder::Newest, 3).await.expect("board");
    assert_eq!((board.tasks.len(), board.counts.len()), (1, 0));
    assert!(board.more.contains(&State::Completed), "older ones are not counted");
}

/// The newest 10,000 tasks do not have the word, and too many others do.
#[tokio::test]
async fn a_word_of_many_old_tasks_finds_the_newest_of_them() {
    let (database, store) = fresh().await;
    write(&store, &RecordedTask::new(2, quick()).until(State::Completed)).await;
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    sqlx::raw_sql(MANY_CLOSED).execute(&pool).await.expect("many");
    let ancient = MANY_CLOSED.replace("Older", "Ancient").replace("''0190", "''0180");
    sqlx::raw_sql(sqlx::AssertSqlSafe(ancient)).execute(&pool).await.expect("more");
    let titles = async |text: &str, states: &[State]| {
        let (text, states) = (Some(text.to_owned()), states.to_vec());
        let filter = TaskFilter { text, states, ..TaskFilter::default() };
        let page = store.tasks(&filter, None, 2).await.expect("tasks");
        let title = |task: &ListedTask| match task {
            ListedTask::Card(card) => card.title.clone(),
            ListedTask::Damaged { title, .. } => title.clone(),
        };
        page.tasks.iter().map(title).collect::<Vec<_>>()
    };
    for states in [&[][..], &[State::Completed], &[State::Completed, State::Failed]] {
        let found = titles("ancient", states).await;
        assert_eq!(found, ["Ancient task 10050", "Ancient task 10049"], "many");
        assert_eq!(titles("older", states).await, ["Older task 10050", "Older task 10049"], "new");
        assert_eq!(titles("ancient 00007", states).await, ["Ancient task 00007"], "rare");
        assert!(titles("modern", states).await.is_empty());
    }
    assert!(titles("ancient", &[State::Failed]).await.is_empty());
}

#[tokio::test]
async fn saved_views_belong_to_one_person() {
    let (_database, store) = fresh().await;
    let (ann, bob) = ("ann".parse().expect("name"), "bob".parse().expect("name"));
    let view = |query: &str| SavedView { name: "Mine".to_owned(), query: query.to_owned() };
    assert!(store.save_view(&ann, &view("waits=person")).await.expect("saved"));
    assert!(store.save_view(&ann, &view("group=project")).await.expect("saved"));
    assert_eq!(store.saved_views(&ann).await.expect("views"), [view("group=project")]);
    assert!(store.saved_views(&bob).await.expect("views").is_empty());
    assert!(!store.remove_view(&bob, "Mine").await.expect("removed"));
    assert!(store.remove_view(&ann, "Mine").await.expect("removed"));
    assert!(store.saved_views(&ann).await.expect("views").is_empty());
    for number in 0..50 {
        let view = SavedView { name: format!("View {number}"), query: String::new() };
        assert!(store.save_view(&ann, &view).await.expect("saved"));
    }
    assert!(!store.save_view(&ann, &view("")).await.expect("refused"), "50 views are enough");
}

#[tokio::test]
async fn a_spend_with_an_unknown_cost_is_marked() {
    let (database, store) = fresh().await;
    let recorded = RecordedTask::new(1, careful()).until(State::Validated);
    write(&store, &recorded).await;
    let spend = async || {
        let listed = store.listed_task(recorded.task.id).await.expect("read").expect("a task");
        let ListedTask::Card(card) = listed else { panic!("{listed:?}") };
        card.spend
    };
    assert!(!spend().await.estimated);
    let unknown = "INSERT INTO usage
        (task, ticket, project, job, at, tokens_input, tokens_cached, tokens_output)
        SELECT id, 99, project, 'plan', now(), 1, 0, 1 FROM tasks";
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connection");
    sqlx::query(unknown).execute(&pool).await.expect("written");
    assert!(spend().await.estimated, "an unknown cost is not zero");
    let by_job = store.spend_by_job(None, recorded.steps[0].0).await.expect("spend");
    let plan = by_job.iter().find(|it| it.what == "plan").expect("planning");
    assert_eq!(plan.unpriced_jobs, 1);
}
