//! Intake: issues of a forge become tasks, each exactly once.
//!
//! An issue is taken if it has the label of the project's rules and its author, or whoever set the
//! label, can push, or if somebody who can push mentions the account of the rules in a comment. If the
//! forge does not tell who set the label, then the author must be able to push: an issue template can
//! set a label for anybody. The forge decides who can push, so these accounts count as members of the
//! project, and never as more: they can add and change tasks, and decide nothing. They appear in the
//! history as `<account>@<forge>`, which is not the name of a person in Tamma.
//!
//! The issue is claimed with the ID of its task before the task is added. If the server dies in
//! between, the next poll adds the task with the claimed ID. Later edits and comments change the
//! task, if their author can push. An edit has no author, so it counts only if the author of the
//! issue can push.

use chrono::TimeDelta;
use tamma_connect::forge::{IntakeIssue, IssueComment};
use tamma_core::access::{AccessRights, Permission, PersonRole};
use tamma_core::actor::{AuthMethod, RequestInterface};
use tamma_core::audit::AuditKind;
use tamma_core::format::single_line;
use tamma_core::ids::{Digest, Name, TaskId};
use tamma_core::rules::IntakeRules;
use tamma_core::task::{
    MAX_LABEL_CHARS, MAX_LABELS, MAX_TITLE_CHARS, Priority, TaskType, is_label,
};
use tamma_core::time::Timestamp;
use tamma_store::{IssueTask, RegisteredProject};

use crate::app::{App, Error, Principal};
use crate::audit;
use crate::clock;
use crate::dto::{NewTask, TaskAction};
use crate::forge_poller::{PollError, PolledRepository};

/// Age of the oldest change that the first poll of a repository looks at.
const FIRST_LOOK: TimeDelta = TimeDelta::days(90);

/// Maximum length of a text from an issue, in characters.
const MAX_TEXT_CHARS: usize = 50_000;

/// Start of the last line of our own comments.
const MARKER: &str = "<!-- tamma:";

/// Issues of one repository.
pub(crate) struct IssueIntake<'a> {
    app: &'a App,
    repository: &'a PolledRepository,
    project: &'a RegisteredProject,
    rules: IntakeRules,
}

/// Result of a poll.
pub(crate) struct PolledIssues {
    /// Issues changed until then were looked at.
    pub(crate) until: Option<Timestamp>,
    /// Tasks that are too far for the newest change of their issue.
    pub(crate) unheard: Vec<TaskId>,
}

/// Request to work on an issue.
#[derive(Debug, PartialEq, Eq)]
struct IntakeRequest<'a> {
    /// Account that asks for it.
    by: &'a str,
    /// Comment with the mention.
    comment: Option<&'a str>,
}

impl<'a> IssueIntake<'a> {
    /// Returns the intake of the first project of a repository that has one.
    pub(crate) async fn find(app: &'a App, repository: &'a PolledRepository) -> Option<Self> {
        for project in &repository.projects {
            match app.project_rules(&project.repository).await {
                Ok(rules) => {
                    let rules = rules.delivery.intake;
                    if rules.label.is_some() || rules.mention.is_some() {
                        return Some(Self { app, repository, project, rules });
                    }
                }
                Err(error) => {
                    tracing::warn!(project = project.name, %error, "no issues taken");
                }
            }
        }
        None
    }

    /// Looks at issues that changed since the last poll.
    pub(crate) async fn poll(&self, until: Option<Timestamp>) -> Result<PolledIssues, PollError> {
        let since = until.unwrap_or_else(|| clock::now() - FIRST_LOOK);
        let issues = self.repository.forge.list_intake(&self.repository.path, since).await?;
        let newest = issues.iter().map(|issue| issue.updated_at).max();
        let mut unheard = Vec::new();
        let mut is_delayed = false;
        for issue in &issues {
            let labelled_by = self.label_writer(issue).await?;
            match self.take(issue, labelled_by.as_deref()).await {
                Ok(Some(task)) => unheard.push(task),
                Ok(None) => {}
                // The next poll looks at all of them again.
                Err(Error::WorkflowTimeout) => is_delayed = true,
                Err(error @ Error::Unavailable { .. }) => return Err(error.into()),
                Err(error) => {
                    let number = issue.number;
                    tracing::warn!(project = self.project.name, number, %error, "issue not taken");
                }
            }
        }
        let until = if is_delayed { until } else { newest.max(until) };
        Ok(PolledIssues { until, unheard })
    }

