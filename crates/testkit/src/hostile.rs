//! Kit of hostile repositories, for tests of the engine and for experiments with the whole product.
//!
//! A repository, its agent and its gates may fail or be refused. They must not run a command outside
//! the sandbox. Every command of theirs creates the file `$LOOT`.

/// Shell functions for the scripts of a [`HostileRepository`].
pub const SHELL_FUNCTIONS: &str = r#"
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

/// Hostile repository: shell scripts that run in its folder, in the worktree, and in the checkouts of
/// the gates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostileRepository {
    /// Name, with underscores.
    pub name: &'static str,
    /// Script of its author, in a repository with one commit.
    pub repository: &'static str,
    /// Script of the agent.
    pub agent: &'static str,
    /// Script of a gate.
    pub gate: &'static str,
}

const PLAIN: HostileRepository =
    HostileRepository { name: "", repository: "", agent: "", gate: "" };

/// All repositories of the kit.
pub const HOSTILE_REPOSITORIES: &[HostileRepository] = &[
    HostileRepository {
        name: "nested_repository_with_commands_in_its_settings",
        agent: "nested n; trap_config n; echo '* filter=x diff=x merge=x' > n/.gitattributes; echo y > n/y",
        gate: "nested n; trap_config n; echo '* filter=x diff=x' > n/.gitattributes",
        ..PLAIN
    },
    HostileRepository {
        name: "nested_repository_with_hooks",
        agent: "nested n; hooks n/.git/hooks; hooks hostile-hooks; hooks hooks",
        gate: "nested n; hooks n/.git/hooks",
        ..PLAIN
    },
    HostileRepository {
        name: "nested_repository_with_a_promisor_remote",
        agent: "promisor n; echo y > n/y",
        gate: "promisor n",
        ..PLAIN
    },
    HostileRepository {
        name: "nested_repository_that_includes_settings",
        agent: "nested n; trap_config n; mv n/.git/config n/settings
                git config -f n/.git/config include.path ../settings
                git config -f n/.git/config core.repositoryFormatVersion 0",
        ..PLAIN
    },
    HostileRepository {
        name: "nested_bare_repository",
        agent: "git init -q --bare b; trap_config b; git -C b config core.worktree ..
                cp -r b/. . ; mkdir c; cp -r b/. c",
        ..PLAIN
    },
    HostileRepository {
        name: "nested_repositories_in_each_other",
        agent: "d=n; for i in 1 2 3 4 5 6 7 8; do nested $d; trap_config $d; d=$d/n; done",
        ..PLAIN
    },
    HostileRepository {
        name: "git_link_replaced_by_a_folder",
        agent: "rm -rf .git; git init -q .; trap_config .; hooks .git/hooks",
        ..PLAIN
    },
    HostileRepository {
        name: "git_link_to_another_repository",
        agent: "nested evil; trap_config evil; rm -rf .git; echo gitdir: $PWD/evil/.git > .git",
        gate: "nested evil; trap_config evil; rm -rf .git; echo gitdir: $PWD/evil/.git > .git",
        ..PLAIN
    },
    HostileRepository {
        name: "git_link_replaced_by_a_link",
        agent: "nested evil; trap_config evil; rm -rf .git; ln -s evil/.git .git",
        gate: "nested evil; trap_config evil; rm -rf .git; ln -s evil/.git .git",
        ..PLAIN
    },
    HostileRepository {
        name: "submodule_with_commands_in_its_settings",
        repository: "gitlink sub; git commit -qm sub; git rev-parse HEAD~1 > ../sub-commit",
        agent: "nested sub; trap_config sub; echo '* filter=x' > sub/.gitattributes
                git --git-dir=.git ls-tree HEAD sub 2>/dev/null; sleep 0; echo longer >> sub/inner.txt",
        gate: "nested sub; trap_config sub; echo '* filter=x' > sub/.gitattributes; echo l >> sub/inner.txt",
    },
    HostileRepository {
        name: "submodule_with_a_promisor_remote",
        repository: "gitlink sub; git commit -qm sub",
        agent: "promisor sub; echo y > sub/y",
        gate: "promisor sub",
    },
    HostileRepository {
        name: "submodule_in_place_of_instructions",
        repository: "gitlink AGENTS.md; gitlink .claude; git commit -qm sub",
        agent: "nested AGENTS.md; trap_config AGENTS.md; nested CLAUDE.md; trap_config CLAUDE.md",
        gate: "nested AGENTS.md; trap_config AGENTS.md; nested CLAUDE.md; trap_config CLAUDE.md",
    },
    HostileRepository {
        name: "submodules_with_commands_in_gitmodules",
        repository: "printf '[submodule \"a\"]\\n path=a\\n url=ext::touch %s\\n update=!touch %s\\n' $LOOT $LOOT > .gitmodules
                     git add .; gitlink a; git commit -qm modules",
        agent: "printf '[submodule \"b\"]\\n path=b\\n url=ext::touch %s\\n update=!touch %s\\n' $LOOT $LOOT >> .gitmodules",
        ..PLAIN
    },
    HostileRepository {
        name: "submodules_with_options_in_gitmodules",
        repository: "printf '[submodule \"../../x\"]\\n path=-u\\n url=--upload-pack=touch %s\\n' $LOOT > .gitmodules
                     git add .; gitlink ./-u 2>/dev/null; git commit -qm modules",
        ..PLAIN
    },
    HostileRepository {
        name: "submodule_with_a_link_to_another_git_directory",
        repository: "gitlink sub; git commit -qm sub",
        agent: "nested evil; trap_config evil; mkdir -p sub; echo gitdir: ../evil/.git > sub/.git",
        gate: "nested evil; trap_config evil; mkdir -p sub; echo gitdir: ../evil/.git > sub/.git",
    },
    HostileRepository {
        name: "settings_of_the_repository",
        // Hooks and `core.alternateRefsCommand` are missing here: at a push, those of the project's own
        // repository run, as they are the operator's.
        repository: "trap_config .; echo '* filter=x diff=x merge=x' > .gitattributes
                     cp .git/config settings; git -c core.fsmonitor=false -c filter.x.clean=cat \
                       -c filter.x.process= -c core.hooksPath=/dev/null add .
                     git -c core.fsmonitor=false -c filter.x.clean=cat -c filter.x.process= \
                       -c core.hooksPath=/dev/null commit -qm settings
                     git config --unset core.alternateRefsCommand",
        agent: "echo changed > README.md",
        ..PLAIN
    },
    HostileRepository {
        name: "attributes_that_hide_changes",
        agent: "printf '* -diff\\n*.txt binary\\n*.md filter=x diff=x\\n' > .gitattributes; echo hidden > a.txt; echo h > README.md",
        ..PLAIN
    },
    HostileRepository {
        name: "attributes_that_convert_files",
        repository: "printf '*.txt working-tree-encoding=UTF-16\\n*.md ident text eol=crlf\\n' > .gitattributes; git add .gitattributes; git commit -qm a",
        agent: "printf '\\377\\376a\\000' > src/old.txt; echo '$Id: x$' > README.md; echo '*.x working-tree-encoding=nothing' >> .gitattributes; echo x > a.x",
        ..PLAIN
    },
    HostileRepository {
        name: "attributes_with_many_macros",
        agent: "i=0; while [ $i -lt 20000 ]; do echo \"[attr]m$i m$((i+1)) -diff filter=x\"; i=$((i+1)); done > .gitattributes; echo '* m0' >> .gitattributes; echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "attributes_as_a_link",
        agent: "ln -s ../../../../../../dev/zero .gitattributes; ln -s /dev/zero .gitignore; echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "large_file_storage",
        repository: "printf '*.bin filter=lfs diff=lfs merge=lfs -text\\n' > .gitattributes
                     printf '[lfs]\\n url=https://127.0.0.1:1/\\n[lfs \"customtransfer.x\"]\\n path=touch\\n args=%s\\n' $LOOT > .lfsconfig
                     printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 3\\n' 0 > a.bin
                     git add .; git commit -qm lfs",
        agent: "head -c 1000 /dev/urandom > b.bin",
        ..PLAIN
    },
    HostileRepository {
        name: "links_out_of_the_worktree",
        repository: "ln -s / root; ln -s /etc/passwd passwd; ln -s loop loop; ln -s ../../../.. up; git add .; git commit -qm links",
        agent: "ln -s /dev/zero zero; ln -s /proc/self/environ env; echo x > new",
        ..PLAIN
    },
    HostileRepository {
        name: "folder_replaced_by_a_link",
        agent: "rm -rf src; ln -s /etc src; rm README.md; mkdir README.md; echo x > README.md/x",
        ..PLAIN
    },
    HostileRepository {
        name: "names_of_tamma_itself",
        agent: "mkdir .git-replaced .git-tamma-new; echo x > .git-replaced/x; rm -rf .git; git init -q .; ln -s /etc/passwd tamma-index",
        gate: "mkdir .git-replaced; rm -rf .git; mkdir .git; ln -s / .git/HEAD",
        ..PLAIN
    },
    HostileRepository {
        name: "special_files",
        agent: "rm src/old.txt; mkfifo src/old.txt fifo; mkfifo .gitignore; echo x > x",
        gate: "mkfifo fifo; rm README.md; mkfifo README.md",
        ..PLAIN
    },
    HostileRepository {
        name: "unreadable_files",
        agent: "echo x > a; chmod 0 a; mkdir b; echo x > b/c; chmod 0 b; chmod 555 src",
        gate: "mkdir b; echo x > b/c; chmod 0 b; chmod 555 src",
        ..PLAIN
    },
    HostileRepository {
        name: "huge_file",
        agent: "truncate -s 12G huge; echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "huge_tracked_file",
        repository: "truncate -s 60M big; git add .; git commit -qm big",
        agent: "truncate -s 1G big; echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "many_huge_files",
        agent: "for i in 1 2 3 4 5 6; do truncate -s 90M h$i; done; echo x >> h1",
        ..PLAIN
    },
    HostileRepository {
        name: "huge_text",
        agent: "yes 'a line of text' | head -c 60000000 > text.txt",
        ..PLAIN
    },
    HostileRepository {
        name: "huge_line",
        agent: "head -c 60000000 /dev/zero | tr '\\0' a > line.txt",
        ..PLAIN
    },
    HostileRepository {
        name: "deep_tree",
        agent: "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo x > x 2>/dev/null",
        gate: "i=0; while [ $i -lt 300 ]; do mkdir e && cd e || break; i=$((i+1)); done; echo x > x 2>/dev/null",
        ..PLAIN
    },
    HostileRepository {
        name: "many_files",
        agent: "mkdir m; cd m; seq 1 51000 | xargs touch",
        ..PLAIN
    },
    HostileRepository {
        name: "odd_names",
        repository: "touch -- '-x' '--upload-pack=touch x' ':(exclude)README.md' 'a\tb' 'tail ' '*' '[a]' 'a\\b' '\"q\"' \"$(printf 'new\\nline')\" \"$(printf 'bad\\377')\"; git add .; git commit -qm odd",
        agent: "for f in '-x' '--upload-pack=touch x' ':(exclude)README.md' '*' \"$(printf 'bad\\377')\" \"$(printf 'more\\376')\" \"$(printf 'esc\\033[31m')\"; do echo y > \"./$f\"; done; head -c 250 /dev/zero | tr '\\0' n | xargs touch",
        ..PLAIN
    },
    HostileRepository {
        name: "names_that_differ_in_case_only",
        repository: "echo a > Readme.MD; echo b > README.MD; mkdir SRC; echo c > SRC/OLD.txt; git add .; git commit -qm case",
        agent: "mkdir .GIT; echo x > .GIT/config; mkdir -p 'x/.Git/hooks'; hooks x/.Git/hooks; echo x > readme.md",
        ..PLAIN
    },
    HostileRepository {
        name: "names_of_other_systems",
        agent: "mkdir git~1 2>/dev/null; echo x > git~1/config; echo x > aux; echo x > 'a:b'; echo x > 'con.txt'; mkdir \"$(printf '.g\\342\\200\\214it')\"; echo x > \"$(printf '.g\\342\\200\\214it')/config\"; echo x > '.git '; echo x > '.git.'; echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "replaced_objects_and_grafts",
        repository: "git commit -q --allow-empty -m second; git replace HEAD HEAD~1; mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts; git update-ref refs/heads/replace/x HEAD",
        agent: "echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "alternate_objects",
        repository: "mkdir -p ../elsewhere; cp -r .git/objects/. ../elsewhere/; echo ../../../elsewhere > .git/objects/info/alternates; find .git/objects -type f -path '*/??/*' -delete",
        agent: "echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "branches_with_odd_names",
        repository: "h=$(git rev-parse HEAD); for b in 'x/--upload-pack=touch' '@{x' 'tamma/other' 'HEAD'; do mkdir -p \".git/refs/heads/$(dirname -- \"$b\")\"; echo $h > \".git/refs/heads/$b\"; done",
        agent: "echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "tag_and_branch_of_the_same_name",
        repository: "git tag main; git tag -f refs/heads/main 2>/dev/null; git commit -q --allow-empty -m second; git symbolic-ref refs/heads/link refs/heads/main",
        agent: "echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "everything_is_ignored",
        agent: "echo '*' > .gitignore; echo '!.gitignore' >> .gitignore; echo hidden > a; nested n; trap_config n",
        ..PLAIN
    },
    HostileRepository {
        name: "objects_that_checkouts_refuse",
        repository: "b=$(echo x | git hash-object -w --stdin); t=$(printf '100644 blob %s\\tconfig\\n' $b | git mktree)
                     r=$(printf '040000 tree %s\\t.git\\n100644 blob %s\\ta\\n' $t $b | git mktree)
                     git update-ref refs/heads/main $(git commit-tree -m dotgit -p HEAD $r)",
        agent: "echo x > x",
        ..PLAIN
    },
    HostileRepository {
        name: "link_in_place_of_gitmodules",
        repository: "b=$(printf /etc/passwd | git hash-object -w --stdin)
                     r=$(printf '120000 blob %s\\t.gitmodules\\n100644 blob %s\\ta\\n' $b $b | git mktree)
                     git update-ref refs/heads/main $(git commit-tree -m link -p HEAD $r)",
        agent: "echo x > x",
        ..PLAIN
    },
];
