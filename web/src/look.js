/** Colours and markers: those of the report's figures, made lighter or darker where the ground asks for it. */

const SYMBOLS = /** @type {Record<string, string>} */ ({
  o: "circle", s: "square", "^": "triangle", D: "diamond", d: "diamond", v: "triangle2", P: "plus", X: "times",
  p: "star", h: "hexagon", "*": "asterisk", "<": "wye", ">": "wye",
});

/** Contrast that a line or mark must have with its ground (WCAG 2, 1.4.11). */
const LEAST = 3;

export function dark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A marker of matplotlib as a symbol of Plot. @param {string | undefined} marker */
export function symbol(marker) {
  return SYMBOLS[marker ?? "o"] ?? "circle";
}

/**
 * A colour that can be seen on the ground of the page: mixed with white or black as little as that takes.
 * @param {string} colour as #rrggbb
 */
export function seen(colour) {
  const ground = dark() ? [0x14, 0x17, 0x1a] : [0xff, 0xff, 0xff];
  const other = dark() ? 255 : 0;
  const from = channels(colour);
  for (let share = 0; share <= 1; share += 0.05) {
    const mixed = from.map((channel) => channel + (other - channel) * share);
    if (contrast(mixed, ground) >= LEAST) return `rgb(${mixed.map(Math.round).join(" ")})`;
  }
  return colour;
}

/** @param {string} colour */
function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** @param {number[]} one @param {number[]} two */
function contrast(one, two) {
  const [low, high] = [luminance(one), luminance(two)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** @param {number[]} colour */
function luminance(colour) {
  const [red, green, blue] = colour.map((channel) => {
    const value = channel / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
