/** The shell: which page an address asks for, what stands around it, and the keys that work everywhere. */

import { h, refill } from "./dom.js";
import { boptr } from "./pages/boptr.js";
import { cell } from "./pages/cell.js";
import { equivalents } from "./pages/equivalents.js";
import { origins } from "./pages/origins.js";
import { question } from "./pages/question.js";
import { questions } from "./pages/questions.js";
import { recovery } from "./pages/recovery.js";
import { search } from "./pages/search.js";
import { overview } from "./pages/overview.js";
import { oneTable, tables } from "./pages/tables.js";
import { link, parse } from "./route.js";
import { json, source } from "./source.js";
import { Study } from "./study.js";

/**
 * @typedef {object} Page
 * @property {string} title
 * @property {[string, string][]} [crumbs] words and address of what lies above
 * @property {import("./dom.js").Child[]} body
 * @property {Record<string, () => void>} [keys] what single keys do on this page
 * @property {[string, string][]} [help] those keys in words
 */

/**
 * @typedef {object} View
 * @property {string[]} path
 * @property {Record<string, string>} query
 * @property {(query: Record<string, any>) => string} href address of this page with other values
 * @property {(query: Record<string, any>) => void} set go to it
 * @property {(query: Record<string, any>) => void} note write it to the address without drawing again
 */

const MAIN = /** @type {[string, string[]][]} */ ([["Study", []], ["BOPTR", ["boptr"]], ["Tables", ["tables"]], ["Origins", ["o"]]]);
const OF_CELL = /** @type {[string, string[]][]} */ ([
  ["Landscape", []], ["Recovery", ["recovery"]], ["Budgets", ["equivalents"]], ["Questions", ["q"]],
]);

/**
 * @param {Study} study
 * @param {View} view
 * @returns {Promise<Page>}
 */
async function page(study, view) {
  const [first, ...rest] = view.path;
  if (first === undefined) return overview(study, view);
  if (first === "c" && rest.length >= 2) {
    const found = study.cell(rest[0], rest[1]);
    if (!found) return missing(`The study has no cell of ${rest[0]} on ${rest[1]}.`);
    if (rest[2] === undefined) return cell(study, found, view);
    if (rest[2] === "recovery") return recovery(study, found, view);
    if (rest[2] === "equivalents") return equivalents(study, found, view);
    if (rest[2] === "q" && rest[3] === undefined) return questions(study, found, view);
    if (rest[2] === "q") return question(study, found, rest[3], view);
  }
  if (first === "s" && rest.length >= 5) return search(study, rest, view);
  if (first === "boptr") return boptr(study, view);
  if (first === "tables") return tables(study, view);
  if (first === "t" && rest[0]) return oneTable(study, rest[0], view);
  if (first === "o") return origins(study, view);
  return missing("There is no such page.");
}

/** @param {string} words @returns {Page} */
function missing(words) {
  return { title: "Not found", body: [h("p", null, words, " ", h("a", { href: "#/" }, "To the study"))] };
}

/** Milliseconds between two looks at a run. */
const EVERY = 3000;

class Shell {
  /** @param {Study} study */
  constructor(study) {
    this.study = study;
    this.shown = "";
    this.turn = 0;
    /** @type {string | undefined} */
    this.made = undefined;
    /** @type {Record<string, () => void>} */
    this.keys = {};
    /** @type {[string, string][]} */
    this.help = [];
    /** @type {Map<string, number>} */
    this.heights = new Map();
    this.head = h("header", null);
    this.main = h("main", { id: "main", tabindex: -1 });
    this.notes = h("dialog", { "aria-label": "Keys" });
    const skip = h("a.skip", { href: "#main", click: (/** @type {Event} */ event) => { event.preventDefault(); this.main.focus(); } }, "To the content");
    refill(document.body, skip, this.head, this.main, this.footer(), this.notes);
    history.scrollRestoration = "manual";
    addEventListener("hashchange", () => this.draw());
    addEventListener("scroll", () => this.heights.set(this.hash, scrollY), { passive: true });
    addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.hash = "";
    this.live = h("div", null, study.index.running && h("p", { role: "status" }, h("strong", null, study.index.running)));
    this.draw();
    if (study.ranges) this.follow();
  }

