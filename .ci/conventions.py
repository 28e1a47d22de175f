#!/usr/bin/env python3
"""Checks the conventions of CONTRIBUTING.md that no other tool checks, and prints the metrics behind them.

usage: conventions.py check             exit 1 if a convention is broken
       conventions.py metrics [BASE]    print the metrics at BASE (default: cce4d8f) and now
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import requirements
import security

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Names that may be defined any number of times: each is the obvious name in its own module.
COMMON_NAMES = {"Error", "Args", "Command", "Row"}
MAX_DEFINITIONS = 2
MAX_WH_PERCENT = 5
MAX_FILE_LINES = 800

# Words that have been replaced, with their replacement. Checked in what users and newcomers read.
RETIRED = {
    r"durable engine": "Temporal",
    r"what the team knows": "knowledge base",
    r"waits? for you": "needs you",
    r"errands?": "job request",
    r"diary": "pending steps",
    r"drawer": "unsaved results",
    r"witness(es)?": "run recorder",
    r"scribe": "recorder task",
    r"cages?": "sandbox",
    r"confine[sd]?|confinement": "sandbox",
    r"salvaged?|salvaging": "checkpoint",
    r"whoever|whatever": "name the actor",
    r"tickets?": "job number",
    r"the team's hands|hands of the loop": "activities",
    r"post office|parcels?": "alert dispatcher, delivery",
    r"deeds?": "action",
    r"standings?": "role, status",
    r"engine pool": "agent pool",
    r"is (to be )?told|are told|was told": "name the actor",
}
# Code in a document or a template, where a retired word can be a stored name.
CODE = re.compile(r"`[^`]*`|\{\{.*?\}\}|\{%.*?%\}")

EXPERIMENTS = re.compile(r"just lab ([a-z][a-z-]*)")


def files(root, *suffixes):
    """Files of the tree that git knows or could know, below `root`."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True,
    )
    if listed.returncode == 0 and listed.stdout:
        paths = [root / line for line in listed.stdout.splitlines()]
    else:
        paths = list(root.rglob("*"))
    # The tasks of an evaluation are what agents are given, and not part of this code.
    given = root / "eval" / "tasks"
    ours = (p for p in paths if given not in p.parents)
    return sorted(p for p in ours if p.suffix in suffixes and p.is_file())


def rust(root):
    return [p for p in files(root, ".rs") if "fixtures" not in p.parts and "inputs" not in p.parts]


DOC_LINE = re.compile(r"\s*//[/!](?!/)\s?(.*)")
WH_WORD = re.compile(r"(What|Who|How|Whether|Where|When|Why)\w*\b")


def doc_comments(root):
    """Yields (path, line number, text) of every doc-comment line that is not empty."""
    for path in rust(root):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = DOC_LINE.match(line)
            if match and match.group(1).strip():
                yield path, number, match.group(1)


# An indented `type X = …` is an associated type, whose name the trait chose.
DEFINITION = re.compile(
    r"\s*(?:pub(?:\([a-z ]+\))? )?(?:struct|enum|trait|union) ([A-Za-z0-9_]+)"
    r"|(?:pub(?:\([a-z ]+\))? )?type ([A-Za-z0-9_]+)"
)


def type_names(root):
    names = {}
    for path in rust(root):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = DEFINITION.match(line)
            if match:
                name = match.group(1) or match.group(2)
                names.setdefault(name, []).append(f"{path.relative_to(root)}:{number}")
    return names


