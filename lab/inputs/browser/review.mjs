// The page of a change: Markdown, both layouts, changed words, images, generated files, unchanged lines,
// viewed marks, threads, drafts, keys, and what is new since the last review.

import { REVIEWED } from "./inputs.mjs";

const SOURCE = "src/amount.rs";
const fileOf = (page, name) => page.locator(`.dfile[data-path="${name}"]`);

// Opens the change as a new reader does, without a remembered layout.
const openChange = async (page, tamma, task, query = "") => {
  await page.goto(`${tamma.url}${task}/change${query}`);
  await page.locator(".fdiffs").waitFor();
};

const readMarkdown = async ({ check }, page) => {
  const request = page.locator("#request .prose");
  const [items, bold, code] = [await request.locator("ul > li").count(), await request.locator("strong").textContent(), await request.locator("pre .hk").count()];
  check(items === 2 && bold === "bare numbers" && code > 0, "Markdown of the request becomes a list, bold words and highlighted code");
  const hostile = await request.locator("img, script, a[href^='javascript']").count();
  check(hostile === 0 && !(await page.evaluate(() => window.broken)), "HTML and scripts in Markdown are shown as text");
  check((await page.locator("#plan .lead strong").textContent()) === "currency", "Markdown of the plan is rendered");
};

const readLayouts = async ({ browser, check, tamma }, page, task) => {
  await openChange(page, tamma, task);
  const shown = await page.locator(".dfile").evaluateAll((all) => all.map((it) => it.dataset.path).sort());
  check(String(shown) === String(REVIEWED.files), `every changed file is there (${shown})`);
  check((await page.locator(".ftree li[id]").count()) === shown.length, "the tree lists every file");
  const source = fileOf(page, SOURCE);
  const words = async (kind) => source.locator(`.${kind} .w`).allTextContents();
  check((await words("d-del")).includes("60") && (await words("d-add")).includes("6000"), "the words that differ are marked in both lines");
  check((await source.locator(".hk").count()) > 0 && (await source.locator(".hn").count()) > 0, "code is highlighted");
  check((await source.locator(".ln", { hasText: "<b>line 60</b>" }).count()) > 0 && (await source.locator(".ln b").count()) === 0, "code is shown as it is, escaped");
  await browser.checkPage(page, "change-unified");
  await page.getByRole("link", { name: "Split" }).click();
  await source.locator("table.split").waitFor();
  const pairs = await source.locator("tr").evaluateAll((all) => all.filter((it) => it.querySelector("td.ln.d-del") && it.querySelector("td.ln.d-add")).map((it) => it.textContent));
  check(pairs.some((it) => it.includes("* 60 }") && it.includes("* 6000 }")), "in the split view a removed line is beside the line that replaces it");
  await browser.checkPage(page, "change-split");
  await page.goto(`${tamma.url}${task}/change`, { waitUntil: "commit" });
  await page.waitForURL(/view=split/);
  check(await source.locator("table.split").isVisible(), "the chosen view is remembered");
  await page.getByRole("link", { name: "Unified" }).click();
  await source.locator("table:not(.split)").waitFor();
};

const readFiles = async ({ check, tamma }, page, task) => {
  await openChange(page, tamma, task, "?view=unified");
  const source = fileOf(page, SOURCE);
  // Collapse and expand.
  await source.locator("summary").first().click();
  check(!(await source.locator("table.diff").isVisible()), "a file can be collapsed");
  await source.locator("summary").first().click();
  // Unchanged lines.
  check((await source.getByText("amount_050").count()) === 0, "lines far from the change are hidden");
  await source.locator("a.xp").first().click();
  await source.locator("tr.xrow", { hasText: "amount_050" }).waitFor();
  const numbers = await source.locator("tr.xrow", { hasText: "amount_050" }).locator(".no").allTextContents();
  check(String(numbers) === "50,50", `expanded lines have their numbers (${numbers})`);
  // Generated files are folded and load when they are opened.
  const built = fileOf(page, "web/app.min.js");
  const isOpen = () => built.locator("details").evaluate((it) => it.open);
  check(!(await isOpen()) && (await built.getByText("generated").isVisible()), "a generated file is folded");
  await built.locator("summary").click();
  await built.locator(".d-add", { hasText: "const a=2;" }).waitFor();
  check(true, "a folded file loads when it is opened");
  // Images and other binary files.
  const images = fileOf(page, "assets/logo.png").locator("img");
  for (const image of await images.all()) await image.scrollIntoViewIfNeeded();
  await page.waitForFunction(() => [...document.querySelectorAll(".images img")].every((it) => it.complete));
  const widths = await images.evaluateAll((all) => all.map((it) => it.naturalWidth));
  check(String(widths) === "1,1", `an image is shown before and after the change (${widths})`);
  check(await fileOf(page, "data/rates.bin").getByText("Binary file").isVisible(), "another binary file is named as such");
  check(await fileOf(page, "notes/old.md").getByText("deleted").isVisible(), "a deleted file is marked");
  // The tree and its filter.
  await page.locator("#ffilter").fill("amount");
  const left = await page.locator(".ftree li[id]:visible").allTextContents();
  check(left.length === 1 && left[0].includes("amount.rs"), `the tree can be filtered (${left})`);
  await page.locator("#ffilter").fill("");
  await page.locator(".ftree a", { hasText: "old.md" }).click();
  check(new URL(page.url()).hash === `#${await fileOf(page, "notes/old.md").getAttribute("id")}`, "the tree leads to a file");
};

