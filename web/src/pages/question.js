/** One question: what Base and RL answered, side by side, and why each answer counts or not. */

import { h, refill, visible } from "../dom.js";
import { count, fixed, known, percent, plural } from "../format.js";
import { formulas } from "../formulas.js";
import { absent, cellCrumbs } from "../parts.js";
import { sent } from "../prompt.js";
import { SORTS, byPolicy, idOf, position, ranked, solving, under } from "../ranking.js";
import { link } from "../route.js";
import { samples, written } from "../samples.js";
import { bounds, differences, ground, meaning, reading, scored } from "../scored.js";
import { choice } from "../widgets.js";

/** Characters and tokens of a text that are shown at first. */
const LONG = 20_000;
const TOKENS = 1500;

const HOW = /** @type {Record<string, string>} */ ({
  boxed: "read from its last box", kept: "read from a box that a later, open box repeats", fallback: "read from its last words, without a box or behind it",
  number: "its last number, as it has no box", whole: "the whole text", withdrawn: "taken back by a later, open box", none: "no answer found",
});

/** @typedef {import("../samples.js").Sample} Sample */

/**
 * @param {import("../study.js").Study} study
 * @param {import("../study.js").Cell} cell
 * @param {string} id
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function question(study, cell, id, view) {
  const { query } = view;
  const [questions, list, chances] = await Promise.all([study.questions(cell.benchmark), ranked(study, cell, query.sort, query.under), bounds(study, cell)]);
  const at = position(questions, id);
  const place = list.findIndex((each) => each.question === at);
  if (!list.length) return { title: `Question ${visible(id)}`, crumbs: cellCrumbs(study, cell), body: [absent(study, "The counts of answers of this box")] };
  if (at === null || place < 0) return { title: `No question ${visible(id)}`, crumbs: cellCrumbs(study, cell), body: [h("p", null, "The benchmark has no such question.")] };
  const row = questions.get(at);
  const benchmark = study.benchmark(cell.benchmark);
  const own = (/** @type {number} */ step) => {
    const next = list[place + step];
    return next && link(["c", cell.pair, cell.benchmark, "q", idOf(questions, next.question)], { sort: query.sort, under: query.under, base: query.base, rl: query.rl, f: query.f, t: query.t, p: query.p });
  };
  const sides = await Promise.all(/** @type {const} */ (["base", "rl"]).map((name) => sideOf(study, cell, name, at, query)));
  const column = query.col === "rl" || (query.col !== "base" && list[place].who === "rl") ? "rl" : "base";
  const active = sides[column === "rl" ? 1 : 0];
  const step = (/** @type {number} */ by) => {
    const now = active.list.findIndex((each) => each.sample === active.chosen?.sample);
    const next = active.list[now + by];
    if (next) view.set({ [active.key]: next.sample });
  };
  const go = (/** @type {string | undefined | null} */ address) => { if (address) location.hash = address; };
  const standing = list[place];
  const chance = standing.who === "rl" && chances.get(at);
  const compares = sides.some((side) => side.scored);
  const differ = compares && query.t === "2";
  const colour = (/** @type {boolean} */ isDifference) => view.set({ t: query.t && differ === isDifference ? "" : isDifference ? 2 : 1 });
  return {
    title: `Question ${visible(idOf(questions, at))}`,
    crumbs: [...cellCrumbs(study, cell), ["Questions", link(["c", cell.pair, cell.benchmark, "q"], { sort: query.sort, p: query.under })]],
    keys: {
      j: () => go(own(1)), k: () => go(own(-1)), l: () => step(1), h: () => step(-1), b: () => view.set({ col: "base" }), r: () => view.set({ col: "rl" }),
      f: () => view.set({ f: query.f ? "" : 1 }), t: () => colour(false),
      d: () => { if (compares) colour(true); },
      p: () => view.set({ p: query.p ? "" : 1 }),
    },
    help: [["j  k", "next and previous question of the list"], ["b  r", "the column of Base, the column of RL"], ["h  l", "previous and next sample in that column"], ["f", "formulas or plain text"], ["t", "tokens by probability"], ...(compares ? /** @type {[string, string][]} */ ([["d", "tokens by the difference of the sides"]]) : []), ["p", "the prompt as it was sent"]],
    body: [
      h("p", null, h("b", null, solving(standing.who, [standing])), `: right are ${ratio(standing.solved.base)} of Base and ${ratio(standing.solved.rl)} of RL, ${under(study, cell, query.under)}.`, chance && [" ", h("b", null, chance), "."]),
      chance && meaning(study),
      h("div.controls", null,
        own(-1) && h("a", { href: own(-1), rel: "prev", "data-key": "previous" }, "← Previous question"),
        h("span.note", null, `${place + 1} of ${list.length}, in this order: ${SORTS.find(([name]) => name === (query.sort || "rl-only"))?.[1] ?? ""}`),
        own(1) && h("a", { href: own(1), rel: "next", "data-key": "next" }, "Next question →")),
      asked(row, benchmark, Boolean(query.f)),
      !benchmark.withheld && sent(study, cell, at, view),
      h("div.controls", null,
        h("button", { type: "button", "data-key": "formulas", click: () => view.set({ f: query.f ? "" : 1 }) }, query.f ? "Formulas set: show plain text" : "Set formulas"),
        h("button", { type: "button", "data-key": "tokens", click: () => colour(false) }, query.t && !differ ? "Tokens coloured: show plain text" : "Colour tokens by probability"),
        compares && h("button", { type: "button", "data-key": "differences", click: () => colour(true) }, differ ? "Differences coloured: show plain text" : "Colour tokens by how the other side differs"),
        query.t && (differ ? differences() : scale())),
      h("div.tabs", { role: "tablist", "aria-label": "Model" }, sides.map((side) => h("button", {
        type: "button", role: "tab", "aria-selected": String(side.name === column), "data-key": `tab ${side.name}`, click: () => view.set({ col: side.name }),
      }, `${side.title} (${side.rightOf})`))),
      h("div.sides", null, await Promise.all(sides.map((side) => shown(study, cell, side, view, side.name === column, benchmark, at, differ)))),
    ],
  };
}