  /** Say what a run draws, and take the study anew when there is more of it: the first page is drawn again. */
  async follow() {
    const now = await json(source(), "progress.json").catch(() => null);
    this.made ??= now?.index;
    const study = now && now.index !== this.made ? await Study.open().catch(() => null) : null;
    if (now && study) {
      [this.study, this.made] = [study, now.index];
      if (!parse(location.hash).path.length) this.draw();
    }
    refill(this.live, now?.words && h("p.note", null, h("progress", { value: now.share, "aria-label": "Samples drawn" }), ` ${now.words}`));
    setTimeout(() => this.follow(), now?.words ? EVERY : 5 * EVERY);
  }

  async draw() {
    const turn = ++this.turn;
    const hash = location.hash || "#/";
    const { path, query } = parse(hash);
    const same = this.shown === path.join("\n");
    const href = (/** @type {Record<string, any>} */ more) => link(path, { ...parse(location.hash).query, ...more });
    const view = {
      path, query, href,
      set: (/** @type {Record<string, any>} */ more) => { location.hash = href(more); },
      note: (/** @type {Record<string, any>} */ more) => { history.replaceState(null, "", href(more)); this.hash = location.hash; },
    };
    const wait = setTimeout(() => turn === this.turn && this.main.setAttribute("aria-busy", "true"), 200);
    /** @type {Page} */
    let drawn;
    try {
      drawn = await page(this.study, view);
    } catch (error) {
      console.warn(error);
      drawn = { title: "This page could not be drawn", body: [h("p.bad", { role: "alert" }, String(error instanceof Error ? error.message : error)), h("p", null, "What it needs could not be read. Was the file or the folder changed or moved since this page was opened? Reload to try again.")] };
    }
    clearTimeout(wait);
    if (turn !== this.turn) return;
    this.show(drawn, view, hash, same);
  }

  /** @param {Page} drawn @param {View} view @param {string} hash @param {boolean} same */
  show(drawn, view, hash, same) {
    const focused = document.activeElement?.getAttribute("data-key");
    const height = scrollY;
    this.main.removeAttribute("aria-busy");
    this.keys = drawn.keys ?? {};
    this.help = drawn.help ?? [];
    const heading = h("h1", { tabindex: -1 }, drawn.title);
    document.title = `${drawn.title} · ${this.study.index.title ?? "searchlens"}`;
    refill(this.head, this.menu(view));
    refill(this.main, crumbs(drawn.crumbs), this.cellMenu(view), heading, this.live, drawn.body);
    this.hash = hash;
    if (same) {
      scrollTo(0, height);
      const element = focused && document.querySelector(`[data-key="${CSS.escape(focused)}"]`);
      if (element instanceof HTMLElement) element.focus({ preventScroll: true });
    } else {
      scrollTo(0, this.heights.get(hash) ?? 0);
      if (this.shown) heading.focus({ preventScroll: true });
    }
    this.shown = view.path.join("\n");
    document.documentElement.setAttribute("data-drawn", hash);
  }

  /** @param {View} view */
  menu(view) {
    const here = (/** @type {string[]} */ path) => (path[0] ?? "") === (view.path[0] ?? "") || (path[0] === "tables" && view.path[0] === "t");
    return h(
      "nav", { "aria-label": "Pages" },
      MAIN.map(([words, path]) => h("a", { href: link(path), "aria-current": here(path) ? "page" : null }, words)),
      h("span.space", null),
      h("button", { type: "button", "data-key": "copy", click: (/** @type {any} */ event) => copy(event.currentTarget) }, "Copy link"),
      h("button", { type: "button", "data-key": "help", "aria-haspopup": "dialog", click: () => this.openHelp() }, "Keys"),
    );
  }

