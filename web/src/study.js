/** The study as `index.json` describes it, and its frames, read when they are asked for. */

import { rows } from "./parquet.js";
import { json, source } from "./source.js";

/**
 * @typedef {Record<string, any>} Row
 * @typedef {{name: string, title: string, family: string, family_title?: string, controller?: string | null, parameters?: Row,
 *   colour: string, marker: string, search: boolean}} Policy
 * @typedef {{checkpoint: string, source: string, policies: string[], samples: Record<string, number>,
 *   files: Record<string, string>, shards?: Record<string, Row[]>, excerpt?: string, traces?: Record<string, string>}} Side
 * @typedef {{pair: string, benchmark: string, sentences: string[], health: {state: string, sentences: string[]},
 *   headline: Row, base: Side, rl: Side, files: Record<string, string>, solved?: Row, [more: string]: any}} Cell
 * @typedef {{name: string, title: string, questions: number, withheld: string, [more: string]: any}} Benchmark
 */

export class Study {
  /** @param {any} index @param {import("./source.js").Source} files */
  constructor(index, files) {
    this.index = index;
    this.files = files;
    /** @type {Map<string, Policy>} */
    this.policies = new Map(index.policies.map((/** @type {Policy} */ each) => [each.name, each]));
    /** @type {Map<string, Promise<Row[]>>} */
    this.frames = new Map();
    /** @type {Map<string, Promise<any>>} */
    this.documents = new Map();
  }

  static async open() {
    const files = source();
    return new Study(await json(files, "index.json"), files);
  }

  get ranges() {
    return this.index.source === "range";
  }

  /** Nominal coverage of the intervals, as "95%". */
  get coverage() {
    return `${Math.round(100 * (this.index.confidence ?? 0.95))}%`;
  }

  /** @returns {Cell[]} */
  get cells() {
    return this.index.cells;
  }

  /** @param {string} pair @param {string} benchmark @returns {Cell | undefined} */
  cell(pair, benchmark) {
    return this.cells.find((each) => each.pair === pair && each.benchmark === benchmark);
  }

  /** @param {string} name @returns {Benchmark} */
  benchmark(name) {
    return this.index.benchmarks.find((/** @type {Benchmark} */ each) => each.name === name) ?? { name, title: name, questions: 0, withheld: "" };
  }

  /** @param {string} name */
  pairTitle(name) {
    return this.index.pairs.find((/** @type {Row} */ each) => each.name === name)?.title ?? name;
  }

  /** @param {string} name */
  checkpointTitle(name) {
    return this.index.checkpoints[name]?.title ?? name;
  }

  /** @param {string} name */
  policyTitle(name) {
    return this.policies.get(name)?.title ?? name;
  }

  /** By family. @param {string[]} names */
  ordered(names) {
    return [...this.policies.keys()].filter((name) => names.includes(name));
  }

  /** @param {string} name */
  metricTitle(name) {
    return this.index.metrics.find((/** @type {Row} */ each) => each.name === name)?.title ?? name;
  }

  /**
   * Rows of a frame, read once and kept.
   * @param {string | undefined} path nothing for a frame that the study has not
   * @param {string[]} [columns]
   * @returns {Promise<Row[]>}
   */
  frame(path, columns) {
    if (!path) return Promise.resolve([]);
    const key = columns ? `${path} ${columns.join()}` : path;
    let frame = this.frames.get(key);
    if (!frame) {
      frame = this.files(path).then((file) => rows(file, { columns }));
      frame.catch(() => this.frames.delete(key));
      this.frames.set(key, frame);
      this.forget();
    }
    return frame;
  }

  /** Keep the frames read last: a long walk through a large study must not fill the memory. */
  forget() {
    while (this.frames.size > 40) this.frames.delete(/** @type {string} */ (this.frames.keys().next().value));
  }

  /**
   * Some rows of a file, not kept.
   * @param {string} path
   * @param {{columns?: string[], rowStart?: number, rowEnd?: number}} options
   */
  async part(path, options) {
    return rows(await this.files(path), options);
  }

  /** @param {string} path @returns {Promise<any>} */
  document(path) {
    let found = this.documents.get(path);
    if (!found) {
      found = json(this.files, path);
      found.catch(() => this.documents.delete(path));
      this.documents.set(path, found);
    }
    return found;
  }

  /** Questions of a benchmark by their position; none if their file was moved since. @param {string} name @returns {Promise<Map<number, Row>>} */
  async questions(name) {
    const rows = await this.frame(this.benchmark(name).file).catch(() => []);
    return new Map(rows.map((row) => [row.question, row]));
  }
}

/**
 * Rows whose columns have these values.
 * @param {Row[]} frame
 * @param {Row} values
 */
export function pick(frame, values) {
  const wanted = Object.entries(values);
  return frame.filter((row) => wanted.every(([name, value]) => row[name] === value));
}

/**
 * Rows by the value of a column, in the order in which values occur.
 * @template T
 * @param {T[]} list
 * @param {(item: T) => any} key
 * @returns {Map<any, T[]>}
 */
export function groups(list, key) {
  const found = new Map();
  for (const item of list) {
    const value = key(item);
    const group = found.get(value);
    if (group) group.push(item);
    else found.set(value, [item]);
  }
  return found;
}