/** @param {{correct: number, samples: number}} solved */
function ratio(solved) {
  return `${count(solved.correct)} of ${plural(solved.samples, "sample")}`;
}

/** @param {any} row @param {any} benchmark @param {boolean} set */
function asked(row, benchmark, set) {
  if (!row || (row.text === null && row.gold === null)) {
    return h("p.note", null, benchmark.withheld ? `The question and its answer are not shown: ${benchmark.withheld}` : "The text of this question is not in this study.");
  }
  return h("section", null,
    h("h2", null, "Question"),
    h(`div.text${set ? ".formulas" : ""}`, { tabindex: 0, role: "region", "aria-label": "Text of the question", dir: "auto" }, set ? formulas(row.text ?? "") : clipped(row.text ?? "")),
    row.gold !== null && row.gold !== undefined && h("p", null, "Gold answer: ", h("b", null, visible(row.gold))));
}

/**
 * What stands in one column.
 * @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell @param {"base" | "rl"} name @param {number} at @param {Record<string, string>} query
 */
async function sideOf(study, cell, name, at, query) {
  const side = cell[name];
  const policies = await byPolicy(study, side, at);
  const right = (/** @type {string} */ policy) => policies.get(policy)?.correct ?? 0;
  const usual = policies.has(study.index.default_policy) ? study.index.default_policy : side.policies[0];
  const best = [...policies.keys()].reduce((a, b) => (right(b) > right(a) ? b : a), usual);
  const asks = query[name];
  const policy = asks && policies.has(asks) ? asks : right(usual) > 0 || right(best) === 0 ? usual : best;
  const list = policy ? await samples(study, cell, name, policy, at, Boolean(query.t || cell.files.scored)) : [];
  const key = name === "base" ? "bs" : "rs";
  const wanted = query[key] ?? query.s;
  const chosen = list.find((each) => String(each.sample) === wanted) ?? list.find((each) => each.correct) ?? list[0];
  const row = policies.get(policy);
  return { name, key, side, policies, policy, list, chosen, row, scored: await scored(study, cell, name, at, chosen), title: name === "rl" ? "RL" : "Base", rightOf: row ? `${row.correct} of ${row.samples} right` : "no samples" };
}

