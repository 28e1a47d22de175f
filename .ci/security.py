#!/usr/bin/env python3
"""Checks SECURITY.md and docs/security-findings.md: every test, attempt and command that they name exists.

usage: security.py check     exit 1 if a name is wrong
"""

import re
import sys

import requirements

ROOT = requirements.ROOT
MODEL = "SECURITY.md"
FINDINGS = "docs/security-findings.md"
NUMBER_OF_FINDINGS = 20

ROW = re.compile(r"\| (\d+) \| (.+) \| (.+) \| (.+) \| (.+) \|")
ATTEMPT = re.compile(r'attempt "([^"]+)"')
TEST_COMMAND = re.compile(r"`just test -p tamma-([a-z]+) ([a-z0-9_:]+)`")
COMMAND = re.compile(r"`just ([a-z-]+)")


def attempts():
    """Source of the escape attempts, in which their names are string literals."""
    paths = (ROOT / "lab/src/sandbox_escape").glob("*.rs")
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(paths))


def check_findings(add, known, text):
    source = attempts()
    numbers = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{FINDINGS}:{number}"
        names, tried = requirements.PROOF.findall(line), ATTEMPT.findall(line)
        for name in names:
            if name not in known:
                add(place, f"names `{name}`, which is no test (.ci/requirements.py tests)")
        for name in tried:
            if f'"{name}"' not in source:
                add(place, f'names the attempt "{name}", which is not in lab/src/sandbox_escape')
        row = ROW.fullmatch(line.strip())
        if row:
            numbers.append(int(row.group(1)))
            if not names and not tried:
                add(place, f"finding {row.group(1)} has no test and no attempt")
    if numbers != list(range(1, NUMBER_OF_FINDINGS + 1)):
        add(FINDINGS, f"needs one row of five cells for each of {NUMBER_OF_FINDINGS} findings, in order")


def check_model(add, known, text):
    held = False
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{MODEL}:{number}"
        for crate, part in TEST_COMMAND.findall(line):
            # nextest selects tests whose path within the crate contains the argument.
            if not any(name.startswith(f"{crate}::") and part in name.partition("::")[2] for name in known):
                add(place, f"`just test -p tamma-{crate} {part}` selects no test")
        if line.startswith("## "):
            held = line == "## What holds"
        is_row = line.startswith("| ") and not line.startswith("| Claim")
        if held and is_row and not COMMAND.search(line):
            add(place, "names no command that proves it")


def check(add):
    """Calls `add(place, problem)` for every problem."""
    known = requirements.tests()
    check_findings(add, known, (ROOT / FINDINGS).read_text(encoding="utf-8"))
    check_model(add, known, (ROOT / MODEL).read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:] != ["check"]:
        sys.exit(__doc__)
    problems = []
    check(lambda place, problem: problems.append(f"{place}: {problem}"))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(f"security: {len(problems)} problems")
    print("security: ok")
