#!/usr/bin/env python3
"""Verifies the labelled set of knowledge entries and plans, and prints its numbers.

    python3 check.py                 shapes, labels, counts; exit code 1 if anything is wrong
    python3 check.py --differences   also every prohibition x plan where rule and label differ
    python3 check.py --sensitive     also every pair whose result depends on a detail of the rule

It needs PyYAML. README.md describes the rule. The rule ignores negation, so a plan that mentions a
prohibition in a negated form is a difference, and must list it in `not_broken`.
"""

import re
import sys
from collections import Counter
from datetime import datetime
from itertools import product
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent
PROJECTS = ["shop", "silt", "atelier"]
NOW = datetime.fromisoformat("2026-11-15T12:00:00+00:00")

KINDS = ["recommendation", "prohibition", "convention", "learning"]
SEVERITIES = ["low", "medium", "high", "critical"]
STATUSES = ["pending", "approved", "rejected", "retired"]
TYPES = ["feature", "bugfix", "refactor", "test", "docs", "chore"]
ACTIONS = ["create", "modify", "delete"]
HARD = [
    "near_miss", "synonym", "negation", "moved_path", "glob_edge",
    "expired", "wrong_scope", "wrong_type", "plain",
]
ENTRY_MUST = {"key", "kind", "text", "scope", "severity", "status", "owner", "evidence"}
ENTRY_MAY = {"globs", "task_types", "keywords", "actions", "pattern", "expires_at"}
PLAN_MUST = {"key", "task", "plan", "blockers", "warnings", "relevant", "hard"}
PLAN_MAY = {"why", "not_broken"}
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")

problems = []


def wrong(where, what):
    problems.append(f"{where}: {what}")


# ---------------------------------------------------------------------------------------- globs


def braces(glob):
    """`x.{ts,tsx}` as `x.ts` and `x.tsx`; braces do not nest here."""
    match = re.search(r"\{([^{}]*)\}", glob)
    if not match:
        return [glob]
    start, end = match.span()
    return [
        one
        for part in match.group(1).split(",")
        for one in braces(glob[:start] + part + glob[end:])
    ]


def glob_regex(glob, crossing=False):
    """`*` and `?` stay within one level, dot files included; `**` as a whole part does not."""
    star, mark = (".*", ".") if crossing else ("[^/]*", "[^/]")
    parts = glob.split("/")
    out = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            out += ".+" if last else "(?:[^/]+/)*"
            continue
        for char in part:
            out += star if char == "*" else mark if char == "?" else re.escape(char)
        out += "" if last else "/"
    return re.compile(out + r"\Z")


def glob_matches(glob, path, crossing=False):
    return any(glob_regex(one, crossing).match(path) for one in braces(glob))


for _glob, _path, _expected in [
    ("a/**", "a/b", True), ("a/**", "a/b/.c", True), ("a/**", "a", False), ("a/**", "ab/c", False),
    ("a/*.py", "a/b.py", True), ("a/*.py", "a/b/c.py", False), ("a/*.py", "a/.py", True),
    ("a/**/b.ts", "a/b.ts", True), ("a/**/b.ts", "a/x/y/b.ts", True),
    ("**/.env", ".env", True), ("**/.env", "x/.env", True), ("**/.env", ".env.example", False),
    ("a?.{png,jpg}", "ab.jpg", True), ("a?.{png,jpg}", "a/.jpg", False), ("L*", "x/L", False),
]:
    assert glob_matches(_glob, _path) == _expected, (_glob, _path)


# ------------------------------------------------------------------------------------- the rule


def words(text):
    return [word for word in re.split(r"[^\w]+", text.lower()) if word]


def same_word(keyword, word, plural="both"):
    if keyword == word:
        return True
    if plural == "none":
        return False
    ends = {"s", "es"}
    longer, shorter = (keyword, word) if len(keyword) > len(word) else (word, keyword)
    if plural == "keyword" and longer == keyword:
        return False
    if plural == "ies" and shorter.endswith("y") and longer == shorter[:-1] + "ies":
        return True
    return longer.startswith(shorter) and longer[len(shorter):] in ends


