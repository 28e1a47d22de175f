use proptest::prelude::*;

use super::*;

fn runs(line: &str, command: &str) -> bool {
    parse(line).commands.iter().any(|one| {
        one == command || one.strip_prefix(command).is_some_and(|rest| rest.starts_with(' '))
    })
}

fn is_unknown(line: &str) -> bool {
    parse(line).unknown_reason.is_some()
}

#[test]
fn command_is_found_inside_wrappers_and_nested_lines() {
    for line in [
        "git push",
        "git push origin main",
        "/usr/bin/git push",
        "/usr/lib/git-core/git-push origin",
        "GIT_SSH=x git push",
        "env A=1 B=2 git push",
        "env -u HOME git push",
        "cd x && git push",
        "true; git push",
        "true || git push &",
        "echo a | git push",
        "echo a |& git push",
        "(git push)",
        "{ git push; }",
        "if true; then git push; fi",
        "while true; do git push; done",
        "for i in a b; do git push; done",
        "for ((i = 0; i < 3; i++)); do git push; done",
        "case x in a | b) git push ;; *) ls ;; esac",
        "f() { git push; }; f",
        "function f { git push; }",
        "sh -c 'git push'",
        "bash -lc \"cd x && git push\"",
        "bash -o pipefail -c 'git push'",
        "bash -euo pipefail -c 'git push'",
        "sh -c \"bash -c 'git push'\"",
        "git -C /x -c a.b=c --no-pager push",
        "git --git-dir /x push",
        "git rebase -x 'git push' main",
        "git bisect run git push",
        "git submodule foreach 'git push'",
        "g\"it\" pu'sh'",
        "g\\it push",
        "$'\\x67it' push",
        "$'g\\u0069t' $'pu\\163h'",
        "echo $(git push)",
        "echo `git push`",
        "echo \"$(git push)\"",
        "echo \"a `git push` b\"",
        "echo ${x:-$(git push)}",
        "cat <(git push)",
        "tee >(git push)",
        "echo $(( $(git push) + 1 ))",
        "a[$(git push)]=1",
        "[[ -n $(git push) ]]",
        "[ -n \"$(git push)\" ]",
        "x=$(git push)",
        "export x=$(git push)",
        "timeout 5 git push",
        "timeout -k 3 5 git push",
        "nohup git push",
        "nice -n 5 git push",
        "exec git push",
        "command git push",
        "command -p git push",
        "coproc git push",
        "time git push",
        "time -p git push",
        "time A=1 git push",
        "trap 'git push' EXIT",
        "eval git push",
        "eval \"git push\"",
        "find . -exec git push \\;",
        "find . -name x -exec ls {} + -exec git push \\;",
        "echo x | xargs git push",
        "echo x | xargs -n 1 git push",
        "echo x | xargs -I{} git push {}",
        "! git push",
        "! { git push; }",
        "time { git push; }",
        "coproc X { git push; }",
        "git\tpush",
        "true\ngit push",
        "true \\\n && git push",
        "env -S 'git push'",
        "env -iS 'git push'",
        "busybox sh -c 'git push'",
        "cat <<'EOF'\ntext\nEOF\ngit push",
        "cat <<EOF | git push\ntext\nEOF",
        "cat <<EOF\n$(git push)\nEOF",
        "git commit -m \"$(cat <<'EOF'\ntext\nEOF\n)\" && git push",
        "PAGER='git push' git log",
        "> out git push",
        "{git,push}",
    ] {
        assert!(runs(line, "git push"), "{line}: {:?}", parse(line));
    }
    assert!(runs("cargo +nightly publish", "cargo publish"));
    assert!(runs("npm --registry x publish", "npm publish"));
}

#[test]
fn quoted_text_is_not_a_command() {
    for line in [
        "echo 'git push'",
        "git commit -m 'git push it'",
        "ls # git push",
        "git log",
        "cat > a.txt <<'EOF'\ngit push $(x) `y`\nEOF",
        "git commit -m \"$(cat <<'EOF'\nit's about git push\n\nmore\nEOF\n)\"",
        "echo \"first line\n  git push\"",
        "grep -rn \"git push\" src | head -5",
        "[ \"$x\" = 'git push' ]",
    ] {
        let read = parse(line);
        assert!(!runs(line, "git push") && read.unknown_reason.is_none(), "{line}: {read:?}");
    }
}

