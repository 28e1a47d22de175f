//! `tamma knowledge import`: an export, or what a repository already says.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tamma_core::ids::Digest;
use tamma_core::knowledge::import::{self, Proposal};
use tamma_core::knowledge::{Entry, markdown};
use tamma_server::shape::{
    Knowledge, KnowledgeImport, KnowledgeImported, KnowledgeList, NewKnowledge,
};
use uuid::Uuid;

use crate::client::{self, Asker, Client, Target};
use crate::output::{self, plain};
use crate::repository::Repository;

/// How many entries are sent at once: a request has a limit.
const AT_ONCE: usize = 50;

#[derive(Debug, Args)]
pub(in crate::commands) struct Arguments {
    /// The files. Without any, those of the repository here that say how things are done in it.
    files: Vec<PathBuf>,
    /// The project. By default that of the repository you are in, or the only one; entries of an export
    /// stay where they are.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Changes nothing, and says what would come of it.
    #[arg(long)]
    dry_run: bool,
    /// Takes approved entries as they are although there is something to look at twice.
    #[arg(long)]
    despite: bool,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let project = super::meant(&client, arguments.project.as_deref()).await?;
        let import = Import { client, by: arguments.asker.name()?, project, arguments };
        let repository = Repository::of(Path::new(".")).ok();
        let files = match (arguments.files.as_slice(), &repository) {
            ([], Some(repository)) => sources(repository)?,
            ([], None) => bail!("this is not in a git repository: name the files to import"),
            (named, _) => named.to_vec(),
        };
        // What cannot be read is told before anything is sent.
        let mut read = Vec::new();
        for file in &files {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("{} cannot be read", file.display()))?;
            read.push((name(file, repository.as_ref()), text));
        }
        let mut all = KnowledgeImported::default();
        for (name, text) in &read {
            let done = if import::is_source(name) {
                import.propose(name, text).await?
            } else {
                let entries = markdown::read(text)
                    .with_context(|| format!("{name} is not an export of knowledge"))?;
                if entries.is_empty() {
                    bail!(
                        "{name} has no entries in it, and is no file that we know: `tamma knowledge \
                         export` writes one"
                    );
                }
                import.take(name, entries).await?
            };
            all.added += done.added;
            all.changed += done.changed;
            all.same += done.same;
            all.notes.extend(done.notes);
        }
        told(&all, arguments)
    })
}

fn told(all: &KnowledgeImported, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.target.json {
        output::json(all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    for note in &all.notes {
        writeln!(out, "{}", plain(note))?;
    }
    let KnowledgeImported { added, changed, same, .. } = all;
    let would = if arguments.dry_run { "Would be: " } else { "" };
    writeln!(out, "{would}{added} added, {changed} changed, {same} there already.")?;
    if *added > 0 && !arguments.dry_run {
        writeln!(out, "`tamma knowledge list --status pending` shows what waits for you.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The files of a repository that say how things are done in it.
fn sources(repository: &Repository) -> Result<Vec<PathBuf>> {
    let files = repository.files()?.into_iter().filter(|file| import::is_source(file));
    let files: Vec<_> = files.map(|file| repository.root.join(file)).collect();
    if files.is_empty() {
        bail!(
            "nothing here says how things are done: there is no AGENTS.md, CLAUDE.md, \
             CONTRIBUTING.md, .cursor/rules or lint configuration in {}. Name a file",
            repository.root.display()
        );
    }
    Ok(files)
}

/// What a file is called: its path from the root of the repository, where it is in it.
fn name(file: &Path, repository: Option<&Repository>) -> String {
    let inside = || {
        let root = repository?.root.canonicalize().ok()?;
        Some(file.canonicalize().ok()?.strip_prefix(root).ok()?.to_owned())
    };
    let outside = || file.file_name().map(PathBuf::from).unwrap_or_default();
    inside().unwrap_or_else(outside).display().to_string()
}

struct Import<'a> {
    client: Client,
    by: String,
    /// The project that files of a repository speak of.
    project: Option<String>,
    arguments: &'a Arguments,
}

impl Import<'_> {
    /// Takes in an export. It is tried first, so that nothing is taken in of one that has a mistake.
    async fn take(&self, name: &str, entries: Vec<Entry>) -> Result<KnowledgeImported> {
        let mut done = KnowledgeImported::default();
        let tries: &[bool] = if self.arguments.dry_run { &[true] } else { &[true, false] };
        for dry_run in tries {
            done = KnowledgeImported::default();
            for entries in entries.chunks(AT_ONCE) {
                let body = KnowledgeImport {
                    entries: entries.to_vec(),
                    project: self.arguments.project.clone(),
                    despite: self.arguments.despite,
                    dry_run: *dry_run,
                };
                let (path, key) = ("/knowledge/import", client::new_id());
                let some: KnowledgeImported = self.client.post(path, &self.by, key, &body).await?;
                done.added += some.added;
                done.changed += some.changed;
                done.same += some.same;
                done.notes.extend(some.notes);
            }
        }
        let entries = match entries.len() {
            1 => "1 entry".to_owned(),
            several => format!("{several} entries"),
        };
        done.notes.insert(0, format!("{name}: {entries}"));
        Ok(done)
    }

    /// Proposes what a file says. What is there already, in whatever status, is not proposed again.
    async fn propose(&self, name: &str, text: &str) -> Result<KnowledgeImported> {
        let query: Vec<_> =
            self.project.iter().map(|project| ("project", project.as_str())).collect();
        let known: KnowledgeList = self.client.get("/knowledge", &query).await?;
        let mut done = KnowledgeImported::default();
        for proposal in import::proposals(name, text) {
            let id = self.id(name, &proposal);
            let is_there = |it: &Knowledge| it.entry.id.0 == id || it.entry.text == proposal.text;
            if known.entries.iter().any(is_there) {
                done.same += 1;
                continue;
            }
            let place = format!("{name}:{}", proposal.line);
            done.notes.push(format!("{place}: {}", proposal.text));
            done.added += 1;
            if !self.arguments.dry_run {
                let new = self.proposed(id, &place, proposal);
                let sent = self.client.post("/knowledge", &self.by, id, &new).await;
                let _: Knowledge = sent.with_context(|| format!("{place} cannot be proposed"))?;
            }
        }
        Ok(done)
    }

    /// The identity of what a file says: the same every time, so that what a person has worded anew is
    /// not proposed once more.
    fn id(&self, name: &str, proposal: &Proposal) -> Uuid {
        let project = self.project.as_deref().unwrap_or_default();
        let words = format!("{project}\n{name}\n{}", proposal.text);
        let digest = Digest::of(words.as_bytes()).to_string();
        let digits = u128::from_str_radix(&digest[..32], 16).unwrap_or_default();
        uuid::Builder::from_custom_bytes(digits.to_be_bytes()).into_uuid()
    }

    fn proposed(&self, id: Uuid, place: &str, proposal: Proposal) -> NewKnowledge {
        NewKnowledge {
            id: Some(id),
            kind: proposal.kind,
            text: proposal.text,
            project: self.project.clone(),
            organisation: false,
            globs: proposal.globs,
            task_types: Vec::new(),
            keywords: Vec::new(),
            actions: Vec::new(),
            pattern: proposal.pattern,
            severity: proposal.severity,
            owner: None,
            evidence: vec![format!("file:{place}")],
            expires_at: None,
            imported: true,
        }
    }
}
