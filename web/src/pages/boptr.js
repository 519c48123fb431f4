/** Does one rule, from Base alone, say where RL's curve lies? Errors of every way of predicting it, and what fits a cell as well. */

import { Plot, plotted, responsive, symbolMark } from "../chart.js";
import { h } from "../dom.js";
import { fixed, known, plural, signed } from "../format.js";
import { absent, sample } from "../parts.js";
import { pick } from "../study.js";
import { choice, details, table } from "../widgets.js";
import { link } from "../route.js";

const SCOPES = /** @type {[string, string][]} */ ([
  ["vertical", "Other models: rows V"], ["held out", "Held-out benchmarks"], ["new models", "New models"], ["ablation", "What the parts of the rule are worth"],
  ["frontier", "By how much of RL a row has seen"], ["variants", "Variants of the rule"], ["decomposition", "Where the error comes from"],
]);
const KINDS = /** @type {Record<string, [string, string, string]>} */ ({
  rule: ["rule", "#0072B2", "circle"], baseline: ["simple baseline", "#E69F00", "square"], copy: ["copied path", "#56B4E9", "diamond"], oracle: ["has seen the curve it predicts", "#888888", "triangle"],
  ablation: ["rule without a part", "#CC79A7", "triangle2"], rival: ["simple rival", "#D55E00", "times"], frontier: ["row of the frontier", "#009E73", "star"],
});
const MATCHED = /^matched /;

/**
 * @param {import("../study.js").Study} study
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function boptr(study, view) {
  const files = study.index.studies?.boptr ?? {};
  const [means, contrasts, errors, identified, nulls] = await Promise.all(
    ["means", "contrasts", "errors", "identified_set", "nulls"].map((name) => study.frame(files[name])),
  );
  if (!means.length && !errors.length) return { title: "BOPTR", body: [absent(study, "The fits of the rule")] };
  const { query } = view;
  const scopes = [...new Set(means.map((row) => row.scope))];
  const scope = scopes.includes(query.scope) ? query.scope : scopes.find((name) => name === "vertical") ?? scopes[0];
  const inScope = pick(means, { scope });
  const exponents = valueOf(inScope, "exponents", query.exponents);
  const mu = valueOf(inScope, "mu", query.mu);
  const pool = valueOf(inScope, "pool", query.pool);
  const chosen = inScope.filter((row) => row.exponents === exponents && row.mu === mu && row.pool === pool);
  const columns = [...new Set(chosen.map((row) => row.column))];
  const column = columns.includes(query.column) ? query.column : columns.find((name) => MATCHED.test(name)) ?? columns.find((name) => /mean|macro/.test(name)) ?? columns[0];
  const rows = pick(chosen, { column });
  const options = (/** @type {string} */ name, /** @type {(value: string) => string} */ words) => [...new Set(inScope.map((row) => row[name]))].map((value) => /** @type {[string, string]} */ ([value, words(value)]));
  const ask = (/** @type {string} */ label, /** @type {string} */ name, /** @type {string} */ value, /** @type {(value: string) => string} */ words) => {
    const list = options(name, words);
    return list.length > 1 && choice(label, list, value, (next) => view.set({ [name]: next }));
  };
  return {
    title: "BOPTR: one rule for the path through Base",
    body: [
      h("p", null, "The rule says with how many samples of Base, and under which policy, Base does as well as RL with b samples: N = α·b^β. Below are the errors of the rule and of simpler ways of predicting RL's curves, in percentage points: smaller is better."),
      h("div.controls", null,
        choice("Rows", scopes.map((name) => [name, SCOPES.find(([each]) => each === name)?.[1] ?? name.replace("horizontal/", "One model, other benchmarks: ")]), scope, (next) => view.set({ scope: next, column: "" })),
        choice("Cells", columns.map((name) => [name, columnWords(name)]), column, (next) => view.set({ column: next })),
        ask("Exponents", "exponents", exponents, (value) => ({ paper: "the paper's", own: "of this cohort" })[value] ?? value),
        ask("Policies", "pool", pool, (value) => ({ ar: "sampling only", full: "with searches" })[value] ?? value),
        ask("Mean of the scales", "mu", mu, (value) => ({ cohort: "of the cohort", without: "without the models left out" })[value] ?? value)),
      MATCHED.test(column) ? h("p.note", null, "Matched: the cells on which every row is defined, so that rows can be compared.") : h("p.note", null, "A row may be a mean over fewer cells than another; only means over the same cells can be compared."),
      dots(rows, study),
      rowTable(rows, study),
      comparisons(contrasts, exponents, study),
      chance(nulls),
      cellPart(study, view, errors, identified),
    ],
  };
}

