/** First page: each pair on each benchmark, whether it means anything, who leads, and where to read on. */

import { Plot, budgetAxis, plotted, responsive, shareAxis } from "../chart.js";
import { h, refill } from "../dom.js";
import { interval, known, percent, plural, points } from "../format.js";
import { link } from "../route.js";
import { groups, pick } from "../study.js";
import { choice } from "../widgets.js";
import { absent, oneSided, sideLegend } from "../parts.js";

const HEALTH = /** @type {Record<string, string>} */ ({ ok: "sound", warn: "look closer", bad: "not interpretable" });

/**
 * @param {import("../study.js").Study} study
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function overview(study, view) {
  const { index } = study;
  const chosen = view.query.pair;
  const byPair = groups(study.cells.filter((cell) => !chosen || cell.pair === chosen), (cell) => cell.pair);
  const bad = study.cells.filter((cell) => cell.health?.state === "bad").length;
  return {
    title: index.pairs.length > 3 ? `Base and RL: ${index.pairs.length} pairs of models` : index.title ? `Base and RL: ${index.title}` : "Base and RL",
    body: [
      h("p", null, "How much of what reinforcement learning gave a model was already in its Base model, for whoever samples it enough, or searches it well? Each box below is one pair of models on one benchmark: ",
        h("b.base", null, "Base"), " and ", h("b.rl", null, "RL"), ` under RL's default policy (${study.policyTitle(index.default_policy)}), by samples per question.`),
      sideLegend(`The share of questions that at least one of so many samples solves, mean over all subsets of the samples; the band is RL's ${study.coverage} interval over questions.`),
      index.pairs.length > 1 && h("div.controls", null, choice("Pair", [["", "all pairs"], ...index.pairs.map((/** @type {any} */ pair) => /** @type {[string, string]} */ ([pair.name, pair.title]))], chosen ?? "", (pair) => view.set({ pair }))),
      bad > 0 && h("p.bad", null, `${plural(bad, "box", "boxes")} below cannot be interpreted: look at the reason there before any number.`),
      ...[...byPair].map(([pair, cells]) => h(
        "section", null, h("h2", null, study.pairTitle(pair)),
        h("div.cards", null, cells.map((/** @type {any} */ cell) => card(study, cell))),
      )),
    ],
  };
}

/** @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell */
function card(study, cell) {
  const benchmark = study.benchmark(cell.benchmark);
  const state = cell.health?.state ?? "ok";
  const at = ["c", cell.pair, cell.benchmark];
  const title = h("h3", null, h("a", { href: link(at) }, benchmark.title));
  if (!cell.base.policies.length || !cell.rl.policies.length) return h("article.card", null, title, h("p.note", null, "There is nothing to compare yet: the samples of one model, or of both, were not counted."));
  return h(
    "article.card", null,
    title,
    h("p", null, h(`span.badge.${state}`, null, HEALTH[state] ?? state), " ", h("span.note", null, `${plural(benchmark.questions, "question")}${origin(cell)}`)),
    state !== "ok" && h("ul", { class: state }, cell.health.sentences.map((line) => h("li", null, line))),
    lazily(() => curves(study, cell)),
    facts(cell),
    h("ul", null, cell.sentences.map((line) => h("li", null, line))),
    h("div.links", null,
      h("a", { href: link(at) }, "Landscape: all policies"),
      h("a", { href: link([...at, "recovery"]) }, "Where Base matches RL"),
      oneSided(study, cell)),
  );
}

/** @param {import("../study.js").Cell} cell */
function origin(cell) {
  const sources = [...new Set([cell.base.source, cell.rl.source])].filter((source) => source && source !== "sampled");
  return sources.length ? `, from ${sources.join(" and ")} samples` : "";
}

