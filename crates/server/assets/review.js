// Reading and reviewing: enhancement only. Without it, every link and form here still works.
(() => {
  "use strict";
  const $ = (s, e = document) => e.querySelector(s);
  const $$ = (s, e = document) => [...e.querySelectorAll(s)];

  // Copy buttons. Live updates bring new ones.
  const showCopy = () => { if (navigator.clipboard) $$("[data-copy-from][hidden]").forEach((b) => { b.hidden = false; }); };
  showCopy();
  const part = $("#part");
  if (part) new MutationObserver(showCopy).observe(part, { childList: true, subtree: true });
  document.addEventListener("click", async (e) => {
    const button = e.target.closest("[data-copy-from]");
    if (!button) return;
    await navigator.clipboard.writeText($("#" + button.dataset.copyFrom).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  const page = $(".task.review");
  if (!page || !$(".fdiffs")) return;

  // The reader's last choice of view, unless the address names one.
  const url = new URL(location.href);
  try {
    const chosen = localStorage.getItem("tamma-diff");
    if (!url.searchParams.has("view") && chosen === "split") {
      url.searchParams.set("view", "split");
      location.replace(url);
      return;
    }
  } catch { /* Storage can be off. */ }
  document.addEventListener("click", (e) => {
    const link = e.target.closest("[data-view]");
    if (!link) return;
    try { localStorage.setItem("tamma-diff", link.dataset.view); } catch { /* Storage can be off. */ }
  });

  const get = async (address) => {
    const response = await fetch(address, { headers: { accept: "text/html" } });
    if (!response.ok) throw new Error(String(response.status));
    return response.text();
  };
  const post = async (form, extra) => {
    const body = new URLSearchParams(new FormData(form));
    for (const [name, value] of Object.entries(extra)) body.set(name, value);
    body.set("quiet", "1");
    const response = await fetch(form.action, { method: "POST", body });
    if (!response.ok) throw new Error(String(response.status));
  };

  // Later files, and the lines of large and folded ones, loaded when they are opened or come near: a few at
  // a time, and first what the reader sees now.
  const waiting = [];
  let loading = 0;
  const place = (link, html) => {
    const named = link.closest(".later"), code = link.closest(".code");
    if (code) code.innerHTML = html;
    if (!named) return;
    const shape = document.createElement("template");
    shape.innerHTML = html;
    const section = $(".dfile", shape.content), focused = named.contains(document.activeElement);
    if (!section) throw new Error("no file");
    near.unobserve(named);
    named.classList.remove("later");
    named.removeAttribute("data-rows");
    named.removeAttribute("style");
    named.setAttribute("aria-label", named.dataset.path);
    // Not the section itself: the browser would compute the styles of all its siblings again.
    named.replaceChildren(...section.childNodes);
    watch(named);
    if (focused) $("summary", named).focus({ preventScroll: true });
  };
  const next = () => {
    while (loading < 3 && waiting.length) {
      const { link, done } = waiting.pop();
      loading += 1;
      get(link.dataset.load).then((html) => place(link, html)).catch(() => {
        const named = link.closest(".later");
        delete link.dataset.busy;
        link.textContent = "Loading failed. Try again" + (named ? ": " + named.dataset.path : "");
      }).finally(() => { loading -= 1; done(); next(); });
    }
  };
  const load = (link) => new Promise((done) => {
    if (!link || link.dataset.busy) return done();
    link.dataset.busy = "1";
    waiting.push({ link, done });
    next();
  });
  // A file that is opened comes near, too. There is no toggle event to listen to: open files have one at first.
  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      const details = target.closest("details");
      if (isIntersecting && (!details || details.open)) load($("[data-load]", target));
    }
  }, { rootMargin: "600px" });
  // A file takes its place before it is there, so that the page does not jump.
  const height = (it) => Math.min(it.dataset.rows, 500) * 1.13 + (it.matches(".later") ? 2.8 : 0);
  const watch = (part) => $$("[data-rows]", part).forEach((it) => {
    it.style.minHeight = height(it) + "rem";
    near.observe(it);
  });
  watch(document);
  $$(".laters").forEach((group) => {
    const files = [...group.children];
    group.style.containIntrinsicHeight = "auto " + files.reduce((sum, it) => sum + height(it) + 1, 0) + "rem";
  });
  // Loads a file if it is only named, and returns it.
  const whole = async (file) => {
    if (file && file.matches(".later")) await load($("[data-load]", file));
    return file;
  };
  // A link to a line of a file that is not there yet.
  const toLine = async () => {
    const wanted = /^#(f\d+)[LO]\d+$/.exec(location.hash);
    if (!wanted || $(location.hash)) return;
    const file = await whole($("#" + wanted[1])), details = file && $("details", file);
    if (!details) return;
    details.open = true;
    await load($("[data-load]", file));
    const row = $(location.hash);
    if (row) row.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", toLine);
  toLine();

  // Unchanged lines around a hunk.
  const expand = async (link) => {
    if (link.dataset.busy) return;
    link.dataset.busy = "1";
    const address = new URL(link.href), query = address.searchParams;
    const from = Number(query.get("from")), to = Number(query.get("to")), old = Number(query.get("old"));
    const body = document.createElement("tbody");
    try { body.innerHTML = await get(address + "&rows=true"); } catch { link.textContent = "The lines cannot be read from this server"; return; }
    delete link.dataset.busy;
    const rows = [...body.children], row = link.closest("tr"), min = Number(link.dataset.xp);
    if (link.dataset.xp) {
      row.after(...rows);
      const first = Math.max(min, from - 100);
      if (from <= min) return link.remove();
      query.set("from", first); query.set("to", from - 1); query.set("old", Math.max(1, old - (from - first)));
      link.textContent = "Show " + (from - first) + " unchanged lines";
    } else {
      row.before(...rows);
      if (rows.length < to - from + 1) return row.remove();
      query.set("from", to + 1); query.set("to", to + 100); query.set("old", old + rows.length);
    }
    link.href = address;
  };

  // Viewed files.
  const progress = () => {
    const text = $("#progress b");
    if (text) text.textContent = $$("#ftree li.seen").length;
  };
  const view = async (form) => {
    const button = $(".vw", form), file = form.closest(".dfile"), on = !button.classList.contains("on");
    try { await post(form, { digest: on ? button.dataset.digest : "" }); } catch { button.title = "Not saved. Try again."; return; }
    button.classList.toggle("on", on);
    button.setAttribute("aria-pressed", on);
    if (on) button.removeAttribute("name"); else { button.name = "digest"; button.value = button.dataset.digest; }
    $("details", file).open = !on;
    const item = $("#t" + file.id.slice(1));
    if (item) item.classList.toggle("seen", on);
    progress();
  };

  // Comments. Drafts are saved on the server while the author types.
  const timers = new WeakMap();
  const say = (form, text) => { $("[role=status]", form).textContent = text; };
  const save = async (form) => {
    clearTimeout(timers.get(form));
    try {
      await post(form, { how: "draft" });
      say(form, "Draft saved. It is sent with your decision.");
      form.dataset.clean = "1";
    } catch { say(form, "Not saved. Check the line and your connection."); }
  };
  document.addEventListener("input", (e) => {
    const form = e.target.closest("form.draft");
    if (!form) return;
    delete form.dataset.clean;
    say(form, "Saving…");
    clearTimeout(timers.get(form));
    timers.set(form, setTimeout(() => save(form), 800));
  });
  addEventListener("beforeunload", (e) => {
    const open = $$("form.draft").some((f) => !f.dataset.sent && !f.dataset.clean && $("textarea", f).value !== $("textarea", f).defaultValue);
    if (open) e.preventDefault();
  });
  const comment = (row, at) => {
    const shape = $("#draft-form");
    if (!shape || !row) return;
    let thread = row.nextElementSibling;
    while (thread && thread.matches(".cm") && thread.dataset.thread !== at) thread = thread.nextElementSibling;
    if (!thread || !thread.matches(".cm")) {
      thread = document.createElement("tr");
      thread.className = "cm";
      thread.dataset.thread = at;
      const cell = document.createElement("td");
      cell.colSpan = row.closest("table").classList.contains("split") ? 4 : 3;
      thread.append(cell);
      row.after(thread);
    }
    let form = $("form.draft", thread);
    if (!form) {
      form = shape.content.cloneNode(true).firstElementChild;
      const old = at[0] === "o", line = at.slice(1), file = row.closest(".dfile");
      form.elements.side.value = old ? "old" : "new";
      form.elements.line.value = line;
      form.elements.file.value = file.dataset.path;
      form.elements.anchor.value = file.id + (old ? "O" : "L") + line;
      $(".field span", form).textContent = "Comment on line " + line + (old ? " before the change" : "");
      thread.firstElementChild.append(form);
    }
    $("textarea", form).focus();
  };
  document.addEventListener("submit", (e) => {
    const form = e.target, how = e.submitter && e.submitter.value;
    if (form.matches(".dtools")) {
      e.preventDefault();
      e.stopImmediatePropagation();
      view(form);
    } else if (form.matches("form.draft") && how !== "post") {
      e.preventDefault();
      e.stopImmediatePropagation();
      if (how !== "remove") return save(form);
      clearTimeout(timers.get(form));
      post(form, { how: "remove" }).then(() => {
        const thread = form.closest("tr");
        form.remove();
        if (thread && !thread.textContent.trim()) thread.remove();
      }, () => say(form, "Not removed. Try again."));
    }
  }, true);
  document.addEventListener("click", (e) => {
    const number = e.target.closest(".diff .no a[data-at]"), reply = e.target.closest("[data-reply]");
    const more = e.target.closest("[data-xp]"), lazy = e.target.closest("[data-load]");
    if (e.ctrlKey || e.metaKey || e.shiftKey) return;
    if (number) { e.preventDefault(); select(number.closest("tr"), false); comment(number.closest("tr"), number.dataset.at); }
    else if (reply) {
      e.preventDefault();
      let row = reply.closest("tr");
      while (row && row.matches(".cm")) row = row.previousElementSibling;
      comment(row, reply.dataset.reply);
    } else if (more) { e.preventDefault(); expand(more); }
    else if (lazy) { e.preventDefault(); load(lazy); }
  });

  // Filter of the file tree.
  const filter = $("#ffilter");
  if (filter) {
    filter.hidden = false;
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      $$(".ftree li").forEach((item) => {
        const files = item.id ? [item] : $$("li[id]", item);
        const fits = (li) => ($("#f" + li.id.slice(1)) || { dataset: { path: "" } }).dataset.path.toLowerCase().includes(wanted);
        item.hidden = !files.some(fits);
      });
    });
  }

  // Keyboard. These keys win over the ones that all pages have.
  let line = null, g = 0;
  const select = (row, focus = true) => {
    if (line) line.classList.remove("cur");
    line = row;
    if (!line) return;
    line.classList.add("cur");
    if (!focus) return;
    line.tabIndex = -1;
    line.focus({ preventScroll: true });
    line.scrollIntoView({ block: "center" });
  };
  const visible = (e) => e.offsetParent !== null;
  // Lines of one open file. All files would be laid out to find the visible ones.
  const rows = (f) => $$("details[open] .diff tr[id]", f);
  const move = async (by) => {
    const files = $$(".dfile"), here = file(), own = here ? rows(here) : [];
    const end = (all) => all[by > 0 ? 0 : all.length - 1];
    if (line && !own.includes(line)) return select(step(own, line, by) || line);
    let found = line ? own[own.indexOf(line) + by] : end(own), at = files.indexOf(here);
    while (!found && files[at + by]) {
      at += by;
      await whole(files[at]);
      const later = $("details[open] [data-load]", files[at]);
      if (later) await load(later);
      // It is still loading, or cannot be loaded.
      if (files[at].matches(".later") || (later && later.isConnected)) return;
      found = end(rows(files[at]));
    }
    if (found) select(found);
  };
  const step = (items, now, by) => {
    if (!items.length) return null;
    const at = items.indexOf(now);
    if (at >= 0) return items[Math.min(Math.max(at + by, 0), items.length - 1)];
    const from = now ? items.findIndex((it) => now.compareDocumentPosition(it) & Node.DOCUMENT_POSITION_FOLLOWING) : 0;
    if (by > 0) return items[from < 0 ? items.length - 1 : from];
    return items[from < 0 ? items.length - 1 : Math.max(from - 1, 0)];
  };
  const file = () => (line && line.closest(".dfile")) || document.activeElement.closest(".dfile") || $$(".dfile").find((f) => f.getBoundingClientRect().bottom > 160);
  const toFile = (by) => {
    const next = step($$(".dfile"), file(), by);
    if (!next) return;
    if (line) { line.classList.remove("cur"); line = null; }
    next.scrollIntoView({ block: "start" });
    $("summary,[data-load]", next).focus({ preventScroll: true });
    whole(next);
  };
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    "]": () => toFile(1),
    "[": () => toFile(-1),
    ".": () => select(step($$(".diff tr.cm").filter(visible), line, 1)),
    ",": () => select(step($$(".diff tr.cm").filter(visible), line, -1)),
    c: () => { const at = line && $(".no a[data-at]:not([data-at^=o])", line) || line && $(".no a[data-at]", line); if (at) comment(line, at.dataset.at); },
    v: async () => { const here = await whole(file()), form = here && $(".dtools", here); if (form) view(form); },
    x: async () => { const here = await whole(file()), it = here && $("details", here); if (it) it.open = !it.open; },
    e: () => {
      const links = file() ? $$("[data-xp]", file()) : [];
      const link = line ? step(links, line, -1) : links[0];
      if (link) expand(link);
    },
    s: () => { const link = $("[data-view]"); if (link) link.click(); },
    t: () => { const tree = $("#ffilter") || $("#ftree"); tree.focus(); },
    d: () => { const first = $(".bar-form"); if (first) { first.open = true; ($("textarea,select,button", $(".panel", first)) || first).focus(); } },
  };
  document.addEventListener("keydown", (e) => {
    const target = e.target;
    if ((e.ctrlKey || e.metaKey) && e.key === "Enter" && target.closest("form.draft")) {
      e.preventDefault();
      e.stopImmediatePropagation();
      return save(target.closest("form.draft"));
    }
    if (e.key === "Escape") {
      const open = target.closest(".bar-form[open]");
      if (open) { open.open = false; $("summary", open).focus(); }
      else if (target.closest("form.draft")) select(target.closest("tr"));
      return;
    }
    if (document.body.dataset.keys === "off" || e.ctrlKey || e.metaKey || e.altKey) return;
    if (target.matches("input,textarea,select,[contenteditable]")) return;
    // g starts a key of all pages, such as g c.
    const goes = Date.now() - g < 1500;
    g = e.key === "g" ? Date.now() : 0;
    if (goes || !Object.hasOwn(keys, e.key)) return;
    e.preventDefault();
    e.stopImmediatePropagation();
    keys[e.key]();
  }, true);
})();
