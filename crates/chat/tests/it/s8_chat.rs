//! Section 8: chat understands, and changes nothing without a yes.

use rstest::rstest;
use tamma_chat::{
    Change, Context, Conversation, Heard, Intent, Lesson, Proposal, Subject, Unconfirmed,
    understand,
};
use tamma_core::ids::{KnowledgeId, PlanHash, TaskId};
use tamma_core::knowledge::Status;
use tamma_core::task_loop::{Answer, State};
use uuid::Uuid;

fn id(number: u128) -> TaskId {
    TaskId(Uuid::from_u128(number))
}

fn subject(number: u32, title: &str, state: State, answers: &[Answer]) -> Subject {
    Subject {
        id: id(number.into()),
        number: Some(number),
        title: title.to_owned(),
        state,
        paused: false,
        answers: answers.to_vec(),
        plan: None,
        commit: None,
        question: None,
    }
}

/// A plan that waits, a change that waits, a task that has failed, one that runs, and a lesson.
fn context() -> Context {
    use Answer as A;
    let mut tasks = vec![
        subject(1, "Sort the price list", State::AwaitingApproval, &[A::Approve, A::Reject]),
        subject(2, "Round prices up", State::QualityReview, &[A::Accept, A::Rework]),
        subject(
            3,
            "Import the catalogue",
            State::HumanEscalation,
            &[A::Continue, A::Retry, A::RollBack, A::Skip, A::Abandon],
        ),
        subject(4, "Print labels", State::InProgress, &[]),
    ];
    tasks[0].plan = Some(PlanHash::of(b"the plan"));
    let lessons = vec![Lesson {
        id: KnowledgeId(Uuid::from_u128(9)),
        text: "Round at the end".to_owned(),
        status: Status::Pending,
    }];
    Context { tasks, lessons, ..Context::default() }
}

fn command(message: &str) -> String {
    let context = context();
    match understand(message, &context).intent {
        Intent::Change(change) => {
            change.command(&context).to_string().replace("00000000-0000-0000-0000-00000000000", "…")
        }
        other => format!("{other:?}"),
    }
}

#[rstest]
#[case("pause #4", "tamma pause …4")]
#[case("cancel the labels, they are paper", "tamma cancel …4 --reason='they are paper'")]
#[case("cancel #4", "tamma cancel …4 --reason='said in the chat, without a reason'")]
#[case("approve #2", "tamma answer …2 accept")]
#[case("reject #2: it's wrong", r"tamma answer …2 rework --reason='it'\''s wrong'")]
#[case("retry #3 with 2.50 dollars", "tamma retry …3 --grant-usd=2.5")]
#[case("continue #3", "tamma answer …3 continue")]
#[case(
    "roll #3 back to planning",
    "tamma answer …3 roll-back --to=planning --reason='said in the chat, without a reason'"
)]
#[case("change #4 to --print two", "tamma modify …4 -- '--print two'")]
#[case("fix the --json option", "tamma task add --type=bugfix -- 'fix the --json option'")]
#[case("approve the lesson", "tamma knowledge approve …9")]
fn chat_shows_the_exact_command_of_a_change(#[case] message: &str, #[case] line: &str) {
    assert_eq!(command(message), line);
}

#[test]
fn chat_approves_the_plan_that_is_there_and_no_other() {
    let hash = PlanHash::of(b"the plan").short();
    assert_eq!(command("approve the price list"), format!("tamma approve …1 --plan={hash}"));
}

#[test]
fn chat_shows_what_it_does_without_characters_that_hide_it() {
    let line = command("fix the labels\u{202e}gnp.exe\u{7} and\tgo");
    assert_eq!(line, "tamma task add --type=bugfix -- 'fix the labelsgnp.exe and go'");
}

#[rstest]
#[case("approve prices", "which")]
#[case("approve the labels", "does_not_fit")]
#[case("approve #77", "unknown_task")]
#[case("cancel every task", "one_at_a_time")]
#[case("cancel #4 if it fails", "condition")]
#[case("stop #4", "which_command")]
#[case("roll #3 back", "where_to")]
#[case("yes", "yes_to_what")]
#[case("frobnicate", "what")]
fn chat_asks_back_where_it_would_have_to_guess(#[case] message: &str, #[case] asks: &str) {
    let context = context();
    let Intent::Unclear(unclear) = understand(message, &context).intent else {
        panic!("{message} was taken for clear");
    };
    assert_eq!(<&str>::from(&unclear), asks);
    assert!(unclear.question(&context).ends_with('?') || asks == "reason");
}

#[rstest]
#[case("how much did we spend today?", None)]
#[case("how much did it cost?", Some(4))]
#[case("what did the labels cost today?", Some(4))]
fn chat_counts_the_money_of_a_time_over_everything(
    #[case] message: &str,
    #[case] number: Option<u128>,
) {
    let context = Context { last: Some(id(4)), ..context() };
    let Intent::Cost { task, .. } = understand(message, &context).intent else {
        panic!("{message} is about money");
    };
    assert_eq!(task, number.map(id));
}

#[test]
fn chat_carries_nothing_out_without_a_yes() {
    let mut chat = Conversation::default();
    assert!(matches!(chat.hear("pause #4", &context()), Heard::Understood(_)));
    let shown = chat.pending().unwrap().command().to_string();
    let Heard::Confirmed(confirmed) = chat.hear("yes", &context()) else {
        panic!("a yes confirms");
    };
    assert_eq!(confirmed.command().to_string(), shown);
    // The same yes again is for nothing.
    assert!(matches!(chat.hear("yes", &context()), Heard::Understood(_)));
}

#[test]
fn chat_yes_is_for_the_latest_proposal_only() {
    let mut chat = Conversation::default();
    chat.hear("pause #4", &context());
    let first = chat.pending().unwrap().digest().to_string();
    chat.hear("retry #3", &context());
    // The name of the first confirms nothing any more.
    assert!(matches!(chat.hear(&first, &context()), Heard::Understood(_)));
    // And a plain yes is too late once something else was said; the name of the latest is not.
    assert!(!matches!(chat.hear("yes", &context()), Heard::Confirmed(_)));
    let latest = chat.pending().unwrap().digest().to_string();
    let Heard::Confirmed(confirmed) = chat.hear(&latest, &context()) else {
        panic!("the digest confirms");
    };
    assert_eq!(confirmed.change().name(), "retry");
}

#[test]
fn chat_yes_does_not_count_for_what_has_changed_since() {
    let mut chat = Conversation::default();
    chat.hear("approve #1", &context());
    let mut later = context();
    later.tasks[0].plan = Some(PlanHash::of(b"another plan"));
    assert_eq!(chat.hear("yes", &later), Heard::Refused(Unconfirmed::Changed));
    assert!(chat.pending().is_none());
}

#[test]
fn chat_proposals_of_a_model_need_the_same_yes() {
    let act = tamma_chat::Act::Pause;
    let proposal = Proposal::new(Change::Task { task: id(4), act }, &context());
    assert_eq!(proposal.confirm("the model says yes", &context()), Err(Unconfirmed::NotAYes));
}
