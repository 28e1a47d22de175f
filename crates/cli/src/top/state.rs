//! State of the terminal UI. Messages change it, and each change returns the effects to run.

use chrono::{DateTime, FixedOffset, Utc};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tamma_core::task_loop::{AnswerKind, Phase};
use tamma_server::dto::{
    BudgetGrant, PipelineView, PlanVersion, ReviewedChange, RunLines, TaskAction, TaskCard,
    TaskDetail, TaskStatus,
};
use uuid::Uuid;

use super::log_state::{FILTERS, LogEdge, LogState};
use crate::style::humanize;

/// Number of rows that Page Up and Page Down move by.
const PAGE: isize = 10;

/// Order of the board: what needs a person comes first.
const PHASE_ORDER: [Phase; 11] = [
    Phase::Alert,
    Phase::Approve,
    Phase::Review,
    Phase::Adjust,
    Phase::Council,
    Phase::Implement,
    Phase::Deliver,
    Phase::Plan,
    Phase::Receive,
    Phase::Learn,
    Phase::Done,
];

/// Result of loading something; the error is for people.
pub(super) type Loaded<T> = Result<T, String>;

/// Page of the terminal UI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopScreen {
    Board,
    Inbox,
    Task,
    Log,
    Decision,
}

/// Tasks and pipelines that wait for a person.
#[derive(Debug, Clone, Default)]
pub(super) struct TopInbox {
    pub(super) tasks: Vec<TaskCard>,
    pub(super) pipelines: Vec<PipelineView>,
}

/// Event that changes the state.
#[derive(Debug, Clone)]
pub(super) enum TopMessage {
    Key(KeyEvent),
    /// Time has passed; what is displayed may be out of date.
    Tick(DateTime<Utc>),
    Board(Loaded<Vec<TaskCard>>),
    Inbox(Loaded<TopInbox>),
    Task(Uuid, Loaded<Box<TaskDetail>>),
    Plan(Uuid, Loaded<Box<PlanVersion>>),
    Change(Uuid, Loaded<Box<ReviewedChange>>),
    Lines {
        task: Uuid,
        edge: LogEdge,
        /// Kinds and text that the lines were filtered by.
        filter: (&'static str, String),
        page: Loaded<RunLines>,
    },
    /// Server answered an action.
    Submitted(Loaded<TaskStatus>),
}

/// Request to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TopEffect {
    LoadBoard,
    LoadInbox,
    LoadTask(Uuid),
    LoadPlan(Uuid),
    LoadChange(Uuid),
    LoadLines { task: Uuid, edge: LogEdge, kinds: &'static str, text: String },
    Submit(Uuid, Box<TaskAction>),
}

/// Line of input at the bottom of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InputPrompt {
    pub(super) purpose: PromptPurpose,
    pub(super) text: String,
}

/// Purpose of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptPurpose {
    /// Filter of a list by text.
    Filter,
    /// Search in the log.
    Search,
    /// Text of an answer, such as a reason.
    Answer(AnswerKind),
    /// `y` confirms an answer without a text.
    Confirm(AnswerKind),
}

/// Message at the bottom of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopNotice {
    pub(super) is_error: bool,
    pub(super) text: String,
}

/// Everything that the screen shows.
#[derive(Debug, Clone)]
pub(super) struct TopState {
    pub(super) server: String,
    pub(super) person: String,
    pub(super) now: DateTime<Utc>,
    pub(super) zone: FixedOffset,
    pub(super) screen: TopScreen,
    /// Screens to go back to.
    back: Vec<TopScreen>,
    /// Tasks; `None` before the first response.
    pub(super) board: Option<Vec<TaskCard>>,
    pub(super) inbox: Option<TopInbox>,
    board_selected: usize,
    inbox_selected: usize,
    pub(super) filter: String,
    /// Displayed task.
    pub(super) task: Option<Uuid>,
    pub(super) detail: Option<Box<TaskDetail>>,
    pub(super) scroll: usize,
    pub(super) log: LogState,
    /// Plan with its content, as displayed for a decision.
    pub(super) plan: Option<Box<PlanVersion>>,
    /// Change as displayed for a decision.
    pub(super) change: Option<Box<ReviewedChange>>,
    pub(super) answer_selected: usize,
    pub(super) prompt: Option<InputPrompt>,
    /// Text of an answer that was not accepted, so that it is not lost.
    draft: String,
    pub(super) notice: Option<TopNotice>,
    /// Error of the last request; `None` while the server responds.
    pub(super) connection_error: Option<String>,
    pub(super) shows_help: bool,
    pub(super) has_quit: bool,
}

