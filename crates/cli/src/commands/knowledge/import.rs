//! `tamma knowledge import`: imports an export, or proposes entries from project documents.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tamma_core::ids::Digest;
use tamma_core::knowledge::import::{self, ImportCandidate};
use tamma_core::knowledge::{KnowledgeEntry, markdown};
use tamma_server::dto::{
    KnowledgeEntryDetail, KnowledgeImportRequest, KnowledgeImportResult, KnowledgeList,
    NewKnowledgeEntry,
};
use uuid::Uuid;

use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::repository::Repository;

/// Number of entries per request, because the request size is limited.
const BATCH_SIZE: usize = 50;

#[derive(Debug, clap::Args)]
pub(in crate::commands) struct Args {
    #[arg(help = "Files to import [default: the project documents of this repository]")]
    files: Vec<PathBuf>,
    #[arg(
        long,
        value_name = "NAME",
        help = "Project name [default: the project of this repository; entries of an export keep theirs]"
    )]
    project: Option<String>,
    /// Show the result without importing
    #[arg(long)]
    dry_run: bool,
    /// Keep the status of approved entries despite content warnings
    #[arg(long)]
    despite: bool,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let project = super::resolve_project(&client, arguments.project.as_deref()).await?;
        let import =
            Importer { client, person: arguments.identity.resolve_name()?, project, arguments };
        let repository = Repository::containing(Path::new(".")).ok();
        let files = match (arguments.files.as_slice(), &repository) {
            ([], Some(repository)) => source_files(repository)?,
            ([], None) => {
                bail!("the current folder is not in a git repository; name the files to import")
            }
            (named, _) => named.to_vec(),
        };
        // Read all files before sending anything.
        let mut read = Vec::new();
        for file in &files {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            read.push((display_name(file, repository.as_ref()), text));
        }
        let mut all = KnowledgeImportResult::default();
        for (name, text) in &read {
            let done = if import::is_importable(name) {
                import.propose_from_file(name, text).await?
            } else {
                let entries = markdown::parse(text)
                    .with_context(|| format!("cannot parse {name} as a knowledge export"))?;
                if entries.is_empty() {
                    bail!(
                        "{name} has no entries and is not a known project document\n  help: `tamma knowledge \
                         export` writes a file that can be imported"
                    );
                }
                import.import_entries(name, entries).await?
            };
            all.added += done.added;
            all.changed += done.changed;
            all.unchanged += done.unchanged;
            all.notes.extend(done.notes);
        }
        print_summary(&all, arguments)
    })
}

fn print_summary(all: &KnowledgeImportResult, arguments: &Args) -> Result<ExitCode> {
    if arguments.target.json {
        output::print_json(all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    for note in &all.notes {
        writeln!(out, "{}", sanitize(note))?;
    }
    let KnowledgeImportResult { added, changed, unchanged: same, .. } = all;
    let would = if arguments.dry_run { "Dry run: " } else { "" };
    writeln!(out, "{would}{added} added, {changed} changed, {same} unchanged.")?;
    if *added > 0 && !arguments.dry_run {
        writeln!(out, "Review them with `tamma knowledge list --status pending`.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the project documents of a repository, such as AGENTS.md and lint configurations.
fn source_files(repository: &Repository) -> Result<Vec<PathBuf>> {
    let files = repository.list_files()?.into_iter().filter(|file| import::is_importable(file));
    let files: Vec<_> = files.map(|file| repository.root.join(file)).collect();
    if files.is_empty() {
        bail!(
            "nothing to import: no AGENTS.md, CLAUDE.md, CONTRIBUTING.md, .cursor/rules or lint \
             configuration in {}; name a file",
            repository.root.display()
        );
    }
    Ok(files)
}

/// Path of a file relative to the root of the repository; outside of it, the file name.
fn display_name(file: &Path, repository: Option<&Repository>) -> String {
    let inside = || {
        let root = repository?.root.canonicalize().ok()?;
        Some(file.canonicalize().ok()?.strip_prefix(root).ok()?.to_owned())
    };
    let outside = || file.file_name().map(PathBuf::from).unwrap_or_default();
    inside().unwrap_or_else(outside).display().to_string()
}

struct Importer<'a> {
    client: Client,
    person: String,
    /// Project of entries that are proposed from documents.
    project: Option<String>,
    arguments: &'a Args,
}

impl Importer<'_> {
    /// Imports an export. A dry run goes first, so that an export with an error changes nothing.
    async fn import_entries(
        &self,
        name: &str,
        entries: Vec<KnowledgeEntry>,
    ) -> Result<KnowledgeImportResult> {
        let mut done = KnowledgeImportResult::default();
        let tries: &[bool] = if self.arguments.dry_run { &[true] } else { &[true, false] };
        for dry_run in tries {
            done = KnowledgeImportResult::default();
            for entries in entries.chunks(BATCH_SIZE) {
                let body = KnowledgeImportRequest {
                    entries: entries.to_vec(),
                    project: self.arguments.project.clone(),
                    ignore_warnings: self.arguments.despite,
                    dry_run: *dry_run,
                };
                let (path, key) = ("/knowledge/import", client::new_id());
                let batch: KnowledgeImportResult =
                    self.client.post(path, &self.person, key, &body).await?;
                done.added += batch.added;
                done.changed += batch.changed;
                done.unchanged += batch.unchanged;
                done.notes.extend(batch.notes);
            }
        }
        let entries = match entries.len() {
            1 => "1 entry".to_owned(),
            several => format!("{several} entries"),
        };
        done.notes.insert(0, format!("{name}: {entries}"));
        Ok(done)
    }

    /// Proposes entries from a document. Entries that exist in any status are not proposed again.
    async fn propose_from_file(&self, name: &str, text: &str) -> Result<KnowledgeImportResult> {
        let query: Vec<_> =
            self.project.iter().map(|project| ("project", project.as_str())).collect();
        let existing: KnowledgeList = self.client.get("/knowledge", &query).await?;
        let mut done = KnowledgeImportResult::default();
        for proposal in import::candidates(name, text) {
            let id = self.proposal_id(name, &proposal);
            let is_same =
                |it: &KnowledgeEntryDetail| it.entry.id.0 == id || it.entry.text == proposal.text;
            if existing.entries.iter().any(is_same) {
                done.unchanged += 1;
                continue;
            }
            let location = format!("{name}:{}", proposal.line);
            done.notes.push(format!("{location}: {}", proposal.text));
            done.added += 1;
            if !self.arguments.dry_run {
                let new = self.new_entry(id, &location, proposal);
                let sent = self.client.post("/knowledge", &self.person, id, &new).await;
                let _: KnowledgeEntryDetail =
                    sent.with_context(|| format!("cannot propose {location}"))?;
            }
        }
        Ok(done)
    }

    /// Returns a stable ID for a proposal, so that an entry that a person has edited is not proposed
    /// again.
    fn proposal_id(&self, name: &str, proposal: &ImportCandidate) -> Uuid {
        let project = self.project.as_deref().unwrap_or_default();
        let content = format!("{project}\n{name}\n{}", proposal.text);
        let digest = Digest::of(content.as_bytes()).to_string();
        let digits = u128::from_str_radix(&digest[..32], 16).unwrap_or_default();
        uuid::Builder::from_custom_bytes(digits.to_be_bytes()).into_uuid()
    }

    fn new_entry(&self, id: Uuid, location: &str, proposal: ImportCandidate) -> NewKnowledgeEntry {
        NewKnowledgeEntry {
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
            evidence: vec![format!("file:{location}")],
            expires_at: None,
            imported: true,
        }
    }
}
