//! Work is never on one machine only: another host goes on, and nobody overwrites a newer one's.

use std::fs;

use tamma_core::ids::CommitId;
use tamma_engine::delivery::branch_to_source;
use tamma_engine::git::Git;
use tamma_engine::mirror::{Error, branch};
use tamma_engine::worktree::{Newest, Worktree, forget};

use crate::stage::{Stage, author, git_in};

fn read(tree: &Worktree, file: &str) -> Option<String> {
    fs::read_to_string(tree.path().join(file)).ok()
}

/// What the project's repository has of a task beside its branches.
async fn hidden(stage: &Stage) -> Vec<String> {
    let listed = stage.git(&["for-each-ref", "--format=%(refname)", "refs/tamma"]).await;
    listed.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_host_with_an_empty_disk_goes_on_with_what_was_committed_and_what_was_not() {
    let stage = Stage::set().await;
    let tree = stage.host("one").await;
    fs::write(tree.path().join("done.txt"), "done\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    fs::write(tree.path().join("src/draft.txt"), "half a line").unwrap();
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::remove_file(tree.path().join("src/old.txt")).unwrap();
    assert!(tree.salvage().await.unwrap().pushed);
    // After that, nothing of the first host is there any more.
    fs::remove_dir_all(stage.aside("one")).unwrap();

    let tree = stage.host("two").await;
    assert_eq!(tree.head().await.unwrap(), commit);
    assert_eq!(read(&tree, "src/draft.txt").as_deref(), Some("half a line"));
    assert_eq!(read(&tree, "README.md").as_deref(), Some("changed\n"));
    assert_eq!(read(&tree, "src/old.txt"), None);
    let on = git_in(tree.path(), &["symbolic-ref", "--short", "HEAD"]).await;
    assert_eq!(on, branch(stage.task));
    let status = git_in(tree.path(), &["status", "--porcelain"]).await;
    let mut status: Vec<_> = status.lines().map(str::trim).collect();
    status.sort_unstable();
    assert_eq!(status, ["?? src/draft.txt", "D src/old.txt", "M README.md"]);
    let branches = stage.git(&["branch", "--format=%(refname:short)"]).await;
    assert_eq!(branches, "main", "what is not delivered is no branch");
}

#[tokio::test]
async fn what_was_committed_is_not_brought_back_by_an_older_salvage() {
    let stage = Stage::set().await;
    let tree = stage.host("one").await;
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    tree.salvage().await.unwrap();
    fs::rename(tree.path().join("draft.txt"), tree.path().join("final.txt")).unwrap();
    tree.commit_all(1, "Done", &author()).await.unwrap();

    let tree = stage.host("two").await;
    assert_eq!(read(&tree, "draft.txt"), None);
    assert_eq!(read(&tree, "final.txt").as_deref(), Some("one\n"));
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn what_an_agent_took_back_stays_away() {
    let stage = Stage::set().await;
    let tree = stage.host("one").await;
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let draft = tree.salvage().await.unwrap().commit.expect("there is work");
    fs::remove_file(tree.path().join("draft.txt")).unwrap();
    assert_eq!(tree.salvage().await.unwrap().commit, None);

    let tree = stage.host("two").await;
    assert_eq!(read(&tree, "draft.txt"), None);
    let saved = format!("refs/tamma/salvage/{}", stage.task);
    git_in(tree.path(), &["merge-base", "--is-ancestor", &draft.to_string(), &saved]).await;
}

#[tokio::test]
async fn a_repository_that_cannot_be_reached_gets_it_the_next_time() {
    let stage = Stage::set().await;
    let tree = stage.host("one").await;
    let away = stage.aside("away");
    fs::rename(stage.project(), &away).unwrap();
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    fs::write(tree.path().join("draft.txt"), "two\n").unwrap();
    let saved = tree.salvage().await.unwrap();
    assert!(saved.commit.is_some() && !saved.pushed && saved.why.is_some(), "{saved:?}");

    fs::rename(&away, stage.project()).unwrap();
    assert_eq!(hidden(&stage).await, Vec::<String>::new());
    let again = tree.salvage().await.unwrap();
    assert_eq!((again.commit, again.pushed), (saved.commit, true));
    let tree = stage.host("two").await;
    assert_eq!(tree.head().await.unwrap(), commit);
    assert_eq!(read(&tree, "draft.txt").as_deref(), Some("two\n"));
}

#[tokio::test]
async fn an_older_host_does_not_overwrite_a_newer_one_and_loses_nothing_either() {
    let stage = Stage::set().await;
    let one = stage.host("one").await;
    fs::write(one.path().join("draft.txt"), "one\n").unwrap();
    assert!(one.salvage().await.unwrap().pushed);
    let two = stage.host("two").await;
    fs::write(two.path().join("draft.txt"), "one\ntwo\n").unwrap();
    assert!(two.salvage().await.unwrap().pushed);
    fs::write(two.path().join("more.txt"), "two\n").unwrap();
    let commit = two.commit_all(1, "Two", &author()).await.unwrap();

    // The first was only slow, and goes on writing.
    fs::write(one.path().join("draft.txt"), "one\nlate\n").unwrap();
    let late = one.salvage().await.unwrap();
    assert!(!late.pushed, "{late:?}");
    let at = stage.git(&["rev-parse", &format!("refs/tamma/work/{}", stage.task)]).await;
    assert_eq!(at, commit.to_string());

    // When it is asked to work on the task again, it has what the other did, and keeps its own aside.
    let one = stage.host("one").await;
    assert_eq!(one.head().await.unwrap(), commit);
    assert_eq!(read(&one, "draft.txt").as_deref(), Some("one\ntwo\n"));
    assert_eq!(git_in(one.path(), &["status", "--porcelain"]).await, "");
    let aside: Vec<_> =
        hidden(&stage).await.into_iter().filter(|name| name.contains("/aside/")).collect();
    let [aside] = aside.as_slice() else { panic!("{aside:?}") };
    assert_eq!(stage.git(&["show", &format!("{aside}:draft.txt")]).await, "one\nlate");
    assert!(one.salvage().await.unwrap().pushed);
}

#[tokio::test]
async fn a_host_that_died_after_its_push_knows_its_own_work() {
    let stage = Stage::set().await;
    let tree = stage.host("one").await;
    let mirror = stage.aside("one/mirrors/0192a000-0000-7000-8000-000000000002.git");
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    tree.salvage().await.unwrap();
    fs::remove_dir_all(mirror.join("tamma-seen")).unwrap();
    fs::write(tree.path().join("draft.txt"), "two\n").unwrap();

    let tree = stage.host("one").await;
    assert_eq!(read(&tree, "draft.txt").as_deref(), Some("two\n"));
    assert!(tree.salvage().await.unwrap().pushed);
    assert!(hidden(&stage).await.iter().all(|name| !name.contains("aside")));
}

#[tokio::test]
async fn a_commit_is_judged_and_delivered_on_any_host() {
    let stage = Stage::set().await;
    let tree = stage.host("one").await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    let git = Git::find("git").await.unwrap();
    let mirror = stage.mirror_on(&stage.aside("two"), git.clone()).await;
    let base = stage.base().await;
    let tree = Worktree::open_at(&mirror, stage.task, base, Newest::At(commit)).await.unwrap();
    assert_eq!(read(&tree, "new.txt").as_deref(), Some("one\n"));
    let third = stage.mirror_on(&stage.aside("three"), git).await;
    branch_to_source(&third, stage.task, commit).await.unwrap();
    assert_eq!(stage.git(&["rev-parse", &branch(stage.task)]).await, commit.to_string());

    // Delivered, it is in a branch, and what was kept beside it can go.
    assert_eq!(hidden(&stage).await.len(), 1);
    assert_eq!(forget(&third, stage.task, commit).await.unwrap(), None);
    assert_eq!(hidden(&stage).await, Vec::<String>::new());
    assert_eq!(forget(&third, stage.task, commit).await.unwrap(), None);

    let nowhere: CommitId = "1234567890123456789012345678901234567890".parse().unwrap();
    let error = Worktree::open_at(&third, stage.task, base, Newest::At(nowhere)).await.unwrap_err();
    assert!(matches!(error, Error::Elsewhere { .. }), "{error}");
}

#[tokio::test]
async fn what_is_not_delivered_is_not_forgotten() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    tree.commit_all(1, "Done", &author()).await.unwrap();
    let why = forget(&stage.mirror().await, stage.task, stage.base().await).await.unwrap();
    assert!(why.is_some());
    assert_eq!(hidden(&stage).await.len(), 1);
}

/// Git is the largest cost of a job, so the calls are counted. In the order of a task's way; before
/// work was pushed and hosts could change, these were 4, 1, 11, 1, 2 and 2.
#[tokio::test]
async fn a_task_costs_few_calls_of_git() {
    let stage = Stage::set().await;
    let git = Git::find("git").await.unwrap();
    let mirror = stage.mirror_on(&stage.data(), git.clone()).await;
    let base = stage.base().await;
    let mut counted = Vec::new();
    let mut before = git.calls();
    let mut count = |what: &'static str| {
        counted.push((what, git.calls() - before));
        before = git.calls();
    };
    let open = |newest| Worktree::open_at(&mirror, stage.task, base, newest);
    open(Newest::Nothing).await.unwrap();
    count("make the worktree");
    let tree = open(Newest::Nothing).await.unwrap();
    count("open it");
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    count("commit and push");
    let tree = open(Newest::At(commit)).await.unwrap();
    count("open it to judge");
    branch_to_source(&mirror, stage.task, commit).await.unwrap();
    count("deliver");
    open(Newest::Unknown).await.unwrap();
    count("open it after who knows what");
    tree.salvage().await.unwrap();
    count("save nothing");
    fs::write(tree.path().join("new.txt"), "two\n").unwrap();
    tree.salvage().await.unwrap();
    count("save and push");
    let most = [4, 1, 8, 1, 1, 2, 5, 8];
    let few = counted.iter().zip(most).all(|((_, calls), most)| *calls <= most);
    assert!(few, "{counted:?}");
    println!("{counted:?}");
}