impl TopState {
    pub(super) fn new(
        server: String,
        person: String,
        now: DateTime<Utc>,
        zone: FixedOffset,
    ) -> Self {
        Self {
            server,
            person,
            now,
            zone,
            screen: TopScreen::Board,
            back: Vec::new(),
            board: None,
            inbox: None,
            board_selected: 0,
            inbox_selected: 0,
            filter: String::new(),
            task: None,
            detail: None,
            scroll: 0,
            log: LogState::default(),
            plan: None,
            change: None,
            answer_selected: 0,
            prompt: None,
            draft: String::new(),
            notice: None,
            connection_error: None,
            shows_help: false,
            has_quit: false,
        }
    }

    /// Applies a message and returns the effects to run.
    pub(super) fn update(&mut self, message: TopMessage) -> Vec<TopEffect> {
        match message {
            TopMessage::Key(key) => return self.press(key),
            TopMessage::Tick(now) => {
                self.now = now;
                return self.refresh();
            }
            TopMessage::Board(page) => {
                if let Some(mut cards) = self.accept(page) {
                    let rank =
                        |card: &TaskCard| PHASE_ORDER.iter().position(|phase| *phase == card.phase);
                    cards.sort_by_key(|card| (rank(card), card.since));
                    self.board = Some(cards);
                }
            }
            TopMessage::Inbox(page) => {
                if let Some(inbox) = self.accept(page) {
                    self.inbox = Some(inbox);
                }
            }
            TopMessage::Task(id, detail) => {
                if let Some(detail) = self.accept(detail).filter(|_| self.task == Some(id)) {
                    self.detail = Some(detail);
                }
            }
            TopMessage::Plan(id, plan) => {
                if let Some(plan) = self.accept(plan).filter(|_| self.task == Some(id)) {
                    self.plan = Some(plan);
                }
            }
            TopMessage::Change(id, change) => {
                if let Some(change) = self.accept(change).filter(|_| self.task == Some(id)) {
                    self.change = Some(change);
                }
            }
            TopMessage::Lines { task, edge, filter, page } => {
                let is_wanted = self.task == Some(task) && filter == self.log.server_filter();
                if let Some(page) = self.accept(page).filter(|_| is_wanted) {
                    self.log.add(&edge, page);
                }
            }
            TopMessage::Submitted(status) => return self.submitted(status),
        }
        Vec::new()
    }

    /// Notes whether the server responds. An error leaves what is displayed.
    fn accept<T>(&mut self, loaded: Loaded<T>) -> Option<T> {
        match loaded {
            Ok(value) => {
                self.connection_error = None;
                Some(value)
            }
            Err(error) => {
                self.connection_error = Some(error);
                None
            }
        }
    }

    fn submitted(&mut self, status: Loaded<TaskStatus>) -> Vec<TopEffect> {
        match status {
            Ok(status) => {
                let text = format!("Accepted. The task is now {}.", humanize(&status.state));
                self.notice = Some(TopNotice { is_error: false, text });
                self.draft.clear();
                self.plan = None;
                self.change = None;
                if self.screen == TopScreen::Decision {
                    self.go_back();
                }
            }
            Err(text) => self.notice = Some(TopNotice { is_error: true, text }),
        }
        self.refresh()
    }

    /// Returns the effects that bring the displayed data up to date.
    fn refresh(&self) -> Vec<TopEffect> {
        let mut effects = vec![TopEffect::LoadInbox];
        match (self.screen, self.task) {
            (TopScreen::Board, _) | (_, None) => effects.push(TopEffect::LoadBoard),
            (TopScreen::Inbox, _) => {}
            (TopScreen::Task, Some(id)) => effects.push(TopEffect::LoadTask(id)),
            (TopScreen::Log, Some(id)) => {
                effects.push(TopEffect::LoadTask(id));
                effects.push(self.load_lines(id, self.log.newest_edge()));
            }
            (TopScreen::Decision, Some(id)) if self.detail.is_none() => {
                effects.push(TopEffect::LoadTask(id));
            }
            // What a person decides about does not change under their eyes.
            (TopScreen::Decision, Some(id)) => effects.extend(self.load_subject(id)),
        }
        effects
    }

    fn load_lines(&self, task: Uuid, edge: LogEdge) -> TopEffect {
        let (kinds, text) = self.log.server_filter();
        TopEffect::LoadLines { task, edge, kinds, text }
    }

