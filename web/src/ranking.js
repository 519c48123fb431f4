/** Questions by who solves them. */

import { plural } from "./format.js";
import { pool } from "./parts.js";
import { readable } from "./samples.js";
import { groups } from "./study.js";

/** @typedef {"rl" | "base" | "both" | "none"} Who */

/**
 * @typedef {object} Standing
 * @property {number} question position
 * @property {Who} who which model has a right sample, under any policy or under the one that was asked for
 * @property {Record<"base" | "rl", {correct: number, samples: number, policies: number}>} solved policies: those with a right sample
 * @property {number} lead RL − Base, of the shares of right samples
 * @property {boolean} here whether texts can be read
 */

/**
 * Who solves a question, or every question of a list, with the samples that were drawn: more of them may solve more.
 * @param {Who} who
 * @param {Standing[]} list where their numbers of samples differ, they are left out
 */
export function solving(who, list) {
  const [base, rl] = /** @type {("base" | "rl")[]} */ (["base", "rl"]).map((side) => {
    const numbers = new Set(list.map((each) => each.solved[side].samples));
    return numbers.size === 1 ? plural([...numbers][0], "sample") : "samples";
  });
  return { rl: `RL solves, none of Base's ${base} does`, base: `Base solves, none of RL's ${rl} does`, both: "Both solve", none: `None of Base's ${base} and of RL's ${rl} solves` }[who];
}

/** @param {Standing} each */
const ease = ({ solved: { base, rl } }) => base.correct / Math.max(1, base.samples) + rl.correct / Math.max(1, rl.samples);

/** Of each order: kinds of questions, one after another, and what is smallest first among those of a kind. */
const ORDERS = /** @type {Record<string, [Who[], (each: Standing) => number]>} */ ({
  "rl-only": [["rl", "both", "none", "base"], (each) => -each.lead], "base-only": [["base", "both", "none", "rl"], (each) => each.lead],
  difference: [[], (each) => -Math.abs(each.lead)], easy: [[], (each) => -ease(each)],
  both: [["both", "rl", "base", "none"], (each) => -ease(each)], none: [["none", "rl", "base", "both"], (each) => -ease(each)],
});

export const SORTS = /** @type {[string, string][]} */ ([
  ["rl-only", "RL alone solves, first"], ["base-only", "Base alone solves, first"], ["difference", "largest difference, first"],
  ["both", "both solve, first"], ["none", "neither solves, first"], ["easy", "easiest first"], ["position", "as in the benchmark"],
]);

/**
 * All questions of a cell in an order; of those of a kind, the ones with texts come first.
 * @param {import("./study.js").Study} study
 * @param {import("./study.js").Cell} cell
 * @param {string | undefined} sort
 * @param {string} [policy] the only one that counts; all, if either model was not sampled under it
 * @returns {Promise<Standing[]>}
 */
export async function ranked(study, cell, sort, policy) {
  const [base, rl, ...texts] = await Promise.all([
    tallies(study, cell.base, common(cell, policy)), tallies(study, cell.rl, common(cell, policy)), readable(study, cell.base), readable(study, cell.rl),
  ]);
  const all = [...new Set([...base.keys(), ...rl.keys()])].sort((a, b) => a - b);
  const nothing = { correct: 0, samples: 0, policies: 0 };
  const list = all.map((question) => {
    const solved = { base: base.get(question) ?? nothing, rl: rl.get(question) ?? nothing };
    const lead = solved.rl.correct / Math.max(1, solved.rl.samples) - solved.base.correct / Math.max(1, solved.base.samples);
    return { question, solved, lead, who: who(solved.base.correct > 0, solved.rl.correct > 0), here: texts.some((each) => !each || each.has(question)) };
  });
  if (sort === "position") return list;
  const [kinds, key] = ORDERS[sort ?? ""] ?? ORDERS["rl-only"];
  return list.sort((a, b) => kinds.indexOf(a.who) - kinds.indexOf(b.who) || Number(b.here) - Number(a.here) || key(a) - key(b) || a.question - b.question);
}

/** The policy, if both models were sampled under it. @param {import("./study.js").Cell} cell @param {string | undefined} policy */
export function common(cell, policy) {
  return [cell.base, cell.rl].every((side) => side.policies.includes(policy ?? "")) ? policy : undefined;
}

/** Under which policies a question is solved, in words. @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell @param {string | undefined} policy */
export function under(study, cell, policy) {
  return common(cell, policy) ? `under ${study.policyTitle(policy ?? "")} alone` : `under any of Base's ${pool(study, cell.base)}, of RL's ${pool(study, cell.rl)}`;
}

/** @param {boolean} base @param {boolean} rl @returns {Who} */
function who(base, rl) {
  if (base && rl) return "both";
  return rl ? "rl" : base ? "base" : "none";
}

/** What the list and a single question need, so that it is read once. */
const COUNTS = ["policy", "question", "samples", "correct", "answered", "classes"];

/** @param {import("./study.js").Study} study @param {import("./study.js").Side} side @param {string | undefined} policy */
async function tallies(study, side, policy) {
  const rows = (await study.frame(side.files.classes, COUNTS)).filter((row) => !policy || row.policy === policy);
  return new Map([...groups(rows, (row) => row.question)].map(([question, list]) => [question, {
    correct: list.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row.correct, 0),
    samples: list.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row.samples, 0),
    policies: list.filter((/** @type {any} */ row) => row.correct > 0).length,
  }]));
}

/**
 * Right samples of each policy on one question.
 * @param {import("./study.js").Study} study
 * @param {import("./study.js").Side} side
 * @param {number} question
 * @returns {Promise<Map<string, any>>} rows of classes by policy, by family
 */
export async function byPolicy(study, side, question) {
  const rows = await study.frame(side.files.classes, COUNTS);
  const found = new Map(rows.filter((row) => row.question === question).map((row) => [row.policy, row]));
  return new Map(study.ordered(side.policies).map((name) => [name, found.get(name)]));
}

/**
 * The position that a part of an address names: a text id, or a position.
 * @param {Map<number, any>} questions
 * @param {string} id
 */
export function position(questions, id) {
  for (const [question, row] of questions) if (row.id === id) return question;
  return /^\d+$/.test(id) ? Number(id) : null;
}

/** @param {Map<number, any>} questions @param {number} question */
export function idOf(questions, question) {
  return questions.get(question)?.id ?? String(question);
}
