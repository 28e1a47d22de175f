// A person's day in a real browser: add a task, watch it live, answer an alert, revise the plan,
// approve, see a review fail, comment on a line, approve a lesson, read costs and chat. Then every page
// is checked, wide and narrow, light and dark.
//
// usage: node day.mjs <program directory> <picture directory> [--quick]

import path from "node:path";
import { Browser, Findings, LOOKS, Receiver, Tamma } from "./stage.mjs";

const [programs, pictures] = process.argv.slice(2, 4).map((it) => path.resolve(it));
const looks = process.argv.includes("--quick") ? ["wide.light", "phone.dark"] : Object.keys(LOOKS);

const ROUND = "Round totals half to even";
const LONG = "Say in every export where the amounts come from, so that whoever audits the ledger can follow each of them back to the receipt, <b>even</b> years later";

const findings = new Findings();
const check = findings.check.bind(findings);
const receiver = await Receiver.open();
const tamma = new Tamma(programs, `scrum_master: { alerts: { channels: [{ type: slack, config: { url: "${receiver.url}" } }] } }`);
await tamma.start();
const browser = await Browser.open(findings, pictures);

// A reloaded page loses this mark.
const mark = (page) => page.evaluate(() => { window.here = true; });
const marked = (page) => page.evaluate(() => window.here === true);

const add = async (page, title, description) => {
  await page.goto(`${tamma.url}/tasks/new`);
  await page.locator("[name=title]").fill(title);
  await page.locator("[name=description]").fill(description);
  await page.getByRole("button", { name: "Add task" }).click();
  await page.waitForURL(/\/tasks\/[0-9a-f-]{36}$/);
  return new URL(page.url()).pathname;
};

const watches = async (page, board) => {
  await board.goto(tamma.url);
  check(await board.getByText("No tasks yet").isVisible(), "the empty board says what to do");
  await browser.look(board, "empty-board");
  for (const name of ["inbox", "knowledge", "figures", "chat"]) {
    await page.goto(`${tamma.url}/${name}`);
    await browser.look(page, `empty-${name}`);
  }
  await mark(board);
  const task = await add(page, ROUND, "The receipt and the ledger differ by a cent.\n\nUse one rounding in one place.");
  await mark(page);
  await page.getByRole("button", { name: "Approve plan 1" }).waitFor();
  check(await marked(page), "the question appeared without reloading");
  const card = board.getByText("Awaiting approval").first();
  const filled = await card.waitFor({ timeout: 5_000 }).then(() => true, () => false);
  check(filled && (await marked(board)), "the board filled without reloading");
  return task;
};

const changesThePlan = async (page, task) => {
  await page.goto(await receiver.decision());
  check(new URL(page.url()).pathname === task, "the alert links to the question");
  await browser.look(page, "question");
  await page.goto(`${tamma.url}${task}/plan/edit`);
  await browser.look(page, "plan-edit");
  await page.locator("[name=approach]").fill("One function rounds; cart, receipt and ledger call it once.");
  await page.locator("[name=reason]").fill("Three roundings are three places to be wrong.");
  const told = receiver.messages.length;
  await page.getByRole("button", { name: "Revise plan" }).click();
  await page.goto(await receiver.decision(told));
  await page.getByRole("button", { name: "Approve plan 2" }).click();
  check(true, "an alert was answered");
};

