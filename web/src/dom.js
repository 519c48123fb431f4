/**
 * Elements from plain values. Data only ever becomes text: nothing here or elsewhere reads markup from a string.
 */

/** @typedef {Node | string | number | null | undefined | boolean | any[]} Child what an element may contain; lists may hold lists */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element of HTML.
 * @param {string} tag name, with classes as in `p.note`
 * @param {Record<string, any> | null} [attributes] a value that is a function is a listener; null and false are left out
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  return /** @type {HTMLElement} */ (filled(document.createElement(name), classes, attributes, children));
}

/**
 * An element of SVG.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function s(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, name), classes, attributes, children));
}

/**
 * @param {Element} element
 * @param {string[]} classes
 * @param {Record<string, any> | null | undefined} attributes
 * @param {Child[]} children
 */
function filled(element, classes, attributes, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "value" && "value" in element) /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
export function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || typeof child === "boolean") continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * The element with other children.
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function refill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

/**
 * Text with characters that cannot be seen, or that turn the text around them, written as escapes.
 * @param {unknown} text
 * @returns {string}
 */
export function visible(text) {
  return String(text).replace(HIDDEN, (char) => {
    if (char === "\n" || char === "\t") return char;
    const code = /** @type {number} */ (char.codePointAt(0));
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\u{${code.toString(16)}}`;
  });
}