    /// Returns the account that set the label of the rules, if that decides about an issue.
    async fn label_writer(&self, issue: &IntakeIssue) -> Result<Option<String>, PollError> {
        let label = self.rules.label.as_deref().filter(|label| has_label(issue, label));
        let Some(label) = label.filter(|_| issue.open && !issue.can_write) else { return Ok(None) };
        let (forge, path) = (&self.repository.forge, &self.repository.path);
        let store = &self.app.store;
        if let Some(claimed) = store.issue_task(forge.name(), path, issue.number).await?
            && store.is_task_id_used(claimed.task).await?
        {
            return Ok(None);
        }
        Ok(forge.label_writer(path, issue.number, label).await?)
    }

    /// Adds or changes the task of an issue. Returns the task if it is too far for a change.
    async fn take(
        &self,
        issue: &IntakeIssue,
        labelled_by: Option<&str>,
    ) -> Result<Option<TaskId>, Error> {
        let (forge, path) = (self.repository.forge.name(), &self.repository.path);
        let mut claimed = self.app.store.issue_task(forge, path, issue.number).await?;
        let request = intake_request(issue, &self.rules, labelled_by);
        if claimed.is_none() && request.is_some() {
            let claim = IssueTask {
                forge: forge.to_owned(),
                repository: path.clone(),
                number: issue.number,
                task: TaskId(clock::new_id()),
                project: self.project.id,
                url: issue.url.clone(),
                revision: revision(issue),
                last_comment: last_comment(&issue.comments, None),
            };
            self.app.store.claim_issue(&claim).await?;
            // Another server may have been faster.
            claimed = self.app.store.issue_task(forge, path, issue.number).await?;
        }
        let Some(claimed) = claimed else { return Ok(None) };
        if !self.app.store.is_task_id_used(claimed.task).await? {
            // A claim without a task is of a server that died, of a task that was refused, or of an issue
            // that was closed before. The request may be taken back meanwhile, or the text another one.
            if let Some(request) = request.or_else(|| own_request(issue)) {
                Box::pin(self.add_task(issue, &claimed, &request)).await?;
            }
            return Ok(None);
        }
        self.change_task(issue, &claimed).await
    }

