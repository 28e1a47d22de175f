//! Worktrees: no work is lost or duplicated.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tamma_core::ids::{CommitId, TaskId};
use tamma_core::plan::FileAction;
use tamma_core::task::branch_name;
use tamma_engine::delivery::{self, PushOutcome, push_task_branch};
use tamma_engine::git::Git;
use tamma_engine::mirror::{Error, MirrorMaintenance, maintain_mirrors, task_branch};
use tamma_engine::worktree::{MergeOutcome, Worktree};

use crate::fixture::{Fixture, author, git_in, noon, until};

#[tokio::test]
async fn opening_is_idempotent() {
    let fixture = Fixture::create().await;
    let first = fixture.worktree().await;
    fs::write(first.path().join("src/new.txt"), "not committed\n").unwrap();
    let second = fixture.worktree().await;
    assert_eq!(first.path(), second.path());
    assert_eq!(fs::read_to_string(second.path().join("src/new.txt")).unwrap(), "not committed\n");
    assert_eq!(second.head().await.unwrap(), fixture.base().await);
    let on = git_in(second.path(), &["symbolic-ref", "--short", "HEAD"]).await;
    assert_eq!(on, task_branch(fixture.task));
}

#[tokio::test]
async fn concurrent_opens_return_the_same_worktree() {
    let fixture = Fixture::create().await;
    let (first, second) = tokio::join!(fixture.worktree(), fixture.worktree());
    assert_eq!(first.path(), second.path());
    assert_eq!(git_in(first.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn interrupted_open_is_completed() {
    let fixture = Fixture::create().await;
    let mirror = fixture.mirror().await;
    let base = fixture.base().await;
    let worktrees = fixture.data().join("worktrees");
    let name = fixture.task.to_string();
    let unfinished = worktrees.join("new").join(&name);
    let in_mirror = fixture
        .data()
        .join("mirrors/0192a000-0000-7000-8000-000000000002.git/worktrees")
        .join(&name);

    // Killed after the branch was created.
    let mirror_path = in_mirror.parent().unwrap().parent().unwrap().to_owned();
    let reference = format!("refs/heads/{}", task_branch(fixture.task));
    git_in(&mirror_path, &["update-ref", &reference, &base.to_string()]).await;
    let tree = Worktree::open(&mirror, fixture.task, base).await.unwrap();
    tree.remove(true).await.unwrap();

    // Killed during the checkout: git leaves its directory locked, with half of the files.
    let add = unfinished.display().to_string();
    git_in(&mirror_path, &["worktree", "add", "--quiet", &add, &task_branch(fixture.task)]).await;
    fs::write(in_mirror.join("locked"), "initializing").unwrap();
    fs::remove_file(unfinished.join("README.md")).unwrap();
    let tree = Worktree::open(&mirror, fixture.task, base).await.unwrap();
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
    tree.remove(true).await.unwrap();

    // Killed after the rename, before the links were repaired, while a git of an earlier run was
    // writing.
    git_in(&mirror_path, &["worktree", "add", "--quiet", &add, &task_branch(fixture.task)]).await;
    fs::rename(&unfinished, worktrees.join(&name)).unwrap();
    fs::write(in_mirror.join("index.lock"), "").unwrap();
    let tree = Worktree::open(&mirror, fixture.task, base).await.unwrap();
    fs::write(tree.path().join("new.txt"), "new\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    assert_ne!(commit, base);
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn unknown_base_is_reported() {
    let fixture = Fixture::create().await;
    let nowhere = "1234567890123456789012345678901234567890".parse().unwrap();
    let error = Worktree::open(&fixture.mirror().await, fixture.task, nowhere).await.unwrap_err();
    let Error::Unknown { revision, .. } = error else { panic!("{error}") };
    assert_eq!(revision, nowhere.to_string());
}

#[tokio::test]
async fn base_that_is_newer_than_the_mirror_is_fetched() {
    let fixture = Fixture::create().await;
    let mirror = fixture.mirror().await;
    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "second"]).await;
    let tree = Worktree::open(&mirror, fixture.task, fixture.base().await).await.unwrap();
    assert_eq!(tree.head().await.unwrap(), fixture.base().await);
    assert_eq!(mirror.resolve("main").await.unwrap(), fixture.base().await);
}

#[tokio::test]
async fn job_has_one_commit() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let base = fixture.base().await;
    assert_eq!(tree.commit_all(1, "Nothing", &author()).await.unwrap(), base);

    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    assert_eq!(tree.commit_all(1, "Add a file", &author()).await.unwrap(), commit);
    let body = git_in(tree.path(), &["log", "-1", "--format=%an|%cn|%B"]).await;
    assert_eq!(body, format!("Ann|Tamma|Add a file\n\nTamma-Run: {}/1", fixture.task));

    // The same job with other files replaces its commit.
    fs::write(tree.path().join("new.txt"), "two\n").unwrap();
    tree.commit_all(1, "Add a file", &author()).await.unwrap();
    let count = ["rev-list", "--count", "HEAD"];
    assert_eq!(git_in(tree.path(), &count).await, "2");

    fs::remove_file(tree.path().join("new.txt")).unwrap();
    tree.commit_all(2, "Remove it", &author()).await.unwrap();
    assert_eq!(git_in(tree.path(), &count).await, "3");
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn interrupted_commit_is_not_repeated() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    // As after a kill between moving the branch and writing the index.
    git_in(tree.path(), &["read-tree", &fixture.base().await.to_string()]).await;
    assert_ne!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
    assert_eq!(tree.commit_all(1, "Add a file", &author()).await.unwrap(), commit);
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn work_is_committed_whatever_the_agent_did_to_git() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let path = tree.path();
    // The agent left the branch, committed there, hid a file from git and set a hook that refuses.
    git_in(path, &["checkout", "--quiet", "--detach"]).await;
    fs::write(path.join("a.txt"), "a\n").unwrap();
    git_in(path, &["add", "--all"]).await;
    git_in(path, &["commit", "--quiet", "-m", "mine"]).await;
    git_in(path, &["update-index", "--skip-worktree", "README.md"]).await;
    fs::write(path.join("README.md"), "changed\n").unwrap();
    let hooks = git_in(path, &["rev-parse", "--path-format=absolute", "--git-path", "hooks"]).await;
    fs::create_dir_all(&hooks).unwrap();
    fs::write(format!("{hooks}/reference-transaction"), "#!/bin/sh\nexit 1\n").unwrap();
    let run = tokio::process::Command::new("chmod")
        .args(["+x", &format!("{hooks}/reference-transaction")])
        .status();
    assert!(run.await.unwrap().success());

    let commit = tree.commit_all(1, "All of it", &author()).await.unwrap();
    assert_eq!(tree.head().await.unwrap(), commit);
    let touched = tree.diff_stat(fixture.base().await).await.unwrap();
    let expected = [("README.md", FileAction::Modify), ("a.txt", FileAction::Create)];
    assert_eq!(touched, expected.map(|(path, action)| (path.to_owned(), action)).into());
    let show = ["show", &format!("{commit}:README.md")];
    assert_eq!(git_in(path, &show).await, "changed");
}

#[tokio::test]
async fn files_of_nested_repositories_are_committed() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let inner = tree.path().join("vendor/inner thing");
    fs::create_dir_all(inner.join("deeper")).unwrap();
    for (folder, commit) in [(inner.clone(), true), (inner.join("deeper"), false)] {
        git_in(&folder, &["init", "--quiet"]).await;
        fs::write(folder.join("file.txt"), "inside\n").unwrap();
        if commit {
            fs::write(folder.join(".gitignore"), "ignored.txt\n").unwrap();
            fs::write(folder.join("ignored.txt"), "noise\n").unwrap();
            git_in(&folder, &["add", "--all", "--", "file.txt", ".gitignore"]).await;
            git_in(&folder, &["commit", "--quiet", "-m", "inner"]).await;
        }
    }
    let paths = |prefix: &str| {
        let names = ["", "deeper/"].map(|folder| format!("{prefix}{folder}file.txt"));
        names.into_iter().chain([format!("{prefix}.gitignore")])
    };
    let expected: BTreeMap<_, _> =
        paths("vendor/inner thing/").map(|path| (path, FileAction::Create)).collect();
    assert_eq!(tree.diff_stat(fixture.base().await).await.unwrap(), expected);
    let commit = tree.commit_all(1, "With an inner one", &author()).await.unwrap();
    assert_eq!(tree.commit_all(2, "Again", &author()).await.unwrap(), commit);
    assert_eq!(tree.diff_stat(fixture.base().await).await.unwrap(), expected);
    assert_eq!(tree.remove(true).await.unwrap().commit, None, "everything is committed");
}

#[tokio::test]
async fn diff_includes_uncommitted_files() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("committed.txt"), "x\n").unwrap();
    tree.commit_all(1, "One", &author()).await.unwrap();
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::rename(tree.path().join("src/old.txt"), tree.path().join("src/new name é.txt")).unwrap();
    let touched = tree.diff_stat(fixture.base().await).await.unwrap();
    let expected = BTreeMap::from(
        [
            ("README.md", FileAction::Modify),
            ("committed.txt", FileAction::Create),
            ("src/new name é.txt", FileAction::Create),
            ("src/old.txt", FileAction::Delete),
        ]
        .map(|(path, action)| (path.to_owned(), action)),
    );
    assert_eq!(touched, expected);
}

