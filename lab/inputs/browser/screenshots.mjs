// Screenshots of pages for documents. Reads one request per line and answers `ok` or an error. The first
// request has the sign-ins: { forge: { url, account, password }, tamma: "<sign-in link>" }. The others are
// { name, site: "forge" | "tamma", url }.
//
// usage: node screenshots.mjs <screenshot folder>

import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { chromium } from "playwright-core";

const folder = path.resolve(process.argv[2]);
fs.mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

const newPage = async () => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: "light", locale: "en-GB" });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  return page;
};

const signIn = async ({ forge, tamma }) => {
  // One context for each site: both are on this machine, and cookies do not distinguish ports.
  const pages = { forge: await newPage(), tamma: await newPage() };
  await pages.forge.goto(`${forge.url}/user/login`);
  await pages.forge.locator("[name=user_name]").fill(forge.account);
  await pages.forge.locator("[name=password]").fill(forge.password);
  await pages.forge.locator("[name=password]").press("Enter");
  await pages.forge.waitForURL((url) => !url.pathname.startsWith("/user/login"));
  await pages.tamma.goto(tamma);
  await pages.tamma.getByRole("button", { name: "Sign in" }).click();
  await pages.tamma.waitForURL((url) => url.pathname === "/");
  return pages;
};

const take = async (pages, { name, site, url }) => {
  const page = pages[site];
  await page.goto(url, { waitUntil: "load" });
  await page.evaluate(() => document.fonts.ready);
  await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true, animations: "disabled" });
};

let pages;
for await (const line of readline.createInterface({ input: process.stdin })) {
  try {
    const request = JSON.parse(line);
    if (pages) await take(pages, request);
    else pages = await signIn(request);
    console.log("ok");
  } catch (error) {
    console.log(error.message.replaceAll("\n", " "));
  }
}
await browser.close();
