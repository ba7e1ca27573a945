// Keeps a page current: the server sends parts of the page as it would draw them, and each takes its place.
// Without this script the page is the same, as of loading.
"use strict";

(() => {
  const status = document.querySelector("[data-live-status]");
  if (!status || !window.EventSource) return;

  const AGAIN_MS = 10000;
  let source = null;

  const say = (text, state) => {
    status.dataset.state = state;
    if (status.textContent !== text) status.textContent = text;
  };

  const show = (event) => {
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      const place = document.getElementById("live-" + name);
      // A part that holds the focus stays; it is drawn with the next change.
      if (place && !place.contains(document.activeElement)) place.innerHTML = html;
    }
    say("Live", "live");
  };

  // A search on the page changes the list that is followed: the list names its own source.
  const address = () => document.querySelector("[data-live-source]")?.dataset.liveSource ?? status.dataset.liveStatus;
  let followed = "";

  const open = () => {
    followed = address();
    source = new EventSource(followed);
    source.addEventListener("figures", show);
    source.addEventListener("error", () => {
      say("Not live, trying again…", "lost");
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(open, AGAIN_MS);
    });
  };

  const results = document.getElementById("results");
  if (results) {
    new MutationObserver(() => {
      if (address() === followed) return;
      source.close();
      open();
    }).observe(results, { childList: true });
  }

  window.addEventListener("pagehide", () => source && source.close());
  window.addEventListener("pageshow", (event) => event.persisted && open());
  open();
})();
