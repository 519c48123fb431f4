/** A pair on a benchmark: every policy of Base (or RL) by what it costs, RL's default curve, and who leads where. */

import { Plot, budgetAxis, chart, shareAxis, symbolMark } from "../chart.js";
import { h } from "../dom.js";
import { count, interval, known, percent, plural, points as pp, short, signed } from "../format.js";
import { dark, seen, symbol } from "../look.js";
import { ESTIMATORS, absent, health, metricChoice, estimatorChoice, oneSided, sample } from "../parts.js";
import { groups, pick } from "../study.js";
import { choice, details, table, to, toggles } from "../widgets.js";
import { link } from "../route.js";

const COUNTED = new Set(["C", "distinct"]);
const COSTS = /** @type {Record<string, string>} */ ({ samples: "samples per question", tokens: "generated tokens per question", flops: "FLOPs per question" });

/**
 * @param {import("../study.js").Study} study
 * @param {import("../study.js").Cell} cell
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function cell(study, cell, view) {
  const [base, rl, support, same] = await Promise.all([
    study.frame(cell.base.files.points), study.frame(cell.rl.files.points), study.frame(cell.files.support), study.frame(cell.files.same_policy),
  ]);
  const metrics = [...new Set(base.map((row) => row.metric))];
  const metric = metrics.includes(view.query.m) ? view.query.m : "P";
  const estimators = Object.keys(ESTIMATORS).filter((name) => base.some((row) => row.metric === metric && row.estimator === name && known(row.value)));
  const estimator = estimators.includes(view.query.r) ? view.query.r : estimators[0] ?? "unbiased";
  const lines = view.query.lines === "rl" ? "rl" : "base";
  const hidden = new Set((view.query.off ?? "").split("~").filter(Boolean));
  const costs = costsOf(study, cell, base, estimator);
  const cost = costs.includes(view.query.x) ? view.query.x : "samples";
  const marks = marksOf(study, cell, { base, rl, metric, estimator, cost });
  const shown = marks.filter((mark) => (mark.side === lines && !hidden.has(mark.family)) || mark.target);
  const chosen = shown.find((mark) => mark.side === view.query.side && mark.policy === view.query.p && String(mark.n) === view.query.n) ?? null;
  const families = [...groups(marks.filter((mark) => mark.side === lines && !mark.target), (mark) => mark.family)];
  const bands = pick(support, { metric, estimator });
  const title = `${study.pairTitle(cell.pair)} on ${study.benchmark(cell.benchmark).title}`;
  return {
    title,
    crumbs: [["Study", "#/"]],
    body: [
      health(cell) || null,
      cell.sentences?.length > 0 && h("ul", null, cell.sentences.map((line) => h("li", null, line))),
      h("p", null, oneSided(study, cell).map((each) => [each, " · "]), h("a", { href: link(["c", cell.pair, cell.benchmark, "q"]) }, "All questions")),
      metrics.length > 0 && h("div.controls", null,
        metricChoice(study, metric, metrics, (m) => view.set({ m, p: "", n: "", side: "" })),
        estimatorChoice(estimator, estimators, (r) => view.set({ r })),
        choice("Along", costs.map((name) => [name, COSTS[name]]), cost, (x) => view.set({ x })),
        choice("Policies of", [["base", "Base"], ["rl", "RL"]], lines, (value) => view.set({ lines: value, p: "", n: "", side: "" }))),
      h("div.columns", null,
        !metrics.length ? h("section", null, h("h2", null, "All policies"), absent(study, "The operating points of this box")) : h("section", null,
          h("h2", null, `${study.metricTitle(metric)} by ${COSTS[cost]}`),
          legend(metric, lines, cost, bands.length > 0, study),
          chart({
            label: `${study.metricTitle(metric)} of every policy of ${lines === "rl" ? "RL" : "Base"} and of RL's default policy by ${COSTS[cost]}`,
            marks: shown, chosen,
            choose: (mark) => view.note({ side: mark.side, p: mark.policy, n: mark.n }),
            readout: (mark) => words(study, cell, mark, metric, estimator),
            plot: (width) => plot(study, { width, shown, bands: cost === "samples" ? bands : [], metric, cost }),
            hint: "Point at a mark, or use the arrow keys: its value, interval, cost and questions are shown here.",
          }),
          toggles("Families of policies", families.map(([family, list]) => ({
            value: family, words: list[0].familyTitle, pressed: !hidden.has(family), mark: symbolMark(seen(list[0].colour), symbol(list[0].marker)),
          })), (family) => view.set({ off: [...flipped(hidden, family)].join("~") })),
          cost === "flops" && h("p.note", null, "A generated token counts as 2 FLOPs per parameter; prompts and attention are not counted.")),
        h("section", null, gapMap(study, cell, pick(same, { metric, estimator }), metric, view))),
      reach(study, bands, metric),
    ],
  };
}

/** @param {Set<string>} set @param {string} value */
function flipped(set, value) {
  const next = new Set(set);
  if (!next.delete(value)) next.add(value);
  return next;
}

