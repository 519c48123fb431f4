/** Numbers as they are read. All proportions come in as [0, 1] and are shown in percent. */

const MINUS = "\u2212";
const COUNT = new Intl.NumberFormat("en-US");

/** @typedef {number | null | undefined} Maybe */

/**
 * @param {Maybe} value
 * @returns {value is number}
 */
export function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/**
 * @param {Maybe} value
 * @param {number} [digits]
 */
export function fixed(value, digits = 1) {
  if (!known(value)) return "–";
  const text = value.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", MINUS);
}

/** A proportion in percent. @param {Maybe} value @param {number} [digits] */
export function percent(value, digits = 1) {
  return known(value) ? `${fixed(100 * value, digits)}%` : "–";
}

/** A probability with two digits that count, as the table of bounds has it: 0.014, 3.1e-05. @param {Maybe} value */
export function chance(value) {
  if (!known(value)) return "–";
  const rounded = Number(value.toPrecision(2));
  return rounded > 0 && rounded < 1e-4 ? rounded.toExponential().replace(/-(\d)$/, "-0$1") : String(rounded);
}

/** A difference of proportions in percentage points, with its sign. @param {Maybe} value */
export function points(value) {
  return known(value) ? `${signed(100 * value)} pp` : "–";
}

/** @param {Maybe} value @param {number} [digits] */
export function signed(value, digits = 1) {
  const text = fixed(value, digits);
  return known(value) && Number(value.toFixed(digits)) > 0 ? `+${text}` : text;
}

/** An interval in percent, in brackets; nothing where it is not known. @param {Maybe} lo @param {Maybe} hi */
export function interval(lo, hi) {
  return known(lo) && known(hi) ? `[${fixed(100 * lo)}, ${fixed(100 * hi)}]` : "";
}

/**
 * An interval whose ends may be open: an open one is only known to lie there or beyond, as in [1.0 or less, 16.0 or more].
 * @param {{ lo: Maybe, hi: Maybe, lo_open?: boolean | null, hi_open?: boolean | null }} row
 */
export function bracket(row) {
  return `[${fixed(row.lo)}${row.lo_open ? " or less" : ""}, ${fixed(row.hi)}${row.hi_open ? " or more" : ""}]`;
}

/** @param {Maybe | bigint} value */
export function count(value) {
  return value === null || value === undefined || Number.isNaN(value) ? "–" : COUNT.format(value);
}

/** @param {number} number @param {string} one @param {string} [many] */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A quantity over many orders: 12, 3.4k, 5.6M, 7.8e12. @param {Maybe} value */
export function short(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(1).replace("e+", "e");
  for (const [limit, unit] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (size >= limit) return `${Number((value / limit).toPrecision(3))}${unit}`;
  }
  return Number.isInteger(value) ? fixed(value, 0) : fixed(value, size < 1 ? 3 : 1);
}
