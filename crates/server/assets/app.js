// Progressive enhancement only: every page works without JavaScript.
(() => {
  "use strict";
  const $ = (s, e = document) => e.querySelector(s);
  const $$ = (s, e = document) => [...e.querySelectorAll(s)];

  // Durations, updated every 15 s.
  const long = (ms) => {
    const m = Math.floor(ms / 60000);
    if (m < 1) return Math.max(0, Math.floor(ms / 1000)) + " s";
    if (m < 60) return m + " min";
    if (m < 1440) return Math.floor(m / 60) + " h " + (m % 60) + " min";
    const days = Math.floor(m / 1440);
    return days + (days === 1 ? " day " : " days ") + Math.floor((m % 1440) / 60) + " h";
  };
  // Times of day in the browser's time zone; the server sends UTC.
  const two = (n) => String(n).padStart(2, "0");
  const local = (d) => {
    const time = two(d.getHours()) + ":" + two(d.getMinutes());
    if (d.toDateString() === new Date().toDateString()) return time;
    return d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + " " + time;
  };
  const times = () => $$("time[data-ago],time[data-for],time[data-at]").forEach((t) => {
    const at = new Date(t.dateTime);
    const text = t.hasAttribute("data-at") ? local(at) : long(Date.now() - at) + (t.hasAttribute("data-ago") ? " ago" : "");
    if (t.textContent !== text) t.textContent = text;
  });
  times();
  setInterval(times, 15000);
  // Live updates bring new times.
  new MutationObserver(times).observe(document.body, { childList: true, characterData: true, subtree: true });

  // Connection state of live updates.
  const live = $("#live");
  const say = (state, words) => {
    if (!live || live.dataset.live === state) return;
    live.dataset.live = state;
    $(".live-words", live).textContent = words;
  };
  const at = () => new Date().toTimeString().slice(0, 5);
  document.addEventListener("htmx:sse:after:connection", () => say("on", "Live"));
  const lost = () => say("lost", "Disconnected; last updated at " + at() + ". Reconnecting…");
  document.addEventListener("htmx:sse:error", lost);
  document.addEventListener("htmx:sse:before:connection", (e) => { if (e.detail.connection.attempt > 1) lost(); });

  // Keep the log scrolled to its end unless the reader has scrolled up.
  const log = $("#log");
  if (log) {
    let end = true;
    log.addEventListener("scroll", () => { end = log.scrollHeight - log.scrollTop - log.clientHeight < 40; });
    const down = () => { if (end) log.scrollTop = log.scrollHeight; };
    if (!location.hash) down();
    new MutationObserver(down).observe(log, { childList: true });
  }

  // Submit each form once.
  document.addEventListener("submit", (e) => {
    if (e.target.method !== "post") return;
    if (e.target.dataset.sent) return e.preventDefault();
    e.target.dataset.sent = "1";
  });
  addEventListener("pageshow", () => $$("form[data-sent]").forEach((f) => delete f.dataset.sent));

  // Line comments. They are fields of the form that requests changes.
  const comment = (row) => {
    const form = $("#rework"), shape = $("#comment"), file = row.closest("table").dataset.file;
    const no = row.id.slice(row.id.lastIndexOf("L") + 1);
    if (!form || !shape || !/^\d+$/.test(no)) return false;
    const there = row.nextElementSibling;
    if (there && there.classList.contains("new")) { $("textarea", there).focus(); return true; }
    const made = shape.content.cloneNode(true).firstElementChild;
    const place = file + ":" + no;
    $("b", made).textContent = place;
    const where = document.createElement("input");
    where.type = "hidden"; where.name = "comment_at"; where.value = place;
    where.setAttribute("form", "rework");
    made.firstElementChild.append(where);
    $("button", made).addEventListener("click", () => { made.remove(); row.closest(".scroll").focus(); });
    row.after(made);
    form.closest("details").open = true;
    $("textarea", made).focus();
    return true;
  };
  document.addEventListener("click", (e) => {
    const number = e.target.closest(".diff .no a");
    if (number && comment(number.closest("tr"))) e.preventDefault();
  });

  // j and k: next and previous item; inside a diff, next and previous line.
  let line = null;
  const step = (by) => {
    const table = document.activeElement.closest(".scroll.code");
    if (table) {
      const rows = $$("tr[id]", table);
      const i = Math.min(Math.max(rows.indexOf(line) + by, 0), rows.length - 1);
      if (line) line.classList.remove("cur");
      line = rows[i];
      line.classList.add("cur");
      line.scrollIntoView({ block: "nearest" });
      return;
    }
    const all = $$("[data-item]").filter((e) => e.offsetParent);
    if (!all.length) return;
    const i = all.indexOf(document.activeElement);
    all[i < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(i + by, 0), all.length - 1)].focus();
  };

  const places = { b: "/", i: "/inbox", l: "/pipelines", r: "/pull-requests", q: "/merge-queues", p: "/projects", e: "/engines", k: "/knowledge", f: "/figures", c: "/chat" };
  let g = 0;
  document.addEventListener("keydown", (e) => {
    const t = e.target;
    if (e.key === "Escape" && t.matches("#find")) return t.blur();
    if ((e.metaKey || e.ctrlKey) && e.key === "Enter" && t.form) return t.form.requestSubmit();
    if (document.body.dataset.keys === "off" || e.ctrlKey || e.metaKey || e.altKey) return;
    if (t.matches("input,textarea,select,[contenteditable]")) return;
    const key = e.key;
    if (g && Date.now() - g < 1500 && places[key]) { g = 0; location.href = places[key]; return e.preventDefault(); }
    g = key === "g" ? Date.now() : 0;
    const tab = /^[1-9]$/.test(key) && $$(".tabs a")[key - 1];
    let done = true;
    if (key === "/") ($("#find").offsetParent ? $("#find") : $(".filters input[type=search]") || $("#find")).focus();
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "n") location.href = "/tasks/new";
    else if (key === "?") $("#keys").togglePopover();
    else if (key === "a" && $("#q-title")) { $("#q-title").focus(); $("#q-title").scrollIntoView({ block: "center" }); }
    else if (key === "c" && line) done = comment(line);
    else if (tab) tab.click();
    else done = false;
    if (done) e.preventDefault();
  });
})();
