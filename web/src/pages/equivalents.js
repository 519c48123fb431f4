/** How many samples of Base are worth b samples of RL, and which power laws the data allow. */

import { Plot, chart, plotted, responsive } from "../chart.js";
import { h } from "../dom.js";
import { bracket, fixed, known, plural } from "../format.js";
import { absent, cellCrumbs, health, sample } from "../parts.js";
import { pick } from "../study.js";
import { choice, table } from "../widgets.js";

const STATES = /** @type {Record<string, string>} */ ({
  within: "", below: "one sample of Base already solves more", above: "more than all samples of Base",
  level: "RL solves as much as all samples of Base, both at the end of what was drawn",
});

/**
 * @param {import("../study.js").Study} study
 * @param {import("../study.js").Cell} cell
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function equivalents(study, cell, view) {
  const files = study.index.studies ?? {};
  const own = { pair: cell.pair, benchmark: cell.benchmark };
  const [all, exponents, profiles, crossings, joint] = (await Promise.all(
    ["equivalents", "exponents", "exponent_profiles", "crossings", "joint_exponents"].map((name) => study.frame(files[name])),
  )).map((frame, i) => (i === 4 ? pick(frame, { benchmark: cell.benchmark }) : pick(frame, own)));
  const present = new Set(all.map((row) => row.policy));
  const policies = [study.index.default_policy, "best", ...present].filter((name, i, list) => present.has(name) && list.indexOf(name) === i);
  const policy = policies.includes(view.query.p) ? view.query.p : policies[0];
  const rows = pick(all, { policy }).sort((a, b) => a.budget - b.budget);
  const title = (/** @type {string} */ name) => (name === "best" ? "the best policy at each number of samples" : study.policyTitle(name));
  return {
    title: "What RL's samples are worth in samples of Base",
    crumbs: cellCrumbs(study, cell),
    body: [
      health(cell) || null,
      h("p", null, "N* is the number of samples of Base that solves as many questions as b samples of RL under its default policy. All curves are means over every subset of the samples."),
      rows.length ? [
        h("div.controls", null, choice("Base's policy", policies.map((name) => [name, title(name)]), policy, (p) => view.set({ p }))),
        h("div.columns.even", null, drawing(study, rows), numbers(study, rows)),
        crossing(study, crossings),
      ] : absent(study, "The measures of this box"),
      sets(study, view, exponents, profiles, joint),
    ],
  };
}

/** @param {import("../study.js").Study} study @param {any[]} rows */
function drawing(study, rows) {
  const marks = rows.filter((row) => row.state === "within").map((row) => ({ ...row, series: "N*", x: row.budget, y: row.n }));
  if (!marks.length) return h("p.note", null, `At no budget of RL is the number within what Base's samples can show: ${STATES[rows[0].state] ?? rows[0].state}.`);
  const most = Math.max(...rows.map((row) => row.pool), ...rows.map((row) => row.budget));
  const ticks = powers(most);
  return h("section", null,
    h("ul.legend", null,
      h("li", null, sample("var(--base)", "circle"), `N*, with its ${study.coverage} interval`), h("li", null, sample("var(--base)", "band"), "band that holds at all b together"),
      h("li", null, sample("currentColor", "dash"), "equal samples: above it Base needs more")),
    chart({
      label: "Samples of Base by samples of RL", marks,
      readout: (/** @type {any} */ mark) => [h("b", null, `${plural(mark.budget, "sample")} of RL are worth ${ends(mark)} samples of Base`), tokenWords(mark), slopeWords(mark), "."],
      plot: (width) => ({
        width, height: Math.max(280, Math.min(420, width * 0.65)), marginLeft: 52, marginBottom: 38,
        x: { type: "log", base: 2, label: "samples of RL, b", ticks: ticks.filter((n) => n <= Math.max(...rows.map((row) => row.budget))), tickFormat: String, domain: [1, Math.max(2, ...rows.map((row) => row.budget))], inset: 8 },
        y: { type: "log", base: 2, label: "samples of Base, N*", ticks, tickFormat: String, grid: true, domain: [Math.min(1, ...marks.map((mark) => mark.lo ?? 1)), most] },
        marks: [
          Plot.line([[1, 1], [most, most]].map(([x, y]) => ({ x: Math.min(x, Math.max(...rows.map((row) => row.budget))), y: Math.min(y, Math.max(...rows.map((row) => row.budget))) })), { x: "x", y: "y", stroke: "currentColor", strokeDasharray: "5 3" }),
          Plot.areaY(marks.filter((mark) => known(mark.band_lo) && known(mark.band_hi)), { x: "x", y1: "band_lo", y2: "band_hi", fill: "var(--base)", fillOpacity: 0.18 }),
          Plot.ruleX(marks.filter((mark) => known(mark.lo) && known(mark.hi)), { x: "x", y1: "lo", y2: "hi", stroke: "var(--base)", strokeWidth: 1.5 }),
          Plot.line(marks, { x: "x", y: "y", stroke: "var(--base)", strokeWidth: 2 }),
          Plot.dot(marks, { x: "x", y: "y", r: 4, fill: "var(--base)" }),
        ],
      }),
    }));
}

