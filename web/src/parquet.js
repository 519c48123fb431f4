/** Parquet as rows of plain values. Files are written with Zstandard, which browsers do not decompress themselves. */

import { decompress } from "fzstd";
import { parquetMetadataAsync, parquetReadObjects } from "hyparquet";

const FOOTER = 1 << 16;
const compressors = { ZSTD: (/** @type {Uint8Array} */ bytes, /** @type {number} */ size) => decompress(bytes, new Uint8Array(size)) };

/** @type {WeakMap<object, Promise<any>>} */
const footers = new WeakMap();

/** @param {import("./source.js").File} file */
function footer(file) {
  let known = footers.get(file);
  if (!known) {
    known = parquetMetadataAsync(file, { initialFetchSize: FOOTER, geoparquet: false });
    footers.set(file, known);
  }
  return known;
}

/**
 * Rows of a file, all or a range of them, with some of the columns. Of a range, only the pages that hold it are fetched.
 * @param {import("./source.js").File} file
 * @param {{columns?: string[], rowStart?: number, rowEnd?: number}} [options] columns that the file lacks are left out
 * @returns {Promise<Record<string, any>[]>}
 */
export async function rows(file, options = {}) {
  const metadata = await footer(file);
  const present = metadata.schema.slice(1).map((/** @type {{name: string}} */ each) => each.name);
  const columns = options.columns?.filter((name) => present.includes(name));
  if (metadata.num_rows === 0n) return [];
  const found = await parquetReadObjects({ ...options, columns, file, metadata, compressors, useOffsetIndex: true });
  return found.map(plain);
}

/**
 * Number of rows of a file.
 * @param {import("./source.js").File} file
 */
export async function length(file) {
  return Number((await footer(file)).num_rows);
}

/** @param {Record<string, any>} row */
function plain(row) {
  for (const name in row) {
    const value = row[name];
    if (value === undefined) row[name] = null;
    else if (typeof value === "bigint") row[name] = Number.isSafeInteger(Number(value)) ? Number(value) : value;
  }
  return row;
}
