// Many tasks: palette, bulk actions, views, inline edits, the inbox, priorities by drag, notifications,
// copy buttons, links and local times.

import { LARGE } from "./inputs.mjs";
import { VARIANTS } from "./fixture.mjs";

const REFUND = "Refund within fourteen days";
const CHARGE = "Charge in the customer's own currency";
const GIFT = "Decide how gift cards are taxed";
const EXPORT = "Show refunds in the export";

const card = (page, title) => page.locator(".card", { has: page.getByRole("heading", { name: title, exact: true }) });
const columnOf = async (page, title) => (await page.locator(".col", { has: card(page, title) }).locator("h2").first().textContent()).trim();

const usePalette = async ({ browser, check, tamma }, page, added) => {
  await page.goto(tamma.url);
  const open = async (text) => {
    await page.keyboard.press("Control+k");
    await page.locator("#palette[open]").waitFor();
    await page.locator("#palette-text").fill(text);
  };
  await open("fourteen");
  await page.locator("#palette-list a", { hasText: REFUND }).waitFor();
  await browser.checkPage(page, "palette");
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/tasks/${added[REFUND]}`);
  check(true, "the palette finds a task and opens it");
  await open("pause");
  await page.locator("#palette-list a", { hasText: "Pause" }).first().waitFor();
  await page.keyboard.press("Enter");
  check(await page.locator("#actions details[open]", { hasText: "Pause" }).isVisible(), "the palette opens an action of the task");
  await open("go to inbox");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/inbox$/);
  check(true, "the palette goes to a page");
};

const actOnSeveral = async ({ browser, check, tamma }, page) => {
  const { tasks } = await tamma.get("/api/v1/tasks");
  const ids = [REFUND, EXPORT].map((title) => tasks.find((it) => it.title === title).id);
  const select = async () => {
    await page.goto(tamma.url);
    for (const title of [REFUND, EXPORT]) await card(page, title).locator(".pick input").check();
  };
  await select();
  check((await page.locator("#bulk .picked").textContent()) === "(2)", "selected cards are counted");
  check((await page.locator("#bulk button[value=approve], #bulk button[value=accept]").count()) === 0, "nothing is decided for several tasks at once");
  await page.locator("#bulk [name=label]").fill("audit");
  await page.getByRole("button", { name: "Add label" }).click();
  await page.locator("ul.lines").first().waitFor();
  check((await page.locator("ul.lines > li").count()) === 2, "a bulk action has a result for each task");
  await browser.checkPage(page, "bulk-result");
  for (const id of ids) await tamma.until(id, (it) => it.labels.includes("audit"), "labelled");
  await page.goto(`${tamma.url}/?label=audit`);
  check((await page.locator(".card").count()) === 2, "both tasks have the label");
  for (const [button, isPaused] of [["Pause", true], ["Resume", false]]) {
    await select();
    await page.locator("#bulk").getByRole("button", { name: button, exact: true }).click();
    await page.locator("ul.lines").first().waitFor();
    for (const id of ids) await tamma.until(id, (it) => it.paused === isPaused, button);
  }
  check(true, "several tasks are paused and resumed");
  // x selects with the keyboard.
  await page.goto(tamma.url);
  await card(page, REFUND).locator("[data-item]").focus();
  await page.keyboard.press("x");
  check(await card(page, REFUND).locator(".pick input").isChecked(), "x selects the focused card");
};

const saveView = async ({ browser, check, tamma }, page) => {
  await page.goto(tamma.url);
  check(/^Approval/.test(await columnOf(page, REFUND)), "the board is grouped by phase");
  await page.locator("[name=group]").selectOption("person");
  await page.waitForURL(/group=person/);
  const mine = await columnOf(page, REFUND);
  check(/you/i.test(mine) && /^Not waiting/.test(await columnOf(page, CHARGE)), `the board can be grouped by person (${mine})`);
  await page.locator("[name=group]").selectOption("project");
  await page.waitForURL(/group=project/);
  check(/^shop/.test(await columnOf(page, REFUND)), "the board can be grouped by project");
  await page.locator("[name=sort]").selectOption("priority");
  await page.waitForURL(/sort=priority/);
  const first = await page.locator(".card h3").first().textContent();
  check(first.trim() === CHARGE, `the highest priority is first (${first.trim()})`);
  await page.locator(".save-view summary").click();
  await page.locator(".save-view [name=name]").fill("By urgency");
  await page.locator(".save-view").getByRole("button", { name: "Save" }).click();
  const view = page.locator(".views").getByRole("link", { name: "By urgency", exact: true });
  await view.waitFor();
  await page.goto(tamma.url);
  await view.click();
  await page.waitForURL((url) => url.searchParams.get("group") === "project" && url.searchParams.get("sort") === "priority");
  check((await view.getAttribute("aria-current")) === "page", "a saved view leads back to its order and grouping");
  await browser.checkPage(page, "view");
  await page.getByRole("button", { name: /Remove view By urgency/ }).click();
  await view.waitFor({ state: "detached" });
  check(true, "a view can be removed");
};

const moveCard = async ({ browser, check, tamma }, page, added) => {
  const id = added[REFUND];
  const { priority, state } = await tamma.get(`/api/v1/tasks/${id}`);
  await page.goto(`${tamma.url}/?group=priority`);
  await browser.checkPage(page, "board-priority");
  // The drop submits a form, which loads the board again.
  const loaded = page.waitForEvent("load");
  await card(page, REFUND).dragTo(page.locator("[data-priority=critical]"));
  await tamma.until(id, (it) => it.priority === "critical", "critical");
  await loaded;
  check(priority !== "critical", "a card that is dragged to another column gets its priority");
  await page.goto(tamma.url);
  const item = page.locator(".cards > li", { has: card(page, REFUND) });
  await item.hover();
  check(!(await item.evaluate((it) => it.draggable)), "cards cannot be dragged between phases");
  await item.dragTo(page.locator(".col", { has: card(page, CHARGE) }));
  const after = await tamma.get(`/api/v1/tasks/${id}`);
  check(after.state === state && after.approvals.length === 0, "a drag never passes a gate");
};

const editTask = async ({ check, tamma }, page) => {
  const { tasks } = await tamma.get("/api/v1/tasks");
  const id = tasks.find((it) => it.title === EXPORT).id;
  await page.goto(`${tamma.url}/tasks/${id}`);
  const form = page.locator("#actions details", { has: page.locator("[name=labels]") });
  await form.locator("summary").click();
  await form.locator("[name=title]").fill("Show refunds in the yearly export");
  await form.locator("[name=priority]").selectOption("low");
  await form.locator("[name=labels]").fill("export, year");
  await form.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { level: 1, name: "Show refunds in the yearly export" }).waitFor();
  const task = await tamma.until(id, (it) => it.priority === "low", "edited");
  check(task.title === "Show refunds in the yearly export" && String(task.labels) === "export,year", "title, priority and labels are edited on the page");
};

const decideInInbox = async ({ browser, check, tamma }, page, added) => {
  await page.goto(`${tamma.url}/inbox`);
  await browser.checkPage(page, "inbox-decisions");
  const gift = page.locator(`#ask-${added[GIFT]}`);
  check(await gift.getByText("when they are sold or when they are spent").first().isVisible(), "the inbox shows the question of an agent");
  const reply = gift.locator("details.action-form", { has: page.locator("input[name=action][value=reply]") });
  await reply.evaluate((it) => { it.open = true; });
  await reply.locator("textarea[name=text]").fill("When they are sold.");
  await reply.getByRole("button", { name: "Send reply" }).click();
  await tamma.until(added[GIFT], (it) => !it.waits_for_person, "answered");
  check(new URL(page.url()).pathname === "/inbox", "a reply in the inbox answers the agent");
  const refund = page.locator(`#ask-${added[REFUND]}`);
  await refund.locator("details.decide > summary").click();
  check(await refund.getByText("second entry in the ledger").isVisible(), "the inbox shows the plan");
  await refund.getByRole("button", { name: "Approve plan 1" }).first().click();
  await tamma.until(added[REFUND], (it) => it.approvals.length === 1, "approved");
  await refund.waitFor({ state: "detached" });
  check(new URL(page.url()).pathname === "/inbox", "a plan is approved in the inbox");
};

