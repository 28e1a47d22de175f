//! Kit of hostile repositories. Each goes through everything that a worker does: add, plan, implement
//! in the sandbox, gates, review, salvage and deliver.
//!
//! `just lab hostile-repositories` takes the same kit through the whole product. Here, a repository
//! must also not take long or use much memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::ids::{CommitId, ProjectId};
use tamma_core::rules::SandboxMode;
use tamma_engine::delivery::push_task_branch;
use tamma_engine::gate::GateCheckout;
use tamma_engine::git::Git;
use tamma_engine::mirror::{self, Mirror, newest_commit, task_branch};
use tamma_engine::plain_checkout::FolderCheck;
use tamma_engine::sandbox::{self, Launcher, SandboxKind};
use tamma_engine::workspaces::Workspaces;
use tamma_engine::worktree::Worktree;
use tamma_testkit::hostile::{HOSTILE_REPOSITORIES, HostileRepository, SHELL_FUNCTIONS};

use crate::fixture::{Fixture, author, environment, noon};

/// Time limit for one repository.
const LIMIT: Duration = Duration::from_mins(5);

/// Maximum memory of the process, in kilobytes. Without any repository it needs about 30,000.
const MAX_MEMORY_KB: u64 = 200_000;

/// Results of the steps, with the errors of refused ones.
#[derive(Debug, Default)]
struct KitReport {
    refused: Vec<String>,
}

impl KitReport {
    fn note<T>(&mut self, step: &str, result: Result<T, mirror::Error>) -> Option<T> {
        result.map_err(|error| self.refused.push(format!("{step}: {error}"))).ok()
    }
}

struct Kit {
    fixture: Fixture,
    project: ProjectId,
    kind: SandboxKind,
}

impl Kit {
    async fn new(hostile: &HostileRepository) -> Self {
        let fixture = Fixture::create().await;
        let project = ProjectId("0192a000-0000-7000-8000-000000000002".parse().unwrap());
        let kind = sandbox::choose(SandboxMode::Bubblewrap).unwrap();
        let kit = Self { fixture, project, kind };
        // The author of the repository works on their own machine, where commands may run.
        let script = format!("{SHELL_FUNCTIONS}\n{}", hostile.repository);
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", &script]).current_dir(kit.fixture.project());
        command.env("LOOT", kit.loot()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.status().await.unwrap().success(), "the repository was not created");
        let _ = fs::remove_file(kit.loot());
        kit
    }

    fn loot(&self) -> PathBuf {
        self.fixture.scratch_path("loot")
    }

    /// Runs a script of the agent or of a gate in the sandbox.
    async fn run_inside(&self, folder: &Path, script: &str) {
        let home = self.fixture.data().join("homes/this");
        fs::create_dir_all(&home).unwrap();
        let mut env: BTreeMap<_, _> = environment();
        env.insert("LOOT".to_owned(), self.loot().display().to_string());
        let check = FolderCheck {
            command: format!("{SHELL_FUNCTIONS}\n{script}"),
            folder: folder.to_owned(),
            home,
            env,
            readable: Vec::new(),
            hidden: Vec::new(),
            sandbox: self.kind,
            launcher: Launcher {
                program: PathBuf::from(env!("CARGO_BIN_EXE_sandbox-launcher")),
                args: Vec::new(),
            },
            time_limit: Duration::from_mins(1),
        };
        let ran = check.run((self.fixture.run(), noon()), &self.fixture.records().await).await;
        assert!(ran.is_ok(), "{ran:?}");
    }

    async fn mirror(&self, data: &Path) -> Result<Mirror, mirror::Error> {
        let git = Git::find("git").await?;
        let source = self.fixture.project().display().to_string().parse()?;
        newest_commit(&git, &source, Some("main")).await?;
        Mirror::open(git, data, self.project, &source).await
    }

    /// Takes the repository through the steps of a task.
    async fn run(&self, hostile: &HostileRepository) -> KitReport {
        let mut report = KitReport::default();
        let data = self.fixture.data();
        let Some(mirror) = report.note("add", self.mirror(&data).await) else { return report };
        let base = self.fixture.base().await;
        let opened = Worktree::open(&mirror, self.fixture.task, base).await;
        let Some(tree) = report.note("plan", opened) else { return report };
        report.note("plan", tree.private_git(&data.join("homes/git"), true).await);
        report.note("plan", tree.files_at(base).await);

        self.run_inside(tree.path(), hostile.agent).await;
        report.note("salvage", tree.checkpoint().await);
        report.note("gates of the agent", tree.snapshot_commit().await);
        report.note("implement", tree.diff_stat(base).await);
        let committed = tree.commit_all(1, "Work", &author()).await;
        let commit = report.note("implement", committed).unwrap_or(base);
        self.check(&mut report, hostile, (&mirror, &tree), (base, commit)).await;

        // The disk is full, and another host continues.
        let workspaces = Workspaces::new(Git::find("git").await.unwrap(), &data);
        report.note("salvage", workspaces.list().await);
        report.note("salvage", tree.remove(true).await);
        let other = self.fixture.scratch_path("other host");
        if let Some(mirror) = report.note("move", self.mirror(&other).await) {
            let opened = Worktree::open(&mirror, self.fixture.task, base).await;
            if let Some(tree) = report.note("move", opened) {
                report.note("move", tree.checkpoint().await);
            }
        }
        let (task, branch) = (self.fixture.task, task_branch(self.fixture.task));
        if let Err(error) = push_task_branch(&mirror, (task, &branch), commit).await {
            report.refused.push(format!("deliver: {error}"));
        }
        report
    }

