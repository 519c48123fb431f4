/**
 * Where bytes come from: from elements of this page, or from the server that sent it, by ranges.
 */

/**
 * @typedef {object} File
 * @property {number} byteLength
 * @property {(start: number, end?: number) => Promise<ArrayBuffer>} slice
 */

/** @typedef {(path: string) => Promise<File>} Source */

/** A file of so many bytes is fetched whole: asking for its parts would take longer. */
const SMALL = 1 << 18;

/** So many bytes at the end of a file are fetched first: they come with its size, and are the footer and the indexes of Parquet. */
const TAIL = 1 << 16;

/** So many bytes between two ranges are fetched with them. */
const NEAR = 1 << 14;

/** Whether a server has the files: the page says so until it is drawn. @type {boolean | undefined} */
let served;

/**
 * The source of this page, which keeps what it has read.
 * @returns {Source}
 */
export function source() {
  served ??= document.querySelector('meta[name="searchlens-source"][content="range"]') !== null;
  const open = served ? remote : inlined();
  /** @type {Map<string, Promise<File>>} */
  const files = new Map();
  return (path) => {
    const known = files.get(path);
    if (known) return known;
    const file = open(path);
    files.set(path, file);
    file.catch(() => files.delete(path));
    return file;
  };
}

/** Files of the page's elements, which are taken out of it: what is drawn takes their place. @returns {Source} */
function inlined() {
  const elements = new Map([...document.querySelectorAll("script[data-path]")].map((each) => [each.getAttribute("data-path"), each]));
  for (const element of elements.values()) element.remove();
  return async (path) => {
    const element = elements.get(path);
    if (!element) throw new Error(`This page has no file ${path}.`);
    return inMemory(decoded(element.textContent ?? "").buffer);
  };
}

/**
 * @param {ArrayBuffer} buffer
 * @returns {File}
 */
function inMemory(buffer) {
  return { byteLength: buffer.byteLength, slice: async (start, end) => buffer.slice(start, end) };
}

/** @param {string} base64 */
function decoded(base64) {
  if ("fromBase64" in Uint8Array) return /** @type {any} */ (Uint8Array).fromBase64(base64);
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** @type {Source} */
async function remote(path) {
  const address = `data/${path.split("/").map(encodeURIComponent).join("/")}`;
  const reply = await asked(address, { headers: { range: `bytes=-${TAIL}` } });
  const tail = await reply.arrayBuffer();
  const byteLength = Number(/\/(\d+)$/.exec(reply.headers.get("content-range") ?? "")?.[1] ?? tail.byteLength);
  return withTail(tail, byteLength, async (start, end) => {
    const reply = await asked(address, { headers: { range: `bytes=${start}-${end - 1}` } });
    const bytes = await reply.arrayBuffer();
    const part = reply.status === 206 ? bytes : bytes.slice(start, end);
    if (part.byteLength !== end - start) throw new Error(`The server sent ${part.byteLength} bytes of ${address}, not ${end - start}.`);
    return part;
  });
}

/**
 * A file of which the last bytes are here.
 * @param {ArrayBuffer} tail
 * @param {number} byteLength of the whole
 * @param {(start: number, end: number) => Promise<ArrayBuffer>} fetched
 * @returns {File}
 */
export function withTail(tail, byteLength, fetched) {
  const from = byteLength - tail.byteLength;
  if (from <= 0) return inMemory(tail);
  const part = together(fetched, byteLength);
  /** @type {Promise<ArrayBuffer> | undefined} */
  let whole;
  return {
    byteLength,
    slice: async (start, end = byteLength) => {
      if (start >= from) return tail.slice(start - from, end - from);
      if (byteLength > SMALL) return part(start, end);
      whole ??= fetched(0, from).then((head) => new Blob([head, tail]).arrayBuffer());
      return (await whole).slice(start, end);
    },
  };
}

/**
 * Ranges that are asked for at the same time as one, where they lie close together: a file has an index for each column, and
 * the way to the server may be long.
 * @param {(start: number, end: number) => Promise<ArrayBuffer>} fetched
 * @param {number} byteLength
 * @returns {File["slice"]}
 */
export function together(fetched, byteLength) {
  /** @type {{start: number, end: number, done: (bytes: ArrayBuffer | Promise<ArrayBuffer>) => void}[]} */
  let waiting = [];
  const send = () => {
    const all = waiting.sort((a, b) => a.start - b.start);
    waiting = [];
    for (let i = 0; i < all.length; ) {
      let [{ start, end }, next] = [all[i], i + 1];
      while (next < all.length && all[next].start <= end + NEAR) end = Math.max(end, all[next++].end);
      const bytes = fetched(start, end);
      for (const each of all.slice(i, next)) each.done(bytes.then((whole) => whole.slice(each.start - start, each.end - start)));
      i = next;
    }
  };
  return (start, end = byteLength) => new Promise((done) => {
    const last = Math.min(end, byteLength);
    if (last <= start) return done(new ArrayBuffer(0));
    if (!waiting.length) setTimeout(send);
    waiting.push({ start, end: last, done });
  });
}

/** @param {string} address @param {RequestInit} options */
async function asked(address, options) {
  const reply = await fetch(address, { ...options, cache: "no-store" }); // a cache puts ranges of one file together, one after another
  if (!reply.ok) throw new Error(`The server has no ${address}: ${reply.status} ${reply.statusText}`);
  return reply;
}

/**
 * A whole file as JSON.
 * @param {Source} files
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function json(files, path) {
  const file = await files(path);
  return JSON.parse(new TextDecoder().decode(await file.slice(0, file.byteLength)));
}

/**
 * A whole file as text.
 * @param {Source} files
 * @param {string} path
 */
export async function text(files, path) {
  const file = await files(path);
  return new TextDecoder().decode(await file.slice(0, file.byteLength));
}
