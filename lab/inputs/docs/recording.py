"""Recordings for the pages.

Of the terminal: an asciicast, for players, and an animated SVG. tmux runs the commands. Its screen is captured
ten times a second, with colours. Pauses are shortened, and nothing else is changed except the folder of the
experiment.

Of the browser: an animated PNG of screenshots. A video would need Playwright's own ffmpeg, which is a download
of its own; a PNG needs nothing, and browsers and forges show it like a picture.
"""

import html
import json
import pathlib
import re
import struct
import subprocess
import time
import zlib

COLUMNS, ROWS = 100, 30
LONGEST_PAUSE = 1.5
LAST_FRAME = 4
PATIENCE = 60

# Width and height of a character, in pixels.
WIDTH, HEIGHT = 8.4, 19
COLOURS = {
    "30": "#6e7681", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea", "37": "#e6edf3",
    "90": "#8b949e", "91": "#ffa198", "92": "#aff5b4", "93": "#f2cc60", "94": "#a5d6ff", "95": "#e2c5ff", "96": "#b3f0ff", "97": "#ffffff",
}
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def write_all(world, pictures):
    write_browser(world, pictures)
    write_terminal(world, pictures)


def write_terminal(world, pictures):
    """Records the first half of the tutorial."""
    screen = Screen(world, "stopped")
    try:
        screen.type("mkdir example && cd example", r"\$ $")
        screen.type("tamma try", r"delete \S+/example\n\$ $")
        task = re.search(r"Added ([0-9a-f]{8})", screen.everything())[1]
        screen.hold(2)
        screen.type("clear", r"^\$ $")
        screen.type(f"tamma approve {task}", r"\?.*\[.*\] ?$")
        screen.hold(2)
        screen.type("y", r"task watch \w+`?\n\$ $")
        screen.hold(1)
        screen.type("clear", r"^\$ $")
        screen.type(f"tamma task watch {task}", r"Branch ready.*\n\$ $")
        screen.hold(1)
        branch = re.search(r"git show (tamma/\S+)", screen.everything())[1]
        screen.type(f"git merge --quiet {branch}", r"\$ $")
        screen.type("sh greet.sh Ada", r"Hello, Ada!\n\$ $")
        screen.hold(1)
    finally:
        screen.close()
    frames = shortened(screen.frames)
    title = "tamma try"
    (pictures / "tutorial.cast").write_text(cast(frames, title), encoding="utf-8")
    (pictures / "tutorial.svg").write_text(svg(frames, title), encoding="utf-8")
    print(f"recorded {len(frames)} frames of {frames[-1][0] + LAST_FRAME:.0f} s: docs/pictures/tutorial.svg, tutorial.cast")


def write_browser(world, pictures):
    """Records the same task in a browser."""
    session = world.session("stopped")
    output = session.expect("tamma try example")
    link = re.search(r"http://127\.0\.0\.1:\d+/hello\?\S+", output)[0]
    folder = session.home / "frames"
    script = world.root / "lab/inputs/browser/recording.mjs"
    subprocess.run(["node", script, link, folder], check=True, timeout=2 * PATIENCE)
    session.close()
    shots = [(folder / line["file"], line["seconds"]) for line in json.loads((folder / "frames.json").read_text())]
    (pictures / "tutorial.png").write_bytes(animated_png(shots))
    print(f"recorded {len(shots)} pages: docs/pictures/tutorial.png")


