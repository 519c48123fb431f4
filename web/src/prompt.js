/** The prompt of a question as it was sent to Base and to RL, token by token; its files are read when a reader opens it. */

import { append, h, refill, visible } from "./dom.js";
import { count, plural } from "./format.js";
import { json } from "./source.js";

/** Tokens that are shown at first. */
const TOKENS = 1500;

/** @typedef {{pieces: string[], ids: number[], special: number[]}} Prompt texts and ids of its tokens, and the positions of special ones */

/**
 * Null where it is not known: there is no such file, it cannot be read, or it has not this question.
 * @param {import("./study.js").Study} study @param {import("./study.js").Side} side @param {number} question
 * @returns {Promise<Prompt | null>}
 */
export async function prompt(study, side, question) {
  const path = side.files.prompts?.replace("{question}", String(question));
  const found = path ? (await json(study.files, path).catch(() => null))?.[question] : null;
  return found?.pieces && found.pieces.length === found.ids?.length ? { ...found, special: found.special ?? [] } : null;
}

/** The first position at which they differ, in the id or in its text; -1: nowhere. @param {Prompt} base @param {Prompt} rl */
export function difference(base, rl) {
  const longer = base.ids.length < rl.ids.length ? rl : base;
  return longer.ids.findIndex((_, i) => base.ids[i] !== rl.ids[i] || base.pieces[i] !== rl.pieces[i]);
}

/** @param {Prompt} base @param {Prompt} rl */
export function compared(base, rl) {
  const at = difference(base, rl);
  return at < 0 ? `Base and RL were sent the same ${plural(base.ids.length, "token")}.` : `The prompts differ, first at token ${count(at + 1)}.`;
}

/** @param {string} title @param {import("./study.js").Side} side @param {boolean} ranges whether the page holds no excerpt, but asks a server */
export function unknown(title, side, ranges) {
  if (side.source !== "sampled") return `The prompt of ${title} is not recorded: its samples are ${side.source === "recorded" ? "recorded counts" : side.source}.`;
  const why = side.files.prompts && !ranges ? "this page holds an excerpt; searchlens view shows all questions" : "its tokenizer is not on this machine, or is another one now";
  return `The prompt of ${title} is not known here: ${why}.`;
}

/** @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell @param {number} at @param {import("./main.js").View} view */
export function sent(study, cell, at, view) {
  const open = Boolean(view.query.p);
  const box = h("div", null, open && h("p.note", null, "being read …"));
  if (open) Promise.all([prompt(study, cell.base, at), prompt(study, cell.rl, at)]).then(([base, rl]) => refill(box, shown(study, cell, base, rl)));
  const toggle = (/** @type {any} */ event) => { if (event.currentTarget.open !== open) view.set({ p: open ? "" : 1 }); };
  return h("details", { open, toggle }, h("summary", { "data-key": "prompt" }, "Prompt as sent, with its template"), box);
}

/** @param {import("./study.js").Study} study @param {import("./study.js").Cell} cell @param {Prompt | null} base @param {Prompt | null} rl */
function shown(study, cell, base, rl) {
  const first = base && rl ? difference(base, rl) : -1;
  if (base && rl && first < 0) return [h("p", null, compared(base, rl)), text("Base and RL", { ...base, special: [...base.special, ...rl.special] }, first)];
  const sides = h("div.sides", null, base && text("Base", base, first), rl && text("RL", rl, first));
  const find = () => { for (const each of sides.querySelectorAll(".differs")) each.scrollIntoView({ block: "center" }); };
  return [
    base && rl && h("p", null, compared(base, rl), " ", h("button", { type: "button", click: find }, "Show where")),
    !base && h("p", null, unknown("Base", cell.base, study.ranges)), !rl && h("p", null, unknown("RL", cell.rl, study.ranges)), sides,
  ];
}

/** @param {string} title @param {Prompt} prompt @param {number} first position of the first difference, -1: none */
function text(title, { pieces, ids, special }, first) {
  const marked = new Set(special);
  const box = h("div.text", { tabindex: 0, role: "region", "aria-label": `Prompt of ${title}`, dir: "auto" });
  const add = (/** @type {number} */ from, /** @type {number} */ to) => {
    append(box, pieces.slice(from, to).map((piece, k) => token(piece, ids[from + k], from + k, marked.has(from + k), from + k === first)));
    const more = h("button", { type: "button", click: () => { more.remove(); add(to, to + TOKENS); } }, `Show more of ${count(ids.length)} tokens`);
    if (to < ids.length) box.append(more);
  };
  add(0, Math.max(TOKENS, first + 1));
  const words = marked.size ? `${count(marked.size)} of them special (in boxes)` : "none of them special";
  return h("section", null, h("h3", null, `${title}: ${plural(ids.length, "token")}, ${words}`), box);
}

/** @param {string} piece @param {number} id @param {number} at @param {boolean} special @param {boolean} differs */
function token(piece, id, at, special, differs) {
  const said = [special && "special token", differs && "first difference"].filter(Boolean).join(", ") || null;
  const lines = visible(piece).split("\n").map((line, i) => [i > 0 && [h("i.eol", { "aria-hidden": "true" }), "\n"], line]);
  const title = `${said ? `${said}, ` : ""}token ${count(at + 1)}, id ${id}`;
  return h(`span.token${special ? ".special" : ""}${differs ? ".differs" : ""}`, { title, role: said && "group", "aria-label": said }, lines);
}