/** @param {any[]} rows @param {string} name @param {string | undefined} asked */
function valueOf(rows, name, asked) {
  const present = [...new Set(rows.map((row) => row[name]))];
  return present.includes(asked) ? asked : present.find((value) => ["paper", "cohort", "ar"].includes(value)) ?? present[0];
}

/** @param {string} name */
function columnWords(name) {
  return ({ macro: "mean over models of their means", micro: "mean over cells", mean: "mean over benchmarks", "matched macro": "matched: mean over models", "matched micro": "matched: mean over cells", "matched mean": "matched: mean" })[name] ?? name;
}

/** @param {any[]} rows @param {import("../study.js").Study} study */
function dots(rows, study) {
  const known_ = rows.filter((row) => known(row.corrected) || known(row.error));
  if (!known_.length) return h("p.note", null, "None of these rows is defined here; the table below says why.");
  const list = known_.map((row) => ({ ...row, at: row.corrected ?? row.error, colour: KINDS[row.kind]?.[1] ?? "#888888", shape: KINDS[row.kind]?.[2] ?? "circle" }));
  const label = (/** @type {any} */ row) => row.label;
  const longest = Math.max(...list.map((row) => row.label.length));
  const words = `Errors: ${list.map((row) => `${row.label} ${fixed(row.at, 2)}`).join("; ")}`;
  return h("div", null,
    h("ul.legend", null, [...new Set(list.map((row) => row.kind))].map((kind) => h("li", null, symbolMark(KINDS[kind]?.[1] ?? "#888888", KINDS[kind]?.[2] ?? "circle"), KINDS[kind]?.[0] ?? kind)),
      h("li", null, `filled: corrected for its upward bias, with its ${study.coverage} interval; open: as computed`)),
    responsive((width) => plotted({
      width, height: 50 + list.length * 24, marginLeft: Math.min(longest * 6.7 + 16, width * 0.5), marginBottom: 36, marginRight: 12, style: { background: "none", fontSize: width < 500 ? "11px" : "12px", overflow: "visible" },
      x: { label: "error, percentage points", grid: true, nice: true, zero: true, labelAnchor: "right" }, y: { type: "band", domain: list.map(label), label: null, tickSize: 0, tickFormat: (/** @type {string} */ text) => cut(text, Math.floor((Math.min(longest * 6.7 + 16, width * 0.5) - 10) / 6.2)) },
      symbol: { type: "identity" }, color: { type: "identity" },
      marks: [
        Plot.ruleX([0], { stroke: "currentColor" }),
        Plot.ruleY(list.filter((row) => known(row.lo_corrected)), { y: label, x1: "lo_corrected", x2: "hi_corrected", stroke: "colour", strokeWidth: 2 }),
        Plot.dot(list.filter((row) => known(row.error)), { y: label, x: "error", r: 4, symbol: "shape", stroke: "colour" }),
        Plot.dot(list.filter((row) => known(row.corrected)), { y: label, x: "corrected", r: 5, symbol: "shape", fill: "colour", title: (/** @type {any} */ row) => `${row.label}: ${fixed(row.corrected, 2)} [${fixed(row.lo_corrected, 2)}, ${fixed(row.hi_corrected, 2)}]` }),
      ],
    }), { role: "img", "aria-label": words }));
}