def animated_png(shots):
    """Joins PNG files of one size. Their compressed pixels stay as they are."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def chunks(path):
        data, at = path.read_bytes(), 8
        while at < len(data):
            length = struct.unpack(">I", data[at:at + 4])[0]
            yield data[at + 4:at + 8], data[at + 8:at + 8 + length]
            at += length + 12

    frames = [(list(chunks(pathlib.Path(path))), seconds) for path, seconds in shots]
    header = frames[0][0][0][1]
    if any(parts[0][1] != header for parts, _ in frames):
        raise ValueError("the screenshots differ in size or format")
    width, height = struct.unpack(">II", header[:8])
    out = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    number = 0
    for index, (parts, seconds) in enumerate(frames):
        control = struct.pack(">IIIIIHHBB", number, width, height, 0, 0, round(seconds * 1000), 1000, 0, 0)
        out.append(chunk(b"fcTL", control))
        number += 1
        for kind, data in parts:
            if kind == b"IDAT" and index == 0:
                out.append(chunk(b"IDAT", data))
            elif kind == b"IDAT":
                out.append(chunk(b"fdAT", struct.pack(">I", number) + data))
                number += 1
    return b"".join([*out, chunk(b"IEND", b"")])


class Screen:
    """Shell in a terminal of tmux, and the frames that were captured of it."""

    def __init__(self, world, setup):
        self.session = world.session(setup)
        self.socket = str(self.session.home / "tmux")
        self.frames, self.seen, self.start = [], "", time.monotonic()
        env = {name: value for name, value in self.session.env.items() if name != "NO_COLOR"}
        self.env = env | {"PS1": "$ ", "COLORTERM": "truecolor"}
        self.tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "bash", "--norc", "--noprofile")
        self.tmux("set", "-g", "status", "off")
        self.wait(r"^\$ $")

    def tmux(self, *arguments):
        command = ["tmux", "-u", "-f", "/dev/null", "-S", self.socket, *arguments]
        return subprocess.run(command, cwd=self.session.home, env=self.env, capture_output=True, text=True, check=True).stdout

    def capture(self):
        """Adds a frame if the screen has changed, and returns its text."""
        lines = [self.shown(line) for line in self.tmux("capture-pane", "-p", "-e").split("\n")[:ROWS]]
        if not self.frames or self.frames[-1][1] != lines:
            self.frames.append((time.monotonic() - self.start, lines))
        text = "\n".join(SGR.sub("", line).rstrip() for line in lines).rstrip("\n")
        # A prompt ends with a space, which a row of the screen does not keep.
        return re.sub(r"(^|\n)\$$", r"\1$ ", text)

    def shown(self, line):
        return line.replace(str(self.session.home), "/home/grace")

    def everything(self):
        return self.tmux("capture-pane", "-p", "-S", "-200")

    def wait(self, pattern):
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.capture()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no `{pattern}` on the screen:\n{self.capture()}")
            time.sleep(0.1)

    def type(self, text, until):
        for at in range(0, len(text), 3):
            self.tmux("send-keys", "-l", "--", text[at:at + 3])
            time.sleep(0.05)
            self.capture()
        time.sleep(0.3)
        before = self.capture()
        self.tmux("send-keys", "Enter")
        deadline = time.monotonic() + PATIENCE
        # The screen before the command can have the text already.
        while self.capture() == before and time.monotonic() < deadline:
            time.sleep(0.05)
        self.wait(until)

    def hold(self, seconds):
        """Leaves time to read."""
        self.start -= seconds
        self.frames.append((time.monotonic() - self.start, self.frames[-1][1]))

    def close(self):
        self.tmux("kill-server")
        self.session.close()


def shortened(frames):
    """Frames from 0 s on, without long pauses."""
    result, now, before = [], 0.0, frames[0][0]
    for at, lines in frames:
        now += min(at - before, LONGEST_PAUSE)
        before = at
        if not result or result[-1][1] != lines:
            result.append((now, lines))
    return result


def cast(frames, title):
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": title}
    events, before = [], [""] * ROWS
    for at, lines in frames:
        changed = (f"\x1b[{row + 1}H\x1b[0m{line}\x1b[0m\x1b[K" for row, line in enumerate(lines) if line != before[row])
        events.append([round(at, 3), "o", "".join(changed)])
        before = lines
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in [header, *events]) + "\n"


def runs(line):
    """Parts of a row with one style: (column, text, style)."""
    found, column, end = [], 0, 0
    colour, bold, dim = None, False, False

    def add(text):
        nonlocal column
        if text.strip():
            lead = len(text) - len(text.lstrip())
            style = f' fill="{colour}"' if colour else ""
            style += ' font-weight="bold"' if bold else ""
            style += ' opacity="0.65"' if dim else ""
            found.append((column + lead, text.strip(), style))
        column += len(text)

    for match in SGR.finditer(line):
        add(line[end:match.start()])
        end = match.end()
        for code in match[1].split(";"):
            if code in ("", "0"):
                colour, bold, dim = None, False, False
            elif code == "1":
                bold = True
            elif code == "2":
                dim = True
            elif code == "22":
                bold = dim = False
            elif code == "39":
                colour = None
            elif code in COLOURS:
                colour = COLOURS[code]
    add(line[end:])
    return found


def svg(frames, title):
    """Each row is drawn once for each time in which it does not change, and is visible for that time."""
    total = frames[-1][0] + LAST_FRAME
    spans = {}
    for row in range(ROWS):
        began = 0
        for i in range(1, len(frames) + 1):
            line = frames[began][1][row]
            if i == len(frames) or frames[i][1][row] != line:
                if SGR.sub("", line).strip():
                    end = total if i == len(frames) else frames[i][0]
                    spans.setdefault((frames[began][0], end), []).append((row, line))
                began = i
    rules, groups = [], []
    for number, ((start, end), rows) in enumerate(sorted(spans.items())):
        steps = ["0%{visibility:hidden}"] if start else []
        steps.append(f"{100 * start / total:.2f}%{{visibility:visible}}")
        steps += [f"{100 * end / total:.2f}%{{visibility:hidden}}"] if end < total else []
        rules.append(f"@keyframes k{number}{{{''.join(steps)}}}.f{number}{{animation-name:k{number}}}")
        texts = []
        for row, line in rows:
            for column, text, style in runs(line):
                place = f'x="{16 + column * WIDTH:.1f}" y="{28 + row * HEIGHT}" textLength="{len(text) * WIDTH:.1f}"'
                texts.append(f"<text {place}{style}>{html.escape(text)}</text>")
        last = " last" if end == total else ""
        groups.append(f'<g class="f{last} f{number}">{"".join(texts)}</g>')
    width, height = 32 + COLUMNS * WIDTH, 32 + ROWS * HEIGHT
    style = (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}"
        f".f{{visibility:hidden;animation:{total:.2f}s step-end infinite}}"
        # Later rules of the same weight win, so this one names its element, too.
        "@media(prefers-reduced-motion:reduce){g.f{animation:none}g.last{visibility:visible}}"
    )
    # A colour of a part overrides that of the style sheet only as a style.
    body = "\n".join(groups).replace(' fill="', ' style="fill:')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{html.escape(title)}">\n'
        f'<style>{style}\n{chr(10).join(rules)}</style>\n<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n{body}\n</svg>\n'
    )
