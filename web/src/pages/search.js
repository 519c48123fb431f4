/** The tree or chain of one search: its texts step by step, what they were worth, and which of them became samples. */

import { responsive } from "../chart.js";
import { h, refill, s, visible } from "../dom.js";
import { count, fixed, known as isKnown, percent, plural, signed } from "../format.js";
import { link } from "../route.js";
import { idOf, position } from "../ranking.js";
import { frames, known, places, whole } from "../trace.js";
import { choice } from "../widgets.js";

/** Texts that are drawn at a time. */
const MOST = 800;

/**
 * @param {import("../study.js").Study} study
 * @param {string[]} path checkpoint, benchmark, policy, question, run
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function search(study, path, view) {
  const [checkpoint, benchmark, policy, id, runText] = path;
  const cell = study.cells.find((each) => each.benchmark === benchmark && (each.base.checkpoint === checkpoint || each.rl.checkpoint === checkpoint));
  const side = cell && (cell.base.checkpoint === checkpoint ? cell.base : cell.rl);
  const files = [side?.traces?.[policy] ?? []].flat();
  const crumbs = /** @type {[string, string][]} */ (cell ? [["Study", "#/"], [`${study.pairTitle(cell.pair)} on ${study.benchmark(benchmark).title}`, link(["c", cell.pair, benchmark])], [`Question ${id}`, link(["c", cell.pair, benchmark, "q", id])]] : [["Study", "#/"]]);
  const title = `A search: ${study.policyTitle(policy)}`;
  if (!files.length) return { title, crumbs, body: [h("p", null, "No search of this policy was recorded. The key study.trace records some while they are sampled, searchlens trace does it afterwards.")] };
  const [all, questions, pieces] = await Promise.all([
    Promise.all(files.map((file) => study.frame(file))).then((parts) => parts.flat()), study.questions(benchmark),
    study.index.pieces?.[checkpoint] ? study.document(study.index.pieces[checkpoint]).catch(() => null) : null,
  ]);
  const runs = [...new Map(all.map((row) => [`${row.question} ${row.run}`, { question: row.question, run: row.run }])).values()];
  const at = position(questions, id) ?? all.find((row) => row.id === id)?.question;
  const wanted = runs.find((each) => each.question === at && String(each.run) === runText) ?? runs.find((each) => each.question === at);
  const address = (/** @type {any} */ each) => link(["s", checkpoint, benchmark, policy, idOf(questions, each.question), each.run]);
  const others = h("div.controls", null, choice("Recorded searches", runs.map((each) => [address(each), `question ${visible(idOf(questions, each.question))}, run ${each.run}`]), wanted ? address(wanted) : "", (next) => { location.hash = next; }));
  if (!wanted) return { title, crumbs, body: [h("p", null, `Of question ${visible(id)} no search was recorded; of these there are some:`), h("ul", null, runs.map((each) => h("li", null, h("a", { href: address(each) }, `question ${visible(idOf(questions, each.question))}, run ${each.run}`))))] };
  const rows = all.filter((row) => row.question === wanted.question && row.run === wanted.run).sort((a, b) => a.row - b.row);
  const steps = frames(rows);
  const asked = questions.get(wanted.question);
  const total = (/** @type {string} */ name, /** @type {number} */ upTo) => steps.slice(0, upTo + 1).flat().reduce((sum, row) => sum + (row[name] ?? 0), 0);
  const last = steps.length - 1;
  let now = Math.min(last, Math.max(0, view.query.step === undefined || view.query.step === "" ? last : Number(view.query.step) || 0));
  let chosen = view.query.node === undefined ? null : Number(view.query.node);
  const drawing = h("div");
  const panel = h("section", { "aria-live": "polite" });
  const words = h("output", { for: "step" });
  const happened = h("ul");
  const draw = () => {
    const nodes = known(steps, now);
    refill(words, ` ${now + 1} of ${last + 1}: ${plural(total("requests", now), "request")}, ${plural(total("generated", now), "token")} drawn so far`);
    refill(happened, sentences(steps[now]).map((line) => h("li", null, line)));
    refill(drawing, tree(nodes, chosen, pick));
    refill(panel, chosen !== null && nodes.has(chosen) ? about(nodes, chosen, pieces, rows) : h("p.note", null, "Choose a text in the drawing, by pointer or by arrow keys: it is shown here with what the search knew of it."));
  };
  const pick = (/** @type {number} */ node) => {
    chosen = node;
    view.note({ node, step: now === last ? "" : now });
    draw();
    /** @type {HTMLElement | null} */ (drawing.querySelector(".tree"))?.focus({ preventScroll: true });
  };
  const go = (/** @type {number} */ step) => {
    now = Math.max(0, Math.min(last, step));
    slider.value = String(now);
    view.note({ step: now === last ? "" : now });
    draw();
  };
  const slider = /** @type {HTMLInputElement} */ (h("input", { type: "range", id: "step", min: 0, max: last, step: 1, value: now, "data-key": "step", input: (/** @type {any} */ event) => go(Number(event.target.value)) }));
  draw();
  const cut = rows.find((row) => row.kind === "cut");
  return {
    title,
    crumbs,
    keys: { l: () => go(now + 1), h: () => go(now - 1) },
    help: [["h  l", "one step back, one step on"], ["arrows", "in the drawing: to the text before, after, above, below"]],
    body: [
      h("p", null, `What the search of ${study.checkpointTitle(checkpoint)} did for this question, as it was recorded. It returned ${plural(rows.filter((row) => row.kind === "sample").length, "sample")} and took ${plural(total("requests", last), "request")} and ${plural(total("generated", last), "token")}.`),
      cut && h("p.warn", null, "The record is not whole: the search noted more than is kept of one run."),
      asked?.text && h("div.text", { tabindex: 0, role: "region", "aria-label": "Text of the question", dir: "auto" }, visible(asked.text)),
      others,
      h("div.controls", null, h("div.choice", null, h("label", { for: "step" }, "Step", words), slider)),
      legend(),
      h("div.columns", null, h("section", null, drawing, h("h2", null, "In this step"), happened), panel),
    ],
  };
}

