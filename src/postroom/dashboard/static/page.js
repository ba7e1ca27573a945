// Comforts of every page: shortcuts, search as you type, times that age. Without this script every page still works.
"use strict";

(() => {
  document.documentElement.dataset.script = "on";
  const WAIT_MS = 250;
  const MOST_PAGES = 200; // of 5,000 deliveries each, a few seconds: then a person decides whether to go on

  // ── search as you type: the list below a filter form is replaced by that of the answer ──
  const search = document.querySelector("form[data-search]");
  const results = document.getElementById("results");
  let timer = 0;
  let asking = null;

  const address = (form) => {
    const fields = [...new FormData(form)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(fields).toString();
    return form.getAttribute("action") + (query ? "?" + query : "");
  };

  const show = async (to) => {
    asking?.abort();
    asking = new AbortController();
    try {
      const answer = await fetch(to, { signal: asking.signal });
      if (!answer.ok || answer.redirected) return false; // an unfinished word is no error; the button shows errors
      const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("results");
      if (!found) return false;
      results.replaceChildren(...document.adoptNode(found).childNodes);
      return true;
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      return false;
    }
  };

  // A page without rows may not be the last: the search goes on until one has some.
  const searchOn = async (shown) => {
    for (let pages = 0; pages < MOST_PAGES; pages++) {
      const next = results.querySelector("[data-unfinished]") && results.querySelector("a[rel=next]");
      if (!next) break;
      if (!(await show(next.href))) return;
      shown = next.href;
    }
    if (shown) history.replaceState(null, "", shown); // once: browsers refuse very many
  };

  const refresh = async () => {
    const to = address(search);
    if (await show(to)) await searchOn(to);
  };

  if (results) searchOn(null);

  if (search && results) {
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(refresh, WAIT_MS);
    });
  }

  // ── times ──
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const age = () => {
    for (const time of document.querySelectorAll("time")) {
      if (!/ ago$|^now$/.test(time.textContent)) continue;
      const seconds = Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000);
      const unit = UNITS.find(([length]) => seconds >= length);
      if (unit) time.textContent = Math.floor(seconds / unit[0]) + " " + unit[1] + " ago";
    }
  };
  setInterval(age, 10000);

  // ── preferences ──
  const zone = document.querySelector("[data-zone]");
  const hint = document.querySelector("[data-zone-hint]");
  if (zone && hint) {
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if ([...zone.options].some((option) => option.value === own) && own !== zone.value) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Use " + own;
      button.addEventListener("click", () => { zone.value = own; });
      hint.append("This browser’s zone: ", button);
    }
  }

  // ── rows: a click anywhere opens the row; text can still be selected, and links and buttons do their own work ──
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".list tbody tr")?.querySelector("a:not([target])");
    if (!link || event.target.closest("a, button, summary, form, .step") || !getSelection().isCollapsed) return;
    if (event.ctrlKey || event.metaKey) window.open(link.href, "_blank", "noopener");
    else link.click();
  });

  // ── keyboard ──
  const rows = () => [...document.querySelectorAll(".list tbody tr")].filter((row) => row.querySelector("a"));
  const step = (by) => {
    const all = rows();
    if (!all.length) return document.querySelector(by > 0 ? "a[rel=next]" : "a[rel=prev]")?.click();
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const to = all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)];
    to?.querySelector("a").focus();
    to?.scrollIntoView({ block: "nearest" });
  };
  const field = () => document.querySelector("[role=search] input, [role=search] select");
  const help = () => document.getElementById("shortcuts")?.showModal();
  const next = () => document.querySelector("a[rel=next]")?.click();
  const DOES = { "/": () => field()?.focus(), "?": help, j: () => step(1), k: () => step(-1), n: next };
  let went = false;

  document.addEventListener("keydown", (event) => {
    // A closed dialog has the focus until the next frame: keys pressed right after Escape are for the page.
    const typing = event.target.closest?.("input, select, textarea, dialog[open]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (went) {
      went = false;
      if (event.key === ",") document.querySelector('a[href$="/preferences"]')?.click();
      document.querySelector(`[data-go="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    if (event.key === "g") {
      went = true; // until the next key, however slow the person or the machine
    } else if (DOES[event.key]) {
      event.preventDefault();
      DOES[event.key]();
    }
  });
})();
