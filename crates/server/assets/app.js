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
  const local = (d, seconds) => {
    const time = two(d.getHours()) + ":" + two(d.getMinutes()) + (seconds ? ":" + two(d.getSeconds()) : "");
    if (d.toDateString() === new Date().toDateString()) return time;
    return d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + " " + time;
  };
  const times = () => $$("time[data-ago],time[data-for],time[data-at]:not([data-local])").forEach((t) => {
    const at = new Date(t.dateTime), seconds = t.dataset.at === "seconds";
    // Lines of a log are many, and their times stay.
    if (seconds) t.dataset.local = "";
    const text = t.hasAttribute("data-at") ? local(at, seconds) : long(Date.now() - at) + (t.hasAttribute("data-ago") ? " ago" : "");
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

  // j and k: next and previous item. A change has its own keys (review.js).
  const step = (by) => {
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
    else if (tab) tab.click();
    else done = false;
    if (done) e.preventDefault();
  });
})();
