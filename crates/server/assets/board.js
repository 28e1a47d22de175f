// Progressive enhancement only: every page works without JavaScript.
(() => {
  "use strict";
  const $ = (s, e = document) => e.querySelector(s);
  const $$ = (s, e = document) => [...e.querySelectorAll(s)];
  const shortcuts = () => document.body.dataset.keys !== "off";

  // Filters that apply at once. Their button is for browsers without scripts.
  $$("form[data-autosubmit]").forEach((form) => {
    const button = $(".btn:not([href])", form);
    if (button) button.hidden = true;
    form.addEventListener("change", (e) => { if (e.target.matches("select")) form.requestSubmit(); });
    // Empty fields are left out, so that addresses stay short.
    form.addEventListener("formdata", (e) => {
      [...e.formData.entries()].forEach(([name, value]) => { if (value === "") e.formData.delete(name); });
    });
  });

  // Selected cards and entries.
  const count = () => $$("form.bulk").forEach((form) => {
    const picked = $$('input[form="' + form.id + '"]:checked').length;
    $(".picked", form).textContent = picked ? "(" + picked + ")" : "";
    if (picked) $("details", form).open = true;
  });
  document.addEventListener("change", (e) => { if (e.target.matches(".pick input")) count(); });
  addEventListener("pageshow", count);

  // Cards that are moved to another priority. Nothing else can be moved, so no step is skipped.
  let moved = null;
  const card = (e) => e.target.closest && e.target.closest("[data-priority] > li");
  document.addEventListener("pointerover", (e) => {
    const li = card(e);
    if (li && $("#drop")) li.draggable = !!$(".pick", li);
  });
  document.addEventListener("dragstart", (e) => {
    moved = card(e);
    if (moved) e.dataTransfer.effectAllowed = "move";
  });
  const target = (e) => {
    const column = moved && e.target.closest && e.target.closest(".col.drop");
    const list = column && $("[data-priority]", column);
    return list && list !== moved.parentElement ? list : null;
  };
  document.addEventListener("dragover", (e) => {
    const list = target(e);
    $$(".over").forEach((it) => { if (it !== list) it.classList.remove("over"); });
    if (!list) return;
    list.classList.add("over");
    e.preventDefault();
  });
  document.addEventListener("drop", (e) => {
    const list = target(e), form = $("#drop");
    if (!list || !form) return;
    e.preventDefault();
    form.setAttribute("action", "/tasks/" + $(".pick input", moved).value + "/actions");
    form.elements.priority.value = list.dataset.priority;
    form.requestSubmit();
  });
  document.addEventListener("dragend", () => { moved = null; $$(".over").forEach((it) => it.classList.remove("over")); });

  // Command palette.
  const palette = $("#palette"), text = $("#palette-text"), list = $("#palette-list");
  const item = (label, note, run) => {
    const li = document.createElement("li"), a = document.createElement("a");
    a.href = typeof run === "string" ? run : "#";
    a.append(label);
    if (note) {
      const dim = document.createElement("span");
      dim.className = "dim";
      dim.textContent = note;
      a.append(" ", dim);
    }
    if (typeof run !== "string") a.addEventListener("click", (e) => { e.preventDefault(); palette.close(); run(); });
    li.append(a);
    return li;
  };
  const open = (details) => () => {
    details.open = true;
    details.scrollIntoView({ block: "center" });
    const field = $("textarea,input:not([type=hidden]),select,button", details);
    if (field) field.focus();
  };
  const words = (e) => e.textContent.trim().replace(/\s+/g, " ");
  const commands = () => [
    item("New task", "", "/tasks/new"),
    ...$$("details.action-form").map((it) => item(words($("summary b", it) || $("summary", it).firstChild), "This task", open(it))),
    ...$$(".tabs a").map((it) => item(words(it.firstChild), "Tab", it.getAttribute("href"))),
    ...$$(".views .view > a").map((it) => item(words(it), "View", it.getAttribute("href"))),
    ...$$(".nav a").map((it) => item("Go to " + [...it.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("").toLowerCase(), "", it.getAttribute("href"))),
  ];
  let asked = 0;
  const fill = async () => {
    const wanted = text.value.trim(), turn = ++asked;
    const parts = wanted.toLowerCase().split(/\s+/);
    const fitting = commands().filter((li) => parts.every((part) => li.textContent.toLowerCase().includes(part)));
    const show = (tasks) => { list.replaceChildren(...tasks, ...fitting); choose(0); };
    show([]);
    try {
      const answer = await fetch("/palette?text=" + encodeURIComponent(wanted));
      if (!answer.ok || answer.redirected || turn !== asked) return;
      const page = new DOMParser().parseFromString("<ul>" + (await answer.text()) + "</ul>", "text/html");
      if (turn === asked) show($$("ul > li", page).map((li) => document.adoptNode(li)));
    } catch { /* The commands stay. */ }
  };
  let chosen = 0;
  const choose = (index) => {
    const all = $$("a", list);
    chosen = Math.min(Math.max(index, 0), Math.max(all.length - 1, 0));
    all.forEach((a, i) => a.classList.toggle("cur", i === chosen));
    if (all[chosen]) all[chosen].scrollIntoView({ block: "nearest" });
  };
  if (palette) {
    document.addEventListener("keydown", (e) => {
      if (!(e.ctrlKey || e.metaKey) || e.altKey || e.shiftKey || e.key.toLowerCase() !== "k" || !shortcuts()) return;
      e.preventDefault();
      if (palette.open) return palette.close();
      palette.showModal();
      text.value = "";
      text.focus();
      fill();
    });
    text.addEventListener("input", fill);
    palette.addEventListener("keydown", (e) => {
      if (e.key === "ArrowDown" || e.key === "ArrowUp") { choose(chosen + (e.key === "ArrowDown" ? 1 : -1)); e.preventDefault(); }
      else if (e.key === "Enter" && $$("a", list)[chosen]) { e.preventDefault(); $$("a", list)[chosen].click(); }
    });
    palette.addEventListener("click", (e) => { if (e.target === palette) palette.close(); });
  }

  // x: select the focused card.
  document.addEventListener("keydown", (e) => {
    if (e.key !== "x" || !shortcuts() || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target.matches("input:not([type=checkbox]),textarea,select,[contenteditable]")) return;
    const li = e.target.closest(".card,.entry");
    const box = li && $(".pick input", li);
    if (!box) return;
    box.checked = !box.checked;
    count();
    e.preventDefault();
  });

  // Buttons that copy an ID, a branch or a commit.
  if (navigator.clipboard) {
    $$("[data-copy]").forEach((it) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy " + it.dataset.copy);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(it.dataset.copy);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
      it.after(" ", button);
    });
  }

  // Links that open a file in the chosen editor.
  const editor = document.body.dataset.editor;
  const link = () => $$("[data-root] code[data-file]:not([data-linked])").forEach((it) => {
    it.dataset.linked = "1";
    const root = it.closest("[data-root]").dataset.root, file = it.dataset.file;
    if (!root.startsWith("/") || file.startsWith("/") || file.split("/").includes("..")) return;
    const path = (root.replace(/\/+$/, "") + "/" + file).split("/").map(encodeURIComponent).join("/");
    const a = document.createElement("a");
    a.className = "edit";
    a.href = editor.replace("{path}", () => path).replace("{line}", it.dataset.line || "1");
    a.textContent = "Open";
    a.setAttribute("aria-label", "Open " + file + " in your editor");
    it.after(" ", a);
  });
  if (editor) {
    link();
    new MutationObserver(link).observe(document.body, { childList: true, subtree: true });
  }

  // Notifications, if the person has turned them on.
  const box = $("#notify"), key = "tamma-notify";
  const wanted = () => { try { return localStorage.getItem(key) === "on"; } catch { return false; } };
  if (box && "Notification" in window) {
    const button = $("button", box);
    const label = () => { button.textContent = wanted() ? "Turn off notifications" : "Turn on notifications"; };
    // Live updates pause in the background. One page goes on with them, so that it can notify.
    let goesOn = false;
    const goOn = () => {
      if (!wanted() || !navigator.locks) return;
      navigator.locks.request("tamma-notify", () => { goesOn = true; return new Promise(() => {}); });
    };
    addEventListener("visibilitychange", (e) => { if (goesOn && wanted() && document.hidden) e.stopImmediatePropagation(); }, true);
    goOn();
    box.hidden = false;
    label();
    button.addEventListener("click", async () => {
      const on = !wanted() && (await Notification.requestPermission()) === "granted";
      try { localStorage.setItem(key, on ? "on" : "off"); } catch { /* Not stored: off. */ }
      label();
      if (!goesOn) goOn();
    });
    const number = () => { const badge = $("#waiting"); return badge ? parseInt(badge.textContent, 10) || 0 : 0; };
    let known = number();
    new MutationObserver(() => {
      const now = number();
      if (now > known && document.hidden && wanted() && Notification.permission === "granted") {
        const note = new Notification("Tamma", { body: now === 1 ? "1 decision is waiting" : now + " decisions are waiting", tag: "tamma" });
        note.onclick = () => { window.focus(); location.href = "/inbox"; };
      }
      known = now;
    }).observe($(".nav"), { childList: true, characterData: true, subtree: true });
  }
})();
