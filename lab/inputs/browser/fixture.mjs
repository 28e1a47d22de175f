// Fixture of the browser experiment: a shop repository, Tamma, an alert receiver, and a browser that
// checks every page.

import { spawn, execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { chromium } from "playwright-core";
import { agentCases, repositoryFiles } from "./inputs.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const axe = fs.readFileSync(path.join(here, "node_modules/axe-core/axe.min.js"), "utf8");

const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };
export const VARIANTS = {
  "wide.light": { viewport: WIDE, colorScheme: "light" },
  "wide.dark": { viewport: WIDE, colorScheme: "dark" },
  "phone.light": { viewport: PHONE, colorScheme: "light" },
  "phone.dark": { viewport: PHONE, colorScheme: "dark" },
};

// Results of the checks.
export class Findings {
  failures = [];
  screenshots = 0;

  check(passed, text) {
    console.log(`${passed ? "✓" : "✗"} ${text}`);
    if (!passed) this.failures.push(text);
  }
}

// Alert receiver with a Slack-compatible endpoint.
export class Receiver {
  messages = [];

  static async open() {
    const it = new Receiver();
    it.server = http.createServer((request, response) => {
      let text = "";
      request.on("data", (part) => (text += part));
      request.on("end", () => {
        it.messages.push(JSON.parse(text));
        it.server.emit("message");
        response.end("ok");
      });
    });
    it.server.listen(0, "127.0.0.1");
    await once(it.server, "listening");
    it.url = `http://127.0.0.1:${it.server.address().port}/`;
    return it;
  }

  // Returns the link of the first message, from this number on, that needs a decision.
  async decision(from = 0) {
    for (;;) {
      const blocks = this.messages.slice(from).flatMap((it) => it.blocks);
      const button = blocks.map((it) => it.accessory).find((it) => it?.text.text === "Decide");
      if (button) return button.url;
      await once(this.server, "message", { signal: AbortSignal.timeout(60_000) });
    }
  }
}

