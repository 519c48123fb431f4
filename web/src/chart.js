/** Charts: marks of Plot in a box as wide as there is room, whose marks can be walked by pointer and by keyboard. */

import * as Plot from "@observablehq/plot";
import { h, refill } from "./dom.js";

/**
 * @typedef {object} Mark
 * @property {string} series
 * @property {number} x
 * @property {number} y
 */

/**
 * A box that is drawn again whenever its width changes.
 * @param {(width: number) => Node} draw
 * @param {Record<string, any>} [attributes]
 */
export function responsive(draw, attributes = {}) {
  const box = h("div.chart", attributes);
  let width = 0;
  const observer = new ResizeObserver((entries) => {
    const now = Math.floor(entries[entries.length - 1].contentRect.width);
    if (now < 40 || now === width) return;
    width = now;
    requestAnimationFrame(() => refill(box, draw(now)));
  });
  observer.observe(box);
  return box;
}

/**
 * A chart whose marks are read out, and chosen, one at a time: by pointer, or by arrows once it has the focus.
 * @template {Mark} M
 * @param {object} options
 * @param {string} options.label what the chart shows, for who cannot see it
 * @param {M[]} options.marks those that can be chosen
 * @param {(width: number, chosen: M | null) => Plot.PlotOptions} options.plot
 * @param {(mark: M) => (Node | string)[]} options.readout
 * @param {M | null} [options.chosen]
 * @param {(mark: M) => void} [options.choose] called when another mark is chosen
 * @param {string} [options.hint]
 */
export function chart({ label, marks, plot, readout, chosen = null, choose, hint = "Point at a mark, or use the arrow keys." }) {
  let current = chosen;
  let width = 0;
  const words = h("p.readout", { "aria-live": "polite" });
  const say = (/** @type {M | null} */ mark) => refill(words, mark ? readout(mark) : h("span.note", null, hint));
  const draw = () => {
    const svg = /** @type {any} */ (Plot.plot(framed(plot(width, current), marks, current)));
    svg.setAttribute("aria-hidden", "true");
    svg.addEventListener("input", () => say(svg.value ?? current));
    svg.addEventListener("click", () => svg.value && select(svg.value));
    return svg;
  };
  const box = responsive((now) => {
    width = now;
    return draw();
  }, { tabindex: 0, role: "application", "aria-label": `${label}. ${hint}`, "data-key": `chart ${label}`, keydown });
  const select = (/** @type {M} */ mark) => {
    current = mark;
    if (width) refill(box, draw());
    say(mark);
    choose?.(mark);
  };
  /** @param {KeyboardEvent} event */
  function keydown(event) {
    const next = stepped(marks, current, event.key);
    if (!next || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    select(next);
  }
  say(current);
  return h("figure.chartbox", null, box, h("figcaption", null, words));
}

/**
 * The next mark by an arrow: left and right along a series, up and down to the next higher or lower mark at the same x.
 * @template {Mark} M
 * @param {M[]} marks
 * @param {M | null} from
 * @param {string} key
 * @returns {M | null}
 */
export function stepped(marks, from, key) {
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key) || !marks.length) return null;
  if (!from) return marks[0];
  const forward = key === "ArrowRight" || key === "ArrowUp";
  const along = key === "ArrowLeft" || key === "ArrowRight";
  const line = along
    ? marks.filter((mark) => mark.series === from.series).sort((a, b) => a.x - b.x)
    : marks.filter((mark) => mark.x === from.x).sort((a, b) => a.y - b.y || a.series.localeCompare(b.series));
  const at = line.findIndex((mark) => mark.series === from.series && mark.x === from.x);
  return line[at + (forward ? 1 : -1)] ?? from;
}

/**
 * @param {any} options
 * @param {Mark[]} marks
 * @param {Mark | null} chosen
 */
function framed(options, marks, chosen) {
  const ring = { x: "x", y: "y", r: 8, stroke: "currentColor", strokeWidth: 2, fill: "none" };
  return {
    style: { background: "none", overflow: "visible", fontSize: "12px", fontFamily: "inherit" },
    ...options,
    marks: [
      ...options.marks,
      chosen && Plot.dot([chosen], ring),
      Plot.dot(marks, Plot.pointer({ ...ring, strokeWidth: 1, maxRadius: 60 })),
    ],
  };
}

/**
 * An axis of budgets: doublings are equally far apart, and each budget has a tick.
 * @param {number[]} budgets
 * @param {string} label
 */
export function budgetAxis(budgets, label) {
  const ticks = [...new Set(budgets)].sort((a, b) => a - b);
  if (ticks.length < 2) return { type: /** @type {const} */ ("linear"), domain: [(ticks[0] ?? 1) - 1, (ticks[0] ?? 1) + 1], ticks, label };
  return {
    type: /** @type {const} */ ("log"), base: 2, ticks, label, tickFormat: (/** @type {number} */ n) => String(n),
    domain: [ticks[0], ticks[ticks.length - 1]],
  };
}

/**
 * An axis of proportions that shows percentages.
 * @param {number[]} values
 * @param {string} label
 * @param {boolean} [near] from near the lowest value and not from 0
 */
export function shareAxis(values, label, near = false) {
  const known = values.filter((value) => Number.isFinite(value));
  const high = Math.max(0.05, ...known);
  const top = Math.min(1, high < 0.1 ? Math.ceil(high * 105) / 100 : Math.ceil(high * 10.5) / 10);
  const bottom = near && known.length ? Math.max(0, Math.floor(Math.min(...known) * 10 - 0.2) / 10) : 0;
  return { domain: [bottom, top], label, tickFormat: (/** @type {number} */ y) => `${Math.round(100 * y)}%`, ticks: 5, grid: true };
}

/**
 * A chart that is looked at alone: its parts have names of their own in Plot, which a reader of the screen cannot use.
 * @param {Plot.PlotOptions} options
 */
export function plotted(options) {
  const chart = Plot.plot(options);
  for (const part of chart.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
  return chart;
}

/** One mark, for a legend. @param {string} colour @param {string} symbol */
export function symbolMark(colour, symbol) {
  const dot = Plot.dot([0], { x: 0, y: 0, r: 4, symbol: /** @type {any} */ (symbol), fill: colour, stroke: colour });
  const svg = Plot.plot({ width: 14, height: 14, margin: 0, axis: null, x: { domain: [-1, 1] }, y: { domain: [-1, 1] }, style: { background: "none", display: "inline" }, marks: [dot] });
  svg.setAttribute("aria-hidden", "true");
  return svg;
}

export { Plot };