    async fn add_task(
        &self,
        issue: &IntakeIssue,
        claimed: &IssueTask,
        request: &IntakeRequest<'_>,
    ) -> Result<(), Error> {
        let forge = self.repository.forge.name();
        let by = self.account(request.by)?;
        let mut description = bounded(&issue.body);
        if let Some(comment) = request.comment {
            description.push_str("\n\n---\n\n");
            description.push_str(&bounded(comment));
        }
        let new = NewTask {
            id: Some(claimed.task.0),
            project: Some(self.project.id.to_string()),
            title: title(issue),
            description,
            r#type: task_type(&issue.labels),
            priority: Priority::default(),
            acceptance_criteria: Vec::new(),
            labels: issue
                .labels
                .iter()
                .filter_map(|label| task_label(label))
                .take(MAX_LABELS)
                .collect(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: Some(issue.url.clone()),
            issue_number: Some(issue.number),
            metadata: [("forge".to_owned(), forge.to_owned())].into(),
            plan: None,
        };
        self.app.add_task(by.clone(), new).await?;
        let (task, number) = (claimed.task, issue.number);
        self.record(&by, issue, audit::ADD_TASK, task).await?;
        tracing::info!(%task, forge, repository = self.repository.path, number, "issue taken");
        // The text may be newer than the claim of a server that died.
        let known = IssueTask { revision: revision(issue), ..claimed.clone() };
        Ok(self.app.store.update_issue_task(&known).await?)
    }

    /// Passes edits and comments on. Returns the task if it is too far for them.
    async fn change_task(
        &self,
        issue: &IntakeIssue,
        known: &IssueTask,
    ) -> Result<Option<TaskId>, Error> {
        let new: Vec<_> = new_comments(&issue.comments, known.last_comment.as_deref()).collect();
        let revision = revision(issue);
        let is_edited = revision != known.revision;
        let last_comment = last_comment(&issue.comments, known.last_comment.as_deref());
        let changed = IssueTask { revision, last_comment, ..known.clone() };
        if changed == *known {
            return Ok(None);
        }
        let counts = |comment: &&&IssueComment| comment.can_write && !comment.bot;
        let counted: Vec<_> = new.iter().filter(counts).copied().collect();
        let edit = is_edited && issue.can_write;
        let mut unheard = None;
        if edit || !counted.is_empty() {
            let by = counted.last().map_or(issue.by.as_str(), |comment| comment.by.as_str());
            let action = TaskAction::Modify { note: change_text(issue, edit, &counted) };
            // The same change has the same key, so a poll that is repeated has no second effect.
            let key = Digest::of(
                format!("{} {} {:?}", known.task, changed.revision, changed.last_comment)
                    .as_bytes(),
            );
            let key = format!("issue-{}", key.short());
            let by = self.account(by)?;
            match Box::pin(self.app.perform_action(known.task, by.clone(), action, Some(key))).await
            {
                Ok(_) => self.record(&by, issue, "modify", known.task).await?,
                // People see in the progress comment that it has no effect.
                Err(Error::Refused(_)) => unheard = Some(known.task),
                Err(error) => return Err(error),
            }
        }
        self.app.store.update_issue_task(&changed).await?;
        Ok(unheard)
    }

    /// Records an action in the audit log once it is done, because each poll repeats what failed.
    async fn record(
        &self,
        by: &Principal,
        issue: &IntakeIssue,
        action: &str,
        task: TaskId,
    ) -> Result<(), Error> {
        let request = audit::request_by(by, AuditKind::Decision, &issue.url);
        let (role, project) = (by.rights.role(self.project.id), self.project.id);
        let noting = async {
            audit::note_policy(Permission::Work, role, Some(project));
            audit::note_task_action(action, task);
            Ok::<(), Error>(())
        };
        self.app.audit.record(&request, noting, audit::judge_result).await.flatten()
    }

    /// Returns the principal of a forge account, with the rights of a member of this project.
    fn account(&self, account: &str) -> Result<Principal, Error> {
        let forge = self.repository.forge.name();
        let account: String = account.chars().filter(|it| !it.is_control()).take(50).collect();
        let name: Result<Name, _> = format!("{account}@{forge}").parse();
        Ok(Principal {
            name: name.map_err(|error| Error::Internal(error.into()))?,
            auth_method: AuthMethod::ForgeAccount,
            interface: RequestInterface::Issue,
            rights: AccessRights::in_projects([(self.project.id, PersonRole::Member)]),
            manages_credentials: false,
        })
    }
}

/// Returns the request to work on an issue, if there is one. `labelled_by` can push.
fn intake_request<'a>(
    issue: &'a IntakeIssue,
    rules: &IntakeRules,
    labelled_by: Option<&'a str>,
) -> Option<IntakeRequest<'a>> {
    if !issue.open {
        return None;
    }
    if let Some(account) = &rules.mention {
        let mut people = issue.comments.iter().filter(|it| it.can_write && !it.bot && !is_ours(it));
        if let Some(comment) = people.find(|it| mentions(&it.text, account)) {
            return Some(IntakeRequest { by: &comment.by, comment: Some(&comment.text) });
        }
        if issue.can_write && mentions(&issue.body, account) {
            return Some(IntakeRequest { by: &issue.by, comment: None });
        }
    }
    let label = rules.label.as_ref()?;
    let by = labelled_by.or_else(|| issue.can_write.then_some(issue.by.as_str()));
    let by = by.filter(|_| has_label(issue, label))?;
    Some(IntakeRequest { by, comment: None })
}