def has_keyword(keyword, texts, plural="both"):
    keyword_words = words(keyword)
    for text in texts:
        text_words = words(text)
        for start in range(len(text_words) - len(keyword_words) + 1):
            run = text_words[start : start + len(keyword_words)]
            if all(same_word(one, other, plural) for one, other in zip(keyword_words, run)):
                return True
    return False


def texts_of(item, testing=True):
    task, plan = item["task"], item["plan"]
    texts = [task["title"], task["description"], plan["summary"], plan["approach"]]
    texts += [change["description"] for change in plan["file_changes"]]
    return texts + [plan["testing_strategy"]] if testing else texts


def code_of(item):
    spans = [span for text in texts_of(item) for span in re.findall(r"`([^`]+)`", text)]
    return spans + [change["description"] for change in item["plan"]["file_changes"]]


def conditions(entry, item, plural="both", testing=True, paths=False, code=False, crossing=False):
    """The kinds of condition an entry has, each with whether it holds."""
    held = {}
    changes = item["plan"]["file_changes"]
    texts = texts_of(item, testing)
    if paths:
        texts = texts + [change["path"] for change in changes]
    if entry.get("globs") or entry.get("actions"):
        held["path"] = any(
            (
                not entry.get("globs")
                or any(glob_matches(glob, change["path"], crossing) for glob in entry["globs"])
            )
            and (not entry.get("actions") or change["action"] in entry["actions"])
            for change in changes
        )
    if entry.get("task_types"):
        held["type"] = item["task"]["type"] in entry["task_types"]
    if entry.get("keywords"):
        held["keyword"] = any(has_keyword(word, texts, plural) for word in entry["keywords"])
    if entry.get("pattern"):
        where = code_of(item) if code else texts
        held["pattern"] = any(re.search(entry["pattern"], text) for text in where)
    return held


def holds(entry, item, **variant):
    held = conditions(entry, item, **variant)
    return bool(held) and all(held.values())


def in_force(entry):
    expiry = entry.get("expires_at")
    return entry["status"] == "approved" and (
        expiry is None or NOW < datetime.fromisoformat(expiry.replace("Z", "+00:00"))
    )


def reaches(entry, project):
    return entry["scope"] == "organisation" or entry["project"] == project


# --------------------------------------------------------------------------------------- shapes


def is_texts(value):
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


def check_entry(where, entry):
    keys = set(entry)
    if ENTRY_MUST - keys or keys - ENTRY_MUST - ENTRY_MAY:
        wrong(where, f"fields {sorted(ENTRY_MUST - keys)} {sorted(keys - ENTRY_MUST - ENTRY_MAY)}")
        return
    if not SLUG.match(entry["key"]):
        wrong(where, "the key is not a slug")
    for field, allowed in [
        ("kind", KINDS), ("severity", SEVERITIES), ("status", STATUSES),
        ("scope", ["project", "organisation"]),
    ]:
        if entry[field] not in allowed:
            wrong(where, f"{field}: {entry[field]}")
    for field, allowed in [("task_types", TYPES), ("actions", ACTIONS)]:
        if set(entry.get(field, [])) - set(allowed):
            wrong(where, f"{field}: {entry[field]}")
    for field in ["globs", "keywords", "evidence", "task_types", "actions"]:
        if field in entry and (not is_texts(entry[field]) or not entry[field]):
            wrong(where, f"{field} is not a list of texts")
    if not 20 <= len(entry["text"]) <= 400:
        wrong(where, f"the text has {len(entry['text'])} characters")
    if not conditions_of(entry):
        wrong(where, "has no condition")
    if entry.get("pattern"):
        if re.search(r"\(\?[=!<]|\\[1-9]", entry["pattern"]):
            wrong(where, "the pattern looks around or back: not every engine can")
        re.compile(entry["pattern"])
    for glob in entry.get("globs", []):
        if re.search(r"[\[\]!\\]", glob) or re.search(r"[^/]\*\*|\*\*[^/]", glob):
            wrong(where, f"glob `{glob}` uses more than `*`, `**`, `?` and braces")
    if not all(re.match(r"(event|commit|pr):\S+\Z", one) for one in entry["evidence"]):
        wrong(where, "evidence is not event:, commit: or pr:")


