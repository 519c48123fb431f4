/** The tree or chain of a search. */

import { h } from "../dom.js";

/**
 * @param {import("../study.js").Study} study
 * @param {string[]} path checkpoint, benchmark, policy, question, run
 * @param {import("../main.js").View} view
 * @returns {Promise<import("../main.js").Page>}
 */
export async function search(study, path, view) {
  return { title: "Search", body: [h("p", null, path.join(" "), view.path.length, study.coverage)] };
}
