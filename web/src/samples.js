/**
 * Samples of one policy on one question as records, from the excerpt in this page or from the study's own files.
 */

import { length } from "./parquet.js";
import { json } from "./source.js";
import { pick } from "./study.js";

/**
 * @typedef {object} Sample
 * @property {number} sample
 * @property {number} run
 * @property {string | null} text null where no text was kept
 * @property {number[] | null} tokens
 * @property {number[] | null} logp natural log-probability of each token under the raw model
 * @property {number[] | null} logq under the distribution that was drawn from
 * @property {number | null} score
 * @property {boolean | null} correct
 * @property {number} class class of equal answers, -1: none
 * @property {string | null} answer as extracted; null before `written` said it
 * @property {string | null} extraction
 * @property {string | null} finish
 * @property {boolean} unknown
 * @property {string | null} recorded verdict that came with an imported sample
 * @property {number | null} length in tokens
 */

/**
 * Samples in their order; empty where the study has none of this policy and question.
 * @param {import("./study.js").Study} study
 * @param {import("./study.js").Cell} cell
 * @param {"base" | "rl"} name
 * @param {string} policy
 * @param {number} question
 * @param {boolean} tokens whether tokens and their log-probabilities are wanted, which take most of the bytes
 * @returns {Promise<Sample[]>}
 */
export async function samples(study, cell, name, policy, question, tokens) {
  const side = cell[name];
  const found = study.ranges ? await fromFiles(study, cell, side, policy, question, tokens) : await fromExcerpt(study, side, policy, question);
  return found.sort((a, b) => a.sample - b.sample);
}

/**
 * Answers to a question in all samples of a policy, the most frequent first, as they were written most often: class, correct,
 * text and count. The server extracts them when they are asked for, so texts are shown before.
 * @param {import("./study.js").Study} study
 * @param {import("./study.js").Side} side
 * @param {string} policy
 * @param {number} question
 * @returns {Promise<import("./study.js").Row[]>}
 */
export async function written(study, side, policy, question) {
  const path = side.files.answers?.replace("{policy}", () => policy).replace("{question}", String(question));
  const rows = await study.frame(path).catch(() => []);
  return pick(rows, { policy, question }).sort((a, b) => b.count - a.count);
}

/**
 * Where samples have some words in any letters: policy, question and sample. A page with an excerpt searches that, and all
 * answers, whose sample is null; a server searches every sample.
 * @param {import("./study.js").Study} study
 * @param {import("./study.js").Cell} cell
 * @param {"base" | "rl"} name
 * @param {string} words in small letters
 * @returns {Promise<[string, number, number | null][]>}
 */
export async function containing(study, cell, name, words) {
  const side = cell[name];
  if (study.ranges) return Object.keys(side.shards ?? {}).length ? json(study.files, `found/${side.checkpoint}/${cell.benchmark}/${encodeURIComponent(words)}.json`) : [];
  const [texts, answers] = await Promise.all([study.frame(side.excerpt, ["policy", "question", "sample", "text"]), study.frame(side.files.answers)]);
  return [...texts, ...answers].filter((row) => row.text?.toLowerCase().includes(words)).map((row) => [row.policy, row.question, row.sample ?? null]);
}

/**
 * Questions of a side whose texts can be read here; null: all of them.
 * @param {import("./study.js").Study} study
 * @param {import("./study.js").Side} side
 * @returns {Promise<Set<number> | null>}
 */
export async function readable(study, side) {
  if (study.ranges) return Object.keys(side.shards ?? {}).length ? null : new Set();
  return new Set((await study.frame(side.excerpt, ["policy", "question"])).map((row) => row.question));
}

/** @param {import("./study.js").Study} study @param {import("./study.js").Side} side @param {string} policy @param {number} question */
async function fromExcerpt(study, side, policy, question) {
  if (!side.excerpt) return [];
  const keys = await study.frame(side.excerpt, ["policy", "question"]);
  const at = keys.flatMap((row, i) => (row.policy === policy && row.question === question ? [i] : []));
  if (!at.length) return [];
  const [first, last] = [at[0], at[at.length - 1]];
  const rows = await study.part(side.excerpt, { rowStart: first, rowEnd: last + 1 });
  return pick(rows, { policy, question }).map((row) => ({
    sample: row.sample, run: row.run, text: row.text ?? null, tokens: row.tokens ?? null, logp: row.logp ?? null, logq: row.logq ?? null,
    score: row.score ?? null, correct: row.correct ?? null, class: row.class ?? -1, answer: row.answer ?? null, extraction: row.extraction ?? null,
    finish: row.finish ?? null, unknown: Boolean(row.unknown), recorded: row.recorded ?? null, length: row.n_tokens ?? row.tokens?.length ?? null,
  }));
}