/** What can be counted here: tokens and FLOPs only where they are known. */
function costsOf(/** @type {any} */ study, /** @type {any} */ cell, /** @type {any[]} */ base, /** @type {string} */ estimator) {
  const tokens = base.some((row) => row.metric === "C" && known(row.value));
  const sizes = [cell.base, cell.rl].every((side) => known(study.index.checkpoints[side.checkpoint]?.parameters));
  return ["samples", tokens && "tokens", tokens && sizes && "flops"].filter((name) => typeof name === "string");
}

/**
 * Every operating point with its cost.
 * @param {import("../study.js").Study} study
 * @param {import("../study.js").Cell} cell
 * @param {{base: any[], rl: any[], metric: string, estimator: string, cost: string}} options
 */
function marksOf(study, cell, { base, rl, metric, estimator, cost }) {
  const target = study.index.default_policy;
  return /** @type {["base" | "rl", any[]][]} */ ([["base", base], ["rl", rl]]).flatMap(([side, frame]) => {
    const tokens = new Map(frame.filter((row) => row.metric === "C" && row.estimator === "unbiased").map((row) => [`${row.policy} ${row.budget}`, row.value]));
    const size = study.index.checkpoints[cell[side].checkpoint]?.parameters;
    return frame.filter((row) => row.metric === metric && row.estimator === estimator && known(row.value)).flatMap((row) => {
      const drawn = tokens.get(`${row.policy} ${row.budget}`);
      const x = cost === "samples" ? row.budget : cost === "tokens" ? drawn : known(drawn) ? 2 * size * drawn : null;
      if (!known(x) || x <= 0) return [];
      const policy = study.policies.get(row.policy);
      return [{
        side, series: `${side} ${row.policy}`, policy: row.policy, n: row.budget, x, y: row.value, lo: row.lo, hi: row.hi, hits: row.hits,
        questions: row.questions, tokens: drawn, target: side === "rl" && row.policy === target,
        ...familyOf(policy), colour: policy?.colour ?? "#666666", marker: policy?.marker,
      }];
    });
  });
}

/** Searches differ by their controller. @param {import("../study.js").Policy | undefined} policy */
function familyOf(policy) {
  const controller = policy?.search && policy.controller;
  if (controller) return { family: controller, familyTitle: `search: ${controller.replaceAll("_", " ")}` };
  return { family: policy?.family ?? "search", familyTitle: policy?.family_title ?? policy?.family ?? "search" };
}