/**
 * @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell @param {Awaited<ReturnType<typeof sideOf>>} side
 * @param {import("../main.js").View} view @param {boolean} active @param {any} benchmark @param {number} at @param {boolean} differ
 */
async function shown(study, cell, side, view, active, benchmark, at, differ) {
  const { name, policies, policy, list, chosen, row } = side;
  const options = /** @type {[string, string][]} */ ([...policies].map(([each, tally]) => [each, `${study.policyTitle(each)}: ${tally ? `${tally.correct} of ${tally.samples} right` : "no samples"}`]));
  const traces = side.side.traces?.[policy];
  const grouped = h("div");
  const answer = h("span");
  const draw = (/** @type {any[]} */ said, /** @type {string} */ unread) => {
    refill(grouped, row && answers(row, said, unread));
    refill(answer, chosen && answered(chosen, unread));
  };
  draw([], side.side.files.answers ? "being read …" : "not kept");
  written(study, side.side, policy, at).then((said) => {
    for (const each of list) each.answer ??= said.find((one) => one.class === each.class)?.text ?? null;
    draw(said, "not kept");
  });
  return h(
    `section.side.is${name}`, { "data-hidden": !active, "aria-label": `${side.title}'s samples` },
    h("h2", { class: name }, named(side.title, study.checkpointTitle(side.side.checkpoint))),
    choice(`${side.title}'s policy`, options, policy, (value) => view.set({ [name]: value, [side.key]: "" })),
    row && h("p", null, h("b", null, `${row.correct} of ${plural(row.samples, "sample")} right`), `; ${row.answered} with an answer. ${vote(sizes(row.classes))}`),
    grouped,
    traces && h("p", null, h("a", { href: link(["s", side.side.checkpoint, cell.benchmark, policy, view.path[4], 0]) }, "See the search that drew these")),
    list.length ? [
      list.length < (row?.samples ?? 0) && h("p.note", null, `This page holds ${list.length} of the ${row.samples} samples; searchlens view shows all of them.`),
      h("nav.chips", { "aria-label": `${side.title}'s samples` }, list.map((each) => h("a", {
        href: view.href({ [side.key]: each.sample, col: name }), class: each.correct ? "right" : "wrong", "data-key": `sample ${name} ${each.sample}`,
        "aria-current": each === chosen ? "true" : null, "aria-label": `Sample ${each.sample}, ${each.correct ? "right" : each.unknown ? "verdict unknown" : "not right"}`,
      }, `${each.correct ? "✓" : each.unknown ? "?" : "✗"} ${each.sample}`))),
      chosen && await one(study, side, chosen, view, answer, differ),
    ] : h("p.note", null, nothing(study, side, benchmark)),
  );
}

/** @param {string} role @param {string} checkpoint */
function named(role, checkpoint) {
  return checkpoint === role || checkpoint.startsWith(`${role} `) ? checkpoint : `${role}: ${checkpoint}`;
}

/** @param {import("../study.js").Study} study @param {any} side @param {any} benchmark */
function nothing(study, side, benchmark) {
  if (side.side.without_texts) return side.side.without_texts;
  if (benchmark.withheld) return `Texts are not shown: ${benchmark.withheld}.`;
  if (!study.ranges) return "The texts of this question are not in this page, which holds an excerpt. searchlens view shows all of them.";
  return "No samples of this policy were found for this question.";
}

/** Classes of equal answers, the largest first, from `9+ 4 1x3`. @param {string | null | undefined} classes @returns {{count: number, correct: boolean}[]} */
function sizes(classes) {
  return (classes ?? "").split(" ").flatMap((part) => {
    const match = /^(\d+)(\+?)(?:x(\d+))?$/.exec(part);
    return match ? Array.from({ length: Math.min(1000, Number(match[3] ?? 1)) }, () => ({ count: Number(match[1]), correct: match[2] === "+" })) : [];
  });
}

/** @param {ReturnType<typeof sizes>} classes */
function vote(classes) {
  if (!classes.length) return "";
  const [first] = classes;
  const alike = classes.filter((each) => each.count === first.count).length > 1;
  return `${plural(classes.length, "different answer")}; the vote ${alike ? `is tied at ${plural(first.count, "sample")}` : `goes to the answer of ${plural(first.count, "sample")}, which is ${first.correct ? "right" : "not right"}`}.`;
}

