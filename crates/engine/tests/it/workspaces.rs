//! What is on the disk, and that nothing is removed which is nowhere else.

use std::fs;

use tamma_engine::delivery::branch_to_source;
use tamma_engine::git::Git;
use tamma_engine::workspaces::{Kind, Workspace, Workspaces};

use crate::stage::{Stage, author};

async fn listed(stage: &Stage, kind: Kind) -> Workspace {
    let all = workspaces(stage).await.list().await.unwrap();
    all.into_iter().find(|it| it.kind == kind).expect("it is there")
}

async fn workspaces(stage: &Stage) -> Workspaces {
    Workspaces::new(Git::find("git").await.unwrap(), &stage.data())
}

#[tokio::test]
async fn what_is_saved_elsewhere_is_told_and_only_that_is_removed() {
    let stage = Stage::set().await;
    assert_eq!(workspaces(&stage).await.list().await.unwrap(), Vec::new());
    let tree = stage.worktree().await;
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let found = listed(&stage, Kind::Worktree).await;
    assert_eq!(found.task, Some(stage.task));
    assert_eq!(found.unsaved.as_deref(), Some("it has work that is not saved"));
    assert!(found.bytes > 0);

    // Where it cannot be pushed, it stays.
    let away = stage.aside("away");
    fs::rename(stage.project(), &away).unwrap();
    assert!(workspaces(&stage).await.remove(&found, false).await.unwrap().is_some());
    assert!(tree.path().exists());
    fs::rename(&away, stage.project()).unwrap();
    let saved = "it has work that is saved on this machine only";
    assert_eq!(listed(&stage, Kind::Worktree).await.unsaved.as_deref(), Some(saved));
    assert!(listed(&stage, Kind::Mirror).await.unsaved.is_some(), "it has a worktree");

    assert_eq!(workspaces(&stage).await.remove(&found, false).await.unwrap(), None);
    assert!(!tree.path().exists());
    let mirror = listed(&stage, Kind::Mirror).await;
    assert_eq!(mirror.unsaved, None);
    assert_eq!(workspaces(&stage).await.remove(&mirror, false).await.unwrap(), None);
    assert_eq!(workspaces(&stage).await.list().await.unwrap(), Vec::new());

    // All of it comes back.
    let tree = stage.worktree().await;
    assert_eq!(fs::read_to_string(tree.path().join("draft.txt")).unwrap(), "one\n");
}

#[tokio::test]
async fn what_a_delivered_task_has_left_is_rubbish_and_a_commit_that_is_not_pushed_is_not() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let away = stage.aside("away");
    fs::rename(stage.project(), &away).unwrap();
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    fs::rename(&away, stage.project()).unwrap();
    let why = format!("{commit} is not pushed");
    assert_eq!(listed(&stage, Kind::Worktree).await.unsaved, Some(why));
    branch_to_source(&stage.mirror().await, stage.task, commit).await.unwrap();
    assert_eq!(listed(&stage, Kind::Worktree).await.unsaved, None);
    fs::write(tree.path().join("built.o"), "rubbish\n").unwrap();
    let found = listed(&stage, Kind::Worktree).await;
    assert_eq!(workspaces(&stage).await.remove(&found, true).await.unwrap(), None);
    let hidden = stage.git(&["for-each-ref", "refs/tamma"]).await;
    assert_eq!(hidden, "", "it is not pushed either");
    assert_eq!(listed(&stage, Kind::Mirror).await.unsaved, None);
}
