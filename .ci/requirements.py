#!/usr/bin/env python3
"""Checks docs/requirements.md: every row has a proof that exists, a reason to deviate, or is marked open.

usage: requirements.py check     exit 1 if a row, a count or a name is wrong
       requirements.py tests     print every test as the document names it
       requirements.py count     print the line of counts for the head of the document

docs/requirements.toml lists the configuration keys, events and commands of the founding documents.
Each must be used in the program outside the file that declares it.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = "docs/requirements.md"
NAMES = "docs/requirements.toml"

TEST_ATTRIBUTE = re.compile(r"\s*#\[(?:tokio::)?(?:test|rstest)\b")
FUNCTION = re.compile(r"\s*(?:pub(?:\([a-z]+\))? )?(?:async )?fn ([a-z0-9_]+)")
# Tests that the macro `kit!` declares: the name of a hostile repository on each line.
KIT = re.compile(r"    ([a-z0-9_]+)$")
ROW = re.compile(r"\| ([A-Z]\d+\.\d+) \| (.+) \| (.+) \|")
PROOF = re.compile(r"`([a-z]+(?:::[a-z0-9_]+)+)`")
EXPERIMENT = re.compile(r"`just lab ([a-z-]+)`")


def tests(root=ROOT):
    """Names of all tests: the crate, the modules of the file, and the function."""
    names = set()
    for crate in [*sorted((root / "crates").iterdir()), root / "lab"]:
        for folder in ("src", "tests"):
            for path in sorted((crate / folder).rglob("*.rs")):
                parts = list(path.relative_to(crate / folder).with_suffix("").parts)
                # `tests/it/…` and `tests/server/…` are the test binaries; `main` and `lib` are roots.
                if folder == "tests" and len(parts) > 1:
                    parts = parts[1:]
                parts = [part for part in parts if part not in ("main", "lib", "tests", "it")]
                is_test, is_kit = False, False
                for line in path.read_text(encoding="utf-8").splitlines():
                    is_kit = line == "kit! {" or (is_kit and line != "}")
                    if is_kit and KIT.match(line):
                        names.add("::".join([crate.name, *parts, KIT.match(line).group(1)]))
                    if TEST_ATTRIBUTE.match(line):
                        is_test = True
                    function = FUNCTION.match(line)
                    if function:
                        if is_test:
                            names.add("::".join([crate.name, *parts, function.group(1)]))
                        is_test = False
    return names


def rows(text):
    """Yields (line number, ID, requirement, proof) of every row."""
    for number, line in enumerate(text.splitlines(), 1):
        match = ROW.fullmatch(line.strip())
        if match:
            yield number, *match.groups()


def kind(proof):
    """`proved`, `deviation`, `open`, or an issue's number if the row waits for that issue."""
    if proof.startswith("deviation: "):
        return "deviation"
    if re.match(r"open( \(issue \d+\))?: ", proof):
        issue = re.match(r"open \(issue (\d+)\)", proof)
        return issue.group(1) if issue else "open"
    return "proved"


def count_line(text):
    kinds = [kind(proof) for _, _, _, proof in rows(text)]
    opened = sum(it not in ("proved", "deviation") for it in kinds)
    return (
        f"{len(kinds)} requirements: {kinds.count('proved')} proved, "
        f"{kinds.count('deviation')} deliberate deviations, {opened} open."
    )


