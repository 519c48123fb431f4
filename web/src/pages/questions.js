/** All questions of a cell: who solves them, as a matrix of question by policy and as a list. */

import { h, refill, visible } from "../dom.js";
import { count, percent, plural, points } from "../format.js";
import { dark } from "../look.js";
import { absent, cellCrumbs, health } from "../parts.js";
import { SORTS, common, idOf, ranked, solving, under } from "../ranking.js";
import { link } from "../route.js";
import { containing } from "../samples.js";
import { bounds, meaning } from "../scored.js";
import { groups } from "../study.js";
import { choice, windowed } from "../widgets.js";

/** Milliseconds after the last letter until samples are searched. */
const PAUSE = 300;

/** @typedef {{side: "base" | "rl", policy: string, sample: number | null}} Hit */

/**
 * @param {import("../study.js").Study} study
 * @param {import("../study.js").Cell} cell
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function questions(study, cell, view) {
  const { query } = view;
  const sort = query.sort || "rl-only";
  const [asked, list, chances] = await Promise.all([study.questions(cell.benchmark), ranked(study, cell, sort, query.p), bounds(study, cell)]);
  if (!list.length) return { title: "Who solves which question", crumbs: cellCrumbs(study, cell), body: [absent(study, "The counts of answers of this box")] };
  const [only, tallies] = [query.who, groups(list, (each) => each.who)];
  const here = list.filter((each) => each.here).length;
  const wanted = list.filter((each) => (!only || each.who === only) && (!query.texts || each.here));
  const page = h("div");
  let turn = 0;
  const draw = async (/** @type {string} */ typed) => {
    const now = ++turn;
    const words = typed.trim().toLowerCase();
    let unread = "";
    const hits = words ? await hitsOf(study, cell, words).catch((error) => { unread = `; samples could not be searched: ${error.message}`; return new Map(); }) : new Map();
    if (now !== turn) return;
    const some = wanted.filter((each) => !words || hits.has(each.question) || matches(asked.get(each.question), each.question, words));
    const excerpt = words && !study.ranges ? "; of samples, those in this page were searched" : "";
    const counted = some.length && !some.some((each) => each.here) ? "; texts of these are not in this page" : "";
    const drawn = some.length > 0 && h("div.columns.even", null,
      h("section", null, h("h2", null, "List"), rows(study, cell, view, some, asked, hits, chances)), await matrix(study, cell, view, some, asked));
    refill(page, h("p", { role: "status" }, `${plural(some.length, "question")} of ${list.length}${unread || excerpt || counted}.`), drawn);
  };
  /** @type {any} */
  let wait;
  const type = (/** @type {any} */ event) => {
    view.note({ find: event.target.value });
    clearTimeout(wait);
    wait = setTimeout(draw, PAUSE, event.target.value);
  };
  await draw(query.find ?? "");
  const shared = study.ordered(cell.base.policies).filter((name) => common(cell, name));
  return {
    title: "Who solves which question",
    crumbs: cellCrumbs(study, cell),
    body: [
      health(cell) || null,
      h("p", null, `A model solves a question if any of its samples is right, ${under(study, cell, query.p)}. Differences are RL − Base, of the shares of right samples.`),
      list.some((each) => each.who === "rl" && chances.has(each.question)) && meaning(study),
      h("div.chips", null, /** @type {import("../ranking.js").Who[]} */ (["rl", "base", "both", "none"]).map((who) => h("a", {
        href: view.href({ who: only === who ? "" : who, sort: { rl: "rl-only", base: "base-only", both: "both", none: "none" }[who] }), "aria-current": only === who ? "true" : null, "data-key": `who ${who}`,
      }, `${solving(who, list)}: ${count(tallies.get(who)?.length ?? 0)}`)),
        here > 0 && here < list.length && h("a", { href: view.href({ texts: query.texts ? "" : 1 }), "aria-current": query.texts ? "true" : null, "data-key": "texts" }, `Texts are in this page: ${here}`)),
      h("div.controls", null,
        choice("Order", SORTS, sort, (value) => view.set({ sort: value })),
        choice("Under", [["", "any policy"], ...shared.map((name) => /** @type {[string, string]} */ ([name, study.policyTitle(name)]))], common(cell, query.p) ?? "", (p) => view.set({ p })),
        h("label.choice", null, h("span", null, "Search in questions, answers and samples"), h("input", {
          type: "search", value: query.find ?? "", "data-key": "find", autocomplete: "off", input: type,
        }))),
      page,
    ],
  };
}

