#!/usr/bin/env python3
"""Builds the documentation site with mdBook, and fails on a broken link.

usage: book.py FOLDER        build the site in FOLDER/site
       book.py check         check the pages without mdBook

docs/SUMMARY.md lists the pages. mdBook reads one folder, and some pages are outside of `docs`: so the pages
are copied first, with their links adjusted. Files that pages link to, such as an example, are copied too.
"""

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SUMMARY = DOCS / "SUMMARY.md"

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
# Served as they are. A browser would offer other files for download.
SERVED = {".json", ".png", ".svg", ".html", ".cast"}


def pages():
    """Pages of the site, in order."""
    found = [(DOCS / link[2]).resolve() for link in LINK.finditer(SUMMARY.read_text(encoding="utf-8"))]
    for page in found:
        if found.count(page) > 1:
            sys.exit(f"docs/SUMMARY.md: lists {page.relative_to(ROOT)} twice")
        if not page.is_file():
            sys.exit(f"docs/SUMMARY.md: lists {page}, which does not exist")
    return found


def unlisted(listed):
    """Pages in `docs` that the summary does not list."""
    return sorted(page for page in DOCS.rglob("*.md") if page not in listed and page != SUMMARY)


def place(path, listed):
    """Path of a page or file in the site."""
    if path in listed:
        name = path.relative_to(DOCS) if DOCS in path.parents else pathlib.Path("repository", path.relative_to(ROOT))
        # mdBook makes index.html of README.md, and would not adjust the links to it.
        return name.with_name("index.md") if name.name == "README.md" else name
    if DOCS in path.parents and path.suffix in SERVED:
        return path.relative_to(DOCS)
    name = pathlib.Path("files", path.relative_to(ROOT))
    # mdBook would make a link to a page of `.md` anywhere in a name.
    return name if path.suffix in SERVED else name.with_name(name.name.removesuffix(".md") + ".txt")


def relative(target, page):
    up = len(page.parts) - 1
    common = 0
    while common < up and common < len(target.parts) - 1 and target.parts[common] == page.parts[common]:
        common += 1
    return "/".join([".."] * (up - common) + list(target.parts[common:]))


def adjust(text, source, to, listed, linked):
    """Text of a page with the links of its place in the site. Adds the files that it links to."""
    def replace(match):
        label, target, fragment = match[1], match[2], match[3] or ""
        label = LINK.sub(replace, label)
        if not target or re.match(r"[a-z]+:", target):
            return f"[{label}]({target}{fragment})"
        path = (source.parent / urllib.parse.unquote(target)).resolve()
        if not path.exists():
            sys.exit(f"{source.relative_to(ROOT)}: links to {target}, which does not exist")
        if path.is_dir():
            # A site has no listings of folders.
            return label
        if path not in listed:
            linked.add(path)
        return f"[{label}]({relative(place(path, listed), to)}{fragment})"

    lines, fence = [], ""
    for line in text.splitlines():
        opening = re.match(r"\s*(`{3,})", line)
        if opening and (not fence or (opening[1] == fence and not line.strip().strip("`"))):
            fence = "" if fence else opening[1]
        lines.append(line if fence or opening else LINK.sub(replace, line))
    return "\n".join(lines) + "\n"


def stage(folder, listed):
    """Writes the source folder of mdBook."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "src").mkdir(parents=True)
    shutil.copy(DOCS / "book.toml", folder / "book.toml")
    linked = set()
    for source, to in [(page, place(page, listed)) for page in listed] + [(SUMMARY, pathlib.Path("SUMMARY.md"))]:
        target = folder / "src" / to
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(adjust(source.read_text(encoding="utf-8"), source, to, listed, linked), encoding="utf-8")
    for path in linked:
        target = folder / "src" / place(path, listed)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return len(linked)


class Page(html.parser.HTMLParser):
    """IDs and links of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def broken_links(site):
    """Links of the site that lead nowhere, as `page: link`."""
    # The page for missing pages has absolute links, because it is served at any address.
    parsed = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    broken, count = [], 0
    for path, page in sorted(parsed.items()):
        for link in sorted(page.links):
            if re.match(r"[a-z]+:|//", link):
                continue
            count += 1
            target, _, fragment = link.partition("#")
            target = urllib.parse.unquote(target.partition("?")[0])
            to = (path.parent / target).resolve() if target else path
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file():
                broken.append(f"{path.relative_to(site)}: {link}: no such page")
            elif fragment and to in parsed and urllib.parse.unquote(fragment) not in parsed[to].ids:
                broken.append(f"{path.relative_to(site)}: {link}: no such heading")
    return broken, count


def check():
    """Returns the pages, or exits with what is wrong with the summary."""
    listed = pages()
    missing = unlisted(listed)
    if missing:
        sys.exit("docs/SUMMARY.md: does not list " + ", ".join(str(page.relative_to(ROOT)) for page in missing))
    return listed


def build(folder):
    listed = check()
    source, site = folder / "site-source", (folder / "site").resolve()
    files = stage(source, listed)
    if shutil.which("mdbook") is None:
        sys.exit("mdbook is not installed: run `just setup`")
    shutil.rmtree(site, ignore_errors=True)
    done = subprocess.run(["mdbook", "build", source, "--dest-dir", site], capture_output=True, text=True)
    # A warning is an error: mdBook warns about an unclosed tag or a missing file, and goes on.
    if done.returncode or re.search(r"\b(WARN|ERROR)\b", done.stdout + done.stderr):
        sys.exit(f"mdbook failed:\n{done.stdout}{done.stderr}")
    broken, count = broken_links(site)
    if broken:
        sys.exit("\n".join(broken) + f"\nsite: {len(broken)} broken links")
    print(f"site: {len(listed)} pages, {files} linked files, {count} links, 0 broken: {site}/index.html")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check"]:
            print(f"site: {len(check())} pages")
        case [folder]:
            build(pathlib.Path(folder))
        case _:
            sys.exit(__doc__)