    /// Returns the effect that loads the plan or the change to decide about, unless it is there.
    fn load_subject(&self, id: Uuid) -> Option<TopEffect> {
        let answers = self.answers();
        if answers.contains(&AnswerKind::Accept) {
            return self.change.is_none().then_some(TopEffect::LoadChange(id));
        }
        let has_plan = self.detail.as_ref().is_some_and(|detail| detail.plan.is_some());
        (has_plan && self.plan.is_none()).then_some(TopEffect::LoadPlan(id))
    }

    /// Returns the answers to the open question of the displayed task.
    pub(super) fn answers(&self) -> &[AnswerKind] {
        let detail = self.detail.as_ref().filter(|detail| detail.card.waits_for_person);
        detail.map(|detail| detail.card.answers.as_slice()).unwrap_or_default()
    }

    /// Returns the tasks of the current list that match the filter.
    pub(super) fn listed(&self) -> Vec<&TaskCard> {
        let cards = match self.screen {
            TopScreen::Inbox => self.inbox.as_ref().map(|inbox| inbox.tasks.as_slice()),
            _ => self.board.as_deref(),
        };
        let wanted = self.filter.to_lowercase();
        let matches = |card: &&TaskCard| {
            card.title.to_lowercase().contains(&wanted) || card.short.contains(&wanted)
        };
        cards.unwrap_or_default().iter().filter(matches).collect()
    }

    /// Returns the waiting pipelines that match the filter. Only the inbox lists them.
    pub(super) fn listed_pipelines(&self) -> Vec<&PipelineView> {
        let inbox = self.inbox.as_ref().filter(|_| self.screen == TopScreen::Inbox);
        let wanted = self.filter.to_lowercase();
        let matches = |view: &&PipelineView| {
            view.story_id.to_lowercase().contains(&wanted) || view.short.contains(&wanted)
        };
        let pipelines = inbox.map(|inbox| inbox.pipelines.as_slice()).unwrap_or_default();
        pipelines.iter().filter(matches).collect()
    }

    /// Returns the index of the selected task in the current list.
    pub(super) fn selected(&self) -> usize {
        let selected = match self.screen {
            TopScreen::Inbox => self.inbox_selected,
            _ => self.board_selected,
        };
        selected.min(self.listed().len().saturating_sub(1))
    }

    fn select(&mut self, index: usize) {
        match self.screen {
            TopScreen::Inbox => self.inbox_selected = index,
            _ => self.board_selected = index,
        }
    }

    fn go_to(&mut self, screen: TopScreen) {
        if self.screen != screen {
            self.back.push(self.screen);
            self.screen = screen;
        }
        self.scroll = 0;
        self.notice = None;
    }

    /// Goes back to the screen before; quits on the first one.
    fn go_back(&mut self) {
        self.scroll = 0;
        match self.back.pop() {
            Some(screen) => self.screen = screen,
            None => self.has_quit = true,
        }
    }

    /// Shows a list, without a way back.
    fn show_list(&mut self, screen: TopScreen) {
        self.back.clear();
        self.screen = screen;
        self.scroll = 0;
        self.notice = None;
    }