#[tokio::test]
async fn work_is_saved_before_removal() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    assert_eq!(tree.checkpoint().await.unwrap().commit, None);
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let first = tree.checkpoint().await.unwrap().commit.expect("uncommitted work");
    assert_eq!(
        tree.checkpoint().await.unwrap().commit,
        Some(first),
        "unchanged work is saved once"
    );
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "?? draft.txt");

    fs::write(tree.path().join("draft.txt"), "two\n").unwrap();
    let path = tree.path().to_owned();
    let second = tree.remove(true).await.unwrap().commit.expect("uncommitted work");
    assert!(!path.exists());

    // Saved work is restored, the earlier checkpoint is reachable, and the task can continue.
    let tree = fixture.worktree().await;
    let saved = format!("refs/tamma/checkpoints/{}", fixture.task);
    assert_eq!(git_in(tree.path(), &["rev-parse", &saved]).await, second.to_string());
    let show = |commit| format!("{commit}:draft.txt");
    assert_eq!(git_in(tree.path(), &["show", &show(second)]).await, "two");
    git_in(tree.path(), &["merge-base", "--is-ancestor", &first.to_string(), &saved]).await;
    assert_eq!(tree.head().await.unwrap(), fixture.base().await);
}

#[tokio::test]
async fn interrupted_removal_is_completed() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let removed = fixture.data().join("worktrees/old").join(fixture.task.to_string());
    fs::create_dir_all(removed.parent().unwrap()).unwrap();
    fs::rename(tree.path(), &removed).unwrap();
    assert_eq!(tree.remove(true).await.unwrap().commit, None);
    assert!(!removed.exists());
    let tree = fixture.worktree().await;
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn worktree_without_its_git_link_is_saved() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::remove_file(tree.path().join(".git")).unwrap();
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let saved = tree.remove(true).await.unwrap().commit.expect("uncommitted work");
    let tree = fixture.worktree().await;
    assert_eq!(git_in(tree.path(), &["show", &format!("{saved}:draft.txt")]).await, "one");
}

