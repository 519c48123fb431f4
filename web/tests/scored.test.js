// What both sides say of a text: chances, colours and words of a token, and which sample was scored.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chance } from "../src/format.js";
import { bounds, ground, reading, scored } from "../src/scored.js";

test("a chance has two digits, as in the table of bounds", () => {
  const printed = { 0: "0", 1: "1", 0.5: "0.5", 0.0142: "0.014", 0.00031: "0.00031", 0.0000999: "0.0001", 0.0000312: "3.1e-05", 3e-18: "3e-18" };
  for (const [value, words] of Object.entries(printed)) assert.equal(chance(Number(value)), words);
  assert.equal(chance(null), "–");
});

test("red is likelier under RL, blue under Base, by up to four nats", () => {
  assert.equal(ground(2), "color-mix(in srgb, var(--rl) 28%, transparent)");
  assert.equal(ground(-4), "color-mix(in srgb, var(--base) 55%, transparent)");
  assert.equal(ground(Infinity), ground(4));
  assert.match(ground(0), / 0%, transparent/);
  assert.match(ground(NaN), / 0%, transparent/);
});

test("a token is read with both probabilities and its rank under the other side", () => {
  const of = { other: "Base", base: [Math.log(0.1), -Infinity], rl: [Math.log(0.4), 0], ranks: [3, 0] };
  assert.equal(reading(of, 0), ", probability 10.00% under Base, 40.00% under RL: log p of RL − log p of Base is +1.386; rank 3 under Base");
  assert.equal(reading(of, 1), ", probability 0.00% under Base, 100.00% under RL");
});

const row = { side: "rl", question: 4, sample: 1, token_ids: [7, 8], logps_base: [-1, -2], logps_rl: [-3, -4], ranks_base: [1, 2], ranks_rl: [5, 6] };
const study = (rows) => ({ frame: async (path) => (path ? rows : []), part: async (_, { rowStart, rowEnd }) => rows.slice(rowStart, rowEnd) });
const cell = { files: { scored: "s", bounds: "b" } };

test("a sample counts as scored if its very tokens were", async () => {
  const there = study([{ ...row, side: "base" }, row]);
  assert.deepEqual(await scored(there, cell, "rl", 4, { sample: 1, tokens: [7, 8] }), { other: "Base", base: [-1, -2], rl: [-3, -4], ranks: [1, 2] });
  assert.deepEqual((await scored(there, cell, "base", 4, { sample: 1, tokens: [7, 8] })).ranks, [5, 6]);
  for (const [side, question, sample] of [["rl", 4, { sample: 1, tokens: [7, 9] }], ["rl", 3, { sample: 1, tokens: [7, 8] }], ["rl", 4, { sample: 1, tokens: null }], ["rl", 4, undefined]]) {
    assert.equal(await scored(there, cell, side, question, sample), null);
  }
  assert.equal(await scored(study([{ ...row, token_ids: null }]), cell, "rl", 4, { sample: 1, tokens: [7, 8] }), null, "tokens were not kept");
  assert.equal(await scored(there, { files: {} }, "rl", 4, { sample: 1, tokens: [7, 8] }), null, "no texts were scored");
});

test("bounds are said by question, and not at all where there are none", async () => {
  const found = await bounds(study([{ question: 3, at_least: 0.0023, at_most: 0.0914 }]), cell);
  assert.deepEqual([...found], [[3, "Base's chance: at least 0.0023, at most 0.091"]]);
  assert.equal((await bounds(study([]), { files: {} })).size, 0);
});
