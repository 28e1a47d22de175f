//! Rebases, merges and pushes in the mirror of a bare repository.

use std::fs;
use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, ProjectId};
use tamma_engine::delivery::{self, PushOutcome, push_task_branch, replace_task_branch};
use tamma_engine::git::Git;
use tamma_engine::merge::{RebaseOutcome, TreeMerge};
use tamma_engine::mirror::{Mirror, task_branch};
use tamma_engine::worktree::Worktree;

use crate::fixture::{Fixture, author, git_in, noon};

/// Bare repository of a team, with a clone of a person and our mirror.
struct Team {
    fixture: Fixture,
    bare: PathBuf,
    mirror: Mirror,
}

impl Team {
    async fn create() -> Self {
        let fixture = Fixture::create().await;
        let lines: Vec<_> = (1..=12).map(|line| format!("line {line}\n")).collect();
        fs::write(fixture.project().join("lines.txt"), lines.concat()).unwrap();
        fixture.git(&["add", "--all"]).await;
        fixture.git(&["commit", "--quiet", "-m", "lines"]).await;
        let bare = fixture.scratch_path("bare.git");
        let path = bare.display().to_string();
        fixture.git(&["clone", "--quiet", "--bare", ".", &path]).await;
        fixture.git(&["remote", "add", "team", &path]).await;
        let mirror = Self::open_mirror(&path, &fixture.data()).await;
        Self { fixture, bare, mirror }
    }

    async fn open_mirror(bare: &str, data: &Path) -> Mirror {
        let project = ProjectId("0192a000-0000-7000-8000-000000000002".parse().unwrap());
        let git = Git::find("git").await.unwrap();
        Mirror::open(git, data, project, &bare.parse().unwrap()).await.unwrap()
    }

    async fn worktree(&self) -> Worktree {
        Worktree::open(&self.mirror, self.fixture.task, self.fixture.base().await).await.unwrap()
    }

    /// Replaces a line of `lines.txt`, or adds a file with one line.
    fn write(folder: &Path, line: &str, text: &str) {
        let path = folder.join("lines.txt");
        let before = fs::read_to_string(&path).unwrap();
        if before.contains(&format!("{line}\n")) {
            let after = before.replace(&format!("{line}\n"), &format!("{text}\n"));
            fs::write(path, after).unwrap();
        } else {
            fs::write(folder.join(line), format!("{text}\n")).unwrap();
        }
    }

    /// Commits on a branch of the person's clone, and pushes it.
    async fn push_by_person(&self, branch: &str, line: &str, text: &str) -> CommitId {
        Self::write(&self.fixture.project(), line, text);
        self.fixture.git(&["add", "--all"]).await;
        self.fixture.git(&["commit", "--quiet", "-m", "by a person"]).await;
        let refspec = format!("HEAD:refs/heads/{branch}");
        self.fixture.git(&["push", "--quiet", "team", &refspec]).await;
        self.fixture.git(&["rev-parse", "HEAD"]).await.parse().unwrap()
    }

    async fn bare_commit(&self, name: &str) -> CommitId {
        git_in(&self.bare, &["rev-parse", name]).await.parse().unwrap()
    }
}

#[tokio::test]
async fn commits_are_rebased_and_the_branch_is_replaced_once() {
    let team = Team::create().await;
    let (task, tree) = (team.fixture.task, team.worktree().await);
    Team::write(tree.path(), "line 6", "line six");
    tree.commit_all(1, "First", &author()).await.unwrap();
    Team::write(tree.path(), "new.txt", "new");
    let head = tree.commit_all(2, "Second", &author()).await.unwrap();
    push_task_branch(&team.mirror, (task, &task_branch(task)), head).await.unwrap();

    let onto = team.push_by_person("main", "theirs.txt", "theirs").await;
    let rebased = team.mirror.rebase_onto(head, onto).await.unwrap();
    let RebaseOutcome::Rebased { commit, changed } = rebased else { panic!("{rebased:?}") };
    assert!(!changed && commit != head);
    let again = team.mirror.rebase_onto(head, onto).await.unwrap();
    assert_eq!(again, RebaseOutcome::Rebased { commit, changed: false }, "the same commit again");
    let unmoved = team.mirror.rebase_onto(commit, onto).await.unwrap();
    assert_eq!(unmoved, RebaseOutcome::Rebased { commit, changed: false });

    for _ in 0..2 {
        tree.move_to(commit).await.unwrap();
        assert_eq!(tree.head().await.unwrap(), commit);
    }
    let text = |name: &str| fs::read_to_string(tree.path().join(name)).unwrap();
    assert_eq!((text("theirs.txt"), text("new.txt")), ("theirs\n".to_owned(), "new\n".to_owned()));
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
    let subjects = ["log", "--format=%s %an", &format!("{onto}..{commit}")];
    assert_eq!(git_in(tree.path(), &subjects).await, "Second Ann\nFirst Ann");

    let branch = task_branch(task);
    let replace = || replace_task_branch(&team.mirror, (task, &branch), head, commit);
    assert_eq!(replace().await.unwrap(), PushOutcome::Pushed);
    assert_eq!(replace().await.unwrap(), PushOutcome::UpToDate, "the answer was lost");
    assert_eq!(team.bare_commit(&branch).await, commit);

    // Another host continues from the rebased work.
    let other = team.fixture.scratch_path("other");
    let mirror = Team::open_mirror(&team.bare.display().to_string(), &other).await;
    let elsewhere = Worktree::open(&mirror, task, team.fixture.base().await).await.unwrap();
    assert_eq!(elsewhere.head().await.unwrap(), commit);
}