/// Returns the label of a task for that of an issue, which can be longer and have commas.
fn task_label(label: &str) -> Option<String> {
    let text = single_line(&label.replace(',', " "));
    let text: String = text.chars().take(MAX_LABEL_CHARS).collect();
    Some(text.trim().to_owned()).filter(|text| is_label(text))
}

/// Returns the request of the author of an open issue that is claimed, if the author can push.
fn own_request(issue: &IntakeIssue) -> Option<IntakeRequest<'_>> {
    let counts = issue.open && issue.can_write;
    counts.then_some(IntakeRequest { by: &issue.by, comment: None })
}

fn has_label(issue: &IntakeIssue, label: &str) -> bool {
    issue.labels.iter().any(|it| it.eq_ignore_ascii_case(label))
}

/// Returns `true` if a text mentions an account, outside of quotes.
fn mentions(text: &str, account: &str) -> bool {
    let mention = format!("@{}", account.to_lowercase());
    let is_part = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_');
    text.lines().filter(|line| !line.trim_start().starts_with('>')).any(|line| {
        let line = line.to_lowercase();
        line.match_indices(&mention).any(|(at, found)| {
            let before = line[..at].chars().next_back();
            let after = line[at + found.len()..].chars().next();
            !before.is_some_and(|it| is_part(it) || matches!(it, '.' | '/' | '@'))
                && !after.is_some_and(is_part)
        })
    })
}

/// Returns `true` for comments that we wrote.
fn is_ours(comment: &IssueComment) -> bool {
    let last = comment.text.trim_end().lines().next_back().unwrap_or_default();
    last.starts_with(MARKER) && last.ends_with("-->")
}

/// Returns the comments after the last one that the task has, without ours.
fn new_comments<'a>(
    comments: &'a [IssueComment],
    last: Option<&str>,
) -> impl Iterator<Item = &'a IssueComment> {
    let known = comments.iter().position(|it| Some(it.id.as_str()) == last);
    let last = last.and_then(|id| id.parse::<u64>().ok());
    // Numbers tell the order by themselves.
    let known = known.filter(|_| last.is_none());
    // An old comment that was edited is not new.
    let is_old = move |comment: &IssueComment| match (comment.id.parse::<u64>(), last) {
        (Ok(id), Some(last)) => id <= last,
        _ => false,
    };
    comments
        .iter()
        .skip(known.map_or(0, |at| at + 1))
        .filter(move |comment| !is_old(comment) && !is_ours(comment))
}

/// Returns the ID of the newest comment of people.
fn last_comment(comments: &[IssueComment], known: Option<&str>) -> Option<String> {
    // GitHub sorts by edit, so the newest is not always the last. IDs that are no numbers are in order.
    let newest = new_comments(comments, known).max_by_key(|comment| comment.id.parse::<u64>().ok());
    let newest = newest.map(|comment| comment.id.clone());
    newest.or_else(|| known.map(str::to_owned))
}

/// Returns the hash of the parts of an issue that a task takes over.
fn revision(issue: &IntakeIssue) -> String {
    Digest::of(format!("{}\n{}", issue.title, issue.body).as_bytes()).to_string()
}

/// Returns the title of an issue as one line.
fn title(issue: &IntakeIssue) -> String {
    let line: String = single_line(&issue.title).chars().filter(|it| !it.is_control()).collect();
    if line.is_empty() {
        return format!("Issue {}", issue.number);
    }
    let cut: String = line.chars().take(MAX_TITLE_CHARS).collect();
    cut.trim().to_owned()
}

