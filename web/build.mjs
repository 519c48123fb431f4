// Writes the page of the explorer, packed, and the licences of what is in it. The same sources give the same bytes.
import { readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "..", "src", "searchlens", "reporting");

const bundle = await build({
  entryPoints: [join(here, "src", "main.js")],
  absWorkingDir: here,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  write: false,
});
const style = await build({ entryPoints: [join(here, "src", "style.css")], minify: true, charset: "utf8", write: false });
const page = await readFile(join(here, "src", "page.html"), "utf8");
// No script may hold what would end its element.
const script = bundle.outputFiles[0].text.trim().replaceAll(/<\/(script)/gi, "<\\/$1").replaceAll("<!--", "<\\!--");
const whole = page.replace("/* style */", () => style.outputFiles[0].text.trim()).replace("/* script */", () => script);
await writeFile(join(target, "explorer.html.gz"), gzipSync(whole, { level: 9 }));
await writeFile(join(target, "explorer.LICENSES.txt"), await licences(Object.keys(bundle.metafile.inputs)));
console.log(`explorer.html.gz: ${Buffer.byteLength(whole)} bytes unpacked`);

/** The licence of every package that is in the bundle, by name. @param {string[]} inputs */
async function licences(inputs) {
  const names = new Set(inputs.map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules\/)/.exec(path)?.[1]).filter(Boolean));
  /** @type {Map<string, string[]>} text of a licence, without its notices of copyright, to the packages under it */
  const texts = new Map();
  for (const name of [...names].sort()) {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((each) => /^(licen[cs]e|copying)/i.test(each));
    if (!file) throw new Error(`${name} has no licence file`);
    const lines = (await readFile(join(folder, file), "utf8")).replaceAll("\r\n", "\n").trim().split("\n");
    const notices = lines.filter((line) => /^copyright/i.test(line));
    const text = lines.filter((line) => !/^copyright/i.test(line)).join("\n").replace(/\n{3,}/g, "\n\n").trim();
    texts.set(text, [...(texts.get(text) ?? []), [`${name} ${version} (${license})`, ...notices].join("\n  ")]);
  }
  const parts = [...texts].map(([text, packages]) => `${packages.join("\n")}\n\n${text}\n`);
  return `The page of the explorer contains these packages.\n\n${parts.join(`\n${"-".repeat(80)}\n\n`)}`;
}
