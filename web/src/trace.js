/** A recorded search as what was known after each of its steps, and as a drawing of its texts. */

/** @typedef {Record<string, any>} Row a row of a trace, as docs/data.md describes it */

/**
 * @typedef {object} TextNode
 * @property {number} node
 * @property {number | null} parent
 * @property {Row} row
 * @property {number | null} score as it was known at the step
 * @property {boolean | null} kept accepted, or kept when ranked last
 * @property {number[]} samples candidates whose text this is
 * @property {boolean} fresh made in this step
 * @property {boolean} onPath part of a descent of this step, or of the text of a sample
 */

const TEXTS = new Set(["node", "end", "rollout"]);

/**
 * Rows with equal steps that follow one another.
 * @param {Row[]} rows of one run, in their order
 * @returns {Row[][]}
 */
export function frames(rows) {
  /** @type {Row[][]} */
  const found = [];
  for (const row of rows) {
    const last = found[found.length - 1];
    if (last && last[0].step === row.step) last.push(row);
    else found.push([row]);
  }
  return found;
}

/**
 * Every text that was there after a step.
 * @param {Row[][]} steps
 * @param {number} at position of the step
 * @returns {Map<number, TextNode>}
 */
export function known(steps, at) {
  /** @type {Map<number, TextNode>} */
  const nodes = new Map();
  const end = at === steps.length - 1;
  for (let i = 0; i <= at; i++) {
    for (const row of steps[i]) {
      if (TEXTS.has(row.kind) && row.node !== null) {
        const kept = row.accepted ?? (end || row.same_as !== null ? row.chosen : null);
        nodes.set(row.node, { node: row.node, parent: row.parent, row, score: end ? row.score : null, kept, samples: [], fresh: i === at, onPath: false });
      }
      if (row.kind === "scored") each(row.nodes, (node, k) => change(nodes, node, { score: row.scores?.[k] ?? null }));
      if (row.kind === "chosen") each(row.nodes, (node) => change(nodes, node, { kept: true }));
      if (row.kind === "iteration" && i === at) each([...(row.nodes ?? []), row.node], (node) => change(nodes, node, { onPath: true }));
      if (row.kind === "sample" && row.node !== null) nodes.get(row.node)?.samples.push(row.sample);
    }
  }
  if (end) for (const node of nodes.values()) if (node.samples.length) for (let one = node; one; one = /** @type {any} */ (nodes.get(one.parent ?? -1))) one.onPath = true;
  return nodes;
}

/** @param {any[] | null} list @param {(node: number, i: number) => void} act */
function each(list, act) {
  (list ?? []).forEach((node, i) => { if (node !== null && node !== undefined) act(node, i); });
}

/** @param {Map<number, TextNode>} nodes @param {number} node @param {Partial<TextNode>} values */
function change(nodes, node, values) {
  const found = nodes.get(node);
  if (found) Object.assign(found, values);
}

/**
 * Places of texts: x is the number of texts before it, y parts the branches.
 * @param {Map<number, TextNode>} nodes
 * @returns {Map<number, {x: number, y: number}>}
 */
export function places(nodes) {
  /** @type {Map<number | null, number[]>} */
  const children = new Map();
  for (const { node, parent } of nodes.values()) {
    const above = parent !== null && nodes.has(parent) ? parent : null;
    const list = children.get(above);
    if (list) list.push(node);
    else children.set(above, [node]);
  }
  /** @type {Map<number, {x: number, y: number}>} */
  const found = new Map();
  const order = [];
  const stack = [...(children.get(null) ?? [])].reverse().map((node) => ({ node, x: 0 }));
  let leaf = 0;
  while (stack.length) {
    const { node, x } = /** @type {{node: number, x: number}} */ (stack.pop());
    const below = children.get(node) ?? [];
    found.set(node, { x, y: below.length ? NaN : leaf++ });
    order.push(node);
    for (const child of [...below].reverse()) stack.push({ node: child, x: x + 1 });
  }
  for (const node of order.reverse()) {
    const place = /** @type {{x: number, y: number}} */ (found.get(node));
    const below = children.get(node);
    if (below) place.y = below.reduce((sum, child) => sum + /** @type {any} */ (found.get(child)).y, 0) / below.length;
  }
  return found;
}

/**
 * The whole text of a node: so many tokens of its parent's whole text as it keeps, then its own.
 * @param {Map<number, TextNode>} nodes
 * @param {number} node
 * @param {Record<string, string> | null} pieces text of each token
 * @returns {{kept: string, own: string} | null} null if a token's text is not known
 */
export function whole(nodes, node, pieces) {
  const chain = [];
  for (let one = nodes.get(node); one; one = nodes.get(one.parent ?? -1)) chain.unshift(one.row);
  /** @type {number[]} */
  let kept = [];
  for (const row of chain.slice(0, -1)) kept = [...kept.slice(0, row.start ?? 0), ...(row.tokens ?? [])];
  const last = chain[chain.length - 1];
  kept = kept.slice(0, last.start ?? 0);
  if (kept.length < (last.start ?? 0)) return null;
  const text = kept.map((token) => pieces?.[token]);
  return text.includes(undefined) ? null : { kept: text.join(""), own: last.text ?? "" };
}