def verbs(root):
    found, private = [], False
    for line in (root / "justfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("[private]"):
            private = True
        match = re.match(r"@?([a-z][a-z0-9-]*)(?: [^:]*)?:(?!=)", line)
        if match:
            if not private and not line.startswith("_"):
                found.append(match.group(1))
            private = False
    return found


def targets(root):
    out = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout
    return [(p["name"], t) for p in json.loads(out)["packages"] for t in p["targets"]]


def linked(root):
    """Programs that `cargo build --workspace --all-targets` links."""
    count = 0
    for _, target in targets(root):
        kind = target["kind"][0]
        if kind in ("bin", "example", "test", "bench"):
            count += 1
        if kind in ("bin", "lib", "example") and target["test"]:
            count += 1
    return count


def metrics(root):
    lines = list(doc_comments(root))
    wh = sum(bool(WH_WORD.match(text)) for _, _, text in lines)
    names = type_names(root)
    often = [name for name, places in names.items() if len(places) > MAX_DEFINITIONS]
    largest = max((len(p.read_text(encoding="utf-8").splitlines()), p) for p in rust(root))
    cli_tests = sum(t["kind"] == ["test"] for name, t in targets(root) if name == "tamma-cli")
    return {
        "doc-comment lines that open with a wh-word": f"{wh} of {len(lines)} ({100 * wh / len(lines):.1f} %)",
        "type names with three or more definitions": f"{len(often)} of {len(names)}",
        "just verbs": str(len(verbs(root))),
        "integration-test binaries of the CLI": str(cli_tests),
        "programs linked by a full build": str(linked(root)),
        "lines of the largest source file": str(largest[0]),
    }


def print_metrics(base):
    with tempfile.TemporaryDirectory() as scratch:
        archive = subprocess.run(["git", "archive", base], cwd=ROOT, capture_output=True)
        before = {}
        if archive.returncode == 0:
            subprocess.run(["tar", "-x", "-C", scratch], input=archive.stdout, check=True)
            before = metrics(pathlib.Path(scratch))
        now = metrics(ROOT)
    width = max(map(len, now))
    print(f"{'metric':<{width}}  {base[:12]:>22}  {'now':>22}")
    for name, value in now.items():
        print(f"{name:<{width}}  {before.get(name, 'not in this clone'):>22}  {value:>22}")


class Report:
    def __init__(self):
        self.problems = []

    def add(self, place, text):
        self.problems.append(f"{place}: {text}")


def check_definitions(report):
    for name, places in sorted(type_names(ROOT).items()):
        if len(places) > MAX_DEFINITIONS and name not in COMMON_NAMES:
            report.add(places[0], f"`{name}` has {len(places)} definitions, at most {MAX_DEFINITIONS}: {', '.join(places[1:])}")


def check_doc_openings(report):
    lines = list(doc_comments(ROOT))
    wh = [(p, n, t) for p, n, t in lines if WH_WORD.match(t)]
    percent = 100 * len(wh) / len(lines)
    if percent > MAX_WH_PERCENT:
        for path, number, text in wh[:20]:
            report.add(f"{path.relative_to(ROOT)}:{number}", f"doc comment opens with a wh-word: {text}")
        report.add("doc comments", f"{percent:.1f} % open with a wh-word, at most {MAX_WH_PERCENT} %")


def check_source(report):
    for path in rust(ROOT):
        name = path.relative_to(ROOT)
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > MAX_FILE_LINES:
            report.add(name, f"has {len(lines)} lines, at most {MAX_FILE_LINES}: split it")
        ours = name.parts[0] == "crates" and name.parts[1] not in ("cli", "testkit") and name.parts[2] == "src"
        for number, line in enumerate(lines, 1):
            if re.match(r"\s*#!?\[allow\(", line):
                report.add(f"{name}:{number}", "#[allow] is not used here: #[expect(…, reason = \"…\")]")
            if ours and re.search(r"\benv::(var|vars|var_os|vars_os)\b", line):
                report.add(f"{name}:{number}", "an environment variable is read outside `cli`: pass the value in")


def check_crates(report):
    for manifest in files(ROOT, ".toml"):
        if manifest.name == "Cargo.toml" and "[package]" in manifest.read_text(encoding="utf-8"):
            if "fixtures" in manifest.parts or "inputs" in manifest.parts:
                continue
            if not (manifest.parent / "README.md").exists():
                report.add(manifest.parent.relative_to(ROOT), "has no README.md")


def readable(root):
    """What users read: (path, line number, text) of pages, documents, help and error messages."""
    for path in files(root, ".md", ".html"):
        name = path.relative_to(root)
        if name.name == "CHANGELOG.md" or "inputs" in name.parts or "fixtures" in name.parts or "snapshots" in name.parts:
            continue
        if "knowledge" in name.parts or name.parts[:2] == ("docs", "decisions"):
            continue
        fenced = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            yield name, number, line, fenced
    for path in rust(root):
        name = path.relative_to(root)
        if "tests" in name.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r"\s*#\[error\((\".*)\)\]", line)
            if match:
                yield name, number, match.group(1), False


def check_words(report):
    patterns = [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), use) for word, use in RETIRED.items()]
    for name, number, line, _ in readable(ROOT):
        text = CODE.sub("", line)
        for pattern, use in patterns:
            match = pattern.search(text)
            if match:
                report.add(f"{name}:{number}", f"retired term \"{match.group(0)}\"; use: {use}")