// Tamma for one repository, started with `tamma up`. `modules` is the number of files in the large change.
export class Tamma {
  constructor(programs, rules, modules) {
    this.programs = programs;
    this.program = path.join(programs, "tamma");
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), "tamma-day-"));
    this.env = {
      PATH: process.env.PATH,
      HOME: this.folder,
      LANG: "C.UTF-8",
      TAMMA_DATA: path.join(this.folder, "data"),
      TAMMA_LISTEN: "127.0.0.1:0",
      TAMMA_PERSON: "Grace",
      GIT_CONFIG_GLOBAL: path.join(this.folder, "gitconfig"),
      GIT_CONFIG_NOSYSTEM: "1",
    };
    const shop = path.join(here, "../../demo/shop.sh");
    execFileSync("bash", [shop, this.folder, programs], { env: { ...this.env, SHOP_RULES: rules } });
    // The receiver of alerts is on this machine.
    fs.appendFileSync(path.join(this.env.TAMMA_DATA, "operator.yaml"), "alert_hosts: [127.0.0.1]\n");
    this.repository = path.join(this.folder, "shop");
    fs.writeFileSync(this.env.GIT_CONFIG_GLOBAL, "[user]\n\tname = Grace\n\temail = grace@example.org\n");
    this.addInputs(modules);
  }

  // Adds files to the repository and cases to the script of the agent.
  addInputs(modules) {
    for (const [name, content] of Object.entries(repositoryFiles(modules))) {
      const file = path.join(this.repository, name);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, content);
    }
    const git = (...args) => execFileSync("git", args, { cwd: this.repository, env: this.env });
    git("add", ".");
    git("commit", "--quiet", "-m", "Add sources");
    const file = path.join(this.folder, "bin", "agent.json");
    const script = JSON.parse(fs.readFileSync(file, "utf8"));
    // After the case of lessons: their prompts have everything that a task has.
    const lessons = script.cases.findIndex((it) => it.when.startsWith("You look back"));
    script.cases.splice(lessons + 1, 0, ...agentCases(modules, (number) => this.signalPath(number)));
    fs.writeFileSync(file, JSON.stringify(script));
  }

  signalPath(number) {
    return path.join(this.folder, "bin", `signal-${number}`);
  }

  // Lets an agent continue that waits for a signal.
  signal(number) {
    fs.writeFileSync(this.signalPath(number), "");
  }

  // Writes a run with a long log to a task, as a worker does.
  async writeLog(task, lines) {
    const folder = path.join(this.env.TAMMA_DATA, "postgres");
    const password = fs.readFileSync(path.join(folder, "password"), "utf8").trim();
    const database = `postgres:///tamma?host=${encodeURIComponent(folder)}&port=5432&user=tamma&password=${password}&sslmode=disable`;
    await promisify(execFile)(path.join(this.programs, "lab"), ["write-log", database, task, String(lines)], { env: this.env });
  }

  // Starts Tamma, at its previous address if it had one.
  async start() {
    this.child = spawn(this.program, ["up"], { cwd: this.repository, env: this.env });
    this.child.stderr.on("data", (text) => fs.appendFileSync(path.join(this.folder, "up.log"), text));
    const lines = readline.createInterface({ input: this.child.stdout });
    for await (const line of lines) {
      const url = line.match(/http:\/\/[0-9.]+:\d+/);
      if (url) {
        lines.on("line", () => {});
        this.url = url[0];
        this.env.TAMMA_LISTEN = new URL(this.url).host;
        this.token = JSON.parse(fs.readFileSync(path.join(this.env.TAMMA_DATA, "server.json"), "utf8")).token;
        return;
      }
    }
    throw new Error(`tamma up did not start: see ${this.folder}/up.log`);
  }

  async stop() {
    this.child.kill("SIGTERM");
    await once(this.child, "exit");
  }

  // Runs a command and returns its output.
  async run(...args) {
    const { stdout } = await promisify(execFile)(this.program, args, { cwd: this.repository, env: { ...this.env, TAMMA_URL: this.url } });
    return stdout;
  }

  async get(route) {
    const response = await fetch(`${this.url}${route}`, { headers: { authorization: `Bearer ${this.token}` } });
    if (!response.ok) throw new Error(`${route}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  // Waits until a task is as wanted, and returns it.
  async until(id, isWanted, what) {
    const end = Date.now() + 180_000;
    for (;;) {
      const task = await this.get(`/api/v1/tasks/${id}`);
      if (isWanted(task)) return task;
      if (Date.now() > end) throw new Error(`${task.title} is ${task.state}, not ${what}`);
      await new Promise((done) => setTimeout(done, 200));
    }
  }

  // Approves the plan of a task once it is there.
  async approve(id) {
    await this.until(id, (it) => it.state === "awaiting_approval", "awaiting approval");
    const { hash } = await this.get(`/api/v1/tasks/${id}/plan`);
    await this.run("approve", id, "--plan", hash);
  }

  remove() {
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

// Browser that checks pages with axe and takes screenshots.
export class Browser {
  static async open(findings, pictures, tamma) {
    const it = new Browser();
    Object.assign(it, { findings, pictures, tamma });
    fs.rmSync(pictures, { recursive: true, force: true });
    fs.mkdirSync(pictures, { recursive: true });
    it.browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
    return it;
  }

  async page(options) {
    const context = await this.browser.newContext(options);
    const page = await context.newPage();
    // Missing pages and an unreachable server also log to the console, as expected.
    const expected = /404|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|htmx:sse:error/;
    page.on("console", (it) => it.type() === "error" && !expected.test(it.text()) && this.findings.failures.push(`console: ${it.text()}`));
    page.on("pageerror", (it) => this.findings.failures.push(`script: ${it.message}`));
    page.setDefaultTimeout(60_000);
    await page.goto((await this.tamma.run("sign-in")).trim());
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(`${this.tamma.url}/`);
    return page;
  }

  // Checks a page with axe and takes a screenshot: of all of it, unless it is very long.
  async checkPage(page, name, { fullPage = true } = {}) {
    await page.waitForLoadState();
    await page.screenshot({ path: path.join(this.pictures, `${name}.png`), fullPage });
    await page.evaluate(axe);
    // Parts of a large change are placed when they come near, also while axe scrolls: it would see them half
    // placed, so it looks again, twice at most, at a page that changed meanwhile.
    const parts = () => page.evaluate(() => document.querySelectorAll("[data-load]").length);
    let results, before, looks = 0;
    do {
      await page.waitForFunction(() => new Promise((done) => {
        const frames = (left) => (left ? requestAnimationFrame(() => frames(left - 1)) : done(!document.querySelector("[data-load][data-busy]")));
        frames(2);
      }));
      before = await parts();
      results = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      looks += 1;
    } while (looks < 3 && before !== await parts());
    for (const it of results.violations.filter((it) => ["serious", "critical"].includes(it.impact))) {
      this.findings.failures.push(`${name}: axe ${it.id}: ${it.nodes[0].html.slice(0, 120)} ${it.nodes[0].any[0]?.message ?? ""}`);
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
    if (wide) this.findings.failures.push(`${name}: scrolls horizontally`);
    this.findings.screenshots += 1;
  }

  // Takes a screenshot of the top of a page, for documents.
  async screenshotTop(address, name) {
    const page = await this.page({ viewport: { width: 1280, height: 860 }, colorScheme: "light" });
    await page.goto(address);
    await page.screenshot({ path: path.join(this.pictures, `${name}.png`) });
    await page.context().close();
  }

  // Takes a screenshot of every page after a failure.
  async screenshotAll() {
    const pages = this.browser.contexts().flatMap((it) => it.pages());
    for (const [i, page] of pages.entries()) {
      await page.screenshot({ path: path.join(this.pictures, `failure-${i + 1}.png`), fullPage: true }).catch(() => {});
    }
  }

  close() {
    return this.browser.close();
  }
}
