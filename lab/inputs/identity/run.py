#!/usr/bin/env python3
"""Signs people in with two real identity providers, takes their groups away, and logs them out.

oidc-provider is a certified implementation of the protocol; canaille is a directory that a company could
run. Browsers are followed by hand: redirects, forms and cookies, as a browser without JavaScript.
usage: run.py <program folder> [--quick]    (quick: oidc-provider only)
"""

import datetime
import html
import http.cookiejar
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
QUICK = "--quick" in sys.argv
HERE = pathlib.Path(__file__).resolve().parent
SHOP = HERE.parents[1] / "demo" / "shop.sh"
MATRIX = HERE.parents[2] / "crates" / "server" / "tests" / "server" / "access_matrix.txt"
LIMIT = 60  # Seconds within which access must be gone.
SECRET = "a-secret-of-the-experiment"
PASSWORD = "correct-horse-battery-7"
REFUSALS = (
    "does not have the", "Only an operator of", "Cannot find task `", "Cannot find pipeline `",
    "Cannot find project `", "Cannot find entry `", "does not support",
)

failures: list[str] = []


def check(passed: bool, text: str) -> bool:
    print(f"{'✓' if passed else '✗'} {text}", flush=True)
    if not passed:
        failures.append(text)
    return passed


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def wait(text: str, done, seconds: float = 30) -> float:
    """Waits for a condition and returns the seconds it took."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        if done():
            return time.monotonic() - start
        time.sleep(0.2)
    raise TimeoutError(f"{text} took longer than {seconds} s")


class Answer:
    def __init__(self, status: int, url: str, text: str, headers) -> None:
        self.status, self.url, self.text, self.headers = status, url, text, headers

    def json(self):
        return json.loads(self.text)

    @property
    def denied(self) -> bool:
        to = self.headers.get("location") or ""
        refused = any(it in self.text for it in REFUSALS)
        return self.status in (401, 403, 405) or to.startswith("/hello?") or refused


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Browser:
    """Cookies of one browser, at Tamma and at the providers."""

    def __init__(self) -> None:
        self.jar = http.cookiejar.CookieJar()
        processor = urllib.request.HTTPCookieProcessor(self.jar)
        self.opener = urllib.request.build_opener(processor, NoRedirect, urllib.request.ProxyHandler({}))

    def send(self, method: str, url: str, data: bytes | None = None, headers=None) -> Answer:
        request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
        try:
            response = self.opener.open(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            text = response.read().decode(errors="replace")
            return Answer(response.status, url, text, response.headers)

    def follow(self, answer: Answer) -> Answer:
        while answer.status in (301, 302, 303, 307):
            answer = self.send("GET", urllib.parse.urljoin(answer.url, answer.headers["location"]))
        return answer

    def get(self, url: str) -> Answer:
        return self.follow(self.send("GET", url))

    def submit(self, answer: Answer, fill: dict[str, str]) -> Answer:
        """Submits the first form that is sent by POST, with the given values in its fields."""
        for attributes, body in re.findall(r"<form([^>]*)>(.*?)</form>", answer.text, re.S):
            if 'method="post"' not in attributes.lower():
                continue
            fields: dict[str, str] = {}
            for tag in re.findall(r"<(?:input|button)[^>]*>", body, re.S):
                name = re.search(r'\bname="([^"]+)"', tag)
                value = re.search(r'\bvalue="([^"]*)"', tag)
                if name and name.group(1) not in fields:
                    fields[name.group(1)] = html.unescape(value.group(1)) if value else ""
            fields.update({name: value for name, value in fill.items() if name in fields})
            action = re.search(r'\baction="([^"]*)"', attributes)
            target = html.unescape(action.group(1)) if action else ""
            data = urllib.parse.urlencode(fields).encode()
            kind = {"content-type": "application/x-www-form-urlencoded"}
            return self.follow(self.send("POST", urllib.parse.urljoin(answer.url, target), data, kind))
        raise ValueError(f"no form at {answer.url}: {answer.text[:300]}")

    def pass_provider(self, answer: Answer, person: str, done) -> Answer:
        """Signs in and consents at a provider until `done`."""
        for _ in range(8):
            if done(answer):
                return answer
            consents = 'value="accept"' in answer.text
            fill = {"login": person, "password": PASSWORD} | ({"answer": "accept"} if consents else {})
            answer = self.submit(answer, fill)
        raise ValueError(f"the sign-in does not end: {answer.url}")

    def sign_in(self, tamma: str, provider: str, person: str) -> Answer:
        answer = self.get(f"{tamma}/sign-in/{provider}?to=%2Fprojects")
        return self.pass_provider(answer, person, lambda it: it.url.startswith(tamma))


class Stream(threading.Thread):
    """Open event stream, which notes when it ends."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.request = urllib.request.Request(url, headers={"accept": "text/event-stream", **headers})
        self.opened, self.ended = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.request, timeout=120) as response:
                self.opened.set()
                while response.readline():
                    pass
        except (OSError, urllib.error.HTTPError):
            pass
        self.ended.set()


