// Prints the rows of Parquet files as JSON, as the page reads them: node rows.mjs FILE ...
import { readFile } from "node:fs/promises";
import { rows } from "../src/parquet.js";

const found = {};
for (const path of process.argv.slice(2)) {
  const { buffer, byteOffset, byteLength } = await readFile(path);
  const bytes = buffer.slice(byteOffset, byteOffset + byteLength);
  const file = { byteLength, slice: async (start, end) => bytes.slice(start, end) };
  const all = await rows(file);
  const part = await rows(file, { rowStart: Math.floor(all.length / 2), rowEnd: all.length });
  found[path] = { all, part };
}
const plain = (_, value) => (typeof value === "bigint" ? String(value) : ArrayBuffer.isView(value) ? [...value] : Number.isNaN(value) ? "NaN" : value === -Infinity ? "-Infinity" : value);
console.log(JSON.stringify(found, plain));
