#![doc = include_str!("../README.md")]

mod change;
mod change_parser;
mod command_parser;
mod context;
mod forge_parser;
mod intent;
mod interpretation;
mod message_text;
mod model_reader;
mod proposal;
mod question_parser;
mod story_parser;
mod task_reference;

pub use change::{
    ChatAction, CommandLine, LessonDecision, PipelineDraft, RequestedChange, StoryAction, TaskDraft,
};
pub use command_parser::{COMMAND_WORDS, Verb};
pub use context::{ChatContext, ChatLesson, ChatStory, ChatTask};
pub use intent::{Aspect, Clarification, Intent, Period, TaskSelection, Topic};
pub use interpretation::{Interpretation, interpret, is_about_story};
pub use message_text::quoted_names;
pub use model_reader::{ModelAnswerError, ModelPrompt, interpret_model_answer, model_prompt};
pub use proposal::{
    ConfirmError, Confirmed, Conversation, MessageOutcome, Proposal, SavedConversation,
};
