//! One run of an agent for a job.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamma_core::budget::Limit;
use tamma_core::ids::Name;
use tamma_core::rules::AgentRules;
use tamma_core::task_loop::{FailureKind, Outcome};
use tamma_core::tier::Tier;
use tamma_engine::agent::{Agent, Mode, Observer, Report, RunEnd, RunOrder, Update};
use tamma_engine::permission;
use tamma_flow::port::Answer;

use crate::error::Error;
use crate::hands::{Activities, Told, Work, now};
use crate::site::Site;

/// How often the work of a run is saved.
pub(crate) const SALVAGE: Duration = Duration::from_mins(1);

/// What every program needs to find others.
pub(crate) const PLAIN: [&str; 4] = ["PATH", "HOME", "LANG", "TERM"];

/// A run that has ended.
pub(crate) struct Run {
    pub(crate) report: Report,
    /// What the agent said, whole.
    pub(crate) said: String,
    provider: Name,
}

impl Run {
    /// The answer for a run that did not finish.
    pub(crate) fn failed(self) -> Result<Told, Error> {
        let Some(mut failure) = self.report.end.failure(&self.provider) else {
            return Err(Error::Stopped);
        };
        // The last thing it complained about is often the reason.
        if failure.kind == FailureKind::Crashed
            && let Some(last) =
                self.report.stderr.lines().rev().find(|line| !line.trim().is_empty())
            && let Ok(reason) = format!("{}; its last words: {}", failure.reason, last.trim())
                .chars()
                .take(tamma_core::ids::Reason::MAX)
                .collect::<String>()
                .parse()
        {
            failure.reason = reason;
        }
        let outcome = Outcome::Failed(failure);
        Ok(Answer::Ended { outcome, usage: self.report.usage }.into())
    }
}

/// The agent of a tier, and its name.
pub(crate) fn agent_of(site: &Site, tier: Tier) -> Result<(Name, &AgentRules), Error> {
    let missing = || {
        let agent = &site.rules.tiers.get(tier).agent;
        Error::Configuration(format!("the agent `{agent}` of the tier `{tier}` is not defined"))
    };
    let (name, agent) = site.rules.agent(tier).ok_or_else(missing)?;
    Ok((name.parse().map_err(|_| missing())?, agent))
}

/// Some variables out of an environment.
pub(crate) fn inherited<'a>(
    environment: &BTreeMap<String, String>,
    names: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
) -> BTreeMap<String, String> {
    let pair = |name: &str| Some((name.to_owned(), environment.get(name)?.clone()));
    names.into_iter().filter_map(|name| pair(name.as_ref())).collect()
}

/// Whether the workflow has refused an update, so that sending it again cannot help.
pub(crate) fn is_refusal(error: &temporalio_client::errors::WorkflowUpdateError) -> bool {
    matches!(error, temporalio_client::errors::WorkflowUpdateError::Failed(_))
}

impl Activities {
    /// Runs an agent that may only look, when one of the places for those is free.
    pub(crate) async fn look(
        &self,
        work: &Work,
        site: &Site,
        folder: &Path,
        tier: Tier,
        mode: Mode,
        prompt: String,
    ) -> Result<Run, Error> {
        let _place = tokio::select! {
            place = self.lookers.acquire() => place.map_err(|_| Error::Stopped)?,
            () = work.call.stop.cancelled() => return Err(Error::Stopped),
        };
        let seconds = site.rules.scrum_master.task_loop.timeouts.requirements;
        let limits = (seconds, Limit::default());
        self.run_agent(work, site, folder, tier, mode, prompt, limits).await
    }

    /// Runs an agent, and returns when nothing of it lives any more.
    #[expect(clippy::too_many_arguments, reason = "each of them is one word of the order")]
    pub(crate) async fn run_agent(
        &self,
        work: &Work,
        site: &Site,
        folder: &Path,
        tier: Tier,
        mode: Mode,
        prompt: String,
        (seconds, allowance): (u32, Limit),
    ) -> Result<Run, Error> {
        let (_, rules) = agent_of(site, tier)?;
        let mut env = inherited(&self.config.environment, &rules.inherit);
        env.extend(rules.env.clone());
        let agent = Agent { command: rules.command.clone().into(), args: rules.args.clone(), env };
        let order = RunOrder {
            run: work.run(),
            at: now(),
            workspace: folder.to_owned(),
            prompt,
            mode,
            time_limit: Duration::from_secs(u64::from(seconds)),
            allowance,
            policy: permission::inside(folder, mode),
            patience: self.config.patience,
        };
        let said = Arc::new(Mutex::new(String::new()));
        let ears = said.clone();
        let observer: Observer = Arc::new(move |update| match update {
            Update::Said(text) => {
                if let Ok(mut said) = ears.lock() {
                    said.push_str(&text);
                }
            }
            Update::Asked(ask, ruling) if !ruling.allowed => {
                tracing::info!(ask = ask.title, reason = ruling.reason, "refused to an agent");
            }
            _ => {}
        });
        let report = agent.run(&order, &self.records, &observer, &work.call.stop).await?;
        if report.end == RunEnd::Cancelled {
            return Err(Error::Stopped);
        }
        let provider = site.rules.provider(tier).parse();
        let provider = provider.map_err(|_| Error::Configuration("a provider".to_owned()))?;
        let said = said.lock().map(|said| said.clone()).unwrap_or_default();
        Ok(Run { report, said, provider })
    }
}

impl Told {
    /// The same, with what it used.
    pub(crate) fn using(mut self, used: Option<tamma_core::cost::Usage>) -> Self {
        if let Answer::Ended { usage, .. } = &mut self.answer {
            *usage = used;
        }
        self
    }
}