const markViewed = async ({ check, tamma }, page, task) => {
  await openChange(page, tamma, task, "?view=unified");
  for (const name of ["docs.txt", SOURCE]) {
    await fileOf(page, name).locator(".vw").click();
    await fileOf(page, name).locator(".vw.on").waitFor();
  }
  check((await page.locator("#progress").textContent()).startsWith("2 of 6"), "viewed files are counted");
  await page.reload();
  check((await page.locator("#progress").textContent()).startsWith("2 of 6") && (await fileOf(page, "docs.txt").locator(".vw.on").count()) === 1, "viewed marks survive a reload");
  check(!(await fileOf(page, "docs.txt").locator("details").evaluate((it) => it.open)), "a viewed file is folded");
};

const commentOnLines = async ({ browser, check, tamma }, page, task) => {
  // The viewed file with the lines is opened by its query.
  await openChange(page, tamma, task, "?view=unified&all=true");
  const source = fileOf(page, SOURCE);
  const added = source.locator("tr.d-add", { hasText: "currency()" });
  await added.locator("a[data-at]").click();
  await source.locator("tr.cm textarea").fill("Is the **euro** enough?");
  await source.getByRole("button", { name: "Post now" }).click();
  await page.waitForLoadState();
  const thread = source.locator("tr.cm", { hasText: "Is the euro enough?" });
  await thread.waitFor();
  check((await thread.locator("strong").textContent()) === "euro", "a comment on a new line is posted, with Markdown");
  await thread.getByRole("link", { name: "Reply" }).click();
  await thread.locator("textarea").fill("For now it is.");
  await thread.getByRole("button", { name: "Post now" }).click();
  await page.waitForLoadState();
  await source.getByText("For now it is.").waitFor();
  check((await thread.locator(".cmt").count()) === 2, "a reply is in the same thread");
  const { title } = await tamma.get(`/api/v1/tasks/${task.split("/").pop()}`);
  check(title === REVIEWED.title && (await page.locator("#question").isVisible()), "a comment decides nothing");
  // A draft on an old line survives a reload, and is sent with the decision.
  const removed = source.locator("tr.d-del", { hasText: "amount_100" });
  await removed.locator("a[data-at^=o]").click();
  const draft = source.locator("tr.cm textarea");
  await draft.fill(REVIEWED.comment);
  await draft.press("Control+Enter");
  await source.getByText("Draft saved").waitFor();
  await page.reload();
  check((await draft.inputValue()) === REVIEWED.comment, "a draft on a removed line survives a reload");
  check(await page.locator("#drafts").isVisible(), "unsent drafts are counted");
  await browser.checkPage(page, "change-threads");
};