/** @param {string} text @param {number} most */
function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** @param {any[]} rows @param {import("../study.js").Study} study */
function rowTable(rows, study) {
  return details("These rows in numbers", table([
    { name: "label", title: "row" },
    { name: "kind", title: "what it is", cell: (row) => KINDS[row.kind]?.[0] ?? row.kind },
    { name: "rl", title: "what it sees of RL" },
    { name: "corrected", title: `error, corrected [${study.coverage}]`, number: true, cell: (row) => (known(row.corrected) ? `${fixed(row.corrected, 2)} [${fixed(row.lo_corrected, 2)}, ${fixed(row.hi_corrected, 2)}]` : "–") },
    { name: "error", title: `error as computed [${study.coverage}]`, number: true, cell: (row) => (known(row.error) ? `${fixed(row.error, 2)} [${fixed(row.lo, 2)}, ${fixed(row.hi, 2)}]` : "–") },
    { name: "cells", title: "cells", number: true, cell: (row) => (row.of ? `${row.cells} of ${row.of}` : row.cells) },
    { name: "reason", title: "why it is not defined", cell: (row) => (row.reason ?? "").replaceAll("_", " ") },
  ], rows));
}

/** @param {any[]} contrasts @param {string} exponents @param {import("../study.js").Study} study */
function comparisons(contrasts, exponents, study) {
  const rows = contrasts.filter((row) => row.exponents === exponents);
  if (!rows.length) return null;
  return details("Rows against one another on their common cells", h("p.note", null, "First minus second, in percentage points: below 0 the first is better."), table([
    { name: "scope" }, { name: "first" }, { name: "second" },
    { name: "difference", title: `difference, corrected [${study.coverage}]`, number: true, cell: (row) => (known(row.corrected) ? `${signed(row.corrected, 2)} [${fixed(row.lo_corrected, 2)}, ${fixed(row.hi_corrected, 2)}]` : "–") },
    { name: "verdict", title: "over questions" }, { name: "verdict_models", title: "over models" },
    { name: "p_both_holm", title: "p after Holm", number: true, cell: (row) => fixed(row.p_both_holm, 3) },
    { name: "cells", number: true },
  ], rows));
}

/** @param {any[]} nulls */
function chance(nulls) {
  if (!nulls.some((row) => known(row.null_mean))) return null;
  return details("Base and RL paired at random", h("p.note", null, "The error of each row when Base and RL models that do not belong together are paired. A small p says that the right pairing matters."), table([
    { name: "label", title: "row" },
    { name: "error", title: "right pairs", number: true, cell: (row) => fixed(row.error, 2) },
    { name: "null_mean", title: "random pairs, mean", number: true, cell: (row) => fixed(row.null_mean, 2) },
    { name: "null_lowest", title: "random pairs, lowest", number: true, cell: (row) => fixed(row.null_lowest, 2) },
    { name: "p", number: true, cell: (row) => fixed(row.p, 3) }, { name: "models", number: true },
  ], nulls));
}