#[tokio::test]
async fn branch_is_delivered_once() {
    let fixture = Fixture::create().await;
    let mirror = fixture.mirror().await;
    let tree = fixture.worktree().await;
    let commit = commit_file(&tree).await;
    let branch = branch_name(fixture.task, "Add a file");
    let deliver = || push_task_branch(&mirror, (fixture.task, &branch), commit);
    assert_eq!(deliver().await.unwrap(), PushOutcome::Pushed);
    assert_eq!(deliver().await.unwrap(), PushOutcome::UpToDate);
    let remote_commit = fixture.git(&["rev-parse", &branch]).await;
    assert_eq!(remote_commit, commit.to_string());
    assert_eq!(
        fixture.git(&["status", "--porcelain"]).await,
        "",
        "the user's checkout is untouched"
    );

    // Later work of the same task continues from there.
    fs::write(tree.path().join("new.txt"), "two\n").unwrap();
    let later = tree.commit_all(2, "Change it", &author()).await.unwrap();
    let pushed = push_task_branch(&mirror, (fixture.task, &branch), later).await.unwrap();
    assert_eq!(pushed, PushOutcome::Pushed);
}

#[tokio::test]
async fn branch_with_other_commits_is_not_overwritten() {
    let fixture = Fixture::create().await;
    let mirror = fixture.mirror().await;
    let tree = fixture.worktree().await;
    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "theirs"]).await;
    fixture.git(&["branch", &task_branch(fixture.task)]).await;
    let commit = commit_file(&tree).await;
    let error = push_task_branch(&mirror, (fixture.task, &task_branch(fixture.task)), commit)
        .await
        .unwrap_err();
    assert!(matches!(error, delivery::Error::Conflict { .. }), "{error}");
}