const useKeys = async ({ check, tamma }, page, task) => {
  await openChange(page, tamma, task, "?view=unified");
  const current = () => page.locator("tr.cur").getAttribute("id");
  await page.keyboard.press("j");
  const first = await current();
  await page.keyboard.press("j");
  const second = await current();
  await page.keyboard.press("k");
  check(first !== second && (await current()) === first, "j and k move between lines");
  const focused = () => page.evaluate(() => document.activeElement.closest(".dfile")?.dataset.path);
  const before = await focused();
  await page.keyboard.press("]");
  const next = await focused();
  check(next !== undefined && next !== before, `the next file has the focus (${next})`);
  const isOpen = () => fileOf(page, next).locator("details").evaluate((it) => it.open);
  const wasOpen = await isOpen();
  await page.keyboard.press("x");
  check((await isOpen()) !== wasOpen, "x folds a file");
  const wasMarked = (await fileOf(page, next).locator(".vw.on").count()) === 1;
  for (const isMarked of [!wasMarked, wasMarked]) {
    await page.keyboard.press("v");
    await fileOf(page, next).locator(isMarked ? ".vw.on" : ".vw:not(.on)").waitFor();
  }
  check(true, "v marks a file as viewed, and removes the mark");
  if (!(await isOpen())) await page.keyboard.press("x");
  await page.keyboard.press("[");
  await page.keyboard.press(".");
  check(await page.locator("tr.cm.cur").isVisible(), "a dot leads to the next comment");
  await page.keyboard.press("k");
  await page.keyboard.press("c");
  check(await page.evaluate(() => document.activeElement.matches("form.draft textarea")), "c comments on the line");
  await page.keyboard.press("Escape");
  await page.keyboard.press("d");
  check(await page.locator(".bar-form[open] .panel").isVisible(), "d opens the decision");
  await page.keyboard.press("Escape");
  await page.keyboard.press("s");
  await page.waitForURL(/view=split/);
  check(await page.locator("table.split").first().isVisible(), "s switches to the split view");
  await page.keyboard.press("s");
  await page.waitForURL(/view=unified/);
};

const requestChanges = async ({ browser, check, tamma }, page, task) => {
  const id = task.split("/").pop();
  const { commit } = await tamma.get(`/api/v1/tasks/${id}`);
  await openChange(page, tamma, task, "?view=unified");
  await page.locator(".bar-form[data-action=rework] > summary").click();
  await page.locator("#rework").getByRole("button", { name: "Request changes" }).click();
  await page.waitForURL(new RegExp(`${task}$`));
  await tamma.until(id, (it) => it.state === "quality_review" && it.waits_for_person && it.commit !== commit, "in review again");
  await openChange(page, tamma, task, "?view=unified");
  const since = page.getByRole("link", { name: /^Changes since your review/ });
  check(/\(1 file\)/.test(await since.textContent()), "the page offers the changes since the last review");
  check(await fileOf(page, SOURCE).getByText("changed since you viewed it").isVisible(), "a viewed file that changed is unmarked, and says so");
  check((await fileOf(page, "docs.txt").locator(".vw.on").count()) === 1, "another viewed file keeps its mark");
  await since.click();
  await page.waitForURL(/since=true/);
  const files = await page.locator(".dfile").evaluateAll((all) => all.map((it) => it.dataset.path));
  const fresh = await page.locator("tr.fresh .ln").allTextContents();
  check(String(files) === SOURCE && fresh.some((it) => it.includes("Amounts in euro")), `only the new lines are shown (${files})`);
  check((await page.getByText("amount_100").count()) === 0, "hunks without a new line are left out");
  await browser.checkPage(page, "change-since");
  await page.getByRole("link", { name: "Show the whole change" }).click();
  await page.locator(".dfile").nth(5).waitFor();
  check((await fileOf(page, SOURCE).locator("tr.cm .cmt", { hasText: "For now it is." }).count()) === 1, "threads stay on their lines in the new commit");
  check((await fileOf(page, SOURCE).locator(".cmt", { hasText: REVIEWED.comment }).count()) === 1, "the sent draft is a comment now");
};

// Takes a task from its request to the acceptance of its second change.
export const reviewChange = async (day, page, add) => {
  const { check, tamma } = day;
  const task = await add(page, REVIEWED.title, REVIEWED.description);
  const id = task.split("/").pop();
  await page.getByRole("button", { name: "Approve plan 1" }).waitFor();
  await page.reload();
  await readMarkdown(day, page);
  await page.getByRole("button", { name: "Approve plan 1" }).click();
  await tamma.until(id, (it) => it.state === "quality_review" && it.waits_for_person, "in review");
  await readLayouts(day, page, task);
  await readFiles(day, page, task);
  await markViewed(day, page, task);
  await commentOnLines(day, page, task);
  await useKeys(day, page, task);
  await requestChanges(day, page, task);
  await page.goto(`${tamma.url}${task}`);
  await page.getByRole("button", { name: /^Accept/ }).click();
  await tamma.until(id, (it) => it.state === "completed", "completed");
  check(true, "the reviewed change was accepted");
  return task;
};
