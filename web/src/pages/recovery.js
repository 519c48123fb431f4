/** Where Base matches RL: the near-match set at any tolerance, the paths through it, and what chance alone would give. */

import { Plot, budgetAxis, chart, shareAxis } from "../chart.js";
import { h, refill } from "../dom.js";
import { fixed, interval, known, percent, plural, points as pp, signed } from "../format.js";
import { dark, seen, symbol } from "../look.js";
import { absent, cellCrumbs, health, metricChoice, sample } from "../parts.js";
import { labels, nearMatches } from "../near.js";
import { pick } from "../study.js";
import { choice, table } from "../widgets.js";

/** Largest tolerance of the slider, in percentage points. */
const WIDEST = 15;

/**
 * @param {import("../study.js").Study} study
 * @param {import("../study.js").Cell} cell
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function recovery(study, cell, view) {
  const [base, rl, paths, near, geometry, nulls] = await Promise.all([
    study.frame(cell.base.files.points), study.frame(cell.rl.files.points), study.frame(cell.files.path), study.frame(cell.files.near_match),
    study.frame(cell.files.geometry, ["model", "policy", "budget"]), study.frame(study.index.studies?.boptr?.nulls).catch(() => []),
  ]);
  const metrics = [...new Set(paths.map((row) => row.metric))];
  const metric = metrics.includes(view.query.m) ? view.query.m : metrics[0] ?? "P";
  const targets = pick(rl, { metric, estimator: "first_k", policy: study.index.default_policy }).sort((a, b) => a.budget - b.budget);
  if (!targets.length || !metrics.length) {
    const words = rl.length && base.length ? h("p", null, "RL has no samples under its default policy here, so there is no curve to recover.") : absent(study, "The operating points of this box");
    return { title: "Where Base matches RL", crumbs: cellCrumbs(study, cell), body: [words, pathTable(study, pick(paths, { metric, kind: "closest" }), "closest")] };
  }
  const compared = comparable(study, geometry);
  const candidates = pick(base, { metric, estimator: "first_k" }).filter((row) => known(row.value) && compared(row));
  const configured = 100 * (study.index.tolerance ?? 0.03);
  const chosen = targets.find((row) => String(row.budget) === view.query.b) ?? targets[targets.length - 1];
  const kind = view.query.path === "monotone" ? "monotone" : "closest";
  let tolerance = tolerated(view.query.e, configured);
  const out = h("div");
  const words = h("output", { for: "tolerance" });
  const draw = () => {
    const matches = nearMatches(candidates, chosen, tolerance / 100);
    refill(words, ` ± ${fixed(tolerance)} percentage points${tolerance === configured ? " (as configured)" : ""}`);
    refill(out, set(study, { candidates, targets, chosen, matches, tolerance, metric, path: pick(paths, { metric, kind }), kind }));
  };
  draw();
  const slider = h("input", {
    type: "range", id: "tolerance", min: 0, max: WIDEST, step: 0.1, value: tolerance, "data-key": "tolerance",
    input: (/** @type {any} */ event) => {
      tolerance = Number(event.target.value);
      view.note({ e: tolerance === configured ? "" : tolerance });
      draw();
    },
  });
  return {
    title: "Where Base matches RL",
    crumbs: cellCrumbs(study, cell),
    body: [
      health(cell) || null,
      h("p", null, `For each budget of RL's default policy: which policies and budgets of Base do as well, within a tolerance that you choose? The first samples in the order drawn count here, as in the paper. With many policies some point of Base matches by chance. A match says that Base can do as well, not that RL does what that policy does.`),
      h("div.controls", null,
        metricChoice(study, metric, metrics, (m) => view.set({ m })),
        choice("RL's samples per question", targets.map((row) => [String(row.budget), String(row.budget)]), String(chosen.budget), (b) => view.set({ b })),
        choice("Path", [["closest", "closest at each budget"], ["monotone", "budgets that never fall, few changes"]], kind, (path) => view.set({ path })),
        h("label.choice", null, h("span", null, "Tolerance", words), slider)),
      out,
      pathTable(study, pick(paths, { metric, kind }), kind),
      chance(nulls),
      near.length === 0 && h("p.note", null, `At the configured tolerance of ${fixed(configured)} points no point of Base matches.`),
    ],
  };
}