    fn press(&mut self, key: KeyEvent) -> Vec<TopEffect> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.has_quit = true;
            return Vec::new();
        }
        if let Some(prompt) = self.prompt.take() {
            return self.press_in_prompt(prompt, key.code);
        }
        if std::mem::take(&mut self.shows_help) {
            return Vec::new();
        }
        match key.code {
            KeyCode::Char('?') => self.shows_help = true,
            KeyCode::Char('q') | KeyCode::Esc => self.go_back(),
            KeyCode::Char('1') => self.show_list(TopScreen::Board),
            KeyCode::Char('2') => self.show_list(TopScreen::Inbox),
            KeyCode::Char('r') => {}
            code => match self.screen {
                TopScreen::Board | TopScreen::Inbox => self.press_in_list(code),
                TopScreen::Task => self.press_in_task(code),
                TopScreen::Log => return self.press_in_log(code),
                TopScreen::Decision => return self.press_in_decision(code),
            },
        }
        self.refresh()
    }

    fn press_in_list(&mut self, code: KeyCode) {
        let (last, selected) = (self.listed().len().saturating_sub(1), self.selected());
        if let Some(rows) = rows_of(code) {
            self.select(selected.saturating_add_signed(rows).min(last));
            return;
        }
        match code {
            KeyCode::Tab => {
                let other = match self.screen {
                    TopScreen::Inbox => TopScreen::Board,
                    _ => TopScreen::Inbox,
                };
                self.show_list(other);
            }
            KeyCode::Char('/') => {
                let text = std::mem::take(&mut self.filter);
                self.prompt = Some(InputPrompt { purpose: PromptPurpose::Filter, text });
            }
            KeyCode::Enter | KeyCode::Right => self.open(TopScreen::Task),
            KeyCode::Char('l') => self.open(TopScreen::Log),
            KeyCode::Char('d') => self.open(TopScreen::Decision),
            _ => {}
        }
    }

    /// Opens a screen about the selected task.
    fn open(&mut self, screen: TopScreen) {
        let Some(id) = self.listed().get(self.selected()).map(|card| card.id) else { return };
        if self.task != Some(id) {
            self.task = Some(id);
            self.detail = None;
            self.log = LogState { filter: self.log.filter, ..LogState::default() };
            self.plan = None;
            self.change = None;
            self.draft.clear();
        }
        self.answer_selected = 0;
        self.go_to(TopScreen::Task);
        if screen != TopScreen::Task {
            self.go_to(screen);
        }
    }

    fn press_in_task(&mut self, code: KeyCode) {
        if let Some(rows) = rows_of(code) {
            self.scroll = self.scroll.saturating_add_signed(rows);
            return;
        }
        match code {
            KeyCode::Char('l') => self.go_to(TopScreen::Log),
            KeyCode::Char('d') => {
                self.answer_selected = 0;
                self.go_to(TopScreen::Decision);
            }
            _ => {}
        }
    }

    fn press_in_log(&mut self, code: KeyCode) -> Vec<TopEffect> {
        match code {
            KeyCode::Char('g') | KeyCode::Home => self.log.selected = 0,
            KeyCode::Char('G') | KeyCode::End => self.log.select_last(),
            KeyCode::Char(' ') => self.log.toggle_pause(),
            KeyCode::Enter => self.log.toggle_selected(),
            KeyCode::Char('f') => {
                let filter = (self.log.filter + 1) % FILTERS.len();
                let search = std::mem::take(&mut self.log.search);
                self.log = LogState { filter, search, ..LogState::default() };
            }
            KeyCode::Char('/') => {
                let text = std::mem::take(&mut self.log.search);
                self.prompt = Some(InputPrompt { purpose: PromptPurpose::Search, text });
                return Vec::new();
            }
            code => self.log.move_by(rows_of(code).unwrap_or_default()),
        }
        let mut effects = self.refresh();
        // At the first line, the page before it is loaded.
        if self.log.selected == 0
            && let (Some(id), Some(before)) = (self.task, self.log.previous.clone())
        {
            effects.push(self.load_lines(id, LogEdge::Before(before)));
        }
        effects
    }

    fn press_in_decision(&mut self, code: KeyCode) -> Vec<TopEffect> {
        let last = self.answers().len().saturating_sub(1);
        match code {
            KeyCode::Left | KeyCode::BackTab => {
                self.answer_selected = self.answer_selected.saturating_sub(1);
            }
            KeyCode::Right | KeyCode::Tab => {
                self.answer_selected = (self.answer_selected + 1).min(last);
            }
            KeyCode::Enter => self.choose_answer(),
            code => {
                let rows = rows_of(code).unwrap_or_default();
                self.scroll = self.scroll.saturating_add_signed(rows);
            }
        }
        self.refresh()
    }

    fn choose_answer(&mut self) {
        let Some(answer) = self.answers().get(self.answer_selected).copied() else { return };
        let refuse = |text: &str| Some(TopNotice { is_error: true, text: text.to_owned() });
        match answer {
            AnswerKind::RollBack => {
                self.notice = refuse("To roll back, use `tamma answer TASK roll-back --to STATE`");
            }
            AnswerKind::Approve
            | AnswerKind::Reject
            | AnswerKind::RevisePlan
            | AnswerKind::Override
                if self.plan.is_none() =>
            {
                self.notice = refuse("The plan is not loaded yet");
            }
            AnswerKind::Accept | AnswerKind::RequestChanges if self.change.is_none() => {
                self.notice = refuse("The change is not loaded yet");
            }
            answer => {
                let purpose = if needs_text(answer) {
                    PromptPurpose::Answer(answer)
                } else {
                    PromptPurpose::Confirm(answer)
                };
                let text = std::mem::take(&mut self.draft);
                self.prompt = Some(InputPrompt { purpose, text });
            }
        }
    }

    fn press_in_prompt(&mut self, mut prompt: InputPrompt, code: KeyCode) -> Vec<TopEffect> {
        if let PromptPurpose::Confirm(answer) = prompt.purpose {
            return match code {
                KeyCode::Char('y' | 'Y') => self.submit(answer, String::new()),
                _ => Vec::new(),
            };
        }
        match code {
            KeyCode::Esc => {
                // The text of an answer is kept; a filter is removed.
                if let PromptPurpose::Answer(_) = prompt.purpose {
                    self.draft = prompt.text;
                    return Vec::new();
                }
                prompt.text.clear();
                self.enter(prompt)
            }
            KeyCode::Enter => self.enter(prompt),
            KeyCode::Backspace => {
                prompt.text.pop();
                self.prompt = Some(prompt);
                Vec::new()
            }
            KeyCode::Char(letter) => {
                prompt.text.push(letter);
                self.prompt = Some(prompt);
                Vec::new()
            }
            _ => {
                self.prompt = Some(prompt);
                Vec::new()
            }
        }
    }

    /// Applies the text of a prompt.
    fn enter(&mut self, prompt: InputPrompt) -> Vec<TopEffect> {
        match prompt.purpose {
            PromptPurpose::Filter => {
                self.filter = prompt.text;
                self.select(0);
                Vec::new()
            }
            PromptPurpose::Search => {
                let filter = self.log.filter;
                self.log = LogState { filter, search: prompt.text, ..LogState::default() };
                self.refresh()
            }
            PromptPurpose::Answer(_) if prompt.text.trim().is_empty() => {
                self.prompt = Some(prompt);
                Vec::new()
            }
            PromptPurpose::Answer(answer) | PromptPurpose::Confirm(answer) => {
                self.submit(answer, prompt.text)
            }
        }
    }

    /// Returns the effect that sends an answer about exactly what is displayed.
    fn submit(&mut self, answer: AnswerKind, text: String) -> Vec<TopEffect> {
        let Some(id) = self.task else { return Vec::new() };
        self.draft.clone_from(&text);
        let plan = self.plan.as_ref().map(|plan| plan.hash.clone()).unwrap_or_default();
        let commit = self.change.as_ref().map(|change| change.commit.clone()).unwrap_or_default();
        let grant = BudgetGrant::default();
        let action = match answer {
            AnswerKind::Approve => TaskAction::Approve { plan, reason: None },
            AnswerKind::Reject => TaskAction::Reject { plan, reason: text },
            AnswerKind::RevisePlan => TaskAction::AskChanges { plan, changes: text },
            AnswerKind::Override => TaskAction::Override { plan, reason: text },
            AnswerKind::Accept => TaskAction::Accept { commit, reason: None },
            AnswerKind::RequestChanges => {
                TaskAction::Rework { commit, comments: text, lines: Vec::new() }
            }
            AnswerKind::Reply => TaskAction::Reply { text },
            AnswerKind::Continue => TaskAction::Continue { grant },
            AnswerKind::ChangeTask => TaskAction::Modify { note: text },
            AnswerKind::Retry => TaskAction::Retry { grant },
            AnswerKind::Skip => TaskAction::Skip { reason: text },
            AnswerKind::Convene => TaskAction::Convene { question: text },
            AnswerKind::Cancel => TaskAction::Cancel { reason: text },
            AnswerKind::Abandon => TaskAction::Abandon { reason: text },
            AnswerKind::RollBack => return Vec::new(),
        };
        let text = format!("Sending: {}…", answer.label());
        self.notice = Some(TopNotice { is_error: false, text });
        vec![TopEffect::Submit(id, Box::new(action))]
    }
}

/// Returns whether an answer needs a text, such as a reason.
fn needs_text(answer: AnswerKind) -> bool {
    !matches!(
        answer,
        AnswerKind::Approve | AnswerKind::Accept | AnswerKind::Continue | AnswerKind::Retry
    )
}

/// Returns the number of rows that a key moves by; `None` for other keys.
fn rows_of(code: KeyCode) -> Option<isize> {
    match code {
        KeyCode::Up | KeyCode::Char('k') => Some(-1),
        KeyCode::Down | KeyCode::Char('j') => Some(1),
        KeyCode::PageUp => Some(-PAGE),
        KeyCode::PageDown => Some(PAGE),
        _ => None,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
pub(super) mod tests;