const comments = async (page, task) => {
  await page.getByRole("heading", { name: /needs review/i }).waitFor();
  await page.goto(`${tamma.url}${task}/review`);
  check(await page.getByText("Iteration 1: failed").isVisible(), "the failed review is shown");
  await browser.look(page, "review-failed");
  await page.goto(`${tamma.url}${task}/change`);
  await page.locator(".diff .no a").first().click();
  await page.locator("tr.cm.new textarea").fill("Say which currencies have three decimals.");
  await browser.look(page, "comment");
  await page.locator("#rework").getByRole("button", { name: "Request changes" }).click();
  await page.waitForURL(new RegExp(`${task}$`));
  // After the second failure in a row, a stronger agent writes a new plan with the comment. It is
  // approved with the keyboard alone.
  await page.getByRole("button", { name: "Approve plan 3" }).waitFor();
  check(await page.getByText("Three decimals for the dinar").first().isVisible(), "the comment is in the new plan");
  await page.goto(tamma.url);
  await page.keyboard.press("?");
  await browser.look(page, "keys");
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

const learns = async (page) => {
  await page.goto(`${tamma.url}/inbox`);
  await page.getByRole("link", { name: /lesson/ }).click();
  const lesson = "Round money half to even, in round.txt and nowhere else.";
  await page.getByRole("link", { name: lesson }).waitFor();
  await browser.look(page, "lessons");
  await page.getByRole("link", { name: lesson }).click();
  await page.waitForURL(/\/knowledge\/[0-9a-f-]{36}$/);
  const entry = new URL(page.url()).pathname;
  await page.getByRole("button", { name: "Approve" }).click();
  await page.waitForLoadState();
  await page.goto(`${tamma.url}/knowledge?status=approved`);
  check(await page.getByText(lesson).isVisible(), "the lesson of the task was approved");
  return entry;
};

const chats = async (page) => {
  await page.goto(`${tamma.url}/chat`);
  const say = async (words) => {
    await page.locator("#say").fill(words);
    await page.getByRole("button", { name: "Send" }).click();
  };
  await say("add a task: greet the customer by name");
  await page.getByRole("button", { name: "Confirm" }).waitFor();
  check((await tamma.get("/api/v1/tasks")).tasks.length === 1, "nothing changes before the confirmation");
  await browser.look(page, "chat-asks");
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByText("Done.", { exact: false }).first().waitFor();
  check((await tamma.get("/api/v1/tasks")).tasks.length === 2, "the confirmation adds the task");
  await say(`what did "${ROUND}" cost?`);
  await page.getByText("$0.", { exact: false }).first().waitFor();
};

// The server restarts while a page is open, and the task continues meanwhile.
const catchesUp = async (page) => {
  const task = await add(page, LONG, "An auditor asked.");
  await page.getByRole("button", { name: "Approve plan 1" }).waitFor();
  await page.goto(`${tamma.url}${task}/events`);
  await page.getByText("live", { exact: true }).waitFor();
  await mark(page);
  await tamma.stop();
  await tamma.start();
  const id = task.split("/").pop();
  const { hash } = await tamma.get(`/api/v1/tasks/${id}/plan`);
  await tamma.say("approve", id, "--plan", hash);
  await page.getByText("needs review", { exact: false }).first().waitFor();
  const kept = async () => (await tamma.get(`/api/v1/tasks/${id}/history`)).entries.map((it) => it.sequence);
  const shown = () => page.locator("#events > li").evaluateAll((all) => all.map((it) => Number(it.id.slice(1))));
  const end = Date.now() + 30_000;
  while (Date.now() < end && (await shown()).length < (await kept()).length) await page.waitForTimeout(100);
  const [there, here] = [await kept(), await shown()];
  check(String(there) === String(here) && (await marked(page)), `after a restart the open page has all ${there.length} entries, each once and in order (${here})`);
  return task;
};

const decidesWithoutScript = async (task) => {
  const page = await browser.page({ ...LOOKS["phone.light"], javaScriptEnabled: false });
  await page.goto(`${tamma.url}${task}`);
  check(await page.getByRole("heading", { name: LONG }).isVisible(), "the page works without JavaScript");
  await page.getByRole("button", { name: /^Accept/ }).click();
  await page.goto(`${tamma.url}${task}/events`);
  const passed = page.locator("#events > li", { hasText: "Review passed" });
  check(/by Grace/.test(await passed.first().textContent()), "a decision works without JavaScript");
};

// More tasks, to fill the board.
const crowds = async (page) => {
  const added = {};
  for (const [title, ...args] of [
    ["Charge in the customer's own currency", "--priority", "high"],
    ["Decide how gift cards are taxed", "--type", "docs"],
    ["Refund within fourteen days"],
  ]) {
    added[title] = JSON.parse(await tamma.say("task", "add", title, "--json", ...args)).task.id;
  }
  await tamma.say("task", "add", "Show refunds in the export", "--depends-on", added["Refund within fourteen days"]);
  const dropped = JSON.parse(await tamma.say("task", "add", "Round in the database", "--json")).task.id;
  await tamma.say("cancel", dropped, "--reason", "one place is enough");
  await page.goto(tamma.url);
  for (const words of ["awaiting approval", "implementing", "needs a decision", "cancelled"]) {
    await page.getByText(words).first().waitFor();
  }
  return added;
};

const looksAtEverything = async (places) => {
  for (const look of looks) {
    const page = await browser.page(LOOKS[look]);
    for (const [name, place] of Object.entries(places)) {
      await page.goto(`${tamma.url}${place}`);
      await browser.look(page, `${name}.${look}`);
    }
    await page.context().close();
  }
};

try {
  const page = await browser.page(LOOKS["wide.light"]);
  const board = await browser.page(LOOKS["wide.light"]);
  const task = await watches(page, board);
  await changesThePlan(page, task);
  await comments(page, task);
  const entry = await learns(page);
  await chats(page);
  const other = await catchesUp(page);
  const added = await crowds(page);
  for (const [name, place] of [["board", "/"], ["task", `/tasks/${added["Refund within fourteen days"]}`]]) {
    await browser.show(tamma.url + place, `readme-${name}`);
  }
  await looksAtEverything({
    board: "/", inbox: "/inbox", "new-task": "/tasks/new",
    task, plan: `${task}/plan`, change: `${task}/change`, review: `${task}/review`, log: `${task}/log`, events: `${task}/events`,
    question: other, "found-nothing": "/?text=nothing+like+it",
    knowledge: "/knowledge?status=approved", entry, "knowledge-new": "/knowledge/new",
    figures: "/figures", engines: "/engines", projects: "/projects", chat: "/chat", error: "/nothing-here",
  });
  await decidesWithoutScript(other);
} catch (error) {
  findings.faults.push(String(error.stack ?? error));
  await browser.faults();
} finally {
  await browser.close();
  receiver.server.close();
  await tamma.stop();
}
for (const fault of findings.faults) console.log(`✗ ${fault}`);
if (findings.faults.length === 0) {
  tamma.remove();
  console.log(`browser: passed, ${findings.looked} pictures`);
} else {
  console.log(`browser: ${findings.faults.length} failures; pictures are in ${pictures}, the log in ${tamma.folder}/up.log`);
}
process.exit(findings.faults.length === 0 ? 0 : 1);
