// Working day of a person in a real browser: add a task, watch it live, answer an alert, revise the plan,
// approve it, see a failed review, comment on a line, approve a lesson, read costs and chat, review a change
// with every control (review.mjs), read and watch runs (log.mjs), answer at the gate of a pipeline, and work
// with many tasks (tasks.mjs). Then every page is checked, wide and narrow, light and dark, and the largest
// ones are timed (measures.mjs).
//
// usage: node day.mjs <program folder> <screenshot folder> [--quick]

import path from "node:path";
import { Browser, Findings, VARIANTS, Receiver, Tamma } from "./fixture.mjs";
import { readRuns, watchRun } from "./log.mjs";
import { measurePages } from "./measures.mjs";
import { reviewChange } from "./review.mjs";
import { manyTasks } from "./tasks.mjs";

const [programs, pictures] = process.argv.slice(2, 4).map((it) => path.resolve(it));
const isQuick = process.argv.includes("--quick");
const variants = isQuick ? ["wide.light", "phone.dark"] : Object.keys(VARIANTS);
// Files of the large change with 25 changed lines each, lines of the long log, and loads of each page.
const size = isQuick ? { files: 40, log: 5_000, loads: 5 } : { files: 200, log: 100_000, loads: 20 };

const ROUND = "Round totals half to even";
const LONG = "Say in every export where the amounts come from, so that an auditor of the ledger can follow each of them back to the receipt, <b>even</b> years later";

const findings = new Findings();
const check = findings.check.bind(findings);
const receiver = await Receiver.open();
const rules = `scrum_master: { alerts: { channels: [{ type: slack, config: { url: "${receiver.url}" } }] } }
pipelines: { split: { phases: [{ id: tasks, title: Tasks, runner: tasks }] } }`;
const tamma = new Tamma(programs, rules, size.files);
await tamma.start();
const browser = await Browser.open(findings, pictures, tamma);
const day = { browser, check, tamma };

// A reload removes this mark.
const markPage = (page) => page.evaluate(() => { window.mark = true; });
const isMarked = (page) => page.evaluate(() => window.mark === true);

const add = async (page, title, description) => {
  await page.goto(`${tamma.url}/tasks/new`);
  await page.locator("[name=title]").fill(title);
  await page.locator("[name=description]").fill(description);
  await page.getByRole("button", { name: "Add task" }).click();
  await page.waitForURL(/\/tasks\/[0-9a-f-]{36}$/);
  return new URL(page.url()).pathname;
};

const watchTask = async (page, board) => {
  await board.goto(tamma.url);
  check(await board.getByText("No tasks yet").isVisible(), "the empty board says what to do");
  await browser.checkPage(board, "empty-board");
  for (const name of ["inbox", "knowledge", "figures", "chat"]) {
    await page.goto(`${tamma.url}/${name}`);
    await browser.checkPage(page, `empty-${name}`);
  }
  await markPage(board);
  const task = await add(page, ROUND, "The receipt and the ledger differ by a cent.\n\nUse one rounding in one place.");
  await markPage(page);
  await page.getByRole("button", { name: "Approve plan 1" }).waitFor();
  check(await isMarked(page), "the question appeared without reloading");
  const card = board.getByText("Awaiting approval").first();
  const filled = await card.waitFor({ timeout: 5_000 }).then(() => true, () => false);
  check(filled && (await isMarked(board)), "the board filled without reloading");
  return task;
};

const revisePlan = async (page, task) => {
  await page.goto(await receiver.decision());
  check(new URL(page.url()).pathname === task, "the alert links to the question");
  await browser.checkPage(page, "question");
  await page.goto(`${tamma.url}${task}/plan/edit`);
  await browser.checkPage(page, "plan-edit");
  await page.locator("[name=approach]").fill("One function rounds; cart, receipt and ledger call it once.");
  await page.locator("[name=reason]").fill("Three roundings are three places to be wrong.");
  const received = receiver.messages.length;
  await page.getByRole("button", { name: "Send to planner" }).click();
  await page.goto(await receiver.decision(received));
  await page.getByRole("button", { name: "Approve plan 2" }).click();
  check(true, "an alert was answered");
};

