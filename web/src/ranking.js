/** Questions by who solves them. */

import { plural } from "./format.js";
import { groups } from "./study.js";

/** @typedef {"rl" | "base" | "both" | "none"} Who */

/**
 * @typedef {object} Standing
 * @property {number} question position
 * @property {Who} who which model has a right sample, under any policy
 * @property {Record<"base" | "rl", {correct: number, samples: number, policies: number}>} solved policies: those with a right sample
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

const ORDERS = /** @type {Record<string, Who[]>} */ ({
  "rl-only": ["rl", "base", "both", "none"], "base-only": ["base", "rl", "both", "none"], both: ["both", "rl", "base", "none"], none: ["none", "rl", "base", "both"],
});

export const SORTS = /** @type {[string, string][]} */ ([
  ["rl-only", "RL alone solves, first"], ["base-only", "Base alone solves, first"], ["both", "both solve, first"],
  ["none", "neither solves, first"], ["easy", "easiest first"], ["position", "as in the benchmark"],
]);

/**
 * All questions of a cell in an order.
 * @param {import("./study.js").Study} study
 * @param {import("./study.js").Cell} cell
 * @param {string | undefined} sort
 * @returns {Promise<Standing[]>}
 */
export async function ranked(study, cell, sort) {
  const [base, rl] = await Promise.all([tallies(study, cell.base), tallies(study, cell.rl)]);
  const all = [...new Set([...base.keys(), ...rl.keys()])].sort((a, b) => a - b);
  const nothing = { correct: 0, samples: 0, policies: 0 };
  const list = all.map((question) => {
    const solved = { base: base.get(question) ?? nothing, rl: rl.get(question) ?? nothing };
    return { question, solved, who: who(solved.base.correct > 0, solved.rl.correct > 0) };
  });
  if (sort === "position") return list;
  const share = (/** @type {Standing} */ each, /** @type {"base" | "rl"} */ side) => each.solved[side].correct / Math.max(1, each.solved[side].samples);
  const ease = (/** @type {Standing} */ each) => share(each, "base") + share(each, "rl");
  if (sort === "easy") return list.sort((a, b) => ease(b) - ease(a) || a.question - b.question);
  const order = ORDERS[sort ?? ""] ?? ORDERS["rl-only"];
  return list.sort((a, b) => order.indexOf(a.who) - order.indexOf(b.who) || ease(b) - ease(a) || a.question - b.question);
}

/** @param {boolean} base @param {boolean} rl @returns {Who} */
function who(base, rl) {
  if (base && rl) return "both";
  return rl ? "rl" : base ? "base" : "none";
}

/** What the list and a single question need, so that it is read once. */
const COUNTS = ["policy", "question", "samples", "correct", "answered", "classes"];

/** @param {import("./study.js").Study} study @param {import("./study.js").Side} side */
async function tallies(study, side) {
  const rows = await study.frame(side.files.classes, COUNTS);
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
 * @returns {Promise<Map<string, any>>} rows of classes by policy, in the order of the side's policies
 */
export async function byPolicy(study, side, question) {
  const rows = await study.frame(side.files.classes, COUNTS);
  const found = new Map(rows.filter((row) => row.question === question).map((row) => [row.policy, row]));
  return new Map(side.policies.map((name) => [name, found.get(name)]));
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
