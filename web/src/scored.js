/** What both sides of a pair say of a text: log p and rank of its tokens, and bounds of Base's chance of the question. */

import { h } from "./dom.js";
import { chance, fixed, known, percent, signed } from "./format.js";
import { details } from "./widgets.js";

/** A difference of so many nats has the strongest colour. */
const MOST = 4;
const COLUMNS = ["token_ids", "logps_base", "logps_rl", "ranks_base", "ranks_rl"];

/** @typedef {{other: "Base" | "RL", base: number[], rl: number[], ranks: number[]}} Scored ranks: of the tokens under the other side, 0 if not known */

/**
 * What both sides say of each token of a sample; null unless its very tokens were scored.
 * @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell @param {"base" | "rl"} side that drew it
 * @param {number} question @param {import("./samples.js").Sample | undefined} sample
 * @returns {Promise<Scored | null>}
 */
export async function scored(study, cell, side, question, sample) {
  const path = cell.files.scored;
  if (!path || !sample?.tokens) return null;
  const keys = await study.frame(path, ["side", "question", "sample"]);
  const at = keys.findIndex((row) => row.side === side && row.question === question && row.sample === sample.sample);
  if (at < 0) return null;
  const [row] = await study.part(path, { columns: COLUMNS, rowStart: at, rowEnd: at + 1 });
  if (row.token_ids?.join() !== sample.tokens.join()) return null;
  return { other: side === "base" ? "RL" : "Base", base: row.logps_base, rl: row.logps_rl, ranks: side === "base" ? row.ranks_rl : row.ranks_base };
}

/** Ground of a token: red where RL makes it likelier, blue where Base does. @param {number} difference log p of RL − log p of Base */
export function ground(difference) {
  const share = Math.min(1, Math.abs(difference) / MOST) || 0;
  return `color-mix(in srgb, var(${difference > 0 ? "--rl" : "--base"}) ${Math.round(55 * share)}%, transparent)`;
}

/** What is read out of a token. @param {Scored} of @param {number} i */
export function reading(of, i) {
  const [base, rl] = [of.base[i], of.rl[i]];
  const rank = of.ranks[i] > 0 ? `; rank ${of.ranks[i]} under ${of.other}` : "";
  const by = known(rl - base) ? `: log p of RL − log p of Base is ${signed(rl - base, 3)}` : "";
  return `, probability ${percent(Math.exp(base), 2)} under Base, ${percent(Math.exp(rl), 2)} under RL${by}${rank}`;
}

export function differences() {
  const steps = [-MOST, -MOST / 2, 0, MOST / 2, MOST];
  return h("span.tokenscale", null, "likelier under Base", steps.map((nats) => h("i", { style: `background: ${ground(nats)}`, title: `${signed(nats, 0)} nats` })), `under RL; strongest from ${fixed(MOST, 0)} nats on`);
}

/** Bounds of Base's chance by question, in words; none if they were not computed. @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell */
export async function bounds(study, cell) {
  const rows = await study.frame(cell.files.bounds, ["question", "at_least", "at_most"]);
  return new Map(rows.map((row) => [row.question, `Base's chance: at least ${chance(row.at_least)}, at most ${chance(row.at_most)}`]));
}

/** What these bounds are. @param {import("./study.js").Study} study */
export function meaning(study) {
  return details("What Base's chance is",
    h("p.note", null, "Chances are those of one sample of Base, under the policy of the scored texts, to give an answer that the grader accepts. At least: the sum of Base's probabilities of the distinct right texts of either side that Base can draw, each rounded down; it has no sampling error. ",
      `At most: 1 minus the same sum over wrong texts, or the Clopper-Pearson limit of Base's samples if that is lower; these limits hold for all questions together at ${study.coverage}. More: “Was it in Base?”, docs/was-it-in-base.md.`));
}
