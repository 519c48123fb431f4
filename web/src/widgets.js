/** Parts that several pages have: choices, tables, legends, lists that are long. */

import { h, refill } from "./dom.js";

/**
 * A labelled choice.
 * @param {string} label
 * @param {[string, string][]} options value and words
 * @param {string} value
 * @param {(value: string) => void} change
 */
export function choice(label, options, value, change) {
  const id = `choice-${label.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  const select = h(
    "select", { id, "data-key": `choice ${label}`, change: (/** @type {any} */ event) => change(event.target.value) },
    options.map(([name, words]) => h("option", { value: name, selected: name === value }, words)),
  );
  return h("div.choice", null, h("label", { for: id }, label), select);
}

/**
 * Buttons of which any number are pressed.
 * @param {string} label
 * @param {{value: string, words: string, mark?: Node, pressed: boolean}[]} options
 * @param {(value: string) => void} toggle
 */
export function toggles(label, options, toggle) {
  return h(
    "div.toggles", { role: "group", "aria-label": label },
    options.map(({ value, words, mark, pressed }) =>
      h("button", { type: "button", "aria-pressed": String(pressed), "data-key": `toggle ${label} ${value}`, click: () => toggle(value) }, mark, words)),
  );
}

/**
 * @typedef {object} Column
 * @property {string} name
 * @property {string} [title]
 * @property {boolean} [number] aligned to the right
 * @property {(row: any) => any} [cell] text, number, or a node
 * @property {(row: any) => any} [key] what rows are sorted by; the cell if not given
 */

/**
 * A table that scrolls inside itself and, with `sort`, is sorted by its heads.
 * @param {Column[]} columns
 * @param {any[]} list
 * @param {{caption?: string, sort?: string, resort?: (sort: string) => void, limit?: number, row?: (row: any) => Record<string, any>}} [options]
 *   sort: name of a column, with a minus before it for the largest first
 */
export function table(columns, list, options = {}) {
  const { caption, sort = "", resort, limit = 200 } = options;
  const by = columns.find((column) => column.name === sort.replace(/^-/, ""));
  const sorted = by ? ordered(list, by.key ?? value(by), sort.startsWith("-")) : list;
  const head = columns.map((column) => {
    const title = column.title ?? column.name;
    if (!resort) return h("th", { scope: "col", class: column.number ? "number" : null }, title);
    const now = by === column ? (sort.startsWith("-") ? "descending" : "ascending") : "none";
    const next = now === "ascending" ? `-${column.name}` : column.name;
    const arrow = now === "none" ? "" : now === "ascending" ? " ▲" : " ▼";
    return h(
      "th", { scope: "col", "aria-sort": now, class: column.number ? "number" : null },
      h("button.sort", { type: "button", "data-key": `sort ${column.name}`, click: () => resort(next) }, title + arrow),
    );
  });
  const body = h("tbody");
  const more = h("p.more");
  const add = (/** @type {number} */ from) => {
    const upTo = Math.min(sorted.length, from + limit);
    for (const row of sorted.slice(from, upTo)) body.append(line(columns, row, options.row?.(row)));
    refill(more, upTo < sorted.length && h(
      "button", { type: "button", click: () => add(upTo) }, `Show ${Math.min(limit, sorted.length - upTo)} more of ${sorted.length} rows`,
    ));
  };
  add(0);
  return h(
    "div.tablebox", null,
    h("div.wide", { tabindex: 0, role: "region", "aria-label": caption ?? "Table" },
      h("table", null, caption && h("caption", null, caption), h("thead", null, h("tr", null, head)), body)),
    more,
  );
}

/** @param {Column} column */
function value(column) {
  return (/** @type {any} */ row) => (column.cell ? column.cell(row) : row[column.name]);
}

/** @param {Column[]} columns @param {any} row @param {Record<string, any>} [attributes] */
function line(columns, row, attributes) {
  return h("tr", attributes ?? null, columns.map((column, i) => {
    const shown = value(column)(row);
    return h(i === 0 ? "th" : "td", { class: column.number ? "number" : null, scope: i === 0 ? "row" : null }, shown ?? "–");
  }));
}

/** @param {any[]} list @param {(row: any) => any} key @param {boolean} down */
function ordered(list, key, down) {
  const sign = down ? -1 : 1;
  const empty = (/** @type {any} */ x) => x === null || x === undefined || x === "" || Number.isNaN(x);
  return [...list].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (empty(x) || empty(y)) return Number(empty(x)) - Number(empty(y));
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    return sign * String(x).localeCompare(String(y), "en", { numeric: true });
  });
}

/** Browsers draw no element that is taller than some 17 million pixels. */
const TALLEST = 8_000_000;

/**
 * A list of any length of which only what can be seen is in the page. Where it is taller than an element can be, a drag of the
 * bar goes to the row in proportion, and steps of a wheel or a key go as far as elsewhere: the bar follows when they end.
 * @param {object} options
 * @param {number} options.length
 * @param {number} options.height of a row, in pixels
 * @param {number} [options.rows] rows that are seen at a time
 * @param {(i: number) => Node} options.row
 * @param {string} options.label
 * @param {number} [options.at] row that is in sight at first
 */
export function windowed({ length, height, rows = 12, row, label, at = 0 }) {
  const view = Math.min(rows, length) * height;
  const box = h("div.windowed", { tabindex: 0, role: "list", "aria-label": label, style: `height: ${view}px` });
  const [most, tallest] = [length * height - view, Math.min(length * height, TALLEST)];
  const inner = h("div", { role: "presentation", style: `height: ${tallest}px; position: relative` });
  box.append(inner);
  /** Pixels of the bar for one of the list, and how far the list and the bar are. */
  const scale = most > 0 ? (tallest - view) / most : 1;
  let [exact, seen] = [0, 0];
  const draw = () => {
    const first = Math.max(0, Math.floor(exact / height) - 10);
    const last = Math.min(length, first + rows + 20);
    const focused = document.activeElement?.getAttribute("data-row");
    const list = [];
    for (let i = first; i < last; i++) {
      list.push(h("div.windowrow", { role: "listitem", "aria-posinset": i + 1, "aria-setsize": length, style: `top: ${i * height - exact + seen}px; height: ${height}px` }, row(i)));
    }
    refill(inner, list);
    if (focused) /** @type {HTMLElement | null} */ (inner.querySelector(`[data-row="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
  };
  const moved = () => {
    const by = box.scrollTop - seen;
    if (!by) return;
    seen = box.scrollTop;
    const isStep = scale < 1 && Math.abs(by) < 2 * view && seen > 0 && seen < tallest - view - 1;
    exact = isStep ? Math.max(0, Math.min(most, exact + by)) : Math.min(most, seen / scale);
    draw();
  };
  const settled = () => {
    if (scale === 1 || Math.abs(exact * scale - seen) < 1) return;
    box.scrollTop = exact * scale;
    seen = box.scrollTop;
    draw();
  };
  box.addEventListener("scroll", () => requestAnimationFrame(moved), { passive: true });
  box.addEventListener("scrollend", () => requestAnimationFrame(settled), { passive: true });
  draw();
  if (at) requestAnimationFrame(() => { box.scrollTop = Math.max(0, (at - 2) * height * scale); });
  return box;
}

/** A link that looks as what it is. @param {string} href @param {...any} children */
export function to(href, ...children) {
  return h("a", { href }, ...children);
}

/** A disclosure of what only some readers want. @param {string} title @param {...any} children */
export function details(title, ...children) {
  return h("details", null, h("summary", null, title), ...children);
}

/**
 * A file that is saved from here.
 * @param {string} words
 * @param {string} name
 * @param {() => Promise<string> | string} content
 */
export function download(words, name, content) {
  return h("button", {
    type: "button",
    click: async () => {
      const address = URL.createObjectURL(new Blob([await content()], { type: "text/csv;charset=utf-8" }));
      h("a", { href: address, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    },
  }, words);
}
