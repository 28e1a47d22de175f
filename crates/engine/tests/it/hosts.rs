//! Work on several hosts: another host continues, and newer work is never overwritten.

use std::fs;

use tamma_core::ids::CommitId;
use tamma_engine::delivery::push_task_branch;
use tamma_engine::git::Git;
use tamma_engine::mirror::{Error, task_branch};
use tamma_engine::worktree::{CheckpointProgress, LatestWork, Worktree, remove_remote_refs};

use crate::fixture::{Fixture, author, git_in};

fn read(tree: &Worktree, file: &str) -> Option<String> {
    fs::read_to_string(tree.path().join(file)).ok()
}

/// Hidden refs of a task in the project's repository.
async fn hidden(fixture: &Fixture) -> Vec<String> {
    let listed = fixture.git(&["for-each-ref", "--format=%(refname)", "refs/tamma"]).await;
    listed.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn new_host_continues_with_committed_and_uncommitted_work() {
    let fixture = Fixture::create().await;
    let tree = fixture.host("one").await;
    fs::write(tree.path().join("done.txt"), "done\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    fs::write(tree.path().join("src/draft.txt"), "half a line").unwrap();
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::remove_file(tree.path().join("src/old.txt")).unwrap();
    assert!(tree.checkpoint().await.unwrap().pushed);
    // The data of the first host is gone.
    fs::remove_dir_all(fixture.scratch_path("one")).unwrap();

    let tree = fixture.host("two").await;
    assert_eq!(tree.head().await.unwrap(), commit);
    assert_eq!(read(&tree, "src/draft.txt").as_deref(), Some("half a line"));
    assert_eq!(read(&tree, "README.md").as_deref(), Some("changed\n"));
    assert_eq!(read(&tree, "src/old.txt"), None);
    let on = git_in(tree.path(), &["symbolic-ref", "--short", "HEAD"]).await;
    assert_eq!(on, task_branch(fixture.task));
    let status = git_in(tree.path(), &["status", "--porcelain"]).await;
    let mut status: Vec<_> = status.lines().map(str::trim).collect();
    status.sort_unstable();
    assert_eq!(status, ["?? src/draft.txt", "D src/old.txt", "M README.md"]);
    let branches = fixture.git(&["branch", "--format=%(refname:short)"]).await;
    assert_eq!(branches, "main", "undelivered work is not a branch");
}

#[tokio::test]
async fn older_checkpoint_does_not_override_a_commit() {
    let fixture = Fixture::create().await;
    let tree = fixture.host("one").await;
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    tree.checkpoint().await.unwrap();
    fs::rename(tree.path().join("draft.txt"), tree.path().join("final.txt")).unwrap();
    tree.commit_all(1, "Done", &author()).await.unwrap();

    let tree = fixture.host("two").await;
    assert_eq!(read(&tree, "draft.txt"), None);
    assert_eq!(read(&tree, "final.txt").as_deref(), Some("one\n"));
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn files_that_an_agent_deleted_do_not_reappear() {
    let fixture = Fixture::create().await;
    let tree = fixture.host("one").await;
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let draft = tree.checkpoint().await.unwrap().commit.expect("uncommitted work");
    fs::remove_file(tree.path().join("draft.txt")).unwrap();
    assert_eq!(tree.checkpoint().await.unwrap().commit, None);

    let tree = fixture.host("two").await;
    assert_eq!(read(&tree, "draft.txt"), None);
    let saved = format!("refs/tamma/checkpoints/{}", fixture.task);
    git_in(tree.path(), &["merge-base", "--is-ancestor", &draft.to_string(), &saved]).await;
}

#[tokio::test]
async fn failed_push_is_retried_with_the_next_checkpoint() {
    let fixture = Fixture::create().await;
    let tree = fixture.host("one").await;
    let away = fixture.scratch_path("away");
    fs::rename(fixture.project(), &away).unwrap();
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    fs::write(tree.path().join("draft.txt"), "two\n").unwrap();
    let saved = tree.checkpoint().await.unwrap();
    assert!(saved.commit.is_some() && !saved.pushed && saved.push_error.is_some(), "{saved:?}");

    fs::rename(&away, fixture.project()).unwrap();
    assert_eq!(hidden(&fixture).await, Vec::<String>::new());
    let again = tree.checkpoint().await.unwrap();
    assert_eq!((again.commit, again.pushed), (saved.commit, true));
    let tree = fixture.host("two").await;
    assert_eq!(tree.head().await.unwrap(), commit);
    assert_eq!(read(&tree, "draft.txt").as_deref(), Some("two\n"));
}

#[tokio::test]
async fn outdated_host_overwrites_nothing_and_loses_nothing() {
    let fixture = Fixture::create().await;
    let one = fixture.host("one").await;
    fs::write(one.path().join("draft.txt"), "one\n").unwrap();
    assert!(one.checkpoint().await.unwrap().pushed);
    let two = fixture.host("two").await;
    fs::write(two.path().join("draft.txt"), "one\ntwo\n").unwrap();
    assert!(two.checkpoint().await.unwrap().pushed);
    fs::write(two.path().join("more.txt"), "two\n").unwrap();
    let commit = two.commit_all(1, "Two", &author()).await.unwrap();

    // The first host was only slow, and continues to write.
    fs::write(one.path().join("draft.txt"), "one\nlate\n").unwrap();
    let late = one.checkpoint().await.unwrap();
    assert!(!late.pushed, "{late:?}");
    let at = fixture.git(&["rev-parse", &format!("refs/tamma/work/{}", fixture.task)]).await;
    assert_eq!(at, commit.to_string());

    // Later, it has the other host's work and sets its own aside.
    let one = fixture.host("one").await;
    assert_eq!(one.head().await.unwrap(), commit);
    assert_eq!(read(&one, "draft.txt").as_deref(), Some("one\ntwo\n"));
    assert_eq!(git_in(one.path(), &["status", "--porcelain"]).await, "");
    let aside: Vec<_> =
        hidden(&fixture).await.into_iter().filter(|name| name.contains("/aside/")).collect();
    let [aside] = aside.as_slice() else { panic!("{aside:?}") };
    assert_eq!(fixture.git(&["show", &format!("{aside}:draft.txt")]).await, "one\nlate");
    assert!(one.checkpoint().await.unwrap().pushed);
}

#[tokio::test]
async fn host_that_died_after_a_push_recognises_its_work() {
    let fixture = Fixture::create().await;
    let tree = fixture.host("one").await;
    let mirror = fixture.scratch_path("one/mirrors/0192a000-0000-7000-8000-000000000002.git");
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    tree.checkpoint().await.unwrap();
    fs::remove_dir_all(mirror.join("tamma-seen")).unwrap();
    fs::write(tree.path().join("draft.txt"), "two\n").unwrap();

    let tree = fixture.host("one").await;
    assert_eq!(read(&tree, "draft.txt").as_deref(), Some("two\n"));
    assert!(tree.checkpoint().await.unwrap().pushed);
    assert!(hidden(&fixture).await.iter().all(|name| !name.contains("aside")));
}

#[tokio::test]
async fn commit_is_reviewed_and_delivered_on_any_host() {
    let fixture = Fixture::create().await;
    let tree = fixture.host("one").await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    let git = Git::find("git").await.unwrap();
    let mirror = fixture.mirror_on(&fixture.scratch_path("two"), git.clone()).await;
    let base = fixture.base().await;
    let tree =
        Worktree::open_at(&mirror, fixture.task, base, LatestWork::Commit(commit)).await.unwrap();
    assert_eq!(read(&tree, "new.txt").as_deref(), Some("one\n"));
    let third = fixture.mirror_on(&fixture.scratch_path("three"), git).await;
    push_task_branch(&third, (fixture.task, &task_branch(fixture.task)), commit).await.unwrap();
    assert_eq!(fixture.git(&["rev-parse", &task_branch(fixture.task)]).await, commit.to_string());

    // Once delivered, it is in a branch, and the hidden refs can be removed.
    assert_eq!(hidden(&fixture).await.len(), 1);
    assert_eq!(remove_remote_refs(&third, fixture.task, commit).await.unwrap(), None);
    assert_eq!(hidden(&fixture).await, Vec::<String>::new());
    assert_eq!(remove_remote_refs(&third, fixture.task, commit).await.unwrap(), None);

    let nowhere: CommitId = "1234567890123456789012345678901234567890".parse().unwrap();
    let error = Worktree::open_at(&third, fixture.task, base, LatestWork::Commit(nowhere))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Elsewhere { .. }), "{error}");
}

#[tokio::test]
async fn a_commit_counts_although_an_outdated_host_was_faster() {
    let fixture = Fixture::create().await;
    // Two hosts believe that they own the task, and both finish the job.
    let (outdated, owner) = (fixture.host("one").await, fixture.host("two").await);
    fs::write(outdated.path().join("new.txt"), "outdated\n").unwrap();
    fs::write(owner.path().join("new.txt"), "owner\n").unwrap();
    outdated.commit_all(1, "Done", &author()).await.unwrap();
    let commit = owner.commit_all(1, "Done", &author()).await.unwrap();
    // A third one continues from the commit of the owner, and its work replaces that of the other.
    let git = Git::find("git").await.unwrap();
    let third = fixture.mirror_on(&fixture.scratch_path("three"), git.clone()).await;
    let base = fixture.base().await;
    let tree =
        Worktree::open_at(&third, fixture.task, base, LatestWork::Commit(commit)).await.unwrap();
    assert_eq!(read(&tree, "new.txt").as_deref(), Some("owner\n"));
    fs::write(tree.path().join("more.txt"), "more\n").unwrap();
    let next = tree.commit_all(2, "More", &author()).await.unwrap();
    let fourth = fixture.mirror_on(&fixture.scratch_path("four"), git).await;
    let tree =
        Worktree::open_at(&fourth, fixture.task, base, LatestWork::Commit(next)).await.unwrap();
    assert_eq!(read(&tree, "new.txt").as_deref(), Some("owner\n"));
    assert_eq!(read(&tree, "more.txt").as_deref(), Some("more\n"));
    // So does the outdated one.
    let tree = fixture.host("one").await;
    assert_eq!(read(&tree, "new.txt").as_deref(), Some("owner\n"));
}

#[tokio::test]
async fn refs_of_undelivered_work_are_kept() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    tree.commit_all(1, "Done", &author()).await.unwrap();
    let reason = remove_remote_refs(&fixture.mirror().await, fixture.task, fixture.base().await)
        .await
        .unwrap();
    assert!(reason.is_some());
    assert_eq!(hidden(&fixture).await.len(), 1);
}