class Tamma:
    def __init__(self, folder: pathlib.Path, url: str) -> None:
        self.folder, self.url, self.http = folder, url, Browser()
        self.program = str(PROGRAMS / "tamma")

    def env(self, person: str) -> dict[str, str]:
        """Environment of a person who has nothing but the address of the server."""
        home = self.folder / "homes" / person
        home.mkdir(parents=True, exist_ok=True)
        return {
            "PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8",
            "TAMMA_DATA": str(home / "data"), "TAMMA_URL": self.url, "TAMMA_PERSON": person,
        }

    def cli(self, person: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.program, *arguments], env=self.env(person), cwd=self.folder, input=text,
            capture_output=True, text=True, check=False, timeout=60,
        )

    def api(self, method: str, path: str, token: str | None, body=None) -> Answer:
        headers = {"tamma-person": "Grace", "accept": "application/json, text/event-stream"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data, headers["content-type"] = json.dumps(body).encode(), "application/json"
        return self.http.send(method, f"{self.url}{path}", data, headers)

    def tool(self, token: str | None, name: str, arguments: dict) -> Answer:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        return self.api("POST", "/mcp", token, message)

    def device_token(self, provider: str, person: str, browser: Browser) -> str:
        """Signs in a device without the command line."""
        started = self.api("POST", f"/sign-in/{provider}/device", None, {"client": "experiment"}).json()
        confirm_device(browser, started["verification_uri_complete"], person)
        for _ in range(30):
            answer = self.api("POST", f"/sign-in/{provider}/device/token", None, {"secret": started["secret"]})
            if answer.status == 200:
                return answer.json()["token"]
            if answer.status != 202:
                raise ValueError(f"{person}: {answer.text}")
            time.sleep(1)
        raise TimeoutError("the device was not signed in")


def confirm_device(browser: Browser, url: str, person: str) -> None:
    browser.pass_provider(browser.get(url), person, lambda it: "Sign-in Success" in it.text)


def set_groups(issuer: str, person: str, groups: list[str]) -> None:
    answer = Browser().send("PUT", f"{issuer}/people/{person}", json.dumps(groups).encode())
    assert answer.status == 204, answer.text


def start_protocol(folder: pathlib.Path, port: int, tamma: str) -> subprocess.Popen:
    log = (folder / "protocol.log").open("w")
    node = subprocess.Popen(["node", HERE / "provider.mjs", str(port), tamma], stdout=log, stderr=log)
    issuer = f"http://127.0.0.1:{port}"
    wait("the start of oidc-provider", lambda: answers(f"{issuer}/.well-known/openid-configuration"))
    return node


def answers(url: str) -> bool:
    try:
        return Browser().send("GET", url).status == 200
    except OSError:
        return False


class Directory:
    """canaille with its command line, as its administrator uses it."""

    def __init__(self, folder: pathlib.Path, port: int, tamma: str) -> None:
        self.folder, self.issuer = folder / "canaille", f"http://127.0.0.1:{port}"
        self.folder.mkdir()
        self.bin = pathlib.Path(sys.executable).parent
        self.env = {**os.environ, "CANAILLE_CONFIG": str(self.folder / "canaille.toml")}
        key = json.loads(self.run("jwk", "create", "rsa"))
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in key.items())
        (self.folder / "canaille.toml").write_text(
            f'SECRET_KEY = "{SECRET}"\nSERVER_NAME = "127.0.0.1:{port}"\nPREFERRED_URL_SCHEME = "http"\n'
            f'[CANAILLE]\nJAVASCRIPT = false\n[CANAILLE_SQL]\nDATABASE_URI = "sqlite:///{self.folder}/db.sqlite"\n'
            f"[CANAILLE_OIDC]\nACTIVE_JWKS = [{{ {pairs} }}]\n"
        )
        self.run("install")
        for person in ("ada", "lin", "kim"):
            self.run(
                "create", "user", "--user-name", person, "--family-name", person, "--formatted-name", person,
                "--emails", f"{person}@example.org", "--password", PASSWORD,
            )
        self.run("create", "group", "--display-name", "leads", "--members", "lin")
        scopes = [word for scope in ("openid", "profile", "groups", "offline_access") for word in ("--scope", scope)]
        grants = ["--grant-types", "authorization_code", "--grant-types", "refresh_token"]
        self.run(
            "create", "client", "--client-id", "tamma", "--client-secret", SECRET, "--client-name", "Tamma",
            "--redirect-uris", f"{tamma}/sign-in/directory/callback", "--response-types", "code",
            "--token-endpoint-auth-method", "client_secret_basic", *grants, *scopes,
        )
        # Without it, its tokens are for nobody, and Tamma refuses them.
        self.run("set", "client", "tamma", "--audience", "tamma")
        log = (self.folder / "log").open("w")
        command = [self.bin / "hypercorn", "canaille:create_app()", "--bind", f"127.0.0.1:{port}"]
        self.server = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        wait("the start of canaille", lambda: answers(f"{self.issuer}/.well-known/openid-configuration"))

    def run(self, *arguments: str) -> str:
        command = [self.bin / "canaille", *arguments]
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"canaille {arguments[:2]}: {done.stderr[-500:]}")
        return done.stdout


