//! Kit of hostile repositories. Each goes through everything that a worker does: add, plan, implement
//! in the sandbox, gates, review, salvage and deliver.
//!
//! A repository, its agent and its gates may fail or be refused. They must not run a command outside
//! the sandbox, take long, or use much memory. Every command of theirs creates the file `$LOOT`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::ids::{CommitId, ProjectId};
use tamma_core::rules::SandboxMode;
use tamma_engine::delivery::push_task_branch;
use tamma_engine::gate::GateCheckout;
use tamma_engine::git::Git;
use tamma_engine::mirror::{self, Mirror, newest_commit};
use tamma_engine::plain_checkout::FolderCheck;
use tamma_engine::sandbox::{self, Launcher, SandboxKind};
use tamma_engine::workspaces::Workspaces;
use tamma_engine::worktree::Worktree;

use crate::fixture::{Fixture, author, environment, noon};

/// Time limit for one repository.
const LIMIT: Duration = Duration::from_mins(5);

/// Maximum memory of the process, in kilobytes. Without any repository it needs about 30,000.
const MAX_MEMORY_KB: u64 = 200_000;

/// Shell functions for the scripts.
const LIBRARY: &str = r#"
set -u
export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x
trap_config() { # trap_config <folder>: settings that run a command
  for key in core.fsmonitor core.sshCommand core.editor core.pager core.askPass core.gitProxy \
    core.alternateRefsCommand diff.external diff.x.command diff.x.textconv filter.x.clean \
    filter.x.smudge filter.x.process merge.x.driver credential.helper gpg.program \
    uploadpack.packObjectsHook gc.recentObjectsHook sequence.editor; do
    git -C "$1" config "$key" "touch $LOOT; cat"
  done
  git -C "$1" config core.hooksPath "$PWD/hostile-hooks"
}
hooks() { # hooks <folder>: every hook
  mkdir -p "$1"
  for hook in pre-commit post-commit post-checkout post-merge pre-push post-index-change \
    reference-transaction fsmonitor-watchman sendemail-validate post-rewrite; do
    printf '#!/bin/sh\ntouch %s\n' "$LOOT" > "$1/$hook"; chmod +x "$1/$hook"
  done
}
nested() { # nested <folder>: repository with a commit
  mkdir -p "$1"; git init -q "$1"; echo inner > "$1/inner.txt"
  git -C "$1" add . ; git -C "$1" commit -qm inner
}
promisor() { # promisor <folder>: repository that would fetch missing objects with a command
  nested "$1"
  git -C "$1" config extensions.partialClone evil; git -C "$1" config core.repositoryFormatVersion 1
  git -C "$1" config remote.evil.url "$PWD"; git -C "$1" config remote.evil.promisor true
  git -C "$1" config remote.evil.uploadpack "touch $LOOT; git-upload-pack"
  find "$1/.git/objects" -type f -delete
}
gitlink() { # gitlink <path>: reference to a submodule
  git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),$1"
}
"#;

/// Hostile repository: scripts that run in its folder, in the worktree, and in the gate checkout.
#[derive(Default)]
struct HostileRepository {
    repository: &'static str,
    agent: &'static str,
    gate: &'static str,
}

impl HostileRepository {
    fn repository(self, repository: &'static str) -> Self {
        Self { repository, ..self }
    }

    fn agent(self, agent: &'static str) -> Self {
        Self { agent, ..self }
    }

    fn gate(self, gate: &'static str) -> Self {
        Self { gate, ..self }
    }
}

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
        let script = format!("{LIBRARY}\n{}", hostile.repository);
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
            command: format!("{LIBRARY}\n{script}"),
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
        if let Err(error) = push_task_branch(&mirror, self.fixture.task, commit).await {
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
        report.note("review", tree.added_lines(base, commit).await);
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

async fn test(hostile: &HostileRepository) -> KitReport {
    let kit = Kit::new(hostile).await;
    let report = tokio::time::timeout(LIMIT, kit.run(hostile)).await.expect("it took too long");
    assert!(!kit.loot().exists(), "a command ran outside the sandbox: {report:#?}");
    assert!(peak_memory_kb() < MAX_MEMORY_KB, "{} kB", peak_memory_kb());
    report
}

/// Declares a test for each repository: its name, and the scripts that differ from empty ones.
macro_rules! kit {
    ($($name:ident { $($field:ident: $script:expr),* $(,)? })*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let report = test(&HostileRepository::default()$(.$field($script))*).await;
                println!("peak memory {} MB, {report:#?}", peak_memory_kb() / 1000);
            }
        )*
    };
}