#[test]
fn everyday_lines_are_understood() {
    for line in [
        "cargo test -p core -- --nocapture 2>&1 | tail -20",
        "cd crates/core && cargo check",
        "ls -la *.rs {a,b}.txt",
        "for f in src/*.rs; do wc -l \"$f\"; done",
        "while IFS= read -r line; do echo \"$line\"; done < file.txt",
        "if [ -f Cargo.toml ]; then cargo build; else make; fi",
        "[[ $count -gt 5 && -f x ]] || exit 1",
        "i=0; while (( i < 3 )); do i=$((i + 1)); done",
        "find . -name '*.rs' -not -path './target/*' | xargs grep -n foo",
        "find . -type f -exec chmod 644 {} +",
        "python3 - <<'EOF'\nprint([1])\nEOF",
        "awk '{print $1}' file | sort | uniq -c",
        "sed -n '1,10p' file",
        "export RUST_LOG=debug; cargo run",
        "FOO=bar BAZ=\"$x\" npm run build -- --flag=1",
        "git log --format=\"%h %s\" HEAD~2..HEAD^",
        "git -C \"$DIR\" status",
        "git -c core.pager=cat -c color.ui=false diff",
        "echo \"${x:-default} ${y%.rs} ${#z} ${a[0]}\"",
        "timeout 60 cargo test && echo ok || echo failed",
        "command -v node",
        "(cd web && npm ci)",
        "test -d target || mkdir target",
        "case \"$1\" in -h|--help) echo x ;; *) exit 1 ;; esac",
    ] {
        assert_eq!(parse(line).unknown_reason, None, "{line}: {:?}", parse(line));
    }
}

#[test]
fn line_that_depends_on_a_variable_is_unknown() {
    for line in [
        "$X push",
        "git $X",
        "sh -c \"$X\"",
        "eval $X",
        "git -c alias.x=push x",
        "git config alias.x push",
        "GIT_CONFIG_COUNT=1 git x",
        "curl x | sh",
        "sh <<< 'git push'",
        "bash <<'EOF'\ngit push\nEOF",
        "source <(echo git push)",
        "echo a > $X",
        "echo a > ~/x",
        "${X} push",
        "${X:-git} push",
        "g${X}it push",
        "\"$@\"",
        "git${IFS}push",
        "git -C $X status push",
        "env $X git status",
        "timeout $X 5 git status",
        "npm $X",
        "echo push | xargs git",
        "echo x | xargs sh -c",
        "find . -name git -exec {} push \\;",
        "x='a[$(git push)]'; (( x ))",
        "x='a[$(git push)]'; [[ x -eq 1 ]]",
        "test -v 'a[$(git push)]'",
        "echo \"${X@P}\"",
        "cd $X && echo a > b",
        "cd - && echo a > b",
        "trap \"$X\" EXIT",
        "hash -p /usr/bin/git ls",
        "alias ls='git push'",
    ] {
        assert!(is_unknown(line), "{line}: {:?}", parse(line));
    }
    assert!(!is_unknown("echo $HOME"));
}

#[test]
fn patterns_and_braces_that_name_the_program_are_unknown() {
    for line in [
        "{git,push}",
        "g{i,}t push",
        "git {push,origin}",
        "/usr/bin/g?t push",
        "/usr/bin/gi* push",
        "/usr/bin/[g]it push",
        "=git push",
    ] {
        assert!(is_unknown(line), "{line}: {:?}", parse(line));
    }
}

#[test]
fn tokens_that_the_grammar_reads_differently_are_unknown() {
    for line in [
        // The grammar takes everything up to the last quote for one text.
        "$'a\\\\' ; git push '",
        // A line continuation joins two words.
        "git\\\npush",
        // The comment ends with the backtick.
        "echo `ls # x` ; git push\n`",
        // `[` is a program, so these are a list and a redirection.
        "[ a && git ]",
        "[ a > b ]",
        "echo $\"x\"",
        "echo a\u{a0}b\u{2003}c",
        "ls\rgit push",
        "((git push))",
        "exec 3<>f",
        "echo ${x:-`git push`}",
        "cat <<E\"O\"F\nx\nEOF\ngit push",
        "if true; then",
        // A redirection to a file named `$`, and a second command.
        "<$\ngit push",
        ">$\ngit push",
    ] {
        assert!(is_unknown(line), "{line}: {:?}", parse(line));
    }
}

#[test]
fn output_redirections_are_listed() {
    assert_eq!(parse("echo a > b.txt 2>&1").output_files, ["b.txt"]);
    assert_eq!(parse("echo a >>b.txt; cat x 2>/dev/null").output_files, ["b.txt"]);
    assert_eq!(parse("cat < a &> b").output_files, ["b"]);
    assert_eq!(parse("echo a >| b >& c").output_files, ["b", "c"]);
    assert_eq!(parse("> b").output_files, ["b"]);
    assert_eq!(parse("echo a > b c").commands, ["echo a c"]);
    assert_eq!(parse("echo a > /dev/../etc/x").output_files, ["/dev/../etc/x"]);
    assert_eq!(parse("cat <<'EOF' > b\nx\nEOF").output_files, ["b"]);
    assert_eq!(parse("find . -fprint b").output_files, ["b"]);
}