function legend() {
  const mark = (/** @type {any} */ attributes) => s("svg", { width: 16, height: 14, "aria-hidden": "true" }, s("circle", { cx: 8, cy: 7, r: 5, stroke: "currentColor", ...attributes }));
  return h("ul.legend", null,
    h("li", null, mark({ fill: "var(--base)" }), "kept, accepted, or on the way to a sample"), h("li", null, mark({ fill: "none" }), "drawn"),
    h("li", null, mark({ fill: "none", "stroke-dasharray": "2 2" }), "dropped or rejected"),
    h("li", null, s("svg", { width: 16, height: 14, "aria-hidden": "true" }, s("rect", { x: 3, y: 2, width: 10, height: 10, fill: "none", stroke: "currentColor" })), "drawn to its end, or only to judge another text"),
    h("li", null, h("b", null, "★"), " a sample of the search"));
}

/**
 * @param {Map<number, import("../trace.js").TextNode>} every
 * @param {number | null} chosen
 * @param {(node: number) => void} pick
 */
function tree(every, chosen, pick) {
  const list = [...every.values()];
  const nodes = list.length > MOST ? new Map(list.slice(-MOST).map((each) => [each.node, each])) : every;
  const at = places(nodes);
  const spots = [...at.values()];
  const [depth, leaves] = [Math.max(0, ...spots.map((spot) => spot.x)), Math.max(1, ...spots.map((spot) => spot.y + 1))];
  const box = responsive((width) => {
    const dx = Math.max(24, Math.min(150, (width - 60) / (depth + 1)));
    const dy = leaves > 60 ? 13 : 22;
    const x = (/** @type {number} */ node) => 20 + (at.get(node)?.x ?? 0) * dx;
    const y = (/** @type {number} */ node) => 16 + (at.get(node)?.y ?? 0) * dy;
    const svg = s("svg", { width: 60 + (depth + (dx > 70 ? 1 : 0)) * dx, height: 32 + (leaves - 1) * dy, "font-size": 11, fill: "currentColor", "aria-hidden": "true" });
    for (const { node, parent, kept } of nodes.values()) {
      if (parent === null || !at.has(parent)) continue;
      const [x1, y1, x2, y2] = [x(parent), y(parent), x(node), y(node)];
      svg.append(s("path", { d: `M${x1},${y1}C${(x1 + x2) / 2},${y1} ${(x1 + x2) / 2},${y2} ${x2},${y2}`, fill: "none", stroke: nodes.get(node)?.onPath ? "var(--base)" : "var(--line)", "stroke-width": nodes.get(node)?.onPath ? 2 : 1, "stroke-dasharray": kept === false ? "3 2" : null }));
    }
    for (const each of nodes.values()) svg.append(dot(each, x(each.node), y(each.node), dx, each.node === chosen, pick));
    return svg;
  });
  box.classList.add("tree");
  for (const [name, value] of Object.entries({ tabindex: "0", role: "application", "data-key": "tree", "aria-label": `Drawing of ${plural(list.length, "text")}; arrow keys walk it` })) box.setAttribute(name, value);
  box.addEventListener("keydown", (event) => {
    const next = neighbour(nodes, at, chosen, event.key);
    if (next === null) return;
    event.preventDefault();
    event.stopPropagation();
    pick(next);
  });
  return h("div", null, list.length > MOST && h("p.note", null, `Drawn are the last ${MOST} of ${count(list.length)} texts.`), box);
}

