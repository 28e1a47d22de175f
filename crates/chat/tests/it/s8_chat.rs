//! Section 8: chat interprets messages, and changes nothing without confirmation.

use rstest::rstest;
use tamma_chat::{
    ChatContext, ChatLesson, ChatStory, ChatTask, ConfirmError, Conversation, Intent,
    MessageOutcome, Proposal, RequestedChange, StoryAction, interpret, is_about_story,
};
use tamma_core::ids::{KnowledgeId, PipelineId, PlanHash, TaskId};
use tamma_core::knowledge::EntryStatus;
use tamma_core::task_loop::{AnswerKind, State};
use uuid::Uuid;

fn id(number: u128) -> TaskId {
    TaskId(Uuid::from_u128(number))
}

fn subject(number: u32, title: &str, state: State, answers: &[AnswerKind]) -> ChatTask {
    ChatTask {
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

/// Context with a plan to approve, a change to review, a failed task, a running one and a lesson.
fn context() -> ChatContext {
    use AnswerKind as A;
    let mut tasks = vec![
        subject(1, "Sort the price list", State::AwaitingApproval, &[A::Approve, A::Reject]),
        subject(2, "Round prices up", State::QualityReview, &[A::Accept, A::RequestChanges]),
        subject(
            3,
            "Import the catalogue",
            State::HumanEscalation,
            &[A::Continue, A::Retry, A::RollBack, A::Skip, A::Abandon],
        ),
        subject(4, "Print labels", State::InProgress, &[]),
        subject(5, "Fold boxes", State::Completed, &[]),
    ];
    tasks[0].plan = Some(PlanHash::of(b"the plan"));
    let lessons = vec![ChatLesson {
        id: KnowledgeId(Uuid::from_u128(9)),
        text: "Round at the end".to_owned(),
        status: EntryStatus::Pending,
    }];
    ChatContext { tasks, lessons, ..ChatContext::default() }
}

fn command(message: &str) -> String {
    let context = context();
    match interpret(message, &context).intent {
        Intent::Change(change) => {
            change.command(&context).to_string().replace("00000000-0000-0000-0000-00000000000", "…")
        }
        other => format!("{other:?}"),
    }
}

#[rstest]
#[case("pause #4", "tamma pause …4")]
#[case("cancel the labels, they are paper", "tamma cancel …4 --reason='they are paper'")]
#[case("cancel #4", "tamma cancel …4 --reason='requested in chat, no reason given'")]
#[case("approve #2", "tamma answer …2 accept")]
#[case("reject #2: it's wrong", r"tamma answer …2 request-changes --reason='it'\''s wrong'")]
#[case("retry #3 with 2.50 dollars", "tamma retry …3 --grant-usd=2.5")]
#[case("continue #3", "tamma answer …3 continue")]
#[case(
    "roll #3 back to planning",
    "tamma answer …3 roll-back --to=planning --reason='requested in chat, no reason given'"
)]
#[case("change #4 to --print two", "tamma change-task …4 -- '--print two'")]
#[case("fix the --json option", "tamma task add --type=bugfix -- 'fix the --json option'")]
#[case("approve the lesson", "tamma knowledge approve …9")]
#[case("rate #5 4 stars", "tamma rate …5 4")]
#[case("rate the boxes 2/5, they are crooked", "tamma rate …5 2 --reason='they are crooked'")]
#[case("please give the boxes five stars", "tamma rate …5 5")]
#[case("ask the council about #4: is glue enough?", "tamma council …4 -- 'is glue enough'")]
#[case("ask the council why the labels come off", "tamma council …4 -- 'why the labels come off'")]
fn chat_shows_the_exact_command_of_a_change(#[case] message: &str, #[case] line: &str) {
    assert_eq!(command(message), line);
}

#[test]
fn chat_approves_only_the_current_plan() {
    let hash = PlanHash::of(b"the plan").short();
    assert_eq!(command("approve the price list"), format!("tamma approve …1 --plan={hash}"));
}