/**
 * Equal answers of all samples together, the most frequent first.
 * @param {any} row of the frame classes @param {any[]} said answers as written, if they are known of all samples
 * @param {string} unread words for answers that are not known
 */
function answers(row, said, unread) {
  const whole = said.reduce((sum, each) => sum + each.count, 0) === row.answered;
  const none = { count: row.samples - row.answered, correct: false, text: "no answer" };
  const classes = [...(whole ? said : sizes(row.classes)), none].filter((each) => each.count > 0).sort((a, b) => b.count - a.count);
  return [h("p.note", null, `Answers of all ${plural(row.samples, "sample")}, equal ones together:`), h("ol.answers", { "aria-label": "Answers, equal ones together" }, classes.slice(0, 30).map((each) => {
    const text = each.text ?? `(answer ${unread})`;
    return h("li", { class: each.correct ? "good" : "" },
      h("span", { "aria-label": each.correct ? "right" : "not right" }, each.correct ? "✓" : "✗"),
      h("span", null, each === none ? h("i", null, text) : visible(text.length > 300 ? `${text.slice(0, 300)}…` : text)),
      h("span.number", null, plural(each.count, "sample")),
      h("span.bar", { style: `width: ${(100 * each.count) / classes[0].count}%`, "aria-hidden": "true" }));
  }), classes.length > 30 && h("li", null, "", `and ${classes.length - 30} more`))];
}

/** The answer as it was extracted. @param {Sample} sample @param {string} unread words for one that is not known */
function answered(sample, unread) {
  return sample.answer !== null ? h("b", null, visible(sample.answer.slice(0, 2000))) : h("i", null, sample.class < 0 ? "none" : unread);
}

