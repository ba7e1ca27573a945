// Campaigns: the preview follows the typing, and an upload shows its progress. Without this script, buttons do the same.
"use strict";

(() => {
  const WAIT_MS = 350;

  // ── preview: the form is posted into a frame of its own, which takes the place of the one before when it is drawn ──
  const draft = document.querySelector("form[data-preview]");
  const button = document.querySelector("[data-preview-button]");
  let shown = document.querySelector("iframe[name=preview]");
  let coming = null;
  let timer = 0;
  let count = 0;

  const draw = () => {
    coming?.remove();
    const frame = shown.cloneNode();
    frame.removeAttribute("src");
    frame.name = "preview-" + ++count; // a frame of its own leaves no entry in the browser's history
    frame.hidden = true;
    shown.after(frame);
    coming = frame;
    button.formTarget = frame.name;
    draft.requestSubmit(button);
    frame.addEventListener("load", () => {
      if (coming !== frame) return;
      frame.hidden = false;
      shown.remove();
      shown = frame;
      coming = null;
    });
  };

  if (draft && button && shown) {
    button.hidden = true;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(draw, WAIT_MS);
    };
    draft.addEventListener("input", later);
    for (const field of document.querySelectorAll("[form=draft]")) field.addEventListener("input", later);
    if (!shown.getAttribute("src") && draft.elements.subject.value) draw();
  }

  // ── upload ──
  const upload = document.querySelector("form[data-upload]");
  const bar = document.querySelector("[data-upload-bar]");
  const said = document.querySelector("[data-upload-said]");

  const report = (html) => {
    const answer = new DOMParser().parseFromString(html, "text/html");
    for (const part of ["report", "stored"]) {
      const found = answer.getElementById(part);
      if (found) document.getElementById(part).replaceWith(document.adoptNode(found));
    }
    return Boolean(answer.body && document.getElementById("report").childElementCount);
  };

  // The network takes a file faster than the database stores its lines: the page then says how many are stored.
  const follow = async () => {
    const answer = await fetch(upload.action).catch(() => null);
    if (!answer?.ok) return;
    const stored = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-stored]");
    if (stored && upload.inert) said.textContent = stored.textContent + " recipients stored so far…";
  };

  upload?.addEventListener("submit", (event) => {
    event.preventDefault();
    const request = new XMLHttpRequest();
    let following = 0;
    const done = (text) => {
      clearInterval(following);
      bar.hidden = true;
      said.textContent = text;
      upload.inert = false;
    };
    bar.hidden = false;
    bar.removeAttribute("value");
    said.textContent = "Uploading…";
    const fields = new FormData(upload);
    upload.inert = true;
    request.upload.addEventListener("progress", (step) => {
      bar.value = step.loaded / step.total;
      said.textContent = Math.floor(100 * bar.value) + " % uploaded";
    });
    request.upload.addEventListener("load", () => {
      bar.removeAttribute("value");
      following = setInterval(follow, 1000);
    });
    request.addEventListener("load", () => done(report(request.responseText) ? "" : "The upload failed (" + request.status + ")."));
    request.addEventListener("error", () => done("The connection was lost. Upload the file again: stored people are skipped."));
    request.open("POST", upload.action);
    request.send(fields);
  });
})();
