/**
 * Rows of a file of comma-separated values, with quotes as RFC 4180 has them.
 * @param {string} content
 * @returns {string[][]}
 */
export function csv(content) {
  const rows = [];
  /** @type {string[]} */
  let row = [];
  let part = "";
  let quoted = false;
  for (let i = 0; i < content.length; i++) {
    const char = content[i];
    if (quoted) {
      if (char !== '"') part += char;
      else if (content[i + 1] === '"') part += content[++i];
      else quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === ",") {
      row.push(part);
      part = "";
    } else if (char === "\n") {
      row.push(part.endsWith("\r") ? part.slice(0, -1) : part);
      rows.push(row);
      [row, part] = [[], ""];
    } else part += char;
  }
  if (part !== "" || row.length) rows.push([...row, part]);
  return rows;
}