    /// Runs gates and a review.
    async fn check(
        &self,
        report: &mut KitReport,
        hostile: &HostileRepository,
        (mirror, tree): (&Mirror, &Worktree),
        (base, commit): (CommitId, CommitId),
    ) {
        let opened = GateCheckout::for_task(mirror, self.fixture.task).await;
        if let Some(gates) = report.note("gates", opened) {
            for commit in [commit, base, commit] {
                report.note("gates", gates.check_out(commit).await);
                self.run_inside(&gates.path(), hostile.gate).await;
            }
            report.note("gates", gates.check_out(commit).await);
        }
        let opened = GateCheckout::for_judging(mirror, self.fixture.task).await;
        if let Some(judges) = report.note("review", opened) {
            report.note("review", judges.check_out(commit).await);
            self.run_inside(&judges.path(), hostile.gate).await;
            report.note("review", judges.restore_instructions(base).await);
            let folder = self.fixture.data().join("homes/judge");
            report.note("review", judges.private_git(&folder).await);
            report.note("review", judges.remove().await);
        }
        report.note("review", tree.diff(base, commit).await);
        if let Some(touched) = report.note("review", tree.touched_files(base, commit).await) {
            report.note("review", tree.added_lines(&touched).await);
        }
        if let Some(changed) = report.note("review", tree.changed_files(base, commit).await) {
            for path in changed.keys().take(100) {
                report.note("review", tree.file_text(commit, path).await);
            }
        }
    }
}

fn peak_memory_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn test(name: &str) -> KitReport {
    let hostile = HOSTILE_REPOSITORIES.iter().find(|hostile| hostile.name == name).unwrap();
    let kit = Kit::new(hostile).await;
    let report = tokio::time::timeout(LIMIT, kit.run(hostile)).await.expect("it took too long");
    assert!(!kit.loot().exists(), "a command ran outside the sandbox: {report:#?}");
    assert!(peak_memory_kb() < MAX_MEMORY_KB, "{} kB", peak_memory_kb());
    report
}

/// Declares a test for each repository of the kit.
macro_rules! kit {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(
            #[tokio::test]
            async fn $name() {
                let report = test(stringify!($name)).await;
                println!("peak memory {} MB, {report:#?}", peak_memory_kb() / 1000);
            }
        )*
    };
}

kit! {
    nested_repository_with_commands_in_its_settings
    nested_repository_with_hooks
    nested_repository_with_a_promisor_remote
    nested_repository_that_includes_settings
    nested_bare_repository
    nested_repositories_in_each_other
    git_link_replaced_by_a_folder
    git_link_to_another_repository
    git_link_replaced_by_a_link
    submodule_with_commands_in_its_settings
    submodule_with_a_promisor_remote
    submodule_in_place_of_instructions
    submodules_with_commands_in_gitmodules
    submodules_with_options_in_gitmodules
    submodule_with_a_link_to_another_git_directory
    settings_of_the_repository
    attributes_that_hide_changes
    attributes_that_convert_files
    attributes_with_many_macros
    attributes_as_a_link
    large_file_storage
    links_out_of_the_worktree
    folder_replaced_by_a_link
    names_of_tamma_itself
    special_files
    unreadable_files
    huge_file
    huge_tracked_file
    many_huge_files
    huge_text
    huge_line
    deep_tree
    many_files
    odd_names
    names_that_differ_in_case_only
    names_of_other_systems
    replaced_objects_and_grafts
    alternate_objects
    branches_with_odd_names
    tag_and_branch_of_the_same_name
    everything_is_ignored
    objects_that_checkouts_refuse
    link_in_place_of_gitmodules
}

#[test]
fn every_repository_of_the_kit_has_a_test() {
    let kit: Vec<_> = HOSTILE_REPOSITORIES.iter().map(|hostile| hostile.name).collect();
    assert_eq!(TESTED, kit);
}

/// The same traps catch an ordinary git, so they are real.
#[tokio::test]
async fn traps_work_without_protection() {
    let mut caught = 0;
    for (script, folder, call) in [
        ("nested n; trap_config n; echo '* filter=x' > n/.gitattributes", "n", "status"),
        ("rm -rf .git; git init -q .; trap_config .", ".", "status"),
        ("nested n; hooks n/.git/hooks; echo y > n/y", "n", "add ."),
        ("promisor n", "n", "log -p"),
        ("nested n; trap_config n; echo y > n/inner.txt", "n", "diff"),
    ] {
        let hostile = HostileRepository { repository: script, ..HostileRepository::default() };
        let kit = Kit::new(&hostile).await;
        let mut command = tokio::process::Command::new("git");
        command.args(call.split(' ')).current_dir(kit.fixture.project().join(folder));
        let _ = command.output().await.unwrap();
        caught += usize::from(kit.loot().exists());
    }
    assert_eq!(caught, 5);
}