/// Adds a file to a worktree and returns its commit.
async fn commit_file(tree: &Worktree) -> CommitId {
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    tree.commit_all(1, "Add a file", &author()).await.unwrap()
}

fn write_hook(fixture: &Fixture, name: &str, commands: &str) {
    let path = fixture.project().join(".git/hooks").join(name);
    fs::write(&path, format!("#!/bin/sh\n{commands}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn output_of_a_hook_is_returned() {
    let fixture = Fixture::create().await;
    let mirror = fixture.mirror().await;
    let tree = fixture.worktree().await;
    write_hook(&fixture, "pre-receive", "echo 'the tide is out' >&2\nexit 1\n");
    let commit = commit_file(&tree).await;
    let error = push_task_branch(&mirror, (fixture.task, &task_branch(fixture.task)), commit)
        .await
        .unwrap_err();
    let delivery::Error::Rejected { text, .. } = error else { panic!("{error}") };
    assert!(text.contains("the tide is out"), "{text}");
}

#[tokio::test]
async fn push_that_meets_another_push_is_retried() {
    let fixture = Fixture::create().await;
    let mirror = fixture.mirror().await;
    let tree = fixture.worktree().await;
    let commit = commit_file(&tree).await;
    let branch = task_branch(fixture.task);
    let folder = tempfile::tempdir().unwrap();
    let (locked, go_on) = (folder.path().join("locked"), folder.path().join("go-on"));
    // The first push, such as that of a killed worker, holds the lock of the ref.
    let hook = format!(
        "[ \"$1\" = prepared ] && mkdir '{}' 2> /dev/null || exit 0\n\
         while [ ! -e '{}' ]; do sleep 0.01; done\n",
        locked.display(),
        go_on.display(),
    );
    write_hook(&fixture, "reference-transaction", &hook);
    let push = || push_task_branch(&mirror, (fixture.task, &branch), commit);
    let second = async {
        until(async || locked.exists()).await;
        let error = push().await.unwrap_err();
        fs::write(&go_on, "").unwrap();
        error
    };
    let (first, error) = tokio::join!(push(), second);
    assert_eq!(first.unwrap(), PushOutcome::Pushed);
    assert!(matches!(error, delivery::Error::Busy { .. }), "{error}");
    assert_eq!(push().await.unwrap(), PushOutcome::UpToDate);
}

#[tokio::test]
async fn branch_below_an_existing_one_is_a_rejection() {
    let fixture = Fixture::create().await;
    let mirror = fixture.mirror().await;
    let tree = fixture.worktree().await;
    let commit = commit_file(&tree).await;
    let branch = task_branch(fixture.task);
    fixture.git(&["branch", branch.split('/').next().unwrap()]).await;
    let error = push_task_branch(&mirror, (fixture.task, &branch), commit).await.unwrap_err();
    assert!(matches!(error, delivery::Error::Rejected { .. }), "{error}");
}

#[tokio::test]
async fn added_lines_are_found_despite_gitattributes() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let base = fixture.base().await;
    let write = |name: &str, text: &str| fs::write(tree.path().join(name), text).unwrap();
    // Git would only report that these files differ.
    write(".gitattributes", "*.txt binary\n*.md -diff\n");
    write("README.md", "changed\n+++ b/other\n");
    write("a b \"é\".txt", "one\ntwo\0\n");
    fs::remove_file(tree.path().join("src/old.txt")).unwrap();
    let commit = tree.commit_all(1, "One", &author()).await.unwrap();
    let touched = tree.touched_files(base, commit).await.unwrap();
    assert_eq!(touched.actions, tree.changed_files(base, commit).await.unwrap());
    let added = tree.added_lines(&touched).await.unwrap();
    let lines = |name: &str| added[name].iter().map(|(at, it)| (*at, &**it)).collect::<Vec<_>>();
    assert_eq!(added.len(), 3, "{added:?}");
    assert_eq!(lines("README.md"), [(1, "changed"), (2, "+++ b/other")]);
    assert_eq!(lines("a b \"é\".txt"), [(1, "one"), (2, "two\0")]);
    assert_eq!(
        tree.file_text(commit, "README.md").await.unwrap().as_deref(),
        Some("changed\n+++ b/other")
    );
    for nothing in ["src/old.txt", "src", "../README.md", ""] {
        assert_eq!(tree.file_text(commit, nothing).await.unwrap(), None, "{nothing}");
    }
    let diff = tree.diff(base, commit).await.unwrap();
    assert!(diff.text.contains("\n+changed\n"), "people and validators see it: {diff:?}");
    assert!(tree.is_descendant(base, commit).await.unwrap());
    assert!(!tree.is_descendant(commit, base).await.unwrap());
}

#[tokio::test]
async fn snapshot_of_a_run_moves_nothing() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let base = fixture.base().await;
    assert_eq!(tree.snapshot_commit().await.unwrap(), base, "there is nothing to commit");
    fs::write(tree.path().join("src/new.txt"), "new\n").unwrap();
    fs::remove_file(tree.path().join("README.md")).unwrap();
    let commit = tree.snapshot_commit().await.unwrap();
    let changed = tree.changed_files(base, commit).await.unwrap();
    let expected = [("README.md", FileAction::Delete), ("src/new.txt", FileAction::Create)];
    assert_eq!(changed, expected.map(|(path, action)| (path.to_owned(), action)).into());
    assert_eq!(tree.head().await.unwrap(), base);
    let status = git_in(tree.path(), &["status", "--porcelain"]).await;
    assert!(status.contains("?? src/new.txt"), "the agent's index is untouched: {status}");
}