/** @param {number} most */
function powers(most) {
  const list = [1];
  while (list[list.length - 1] * 2 <= most) list.push(list[list.length - 1] * 2);
  return list;
}

/** @param {any} row */
function ends(row) {
  const texts = /** @type {Record<string, string>} */ ({
    within: `${fixed(row.n)} ${bracket(row)}`, below: `less than 1 ${bracket(row)}`, above: `more than ${row.pool} ${bracket(row)}`,
    level: `${row.pool} or more (both at the end of what was drawn)`,
  });
  return texts[row.state] ?? row.state;
}

/** @param {any} row */
function tokenWords(row) {
  return known(row.token_ratio) ? `; ${fixed(row.token_ratio, 2)} tokens of Base for each of RL` : "";
}

/** @param {any} row */
function slopeWords(row) {
  return known(row.slope) ? `; local exponent from here ${fixed(row.slope, 2)}${known(row.slope_lo) ? ` [${fixed(row.slope_lo, 2)}, ${fixed(row.slope_hi, 2)}]` : ""}` : "";
}

/** @param {import("../study.js").Study} study @param {any[]} rows */
function numbers(study, rows) {
  const columns = [
    { name: "budget", title: "samples of RL", number: true },
    { name: "n", title: `worth in samples of Base [${study.coverage}]`, number: true, cell: ends },
    { name: "band", title: "band over all b", number: true, cell: (/** @type {any} */ row) => (known(row.band_lo) && known(row.band_hi) ? `${fixed(row.band_lo)} to ${fixed(row.band_hi)}` : "–") },
    { name: "slope", title: "local exponent", number: true, cell: (/** @type {any} */ row) => (known(row.slope) ? `${fixed(row.slope, 2)}${known(row.slope_lo) ? ` [${fixed(row.slope_lo, 2)}, ${fixed(row.slope_hi, 2)}]` : ""}` : "–") },
    { name: "token_ratio", title: "tokens for one of RL", number: true, cell: (/** @type {any} */ row) => fixed(row.token_ratio, 2) },
  ].filter((column) => column.name !== "token_ratio" || rows.some((row) => known(row.token_ratio)));
  return h("section", null, table(columns, rows, { caption: `Of ${plural(rows[0].pool, "sample")} of Base` }));
}

/** @param {import("../study.js").Study} study @param {any[]} rows */
function crossing(study, rows) {
  if (!rows.length) return null;
  const says = (/** @type {any} */ row) => {
    const where = /** @type {Record<string, string>} */ ({ within: fixed(row.crossing), below: `${fixed(row.first)} or less`, above: `${fixed(row.last)} or more` });
    return `Base is level from this number of samples of RL on: ${where[row.state]} ${bracket(row)}`;
  };
  return h("section", null, h("h2", null, "From where on is Base level?"), h("p.note", null, `Under the default policy of both; ${study.coverage} intervals.`),
    h("ul", null, rows.map((row) => h("li", null, h("b", null, `At equal ${row.cost}: `), says(row), row.cost === "tokens" && known(row.exchange) ? ` (${fixed(row.exchange, 2)} samples of Base cost as much as one of RL)` : "", "."))));
}

