// Times of the largest pages, measured by the browser inside the page.
//
// A load counts from the start of the navigation until the document is parsed with its scripts
// (DOMContentLoaded), the first content is painted, and the first rows of the diff or the last line of the
// log are painted: the latest of the three. The first load fills the cache of the browser with style sheets
// and scripts, and does not count. The server's part is from the sent request to the first byte of the
// response; the page is rendered completely before that byte.

const LIMIT_MS = 300;

// Records when the first element that fits is painted: after the next frame in which it exists.
const recordPaint = (selector) => {
  window.paintedAt = 0;
  const look = () => {
    if (!document.querySelector(selector)) return requestAnimationFrame(look);
    requestAnimationFrame(() => {
      // Messages are handled after the frame was painted.
      const channel = new MessageChannel();
      channel.port1.onmessage = () => { window.paintedAt = performance.now(); };
      channel.port2.postMessage(null);
    });
  };
  requestAnimationFrame(look);
};

const readTimes = () => {
  const [load] = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  return {
    total: Math.max(load.domContentLoadedEventEnd, paint, window.paintedAt),
    server: load.responseStart - load.requestStart,
    kilobytes: load.decodedBodySize / 1000,
  };
};

// Returns the smallest value that at least this share of the values does not exceed.
const percentile = (values, percent) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(Math.ceil((sorted.length * percent) / 100), 1) - 1];
};

const describe = (values) => {
  const [p50, p95, most] = [percentile(values, 50), percentile(values, 95), Math.max(...values)];
  return `p50 ${p50.toFixed(0)} ms, p95 ${p95.toFixed(0)} ms, max ${most.toFixed(0)} ms`;
};

// Loads a page several times, prints its times, and returns their p95.
const measureLoads = async (page, url, loads, name, hasLimit = true) => {
  const times = [];
  for (let i = 0; i <= loads; i += 1) {
    await page.goto(url, { waitUntil: "load" });
    await page.waitForFunction(() => window.paintedAt > 0 && performance.getEntriesByName("first-contentful-paint").length > 0);
    const time = await page.evaluate(readTimes);
    if (i > 0) times.push(time);
  }
  const [total, server] = [times.map((it) => it.total), times.map((it) => it.server)];
  const limit = hasLimit ? `limit ${LIMIT_MS} ms at p95` : "no limit";
  console.log(`measure: ${name}: ${describe(total)} (${loads} loads; ${limit}); server: ${describe(server)}; ${times[0].kilobytes.toFixed(0)} kB`);
  return percentile(total, 95);
};

// Scrolls through a page, a third of a screen in each frame, and waits there until files are loaded.
// Returns the durations of frames and of tasks that blocked the page for more than 50 ms.
const scroll = async () => {
  const absent = () => document.querySelectorAll(".dfile.later, .dfile details[open] [data-load]");
  const frames = [], tasks = [];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((it) => it.duration)));
  observer.observe({ type: "longtask" });
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const began = performance.now();
  let last = await frame();
  for (let still = 0; still < 30 && performance.now() - began < 60_000; ) {
    const before = scrollY;
    scrollBy({ top: innerHeight / 3, behavior: "instant" });
    const now = await frame();
    frames.push(now - last);
    last = now;
    const isLoading = absent().length > 0;
    still = scrollY === before && !isLoading ? still + 1 : 0;
    // Files below the end of the page come near when those above are there.
    if (scrollY === before && isLoading) scrollBy({ top: -innerHeight, behavior: "instant" });
  }
  observer.disconnect();
  return { frames, tasks, seconds: (performance.now() - began) / 1000, missing: absent().length };
};

// Measures the change and the log of the large task. Quick measurements have no limit: other programs of a
// CI machine would decide.
export const measurePages = async ({ browser, check, tamma }, id, size, isQuick) => {
  const options = { viewport: { width: 1440, height: 900 }, colorScheme: "light" };
  const judge = (p95, name) => {
    if (!isQuick) check(p95 < LIMIT_MS, `${name} opens in less than ${LIMIT_MS} ms at p95 (${p95.toFixed(0)} ms)`);
  };
  const change = await browser.page(options);
  await change.addInitScript(recordPaint, ".dfile .diff tr[id] .ln");
  const address = `${tamma.url}/tasks/${id}/change?view=unified`;
  const lines = size.files * 25;
  const diff = `diff of ${lines} lines in ${size.files} files`;
  const diffTime = await measureLoads(change, address, size.loads, diff);
  const counted = await change.evaluate(() => [document.querySelectorAll(".dfile").length, document.querySelector(".rbar-facts .add").textContent, document.querySelector(".rbar-facts .del").textContent]);
  const digits = (text) => Number(text.replace(/\D/g, ""));
  check(counted[0] === size.files && digits(counted[1]) + digits(counted[2]) === lines, `the change has ${lines} changed lines in ${size.files} files (${counted})`);
  const scrolled = await change.evaluate(scroll);
  const blocked = scrolled.tasks.reduce((sum, it) => sum + it, 0);
  console.log(
    `measure: scrolling through it: frames ${describe(scrolled.frames)} (${scrolled.frames.length} frames in ${scrolled.seconds.toFixed(1)} s); ` +
      `${scrolled.tasks.length} tasks over 50 ms, ${blocked.toFixed(0)} ms altogether`,
  );
  const rows = await change.locator(".diff tr.d-add, .diff tr.d-del").count();
  check(scrolled.missing === 0 && rows === lines, `every line is there after scrolling (${rows} of ${lines})`);
  // Every file at once, as a person without scripts gets it.
  await measureLoads(change, `${address}&all=true`, isQuick ? 1 : 5, "the same with all files at once", false);
  await change.context().close();
  judge(diffTime, `a ${diff}`);

  await tamma.writeLog(id, size.log);
  const log = await browser.page(options);
  await log.addInitScript(recordPaint, "#log .l");
  const name = `log of ${size.log} lines`;
  const logTime = await measureLoads(log, `${tamma.url}/tasks/${id}/log`, size.loads, name);
  const newest = await log.locator("#log .l").last().textContent();
  const expected = size.log % 10 === 0 ? `Step ${size.log}` : "check.sh";
  check(newest.includes(expected), `the newest line is on the page (${newest.slice(0, 60)})`);
  // Earlier lines are a click away.
  const shown = await log.locator("#log .l").count();
  await log.locator("[data-log-earlier]").click();
  await log.waitForFunction((count) => document.querySelectorAll("#log .l").length > count, shown);
  check(true, "earlier lines are added above");
  const run = await log.locator("ul.runs a").first().getAttribute("href");
  const runTime = await measureLoads(log, tamma.url + run, size.loads, `page of the run with ${size.log} lines`);
  await measureLoads(log, `${tamma.url}/tasks/${id}/log?kinds=failures`, isQuick ? 1 : 5, "failures of this log", false);
  await log.context().close();
  judge(logTime, `a ${name}`);
  judge(runTime, `the page of a run with ${size.log} lines`);
  return { run, figures: `diff p95 ${diffTime.toFixed(0)} ms, log p95 ${logTime.toFixed(0)} ms` };
};
