// Screenshots of a task in a browser, from its plan to its end, for an animation (lab/inputs/docs/recording.py).
// Writes the pictures, and frames.json with the seconds for which each is shown.
//
// usage: node recording.mjs <sign-in link of the task> <new folder>

import fs from "node:fs";
import path from "node:path";
import { chromium } from "playwright-core";

const [link, folder] = process.argv.slice(2);
fs.mkdirSync(folder);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1200, height: 620 }, colorScheme: "light", locale: "en-GB" });
const page = await context.newPage();
page.setDefaultTimeout(60_000);

const frames = [];
let last;
// Takes a picture, unless the page looks as before.
const take = async (seconds) => {
  const picture = await page.screenshot();
  if (last && picture.equals(last)) return;
  last = picture;
  const file = `${frames.length}.png`;
  fs.writeFileSync(path.join(folder, file), picture);
  frames.push({ file, seconds });
};

try {
  await page.goto(link);
  await page.getByRole("button", { name: "Sign in" }).click();
  const approve = page.getByRole("button", { name: "Approve plan 1" });
  await approve.waitFor();
  const task = page.url().split("#")[0];
  await take(3);
  await approve.scrollIntoViewIfNeeded();
  await take(2);
  await approve.click();
  const state = page.locator(".s-now b").first();
  const closed = page.getByText("This task is closed");
  const deadline = Date.now() + 60_000;
  for (let before = ""; !(await closed.isVisible()) && Date.now() < deadline; ) {
    // Cost and times change more often than the state, and a state can pass faster than anybody can read it.
    const now = await state.textContent().catch(() => before);
    if (now !== before) {
      await page.evaluate(() => window.scrollTo(0, 0));
      await take(1.5);
      before = now;
      await page.waitForTimeout(1_500);
    }
    await page.waitForTimeout(50);
  }
  await closed.waitFor();
  await page.evaluate(() => window.scrollTo(0, 0));
  await take(2);
  await page.goto(`${task}/change`);
  await take(4);
  fs.writeFileSync(path.join(folder, "frames.json"), JSON.stringify(frames));
} finally {
  await browser.close();
}