/** @param {import("../study.js").Study} study @param {import("../main.js").View} view @param {any[]} exponents @param {any[]} profiles @param {any[]} joint */
function sets(study, view, exponents, profiles, joint) {
  if (!exponents.length) return null;
  const scopes = [...new Set(exponents.map((row) => row.policy))].sort((a, b) => Number(b === study.index.default_policy) - Number(a === study.index.default_policy));
  const scope = scopes.includes(view.query.scope) ? view.query.scope : scopes[0];
  const row = exponents.find((each) => each.policy === scope);
  const curve = pick(profiles, { policy: scope }).filter((each) => known(each.p)).sort((a, b) => a.beta - b.beta);
  const title = (/** @type {string} */ name) => (name === "any" ? "any policy of Base" : study.policyTitle(name));
  const level = 1 - (study.index.confidence ?? 0.95);
  const together = joint.filter((each) => each.policy === scope && (each.left_out ?? null) === null)[0];
  const words = verdict(row, study);
  const seen = curve.length > 1 && Math.max(...curve.map((each) => each.p)) > 0.001;
  return h("section", null,
    h("h2", null, "Is it a power law?"),
    scopes.length > 1 && h("div.controls", null, choice("Law under", scopes.map((name) => [name, title(name)]), scope, (next) => view.set({ scope: next }))),
    h("p", null, words),
    together?.pairs > 1 && h("p", null, `All ${together.pairs} pairs of this benchmark together: ${range(together)}.`),
    seen && responsive((width) => plotted({
      width: Math.min(width, 760), height: 240, marginLeft: 52, marginBottom: 38, style: { background: "none", fontSize: "12px" },
      x: { label: "exponent β" }, y: { label: "largest p-value of a law with this β", domain: [0, Math.max(0.2, ...curve.map((each) => each.p))], grid: true },
      marks: [
        known(row.beta_lo) && known(row.beta_hi) ? Plot.rectX([row], { x1: "beta_lo", x2: "beta_hi", fill: "var(--base)", fillOpacity: 0.15 }) : null,
        Plot.ruleY([level], { stroke: "var(--rl)", strokeDasharray: "5 3" }), Plot.lineY(curve, { x: "beta", y: "p", stroke: "var(--base)", strokeWidth: 2 }),
      ],
    }), { role: "img", "aria-label": `p-values of the exponents. ${words}` }),
    seen && h("ul.legend", null, h("li", null, sample("var(--base)", "none"), "p-value"), h("li", null, sample("var(--rl)", "dash"), `below this line an exponent is rejected (${fixed(level, 2)})`), h("li", null, sample("var(--base)", "band"), "exponents that are not rejected")));
}

/** @param {any} row */
function range(row) {
  if (!row.testable) return "no law can be tested";
  if (row.empty) return "no exponent is allowed";
  return known(row.beta_lo) ? `exponents from ${fixed(row.beta_lo, 2)} to ${fixed(row.beta_hi, 2)} are allowed` : "not known";
}

/** @param {any} row @param {import("../study.js").Study} study */
function verdict(row, study) {
  const fit = known(row.beta_l1) ? ` The law with the least mean error has β = ${fixed(row.beta_l1, 2)}${known(row.beta_l1_lo) ? ` [${fixed(row.beta_l1_lo, 2)}, ${fixed(row.beta_l1_hi, 2)}]` : ""}.` : "";
  const miss = known(row.misfit) ? ` The least mean error of any law is ${fixed(100 * row.misfit, 2)} percentage points.` : "";
  if (!row.testable) return `No law can be tested on these samples.${fit}${miss}`;
  if (row.empty) return `No power law with ${upTo(row)} fits: every exponent is rejected at ${study.coverage} (largest p = ${row.p < 0.001 ? "below 0.001" : fixed(row.p, 3)}).${fit}${miss}`;
  const hardly = row.hardly ? `Hardly any power law fits (largest p = ${fixed(row.p, 3)}). ` : "";
  return `${hardly}With ${upTo(row)}, not rejected at ${study.coverage} are exponents β from ${fixed(row.beta_lo, 2)} to ${fixed(row.beta_hi, 2)}.${fit}${miss}`;
}

/** @param {any} row */
function upTo(row) {
  return row.pool_min === row.pool_max ? `N up to ${row.pool_max}` : `N up to ${row.pool_min} to ${row.pool_max}, the pool of each policy`;
}