/** The index states these in percentage points. @param {import("../study.js").Cell} cell */
function facts(cell) {
  const line = cell.headline ?? {};
  const share = (/** @type {string} */ name) => (known(line[name]) ? line[name] / 100 : null);
  const gap = (/** @type {string} */ name, /** @type {string} */ words) =>
    known(line[name]) && [h("dt", null, words), h("dd", null, `${points(share(name))} ${interval(share(`${name}_lo`), share(`${name}_hi`))}`)];
  return h(
    "dl.facts", null,
    gap("rl_minus_base_first", `RL − Base, ${plural(line.first, "sample")}`),
    gap("rl_minus_base_last", `RL − Base, ${plural(line.last, "sample")}`),
    gap("rl_minus_best", `RL − best of Base under ${line.policies} ${line.policies === 1 ? "policy" : "policies"}, largest`),
    Object.entries(line.greedy ?? {}).map(([side, solved]) => [h("dt", null, `One greedy answer of ${side}`), h("dd", null, String(solved))]),
    known(line.inside) && [h("dt", null, "RL inside what Base's policies reach, by the estimates"), h("dd", null, line.of ? `at ${line.inside} of ${line.of} budgets` : "neither model solves any")],
  );
}

/** @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell */
async function curves(study, cell) {
  const policy = study.index.default_policy;
  const [same, support] = await Promise.all([study.frame(cell.files.same_policy), study.frame(cell.files.support)]);
  const rows = pick(same, { metric: "P", estimator: "unbiased", policy }).sort((a, b) => a.budget - b.budget);
  const bands = pick(support, { metric: "P", estimator: "unbiased" });
  if (!rows.length) return same.length ? h("p.note", null, "The two models have no common samples under RL's default policy.") : absent(study, "The curves of this box");
  const budgets = rows.map((row) => row.budget);
  const band = bands.filter((row) => budgets.includes(row.budget));
  const marks = rows.flatMap((row) => {
    const { rl_lo: lo, rl_hi: hi } = band.find((each) => each.budget === row.budget) ?? {};
    return [
      { side: "Base", n: row.budget, value: row.base, shown: percent(row.base) },
      { side: "RL", n: row.budget, value: row.rl, shown: `${percent(row.rl)} ${interval(lo, hi)}` },
    ];
  });
  const words = `pass@k at ${rows.map((row) => `${row.budget} samples: Base ${percent(row.base)}, RL ${percent(row.rl)}`).join("; ")}`;
  return responsive((width) => plotted({
    width, height: 156, marginLeft: 44, marginBottom: 38, style: { background: "none", fontSize: "12px" }, ariaLabel: words,
    x: budgetAxis(budgets, "samples per question"), y: shareAxis([...marks.map((mark) => mark.value), ...band.map((row) => row.rl_hi)], "solved"),
    marks: [
      Plot.areaY(band, { x: "budget", y1: "rl_lo", y2: "rl_hi", fill: "var(--rl)", fillOpacity: 0.13 }),
      Plot.lineY(marks, { x: "n", y: "value", z: "side", stroke: (/** @type {any} */ mark) => (mark.side === "RL" ? "var(--rl)" : "var(--base)"), strokeWidth: 2 }),
      Plot.dot(marks, {
        x: "n", y: "value", r: 3.2, fill: (/** @type {any} */ mark) => (mark.side === "RL" ? "var(--rl)" : "var(--base)"),
        symbol: (/** @type {any} */ mark) => (mark.side === "RL" ? "circle" : "square"), title: (/** @type {any} */ mark) => `${mark.side}, ${plural(mark.n, "sample")}: ${mark.shown}`,
      }),
    ],
    color: { type: "identity" }, symbol: { type: "identity" },
  }), { role: "img", "aria-label": words });
}

/** A part that is made when it comes into sight: a study may have hundreds. @param {() => Promise<Node>} make */
function lazily(make) {
  const box = h("div", { style: "min-height: 156px" });
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    make().then((node) => refill(box, node)).catch((error) => refill(box, h("p.note", null, `The curves could not be read: ${error.message}`)));
  }, { rootMargin: "300px" });
  observer.observe(box);
  return box;
}