/** @param {import("../study.js").Study} study @param {any} options @returns {import("../chart.js").Plot.PlotOptions} */
function plot(study, { width, shown, bands, metric, cost }) {
  const counted = COUNTED.has(metric);
  const target = shown.filter((/** @type {any} */ mark) => mark.target);
  const others = shown.filter((/** @type {any} */ mark) => !mark.target);
  const xs = shown.map((/** @type {any} */ mark) => mark.x);
  const reached = new Set(xs);
  const region = bands.filter((/** @type {any} */ row) => reached.has(row.budget) && known(row.envelope));
  const x = cost === "samples" ? budgetAxis(xs, "samples per question")
    : { type: /** @type {const} */ ("log"), label: COSTS[cost], tickFormat: short, ticks: width < 500 ? 3 : 6 };
  const highest = [...shown.map((/** @type {any} */ mark) => mark.y), ...target.map((/** @type {any} */ mark) => mark.hi ?? 0)];
  return {
    width, height: Math.max(260, Math.min(460, width * 0.62)), marginLeft: 52, marginBottom: 38, marginRight: 14, ariaLabel: null,
    x, y: counted ? { label: study.metricTitle(metric), grid: true, nice: true, tickFormat: short } : shareAxis(highest, "questions"),
    color: { type: /** @type {const} */ ("identity") }, symbol: { type: /** @type {const} */ ("identity") },
    marks: [
      Plot.areaY(region, { x: "budget", y1: (/** @type {any} */ row) => row.low ?? row.envelope, y2: "envelope", fill: "var(--region)" }),
      Plot.lineY(others, { x: "x", y: "y", z: "series", stroke: (/** @type {any} */ mark) => seen(mark.colour), strokeWidth: 1, strokeOpacity: 0.75 }),
      Plot.dot(others, { x: "x", y: "y", r: 2.6, symbol: (/** @type {any} */ mark) => symbol(mark.marker), stroke: (/** @type {any} */ mark) => seen(mark.colour), fill: dark() ? "#14171a" : "#ffffff" }),
      Plot.lineY(region, { x: "budget", y: "envelope", stroke: "currentColor", strokeWidth: 1.6, strokeDasharray: "5 3" }),
      Plot.areaY(target.filter((/** @type {any} */ mark) => known(mark.lo)), { x: "x", y1: "lo", y2: "hi", fill: "var(--rl)", fillOpacity: 0.15 }),
      Plot.lineY(target, { x: "x", y: "y", stroke: "var(--rl)", strokeWidth: 2.6 }),
      Plot.dot(target, { x: "x", y: "y", r: 4, symbol: "circle", fill: "var(--rl)" }),
    ],
  };
}

/** @param {string} metric @param {string} lines @param {string} cost @param {boolean} region @param {import("../study.js").Study} study */
function legend(metric, lines, cost, region, study) {
  return h("ul.legend", null,
    h("li", null, sample("var(--rl)", "circle"), `RL, its default policy (${study.policyTitle(study.index.default_policy)}), with its ${study.coverage} interval`),
    region && cost === "samples" && [
      h("li", null, sample("currentColor", "dash"), "the best of Base with so many samples or fewer"),
      h("li", null, sample("var(--region)", "band", 1), "the region that Base's policies reach")],
    h("li", null, `thin lines: a policy of ${lines === "rl" ? "RL" : "Base"} each; colour and marker say its family`));
}

/** @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell @param {any} mark @param {string} metric @param {string} estimator */
function words(study, cell, mark, metric, estimator) {
  const shown = COUNTED.has(metric) ? `${short(mark.y)}${known(mark.lo) ? ` [${short(mark.lo)}, ${short(mark.hi)}]` : ""}` : `${percent(mark.y)} ${interval(mark.lo, mark.hi)}`;
  const solved = known(mark.hits) ? `; ${mark.hits} of ${plural(mark.questions, "question")}` : "";
  const sort = mark.side === "rl" ? "rl-only" : "base-only";
  return [
    h("b", { class: mark.side }, `${mark.side === "rl" ? "RL" : "Base"}, ${study.policyTitle(mark.policy)}, ${plural(mark.n, "sample")}: `),
    h("b", null, `${study.metricTitle(metric)} ${shown}`),
    ` (${ESTIMATORS[estimator] ?? estimator})${solved}${known(mark.tokens) ? `; ${count(Math.round(mark.tokens))} tokens a question` : ""}. `,
    to(link(["c", cell.pair, cell.benchmark, "q"], { n: mark.n, p: mark.policy, sort }), "Questions at this point"),
  ];
}

/**
 * RL minus Base under the same policy with as many samples.
 * @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell @param {any[]} same @param {string} metric @param {import("../main.js").View} view
 */