/**
 * Whether the recovery analysis looks at a point of Base: not at references such as greedy, and at the study's budgets alone.
 * @param {import("../study.js").Study} study @param {any[]} geometry
 * @returns {(row: any) => boolean}
 */
function comparable(study, geometry) {
  const { references, budgets } = study.index;
  if (references) return (row) => !references.includes(row.policy) && budgets.includes(row.budget);
  const points = new Set(pick(geometry, { model: "base" }).map((row) => `${row.policy} ${row.budget}`));
  return (row) => !points.size || points.has(`${row.policy} ${row.budget}`);
}

/** @param {string | undefined} text @param {number} configured */
function tolerated(text, configured) {
  const value = Number(text);
  return text !== undefined && text !== "" && Number.isFinite(value) ? Math.max(0, Math.min(WIDEST, value)) : configured;
}

/** @param {import("../study.js").Study} study @param {any} options */
function set(study, { candidates, targets, chosen, matches, tolerance, metric, path, kind }) {
  const near = new Set(matches.map((/** @type {any} */ row) => `${row.policy} ${row.budget}`));
  const marks = candidates.map((/** @type {any} */ row) => {
    const policy = study.policies.get(row.policy);
    return { series: row.policy, x: row.budget, y: row.value, row, near: near.has(`${row.policy} ${row.budget}`), colour: policy?.colour ?? "#666666", marker: policy?.marker };
  });
  const steps = path.map((/** @type {any} */ row) => ({ x: row.budget, y: row.value, target: row.target_budget }));
  const colour = (/** @type {any} */ mark) => seen(mark.colour);
  const values = [...candidates.map((/** @type {any} */ row) => row.value), chosen.value + tolerance / 100];
  const counts = targets.map((/** @type {any} */ target) => ({ budget: target.budget, count: nearMatches(candidates, target, tolerance / 100).length }));
  return [
    h("ul.legend", null,
      h("li", null, sample("var(--rl)", "band"), `RL with ${plural(chosen.budget, "sample")}: ${percent(chosen.value)} ${interval(chosen.lo, chosen.hi)}, and the tolerance around it`),
      h("li", null, sample("currentColor", "none"), `${kind === "closest" ? "the closest path" : "the path whose budgets never fall"}, a point for each budget of RL`),
      h("li", null, "full marks match; empty ones do not")),
    h("div.columns.even", null,
      chart({
        label: `Points of Base by budget, and those within ${fixed(tolerance)} points of RL`, marks,
        readout: (/** @type {any} */ mark) => [
          h("b.base", null, `Base, ${study.policyTitle(mark.row.policy)}, ${plural(mark.row.budget, "sample")}: `),
          h("b", null, `${study.metricTitle(metric)} ${percent(mark.row.value)} ${interval(mark.row.lo, mark.row.hi)}`),
          `; RL − Base ${pp(chosen.value - mark.row.value)}: ${mark.near ? "a match" : "no match"}.`],
        plot: (width) => ({
          width, height: Math.max(260, Math.min(420, width * 0.6)), marginLeft: 52, marginBottom: 38,
          x: { ...budgetAxis(candidates.map((/** @type {any} */ row) => row.budget), "Base's samples per question"), insetLeft: 10, insetRight: 10 },
          y: shareAxis(values, "questions", true),
          color: { type: "identity" }, symbol: { type: "identity" },
          marks: [
            Plot.rectY([chosen], { y1: Math.max(0, chosen.value - tolerance / 100), y2: Math.min(1, chosen.value + tolerance / 100), fill: "var(--rl)", fillOpacity: 0.15 }),
            Plot.ruleY([chosen.value], { stroke: "var(--rl)", strokeWidth: 2 }),
            Plot.line(steps, { x: "x", y: "y", stroke: "currentColor", strokeWidth: 1.5 }),
            Plot.dot(marks.filter((/** @type {any} */ mark) => !mark.near), { x: "x", y: "y", r: 3, symbol: (/** @type {any} */ mark) => symbol(mark.marker), stroke: colour, strokeOpacity: 0.7 }),
            Plot.dot(marks.filter((/** @type {any} */ mark) => mark.near), { x: "x", y: "y", r: 4, symbol: (/** @type {any} */ mark) => symbol(mark.marker), fill: colour, stroke: dark() ? "#fff" : "#000", strokeWidth: 0.8 }),
            Plot.text(labels(steps, 0.08 * (Math.max(...values) - Math.min(...values))), { x: "x", y: "y", text: "text", dy: -11, fontWeight: "bold", fill: "currentColor", stroke: dark() ? "#14171a" : "#fff", strokeWidth: 3 }),
          ],
        }),
      }),
      h("section", null,
        h("p", { role: "status" }, h("b", null, `${plural(matches.length, "point")} of Base`), ` within ${fixed(tolerance)} points of RL with ${plural(chosen.budget, "sample")}, of ${candidates.length}. By RL's budget: ${counts.map((/** @type {any} */ each) => `${each.budget}: ${each.count}`).join(", ")}.`),
        matches.length > 0 && table([
          { name: "policy", cell: (row) => study.policyTitle(row.policy) },
          { name: "budget", title: "samples", number: true },
          { name: "value", title: study.metricTitle(metric), number: true, cell: (row) => `${percent(row.value)} ${interval(row.lo, row.hi)}` },
          { name: "rl_minus_base", title: "RL − Base (pp)", number: true, cell: (row) => signed(100 * row.rl_minus_base, 2) },
        ], matches, { caption: "Nearest first", limit: 12 }))),
  ];
}

