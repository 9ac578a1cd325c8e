// Shows the steps of a chart one at a time, under the pointer or with the arrow keys. Without this
// script a chart shows only its newest step, and has a table.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  // By chart: the start of the shown step; a chart without an entry shows its newest step.
  const chosen = new Map();

  const stepsOf = (frame) => frame.dataset.says.split("\n");
  const beginOf = (says) => says.split(": ", 1)[0];
  const figureOf = (frame) => frame.closest("figure");
  // The index of the shown step; for a step that has left the range, the first.
  const placeOf = (frame) => {
    const says = stepsOf(frame);
    const begin = chosen.get(figureOf(frame).id);
    if (begin === undefined) return says.length - 1;
    return Math.max(0, says.findIndex((step) => beginOf(step) === begin));
  };

  // Returns the element that takes the focus, with the line that marks the step.
  const ready = (frame) => {
    const reader = frame.querySelector(".reader");
    if (reader.childNodes.length) return reader;
    const drawn = document.createElementNS(SVG, "svg");
    drawn.setAttribute("aria-hidden", "true");
    drawn.appendChild(document.createElementNS(SVG, "line"));
    reader.appendChild(drawn);
    reader.tabIndex = 0;
    reader.setAttribute("role", "slider");
    const title = figureOf(frame).querySelector("h3").textContent;
    reader.setAttribute("aria-label", `${title}, step by step`);
    reader.setAttribute("aria-valuemin", "1");
    return reader;
  };

  const show = (frame) => {
    const reader = ready(frame);
    const says = stepsOf(frame);
    const figure = figureOf(frame);
    const isChosen = chosen.has(figure.id);
    const at = placeOf(frame);
    const place = `${(100 * (at + 0.5)) / says.length}%`;
    const look = { x1: place, x2: place, y1: "0", y2: "100%",
      visibility: isChosen ? "visible" : "hidden" };
    const line = reader.querySelector("line");
    for (const [name, value] of Object.entries(look)) line.setAttribute(name, value);
    reader.setAttribute("aria-valuemax", String(says.length));
    reader.setAttribute("aria-valuenow", String(at + 1));
    reader.setAttribute("aria-valuetext", says[at]);
    const read = isChosen ? says[at] : frame.dataset.newest;
    const reading = figure.querySelector(".reading");
    if (reading.textContent !== read) reading.textContent = read;
  };

  const choose = (frame, at) => {
    const says = stepsOf(frame);
    chosen.set(figureOf(frame).id, beginOf(says[Math.max(0, Math.min(says.length - 1, at))]));
    show(frame);
  };

  const forget = (frame) => {
    if (chosen.delete(figureOf(frame).id)) show(frame);
  };

  const frameOf = (event) => event.target.closest?.(".reader")?.closest("[data-says]");

  document.addEventListener("pointermove", (event) => {
    const frame = frameOf(event);
    if (!frame) return;
    const box = frame.querySelector(".reader").getBoundingClientRect();
    choose(frame, Math.floor(((event.clientX - box.left) / box.width) * stepsOf(frame).length));
  });
  document.addEventListener("pointerout", (event) => {
    const frame = frameOf(event);
    const reader = frame?.querySelector(".reader");
    if (reader && !reader.contains(event.relatedTarget) && document.activeElement !== reader)
      forget(frame);
  });
  document.addEventListener("focusout", (event) => {
    const frame = frameOf(event);
    if (frame) forget(frame);
  });
  document.addEventListener("keydown", (event) => {
    const frame = frameOf(event);
    if (!frame) return;
    const last = stepsOf(frame).length - 1;
    const at = placeOf(frame);
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageDown: at - 10, PageUp: at + 10, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(frame, to);
  });

  const all = () => document.querySelectorAll("[data-says]").forEach(show);
  // Updates arrive as changes of the page; changes made by this script do not count.
  const isNews = ({ target }) => !(target.closest && target.closest(".reader, .reading"));
  new MutationObserver((changes) => changes.some(isNews) && all()).observe(
    document.getElementById("content"),
    { subtree: true, childList: true, attributes: true, attributeFilter: ["data-says"] },
  );
  all();
})();