/** @param {import("../trace.js").TextNode} each @param {number} x @param {number} y @param {number} dx @param {boolean} chosen @param {(node: number) => void} pick */
function dot(each, x, y, dx, chosen, pick) {
  const full = each.kept === true || each.onPath;
  const look = { fill: full ? "var(--base)" : "var(--ground)", stroke: "currentColor", "stroke-width": each.fresh ? 2 : 1, "stroke-dasharray": each.kept === false ? "2 2" : null };
  const mark = each.row.kind === "node" ? s("circle", { cx: x, cy: y, r: 5, ...look }) : s("rect", { x: x - 4.5, y: y - 4.5, width: 9, height: 9, ...look });
  const label = dx > 70 ? `${each.samples.length ? "★ " : ""}${isKnown(each.score) ? `${fixed(each.score, 2)} ` : ""}${visible((each.row.text ?? "").replaceAll("\n", " ")).slice(0, Math.floor((dx - 16) / 6.4))}` : each.samples.length ? "★" : "";
  return s("g", { "data-node": each.node, click: () => pick(each.node) },
    chosen && s("circle", { cx: x, cy: y, r: 9, fill: "none", stroke: "var(--focus)", "stroke-width": 3 }), mark, s("text", { x: x + 8, y: y + 4 }, label));
}

/**
 * @param {Map<number, import("../trace.js").TextNode>} nodes @param {Map<number, {x: number, y: number}>} at @param {number | null} from @param {string} key
 * @returns {number | null}
 */
function neighbour(nodes, at, from, key) {
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return null;
  const first = nodes.keys().next().value ?? null;
  if (from === null || !nodes.has(from)) return first;
  if (key === "ArrowLeft") return nodes.get(from)?.parent ?? from;
  const children = [...nodes.values()].filter((each) => each.parent === from);
  if (key === "ArrowRight") return children[0]?.node ?? from;
  const here = /** @type {{x: number, y: number}} */ (at.get(from));
  const column = [...at].filter(([, spot]) => spot.x === here.x).sort((a, b) => a[1].y - b[1].y).map(([node]) => node);
  return column[column.indexOf(from) + (key === "ArrowDown" ? 1 : -1)] ?? from;
}