const commentAndAccept = async (page, task) => {
  await page.getByRole("heading", { name: /needs review/i }).waitFor();
  await page.goto(`${tamma.url}${task}/review`);
  check(await page.getByText(/^Attempt 1 of \d+: failed/).first().isVisible(), "the failed review is shown");
  await browser.checkPage(page, "review-failed");
  await page.goto(`${tamma.url}${task}/change`);
  await page.locator(".diff .no a[data-at]").first().click();
  await page.locator("tr.cm textarea").fill("Say which currencies have three decimals.");
  await page.getByText("Draft saved").first().waitFor();
  await page.reload();
  check(await page.locator("tr.cm textarea").inputValue() === "Say which currencies have three decimals.", "a draft survives a reload");
  await browser.checkPage(page, "comment");
  await page.locator(".bar-form[data-action=rework] > summary").click();
  await page.locator("#rework").getByRole("button", { name: "Request changes" }).click();
  await page.waitForURL(new RegExp(`${task}$`));
  // After the second failure in a row, a stronger agent writes a new plan with the comment. It is
  // approved with the keyboard alone.
  await page.getByRole("button", { name: "Approve plan 3" }).waitFor();
  check(await page.getByText("Three decimals for the dinar").first().isVisible(), "the comment is in the new plan");
  await page.goto(tamma.url);
  const size = page.viewportSize();
  for (const width of [900, 1050, 1200]) {
    await page.setViewportSize({ width, height: 800 });
    const lines = await page.locator(".brand").evaluate((brand) => {
      const range = document.createRange();
      range.selectNode(brand.lastChild);
      return range.getClientRects().length;
    });
    check(lines === 1, `the wordmark is one line at ${width} pixels`);
  }
  await page.setViewportSize(size);
  await page.keyboard.press("?");
  await browser.checkPage(page, "keys");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(`${task}$`));
  await page.keyboard.press("a");
  const focus = () => page.evaluate(() => document.activeElement.textContent.trim());
  for (let i = 0; i < 20 && (await focus()) !== "Approve plan 3"; i += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /^Accept/ }).waitFor();
  check(true, "a plan was approved with the keyboard alone");
  await page.getByRole("button", { name: /^Accept/ }).click();
  await page.locator("#status").getByText("Completed").waitFor();
};

const approveLesson = async (page) => {
  await page.goto(`${tamma.url}/inbox`);
  await page.getByRole("link", { name: /lesson/ }).click();
  const lesson = "Round money half to even, in round.txt and nowhere else.";
  await page.getByRole("link", { name: lesson }).waitFor();
  await browser.checkPage(page, "lessons");
  await page.getByRole("link", { name: lesson }).click();
  await page.waitForURL(/\/knowledge\/[0-9a-f-]{36}$/);
  const entry = new URL(page.url()).pathname;
  await page.getByRole("button", { name: "Approve" }).click();
  await page.waitForLoadState();
  await page.goto(`${tamma.url}/knowledge?status=approved`);
  check(await page.getByText(lesson).isVisible(), "the lesson of the task was approved");
  return entry;
};

const useChat = async (page) => {
  await page.goto(`${tamma.url}/chat`);
  const send = async (message) => {
    await page.locator("#say").fill(message);
    await page.getByRole("button", { name: "Send" }).click();
  };
  await send("add a task: greet the customer by name");
  await page.getByRole("button", { name: "Confirm" }).waitFor();
  check((await tamma.get("/api/v1/tasks")).tasks.length === 1, "nothing changes before the confirmation");
  await browser.checkPage(page, "chat-asks");
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByText("Done.", { exact: false }).first().waitFor();
  check((await tamma.get("/api/v1/tasks")).tasks.length === 2, "the confirmation adds the task");
  await send(`what did "${ROUND}" cost?`);
  await page.getByText("$0.", { exact: false }).first().waitFor();
  await send("add a task: sing on Fridays");
  await page.getByRole("button", { name: "Dismiss" }).click();
  await page.waitForLoadState();
  check((await page.getByRole("button", { name: "Confirm" }).count()) === 0 && (await tamma.get("/api/v1/tasks")).tasks.length === 2, "a dismissed proposal adds nothing");
};

// Asks about a task from its own page.
const askAboutTask = async (page, task) => {
  await page.goto(`${tamma.url}${task}`);
  await page.locator("#ask").fill("what did it cost?");
  await page.getByRole("button", { name: "Ask", exact: true }).click();
  await page.waitForURL(/\/chat/);
  const answer = page.locator(".msg").last().getByText("$0.").first();
  check(await answer.waitFor().then(() => true, () => false), "a question on the page of a task is about this task");
};