/** @param {import("../study.js").Study} study @param {any[]} path @param {string} kind */
function pathTable(study, path, kind) {
  return h("section", null,
    h("h2", null, "The path"),
    h("p.note", null, kind === "closest" ? "At each budget of RL the point of Base with the smallest difference, within the tolerance or not." : "One path for all budgets: Base's budgets never fall, and changes of policy cost a little."),
    table([
      { name: "target_budget", title: "RL's samples", number: true },
      { name: "target", title: "RL", number: true, cell: (row) => percent(row.target) },
      { name: "policy", title: "Base's policy", cell: (row) => study.policyTitle(row.policy) },
      { name: "budget", title: "Base's samples", number: true },
      { name: "value", title: "Base", number: true, cell: (row) => percent(row.value) },
      { name: "rl_minus_base", title: "RL − Base (pp)", number: true, cell: (row) => signed(100 * row.rl_minus_base, 2) },
    ], path));
}

/** Rows of the rule with Base and RL models that do not belong together. @param {any[]} nulls */
function chance(nulls) {
  const rows = nulls.filter((row) => known(row.null_mean));
  return h("section", null,
    h("h2", null, "What chance would give"),
    rows.length ? [
      h("p.note", null, "Mean errors of the rule's rows over all cells, for the right pairs and for Base and RL models paired at random. Where random pairs do as well, following RL's curve says little about the pair."),
      table([
        { name: "label", title: "row" },
        { name: "error", title: "right pairs (pp)", number: true, cell: (row) => fixed(row.error, 2) },
        { name: "null_mean", title: "random pairs, mean", number: true, cell: (row) => fixed(row.null_mean, 2) },
        { name: "null_lowest", title: "random pairs, lowest", number: true, cell: (row) => fixed(row.null_lowest, 2) },
        { name: "p", number: true, cell: (row) => fixed(row.p, 3) },
      ], rows, { limit: 12 }),
    ] : h("p.note", null, "The study has no pairs to exchange: this takes the RL models of other pairs."));
}