  /** @param {View} view */
  cellMenu(view) {
    const [kind, pair, benchmark, part = ""] = view.path;
    if (kind !== "c" || !this.study.cell(pair, benchmark)) return null;
    const keep = { m: view.query.m };
    return h(
      "nav.parts", { "aria-label": "This pair on this benchmark" },
      OF_CELL.map(([words, path]) =>
        h("a", { href: link(["c", pair, benchmark, ...path], keep), "aria-current": part === (path[0] ?? "") ? "page" : null }, words)),
    );
  }

  footer() {
    const { made = {}, left_out: leftOut = [] } = this.study.index;
    return h(
      "footer", null,
      leftOut.length > 0 && h("details", { open: leftOut.length < 3 }, h("summary", null, "What this page leaves out"), h("ul", null, leftOut.map((/** @type {string} */ line) => h("li", null, line)))),
      h("p.note", null, `searchlens ${made.searchlens ?? ""}${made.commit ? ` (${made.commit.replace(/^([0-9a-f]{12})[0-9a-f]*/, "$1")})` : ""}${made.when ? `, ${made.when}` : ""}${made.fingerprint ? `, configuration ${made.fingerprint}` : ""}`),
    );
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.altKey || event.metaKey || this.notes.hasAttribute("open")) return;
    if (event.key === "Escape" && target.matches("input, select, textarea")) return target.blur();
    if (target.matches("input, select, textarea")) return;
    const { path } = parse(location.hash);
    if (event.key === "Escape" && path.length) location.hash = this.main.querySelector("nav.crumbs a:last-of-type")?.getAttribute("href") ?? "#/";
    else if (event.key === "?") this.openHelp();
    else if (event.key === "/") /** @type {HTMLElement | null} */ (this.main.querySelector('input[type="search"]'))?.focus();
    else if (this.keys[event.key]) this.keys[event.key]();
    else if (/^[1-9]$/.test(event.key)) this.numbered(Number(event.key));
    else return;
    event.preventDefault();
  }

  /** @param {number} number */
  numbered(number) {
    const links = [...document.querySelectorAll("header nav a"), ...document.querySelectorAll("nav.parts a")];
    const found = links[number - 1]?.getAttribute("href");
    if (found) location.hash = found;
  }

  openHelp() {
    const keys = /** @type {[string, string][]} */ ([
      ["1 … 9", "the pages at the top, from left to right"], ["Esc", "one level up"], ["/", "search, where there is a search field"],
      ["arrows", "walk the marks of a chart that has the focus"], ["?", "these keys"], ...this.help,
    ]);
    const dialog = /** @type {HTMLDialogElement} */ (this.notes);
    refill(
      dialog, h("h2", null, "Keys"),
      h("dl.keys", null, keys.map(([key, words]) => [h("dt", null, h("kbd", null, key)), h("dd", null, words)])),
      h("button", { type: "button", click: () => dialog.close() }, "Close"),
    );
    dialog.showModal();
  }
}

/** @param {[string, string][] | undefined} list */
function crumbs(list) {
  if (!list?.length) return null;
  return h("nav.crumbs", { "aria-label": "Above this page" }, list.map(([words, href]) => [h("a", { href }, words), h("span", { "aria-hidden": "true" }, " › ")]));
}

/** @param {HTMLElement} button */
async function copy(button) {
  let words = "Copied";
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    words = "Not allowed: take it from the address bar";
  }
  button.textContent = words;
  setTimeout(() => { button.textContent = "Copy link"; }, 2000);
}

Study.open().then((study) => new Shell(study)).catch((error) => {
  refill(document.body, h("main", null, h("h1", null, "The explorer could not be opened"), h("p.bad", { role: "alert" }, String(error.message ?? error))));
});