// The server restarts while a page is open, and the task continues meanwhile.
const catchUpAfterRestart = async (page) => {
  const task = await add(page, LONG, "An auditor asked.");
  await page.getByRole("button", { name: "Approve plan 1" }).waitFor();
  await page.goto(`${tamma.url}${task}/events`);
  await page.getByText("Live", { exact: true }).waitFor();
  await markPage(page);
  await tamma.stop();
  await tamma.start();
  const id = task.split("/").pop();
  const { hash } = await tamma.get(`/api/v1/tasks/${id}/plan`);
  await tamma.run("approve", id, "--plan", hash);
  await page.getByText("needs review", { exact: false }).first().waitFor();
  const stored = async () => (await tamma.get(`/api/v1/tasks/${id}/history`)).entries.map((it) => it.sequence);
  const shown = () => page.locator("#events > li").evaluateAll((all) => all.map((it) => Number(it.id.slice(1))));
  const end = Date.now() + 30_000;
  while (Date.now() < end && (await shown()).length < (await stored()).length) await page.waitForTimeout(100);
  const [expected, actual] = [await stored(), await shown()];
  check(String(expected) === String(actual) && (await isMarked(page)), `after a restart the open page has all ${expected.length} entries, each once and in order (${actual})`);
  return task;
};

const decideWithoutJavaScript = async (task) => {
  const page = await browser.page({ ...VARIANTS["phone.light"], javaScriptEnabled: false });
  await page.goto(`${tamma.url}${task}`);
  check(await page.getByRole("heading", { name: LONG }).isVisible(), "the page works without JavaScript");
  await page.getByRole("button", { name: /^Accept/ }).click();
  await page.goto(`${tamma.url}${task}/events`);
  const passed = page.locator("#events > li", { hasText: "Review passed" });
  check(/by Grace/.test(await passed.first().textContent()), "a decision works without JavaScript");
};

// A story stops at its gate, goes on, and is blocked; another one is split into tasks.
const decidePipelines = async (page) => {
  await page.goto(`${tamma.url}/pipelines`);
  check(await page.getByText("No stories yet").isVisible(), "the empty list says how to start a pipeline");
  await browser.checkPage(page, "empty-pipelines");
  const received = receiver.messages.length;
  await tamma.run("pipeline", "run", "plans/refunds", "REF-1", "--to", "2", "--approve", "2");
  await page.goto(await receiver.decision(received));
  const story = new URL(page.url()).pathname;
  const gate = page.getByRole("heading", { name: "Approval Gate: Phase 2 (Elaboration)" });
  check(story.startsWith("/pipelines/") && (await gate.isVisible()), "the alert links to the gate of the story");
  await browser.checkPage(page, "gate");
  await page.getByRole("link", { name: /^View/ }).first().click();
  check(await page.getByText("within fourteen days").isVisible(), "the output of a phase can be read");
  await browser.checkPage(page, "phase-output");
  await page.goto(`${tamma.url}/inbox`);
  check(await page.getByRole("link", { name: "REF-1", exact: true }).isVisible(), "the gate is in the inbox");
  await page.goto(`${tamma.url}${story}`);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByText("ELABORATION BLOCKED: who pays for the parcel?").first().waitFor();
  await page.getByRole("button", { name: "Resume run" }).waitFor();
  check(true, "a blocked phase stops the run, and the open page says why");
  await tamma.run("pipeline", "run", "plans/refunds", "REF-2", "--pipeline", "split");
  await page.goto(`${tamma.url}/pipelines`);
  await page.getByRole("link", { name: "REF-2" }).click();
  await page.getByRole("button", { name: "Continue" }).waitFor();
  check(await page.getByText("depends on ledger, receipt").isVisible(), "the tasks of a story are shown with their dependencies");
  return { story, "story-tasks": new URL(page.url()).pathname };
};

// The log of the task: an expanded call, search, and the page of one run.
const readLog = async (page, task) => {
  await page.goto(`${tamma.url}${task}/log`);
  const call = page.locator(".log .g[open] details.call").first();
  await call.locator("summary").click();
  check(await call.locator(".l-out").first().isVisible(), "a tool call expands to its input, edits and output");
  await page.getByRole("button", { name: "Pause" }).click();
  check(await page.getByRole("button", { name: "Resume" }).isVisible(), "the live tail can be paused");
  const shown = await page.locator(".log .l:visible").count();
  await page.locator("[data-log-search]").fill("round.txt");
  const found = await page.locator(".log .l:visible").count();
  check(found > 0 && found < shown, "the search field filters the lines");
  const lines = await page.locator(".log .l-text").allTextContents();
  check(!lines.some((it) => it.includes(tamma.folder)), "paths are relative to the worktree");
  const run = await page.locator("ul.runs a").first().getAttribute("href");
  await page.goto(`${tamma.url}${run}`);
  check(await page.getByRole("heading", { name: "Transcript" }).isVisible(), "a run has a page of its own");
  return run;
};