fn task_type(labels: &[String]) -> TaskType {
    let has = |name: &str| labels.iter().any(|label| label.eq_ignore_ascii_case(name));
    if has("bug") {
        TaskType::Bugfix
    } else if has("documentation") {
        TaskType::Docs
    } else {
        TaskType::Feature
    }
}

/// Formats a change of an issue for the planner.
fn change_text(issue: &IntakeIssue, is_edited: bool, comments: &[&IssueComment]) -> String {
    let mut parts = Vec::new();
    if is_edited {
        let (number, title) = (issue.number, title(issue));
        let body = bounded(&issue.body);
        parts.push(format!("Issue #{number} was edited. It says now:\n\n# {title}\n\n{body}"));
    }
    for comment in comments {
        parts.push(format!("Comment by {}:\n\n{}", comment.by, bounded(&comment.text)));
    }
    bounded(&parts.join("\n\n---\n\n"))
}

/// Cuts a long text at its end, and removes characters that PostgreSQL does not store.
fn bounded(text: &str) -> String {
    text.chars().filter(|it| *it != '\0').take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(id: &str, by: &str, text: &str) -> IssueComment {
        let (id, by, text) = (id.to_owned(), by.to_owned(), text.to_owned());
        IssueComment { id, by, can_write: true, bot: false, text }
    }

    fn issue() -> IntakeIssue {
        IntakeIssue {
            number: 7,
            title: "Greet\n the world ".to_owned(),
            body: "Kindly.".to_owned(),
            by: "eve".to_owned(),
            can_write: false,
            url: "https://forge.example/acme/app/issues/7".to_owned(),
            labels: vec!["bug".to_owned()],
            open: true,
            updated_at: clock::now(),
            comments: Vec::new(),
        }
    }

    #[test]
    fn labels_of_issues_become_valid_labels() {
        let label = task_label;
        assert_eq!(label("good first issue").as_deref(), Some("good first issue"));
        assert_eq!(label("ui, api\n").as_deref(), Some("ui api"));
        assert_eq!(label(", "), None);
        let long = label(&"ä".repeat(80)).expect("a label");
        assert_eq!(long.chars().count(), MAX_LABEL_CHARS);
    }

    fn rules(label: Option<&str>, mention: Option<&str>) -> IntakeRules {
        IntakeRules { label: label.map(str::to_owned), mention: mention.map(str::to_owned) }
    }

    #[test]
    fn an_account_is_mentioned_by_its_whole_name_outside_of_quotes() {
        for text in ["@tamma please", "Hey @Tamma, go", "(@tamma)", "a\n  @tamma: do"] {
            assert!(mentions(text, "tamma"), "{text}");
        }
        for text in ["tamma", "@tamma-bot", "me@tamma.example", "> @tamma please", "x/@tamma", ""] {
            assert!(!mentions(text, "tamma"), "{text}");
        }
    }

    #[test]
    fn only_a_label_or_a_mention_by_somebody_who_can_push_makes_an_issue_a_task() {
        let both = rules(Some("Tamma"), Some("tamma"));
        let labelled_by = |issue: &IntakeIssue, by: Option<&str>| {
            intake_request(issue, &both, by).map(|it| it.by.to_owned())
        };
        let by = |issue: &IntakeIssue| labelled_by(issue, None);
        assert_eq!(by(&issue()), None);
        let labelled = IntakeIssue { labels: vec!["tamma".to_owned()], ..issue() };
        assert_eq!(by(&labelled), None, "a template can set a label");
        assert_eq!(labelled_by(&labelled, Some("ada")).as_deref(), Some("ada"));
        assert_eq!(labelled_by(&issue(), Some("ada")), None);
        let labelled = IntakeIssue { can_write: true, ..labelled };
        assert_eq!(by(&labelled).as_deref(), Some("eve"));
        assert_eq!(intake_request(&labelled, &rules(None, Some("tamma")), None), None);
        assert_eq!(by(&IntakeIssue { open: false, ..labelled }), None);
        let said = |comment| IntakeIssue { comments: vec![comment], ..issue() };
        let asked = comment("1", "ada", "@tamma go");
        assert_eq!(by(&said(asked.clone())).as_deref(), Some("ada"));
        assert_eq!(by(&said(IssueComment { can_write: false, ..asked.clone() })), None);
        assert_eq!(by(&said(IssueComment { bot: true, ..asked.clone() })), None);
        let ours = comment("1", "ada", "@tamma go\n<!-- tamma:1/progress -->");
        assert_eq!(by(&said(ours)), None);
        // The text of an issue counts only if its author can push.
        let body = IntakeIssue { body: "@tamma go".to_owned(), ..issue() };
        assert_eq!(by(&body), None);
        assert_eq!(by(&IntakeIssue { can_write: true, ..body }).as_deref(), Some("eve"));
    }

    #[test]
    fn a_claimed_issue_of_somebody_who_cannot_push_needs_its_request_again() {
        assert_eq!(own_request(&issue()), None);
        let own = IntakeIssue { can_write: true, ..issue() };
        assert_eq!(own_request(&own).map(|it| it.by), Some("eve"));
        assert_eq!(own_request(&IntakeIssue { open: false, ..own }), None);
    }

    #[test]
    fn comments_are_new_once() {
        let ours = comment("12", "bot", "Status\n<!-- tamma:1/progress -->\n");
        let all = [comment("9", "ada", "a"), comment("10", "ada", "b"), ours];
        let new = |last| new_comments(&all, last).map(|it| it.id.as_str()).collect::<Vec<_>>();
        assert_eq!(new(None), ["9", "10"]);
        // By number, not by letters.
        assert_eq!(new(Some("9")), ["10"]);
        assert_eq!(new(Some("10")), [""; 0]);
        assert_eq!(new(Some("11")), [""; 0]);
        assert_eq!(last_comment(&all, None).as_deref(), Some("10"));
        assert_eq!(last_comment(&all, Some("10")).as_deref(), Some("10"));
        // An old comment that was edited comes last.
        let edited = [comment("10", "ada", "b"), comment("9", "ada", "edited")];
        assert_eq!(last_comment(&edited, None).as_deref(), Some("10"));
        assert_eq!(last_comment(&edited, Some("10")).as_deref(), Some("10"));
        let late = [comment("10", "ada", "edited"), comment("9", "ada", "edited")];
        assert_eq!(new_comments(&late, Some("8")).count(), 2);
        let named = [comment("a", "ada", "a"), comment("b", "ada", "b")];
        let new: Vec<_> = new_comments(&named, Some("a")).map(|it| it.id.as_str()).collect();
        assert_eq!(new, ["b"]);
    }

    #[test]
    fn a_task_gets_the_title_and_type_of_its_issue() {
        assert_eq!(title(&issue()), "Greet the world");
        assert_eq!(title(&IntakeIssue { title: " \n".to_owned(), ..issue() }), "Issue 7");
        let long = IntakeIssue { title: "x".repeat(500), ..issue() };
        assert_eq!(title(&long).chars().count(), MAX_TITLE_CHARS);
        assert_eq!(task_type(&issue().labels), TaskType::Bugfix);
        assert_eq!(task_type(&[]), TaskType::Feature);
        let edited = IntakeIssue { body: "Loudly.".to_owned(), ..issue() };
        assert_ne!(revision(&issue()), revision(&edited));
        assert_eq!(
            change_text(&edited, true, &[&comment("1", "ada", "Soon!")]),
            "Issue #7 was edited. It says now:\n\n# Greet the world\n\nLoudly.\n\n---\n\n\
             Comment by ada:\n\nSoon!"
        );
    }
}