/**
 * @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell @param {import("./study.js").Side} side
 * @param {string} policy @param {number} question @param {boolean} tokens
 */
async function fromFiles(study, cell, side, policy, question, tokens) {
  const [graded, drawn, questions] = await Promise.all([
    scores(study, cell, side, policy, question), texts(study, side, policy, question, tokens), study.questions(cell.benchmark),
  ]);
  const id = questions.get(question)?.id;
  const recorded = new Map((await recordings(study, side, policy)).filter((row) => row.question === id).map((row) => [row.sample, verdict(row)]));
  const byText = new Map(drawn.map((row) => [row.sample, row]));
  const every = new Set([...graded.map((row) => row.sample), ...byText.keys()]);
  const byScore = new Map(graded.map((row) => [row.sample, row]));
  return [...every].map((sample) => {
    const [score, text] = [byScore.get(sample) ?? {}, byText.get(sample) ?? {}];
    const answer = score.answer ?? -1;
    return {
      sample, run: text.run ?? sample, text: text.text ?? null, tokens: text.tokens ?? null, logp: text.logprobs ?? null,
      logq: text.sampling_logprobs ?? null, score: score.score ?? text.score ?? null, correct: score.correct ?? null, class: answer,
      answer: null, extraction: score.extraction ?? null, finish: score.finish ?? text.finish ?? null,
      unknown: Boolean(score.unknown), recorded: recorded.get(sample) ?? null, length: score.tokens ?? text.n_tokens ?? null,
    };
  });
}

/** @param {import("./study.js").Row} row */
function verdict(row) {
  return `${row.scorer}: ${row.value}${row.answer ? ` (${row.answer})` : ""}`;
}

/** @param {import("./study.js").Study} study @param {any} side @param {string} policy */
async function recordings(study, side, policy) {
  const path = side.recorded?.[policy];
  return path ? study.frame(path).catch(() => []) : [];
}

const GRADED = ["policy", "question", "sample", "correct", "answer", "tokens", "score", "unknown", "extraction", "finish"];

/** Rows are sorted by policy, question and sample, so that those of one question stand together. */
async function scores(/** @type {any} */ study, /** @type {any} */ cell, /** @type {any} */ side, /** @type {string} */ policy, /** @type {number} */ question) {
  const path = side.files.scores;
  if (!path) return [];
  const questions = study.benchmark(cell.benchmark).questions;
  let from = 0;
  for (const name of side.policies) {
    if (name === policy) break;
    from += (side.samples[name] ?? 0) * questions;
  }
  const each = side.samples[policy] ?? 0;
  const range = { rowStart: from + question * each, rowEnd: from + (question + 1) * each };
  const total = await length(await study.files(path));
  const found = range.rowEnd <= total ? pick(await study.part(path, { columns: GRADED, ...range }), { policy, question }) : [];
  if (found.length === each && each > 0) return found;
  return pick(await study.frame(path, GRADED), { policy, question });
}

const DRAWN = ["sample", "run", "text", "n_tokens", "score", "finish"];
const LISTS = ["tokens", "logprobs", "sampling_logprobs"];

/** Shards are sorted by question and sample. */
async function texts(/** @type {any} */ study, /** @type {any} */ side, /** @type {string} */ policy, /** @type {number} */ question, /** @type {boolean} */ tokens) {
  const parts = await Promise.all((side.shards?.[policy] ?? []).map(async (/** @type {any} */ shard) => {
    const each = shard.rows / shard.questions;
    const range = { rowStart: question * each, rowEnd: (question + 1) * each };
    if (range.rowEnd > shard.rows) return [];
    return study.part(shard.path, { columns: tokens ? [...DRAWN, ...LISTS] : DRAWN, ...range });
  }));
  return parts.flat();
}