/** @param {import("../study.js").Study} study @param {import("../main.js").View} view @param {any[]} errors @param {any[]} identified */
function cellPart(study, view, errors, identified) {
  const cells = [...new Map([...identified, ...errors].map((row) => [`${row.model}~${row.benchmark}`, row])).entries()];
  if (!cells.length) return null;
  const asked = view.query.cell ?? "";
  const [key, first] = cells.find(([name]) => name === asked) ?? cells[0];
  const { model, benchmark } = first;
  const exponents = valueOf(errors, "exponents", view.query.exponents);
  const rows = errors.filter((row) => row.model === model && row.benchmark === benchmark && row.exponents === exponents && row.mu === "cohort" && row.pool === "ar");
  const set = pick(identified, { model, benchmark })[0];
  const title = (/** @type {any} */ row) => `${study.pairTitle(row.model)} on ${study.benchmark(row.benchmark).title}`;
  const own = study.cell(model, benchmark);
  return h("section", null,
    h("h2", null, "One cell"),
    h("div.controls", null, choice("Pair and benchmark", cells.map(([name, row]) => [name, title(row)]), key, (next) => view.set({ cell: next })), own && h("a", { href: link(["c", model, benchmark]) }, "Its landscape")),
    set && identifiedPart(set, rows),
    rows.length > 0 && details("Every row in this cell", table([
      { name: "label", title: "row" },
      { name: "error", title: `error [${study.coverage}]`, number: true, cell: (row) => (known(row.error) ? `${fixed(row.error, 2)} [${fixed(row.lo, 2)}, ${fixed(row.hi, 2)}]` : "–") },
      { name: "corrected", title: "corrected", number: true, cell: (row) => (known(row.corrected) ? `${fixed(row.corrected, 2)} [${fixed(row.lo_corrected, 2)}, ${fixed(row.hi_corrected, 2)}]` : "–") },
      { name: "alpha", title: "α", number: true, cell: (row) => fixed(row.alpha, 2) }, { name: "beta", title: "β", number: true, cell: (row) => fixed(row.beta, 2) },
      { name: "policy", title: "Base's policy", cell: (row) => (row.policy ? study.policyTitle(row.policy) : "–") }, { name: "path", title: "Base's samples by budget" },
      { name: "reason", title: "why it is not defined", cell: (row) => (row.reason ?? "").replaceAll("_", " ") },
    ], rows, { limit: 60 })));
}

/** What fits as well as the best law. @param {any} set @param {any[]} rows */
function identifiedPart(set, rows) {
  if (set.reason || !known(set.alpha)) return h("p.note", null, `No law was fitted to this cell${set.reason ? `: ${set.reason.replaceAll("_", " ")}` : ""}.`);
  const others = rows.filter((row) => known(row.alpha) && known(row.beta));
  const words = `The best law of this cell is N = ${fixed(set.alpha, 2)}·b^${fixed(set.beta, 2)} under ${set.policy}, with an error of ${fixed(set.error, 2)} percentage points. Within one standard error (${fixed(set.se, 2)}) lie ${plural(set.triples, "law")} of ${set.of}: α from ${fixed(set.alpha_min, 2)} to ${fixed(set.alpha_max, 2)}, β from ${fixed(set.beta_min, 2)} to ${fixed(set.beta_max, 2)}. The data do not tell them apart.`;
  return [
    h("p", null, words),
    responsive((width) => plotted({
      width: Math.min(width, 640), height: 300, marginLeft: 50, marginBottom: 38, style: { background: "none", fontSize: "12px" },
      x: { type: "log", base: 2, label: "scale α", tickFormat: (/** @type {number} */ x) => fixed(x, x < 10 ? 1 : 0), insetLeft: 20, insetRight: 20 }, y: { label: "exponent β", grid: true, inset: 14 },
      marks: [
        Plot.rect([set], { x1: "alpha_min", x2: "alpha_max", y1: "beta_min", y2: "beta_max", fill: "var(--base)", fillOpacity: 0.2, stroke: "var(--base)" }),
        Plot.dot(others, { x: "alpha", y: "beta", r: 4, stroke: "currentColor", title: (/** @type {any} */ row) => `${row.label}: α ${fixed(row.alpha, 2)}, β ${fixed(row.beta, 2)}` }),
        Plot.dot([set], { x: "alpha", y: "beta", r: 6, fill: "var(--base)", symbol: "diamond" }),
      ],
    }), { role: "img", "aria-label": words }),
    h("ul.legend", null, h("li", null, sample("var(--base)", "band"), "laws that fit as well lie in this box"), h("li", null, "◆ the best law"), h("li", null, "○ the laws of the rows below")),
  ];
}