#[tokio::test]
async fn a_branch_that_somebody_else_moved_is_adopted_and_not_overwritten() {
    let team = Team::create().await;
    let (task, tree) = (team.fixture.task, team.worktree().await);
    Team::write(tree.path(), "line 6", "line six");
    let head = tree.commit_all(1, "Ours", &author()).await.unwrap();
    push_task_branch(&team.mirror, (task, &task_branch(task)), head).await.unwrap();
    let branch = task_branch(task);
    team.fixture.git(&["fetch", "--quiet", "team", &branch]).await;
    team.fixture.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]).await;
    let theirs = team.push_by_person(&branch, "theirs.txt", "theirs").await;
    Team::write(tree.path(), "line 1", "line one");
    let ours = tree.commit_all(2, "Ours again", &author()).await.unwrap();
    let error = replace_task_branch(&team.mirror, (task, &task_branch(task)), head, ours)
        .await
        .unwrap_err();
    let delivery::Error::Moved { found, .. } = error else { panic!("{error}") };
    assert_eq!((found, team.bare_commit(&branch).await), (Some(theirs), theirs));

    tree.move_to(theirs).await.unwrap();
    assert_eq!(tree.head().await.unwrap(), theirs);
    assert!(tree.path().join("theirs.txt").exists());
    let other = team.fixture.scratch_path("other");
    let mirror = Team::open_mirror(&team.bare.display().to_string(), &other).await;
    let base = team.fixture.base().await;
    let elsewhere = Worktree::open(&mirror, task, base).await.unwrap();
    assert_eq!(elsewhere.head().await.unwrap(), theirs, "other hosts continue from it");
    // Work goes on from there.
    Team::write(tree.path(), "line 1", "line one");
    let next = tree.commit_all(3, "After them", &author()).await.unwrap();
    assert_eq!(
        push_task_branch(&team.mirror, (task, &task_branch(task)), next).await.unwrap(),
        PushOutcome::Pushed
    );
}

#[tokio::test]
async fn a_conflict_is_described_and_changes_nothing() {
    let team = Team::create().await;
    let tree = team.worktree().await;
    Team::write(tree.path(), "line 6", "line six");
    fs::remove_file(tree.path().join("src/old.txt")).unwrap();
    let head = tree.commit_all(1, "Ours", &author()).await.unwrap();
    fs::write(team.fixture.project().join("src/old.txt"), "older\n").unwrap();
    let onto = team.push_by_person("main", "line 6", "line VI").await;
    let outcome = team.mirror.rebase_onto(head, onto).await.unwrap();
    let RebaseOutcome::Conflicts(conflicts) = outcome else { panic!("{outcome:?}") };
    assert_eq!(conflicts.paths, ["lines.txt", "src/old.txt"]);
    for part in ["line six", "line VI", "<<<<<<<", "CONFLICT (modify/delete)"] {
        assert!(conflicts.text.contains(part), "{part} in {}", conflicts.text);
    }
    assert!(!conflicts.text.contains("line 1\n"), "only conflicting lines: {}", conflicts.text);
    assert_eq!(tree.head().await.unwrap(), head);
    let merged = team.mirror.merge_trees(onto, head).await.unwrap();
    assert!(matches!(merged, TreeMerge::Conflicts(_)), "{merged:?}");
}

