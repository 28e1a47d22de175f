//! The agent's side of the protocol.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, Cost, Diff, Implementation,
    InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, PermissionOption,
    PermissionOptionKind, PromptRequest, PromptResponse, RequestPermissionOutcome,
    RequestPermissionRequest, SessionId, SessionNotification, SessionUpdate, StopReason, ToolCall,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind, Usage,
    UsageUpdate,
};
use agent_client_protocol::{Agent, Client, ConnectTo, Error, UntypedMessage};
use serde_json::json;
use tokio::process::Command;
use tokio::sync::watch;

use super::{SCRIPT_FILE, Script, Step};

/// How often it is looked whether a file is there.
const LOOK: Duration = Duration::from_millis(10);

struct Session {
    folder: PathBuf,
    /// What is left to do, once the first prompt has chosen it.
    steps: Option<std::vec::IntoIter<Step>>,
    deaf: bool,
}

struct Shared {
    script: Option<Script>,
    sessions: Mutex<BTreeMap<String, Session>>,
    cancelled: watch::Sender<u64>,
}

impl Shared {
    fn with<T>(
        &self,
        id: &SessionId,
        look: impl FnOnce(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        look(sessions.get_mut(&*id.0).ok_or_else(Error::invalid_params)?)
    }
}

/// Plays the agent on a connection, until the other side closes it.
///
/// `script` is what the agent was started with; a prompt or its folder may have another.
pub async fn serve(
    script: Option<Script>,
    transport: impl ConnectTo<Agent> + 'static,
) -> Result<(), Error> {
    let mute = script.as_ref().is_some_and(|script| script.mute);
    let shared =
        Arc::new(Shared { script, sessions: Mutex::default(), cancelled: watch::channel(0).0 });
    let (sessions, cancels, prompts) = (shared.clone(), shared.clone(), shared);
    Agent
        .v1()
        .name("scripted-agent")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _cx| {
                if mute {
                    std::future::pending::<()>().await;
                }
                responder.respond(
                    InitializeResponse::new(request.protocol_version)
                        .agent_info(Implementation::new(
                            "scripted-agent",
                            env!("CARGO_PKG_VERSION"),
                        ))
                        .agent_capabilities(AgentCapabilities::new()),
                )
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _cx| {
                let mut all = sessions.sessions.lock().unwrap_or_else(PoisonError::into_inner);
                let id = format!("scripted-{}", all.len());
                all.insert(id.clone(), Session { folder: request.cwd, steps: None, deaf: false });
                responder.respond(NewSessionResponse::new(SessionId::new(id)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, _cx| {
                if !cancels.with(&notification.session_id, |session| Ok(session.deaf))? {
                    cancels.cancelled.send_modify(|count| *count += 1);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let (shared, client) = (prompts.clone(), cx.clone());
                // A turn waits for the client's answers, which come in through this very loop.
                cx.spawn(async move {
                    let mut cancelled = shared.cancelled.subscribe();
                    cancelled.mark_unchanged();
                    let result = tokio::select! {
                        result = turn(&shared, &client, request) => result,
                        _ = cancelled.changed() => Ok(PromptResponse::new(StopReason::Cancelled)),
                    };
                    responder.respond_with_result(result)
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(transport)
        .await
}

async fn turn(
    shared: &Shared,
    client: &ConnectionTo<Client>,
    request: PromptRequest,
) -> Result<PromptResponse, Error> {
    let id = request.session_id;
    let prompt: String = request
        .prompt
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    let folder = shared.with(&id, |session| {
        if session.steps.is_none() {
            let script = choose(shared.script.as_ref(), &prompt, &session.folder)?;
            session.deaf = script.deaf;
            session.steps = Some(script.steps(&prompt, &session.folder).into_iter());
        }
        Ok(session.folder.clone())
    })?;
    let mut turn = Turn { client, id, folder, calls: 0 };
    loop {
        let next =
            shared.with(&turn.id, |session| Ok(session.steps.as_mut().and_then(Iterator::next)))?;
        if let Some(response) = turn.play(next.unwrap_or(Step::End { tokens: None })).await? {
            return Ok(response);
        }
    }
}

/// The script for a session: that of the prompt, of the environment, of the folder.
fn choose(given: Option<&Script>, prompt: &str, folder: &Path) -> Result<Script, Error> {
    let in_prompt = prompt
        .split_once("```script\n")
        .and_then(|(_, rest)| rest.split_once("\n```"))
        .map(|(script, _)| script.as_bytes().to_vec());
    match (in_prompt, given, std::fs::read(folder.join(SCRIPT_FILE))) {
        (Some(bytes), _, _) => serde_json::from_slice(&bytes).map_err(Error::into_internal_error),
        (None, Some(script), _) => Ok(script.clone()),
        (None, None, Ok(bytes)) => {
            serde_json::from_slice(&bytes).map_err(Error::into_internal_error)
        }
        (None, None, Err(_)) => Err(Error::internal_error().data("the agent has no script")),
    }
}

struct Turn<'a> {
    client: &'a ConnectionTo<Client>,
    id: SessionId,
    folder: PathBuf,
    calls: u32,
}

impl Turn<'_> {
    /// Does one thing. A response ends the turn.
    async fn play(&mut self, step: Step) -> Result<Option<PromptResponse>, Error> {
        match step {
            Step::Say(text) => self.say(text)?,
            Step::Think(text) => {
                self.update(SessionUpdate::AgentThoughtChunk(ContentChunk::new(text.into())))?;
            }
            Step::Write { path, content } => {
                let path = self.folder.join(path);
                let call = self
                    .call(format!("Write {}", path.display()), ToolKind::Edit)
                    .content(vec![Diff::new(path.clone(), content.clone()).into()])
                    .locations(vec![ToolCallLocation::new(path.clone())]);
                if self.may(call).await? {
                    write(&path, &content)?;
                    self.done()?;
                }
            }
            Step::WriteUnasked { path, content } => write(&self.folder.join(path), &content)?,
            Step::Append { path, line } => append(&self.folder.join(path), &line)?,
            Step::Delete { path } => {
                let path = self.folder.join(path);
                let call = self
                    .call(format!("Delete {}", path.display()), ToolKind::Delete)
                    .locations(vec![ToolCallLocation::new(path.clone())]);
                if self.may(call).await? {
                    std::fs::remove_file(&path).map_err(Error::into_internal_error)?;
                    self.done()?;
                }
            }
            Step::Run(command) => {
                let call = self
                    .call(command.clone(), ToolKind::Execute)
                    .raw_input(json!({ "command": command }));
                if self.may(call).await? {
                    let mut shell = shell(&command, &self.folder);
                    shell
                        .stdout(Stdio::null())
                        .status()
                        .await
                        .map_err(Error::into_internal_error)?;
                    self.done()?;
                }
            }
            Step::Ask { title } => {
                let call = self.call(title, ToolKind::Other);
                self.may(call).await?;
            }
            Step::Usage { cost } => {
                let amount: f64 = cost.parse().map_err(Error::into_internal_error)?;
                let used = UsageUpdate::new(1_000, 200_000).cost(Cost::new(amount, "USD"));
                self.update(SessionUpdate::UsageUpdate(used))?;
            }
            Step::Plan(plan) => {
                let plan = serde_json::to_value(plan).map_err(Error::into_internal_error)?;
                self.hand_in(&plan)?;
            }
            Step::HandIn(value) => self.hand_in(&value)?,
            Step::Update(update) => {
                let params = json!({ "sessionId": self.id, "update": update });
                self.client.send_notification(UntypedMessage::new("session/update", params)?)?;
            }
            #[expect(clippy::print_stderr, reason = "it is what the step is for")]
            Step::Complain(text) => eprintln!("{text}"),
            Step::AwaitFile(path) => {
                while !self.folder.join(&path).exists() {
                    tokio::time::sleep(LOOK).await;
                }
            }
            Step::Spawn { command, leave, pid_file } => {
                self.spawn(&command, leave, &self.folder.join(pid_file))?;
            }
            Step::Hang => std::future::pending().await,
            Step::Exit(code) => std::process::exit(code),
            Step::Die => {
                let kill = format!("kill -KILL {}", std::process::id());
                shell(&kill, &self.folder).status().await.map_err(Error::into_internal_error)?;
            }
            Step::Fail { code, message, data } => {
                return Err(Error::new(code, message).data(data.unwrap_or_default()));
            }
            Step::End { tokens } => {
                let usage = tokens.map(|tokens| {
                    Usage::new(tokens.total(), tokens.input, tokens.output)
                        .cached_read_tokens(tokens.cached)
                });
                return Ok(Some(PromptResponse::new(StopReason::EndTurn).usage(usage)));
            }
        }
        Ok(None)
    }

    fn update(&self, update: SessionUpdate) -> Result<(), Error> {
        self.client.send_notification(SessionNotification::new(self.id.clone(), update))
    }

    fn say(&self, text: String) -> Result<(), Error> {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into())))
    }

    fn hand_in(&self, value: &serde_json::Value) -> Result<(), Error> {
        self.say(format!("\n```json\n{value:#}\n```\n"))
    }

    fn call(&mut self, title: String, kind: ToolKind) -> ToolCall {
        self.calls += 1;
        ToolCall::new(self.call_id(), title).kind(kind)
    }

    fn call_id(&self) -> String {
        format!("call-{}", self.calls)
    }

    /// Announces a tool call and asks whether it may go on.
    async fn may(&self, call: ToolCall) -> Result<bool, Error> {
        self.update(SessionUpdate::ToolCall(call.clone()))?;
        let options = vec![
            PermissionOption::new("always", "Always", PermissionOptionKind::AllowAlways),
            PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
        ];
        let request = RequestPermissionRequest::new(self.id.clone(), call.into(), options);
        let answer = self.client.send_request(request).block_task().await?;
        let allowed = matches!(
            answer.outcome,
            RequestPermissionOutcome::Selected(option) if &*option.option_id.0 != "reject"
        );
        if !allowed {
            self.ended(ToolCallStatus::Failed)?;
        }
        Ok(allowed)
    }

    fn done(&self) -> Result<(), Error> {
        self.ended(ToolCallStatus::Completed)
    }

    fn ended(&self, status: ToolCallStatus) -> Result<(), Error> {
        let fields = ToolCallUpdateFields::new().status(status);
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(self.call_id(), fields)))
    }

    fn spawn(&self, command: &str, leave: bool, pid_file: &Path) -> Result<(), Error> {
        // The number is written by the child itself, after it has left, under its final name at once.
        let script =
            format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}' && {command}", pid_file.display());
        let mut child = if leave {
            let mut child = Command::new("setsid");
            child.args(["sh", "-c", &script]);
            child
        } else {
            shell(&script, &self.folder)
        };
        child
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(false)
            .spawn()
            .map_err(Error::into_internal_error)?;
        Ok(())
    }
}

fn shell(command: &str, folder: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).stdin(Stdio::null());
    shell
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::into_internal_error)?;
    }
    std::fs::write(path, content).map_err(Error::into_internal_error)
}

fn append(path: &Path, line: &str) -> Result<(), Error> {
    let file = std::fs::File::options().create(true).append(true).open(path);
    // In one call, so that two who write at once do not mix.
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(Error::into_internal_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_in_the_prompt_else_in_the_environment_else_in_the_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let script = |text: &str| Script::of([Step::Say(text.to_owned())]);
        let chosen = |given: Option<&Script>, prompt: &str| choose(given, prompt, folder.path());
        assert!(chosen(None, "Do it.").is_err());
        script("folder").write(&folder.path().join(SCRIPT_FILE)).expect("written");
        assert_eq!(chosen(None, "Do it.").expect("a script"), script("folder"));
        let given = script("environment");
        assert_eq!(chosen(Some(&given), "Do it.").expect("a script"), given);
        let prompt = "Do it.\n```script\n{\"steps\": [{\"say\": \"prompt\"}]}\n```\n";
        assert_eq!(chosen(Some(&given), prompt).expect("a script"), script("prompt"));
    }
}