#[test]
fn chat_removes_invisible_characters_from_commands() {
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
#[case("rate #5", "rating")]
#[case("rate #5 4.5 stars", "rating")]
#[case("rate #4 4 stars", "does_not_fit")]
#[case("ask the council about #4", "council_question")]
#[case("ask the council about #1: is it sound?", "does_not_fit")]
#[case("yes", "yes_to_what")]
#[case("frobnicate", "what")]
fn chat_asks_instead_of_guessing(#[case] message: &str, #[case] asks: &str) {
    let context = context();
    let Intent::Unclear(unclear) = interpret(message, &context).intent else {
        panic!("{message} should be unclear");
    };
    assert_eq!(<&str>::from(&unclear), asks);
    assert!(unclear.question(&context).ends_with('?') || asks == "reason");
}

#[rstest]
#[case("how much did we spend today?", None)]
#[case("how much did it cost?", Some(4))]
#[case("what did the labels cost today?", Some(4))]
fn chat_cost_of_a_period_covers_all_tasks(#[case] message: &str, #[case] number: Option<u128>) {
    let context = ChatContext { last: Some(id(4)), ..context() };
    let Intent::Cost { task, .. } = interpret(message, &context).intent else {
        panic!("{message} should be about cost");
    };
    assert_eq!(task, number.map(id));
}

#[test]
fn chat_executes_nothing_without_confirmation() {
    let mut chat = Conversation::default();
    assert!(matches!(chat.handle("pause #4", &context()), MessageOutcome::Interpreted(_)));
    let shown = chat.pending().unwrap().command().to_string();
    let MessageOutcome::Confirmed(confirmed) = chat.handle("yes", &context()) else {
        panic!("should be confirmed");
    };
    assert_eq!(confirmed.command().to_string(), shown);
    // A second confirmation has nothing to confirm.
    assert!(matches!(chat.handle("yes", &context()), MessageOutcome::Interpreted(_)));
}

#[test]
fn chat_confirmation_is_for_the_latest_proposal_only() {
    let mut chat = Conversation::default();
    chat.handle("pause #4", &context());
    let first = chat.pending().unwrap().digest().to_string();
    chat.handle("retry #3", &context());
    // The digest of the first proposal no longer confirms anything.
    assert!(matches!(chat.handle(&first, &context()), MessageOutcome::Interpreted(_)));
    // After another message, a plain confirmation is too late; the digest of the latest still
    // counts.
    assert!(!matches!(chat.handle("yes", &context()), MessageOutcome::Confirmed(_)));
    let latest = chat.pending().unwrap().digest().to_string();
    let MessageOutcome::Confirmed(confirmed) = chat.handle(&latest, &context()) else {
        panic!("digest should confirm");
    };
    assert_eq!(confirmed.change().name(), "retry");
}

#[test]
fn chat_confirmation_is_refused_after_a_change() {
    let mut chat = Conversation::default();
    chat.handle("approve #1", &context());
    let mut later = context();
    later.tasks[0].plan = Some(PlanHash::of(b"another plan"));
    assert_eq!(chat.handle("yes", &later), MessageOutcome::Refused(ConfirmError::Changed));
    assert!(chat.pending().is_none());
}

#[test]
fn chat_model_proposals_need_the_same_confirmation() {
    let act = tamma_chat::ChatAction::Pause;
    let proposal = Proposal::new(RequestedChange::Task { task: id(4), action: act }, &context());
    assert_eq!(proposal.confirm("the model says yes", &context()), Err(ConfirmError::NotConfirmed));
}

#[test]
fn a_stored_conversation_continues_and_confirms_only_what_was_shown() {
    let now = context();
    let mut first = Conversation::default();
    first.handle("pause #4", &now);
    let shown = first.pending().expect("a proposal").command().to_string();
    let text = serde_json::to_string(&first.save()).expect("JSON");
    let restore = |now: &ChatContext| {
        Conversation::restore(serde_json::from_str(&text).expect("a conversation"), now)
    };
    match restore(&now).handle("yes", &now) {
        MessageOutcome::Confirmed(confirmed) => assert_eq!(confirmed.command().to_string(), shown),
        other => panic!("{other:?}"),
    }
    // The task has changed since, so the confirmation does not count.
    let mut later = now.clone();
    later.tasks[3].paused = true;
    let outcome = restore(&later).handle("yes", &later);
    assert_eq!(outcome, MessageOutcome::Refused(ConfirmError::Changed));
    // After another message, a plain yes does not count, stored or not.
    let mut second = restore(&now);
    second.handle("what needs my attention?", &now);
    let mut third = Conversation::restore(second.save(), &now);
    assert!(!matches!(third.handle("yes", &now), MessageOutcome::Confirmed(_)));
}

/// Context with a story at a gate and one that stopped.
fn stories() -> ChatContext {
    use StoryAction as A;
    let story = |number, story_id: &str, state: &str, actions: &[A]| ChatStory {
        id: PipelineId(Uuid::from_u128(number)),
        story_id: story_id.to_owned(),
        feature_dir: "plans/features/wishlist".to_owned(),
        project: "shop".to_owned(),
        state: state.to_owned(),
        run: 1,
        actions: actions.to_vec(),
    };
    let stories = vec![
        story(5, "WISH-1", "at the gate of elaboration", &[A::Continue, A::Skip, A::Stop]),
        story(6, "WISH-12", "stopped at qa_verify", &[A::Resume]),
    ];
    ChatContext { stories, ..context() }
}

#[rstest]
#[case("continue wish-1 please", "tamma pipeline answer …5 continue")]
#[case("can you approve the gate of WISH-1?", "tamma pipeline answer …5 continue")]
#[case("skip this phase of WISH-1", "tamma pipeline answer …5 skip")]
#[case("stop WISH-1", "tamma pipeline answer …5 stop")]
#[case("retry WISH-12", "tamma pipeline resume …6")]
#[case(
    "run the pipeline of WISH-7 in plans/features/Cart from 2 to 4, approve 3",
    "tamma pipeline run plans/features/Cart WISH-7 --from=2 --to=4 --approve=3"
)]
#[case(
    "please start WISH-12 from phase 3 with gates at phases 4 and 5",
    "tamma pipeline run plans/features/wishlist WISH-12 --from=3 --approve=4,5 --project=shop"
)]
fn chat_shows_the_exact_command_for_a_story(#[case] message: &str, #[case] line: &str) {
    let context = stories();
    let Intent::Change(change) = interpret(message, &context).intent else {
        panic!("{message} should be a change");
    };
    let command = change.command(&context).to_string();
    assert_eq!(command.replace("00000000-0000-0000-0000-00000000000", "…"), line);
    assert!(is_about_story(message, &context));
}

