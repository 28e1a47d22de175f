"""Console blocks of the pages: what they type, what they show, and whether a real output matches.

A block has the language `console`. A line that starts with `$ ` is a command, and goes on after a `\\` at its
end. The lines after it are its output; without any, the output is not compared. A line `...` stands for any
lines, and `…` for any text in a line. IDs, hashes, times, durations and ports are examples: the real ones
replace them, and an ID that a command printed replaces the same example in later commands of the page.

A comment before a block applies to it:

    <!-- setup: NAME -->        begins a new folder, with a setup of run.py
    <!-- exit: CODE -->         exit code of the last command of the block
    <!-- types: KEYS -->        runs the last command in a terminal, and types this line when it asks
"""

import dataclasses
import pathlib
import re


@dataclasses.dataclass
class Command:
    page: str
    line: int
    text: str
    output: list[str] = dataclasses.field(default_factory=list)
    exit: int = 0
    types: str | None = None
    setup: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class Malformed(Exception):
    pass


DIRECTIVE = re.compile(r"<!-- (setup|exit|types): (.*?) -->")
# Languages whose blocks are read and not typed. A generated page has its usages as `text`.
READ = {"text", "yaml", "json", "markdown", "toml", "rust", "sql", "ini", "dockerfile"}


def commands(page: str, text: str) -> list[Command]:
    """Commands of a page, in order. Fails on a block that could hide one."""
    found: list[Command] = []
    pending: dict[str, str] = {}
    block: list[Command] | None = None
    fence, language, indent = "", "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if fence:
            # A block in a list is indented as its item.
            line = line[min(indent, len(line) - len(line.lstrip())):]
        opening = re.match(r"(\s*)(`{3,})(\w*)", line)
        if not fence:
            directive = DIRECTIVE.fullmatch(line.strip())
            if directive:
                pending[directive[1]] = directive[2]
            elif opening:
                indent, fence, language = len(opening[1]), opening[2], opening[3]
                if language not in READ | {"console"}:
                    raise Malformed(f"{page}:{number}: a block of language `{language}`: use console, or {', '.join(sorted(READ))}")
                block = []
            elif line.strip() and pending:
                raise Malformed(f"{page}:{number}: a comment for a console block is not before one: {pending}")
            continue
        if opening and opening[2] == fence and not line.strip().strip("`"):
            if language == "console":
                if not block:
                    raise Malformed(f"{page}:{number}: a console block without a command")
                block[0].setup = pending.pop("setup", None)
                block[-1].exit = int(pending.pop("exit", "0"))
                block[-1].types = pending.pop("types", None)
                found += block
            fence, pending = "", {}
            continue
        if language == "console":
            assert block is not None
            if block and block[-1].text.endswith("\\") and not block[-1].output:
                block[-1].text += "\n" + line
            elif line.startswith("$ "):
                block.append(Command(page, number, line[2:]))
            elif block:
                block[-1].output.append(line)
            else:
                raise Malformed(f"{page}:{number}: a console block starts with an output")
        elif line.startswith("$ "):
            raise Malformed(f"{page}:{number}: a command in a block of language `{language}`: use console")
    return found


# Parts of an output that differ with each run. Each is one group in a pattern.
VOLATILE = re.compile(
    r"(?P<uuid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<hash>\b(?=[a-f]*[0-9])[0-9a-f]{7,64}\b)"
    r"|(?P<date>\b\d{4}-\d\d-\d\d\b)"
    r"|(?P<clock>\b\d\d:\d\d(?::\d\d)?\b)"
    r"|(?P<since>\bjust now\b|\b\d+(?:\.\d+)? (?:ms|s|min|h) ago\b)"
    r"|(?P<time>\b\d+(?:\.\d+)? (?:ms|s|min|h)\b)"
    r"|(?P<port>(?<=127\.0\.0\.1:)\d+)"
    r"|(?P<size>\b\d+ (?:B|kB|MB)\b)"
    r"|(?P<process>(?<=process )\d+)"
    r"|(?P<any>…)"
)
PATTERNS = {
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "hash": r"[0-9a-f]{7,64}",
    "date": r"\d{4}-\d\d-\d\d",
    "clock": r"\d\d:\d\d(?::\d\d)?",
    "since": r"just now|\d+(?:\.\d+)? (?:ms|s|min|h) ago",
    "time": r"\d+(?:\.\d+)? (?:ms|s|min|h)",
    "port": r"\d+",
    "size": r"\d+ (?:B|kB|MB)",
    "process": r"\d+",
    "any": r".*?",
}