// Waits for a notification about the large task, which needs an approval. Returns its ID.
const getNotified = async ({ browser, check, tamma }) => {
  const page = await browser.page({ ...VARIANTS["wide.light"], permissions: ["notifications"] });
  await page.addInitScript(() => {
    window.notes = [];
    window.Notification = class {
      static permission = "granted";
      static requestPermission = async () => "granted";
      constructor(title, options) { window.notes.push(`${title}: ${options.body}`); }
    };
    Object.defineProperty(Document.prototype, "hidden", { get: () => window.isHidden === true });
  });
  await page.goto(tamma.url);
  await page.getByRole("button", { name: /Settings/ }).click();
  await page.getByRole("button", { name: "Turn on notifications" }).click();
  check(await page.getByRole("button", { name: "Turn off notifications" }).isVisible(), "notifications can be turned on");
  await page.getByText("Live", { exact: true }).waitFor();
  // The page goes to the background, as if the person had chosen another tab.
  await page.evaluate(() => { window.isHidden = true; document.dispatchEvent(new Event("visibilitychange", { bubbles: true })); });
  const id = JSON.parse(await tamma.run("task", "add", LARGE.title, "--json")).task.id;
  const came = await page.waitForFunction(() => window.notes.length > 0).then(() => true, () => false);
  const notes = await page.evaluate(() => window.notes);
  check(came && /waiting/.test(notes[0]), `a hidden page notifies about a new decision (${notes})`);
  await page.context().close();
  return id;
};