/** Questions with the words in a sample or an answer, and in which. @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell @param {string} words */
async function hitsOf(study, cell, words) {
  /** @type {Map<number, Hit>} */
  const hits = new Map();
  for (const side of /** @type {const} */ (["rl", "base"])) {
    for (const [policy, question, sample] of await containing(study, cell, side, words)) if (!hits.has(question)) hits.set(question, { side, policy, sample });
  }
  return hits;
}

/** @param {any} row @param {number} question @param {string} words */
function matches(row, question, words) {
  return [String(question), row?.id, row?.text, row?.gold, row?.tags].some((part) => typeof part === "string" && part.toLowerCase().includes(words));
}

/**
 * @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell @param {import("../main.js").View} view
 * @param {import("../ranking.js").Standing[]} list @param {Map<number, any>} asked @param {Map<number, Hit>} hits
 * @param {Map<number, string>} chances
 */
function rows(study, cell, view, list, asked, hits, chances) {
  return windowed({
    label: "Questions", length: list.length, height: 58, rows: 12,
    row: (i) => {
      const each = list[i];
      const id = idOf(asked, each.question);
      const text = asked.get(each.question)?.text;
      const { base, rl } = each.solved;
      const hit = hits.get(each.question);
      const chance = each.who === "rl" && chances.get(each.question);
      const to = (/** @type {Record<string, any>} */ more) => link(["c", cell.pair, cell.benchmark, "q", id], { sort: view.query.sort, under: view.query.p, ...more });
      return h("div", null,
        h("div", null, h("a", { "data-row": id, href: to({}) }, visible(id)), " ",
          hit && [h("a", { href: to({ col: hit.side, [hit.side]: hit.policy, [hit.side === "rl" ? "rs" : "bs"]: hit.sample }) }, `found in ${hit.sample === null ? "an answer" : "a sample"} of ${hit.side === "rl" ? "RL" : "Base"}`), " "],
          !each.here && h("span.note", null, "counts only · "), chance ? [h("b", null, "RL solves"), `; ${chance}`] : h("b", null, solving(each.who, [each]))),
        h("div.note", null, h("span.base", null, `Base ${count(base.correct)}/${count(base.samples)}`), ", ", h("span.rl", null, `RL ${count(rl.correct)}/${count(rl.samples)}`), ` right: ${points(each.lead)}`,
          text ? ` · ${visible(text.slice(0, 160)).replaceAll("\n", " ")}` : ""));
    },
  });
}

/**
 * Questions down, policies across: Base at the left, RL at the right.
 * @param {import("../study.js").Study} study @param {import("../study.js").Cell} cell @param {import("../main.js").View} view
 * @param {import("../ranking.js").Standing[]} list @param {Map<number, any>} asked
 */