def pattern(line: str) -> tuple[re.Pattern, list[str]]:
    """Pattern of a line, and the examples in it that later commands can use."""
    # Columns are as wide as their widest cell, and the width of an example differs.
    parts, examples, end = [], [], 0
    for match in VOLATILE.finditer(line):
        parts.append(literal(line[end:match.start()]))
        parts.append(f"({PATTERNS[match.lastgroup]})")
        examples.append(match[0] if match.lastgroup in ("uuid", "hash") else "")
        end = match.end()
    parts.append(literal(line[end:]))
    return re.compile("".join(parts)), examples


def literal(text: str) -> str:
    return re.sub(r"(?:\\ ){2,}", r" +", re.escape(text))


def match(expected: list[str], actual: list[str]) -> dict[str, str] | None:
    """Real values of the examples, or None if the output differs."""
    expected = [line.rstrip() for line in expected]
    actual = [line.rstrip() for line in actual]
    while expected and not expected[-1]:
        expected.pop()
    while actual and not actual[-1]:
        actual.pop()
    return match_from(expected, 0, actual, 0)


def match_from(expected: list[str], i: int, actual: list[str], j: int) -> dict[str, str] | None:
    learned: dict[str, str] = {}
    while i < len(expected):
        if expected[i].strip() in ("...", "…"):
            for skip in range(j, len(actual) + 1):
                rest = match_from(expected, i + 1, actual, skip)
                if rest is not None:
                    return learned | rest
            return None
        if j >= len(actual):
            return None
        compiled, examples = pattern(expected[i])
        found = compiled.fullmatch(actual[j])
        if not found:
            return None
        learned |= {example: real for example, real in zip(examples, found.groups()) if example}
        i, j = i + 1, j + 1
    return learned if j == len(actual) else None


def self_check() -> None:
    """A matcher that accepts everything would let every page pass."""
    shown = ["Added 06bcb2f4: Greet", "...", "18:45:43 ✔ Done  completed in 13 s: 2 attempts, $0.00"]
    real = ["Added 1c2d3e4f: Greet", "a", "b", "09:00:01 ✔ Done      completed in 2 s: 2 attempts, $0.00"]
    assert match(shown, real) == {"06bcb2f4": "1c2d3e4f"}
    assert match(shown, real[:-1] + ["09:00:01 ✔ Done  completed in 2 s: 3 attempts, $0.00"]) is None
    assert match(shown, real + ["more"]) is None
    assert match(["0 failed"], ["1 failed"]) is None
    page = "<!-- exit: 3 -->\n```console\n$ a \\\n    b\nout\n$ c\n```\n"
    first, second = commands("page", page)
    assert (first.text, first.output, first.exit) == ("a \\\n    b", ["out"], 0)
    assert (second.text, second.output, second.exit) == ("c", [], 3)
    [item] = commands("page", "1. Item\n\n   ```console\n   $ a\n   out\n   ```\n")
    assert (item.text, item.output) == ("a", ["out"])
    for wrong in ("```\n$ a\n```\n", "```sh\na\n```\n", "```text\n$ a\n```\n", "```console\n```\n", "<!-- exit: 3 -->\nText\n"):
        try:
            commands("page", wrong)
        except Malformed:
            continue
        raise AssertionError(f"accepted: {wrong!r}")


def read(page: str, path: pathlib.Path) -> list[Command]:
    return commands(page, path.read_text(encoding="utf-8"))