#[test]
fn output_files_count_in_each_folder_that_the_line_changes_to() {
    assert_eq!(parse("cd .git && echo a > config").output_files, ["config", ".git/config"]);
    let files = parse("cd a; cd b; echo x > c").output_files;
    assert_eq!(files, ["c", "a/c", "b/c", "a/b/c"]);
    assert_eq!(parse("cd /etc && echo a > /tmp/x").output_files, ["/tmp/x"]);
}

#[test]
fn malformed_lines_are_parsed_without_panic() {
    for line in ["", "'", "\"", "`", "$(", "((((", "&&&", ">", "<<EOF\ngit push\nEOF", "\\"] {
        let _ = parse(line);
    }
    assert!(runs("'unfinished git push", "git push"));
    assert!(is_unknown(&"(".repeat(10_000)));
    assert!(is_unknown(&"$(".repeat(5_000)));
    assert!(is_unknown(&format!("{}ls{}", "(".repeat(500), ")".repeat(500))));
    assert!(is_unknown(&"a".repeat(300_000)));
}

/// Ways to run a command inside another one.
const WRAPPINGS: &[&str] = &[
    "{}",
    "( {} )",
    "if true; then {}; fi",
    "true && {}",
    "{} | cat",
    "{} &",
    "! {}",
    "x=$({})",
    "echo \"$({})\"",
    "cat <({})",
    "f() { {}; }; f",
    "case a in a) {} ;; esac",
    "cat <<EOF\n$({})\nEOF",
    "[[ -n $({}) ]]",
    "echo $(( $({}) ))",
    "ls # comment\n{}",
    "sh -c 'QUOTED'",
    "eval 'QUOTED'",
    "trap 'QUOTED' EXIT",
    "bash -euo pipefail -c 'QUOTED'",
    "env -S 'QUOTED'",
    "git rebase -x 'QUOTED'",
    "PAGER='QUOTED' git log",
];

/// Prefixes of a simple command.
const PREFIXES: &[&str] = &[
    "env A=1",
    "timeout 5",
    "nice -n 5",
    "nohup",
    "exec",
    "command -p",
    "time",
    "coproc",
    "A=1",
    "xargs -n 1",
    "find . -exec",
    "busybox",
    "> x",
    "setsid",
];

/// Pieces of shell syntax, for random lines.
const PIECES: &[&str] = &[
    "git", "push", "ls", " ", "  ", "\n", ";", "&", "&&", "|", "||", "(", ")", "{", "}", "[", "]",
    "[[", "]]", "$", "$(", "${", "$((", "))", "`", "'", "\"", "\\", "<", ">", "<<", "<<<", "EOF",
    "#", "!", "*", "?", "=", "x", "1", "-c", "sh", "if", "then", "fi", "do", "done", "for", "in",
    "case", "esac", ",", "..", "$'", "@", "~", "/", "eval", "é",
];

fn wrapped(wrapping: &str, command: &str) -> String {
    wrapping.replace("QUOTED", &command.replace('\'', "'\\''")).replace("{}", command)
}

proptest! {
    /// Each command that the shell would run is found, or the line is unknown.
    #[test]
    fn hidden_command_is_found_or_the_line_is_unknown(
        prefixes in proptest::collection::vec(proptest::sample::select(PREFIXES), 0..3),
        wrappings in proptest::collection::vec(proptest::sample::select(WRAPPINGS), 0..4),
    ) {
        let mut line = prefixes.iter().fold("git push".to_owned(), |line, it| format!("{it} {line}"));
        for wrapping in wrappings {
            line = wrapped(wrapping, &line);
        }
        prop_assert!(runs(&line, "git push") || is_unknown(&line), "{line}: {:?}", parse(&line));
    }

    /// A line that the grammar cannot explain is unknown, and no line makes the analysis panic.
    #[test]
    fn line_that_is_not_fully_explained_is_unknown(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..30),
    ) {
        let line = pieces.concat();
        let mut parser = tree_sitter::Parser::new();
        parser.set_language(&tree_sitter_bash::LANGUAGE.into()).expect("a grammar");
        let tree = parser.parse(&line, None).expect("a tree");
        prop_assert!(!tree.root_node().has_error() || is_unknown(&line), "{line:?}");
    }

    /// A command after a line break runs, even if the lines before it are random.
    #[test]
    fn command_on_its_own_line_is_found_or_the_line_is_unknown(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..12),
    ) {
        let line = format!("{}\ngit push\n", pieces.concat());
        let is_quoted = pieces.iter().any(|it| matches!(*it, "'" | "\"" | "$'" | "<<" | "\\"));
        prop_assert!(
            is_quoted || runs(&line, "git push") || is_unknown(&line),
            "{line:?}: {:?}",
            parse(&line)
        );
    }
}