const copyAndLink = async ({ browser, check, tamma }, task) => {
  const page = await browser.page({ ...VARIANTS["wide.light"], permissions: ["clipboard-read", "clipboard-write"], timezoneId: "Asia/Tokyo" });
  await page.goto(`${tamma.url}${task}`);
  await page.locator(".crumbs .copy").click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  check(copied === task.split("/").pop(), "the ID of a task can be copied");
  await page.locator("[data-copy-from=merge]").click();
  check(/^git merge tamma\//.test(await page.evaluate(() => navigator.clipboard.readText())), "the command that merges the work can be copied");
  const times = await page.locator("time[data-at]").evaluateAll((all) => {
    const clock = new Intl.DateTimeFormat("en-GB", { timeZone: "Asia/Tokyo", hour: "2-digit", minute: "2-digit" });
    return all.map((it) => [it.textContent, clock.format(new Date(it.dateTime))]);
  });
  check(times.length > 0 && times.every(([shown, expected]) => shown.endsWith(expected)), `times are local (${times[0]})`);
  await page.getByRole("button", { name: /Settings/ }).click();
  await page.locator("#me [name=editor]").selectOption("vscode");
  await page.locator("#me").getByRole("button", { name: "Save" }).click();
  await page.goto(`${tamma.url}${task}`);
  const link = await page.locator("#plan a.edit").first().getAttribute("href");
  check(link.startsWith(`vscode://file${tamma.repository}/`), `files of the plan open in the editor (${link})`);
  await page.context().close();
};

// Uses every control for many tasks. `reviewed` is the address of a finished task. Returns the ID of the
// large task, whose plan awaits approval.
export const manyTasks = async (day, page, added, reviewed) => {
  await usePalette(day, page, added);
  await actOnSeveral(day, page);
  await saveView(day, page);
  await moveCard(day, page, added);
  await editTask(day, page);
  await decideInInbox(day, page, added);
  await copyAndLink(day, reviewed);
  const large = await getNotified(day);
  await day.tamma.until(added[REFUND], (it) => it.waits_for_person, "waiting on a person");
  return large;
};
