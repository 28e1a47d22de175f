// Live tail of a log: pause, search, expand, and earlier pages. The page works without it.
(() => {
  "use strict";
  const log = document.querySelector("#log");
  if (!log) return;
  const $ = (s, e = document) => e.querySelector(s);
  const $$ = (s, e = document) => [...e.querySelectorAll(s)];
  // Lines that are kept in the page. Older ones are on earlier pages.
  const MOST = 3000;

  const tools = $("[data-log-tools]");
  if (tools) tools.hidden = false;

  // Adjacent groups with one purpose become one group.
  const summarise = (group) => {
    const sum = $(".g-sum", group);
    if (!sum) return;
    const all = $$(":scope > .l", group).length;
    const failed = $$(":scope > .l-failed", group).length;
    sum.textContent = all + (all === 1 ? " call" : " calls") + (failed ? ", " + failed + " failed" : "");
    if (failed) group.open = true;
  };
  const join = (group) => {
    const before = group.previousElementSibling;
    if (!before || !before.matches(".g") || before.dataset.group !== group.dataset.group) return group;
    before.append(...$$(":scope > .l", group));
    group.remove();
    summarise(before);
    return before;
  };
  const shorten = () => {
    let most = $$(".l", log).length - MOST;
    while (most > 0 && log.firstElementChild) {
      most -= $$(".l", log.firstElementChild).length;
      log.firstElementChild.remove();
    }
  };

  // Search in the lines of the page while typing. Enter searches the whole log on the server.
  const search = $("[data-log-search]");
  const filter = (root) => {
    const text = search ? search.value.trim().toLowerCase() : "";
    $$(".l", root).forEach((l) => l.classList.toggle("l-hidden", text !== "" && !l.textContent.toLowerCase().includes(text)));
  };
  if (search) search.addEventListener("input", () => filter(log));

  // New lines, unless the reader has paused. After a reconnection, a line can come twice.
  const pause = $("[data-log-pause]");
  const held = [];
  let paused = false;
  const label = () => {
    if (!pause) return;
    const count = held.reduce((sum, e) => sum + $$(".l", e).length, 0);
    pause.textContent = paused ? "Resume" + (count ? " (" + count + " new)" : "") : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
  };
  const arrived = (element) => {
    if (!element.isConnected) return;
    $$(".l", element).forEach((l) => {
      if ($$("#" + CSS.escape(l.id)).length > 1) l.remove();
    });
    if (element.matches(".g") && !$(".l", element)) return element.remove();
    if (paused) {
      element.remove();
      held.push(element);
      return label();
    }
    if (element.matches(".g")) filter(join(element));
  };
  const observer = new MutationObserver((changes) => {
    const added = changes.flatMap((c) => [...c.addedNodes]).filter((n) => n.nodeType === 1);
    watch(false);
    added.forEach(arrived);
    if (!paused) shorten();
    watch(true);
  });
  const watch = (on) => {
    if (on) observer.observe(log, { childList: true });
    else observer.disconnect();
  };
  watch(true);
  if (pause) pause.addEventListener("click", () => {
    paused = !paused;
    const waiting = held.splice(0);
    watch(false);
    waiting.forEach((e) => { log.append(e); arrived(e); });
    if (!paused) log.scrollTop = log.scrollHeight;
    watch(true);
    label();
  });

  const expand = $("[data-log-expand]");
  if (expand) expand.addEventListener("click", () => {
    const open = expand.textContent === "Expand all";
    $$("details", log).forEach((d) => { d.open = open; });
    expand.textContent = open ? "Collapse all" : "Expand all";
  });

  // Earlier lines above the others, without leaving the page.
  document.addEventListener("click", async (e) => {
    const link = e.target.closest("[data-log-earlier]");
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    if (link.getAttribute("aria-busy")) return;
    link.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(link.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const old = $$(":scope > .g, :scope > .g-run", $("#log", page));
      const height = log.scrollHeight, first = log.firstElementChild;
      watch(false);
      log.prepend(...old);
      const heading = first && first.matches(".g-run") ? first : null;
      const group = heading ? heading.nextElementSibling : first;
      const run = (g) => g && g.dataset.group && g.dataset.group.split(" ")[0];
      if (run(group) && run(group) === run(old.at(-1))) {
        if (heading) heading.remove();
        join(group);
      }
      filter(log);
      watch(true);
      log.scrollTop += log.scrollHeight - height;
      const next = $("[data-log-earlier]", page);
      if (next) { link.href = next.getAttribute("href"); link.removeAttribute("aria-busy"); } else link.remove();
    } catch {
      location.href = link.href;
    }
  });
})();