def conditions_of(entry):
    return [f for f in ["globs", "task_types", "keywords", "actions", "pattern"] if entry.get(f)]


def check_plan(where, item):
    keys = set(item)
    if PLAN_MUST - keys or keys - PLAN_MUST - PLAN_MAY:
        wrong(where, f"fields {sorted(PLAN_MUST - keys)} {sorted(keys - PLAN_MUST - PLAN_MAY)}")
        return False
    if not SLUG.match(item["key"]):
        wrong(where, "the key is not a slug")
    if set(item["task"]) != {"title", "description", "type"}:
        wrong(where, "the task's fields")
    if set(item["plan"]) != {"summary", "approach", "file_changes", "testing_strategy"}:
        wrong(where, "the plan's fields")
    if item["task"]["type"] not in TYPES or item["hard"] not in HARD:
        wrong(where, f"type {item['task']['type']}, hard {item['hard']}")
    for change in item["plan"]["file_changes"]:
        if set(change) != {"path", "action", "description"} or change["action"] not in ACTIONS:
            wrong(where, f"file change {change}")
    paths = [change["path"] for change in item["plan"]["file_changes"]]
    if not paths or len(paths) != len(set(paths)):
        wrong(where, "no file, or one twice")
    if any(part in ("", ".", "..") for path in paths for part in path.split("/")):
        wrong(where, "a path is not inside the repository")
    if not all(text.strip() for text in texts_of(item)):
        wrong(where, "an empty text")
    for field in ["blockers", "warnings", "relevant", "not_broken"]:
        labels = item.get(field, [])
        if not (labels == [] or is_texts(labels)) or len(labels) != len(set(labels)):
            wrong(where, f"{field} is not a list of different keys")
    if not 1 <= len(item["relevant"]) <= 5:
        wrong(where, f"{len(item['relevant'])} relevant entries")
    if item["hard"] not in ("plain", "synonym") and not item.get("why"):
        wrong(where, "a hard case does not say why")
    return True


# --------------------------------------------------------------------------------------- labels


def check_labels(project, item, by_key):
    where = f"{project}/{item['key']}"
    for field, good in [
        ("blockers", lambda e: e["kind"] == "prohibition" and e["severity"] == "critical"),
        ("warnings", lambda e: e["kind"] == "prohibition" and e["severity"] != "critical"),
        ("relevant", lambda e: e["kind"] != "prohibition"),
    ]:
        for key in item[field]:
            entry = by_key.get(key)
            if entry is None:
                wrong(where, f"{field}: no entry `{key}`")
            elif not good(entry):
                wrong(where, f"{field}: `{key}` is a {entry['severity']} {entry['kind']}")
            elif not reaches(entry, project):
                wrong(where, f"{field}: `{key}` belongs to {entry['project']}")
            elif not in_force(entry):
                wrong(where, f"{field}: `{key}` is not in force")
            elif field != "relevant" and not holds(entry, item):
                wrong(where, f"{field}: `{key}` does not match: {conditions(entry, item)}")


def why_not(project, item, entry):
    """Why a prohibition that the plan looks as if it broke is not broken."""
    failing = [kind for kind, held in conditions(entry, item).items() if not held]
    if not in_force(entry):
        return "expired" if not failing else "expired and " + ", ".join(failing)
    if not reaches(entry, project):
        return "scope" if not failing else "scope and " + ", ".join(failing)
    return ", ".join(failing) if failing else "negation"


FITS = {
    "expired": {"expired"},
    "wrong_scope": {"scope"},
    "wrong_type": {"type"},
    "negation": {"negation"},
    "glob_edge": {"path"},
    "moved_path": {"path"},
    "near_miss": {"path", "keyword", "pattern"},
}


