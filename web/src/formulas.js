/** Text whose formulas are set: what cannot be set stays as it was written. */

import katex from "katex";
import { h, visible } from "./dom.js";

const FORMULA = /\$\$([^$]{1,2000})\$\$|\\\[([\s\S]{1,2000}?)\\\]|\\\(([\s\S]{1,1000}?)\\\)|\$([^$\n]{1,1000})\$|(\\boxed\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\}){0,300}\})/g;

/** Formulas of one text that are set; the rest stays as written, so that no text can keep the page busy. */
const MOST = 200;

/**
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function formulas(text) {
  const parts = [];
  let at = 0;
  let set = 0;
  for (const match of text.matchAll(FORMULA)) {
    if (set++ >= MOST) break;
    const [whole, block, bracket, paren, inline, boxed] = match;
    parts.push(visible(text.slice(at, match.index)), formula(block ?? bracket ?? paren ?? inline ?? boxed, whole, Boolean(block ?? bracket)));
    at = match.index + whole.length;
  }
  parts.push(visible(text.slice(at)));
  return parts;
}

/** @param {string} source @param {string} whole @param {boolean} block */
function formula(source, whole, block) {
  const box = h("span");
  try {
    katex.render(source, box, { output: "mathml", trust: false, displayMode: block, maxSize: 10, maxExpand: 100, strict: "ignore", throwOnError: true });
    return box;
  } catch {
    return visible(whole);
  }
}
