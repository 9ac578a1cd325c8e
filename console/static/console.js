// Keeps the open page up to date: receives changes from the server and patches them in, so that
// the reader's place, focus and selection stay. Without this script every page works, but does not
// update itself.
"use strict";

(() => {
  const button = document.getElementById("live");
  const status = document.getElementById("status");
  if (!button) return;
  const text = button.querySelector(".live-text");
  // The path above our pages: the root, or that of a link.
  const base = new URL("..", document.currentScript.src).pathname;
  let source = null;
  let isPaused = false;
  // The last pieces received for each region.
  const held = {};

  // Makes `now` equal to `next`, touching only the differences.
  const patch = (now, next) => {
    // Scripts own these parts.
    if (now.dataset?.own !== undefined && next.dataset?.own !== undefined) return;
    if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName) {
      now.replaceWith(next.cloneNode(true));
      return;
    }
    if (now.nodeType === Node.TEXT_NODE) {
      if (now.data !== next.data) now.data = next.data;
      return;
    }
    if (now.nodeType !== Node.ELEMENT_NODE) return;
    for (const { name } of [...now.attributes]) {
      // Keep details open that the reader has opened.
      if (!next.hasAttribute(name) && !(name === "open" && now.nodeName === "DETAILS"))
        now.removeAttribute(name);
    }
    for (const { name, value } of [...next.attributes]) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    patchChildren(now, next);
  };

  const patchChildren = (now, next) => {
    const olds = [...now.childNodes];
    const news = [...next.childNodes];
    news.forEach((child, at) => {
      if (at < olds.length) patch(olds[at], child);
      else now.appendChild(child.cloneNode(true));
    });
    olds.slice(news.length).forEach((child) => child.remove());
  };

  const show = (what, word) => {
    button.dataset.state = what;
    if (text.textContent !== word) text.textContent = word;
    button.setAttribute("aria-pressed", String(what !== "paused"));
  };

  const take = (event) => {
    const { regions, status: said } = JSON.parse(event.data);
    for (const [id, pieces] of Object.entries(regions)) {
      // For unchanged pieces, the server sends their place and their number.
      held[id] = pieces.flatMap((piece) =>
        typeof piece === "string" ? [piece] : held[id].slice(piece[0], piece[0] + piece[1]),
      );
      const region = document.getElementById(id);
      if (!region) continue;
      const parsed = new DOMParser().parseFromString(held[id].join(""), "text/html");
      patchChildren(region, parsed.body);
    }
    if (status.textContent !== said) status.textContent = said;
    show("live", "Live");
  };

  const open = () => {
    const path = `/${location.pathname.slice(base.length)}${location.search}`;
    source = new EventSource(`${base}live?path=${encodeURIComponent(path)}`);
    source.addEventListener("open", () => show("live", "Live"));
    source.addEventListener("news", take);
    source.addEventListener("gone", () => location.reload());
    source.addEventListener("error", () => {
      show("away", "Reconnecting");
      // The browser reconnects by itself, unless the server has refused.
      if (source.readyState === EventSource.CLOSED) setTimeout(reopen, 3000);
    });
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  const reopen = () => {
    if (isPaused || document.hidden) return;
    close();
    open();
  };

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    if (isPaused) {
      close();
      show("paused", "Paused");
    } else {
      reopen();
    }
  });
  // A hidden page needs no updates.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : reopen()));
  button.hidden = false;
  open();
})();

// A focused word shows its meaning; Escape hides it until the next key.
addEventListener("keydown", ({ key }) => {
  document.documentElement.toggleAttribute("data-read", key === "Escape");
});