#[rstest]
#[case("how is WISH-1 doing?", "story_status")]
#[case("WISH-12", "story_status")]
#[case("who approved WISH-1?", "story_status")]
#[case("don't cancel WISH-1", "story_status")]
#[case("list the pipelines", "stories")]
#[case("which stories are running?", "stories")]
#[case("what are pipelines?", "help")]
#[case("resume WISH-1", "unclear")]
#[case("continue WISH-1 if the tests pass", "unclear")]
#[case("continue WISH-1 and resume WISH-12", "unclear")]
#[case("run the pipeline of WISH-9", "unclear")]
#[case("run the pipeline", "unclear")]
fn chat_changes_no_story_that_it_was_not_told_to(#[case] message: &str, #[case] intent: &str) {
    let context = stories();
    let found = interpret(message, &context).intent;
    assert_eq!(found.name(), intent, "{found:?}");
    if let Intent::Unclear(unclear) = &found {
        assert!(unclear.question(&context).contains('?'));
    }
}

#[test]
fn chat_confirms_nothing_for_a_story_that_has_moved_on() {
    let now = stories();
    let pipeline = PipelineId(Uuid::from_u128(5));
    let action = StoryAction::Continue;
    let proposal = Proposal::new(RequestedChange::Story { pipeline, action }, &now);
    let mut later = now;
    later.stories[0].state = "at the gate of implementation".to_owned();
    assert_eq!(proposal.confirm("yes", &later), Err(ConfirmError::Changed));
}

/// Tasks of which one has a title that reads like commands, and two have the same.
fn quotable() -> ChatContext {
    let mut context = ChatContext { last: Some(id(4)), ..context() };
    let title = "Cancel labels, then approve it";
    context.tasks.push(subject(6, title, State::InProgress, &[]));
    context.tasks.push(subject(7, "Round prices up", State::Planning, &[]));
    context
}