function gapMap(study, cell, same, metric, view) {
  const heading = h("h2", null, "Same policy: RL − Base");
  if (!same.length) return [heading, h("p.note", null, `${study.metricTitle(metric)} of Base and RL is not compared policy by policy.`)];
  const budgets = [...new Set(same.map((row) => row.budget))].sort((a, b) => a - b);
  const at = new Map(same.map((row) => [`${row.policy} ${row.budget}`, row]));
  const policies = study.ordered(same.map((row) => row.policy));
  const widest = Math.max(0.01, ...same.map((row) => Math.abs(row.rl_minus_base)));
  const sorted = view.query.map === "gap"
    ? [...policies].sort((a, b) => (at.get(`${b} ${budgets[0]}`)?.rl_minus_base ?? -9) - (at.get(`${a} ${budgets[0]}`)?.rl_minus_base ?? -9)) : policies;
  const box = (/** @type {any} */ row) => {
    if (!row) return h("td", null, "–");
    const strength = Math.round(70 * Math.abs(row.rl_minus_base) / widest);
    const colour = `color-mix(in srgb, var(${row.rl_minus_base > 0 ? "--rl-pale" : "--base-pale"}) ${Math.max(8, strength + 30)}%, var(--ground))`;
    const clear = known(row.lo) && (row.lo > 0 || row.hi < 0);
    const full = `${study.policyTitle(row.policy)}, ${plural(row.budget, "sample")}: Base ${percent(row.base)}, RL ${percent(row.rl)}, RL − Base ${pp(row.rl_minus_base)} ${interval(row.lo, row.hi)}`;
    return h("td", { style: `background: ${colour}` }, h("a", {
      title: full, "aria-label": full, href: link(["c", cell.pair, cell.benchmark, "q"], { n: row.budget, p: row.policy, sort: row.rl_minus_base > 0 ? "rl-only" : "base-only" }),
    }, clear ? h("b", null, signed(100 * row.rl_minus_base)) : signed(100 * row.rl_minus_base)));
  };
  return [
    heading,
    h("p.note", null, `Percentage points, by policy and samples per question: red and + where RL leads, blue and − where Base does. Bold: the ${study.coverage} interval excludes 0. A number leads to the questions behind it.`),
    h("div.controls", null, choice("Order", [["", "by family"], ["gap", "by difference at one sample"]], view.query.map ?? "", (map) => view.set({ map }))),
    h("div.wide", { tabindex: 0, role: "region", "aria-label": "Differences of Base and RL by policy and samples" },
      h("table.map", null,
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "policy"), budgets.map((n) => h("th.number", { scope: "col" }, String(n))))),
        h("tbody", null, sorted.map((policy) => h("tr", null, h("th", { scope: "row" }, study.policyTitle(policy)), budgets.map((n) => box(at.get(`${policy} ${n}`)))))))),
  ];
}

/** The region in numbers. @param {import("../study.js").Study} study @param {any[]} bands @param {string} metric */
function reach(study, bands, metric) {
  if (!bands.length) return null;
  const sorted = [...bands].sort((a, b) => a.budget - b.budget);
  return details(
    `RL and the best of Base in numbers (${study.metricTitle(metric)})`,
    h("p.note", null, `RL − best: the best of Base under any of its policies with as many samples or fewer; its upper end allows for the choice of the best among many. ${study.coverage} intervals over questions.`),
    table([
      { name: "budget", title: "samples", number: true },
      { name: "rl", title: "RL", number: true, cell: (row) => `${percent(row.rl)} ${interval(row.rl_lo, row.rl_hi)}` },
      { name: "envelope", title: "best of Base", number: true, cell: (row) => percent(row.envelope) },
      { name: "by", title: "under", cell: (row) => (row.envelope_policy ? `${study.policyTitle(row.envelope_policy)}, ${plural(row.envelope_budget, "sample")}` : "–") },
      { name: "rl_minus_best", title: "RL − best", number: true, cell: (row) => `${pp(row.rl_minus_best)} ${interval(row.rl_minus_best_lo, row.rl_minus_best_hi)}` },
      { name: "low", title: "low end of the region", number: true, cell: (row) => percent(row.low) },
      { name: "inside", title: "RL inside?", cell: (row) => (row.inside === null || row.inside === undefined ? "not known" : row.inside ? "yes" : "no") },
    ], sorted, { caption: "RL against the region of Base" }),
  );
}