// More tasks, to fill the board.
const fillBoard = async (page) => {
  const added = {};
  for (const [title, ...args] of [
    ["Charge in the customer's own currency", "--priority", "high"],
    ["Decide how gift cards are taxed", "--type", "docs"],
    ["Refund within fourteen days"],
  ]) {
    added[title] = JSON.parse(await tamma.run("task", "add", title, "--json", ...args)).task.id;
  }
  await tamma.run("task", "add", "Show refunds in the export", "--depends-on", added["Refund within fourteen days"]);
  const dropped = JSON.parse(await tamma.run("task", "add", "Round in the database", "--json")).task.id;
  await tamma.run("cancel", dropped, "--reason", "one place is enough");
  await page.goto(tamma.url);
  for (const state of ["awaiting approval", "implementing", "needs a decision", "cancelled"]) {
    await page.getByText(state).first().waitFor();
  }
  return added;
};

const checkAllPages = async (paths) => {
  for (const variant of variants) {
    const page = await browser.page(VARIANTS[variant]);
    for (const [name, path] of Object.entries(paths)) {
      await page.goto(`${tamma.url}${path}`);
      await browser.checkPage(page, `${name}.${variant}`, { fullPage: !name.startsWith("large-") });
    }
    await page.context().close();
  }
};

let measured;
try {
  const page = await browser.page(VARIANTS["wide.light"]);
  const board = await browser.page(VARIANTS["wide.light"]);
  const task = await watchTask(page, board);
  await revisePlan(page, task);
  await commentAndAccept(page, task);
  const run = await readLog(page, task);
  const entry = await approveLesson(page);
  await useChat(page);
  await askAboutTask(page, task);
  const reviewed = await reviewChange(day, page, add);
  const shared = await readRuns(day, page, reviewed);
  const watched = await watchRun(day, page);
  const other = await catchUpAfterRestart(page);
  const stories = await decidePipelines(page);
  const added = await fillBoard(page);
  for (const [name, path] of [["board", "/"], ["task", `/tasks/${added["Refund within fourteen days"]}`]]) {
    await browser.screenshotTop(tamma.url + path, `readme-${name}`);
  }
  const large = await manyTasks(day, page, added, reviewed);
  await tamma.approve(large);
  await tamma.until(large, (it) => it.state === "quality_review" && it.waits_for_person, "in review");
  measured = await measurePages(day, large, size, isQuick);
  const [lines, changed] = ["/change/context?file=5&from=1&to=20&old=1&view=unified", `${reviewed}/change`];
  await checkAllPages({
    board: "/", inbox: "/inbox", "new-task": "/tasks/new",
    "board-by-priority": "/?group=priority", "board-by-person": "/?group=person", "board-by-project": "/?group=project&sort=priority",
    "change-reviewed": `${changed}?view=unified`, "change-reviewed-split": `${changed}?view=split&all=true`, "change-lines": `${reviewed}${lines}`,
    "change-open-comment": `${changed}?view=unified&comment=5-n60`, "large-change": `/tasks/${large}/change?view=unified`, "large-split": `/tasks/${large}/change?view=split`,
    "large-log": `/tasks/${large}/log`, "large-run": measured.run, "run-shared": shared, "run-watched": watched, "log-failures": `${reviewed}/log?kinds=failures`,
    "pull-requests": "/pull-requests", "merge-queues": "/merge-queues", "sign-in": "/hello",
    task, plan: `${task}/plan`, change: `${task}/change`, review: `${task}/review`, log: `${task}/log`, events: `${task}/events`, run,
    question: other, "found-nothing": "/?text=nothing+like+it",
    knowledge: "/knowledge?status=approved", entry, "knowledge-new": "/knowledge/new",
    figures: "/figures", engines: "/engines", pipelines: "/pipelines", projects: "/projects", chat: "/chat", error: "/nothing-here",
    ...stories,
  });
  await decideWithoutJavaScript(other);
} catch (error) {
  findings.failures.push(String(error.stack ?? error));
  await browser.screenshotAll();
} finally {
  await browser.close();
  receiver.server.close();
  await tamma.stop();
}
for (const failure of findings.failures) console.log(`✗ ${failure}`);
if (findings.failures.length === 0) {
  tamma.remove();
  console.log(`browser: passed, ${findings.screenshots} screenshots, ${measured.figures}`);
} else {
  console.log(`browser: ${findings.failures.length} failures; screenshots: ${pictures}, log: ${tamma.folder}/up.log`);
}
process.exit(findings.failures.length === 0 ? 0 : 1);