#[tokio::test]
async fn refused_changes_are_restored_and_others_stay() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let base = fixture.base().await;
    let at = |path: &str| tree.path().join(path);
    fs::write(at("README.md"), "refused\n").unwrap();
    fs::write(at("kept.txt"), "kept\n").unwrap();
    symlink("/etc", at("outside")).unwrap();
    // A folder in place of a refused file, and a name that is not UTF-8.
    fs::remove_file(at("src/old.txt")).unwrap();
    fs::create_dir(at("src/old.txt")).unwrap();
    fs::write(at("src/old.txt/x"), "x\n").unwrap();
    let odd = tree.path().join(OsStr::from_bytes(b"odd\xff"));
    fs::write(&odd, "odd\n").unwrap();
    let refused = ["README.md", "outside", "src/old.txt", "odd\u{fffd}"].map(str::to_owned);
    tree.restore(&refused.into()).await.unwrap();
    assert_eq!(fs::read_to_string(at("README.md")).unwrap(), "a project\n");
    assert_eq!(fs::read_to_string(at("src/old.txt")).unwrap(), "old\n");
    assert!(at("outside").symlink_metadata().is_err() && odd.symlink_metadata().is_err());
    let changed = tree.diff_stat(base).await.unwrap();
    assert_eq!(changed, BTreeMap::from([("kept.txt".to_owned(), FileAction::Create)]));
}

#[tokio::test]
async fn a_worktree_opens_whatever_an_agent_put_in_place_of_its_link() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    for _ in 0..2 {
        fs::remove_file(tree.path().join(".git")).unwrap();
        fs::create_dir_all(tree.path().join(".git/x")).unwrap();
        fs::create_dir_all(tree.path().join(".git-replaced/x")).unwrap();
        let tree = fixture.worktree().await;
        assert_eq!(tree.head().await.unwrap(), fixture.base().await);
    }
}