def has_page(browser: Browser, tamma: Tamma) -> bool:
    answer = browser.send("GET", f"{tamma.url}/projects")
    return answer.status == 200


def session_header(browser: Browser) -> dict[str, str]:
    cookies = [cookie for cookie in browser.jar if cookie.name == "tamma"]
    return {"cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in cookies)}


def check_sign_in(tamma: Tamma, issuer: str) -> Browser:
    set_groups(issuer, "eve", ["staff"])
    answer = Browser().sign_in(tamma.url, "protocol", "eve")
    check(answer.status == 403 and "has a role here" in answer.text, "nobody gets in without a group that has a role")
    people = tamma.api("GET", "/api/v1/people", tamma.token).json()
    check("eve" not in json.dumps(people), "and nothing is made for them")
    set_groups(issuer, "ada", ["leads"])
    browser = Browser()
    answer = browser.sign_in(tamma.url, "protocol", "ada")
    check(answer.status == 200 and "Signed in" in answer.text, "ada signs in with oidc-provider")
    check(has_page(browser, tamma), "and sees the pages")
    names = [cookie.name for cookie in browser.jar if "tamma" in cookie.name]
    check(names == ["tamma"], "the cookie of the sign-in is gone")
    account = browser.get(f"{tamma.url}/account").text
    check("identity provider" in account, "her account page lists the session")
    # A code that was meant for another browser.
    thief, victim = Browser(), Browser()
    stolen = victim.send("GET", f"{tamma.url}/sign-in/protocol")
    state = urllib.parse.parse_qs(urllib.parse.urlparse(stolen.headers["location"]).query)["state"][0]
    thief.send("GET", f"{tamma.url}/sign-in/protocol")
    answer = thief.send("GET", f"{tamma.url}/sign-in/protocol/callback?code=x&state={state}")
    check(answer.status == 403 and "not started in this browser" in answer.text, "a sign-in cannot be finished in another browser")
    return browser


def check_device(tamma: Tamma, browser: Browser) -> None:
    login = subprocess.Popen(
        [tamma.program, "login", "--provider", "protocol", "--json"], env=tamma.env("ada"), cwd=tamma.folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    first, second = login.stderr.readline(), login.stderr.readline()
    check("enter the code" in first, "`tamma login` shows an address and a code")
    confirm_device(browser, second.split("or open ", 1)[1].strip(), "ada")
    out, error = login.communicate(timeout=60)
    check(login.returncode == 0 and json.loads(out)["person"] == "ada", f"ada is signed in on the command line {error.strip()}")
    saved = tamma.folder / "homes" / "ada" / "data" / "logins.json"
    check(saved.stat().st_mode & 0o077 == 0, "only she can read the login")
    check(tamma.cli("ada", "task", "list").returncode == 0, "`tamma task list` works")
    check(mcp_works(tamma, "ada"), "`tamma mcp` works")


def mcp_works(tamma: Tamma, person: str) -> bool:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_tasks", "arguments": {}}}
    done = tamma.cli(person, "mcp", text=json.dumps(message) + "\n")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    return any("result" in line and not line["result"].get("isError") for line in lines)


def check_removal(tamma: Tamma, remove, browser: Browser, provider: str, person: str, cli: bool) -> str:
    """Takes the group of a person away, and waits until each interface refuses them."""
    streams = {"stream of a page": Stream(f"{tamma.url}/live/board", session_header(browser))}
    if cli:
        token = json.loads((tamma.folder / "homes" / person / "data" / "logins.json").read_text())[tamma.url]["token"]
        url = f"{tamma.url}/api/v1/tasks/{tamma.task}/events"
        streams["stream of the API"] = Stream(url, {"authorization": f"Bearer {token}"})
    for name, stream in streams.items():
        check(stream.opened.wait(10), f"{name} is open")
    remove()
    start, left, took = time.monotonic(), {"pages", *streams}, {}
    if cli:
        left |= {"command line", "MCP"}
    while left and time.monotonic() - start < LIMIT:
        gone = {
            "pages": lambda: not has_page(browser, tamma),
            "command line": lambda: tamma.cli(person, "task", "list").returncode != 0,
            "MCP": lambda: not mcp_works(tamma, person),
        }
        for name in sorted(left):
            if streams[name].ended.is_set() if name in streams else gone[name]():
                left.discard(name)
                took[name] = time.monotonic() - start
        time.sleep(0.5)
    shown = ", ".join(f"{name} after {seconds:.0f} s" for name, seconds in took.items())
    check(not left, f"{provider}: group removed, access gone in {shown}{f'; still there: {left}' if left else ''}")
    return f"{max(took.values(), default=LIMIT):.0f} s"


def check_logout(tamma: Tamma, issuer: str) -> None:
    set_groups(issuer, "ada", ["leads"])
    browser = Browser()
    browser.sign_in(tamma.url, "protocol", "ada")
    check(has_page(browser, tamma), "with her group back, ada signs in again")
    # The page at the provider, not one of ours.
    page = browser.get(f"{issuer}/session/end")
    data = dict(re.findall(r'name="(xsrf)"[^>]*value="([^"]*)"', page.text)) | {"logout": "yes"}
    kind = {"content-type": "application/x-www-form-urlencoded"}
    browser.send("POST", f"{issuer}/session/end/confirm", urllib.parse.urlencode(data).encode(), kind)
    took = wait("the end of the session", lambda: not has_page(browser, tamma), 20)
    check(took < 10, f"a logout at the provider ends the session within {took:.1f} s")
    forged = tamma.http.send("POST", f"{tamma.url}/sign-in/protocol/logout", b"logout_token=eyJhbGciOiJub25lIn0.e30.", kind)
    check(forged.status == 400, "a forged logout is refused")


def check_accounts(tamma: Tamma, issuer: str) -> None:
    set_groups(issuer, "dan", ["leads"])
    browser = Browser()
    browser.sign_in(tamma.url, "protocol", "dan")
    token = tamma.device_token("protocol", "dan", browser)
    def create(label: str, seconds: int) -> str:
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        new = {"label": label, "role": "viewer", "expires_at": end.isoformat()}
        return tamma.api("POST", "/api/v1/tokens", token, new).json()["secret"]

    secret, brief = create("ci", 3600), create("brief", 5)
    check(not tamma.api("GET", "/api/v1/tasks", brief).denied, "a token that expires in 5 s works")
    took = wait("the end of the token", lambda: tamma.api("GET", "/api/v1/tasks", brief).status == 401, 15)
    check(took < 8, f"and is refused after {took:.0f} s")
    check(not tamma.api("GET", "/api/v1/tasks", secret).denied, "a token with a limit reads")
    denied = tamma.api("POST", "/api/v1/tasks", secret, {"project": "shop", "title": "No"}).denied
    check(denied, "and does nothing else, although its owner decides")
    more = tamma.api("POST", "/api/v1/tokens", secret, {"label": "more"})
    check(more.status == 409, "it cannot create another token")
    listed = tamma.api("GET", "/api/v1/tokens", token).json()["tokens"]
    used = [it for it in listed if it["label"] == "ci" and it.get("last_used_at") and it.get("expires_at")]
    check(len(used) == 1, "the list of tokens has its last use and its end")
    sessions = tamma.api("GET", "/api/v1/sessions", token).json()["sessions"]
    check({it["kind"] for it in sessions} == {"web", "cli"}, "the list of sessions has the browser and the device")
    web = next(it["id"] for it in sessions if it["kind"] == "web")
    tamma.api("POST", "/api/v1/sessions/revocations", token, {"id": web})
    check(not has_page(browser, tamma), "a revoked session ends at once")
    browser.sign_in(tamma.url, "protocol", "dan")
    token = tamma.device_token("protocol", "dan", browser)
    stream = Stream(f"{tamma.url}/live/board", session_header(browser))
    stream.opened.wait(10)
    done = tamma.operator("person", "deactivate", "dan")
    check(done.returncode == 0, "an operator deactivates dan")
    ended = stream.ended.wait(5)
    check(ended and not has_page(browser, tamma), "pages and streams end at once")
    both = [tamma.api("GET", "/api/v1/tasks", it).status for it in (token, secret)]
    check(both == [401, 401], "so do the login and the token")
    answer = browser.sign_in(tamma.url, "protocol", "dan")
    check(answer.status == 403 and "deactivated" in answer.text, "and he cannot sign in again")
    robot = json.loads(tamma.operator("person", "add", "robot", "--service", "--json").stdout)["token"]
    check(tamma.api("GET", "/api/v1/tasks", robot).denied, "a service account has no role until one is granted")
    tamma.operator("access", "grant", "robot", "--role", "viewer", "--project", "shop")
    check(not tamma.api("GET", "/api/v1/tasks", robot).denied, "then its token works")


def check_refresh(tamma: Tamma, issuer: str) -> None:
    set_groups(issuer, "ann", ["leads"])
    browser = Browser()
    browser.sign_in(tamma.url, "protocol", "ann")
    time.sleep(50)
    check(has_page(browser, tamma), "a session outlives the access token of the provider, which is refreshed")


def check_matrix(tamma: Tamma, issuer: str) -> str:
    """Repeats the access matrix of the server's tests with people whose roles come from groups."""
    callers = ["nobody", "other", "viewer", "member", "approver", "operator"]
    tokens, browsers = {"operator": tamma.token}, {}
    for person in callers[1:5]:
        set_groups(issuer, person, [f"{person}s"])
        browsers[person] = Browser()
        browsers[person].sign_in(tamma.url, "protocol", person)
        tokens[person] = tamma.device_token("protocol", person, browsers[person])
    query = f"?project=shop&task={tamma.task}"
    queries = {
        "GET /api/v1/export task": query, "GET /api/v1/audit task": query, "GET /api/v1/permissions": query,
        "GET /api/v1/access/check": f"?person=viewer&action=approve&task={tamma.task}",
    }
    bodies = {
        "POST /api/v1/tasks": {"project": "shop", "title": "Matrix"},
        "POST /api/v1/people": {"name": "friend"},
        "POST /api/v1/people/deactivations": {"name": "a stranger"},
        "POST /api/v1/people/activations": {"name": "a stranger"},
        "POST /api/v1/access": {"project": "shop", "person": "Zoe", "role": "viewer"},
        "POST /api/v1/projects": {"name": "third", "repository": "/third"},
        "POST /api/v1/tokens": {"label": "matrix"},
        "POST /api/v1/sessions/revocations": {"id": "none"},
        "POST /api/v1/sign-in-links": {},
        "POST /codec/decode": {"payloads": []},
    }
    arguments = {
        "list_tasks": {}, "show_agents": {}, "show_permissions": {"project": "shop"},
        "show_task": {"task": tamma.task}, "read_events": {"task": tamma.task},
    }
    requests, wrong = 0, []
    for line in MATRIX.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        what, cells = line.split("  ", 1)
        method, path, *variant = what.split(" ")
        path = path.replace("/tasks/{id}", f"/tasks/{tamma.task}")
        is_stream = path.endswith(("/events", "/stream")) or path.startswith("/live/")
        is_page = not path.startswith(("/api/", "/mcp")) and method == "GET"
        skipped = "{" in path or is_stream or path.startswith(("/assets", "/hello", "/sign-in"))
        for caller, cell in zip(callers, cells.split(), strict=True):
            if method == "tool" and path in arguments:
                answer = tamma.tool(tokens.get(caller), path, arguments[path])
            elif skipped or (is_page and caller == "operator"):
                continue
            elif method == "GET" and is_page and not variant:
                answer = browsers.get(caller, Browser()).send("GET", f"{tamma.url}{path}")
            elif what in bodies:
                answer = tamma.api("POST", path, tokens.get(caller), bodies[what])
            elif method == "GET" and not is_page and (not variant or what in queries):
                answer = tamma.api("GET", path + queries.get(what, ""), tokens.get(caller))
            else:
                continue
            requests += 1
            if answer.denied == (cell == "yes"):
                wrong.append(f"{what} as {caller}: {cell}, got {answer.status} {answer.text[:200]}")
    for line in wrong:
        print(f"  {line}")
    check(not wrong and requests > 150, f"access matrix through groups: {requests} requests, {len(wrong)} unexpected")
    return f"{requests} requests of the access matrix"


def check_directory(tamma: Tamma, directory: Directory) -> str:
    answer = Browser().sign_in(tamma.url, "directory", "kim")
    check(answer.status == 403 and "has a role here" in answer.text, "canaille: nobody gets in without a group")
    browser = Browser()
    answer = browser.sign_in(tamma.url, "directory", "lin")
    check(answer.status == 200 and has_page(browser, tamma), "canaille: lin signs in")
    directory.run("set", "group", "leads", "--members", "lin", "--members", "ada")
    answer = Browser().sign_in(tamma.url, "directory", "ada")
    check(answer.status == 403 and "already in use" in answer.text, "another provider cannot take the name ada")
    done = tamma.operator("person", "link", "ada", "--provider", "directory", "--subject", "ada")
    check(done.returncode == 0, f"an operator links it {done.stderr.strip()}")
    # canaille cannot issue two access tokens to one person within a second: they are the same JWT.
    linked = Browser()
    wait("ada's second sign-in", lambda: linked.sign_in(tamma.url, "directory", "ada").status == 200)
    check(has_page(linked, tamma), "then ada signs in with both")

    def remove() -> None:
        directory.run("set", "group", "leads", "--members", "kim")

    return check_removal(tamma, remove, browser, "canaille", "lin", cli=False)


def main() -> int:
    start = time.monotonic()
    figures, processes = [], []
    with tempfile.TemporaryDirectory(prefix="tamma-identity-") as name:
        folder = pathlib.Path(name)
        port, protocol, directory_port = free_port(), free_port(), free_port()
        tamma = Tamma(folder, f"http://127.0.0.1:{port}")
        issuer = f"http://127.0.0.1:{protocol}"
        try:
            processes.append(start_protocol(folder, protocol, tamma.url))
            directory = None
            if not QUICK:
                directory = Directory(folder, directory_port, tamma.url)
                processes.append(directory.server)
            processes.append(start_tamma(tamma, issuer, directory))
            browser = check_sign_in(tamma, issuer)
            check_device(tamma, browser)
            took = check_removal(
                tamma, lambda: set_groups(issuer, "ada", ["staff"]), browser, "oidc-provider", "ada", cli=True
            )
            figures.append(f"access gone {took} after the group (oidc-provider)")
            check_logout(tamma, issuer)
            if not QUICK:
                check_accounts(tamma, issuer)
                check_refresh(tamma, issuer)
                figures.append(f"{check_directory(tamma, directory)} (canaille)")
            figures.append(check_matrix(tamma, issuer))
        except Exception as error:  # noqa: BLE001
            failures.append(f"{type(error).__name__}: {error}")
        finally:
            if failures:
                print_logs(folder)
            for process in reversed(processes):
                process.terminate()
                process.wait()
    for failure in failures:
        print(f"✗ {failure}")
    seconds = f"{time.monotonic() - start:.0f} s"
    result = f"{len(failures)} failures" if failures else ", ".join(figures)
    print(f"identity: {result}, in {seconds}")
    return 1 if failures else 0


def print_logs(folder: pathlib.Path) -> None:
    """Prints the warnings of the server and the end of the logs of the providers."""
    if (folder / "log").exists():
        lines = (folder / "log").read_text().splitlines()
        print("\n".join([line for line in lines if "INFO" not in line][-40:]), file=sys.stderr)
    for log in ("protocol.log", "canaille/log"):
        if (folder / log).exists():
            print((folder / log).read_text()[-2000:], file=sys.stderr)


def start_tamma(tamma: Tamma, issuer: str, directory: Directory | None) -> subprocess.Popen:
    folder = tamma.folder
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "TAMMA_DATA": str(folder / "data"),
        "TAMMA_LISTEN": tamma.url.removeprefix("http://"), "TAMMA_PERSON": "Grace",
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"), "TAMMA_OIDC_DIRECTORY_SECRET": SECRET,
        "TAMMA_LOG": "warn,tamma_server=info",
    }
    (folder / "gitconfig").write_text("[user]\n\tname = Grace\n\temail = grace@example.org\n")
    subprocess.run(["bash", SHOP, folder, PROGRAMS], env=env, check=True)
    roles = "\n".join(
        f"        - {{ group: {group}, role: {role}, projects: [{project}] }}"
        for group, role, project in (
            ("viewers", "viewer", "shop"), ("members", "member", "shop"), ("approvers", "approver", "shop"),
            ("others", "member", "elsewhere"), ("leads", "approver", "shop"),
        )
    )
    second = f"""
    - name: directory
      issuer: {directory.issuer}
      client_id: tamma
      secret_variable: TAMMA_OIDC_DIRECTORY_SECRET
      name_claim: name
      roles:
        - {{ group: leads, role: member }}
""" if directory else ""
    with (folder / "data" / "operator.yaml").open("a") as operator:
        operator.write(f"""identity:
  hosts: [127.0.0.1]
  providers:
    - name: protocol
      label: oidc-provider
      issuer: {issuer}
      client_id: tamma
      roles:
{roles}
{second}""")
    log = (folder / "log").open("w")
    up = subprocess.Popen(
        [tamma.program, "up"], cwd=folder / "shop", env=env, stdout=subprocess.PIPE, stderr=log, text=True
    )
    for line in up.stdout:
        if re.search(r"http://[0-9.]+:\d+", line):
            break
    threading.Thread(target=up.stdout.read, daemon=True).start()

    def operator_command(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [tamma.program, *arguments], cwd=folder / "shop", env=env, capture_output=True, text=True, check=False
        )

    tamma.operator = operator_command
    tamma.token = (folder / "data" / "operator-token").read_text().strip()
    added = operator_command("task", "add", "Round totals half to even", "--json")
    tamma.task = json.loads(added.stdout)["task"]["id"]
    created = tamma.api("POST", "/api/v1/projects", tamma.token, {"name": "elsewhere", "repository": "/elsewhere"})
    assert created.status == 200, created.text
    return up


if __name__ == "__main__":
    sys.exit(main())