def production_lines(path):
    """Lines of a source file without comments and without its test module."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.match(r"\s*mod tests \{", line):
            return
        if not re.match(r"\s*(//|#\[)", line):
            yield line


def sources(root=ROOT):
    """Production lines of the program, by path."""
    found = {}
    for crate in sorted((root / "crates").iterdir()):
        if crate.name in ("testkit", "eval"):
            continue
        for path in sorted((crate / "src").rglob("*.rs")):
            if path.stem != "tests" and not path.stem.endswith("_tests"):
                found[str(path.relative_to(root))] = "\n".join(production_lines(path))
        for path in sorted((crate / "templates").rglob("*.html")):
            found[str(path.relative_to(root))] = path.read_text(encoding="utf-8")
    return found


def check_rows(add, text):
    known = tests()
    experiments = set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "lab/README.md").read_text(encoding="utf-8"), re.M))
    seen = {}
    for number, name, requirement, proof in rows(text):
        place = f"{DOCUMENT}:{number}"
        if name in seen:
            add(place, f"{name} is also in line {seen[name]}")
        seen[name] = number
        proofs = PROOF.findall(proof)
        for test in proofs:
            if test not in known:
                add(place, f"{name} names `{test}`, which is no test (.ci/requirements.py tests)")
        experiments_named = EXPERIMENT.findall(proof)
        for experiment in experiments_named:
            if experiment not in experiments:
                add(place, f"{name} names `just lab {experiment}`, which is no experiment")
        if kind(proof) == "proved" and not proofs and not experiments_named:
            add(place, f"{name} has no proof: name a test, or write `deviation: …` or `open: …`")
        if kind(proof) == "deviation" and len(proof) < 40:
            add(place, f"{name} deviates without a reason")
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\| [A-Z]\d", line) and not ROW.fullmatch(line.strip()):
            add(f"{DOCUMENT}:{number}", "is not a row of three cells")
    if not seen:
        add(DOCUMENT, "has no rows")
    expected = count_line(text)
    if expected not in text:
        add(DOCUMENT, f"has wrong counts; write: {expected}")
    return {name: kind(proof) for _, name, _, proof in rows(text)}


def files_with(files, word):
    """Paths of the files that contain a word."""
    pattern = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])")
    return [path for path, text in files.items() if pattern.search(text)]


def check_names(add, kinds):
    files = sources()
    for group, entries in tomllib.loads((ROOT / NAMES).read_text(encoding="utf-8")).items():
        for entry in entries:
            row, declared = entry["row"], entry.get("declared")
            place = f"{NAMES}: {group} `{entry['name']}`"
            if row not in kinds:
                add(place, f"refers to {row}, which is no row of {DOCUMENT}")
                continue
            if entry.get("fixed") and group != "keys":
                add(place, "is marked `fixed`, which is only for keys")
            if group == "commands" and not entry.get("uses"):
                add(place, "has no `uses`: name where a person requests it, and where it takes effect")
            if declared and not any(path.startswith(declared) for path in files_with(files, entry["word"])):
                add(place, f"is not declared in {declared}")
            wanted = entry.get("uses") or dict.fromkeys(entry.get("within", [""]), entry["word"])
            if entry.get("fixed") and group == "keys":
                wanted = {}
            missing = [
                (part, word) for part, word in wanted.items()
                if not any(
                    path.startswith(part) and not (declared and path.startswith(declared))
                    for path in files_with(files, word)
                )
            ]
            if kinds[row] in ("proved", "deviation") or group == "commands":
                for part, word in missing:
                    where = f"in {part}" if part else "outside its declaration"
                    add(place, f"is used nowhere {where} (`{word}`)")
            elif entry.get("unused") and not missing:
                add(place, f"is used now, and {row} is still open: name its proof")


def check_references(add, kinds):
    """Checks the IDs of rows that tests refer to."""
    path = "crates/core/tests/it/spec/s13_founding_files.rs"
    for row in re.findall(r"\"([A-Z]\d+\.\d+)\"", (ROOT / path).read_text(encoding="utf-8")):
        if row not in kinds:
            add(path, f"refers to {row}, which is no row of {DOCUMENT}")


def check(add):
    """Calls `add(place, problem)` for every problem."""
    kinds = check_rows(add, (ROOT / DOCUMENT).read_text(encoding="utf-8"))
    check_names(add, kinds)
    check_references(add, kinds)


def main():
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8") if (ROOT / DOCUMENT).exists() else ""
    match sys.argv[1:]:
        case ["check"]:
            problems = []
            check(lambda place, problem: problems.append(f"{place}: {problem}"))
            for problem in problems:
                print(problem, file=sys.stderr)
            if problems:
                sys.exit(f"requirements: {len(problems)} problems")
            print(count_line(text))
        case ["tests"]:
            print("\n".join(sorted(tests())))
        case ["count"]:
            print(count_line(text))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