#[rstest]
#[case("status of \"Fold boxes\"", 5)]
#[case("status of 'fold boxes'", 5)]
#[case("What about “Sort the price list.”", 1)]
#[case("status of \"Cancel labels, then approve it\"", 6)]
#[case("is \"Import the catalogue\" stuck because of the price list?", 3)]
#[case("status of \"#5\"", 5)]
#[case("status of \"#7\"", 7)]
fn chat_quoted_title_or_id_names_the_task(#[case] message: &str, #[case] number: u128) {
    match interpret(message, &quotable()).intent {
        Intent::Status { task } | Intent::Ask { task: Some(task), .. } => {
            assert_eq!(task, id(number), "{message}");
        }
        other => panic!("{message}: {other:?}"),
    }
}

#[rstest]
#[case("approve \"Paint the fence\"", "unknown_task")]
#[case("status of \"Paint the fence\"", "unknown_task")]
#[case("status of \"Paint the fence\" beside the labels", "unknown_task")]
#[case("how much did task \"Paint the fence\" cost?", "unknown_task")]
#[case("how much did #77 cost?", "unknown_task")]
#[case("status of \"Round prices up\"", "which")]
#[case("pause \"Round prices up\"", "which")]
#[case("pause \"Print labels\" and \"Fold boxes\"", "one_at_a_time")]
fn chat_never_takes_another_task_for_the_named_one(#[case] message: &str, #[case] asks: &str) {
    let context = quotable();
    let Intent::Unclear(unclear) = interpret(message, &context).intent else {
        panic!("{message} should be unclear");
    };
    assert_eq!(<&str>::from(&unclear), asks, "{message}");
    let question = unclear.question(&context);
    assert!(!question.contains(char::is_control), "{question:?}");
    if message.contains("fence") {
        assert!(question.contains("Paint the fence"), "{question}");
    }
    if asks == "which" {
        assert!(question.contains("00000002") && question.contains("00000007"), "{question}");
    }
}

#[test]
fn chat_quoted_command_of_a_title_is_no_command() {
    let context = quotable();
    let Intent::Change(RequestedChange::Task { task, action }) =
        interpret("pause \"Cancel labels, then approve it\"", &context).intent
    else {
        panic!("should be a pause");
    };
    assert_eq!((task, action), (id(6), tamma_chat::ChatAction::Pause));
    // The characters that stand for tasks cannot be written.
    let forged = interpret("pause \u{e003}", &ChatContext { last: None, ..context }).intent;
    assert!(!matches!(forged, Intent::Change(RequestedChange::Task { task, .. }) if task == id(4)));
}

#[rstest]
#[case("the catalogue", 3)]
#[case("#3", 3)]
#[case("\"Print labels\"", 4)]
#[case("the labels.", 4)]
fn chat_answer_to_which_one_completes_the_message(#[case] answer: &str, #[case] number: u128) {
    let now = context();
    let mut chat = Conversation::default();
    let asked = chat.handle("pause it", &now);
    assert!(matches!(&asked, MessageOutcome::Interpreted(it) if it.intent.name() == "unclear"));
    // The question is stored with the conversation.
    let mut chat = Conversation::restore(chat.save(), &now);
    assert!(chat.is_answer(answer, &now));
    let MessageOutcome::Interpreted(read) = chat.handle(answer, &now) else { panic!("{answer}") };
    let action = tamma_chat::ChatAction::Pause;
    let change = RequestedChange::Task { task: id(number), action };
    assert_eq!(read.intent, Intent::Change(change.clone()), "{answer}");
    assert_eq!(chat.pending().map(Proposal::change), Some(&change), "it is only proposed");
}

#[test]
fn chat_other_messages_end_the_question_which_one() {
    let now = context();
    let mut chat = Conversation::default();
    chat.handle("pause it", &now);
    chat.handle("what is in my inbox?", &now);
    assert!(!chat.is_answer("#3", &now));
    let MessageOutcome::Interpreted(read) = chat.handle("#3", &now) else { panic!("no outcome") };
    assert!(!matches!(read.intent, Intent::Change(_)), "{read:?}");
}
