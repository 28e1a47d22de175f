#!/usr/bin/env python3
"""Sends alerts to real receivers: a webhook that is unreachable at first, a Slack webhook and an SMTP server.

Each alert must reach each receiver exactly once. An independent implementation verifies the signatures.
usage: run.py <program folder>
"""

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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiosmtpd.controller import Controller
from standardwebhooks.webhooks import Webhook

PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
SHOP = pathlib.Path(__file__).resolve().parents[2] / "demo" / "shop.sh"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TASKS = 3
REFUSALS = 2  # Requests that the webhook refuses first. Tamma retries after 5 s, then after 10 s.

failures: list[str] = []


def check(passed: bool, text: str) -> None:
    print(f"{'✓' if passed else '✗'} {text}")
    if not passed:
        failures.append(text)


class Received:
    """Received messages, and the number of refused and forged requests."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.webhooks: list[dict] = []
        self.refused = 0
        self.forged = 0
        self.slack: list[dict] = []
        self.mails: list[str] = []

    def add(self, into: list, message: object) -> None:
        with self.lock:
            into.append(message)
            self.lock.notify_all()

    def wait(self, text: str, done, seconds: float = 120) -> None:
        with self.lock:
            check(self.lock.wait_for(done, timeout=seconds), text)


received = Received()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = 204
        if self.path == "/slack":
            received.add(received.slack, json.loads(body))
        elif received.refused < REFUSALS:
            received.refused += 1
            status = 503
        else:
            try:
                Webhook(SECRET).verify(body, dict(self.headers.items()))
                received.add(received.webhooks, {"id": self.headers["webhook-id"], **json.loads(body)})
            except Exception as error:  # noqa: BLE001
                received.forged += 1
                failures.append(f"invalid signature: {error}")
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Mailbox:
    async def handle_DATA(self, _server, _session, envelope) -> str:  # noqa: N802
        received.add(received.mails, envelope.content.decode())
        return "250 OK"


def main() -> int:
    start = time.monotonic()
    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        smtp = free.getsockname()[1]
    mail = Controller(Mailbox(), hostname="127.0.0.1", port=smtp)
    mail.start()
    port = web.server_address[1]
    with tempfile.TemporaryDirectory(prefix="tamma-alerts-") as name:
        folder = pathlib.Path(name)
        repository = folder / "shop"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": name,
            "LANG": "C.UTF-8",
            "TAMMA_DATA": str(folder / "data"),
            "TAMMA_LISTEN": "127.0.0.1:0",
            "TAMMA_PERSON": "Grace",
            "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
        }

        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=repository, env=env, capture_output=True, text=True, check=True)
            return done.stdout

        rules = f"""scrum_master:
  alerts:
    channels:
      - {{ type: webhook, config: {{ url: "http://127.0.0.1:{port}/hook", secret: "{SECRET}" }} }}
      - {{ type: slack, config: {{ url: "http://127.0.0.1:{port}/slack" }} }}
      - {{ type: email, config: {{ smtp: "smtp://127.0.0.1:{smtp}", from: "tamma@example.org", to: "team@example.org" }} }}
"""
        subprocess.run(["bash", SHOP, folder, PROGRAMS], env={**env, "SHOP_RULES": rules}, check=True)
        # The receivers are on this machine.
        with (folder / "data" / "operator.yaml").open("a") as operator:
            operator.write("alert_hosts: [127.0.0.1]\n")
        (folder / "gitconfig").write_text("[user]\n\tname = Grace\n\temail = grace@example.org\n")
        tamma = str(PROGRAMS / "tamma")
        log = folder / "log"
        up = subprocess.Popen(
            [tamma, "up"], cwd=repository, env=env, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
        )
        try:
            for line in up.stdout:
                if re.search(r"http://[0-9.]+:\d+", line):
                    break
            threading.Thread(target=up.stdout.read, daemon=True).start()
            for number in range(TASKS):
                run(tamma, "task", "add", f"Round totals half to even, part {number}")
            received.wait(f"the mail server got {TASKS} mails", lambda: len(received.mails) >= TASKS)
            received.wait(f"Slack got {TASKS} messages", lambda: len(received.slack) >= TASKS)
            received.wait(
                f"the webhook got {TASKS} messages after {REFUSALS} refusals",
                lambda: len(received.webhooks) >= TASKS,
            )
            # Wait until no delivery is pending, so that late duplicates would be counted.
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                deliveries = json.loads(run(tamma, "alert", "list", "--json"))["deliveries"]
                if all("outcome" in it for it in deliveries):
                    break
                time.sleep(0.5)
            check(len(deliveries) == 3 * TASKS, f"{len(deliveries)} deliveries are recorded")
            check(all(it["outcome"] == "delivered" for it in deliveries), "all deliveries succeeded")
            tried = sum(it["attempts"] for it in deliveries)
            check(tried == 3 * TASKS + REFUSALS, f"{tried} attempts, of which {REFUSALS} were refused")
            ids = [it["id"] for it in received.webhooks]
            check(len(ids) == len(set(ids)) == TASKS, "each alert reached the webhook exactly once")
            check(received.forged == 0, "an independent implementation accepts every signature")
            check(len(received.slack) == TASKS and len(received.mails) == TASKS, "each alert reached Slack and the mailbox exactly once")
            check(all("Decision needed" in it for it in received.mails), "each mail asks for a decision")
            links = [it["blocks"][1]["accessory"]["url"] for it in received.slack]
            check(all("/tasks/" in it for it in links), "the button in Slack links to the decision")
            receipts = run(tamma, "alert", "test")
            check(receipts.count("delivered") == 3, "`tamma alert test` reaches all three channels")
            mail.stop()
            refused = subprocess.run(
                [tamma, "alert", "test"], cwd=repository, env=env, capture_output=True, text=True, check=False
            )
            check(
                refused.returncode == 1 and "cannot reach the mail server" in refused.stdout,
                "`tamma alert test` reports the unreachable mail server",
            )
            output = log.read_text() + receipts + refused.stdout + run(tamma, "alert", "list")
            check(
                "alert delivery failed" in output and not any(it in output for it in (SECRET, "/hook", "/slack")),
                "the log has the failed delivery, and no output has a secret",
            )
        finally:
            up.terminate()
            up.wait()
            web.shutdown()
    for failure in failures:
        print(f"✗ {failure}")
    took = f"{time.monotonic() - start:.0f} s"
    print(f"alerts: {'each exactly once' if not failures else f'{len(failures)} failures'}, in {took}")
    return 1 if failures else 0


sys.exit(main())