async function matrix(study, cell, view, list, asked) {
  const metric = view.query.m === "Q" ? "Q" : "P";
  const column = `${metric}_unbiased`;
  const frames = await Promise.all([cell.base, cell.rl].map((side) => study.frame(side.files.hits, ["policy", "question", "budget", metric, column])));
  const budgets = [...new Set(frames.flatMap((frame) => frame.map((row) => row.budget)))].sort((a, b) => a - b);
  if (!budgets.length) return h("section", null, h("h2", null, "Matrix"), absent(study, "The metrics of single questions"));
  const n = budgets.includes(Number(view.query.n)) ? Number(view.query.n) : budgets[0];
  const places = new Map(list.map((each, i) => [each.question, i]));
  const columns = [cell.base, cell.rl].flatMap((side, i) => study.ordered(side.policies).map((policy) => ({ policy, side: i === 0 ? "base" : "rl" })));
  const at = new Map(columns.map((each, i) => [`${each.side} ${each.policy}`, i]));
  const values = new Float32Array(columns.length * list.length).fill(NaN);
  frames.forEach((frame, i) => {
    for (const row of frame) {
      const place = places.get(row.question);
      const across = at.get(`${i === 0 ? "base" : "rl"} ${row.policy}`);
      if (row.budget !== n || place === undefined || across === undefined) continue;
      const value = row[column] ?? row[metric];
      if (value !== null && value !== undefined) values[place * columns.length + across] = Number(value);
    }
  });
  const split = cell.base.policies.length;
  const readout = h("p.readout", { "aria-live": "polite" }, h("span.note", null, "Point at a box, or use the arrow keys; Enter or a click opens the question."));
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
    tabindex: 0, role: "application", "data-key": "matrix",
    "aria-label": `Matrix of ${list.length} questions by ${columns.length} policies, Base at the left, RL at the right. Arrow keys walk it, Enter opens the question.`,
  }));
  const box = h("div.matrixbox", null, canvas);
  let cursor = { x: 0, y: 0 };
  let size = { w: 10, h: 5, gap: 14 };
  const left = (/** @type {number} */ x) => x * size.w + (x >= split ? size.gap : 0);
  const paint = () => {
    const width = Math.max(240, box.clientWidth);
    const rowHeight = Math.max(2, Math.min(12, Math.floor(720 / list.length)));
    size = { w: Math.max(5, Math.floor((width - 14) / columns.length)), h: rowHeight, gap: 14 };
    const scale = devicePixelRatio || 1;
    const [w, tall] = [columns.length * size.w + size.gap, list.length * size.h];
    canvas.width = w * scale;
    canvas.height = tall * scale;
    canvas.style.width = `${w}px`;
    canvas.style.height = `${tall}px`;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.scale(scale, scale);
    const hues = dark() ? ["93 181 232", "244 121 138"] : ["0 114 178", "178 24 43"];
    for (let y = 0; y < list.length; y++) {
      for (let x = 0; x < columns.length; x++) {
        const value = values[y * columns.length + x];
        const hue = hues[x < split ? 0 : 1];
        pen.fillStyle = Number.isNaN(value) ? "rgb(128 128 128 / .35)" : `rgb(${hue} / ${(value > 0 ? 0.2 + 0.8 * Math.sqrt(value) : 0.06).toFixed(3)})`;
        pen.fillRect(left(x), y * size.h, Math.max(1, size.w - 1), Math.max(1, size.h - (size.h > 5 ? 1 : 0)));
      }
      if (y > 0 && list[y].who !== list[y - 1].who) {
        pen.fillStyle = dark() ? "#ffffff" : "#000000";
        pen.fillRect(0, y * size.h - 1, w, 1.5);
      }
    }
    if (document.activeElement === canvas) {
      pen.strokeStyle = dark() ? "#ffffff" : "#000000";
      pen.lineWidth = 2;
      pen.strokeRect(left(cursor.x) - 1, cursor.y * size.h - 1, size.w + 1, size.h + 2);
    }
  };
  const href = (/** @type {number} */ x, /** @type {number} */ y) => link(["c", cell.pair, cell.benchmark, "q", idOf(asked, list[y].question)], { sort: view.query.sort, under: view.query.p, [columns[x].side]: columns[x].policy });
  const say = () => {
    const each = list[cursor.y];
    const { policy, side } = columns[cursor.x];
    const value = values[cursor.y * columns.length + cursor.x];
    refill(readout, h("b", { class: side }, `${side === "rl" ? "RL" : "Base"}, ${study.policyTitle(policy)}`), `, question ${visible(idOf(asked, each.question))}: `,
      h("b", null, Number.isNaN(value) ? "not known" : percent(value)), ` estimated chance of ${study.metricTitle(metric)} with ${plural(n, "sample")}. ${solving(each.who, [each])}. `, h("a", { href: href(cursor.x, cursor.y) }, "Read the answers"));
  };
  const place = (/** @type {PointerEvent | MouseEvent} */ event) => {
    const bounds = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - bounds.left, event.clientY - bounds.top];
    const x = px < split * size.w ? Math.floor(px / size.w) : Math.floor((px - size.gap) / size.w);
    cursor = { x: Math.max(0, Math.min(columns.length - 1, x)), y: Math.max(0, Math.min(list.length - 1, Math.floor(py / size.h))) };
    say();
  };
  canvas.addEventListener("pointermove", place);
  canvas.addEventListener("click", (event) => { place(event); location.hash = href(cursor.x, cursor.y); });
  canvas.addEventListener("focus", () => { paint(); say(); });
  canvas.addEventListener("blur", paint);
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Enter") location.hash = href(cursor.x, cursor.y);
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    cursor = { x: Math.max(0, Math.min(columns.length - 1, cursor.x + move[0])), y: Math.max(0, Math.min(list.length - 1, cursor.y + move[1])) };
    paint();
    say();
  });
  new ResizeObserver(() => requestAnimationFrame(paint)).observe(box);
  return h("section", null,
    h("h2", null, "Matrix"),
    h("p.note", null, `A row is a question, in the order of the list; a column is a policy, `, h("b.base", null, "Base at the left"), ", ", h("b.rl", null, "RL at the right"),
      `, in the order: ${study.ordered(cell.base.policies).slice(0, 3).map((name) => study.policyTitle(name)).join("; ")} … The fuller a box, the larger the estimated chance that the policy solves the question; in the palest its samples do not. Lines part the groups.`),
    h("div.controls", null,
      choice("Samples per question", budgets.map((each) => [String(each), String(each)]), String(n), (value) => view.set({ n: value })),
      choice("Metric", [["P", study.metricTitle("P")], ["Q", study.metricTitle("Q")]], metric, (m) => view.set({ m }))),
    readout, box);
}
