/** Where the numbers come from: versions, machines, times, files and their hashes, and what sampling took. */

import { csv } from "../csv.js";
import { h, visible } from "../dom.js";
import { text } from "../source.js";
import { details, table } from "../widgets.js";
import { shown } from "./tables.js";

/**
 * @param {import("../study.js").Study} study
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function origins(study, view) {
  const { origins: found = {}, made = {}, checkpoints = {} } = study.index;
  const rows = found.rows ?? [];
  const columns = [...new Set(rows.flatMap((/** @type {any} */ row) => Object.keys(row)))];
  const costs = found.costs ? csv(await text(study.files, found.costs)) : [];
  const words = (/** @type {any} */ value) => (value === null || value === undefined ? null : visible(typeof value === "object" ? JSON.stringify(value) : value));
  return {
    title: "Where the numbers come from",
    body: [
      h("dl.facts", null, Object.entries({ searchlens: made.searchlens, commit: made.commit, "this page was made": made.when, configuration: made.fingerprint }).filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, visible(value))])),
      h("h2", null, "Models"),
      table([
        { name: "name", title: "checkpoint" }, { name: "title" }, { name: "side", cell: (row) => (row.side === "rl" ? "RL" : "Base") }, { name: "pair" },
        { name: "parameters", number: true, cell: (row) => (row.parameters ? row.parameters.toLocaleString("en-US") : "not stated") },
      ], Object.entries(checkpoints).map(([name, each]) => ({ name, .../** @type {any} */ (each) }))),
      costs.length > 1 && [
        h("h2", null, "What sampling took"),
        table(costs[0].map((head, i) => ({ name: String(i), title: head.replaceAll("_", " "), number: i > 0, cell: (row) => shown(row[i]), key: (row) => row[i] })), costs.slice(1)),
      ],
      rows.length > 0 && [
        h("h2", null, "Files and runs"),
        table(columns.map((name) => ({ name, title: name.replaceAll("_", " "), cell: (row) => words(row[name]), key: (row) => row[name] })), rows, { sort: view.query.sort, resort: (sort) => view.set({ sort }) }),
      ],
      details("The policies in full", table([
        { name: "name" }, { name: "title" }, { name: "family", cell: (row) => row.family_title ?? row.family }, { name: "controller" },
        { name: "parameters", cell: (row) => h("code", null, visible(JSON.stringify(row.parameters ?? {}))) },
      ], [...study.policies.values()])),
    ],
  };
}
