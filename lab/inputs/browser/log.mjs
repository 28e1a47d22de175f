// The log of a task and the page of a run: groups, expandable calls, failures, filters, and a live tail
// with growing costs that can be paused.

import { REVIEWED, WATCHED } from "./inputs.mjs";

// Reads the log of a finished task. Returns the address of one of its runs.
export const readRuns = async ({ browser, check, tamma }, page, task) => {
  await page.goto(`${tamma.url}${task}/log`);
  const groups = await page.locator(".log .g > summary").allTextContents();
  check(groups.some((it) => it.startsWith("Edit")) && groups.some((it) => it.startsWith("Run commands")), `calls are grouped by purpose (${groups})`);
  const commands = page.locator(".log details.g", { hasText: "Run commands" }).first();
  check(/3 calls, 1 failed/.test(await commands.locator("summary").first().textContent()) && (await commands.evaluate((it) => it.open)), "a group counts its calls and failures, and is open if one failed");
  const failed = page.locator(".log .l-failed", { hasText: "no-such-script.sh" }).first();
  check(/exit code 127|exit code 2/.test(await failed.textContent()), "a failed call shows its exit code");
  const edit = page.locator(".log .k-tool", { hasText: "src/amount.rs" }).locator("details.call").first();
  await edit.evaluate((it) => { it.closest("details.g").open = true; });
  check((await edit.locator("summary").first().textContent()).trim().split("\n").length === 1 && !(await edit.evaluate((it) => it.open)), "a call is one line");
  await edit.locator("summary").first().click();
  check(await edit.locator(".l-diff .d-add").first().isVisible(), "an expanded edit shows its diff");
  await page.locator("[name=kinds]").selectOption("failures");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.waitForURL(/kinds=failures/);
  const lines = page.locator(".log .l");
  check((await lines.count()) > 0 && (await lines.count()) === (await page.locator(".log .l-failed").count()), "the filter shows failures alone");
  await page.goto(`${tamma.url}${task}/log?text=no-such-script`);
  const found = await page.locator(".log .l").allTextContents();
  check(found.length > 0 && found.every((it) => it.includes("no-such-script")), "the whole log can be searched");
  await page.goto(`${tamma.url}${task}/log`);
  await page.getByRole("button", { name: "Expand all" }).click();
  check((await page.locator(".log details:not([open])").count()) === 0, "all calls can be expanded");
  await browser.checkPage(page, "log-expanded");
  // A run has a page to share, which needs no script.
  const runs = await page.locator("ul.runs a").evaluateAll((all) => all.map((it) => it.getAttribute("href")));
  const reader = await browser.page({ javaScriptEnabled: false });
  let shared;
  for (const run of runs) {
    await reader.goto(`${tamma.url}${run}`);
    if ((await reader.getByText("I will print the euro.").count()) > 0) shared = run;
  }
  await reader.goto(`${tamma.url}${shared}`);
  check(shared !== undefined && (await reader.locator("h1").textContent()).startsWith("Run "), "the transcript of a run has an address of its own, and works without JavaScript");
  check((await reader.getByRole("link", { name: REVIEWED.title }).count()) === 1, "it names its task");
  const anchor = await reader.locator(".log .l-at").first().getAttribute("href");
  check((await reader.locator(anchor).count()) === 1, "each line can be linked to");
  const raw = await reader.getByRole("link", { name: /raw transcript/ }).getAttribute("href");
  const response = await fetch(tamma.url + raw, { headers: { authorization: `Bearer ${tamma.token}` } });
  const first = (await response.text()).split("\n")[0];
  check(response.ok && typeof JSON.parse(first) === "object", "the raw transcript can be downloaded");
  await reader.context().close();
  return shared;
};

// Watches a run while it works: costs and tokens grow, and the tail can be paused and searched.
export const watchRun = async ({ browser, check, tamma }, page) => {
  const id = JSON.parse(await tamma.run("task", "add", WATCHED.title, "--json")).task.id;
  await page.goto(`${tamma.url}/tasks/${id}/log`);
  const [first, second, third] = WATCHED.steps.map((it) => page.locator(".log .l", { hasText: it }));
  await first.waitFor();
  // The newest run is the first in the list.
  await page.reload();
  const run = await page.locator("ul.runs a").first().getAttribute("href");
  await page.goto(`${tamma.url}${run}`);
  await page.evaluate(() => { window.mark = true; });
  const facts = page.locator("#run-facts");
  await facts.getByText("$0.01").waitFor();
  tamma.signal(1);
  await second.waitFor();
  await facts.getByText("$0.05").waitFor();
  check(await page.evaluate(() => window.mark === true), "lines and costs of a run appear without reloading");
  await page.getByRole("button", { name: "Pause" }).click();
  tamma.signal(2);
  const resume = page.getByRole("button", { name: /^Resume \(\d+ new\)/ });
  await resume.waitFor();
  check((await third.count()) === 0, "a paused tail does not move, and counts the new lines");
  await browser.checkPage(page, "run-paused");
  await resume.click();
  await third.waitFor();
  check(await page.getByRole("button", { name: "Pause", exact: true }).isVisible(), "a resumed tail has every line");
  await page.locator("[data-log-search]").fill(WATCHED.steps[1]);
  check((await second.isVisible()) && !(await first.isVisible()) && !(await third.isVisible()), "the search field filters the live lines");
  await page.locator("[data-log-search]").fill("");
  tamma.signal(3);
  await facts.getByText("4,521 tokens").waitFor();
  check(/\$0\.12/.test(await facts.textContent()), "tokens and cost are complete at the end");
  await tamma.until(id, (it) => it.state === "completed", "completed");
  return run;
};
