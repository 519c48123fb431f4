/** The near-match set at any tolerance; at the configured one it is `near_match.parquet`, which a test compares. */

/** Proportions that differ by less are equal. */
const ROUNDING = 1e-7;

/**
 * Points of Base within a tolerance of a point of RL: nearest first, then the smaller budget, then the policy's name.
 * @param {any[]} candidates rows of points: policy, budget, value, and hits where the estimator counts questions
 * @param {any} target a row of points
 * @param {number} tolerance as a proportion; both ends belong to the set
 * @returns {any[]} the rows with `rl_minus_base`: target minus value
 */
export function nearMatches(candidates, target, tolerance) {
  const size = (/** @type {any} */ row) => Math.round(Math.abs(row.rl_minus_base) * 1e9) / 1e9;
  return candidates
    .map((row) => ({ ...row, rl_minus_base: difference(row, target) }))
    .filter((row) => Math.abs(row.rl_minus_base) <= tolerance + ROUNDING)
    .sort((a, b) => size(a) - size(b) || a.budget - b.budget || (a.policy < b.policy ? -1 : 1));
}

/** Counts are subtracted before they are divided, so that equal counts differ by nothing. @param {any} row @param {any} target */
function difference(row, target) {
  const counted = typeof row.hits === "number" && typeof target.hits === "number" && row.questions === target.questions;
  return counted ? (target.hits - row.hits) / row.questions : target.value - row.value;
}

/**
 * Labels of points that can be told apart: those of the same x that lie close together have one, at the highest of them.
 * @param {{x: number, y: number, target: number}[]} steps
 * @param {number} height that a label takes
 * @returns {{x: number, y: number, text: string}[]}
 */
export function labels(steps, height) {
  /** @type {{x: number, y: number, low: number, targets: number[]}[]} */
  const found = [];
  for (const { x, y, target } of [...steps].sort((a, b) => a.x - b.x || b.y - a.y)) {
    const last = found[found.length - 1];
    if (last?.x === x && last.low - y < height) Object.assign(last, { low: y, targets: [...last.targets, target] });
    else found.push({ x, y, low: y, targets: [target] });
  }
  return found.map(({ x, y, targets }) => ({ x, y, text: targets.sort((a, b) => a - b).join(", ") }));
}
