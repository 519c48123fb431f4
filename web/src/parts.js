/** Parts that speak of a study: legends of the two models, crumbs, choices of metric and estimator. */

import { h, s } from "./dom.js";
import { known, plural } from "./format.js";
import { link } from "./route.js";
import { choice } from "./widgets.js";

/** Base and RL differ by colour and by marker. @param {string} [words] */
export function sideLegend(words) {
  return h("div", null,
    h("ul.legend", null,
      h("li", null, sample("var(--base)", "square"), "Base"), h("li", null, sample("var(--rl)", "circle"), "RL")),
    words && h("p.note", null, words));
}

/**
 * A short line with its marker, for a legend.
 * @param {string} colour
 * @param {"circle" | "square" | "none" | "band" | "dash"} kind
 * @param {number} [opacity] of a band
 */
export function sample(colour, kind, opacity = 0.25) {
  const line = kind === "band"
    ? s("rect", { x: 0, y: 2, width: 26, height: 10, fill: colour, opacity })
    : s("line", { x1: 0, x2: 26, y1: 7, y2: 7, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": kind === "dash" ? "4 3" : null });
  const mark = kind === "circle" ? s("circle", { cx: 13, cy: 7, r: 4, fill: colour })
    : kind === "square" ? s("rect", { x: 9, y: 3, width: 8, height: 8, fill: colour }) : null;
  return s("svg", { width: 26, height: 14, "aria-hidden": "true" }, line, mark);
}

/** @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell @returns {[string, string][]} */
export function cellCrumbs(study, cell) {
  return [["Study", "#/"], [`${study.pairTitle(cell.pair)} on ${study.benchmark(cell.benchmark).title}`, link(["c", cell.pair, cell.benchmark])]];
}

/** How many policies of a model were sampled, references such as greedy by their names. @param {import("./study.js").Study} study @param {import("./study.js").Side} side */
export function pool(study, side) {
  const references = side.policies.filter((name) => study.index.references?.includes(name));
  return [plural(side.policies.length - references.length, "policy", "policies"), ...references].join(" or ");
}

/**
 * Links to the questions that RL alone solves, and that Base alone solves; where there are none, to those on which it leads most.
 * @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell
 */
export function oneSided(study, cell) {
  return /** @type {const} */ (["rl", "base"]).map((side) => {
    const [one, other] = side === "rl" ? ["RL", "Base"] : ["Base", "RL"];
    const n = cell.solved?.[`${side}_only`];
    const words = `that ${one} solves and no sample of ${other} does, under any of its ${pool(study, cell[side === "rl" ? "base" : "rl"])}`;
    const said = n === 0 ? ["No question ", `; those where ${one} leads most`] : [known(n) ? `${plural(n, "question")} ` : "Questions ", ""];
    return h("a", { href: link(["c", cell.pair, cell.benchmark, "q"], { sort: `${side}-only` }) }, said[0], words, said[1]);
  });
}

/** What is to be seen before any number: nothing where a cell is sound. @param {import("./study.js").Cell} cell */
export function health(cell) {
  const state = cell.health?.state ?? "ok";
  return state !== "ok" && h("div", { class: state, role: "note" }, cell.health.sentences.map((line) => h("p", null, line)));
}

/**
 * Words for a part that is not there.
 * @param {import("./study.js").Study} study @param {string} what begins the sentence, in the plural
 */
export function absent(study, what) {
  const why = study.ranges ? "are not there: their stage has not run, or had nothing to read." : "are not in this page, because it has a bound on its size or their stage has not run; searchlens view shows all there is.";
  return h("p.warn", { role: "note" }, `${what} ${why}`);
}

/** @param {import("./study.js").Study} study @param {string} value @param {string[]} present @param {(value: string) => void} change */
export function metricChoice(study, value, present, change) {
  return choice("Metric", present.map((name) => [name, study.metricTitle(name)]), value, change);
}

export const ESTIMATORS = /** @type {Record<string, string>} */ ({
  unbiased: "mean over all subsets of the samples", first_k: "the first samples, in the order drawn",
});

/** @param {string} value @param {string[]} present @param {(value: string) => void} change */
export function estimatorChoice(value, present, change) {
  return choice("Read from", present.map((name) => [name, ESTIMATORS[name] ?? name]), value, change);
}