def check_documents(report):
    known_verbs = set(re.findall(r"^@?([a-z][a-z0-9-]*)(?: [^:\n]*)?:(?!=)", (ROOT / "justfile").read_text(), re.M))
    experiments = set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "lab/README.md").read_text(encoding="utf-8"), re.M))
    commands = set(re.findall(r"^#+ `?tamma ([a-z-]+)", (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8"), re.M))
    for path in files(ROOT, ".md"):
        name = path.relative_to(ROOT)
        if name.name == "CHANGELOG.md" or "inputs" in name.parts or "fixtures" in name.parts:
            continue
        fenced = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            place = f"{name}:{number}"
            if line.lstrip().startswith("```"):
                fenced = not fenced
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                    report.add(place, f"links to {target}, which does not exist")
            for code in re.findall(r"`([^`]+)`", line):
                if re.fullmatch(r"(crates|docs|lab|\.ci|\.config|examples)/[\w./-]+", code):
                    if not (ROOT / code).exists():
                        report.add(place, f"names `{code}`, which does not exist")
            spans = [line] if fenced else re.findall(r"`([^`]+)`", line)
            for span in spans:
                for verb in re.findall(r"(?:^|\$ |&& )just ([a-z][a-z0-9-]*)", span):
                    if verb not in known_verbs:
                        report.add(place, f"names `just {verb}`, which is no verb")
                for experiment in EXPERIMENTS.findall(span):
                    if experiment not in experiments:
                        report.add(place, f"names `just lab {experiment}`, which is no experiment (lab/README.md)")
                for command in re.findall(r"(?:^|\$ )tamma ([a-z][a-z-]*)", span):
                    if commands and command not in commands and command != "help":
                        report.add(place, f"names `tamma {command}`, which is no command")


def check_packages(report):
    """The wheel depends on exactly the versions whose hashes the other packages check."""
    programs = tomllib.loads((ROOT / "packaging/programs.toml").read_text(encoding="utf-8"))
    wheel = tomllib.loads((ROOT / "packaging/pyproject.toml").read_text(encoding="utf-8"))
    both = [programs["postgresql"], programs["temporal"]]
    expected = sorted(f"{it['package']}=={it['version']}" for it in both)
    if sorted(wheel["project"]["dependencies"]) != expected:
        report.add("packaging/pyproject.toml", f"dependencies differ from programs.toml: {', '.join(expected)}")
    for target in programs["platforms"]:
        for it in both:
            if not re.fullmatch(r"[0-9a-f]{64}", it["sha256"].get(target, "")):
                report.add("packaging/programs.toml", f"{it['package']} has no SHA-256 for {target}")


def check_requirements(report):
    requirements.check(report.add)


def check_security(report):
    security.check(report.add)


def check_monitoring(report):
    """Every alert has a section in the runbook, and rules and dashboard name metrics that exist."""
    folder = ROOT / "packaging/monitoring"
    rules = (folder / "rules.yml").read_text(encoding="utf-8")
    runbook = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    for alert in re.findall(r"^ +- alert: (\w+)$", rules, re.M):
        if f"\n### {alert}\n" not in runbook:
            report.add("packaging/monitoring/rules.yml", f"`{alert}` has no section in docs/operating.md")
        section = runbook.partition(f"\n### {alert}\n")[2].partition("\n#")[0]
        if section and "```console\n$ " not in section:
            report.add("docs/operating.md", f"the section of `{alert}` has no command")
        if f"docs/operating.md#{alert.lower()}\n" not in rules:
            report.add("packaging/monitoring/rules.yml", f"`{alert}` does not name its section as its runbook")
    names = (ROOT / "crates/telemetry/src/names.rs").read_text(encoding="utf-8")
    known = set(re.findall(r'"(tamma_\w+)"', names))
    for file in ("rules.yml", "grafana-dashboard.json"):
        text = (folder / file).read_text(encoding="utf-8")
        for used in sorted(set(re.findall(r"\btamma_\w+", text))):
            if used not in known and re.sub(r"_(bucket|count|sum)$", "", used) not in known and used != "tamma_installation_":
                report.add(f"packaging/monitoring/{file}", f"`{used}` is no metric of crates/telemetry/src/names.rs")


# The first migration whose programs read `schema_compatibility`.
FIRST_DECLARING = 14

# Statements after which an older program, which shares the database during an upgrade, would fail.
REMOVALS = {
    r"\bDROP\s+(TABLE|COLUMN|VIEW|MATERIALIZED VIEW|FUNCTION|TYPE|SCHEMA|SEQUENCE)\b": "removes something",
    r"\bRENAME\b": "renames something",
    r"(?:^|;)\s*TRUNCATE\b": "removes rows",
    r"\bALTER\s+COLUMN\s+\S+\s+(SET\s+DATA\s+)?TYPE\b": "changes the type of a column",
    r"\bALTER\s+COLUMN\s+\S+\s+(SET\s+NOT\s+NULL|DROP\s+DEFAULT)\b": "makes a column mandatory",
    r"\bADD\s+COLUMN\s+(?=[^,;]*\bNOT\s+NULL\b)(?![^,;]*\b(DEFAULT|GENERATED)\b)": "adds a mandatory column",
}


def migration_statements(text):
    """Returns the SQL of a migration without comments, texts and bodies of functions."""
    text = re.sub(r"\$(\w*)\$.*?\$\1\$", "''", text, flags=re.S)
    text = re.sub(r"--[^\n]*", "", text)
    return re.sub(r"'(?:[^']|'')*'", "''", text)


def migration_problems(number, text):
    """Returns why a migration would break programs that do not know it, although it does not declare that."""
    sql = migration_statements(text)
    declares = re.search(rf"\bUPDATE\s+schema_compatibility\s+SET\s+oldest_version\s*=\s*{number}\b", sql, re.I)
    if number < FIRST_DECLARING or declares:
        return []
    return [why for pattern, why in REMOVALS.items() if re.search(pattern, sql, re.I)]


def check_migrations(report):
    """A migration only adds, or declares that older programs cannot use the schema."""
    for path in sorted((ROOT / "crates/store/migrations").glob("*.sql")):
        number = int(path.name.split("_")[0])
        for why in migration_problems(number, path.read_text(encoding="utf-8")):
            report.add(
                path.relative_to(ROOT),
                f"{why}, which programs of the version before it may use (CONTRIBUTING.md, \"Change the database"
                f" schema\"): UPDATE schema_compatibility SET oldest_version = {number}",
            )
    cases = {
        "ALTER TABLE a ADD COLUMN b bigint NOT NULL DEFAULT 0; -- no DROP TABLE": 0,
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ DROP TABLE a $$; SELECT 'RENAME';": 0,
        "ALTER TABLE a ADD COLUMN b bigint NOT NULL;": 1,
        "ALTER TABLE a DROP COLUMN b;": 1,
        "ALTER TABLE a RENAME TO b; UPDATE schema_compatibility SET oldest_version = 99;": 0,
        "ALTER TABLE a RENAME TO b; UPDATE schema_compatibility SET oldest_version = 98;": 1,
    }
    for sql, expected in cases.items():
        if len(migration_problems(99, sql)) != expected:
            report.add(".ci/conventions.py", f"the check of migrations misjudges: {sql}")


def check_chart(report):
    """The chart has the version of the workspace, and equal copies of files that Helm cannot read elsewhere."""
    packaging, chart = ROOT / "packaging", "packaging/helm/tamma"
    for copy, original in (("files/rules.yml", "monitoring/rules.yml"), ("files/seccomp.json", "container/seccomp.json")):
        if (ROOT / chart / copy).read_bytes() != (packaging / original).read_bytes():
            report.add(f"{chart}/{copy}", f"differs from packaging/{original}: copy it again")
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    found = re.findall(r"^(?:version|appVersion): (\S+)$", (ROOT / chart / "Chart.yaml").read_text(encoding="utf-8"), re.M)
    if found != [version, version]:
        report.add(f"{chart}/Chart.yaml", f"`version` and `appVersion` are not {version}")


def check():
    report = Report()
    for rule in (
        check_definitions, check_doc_openings, check_source, check_crates, check_words, check_documents,
        check_packages, check_requirements, check_security, check_monitoring, check_migrations,
        check_chart,
    ):
        rule(report)
    for problem in report.problems:
        print(problem, file=sys.stderr)
    if report.problems:
        sys.exit(f"conventions: {len(report.problems)} problems")
    print("conventions: ok")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check"]:
            check()
        case ["metrics", *base] if len(base) < 2:
            print_metrics(base[0] if base else "cce4d8f")
        case _:
            sys.exit(__doc__)
