/**
 * A view is an address: everything that changes what is shown is in the hash, as `#/c/PAIR/BENCHMARK?m=Q&r=first_k`.
 */

/**
 * @typedef {object} Route
 * @property {string[]} path parts between slashes, decoded
 * @property {Record<string, string>} query
 */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?");
  const values = Object.fromEntries(new URLSearchParams(query));
  return { path: path.split("/").filter(Boolean).map(decoded), query: values };
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * The hash of a view. Empty and missing values of the query are left out.
 * @param {(string | number)[]} path
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function link(path, query = {}) {
  const values = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const rest = new URLSearchParams(values.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${rest ? `?${rest}` : ""}`;
}