#[tokio::test]
async fn a_change_in_other_surroundings_is_another_change() {
    let team = Team::create().await;
    let tree = team.worktree().await;
    Team::write(tree.path(), "line 6", "line six");
    let head = tree.commit_all(1, "Ours", &author()).await.unwrap();
    let onto = team.push_by_person("main", "line 3", "line three").await;
    let outcome = team.mirror.rebase_onto(head, onto).await.unwrap();
    assert!(matches!(outcome, RebaseOutcome::Rebased { changed: true, .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_history_with_merges_becomes_one_commit() {
    let team = Team::create().await;
    let tree = team.worktree().await;
    Team::write(tree.path(), "line 6", "line six");
    tree.commit_all(1, "Ours", &author()).await.unwrap();
    let first = team.push_by_person("main", "theirs.txt", "theirs").await;
    tree.merge(first, "Merge main", &author()).await.unwrap();
    let head = tree.head().await.unwrap();
    let onto = team.push_by_person("main", "more.txt", "more").await;
    let outcome = team.mirror.rebase_onto(head, onto).await.unwrap();
    let RebaseOutcome::Rebased { commit, changed } = outcome else { panic!("{outcome:?}") };
    assert!(!changed);
    let parents = git_in(tree.path(), &["rev-parse", &format!("{commit}^@")]).await;
    assert_eq!(parents, onto.to_string());
}

#[tokio::test]
async fn a_branch_advances_to_the_tested_commit_and_never_by_force() {
    let team = Team::create().await;
    let tree = team.worktree().await;
    Team::write(tree.path(), "line 6", "line six");
    let head = tree.commit_all(1, "Ours", &author()).await.unwrap();
    let tip = team.push_by_person("main", "theirs.txt", "theirs").await;
    let mirror = &team.mirror;
    assert_eq!(mirror.ls_remote_ref("refs/heads/main").await.unwrap(), Some(tip));
    assert_eq!(mirror.ls_remote_ref("refs/heads/ain").await.unwrap(), None);

    let merged = mirror.merge_trees(tip, head).await.unwrap();
    let TreeMerge::Merged(merged) = merged else { panic!("{merged:?}") };
    let tested = merge_commit(mirror, &merged, &[tip, head]).await;
    assert_eq!(mirror.tree_of(tested).await.unwrap(), merged);
    assert_eq!(merge_commit(mirror, &merged, &[tip, head]).await, tested, "the same commit again");

    // The queue's own ref is created, replaced and removed, each from an expected value.
    let queue = "refs/heads/tamma/queue/1";
    let pushed = mirror.push_ref(queue, Some(tested), None).await.unwrap();
    assert_eq!(pushed, PushOutcome::Pushed);
    let pushed = mirror.push_ref(queue, Some(tested), None).await.unwrap();
    assert_eq!(pushed, PushOutcome::UpToDate);
    let error = mirror.push_ref(queue, Some(tip), None).await.unwrap_err();
    assert!(matches!(error, delivery::Error::Moved { found: Some(it), .. } if it == tested));

    let advanced = mirror.advance_branch("main", tip, tested).await.unwrap();
    assert_eq!(advanced, PushOutcome::Pushed);
    let advanced = mirror.advance_branch("main", tip, tested).await.unwrap();
    assert_eq!(advanced, PushOutcome::UpToDate, "the answer was lost");
    let main = mirror.ls_remote_ref("refs/heads/main").await.unwrap().unwrap();
    assert_eq!(mirror.tree_of(main).await.unwrap(), merged);
    let error = mirror.advance_branch("main", tested, tip).await.unwrap_err();
    assert!(matches!(error, delivery::Error::Conflict { .. }), "{error}");

    // Somebody was faster.
    team.fixture.git(&["pull", "--quiet", "--ff-only", "team", "main"]).await;
    let moved = team.push_by_person("main", "faster.txt", "faster").await;
    let next = mirror.commit_tree(&merged, &[tested], "Next", &author(), noon()).await.unwrap();
    let error = mirror.advance_branch("main", tested, next).await.unwrap_err();
    assert!(matches!(error, delivery::Error::Moved { found: Some(it), .. } if it == moved));
    assert_eq!(team.bare_commit("main").await, moved);
    let removed = mirror.push_ref(queue, None, Some(tested)).await.unwrap();
    assert_eq!(removed, PushOutcome::Pushed);
    assert_eq!(mirror.ls_remote_ref(queue).await.unwrap(), None);
}

async fn merge_commit(mirror: &Mirror, tree: &str, parents: &[CommitId]) -> CommitId {
    mirror.commit_tree(tree, parents, "Merge", &author(), noon()).await.unwrap()
}