def check_not_broken(project, item, by_key):
    """Each looks as if it matched: exactly one thing is missing. Returns the reasons."""
    where = f"{project}/{item['key']}"
    reasons = []
    for key in item.get("not_broken", []):
        entry = by_key.get(key)
        if entry is None or entry["kind"] != "prohibition":
            wrong(where, f"not_broken: `{key}` is no prohibition")
            continue
        if key in item["blockers"] + item["warnings"]:
            wrong(where, f"not_broken: `{key}` is also labelled as broken")
        reason = why_not(project, item, entry)
        reasons.append(reason)
        if " and " in reason or ", " in reason:
            wrong(where, f"not_broken: `{key}` does not look like a match: {reason}")
    broken = item["blockers"] + item["warnings"]
    expected = FITS.get(item["hard"])
    if expected and not broken and not expected & set(reasons):
        wrong(where, f"hard is {item['hard']}, but the reasons are {reasons or 'nothing'}")
    still_in_force = item["hard"] == "expired" and any(
        by_key[key].get("expires_at") for key in broken if key in by_key
    )
    if item["hard"] in ("expired", "wrong_scope", "wrong_type"):
        if not expected & set(reasons) and not still_in_force:
            wrong(where, f"hard is {item['hard']}, but no entry shows it: {reasons}")
    return reasons


def differences(project, items, entries):
    for item, entry in product(items, entries):
        if entry["kind"] == "prohibition" and reaches(entry, project) and in_force(entry):
            by_rule = holds(entry, item)
            by_label = entry["key"] in item["blockers"] + item["warnings"]
            if by_rule != by_label:
                yield item, entry, by_rule


VARIANTS = {
    "no plurals": {"plural": "none"},
    "plural of the keyword only": {"plural": "keyword"},
    "plural with -ies": {"plural": "ies"},
    "testing strategy left out": {"testing": False},
    "words of paths count": {"paths": True},
    "pattern only in code": {"code": True},
    "a star crosses levels": {"crossing": True},
}


def sensitive(project, items, entries):
    for item, entry in product(items, entries):
        if entry["kind"] == "prohibition" and reaches(entry, project) and in_force(entry):
            by_rule = holds(entry, item)
            for name, variant in VARIANTS.items():
                if holds(entry, item, **variant) != by_rule:
                    yield item, entry, name, by_rule


# ----------------------------------------------------------------------------------------- main


def load(project, name):
    with open(ROOT / project / name, encoding="utf-8") as file:
        return yaml.safe_load(file)


def table(title, rows):
    width = max(len(str(row[0])) for row in rows)
    print(f"\n{title:<{width}}  " + "".join(f"{one:>9}" for one in [*PROJECTS, "all"]))
    for name, counts in rows:
        cells = [counts.get(project, 0) for project in PROJECTS]
        print(f"{name:<{width}}  " + "".join(f"{cell:>9}" for cell in [*cells, sum(cells)]))


def count_by(things, of):
    return {project: sum(1 for one in things[project] if of(one)) for project in PROJECTS}