#[tokio::test]
async fn another_tasks_commit_is_merged_once_and_a_conflict_changes_nothing() {
    let fixture = Fixture::create().await;
    let (story, mirror, base) =
        (fixture.worktree().await, fixture.mirror().await, fixture.base().await);
    let commit = async |task: &str, text: &str| {
        let tree = Worktree::open(&mirror, TaskId(task.parse().unwrap()), base).await.unwrap();
        fs::write(tree.path().join("a.txt"), text).unwrap();
        fs::remove_file(tree.path().join("src/old.txt")).unwrap();
        tree.commit_all(1, "work", &author()).await.unwrap()
    };
    let first = commit("0192a000-0000-7000-8000-00000000000a", "one\n").await;
    let second = commit("0192a000-0000-7000-8000-00000000000b", "two\n").await;
    let merged = story.merge(first, "Merge first", &author()).await.unwrap();
    let head = story.head().await.unwrap();
    assert_eq!(merged, MergeOutcome::Merged(head));
    let is_first = || fs::read_to_string(story.path().join("a.txt")).unwrap() == "one\n";
    assert!(is_first() && !story.path().join("src/old.txt").exists());
    assert_eq!(git_in(story.path(), &["status", "--porcelain"]).await, "");
    // Killed before the files were written.
    fs::remove_file(story.path().join("a.txt")).unwrap();
    assert_eq!(story.merge(first, "Merge first", &author()).await.unwrap(), merged);
    assert!(is_first());
    let refused = MergeOutcome::Refused("conflict in a.txt".to_owned());
    assert_eq!(story.merge(second, "Merge second", &author()).await.unwrap(), refused);
    assert_eq!(story.head().await.unwrap(), head);
    assert!(is_first());
    let elsewhere = fixture.host("other").await;
    assert_eq!(elsewhere.head().await.unwrap(), head, "another host continues from the merge");
}

#[tokio::test]
async fn mirrors_are_packed_except_those_in_use() {
    let fixture = Fixture::create().await;
    let git = Git::find("git").await.unwrap();
    let nothing = maintain_mirrors(&git, &fixture.data()).await.unwrap();
    assert_eq!(nothing, MirrorMaintenance::default());
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("src/new.txt"), "committed\n").unwrap();
    let commit = tree.commit_all(1, "work", &author()).await.unwrap();
    let mirror = fixture.data().join("mirrors/0192a000-0000-7000-8000-000000000002.git");
    let lock = fs::File::options().append(true).open(mirror.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let skipped = MirrorMaintenance { in_use: 1, ..MirrorMaintenance::default() };
    assert_eq!(maintain_mirrors(&git, &fixture.data()).await.unwrap(), skipped);
    drop(lock);
    let done = MirrorMaintenance { done: 1, ..MirrorMaintenance::default() };
    assert_eq!(maintain_mirrors(&git, &fixture.data()).await.unwrap(), done);
    let loose = git_in(&mirror, &["count-objects"]).await;
    assert!(loose.starts_with("0 objects"), "{loose}");
    assert_eq!(tree.head().await.unwrap(), commit);
}

#[tokio::test]
async fn conflicts_of_a_rebase_are_left_to_the_agent() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("README.md"), "ours\n").unwrap();
    let head = tree.commit_all(1, "work", &author()).await.unwrap();
    fs::write(fixture.project().join("README.md"), "theirs\n").unwrap();
    fixture.git(&["commit", "--quiet", "--all", "-m", "theirs"]).await;
    let onto = fixture.base().await;
    let rebase = || async { tree.rebase_with_conflicts(head, onto, &author(), noon()).await };
    let commit = rebase().await.unwrap();
    assert_eq!(rebase().await.unwrap(), commit);
    assert_eq!(tree.head().await.unwrap(), commit);
    assert!(tree.is_descendant(onto, commit).await.unwrap());
    let text = fs::read_to_string(tree.path().join("README.md")).unwrap();
    assert!(text.contains("<<<<<<<") && text.contains("ours") && text.contains("theirs"), "{text}");
    assert_eq!(tree.mirror().default_branch().await.unwrap(), "main");
}