/** @param {import("../study.js").Study} study @param {any} shown @param {Sample} sample @param {import("../main.js").View} view @param {Node} answer @param {boolean} differ */
async function one(study, shown, sample, view, answer, differ) {
  const side = shown.side;
  const searched = study.policies.get(shown.policy)?.search;
  const facts = /** @type {[string, any][]} */ ([
    ["Verdict", h("span", { class: sample.correct ? "good" : "bad" }, why(sample))],
    ["Answer", answer],
    ["How it was read", HOW[sample.extraction ?? ""] ?? sample.extraction ?? "not known"],
    ["Length", known(sample.length) ? plural(sample.length, "token") : "not known"],
    ["End", { stop: "ended by itself", length: "cut off at the token limit", failed: "its search failed" }[sample.finish ?? ""] ?? "not known"],
    ["Score", known(sample.score) ? `${fixed(sample.score, 3)}${searched ? ", by the search's evaluator" : ", mean natural log-probability of its tokens"}` : "not known"],
  ]);
  if (sample.recorded) facts.push(["Recorded verdict", visible(sample.recorded)]);
  return h("div", null,
    h("h3", null, `Sample ${sample.sample}`),
    h("dl.facts", null, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    differ && !shown.scored && h("p.note", null, "The tokens of this sample were not scored under both sides."),
    (differ ? shown.scored : view.query.t) && sample.tokens && sample.logp ? await tokens(study, side, sample, differ ? shown.scored : null) : text(sample, Boolean(view.query.f)));
}

/** @param {Sample} sample */
function why(sample) {
  if (sample.correct === null) return "not judged";
  if (sample.correct) return "right";
  if (sample.unknown) return "unknown: the grader reached its limit of time, memory or size";
  if (sample.class >= 0) return "not right: another answer than the gold";
  if (sample.finish === "length") return "not right: cut off before an answer";
  if (sample.finish === "failed") return "not right: its search failed";
  return sample.extraction === "withdrawn" ? "not right: its answer was taken back" : "not right: no answer found";
}

/** @param {Sample} sample @param {boolean} set */
function text(sample, set) {
  if (sample.text === null) return h("p.note", null, "No text of this sample was kept.");
  return h(`div.text${set ? ".formulas" : ""}`, { tabindex: 0, role: "region", "aria-label": `Text of sample ${sample.sample}`, dir: "auto" },
    set && sample.text.length <= LONG ? formulas(sample.text) : clipped(sample.text));
}

/** A long text by its beginning, with a button for the rest. @param {string} whole */
function clipped(whole) {
  if (whole.length <= LONG) return visible(whole);
  const box = h("span");
  const all = h("button", { type: "button", click: () => refill(box, visible(whole)) }, `Show all ${count(whole.length)} characters`);
  return refill(box, visible(whole.slice(0, LONG)), h("br"), all);
}

/** Text by tokens: the less likely a token was, or the more the sides differ, the stronger its ground; one at a time is read out. */
async function tokens(/** @type {any} */ study, /** @type {any} */ side, /** @type {Sample} */ sample, /** @type {import("../scored.js").Scored | null} */ of) {
  const path = study.index.pieces?.[side.checkpoint];
  const pieces = path && await study.document(path).catch(() => null);
  if (!pieces || !sample.tokens) return [h("p.note", null, "The pieces of text of these tokens are not known here."), text(sample, false)];
  const logp = sample.logp ?? [];
  const words = h("p.readout", { "aria-live": "polite" }, h("span.note", null, "Point at a token, or use the left and right arrow keys in the text: its probability is shown here."));
  const paint = (/** @type {number} */ i) => {
    if (of) spans[i].style.background = ground(of.rl[i] - of.base[i]);
    else shade(spans[i], logp[i]);
  };
  let chosen = -1;
  /** @type {HTMLElement[]} */
  const spans = [];
  const say = (/** @type {number} */ i) => {
    spans[chosen]?.removeAttribute("style");
    if (spans[chosen]) paint(chosen);
    chosen = i;
    if (!spans[i]) return;
    spans[i].style.outline = "2px solid currentColor";
    const drawn = sample.logq?.[i];
    refill(words, `Token ${i + 1} of ${sample.tokens?.length}: `, h("b", null, `“${visible(piece(pieces, sample, i)).replaceAll("\n", "⏎")}”`),
      of ? reading(of, i) : `, probability ${percent(Math.exp(logp[i]), 2)} (natural log ${fixed(logp[i], 3)})`, !of && known(drawn) ? `; as it was drawn, after the policy's filters, ${percent(Math.exp(drawn), 2)}` : "", ".");
  };
  const box = h("div.text", {
    tabindex: 0, role: "application", "aria-label": `Tokens of sample ${sample.sample}: arrow keys walk them`,
    keydown: (/** @type {KeyboardEvent} */ event) => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      say(Math.max(0, Math.min(spans.length - 1, chosen + by)));
    },
    pointerover: (/** @type {any} */ event) => { if (event.target.dataset?.p) say(Number(event.target.dataset.p)); },
    click: (/** @type {any} */ event) => { if (event.target.dataset?.p) say(Number(event.target.dataset.p)); },
  });
  const total = sample.tokens.length;
  const add = (/** @type {number} */ upTo) => {
    for (let i = spans.length; i < Math.min(total, upTo); i++) {
      const span = h("span", { "data-p": i }, visible(piece(pieces, sample, i)));
      spans.push(span);
      paint(i);
      box.append(span);
    }
    if (upTo < total) {
      const more = h("button", { type: "button", click: () => { more.remove(); add(upTo + TOKENS); } }, `Show more of ${count(total)} tokens`);
      box.append(more);
    }
  };
  add(TOKENS);
  return h("div", null, words, box);
}

/** @param {any} pieces @param {Sample} sample @param {number} i */
function piece(pieces, sample, i) {
  return String(pieces[sample.tokens?.[i] ?? -1] ?? "\uFFFD");
}

/** @param {HTMLElement} span @param {number} logp */
function shade(span, logp) {
  if (known(logp)) span.style.background = `rgb(230 140 0 / ${Math.min(0.85, -logp / 4).toFixed(2)})`;
}

function scale() {
  return h("span.tokenscale", null, "likely", [0.9, 0.5, 0.1, 0.03].map((p) => h("i", { style: `background: rgb(230 140 0 / ${Math.min(0.85, -Math.log(p) / 4).toFixed(2)})`, title: percent(p, 0) })), "unlikely");
}