/// Counts git commands, because git is the largest cost of a job. In the order of a task; before
/// work was pushed and hosts could change, these were 4, 1, 11, 1, 2 and 2.
#[tokio::test]
async fn task_needs_few_git_commands() {
    let fixture = Fixture::create().await;
    let git = Git::find("git").await.unwrap();
    let mirror = fixture.mirror_on(&fixture.data(), git.clone()).await;
    let base = fixture.base().await;
    let mut counted = Vec::new();
    let mut before = git.calls();
    let mut count = |what: &'static str| {
        counted.push((what, git.calls() - before));
        before = git.calls();
    };
    let open = |newest| Worktree::open_at(&mirror, fixture.task, base, newest);
    open(LatestWork::NoWork).await.unwrap();
    count("create the worktree");
    let tree = open(LatestWork::NoWork).await.unwrap();
    count("open it");
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    count("commit and push");
    let tree = open(LatestWork::Commit(commit)).await.unwrap();
    count("open for review");
    push_task_branch(&mirror, (fixture.task, &task_branch(fixture.task)), commit).await.unwrap();
    count("deliver");
    open(LatestWork::Unknown).await.unwrap();
    count("open with unknown latest work");
    tree.checkpoint().await.unwrap();
    count("save nothing");
    fs::write(tree.path().join("new.txt"), "two\n").unwrap();
    tree.checkpoint().await.unwrap();
    count("save and push");
    // Of an agent that only waits.
    let mut progress = CheckpointProgress::default();
    for _ in 0..2 {
        assert!(tree.next_checkpoint(&mut progress).await.unwrap().is_some());
    }
    count("save nothing twice, and remember the files");
    assert_eq!(tree.next_checkpoint(&mut progress).await.unwrap(), None);
    count("find no change");
    fs::write(tree.path().join("new.txt"), "two\n").unwrap();
    let saved = tree.next_checkpoint(&mut progress).await.unwrap().unwrap();
    assert!(saved.pushed && saved.commit.is_some(), "the same text, written again, is looked at");
    fs::write(tree.path().join("newer.txt"), "three\n").unwrap();
    let later = tree.next_checkpoint(&mut progress).await.unwrap().unwrap();
    assert_ne!(later.commit, saved.commit);
    let most = [4, 1, 8, 1, 1, 2, 5, 8, 11, 1];
    let few = counted.iter().zip(most).all(|((_, calls), most)| *calls <= most);
    assert!(few, "{counted:?}");
    println!("{counted:?}");
}
