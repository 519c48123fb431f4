/** The study's tables: their notes, sorted as one likes, and as the CSV they are. */

import { csv } from "../csv.js";
import { h, visible } from "../dom.js";
import { link } from "../route.js";
import { text } from "../source.js";
import { download, table } from "../widgets.js";

/**
 * @param {import("../study.js").Study} study
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function tables(study, view) {
  const words = (view.query.find ?? "").toLowerCase();
  const list = study.index.tables.filter((/** @type {any} */ each) => `${each.name} ${each.title} ${each.caption.join(" ")}`.toLowerCase().includes(words));
  return {
    title: "Tables",
    body: [
      h("div.controls", null, h("label.choice", null, h("span", null, "Search in titles and captions"), h("input", {
        type: "search", value: view.query.find ?? "", "data-key": "find", change: (/** @type {any} */ event) => view.set({ find: event.target.value }),
      }))),
      list.length ? h("ul", null, list.map((/** @type {any} */ each) => h("li", null, h("a", { href: link(["t", each.name]) }, each.title), each.caption.length > 0 && h("span.note", null, ` ${sentence(each.caption[0])}`))))
        : h("p", null, "No table has such words in its title or caption."),
    ],
  };
}

/**
 * @param {import("../study.js").Study} study
 * @param {string} name
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function oneTable(study, name, view) {
  const entry = study.index.tables.find((/** @type {any} */ each) => each.name === name);
  if (!entry) return { title: "Not found", crumbs: [["Tables", "#/tables"]], body: [h("p", null, `The study has no table ${visible(name)}.`)] };
  const content = await text(study.files, entry.csv);
  const [heads, ...rows] = csv(content);
  const numeric = heads.map((_, i) => rows.some((row) => row[i] !== "") && rows.every((row) => row[i] === "" || Number.isFinite(Number(row[i]))));
  const words = (view.query.find ?? "").toLowerCase();
  const found = words ? rows.filter((row) => row.some((part) => part.toLowerCase().includes(words))) : rows;
  const pairs = [heads.findIndex((head) => head === "pair" || head === "model"), heads.indexOf("benchmark")];
  const cell = (/** @type {string[]} */ row, /** @type {number} */ i) => {
    const target = i === pairs[1] && pairs[0] >= 0 && study.cell(row[pairs[0]], row[i]);
    if (target) return h("a", { href: link(["c", target.pair, target.benchmark]) }, visible(row[i]));
    return numeric[i] ? shown(row[i]) : visible(row[i]);
  };
  return {
    title: entry.title,
    crumbs: [["Tables", "#/tables"]],
    body: [
      ...entry.caption.map((/** @type {string} */ paragraph) => h("p", null, paragraph)),
      ...(entry.notes ?? []).map((/** @type {string} */ note) => h("p.note", null, note)),
      h("div.controls", null,
        h("label.choice", null, h("span", null, "Search in rows"), h("input", {
          type: "search", value: view.query.find ?? "", "data-key": "find", change: (/** @type {any} */ event) => view.set({ find: event.target.value }),
        })),
        download("Save as CSV", `${name}.csv`, () => content)),
      table(heads.map((head, i) => ({
        name: String(i), title: head, number: numeric[i], cell: (row) => cell(row, i), key: (row) => (numeric[i] ? (row[i] === "" ? null : Number(row[i])) : row[i]),
      })), found, { sort: view.query.sort, resort: (sort) => view.set({ sort }) }),
    ],
  };
}

/** What a caption begins with. @param {string} paragraph */
function sentence(paragraph) {
  return paragraph.split(/(?<=[.?!]) /)[0];
}

/** Six digits are enough to read; the file has all of them. @param {string} text */
export function shown(text) {
  if (text === "" || !/[.e]/i.test(text)) return text;
  return Number.isNaN(Number(text)) ? text : String(Number(Number(text).toPrecision(6))).replace("-", "\u2212");
}