kit! {
    nested_repository_with_commands_in_its_settings {
        agent: "nested n; trap_config n; echo '* filter=x diff=x merge=x' > n/.gitattributes; echo y > n/y",
        gate: "nested n; trap_config n; echo '* filter=x diff=x' > n/.gitattributes",
    }
    nested_repository_with_hooks {
        agent: "nested n; hooks n/.git/hooks; hooks hostile-hooks; hooks hooks",
        gate: "nested n; hooks n/.git/hooks",
    }
    nested_repository_with_a_promisor_remote { agent: "promisor n; echo y > n/y", gate: "promisor n" }
    nested_repository_that_includes_settings {
        agent: "nested n; trap_config n; mv n/.git/config n/settings
                git config -f n/.git/config include.path ../settings
                git config -f n/.git/config core.repositoryFormatVersion 0",
    }
    nested_bare_repository {
        agent: "git init -q --bare b; trap_config b; git -C b config core.worktree ..
                cp -r b/. . ; mkdir c; cp -r b/. c",
    }
    nested_repositories_in_each_other {
        agent: "d=n; for i in 1 2 3 4 5 6 7 8; do nested $d; trap_config $d; d=$d/n; done",
    }
    git_link_replaced_by_a_folder { agent: "rm -rf .git; git init -q .; trap_config .; hooks .git/hooks" }
    git_link_to_another_repository {
        agent: "nested evil; trap_config evil; rm -rf .git; echo gitdir: $PWD/evil/.git > .git",
        gate: "nested evil; trap_config evil; rm -rf .git; echo gitdir: $PWD/evil/.git > .git",
    }
    git_link_replaced_by_a_link {
        agent: "nested evil; trap_config evil; rm -rf .git; ln -s evil/.git .git",
        gate: "nested evil; trap_config evil; rm -rf .git; ln -s evil/.git .git",
    }
    submodule_with_commands_in_its_settings {
        repository: "gitlink sub; git commit -qm sub; git rev-parse HEAD~1 > ../sub-commit",
        agent: "nested sub; trap_config sub; echo '* filter=x' > sub/.gitattributes
                git --git-dir=.git ls-tree HEAD sub 2>/dev/null; sleep 0; echo longer >> sub/inner.txt",
        gate: "nested sub; trap_config sub; echo '* filter=x' > sub/.gitattributes; echo l >> sub/inner.txt",
    }
    submodule_with_a_promisor_remote {
        repository: "gitlink sub; git commit -qm sub",
        agent: "promisor sub; echo y > sub/y",
        gate: "promisor sub",
    }
    submodule_in_place_of_instructions {
        repository: "gitlink AGENTS.md; gitlink .claude; git commit -qm sub",
        agent: "nested AGENTS.md; trap_config AGENTS.md; nested CLAUDE.md; trap_config CLAUDE.md",
        gate: "nested AGENTS.md; trap_config AGENTS.md; nested CLAUDE.md; trap_config CLAUDE.md",
    }
    submodules_with_commands_in_gitmodules {
        repository: "printf '[submodule \"a\"]\\n path=a\\n url=ext::touch %s\\n update=!touch %s\\n' $LOOT $LOOT > .gitmodules
                     git add .; gitlink a; git commit -qm modules",
        agent: "printf '[submodule \"b\"]\\n path=b\\n url=ext::touch %s\\n update=!touch %s\\n' $LOOT $LOOT >> .gitmodules",
    }
    submodules_with_options_in_gitmodules {
        repository: "printf '[submodule \"../../x\"]\\n path=-u\\n url=--upload-pack=touch %s\\n' $LOOT > .gitmodules
                     git add .; gitlink ./-u 2>/dev/null; git commit -qm modules",
    }
    submodule_with_a_link_to_another_git_directory {
        repository: "gitlink sub; git commit -qm sub",
        agent: "nested evil; trap_config evil; mkdir -p sub; echo gitdir: ../evil/.git > sub/.git",
        gate: "nested evil; trap_config evil; mkdir -p sub; echo gitdir: ../evil/.git > sub/.git",
    }
    settings_of_the_repository {
        // Hooks and `core.alternateRefsCommand` are missing here: at a push, those of the project's own
        // repository run, as they are the operator's.
        repository: "trap_config .; echo '* filter=x diff=x merge=x' > .gitattributes
                     cp .git/config settings; git -c core.fsmonitor=false -c filter.x.clean=cat \
                       -c filter.x.process= -c core.hooksPath=/dev/null add .
                     git -c core.fsmonitor=false -c filter.x.clean=cat -c filter.x.process= \
                       -c core.hooksPath=/dev/null commit -qm settings
                     git config --unset core.alternateRefsCommand",
        agent: "echo changed > README.md",
    }
    attributes_that_hide_changes {
        agent: "printf '* -diff\\n*.txt binary\\n*.md filter=x diff=x\\n' > .gitattributes; echo hidden > a.txt; echo h > README.md",
    }
    attributes_that_convert_files {
        repository: "printf '*.txt working-tree-encoding=UTF-16\\n*.md ident text eol=crlf\\n' > .gitattributes; git add .gitattributes; git commit -qm a",
        agent: "printf '\\377\\376a\\000' > src/old.txt; echo '$Id: x$' > README.md; echo '*.x working-tree-encoding=nothing' >> .gitattributes; echo x > a.x",
    }
    attributes_with_many_macros {
        agent: "i=0; while [ $i -lt 20000 ]; do echo \"[attr]m$i m$((i+1)) -diff filter=x\"; i=$((i+1)); done > .gitattributes; echo '* m0' >> .gitattributes; echo x > x",
    }
    attributes_as_a_link { agent: "ln -s ../../../../../../dev/zero .gitattributes; ln -s /dev/zero .gitignore; echo x > x" }
    large_file_storage {
        repository: "printf '*.bin filter=lfs diff=lfs merge=lfs -text\\n' > .gitattributes
                     printf '[lfs]\\n url=https://127.0.0.1:1/\\n[lfs \"customtransfer.x\"]\\n path=touch\\n args=%s\\n' $LOOT > .lfsconfig
                     printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 3\\n' 0 > a.bin
                     git add .; git commit -qm lfs",
        agent: "head -c 1000 /dev/urandom > b.bin",
    }
    links_out_of_the_worktree {
        repository: "ln -s / root; ln -s /etc/passwd passwd; ln -s loop loop; ln -s ../../../.. up; git add .; git commit -qm links",
        agent: "ln -s /dev/zero zero; ln -s /proc/self/environ env; echo x > new",
    }
    folder_replaced_by_a_link { agent: "rm -rf src; ln -s /etc src; rm README.md; mkdir README.md; echo x > README.md/x" }
    names_of_tamma_itself {
        agent: "mkdir .git-replaced .git-tamma-new; echo x > .git-replaced/x; rm -rf .git; git init -q .; ln -s /etc/passwd tamma-index",
        gate: "mkdir .git-replaced; rm -rf .git; mkdir .git; ln -s / .git/HEAD",
    }
    special_files {
        agent: "rm src/old.txt; mkfifo src/old.txt fifo; mkfifo .gitignore; echo x > x",
        gate: "mkfifo fifo; rm README.md; mkfifo README.md",
    }
    unreadable_files {
        agent: "echo x > a; chmod 0 a; mkdir b; echo x > b/c; chmod 0 b; chmod 555 src",
        gate: "mkdir b; echo x > b/c; chmod 0 b; chmod 555 src",
    }
    huge_file { agent: "truncate -s 12G huge; echo x > x" }
    huge_tracked_file {
        repository: "truncate -s 60M big; git add .; git commit -qm big",
        agent: "truncate -s 1G big; echo x > x",
    }
    many_huge_files { agent: "for i in 1 2 3 4 5 6; do truncate -s 90M h$i; done; echo x >> h1" }
    huge_text { agent: "yes 'a line of text' | head -c 60000000 > text.txt" }
    huge_line { agent: "head -c 60000000 /dev/zero | tr '\\0' a > line.txt" }
    deep_tree {
        agent: "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo x > x 2>/dev/null",
        gate: "i=0; while [ $i -lt 300 ]; do mkdir e && cd e || break; i=$((i+1)); done; echo x > x 2>/dev/null",
    }
    many_files { agent: "mkdir m; cd m; seq 1 51000 | xargs touch" }
    odd_names {
        repository: "touch -- '-x' '--upload-pack=touch x' ':(exclude)README.md' 'a\tb' 'tail ' '*' '[a]' 'a\\b' '\"q\"' \"$(printf 'new\\nline')\" \"$(printf 'bad\\377')\"; git add .; git commit -qm odd",
        agent: "for f in '-x' '--upload-pack=touch x' ':(exclude)README.md' '*' \"$(printf 'bad\\377')\" \"$(printf 'more\\376')\" \"$(printf 'esc\\033[31m')\"; do echo y > \"./$f\"; done; head -c 250 /dev/zero | tr '\\0' n | xargs touch",
    }
    names_that_differ_in_case_only {
        repository: "echo a > Readme.MD; echo b > README.MD; mkdir SRC; echo c > SRC/OLD.txt; git add .; git commit -qm case",
        agent: "mkdir .GIT; echo x > .GIT/config; mkdir -p 'x/.Git/hooks'; hooks x/.Git/hooks; echo x > readme.md",
    }
    names_of_other_systems {
        agent: "mkdir git~1 2>/dev/null; echo x > git~1/config; echo x > aux; echo x > 'a:b'; echo x > 'con.txt'; mkdir \"$(printf '.g\\342\\200\\214it')\"; echo x > \"$(printf '.g\\342\\200\\214it')/config\"; echo x > '.git '; echo x > '.git.'; echo x > x",
    }
    replaced_objects_and_grafts {
        repository: "git commit -q --allow-empty -m second; git replace HEAD HEAD~1; mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts; git update-ref refs/heads/replace/x HEAD",
        agent: "echo x > x",
    }
    alternate_objects {
        repository: "mkdir -p ../elsewhere; cp -r .git/objects/. ../elsewhere/; echo ../../../elsewhere > .git/objects/info/alternates; find .git/objects -type f -path '*/??/*' -delete",
        agent: "echo x > x",
    }
    branches_with_odd_names {
        repository: "h=$(git rev-parse HEAD); for b in 'x/--upload-pack=touch' '@{x' 'tamma/other' 'HEAD'; do mkdir -p \".git/refs/heads/$(dirname -- \"$b\")\"; echo $h > \".git/refs/heads/$b\"; done",
        agent: "echo x > x",
    }
    tag_and_branch_of_the_same_name {
        repository: "git tag main; git tag -f refs/heads/main 2>/dev/null; git commit -q --allow-empty -m second; git symbolic-ref refs/heads/link refs/heads/main",
        agent: "echo x > x",
    }
    everything_is_ignored { agent: "echo '*' > .gitignore; echo '!.gitignore' >> .gitignore; echo hidden > a; nested n; trap_config n" }
    objects_that_checkouts_refuse {
        repository: "b=$(echo x | git hash-object -w --stdin); t=$(printf '100644 blob %s\\tconfig\\n' $b | git mktree)
                     r=$(printf '040000 tree %s\\t.git\\n100644 blob %s\\ta\\n' $t $b | git mktree)
                     git update-ref refs/heads/main $(git commit-tree -m dotgit -p HEAD $r)",
        agent: "echo x > x",
    }
    link_in_place_of_gitmodules {
        repository: "b=$(printf /etc/passwd | git hash-object -w --stdin)
                     r=$(printf '120000 blob %s\\t.gitmodules\\n100644 blob %s\\ta\\n' $b $b | git mktree)
                     git update-ref refs/heads/main $(git commit-tree -m link -p HEAD $r)",
        agent: "echo x > x",
    }
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
        let kit = Kit::new(&HostileRepository::default().repository(script)).await;
        let mut command = tokio::process::Command::new("git");
        command.args(call.split(' ')).current_dir(kit.fixture.project().join(folder));
        let _ = command.output().await.unwrap();
        caught += usize::from(kit.loot().exists());
    }
    assert_eq!(caught, 5);
}