/** What a step did. @param {import("../trace.js").Row[]} rows */
function sentences(rows) {
  const of = (/** @type {string} */ kind) => rows.filter((row) => row.kind === kind);
  const list = (/** @type {any[]} */ nodes) => nodes.slice(0, 12).map((node) => `#${node ?? "?"}`).join(", ") + (nodes.length > 12 ? ", …" : "");
  const lines = [];
  const drawn = of("node");
  const decided = drawn.filter((row) => row.accepted !== null);
  if (drawn.length) lines.push(`${plural(drawn.length, "text")} drawn: ${list(drawn.map((row) => row.node))}.`);
  for (const row of decided) lines.push(`Proposal #${row.node} ${row.accepted ? "accepted" : "rejected"}: log ratio ${fixed(row.log_ratio, 3)}, random number ${fixed(row.uniform, 3)}.`);
  for (const [kind, what] of [["end", "drawn to the end"], ["rollout", "drawn to judge others"]]) if (of(kind).length) lines.push(`${plural(of(kind).length, "text")} ${what}: ${list(of(kind).map((row) => row.node))}.`);
  for (const row of of("iteration")) lines.push(`Descent ${(row.nodes ?? []).map((/** @type {number} */ node) => `#${node}`).join(" → ")}, drawn on to #${row.node}.`);
  for (const row of of("scored")) lines.push(`Scored: ${(row.nodes ?? []).slice(0, 12).map((/** @type {number} */ node, /** @type {number} */ i) => `#${node ?? "?"} ${fixed(row.scores?.[i], 3)}`).join(", ")}${(row.nodes ?? []).length > 12 ? ", …" : ""}.`);
  for (const row of of("judged").slice(0, 12)) lines.push(`Judged #${row.node}: ${visible(row.detail ?? "")}`);
  for (const row of of("chosen")) lines.push(`Kept: ${list(row.nodes ?? [])}.`);
  for (const row of of("sample")) lines.push(`Sample ${row.sample}${row.node === null ? "" : ` is #${row.node}`}${isKnown(row.score) ? `, score ${fixed(row.score, 3)}` : ""}.`);
  for (const row of of("failed")) lines.push(`The search failed: ${visible(row.detail ?? "")}`);
  for (const row of of("cut")) lines.push(`The record ends here: ${visible(row.detail ?? "")}`);
  return lines;
}

/** @param {Map<number, import("../trace.js").TextNode>} nodes @param {number} node @param {any} pieces @param {import("../trace.js").Row[]} rows */
function about(nodes, node, pieces, rows) {
  const each = /** @type {import("../trace.js").TextNode} */ (nodes.get(node));
  const { row } = each;
  const text = whole(nodes, node, pieces);
  const facts = /** @type {[string, any][]} */ ([
    ["Grew from", each.parent === null ? "the prompt" : `#${each.parent}, of which it keeps ${plural(row.start ?? 0, "token")}`],
    ["Own tokens", row.tokens ? String(row.tokens.length) : null],
    ["Score", isKnown(each.score) ? fixed(each.score, 4) : null],
    ["Kept", each.kept === null || each.kept === undefined ? null : each.kept ? "yes" : "no"],
    ["Same text as", row.same_as === null ? null : `#${row.same_as}, which counts instead`],
    ["Rank of its forced token", row.rank], ["Entropy where it branched", isKnown(row.entropy) ? `${fixed(row.entropy, 3)} nats` : null],
    ["Share among its siblings", isKnown(row.prior) ? percent(row.prior) : null], ["Visits at the end", row.visits], ["Value at the end", isKnown(row.value) ? fixed(row.value, 3) : null],
    ["Log of the acceptance ratio", isKnown(row.log_ratio) ? signed(row.log_ratio, 4) : null], ["Random number", isKnown(row.uniform) ? fixed(row.uniform, 4) : null],
    ["Mean log-probability", row.logp?.length ? fixed(row.logp.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0) / row.logp.length, 3) : null],
    ["End", { stop: "ended by itself", length: "cut off at the token limit" }[/** @type {string} */ (row.finish)] ?? null],
    ["Became", each.samples.length ? each.samples.map((sample) => `sample ${sample}`).join(", ") : null],
    ["More", row.detail === null ? null : visible(row.detail)],
    ...rows.filter((other) => other.kind === "judged" && other.node === node).slice(0, 5).map((other) => ["Judged by", visible(other.detail ?? "")]),
  ]);
  return [
    h("h2", null, `Text #${node}`),
    h("dl.facts", null, facts.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [h("dt", null, name), h("dd", null, String(value))])),
    h("div.text", { tabindex: 0, role: "region", "aria-label": `Text ${node}`, dir: "auto" },
      text ? [h("span.note", null, visible(text.kept)), h("b", null, visible(text.own))] : [h("span.note", null, "… "), h("b", null, visible(row.text ?? ""))]),
    h("p.note", null, text ? "Pale: what it keeps of the text before; bold: its own tokens." : "Its own tokens alone: the texts of the tokens before are not known here."),
  ];
}
