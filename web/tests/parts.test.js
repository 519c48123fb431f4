// What the page computes itself: sets of near matches, addresses, files of comma-separated values, numbers in words.
import assert from "node:assert/strict";
import { test } from "node:test";
import { csv } from "../src/csv.js";
import { visible } from "../src/dom.js";
import { interval, percent, plural, points, short } from "../src/format.js";
import { labels, nearMatches } from "../src/near.js";
import { solving } from "../src/ranking.js";
import { link, parse } from "../src/route.js";
import { together, withTail } from "../src/source.js";

test("near matches: both ends belong, the nearest first, then fewer samples, then the name", () => {
  const row = (policy, budget, hits) => ({ policy, budget, hits, questions: 100, value: hits / 100 });
  const found = nearMatches([row("b", 4, 53), row("a", 4, 47), row("c", 2, 47), row("d", 1, 46.9), row("e", 8, 50)], row("rl", 1, 50), 0.03);
  assert.deepEqual(found.map((each) => each.policy), ["e", "c", "a", "b"]);
  assert.deepEqual(found.map((each) => each.rl_minus_base), [0, 0.03, 0.03, -0.03]);
});

test("labels of points that lie on one another are one", () => {
  const steps = [[16, 4, 0.79], [8, 4, 0.78], [4, 2, 0.75], [2, 2, 0.72], [1, 2, 0.5]].map(([target, x, y]) => ({ target, x, y }));
  assert.deepEqual(labels(steps, 0.05), [{ x: 2, y: 0.75, text: "2, 4" }, { x: 2, y: 0.5, text: "1" }, { x: 4, y: 0.79, text: "8, 16" }]);
});

test("equal counts differ by nothing, and values stand in where nothing is counted", () => {
  const target = { hits: 1, questions: 3, value: 1 / 3 };
  assert.equal(nearMatches([{ policy: "a", budget: 1, hits: 1, questions: 3, value: 0.33 }], target, 0)[0].rl_minus_base, 0);
  assert.equal(nearMatches([{ policy: "a", budget: 1, hits: null, questions: 3, value: 0.5 }], { ...target, hits: null }, 0.2).length, 1);
});

test("an address gives back what it was made of", () => {
  const address = link(["c", "a/b", "q?#%"], { m: "P", e: 3.5, sort: "", none: null });
  assert.deepEqual(parse(address), { path: ["c", "a/b", "q?#%"], query: { m: "P", e: "3.5" } });
  assert.deepEqual(parse("#/c/%E0%A4%A"), { path: ["c", "%E0%A4%A"], query: {} });
  assert.deepEqual(parse(""), { path: [], query: {} });
});

test("quoted values keep their commas, quotes and ends of line", () => {
  assert.deepEqual(csv('a,b\r\n"1,2","say ""so""\nnow"\n,\n'), [["a", "b"], ["1,2", 'say "so"\nnow'], ["", ""]]);
  assert.deepEqual(csv("a\n1"), [["a"], ["1"]]);
});

test("characters that cannot be seen or that turn the text are escapes", () => {
  assert.equal(visible("a\u202eb\u0000\n\t\u{e0001}\u200d"), "a\\u202eb\\x00\n\t\\u{e0001}\\u200d");
  assert.equal(visible("é漢😀<script>"), "é漢😀<script>");
});

test("numbers are read as they are meant", () => {
  assert.equal(percent(0.0567), "5.7%");
  assert.equal(percent(null), "–");
  assert.equal(points(-0.0004), "0.0 pp");
  assert.equal(points(0.123), "+12.3 pp");
  assert.equal(interval(0.1, 0.25), "[10.0, 25.0]");
  assert.equal(interval(0.1, null), "");
  assert.equal(plural(1, "question"), "1 question");
  assert.equal(plural(1200, "question"), "1,200 questions");
  assert.equal(short(2.5e9), "2.5G");
});

test("ranges that lie close together are asked for as one, and each gets its own bytes", async () => {
  const file = Uint8Array.from({ length: 100_000 }, (_, i) => i % 251);
  const asked = [];
  const slice = together(async (start, end) => {
    asked.push([start, end]);
    return file.buffer.slice(start, end);
  }, file.length);
  const wanted = [[90_000, undefined], [10, 20], [15, 400], [1000, 1001], [5, 5]];
  const found = await Promise.all(wanted.map(([start, end]) => slice(start, end)));
  found.forEach((bytes, i) => assert.deepEqual(new Uint8Array(bytes), file.slice(...wanted[i])));
  assert.deepEqual(asked, [[10, 1001], [90_000, 100_000]]);
  await assert.rejects(together(async () => { throw new Error("gone"); }, 10)(0, 5), /gone/);
});

test("the end of a file is not fetched again, and a small file is fetched once", async () => {
  for (const [size, expected] of [[600_000, [[0, 10], [599_000, 599_960]]], [9_000, [[0, 8_960]]]]) {
    const file = Uint8Array.from({ length: size }, (_, i) => i % 251);
    const asked = [];
    const { slice } = withTail(file.buffer.slice(size - 40), size, async (start, end) => {
      asked.push([start, end]);
      return file.buffer.slice(start, end);
    });
    for (const [start, end] of [[size - 30, size - 10], [size - 20, undefined], [0, 10], [size - 1000, size - 40]]) {
      assert.deepEqual(new Uint8Array(await slice(start, end)), file.subarray(start, end));
    }
    assert.deepEqual(asked, expected);
  }
});

test("who solves is said of the samples that were drawn, with their number where it is one", () => {
  const row = (base, rl) => ({ question: 0, who: "rl", solved: { base: { samples: base }, rl: { samples: rl } } });
  assert.equal(solving("rl", [row(4, 8), row(4, 2)]), "RL solves, none of Base's 4 samples does");
  assert.equal(solving("base", [row(4, 8), row(4, 2)]), "Base solves, none of RL's samples does");
  assert.equal(solving("none", [row(1, 8)]), "None of Base's 1 sample and of RL's 8 samples solves");
});