def main():
    entries, items = {}, {}
    for project in PROJECTS:
        about = load(project, "project.yaml")
        if set(about) != {"name", "languages", "about", "layout"} or len(about["layout"]) < 35:
            wrong(project, "project.yaml has other fields, or too short a layout")
        entries[project] = load(project, "entries.yaml")["entries"]
        items[project] = load(project, "plans.yaml")["plans"]
        for entry in entries[project]:
            check_entry(f"{project}/{entry.get('key')}", entry)
            entry["project"] = project
    everything = [entry for project in PROJECTS for entry in entries[project]]
    by_key = {entry["key"]: entry for entry in everything}
    for key, times in Counter(entry["key"] for entry in everything).items():
        if times > 1:
            wrong(key, f"is there {times} times")
    for text, times in Counter(entry["text"] for entry in everything).items():
        if times > 1:
            wrong(text, "is there twice")
    for key, times in Counter(item["key"] for p in PROJECTS for item in items[p]).items():
        if times > 1:
            wrong(key, f"is there {times} times")
    if problems:
        return report()

    reasons = {}
    for project in PROJECTS:
        for item in items[project]:
            if check_plan(f"{project}/{item.get('key')}", item):
                check_labels(project, item, by_key)
                reasons[item["key"]] = check_not_broken(project, item, by_key)
        for item, entry, by_rule in differences(project, items[project], everything):
            explained = entry["key"] in item.get("not_broken", []) and item.get("why")
            if by_rule and not explained:
                wrong(f"{project}/{item['key']}", f"`{entry['key']}` matches and is not labelled")
            if "--differences" in sys.argv:
                side = "rule yes, label no " if by_rule else "rule no, label yes"
                print(f"{side}  {item['key']} / {entry['key']}: {item.get('why', '')}")
        if "--sensitive" in sys.argv:
            for item, entry, name, by_rule in sensitive(project, items[project], everything):
                print(f"{project}/{item['key']} / {entry['key']}: {by_rule}, not so if {name}")

    dead = lambda e: not in_force(e)
    table("entries", [("all", count_by(entries, lambda e: True))]
        + [(kind, count_by(entries, lambda e, k=kind: e["kind"] == k)) for kind in KINDS]
        + [
            ("critical prohibition", count_by(
                entries, lambda e: e["kind"] == "prohibition" and e["severity"] == "critical")),
            ("organisation", count_by(entries, lambda e: e["scope"] == "organisation")),
            ("with a pattern", count_by(entries, lambda e: "pattern" in e)),
            ("with actions", count_by(entries, lambda e: "actions" in e)),
            ("expired", count_by(entries, lambda e: e["status"] == "approved" and dead(e))),
        ]
        + [(s, count_by(entries, lambda e, s=s: e["status"] == s)) for s in STATUSES])
    broken = lambda i: bool(i["blockers"] or i["warnings"])
    table("plans", [
        ("all", count_by(items, lambda i: True)),
        ("break a prohibition", count_by(items, broken)),
        ("  with a blocker", count_by(items, lambda i: bool(i["blockers"]))),
        ("only look as if", count_by(items, lambda i: not broken(i) and bool(i.get("not_broken")))),
        ("break one, look as if another", count_by(
            items, lambda i: broken(i) and bool(i.get("not_broken")))),
    ] + [(t, count_by(items, lambda i, t=t: i["task"]["type"] == t)) for t in TYPES])
    table("hard", [(h, count_by(items, lambda i, h=h: i["hard"] == h)) for h in HARD])
    by_reason = {p: Counter(r for i in items[p] for r in reasons.get(i["key"], [])) for p in PROJECTS}
    table("not broken because of", [
        (r, {p: by_reason[p][r] for p in PROJECTS})
        for r in ["negation", "path", "keyword", "pattern", "type", "expired", "scope"]])
    labels = lambda field: {p: sum(len(i[field]) for i in items[p]) for p in PROJECTS}
    table("labels", [(f, labels(f)) for f in ["blockers", "warnings", "relevant"]])
    used = {key for p in PROJECTS for i in items[p]
            for f in ["blockers", "warnings", "relevant"] for key in i[f]}
    table("entries labelled at least once", [
        (kind, count_by(entries, lambda e, k=kind: e["kind"] == k and e["key"] in used))
        for kind in KINDS])
    if "--unused" in sys.argv:
        print([e["key"] for e in everything if in_force(e) and e["key"] not in used])
    for what, have, least in [
        ("entries", len(everything), 330), ("plans", sum(map(len, items.values())), 126),
    ]:
        if have < least:
            wrong(what, f"{have} are fewer than {least}")
    return report()


def report():
    print()
    for problem in problems:
        print("wrong:", problem)
    print(f"{len(problems)} problems" if problems else "no problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
