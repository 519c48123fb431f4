// What the page says of the prompts of both sides, and which prompt it takes for known.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compared, difference, prompt, unknown } from "../src/prompt.js";

const of = (ids, pieces = ids.map((id) => `t${id}`)) => ({ ids, pieces, special: [] });

test("equal prompts are said to be equal, with their number of tokens", () => {
  assert.equal(compared(of([1, 2, 3]), of([1, 2, 3])), "Base and RL were sent the same 3 tokens.");
  assert.equal(compared(of([7]), of([7])), "Base and RL were sent the same 1 token.");
  assert.equal(compared(of([]), of([])), "Base and RL were sent the same 0 tokens.");
});

test("the first difference is counted from 1, and the end of the shorter prompt is one", () => {
  assert.equal(compared(of([1, 2, 3]), of([9, 2, 3])), "The prompts differ, first at token 1.");
  assert.equal(compared(of([1, 2, 3]), of([1, 2, 4])), "The prompts differ, first at token 3.");
  assert.equal(compared(of([1, 2]), of([1, 2, 3])), "The prompts differ, first at token 3.");
  assert.equal(compared(of([1, 2, 3]), of([1, 2])), "The prompts differ, first at token 3.");
  assert.equal(compared(of([]), of([1])), "The prompts differ, first at token 1.");
});

test("tokens are equal if both their ids and their texts are", () => {
  assert.equal(difference(of([1, 2], ["a", "b"]), of([1, 2], ["a", "c"])), 1);
  assert.equal(difference(of([1, 2], ["a", "b"]), of([1, 3], ["a", "b"])), 1);
  assert.equal(difference(of([1, 2], ["a", "b"]), of([1, 2], ["a", "b"])), -1);
});

test("a prompt that is not known is said to be so, and why", () => {
  const sampled = { source: "sampled", files: {} };
  assert.equal(unknown("RL", sampled, true), "The prompt of RL is not known here: its tokenizer is not on this machine, or is another one now.");
  assert.equal(unknown("Base", sampled, false), "The prompt of Base is not known here: its tokenizer is not on this machine, or is another one now.");
  assert.equal(unknown("RL", { source: "imported", files: {} }, true), "The prompt of RL is not recorded: its samples are imported.");
  assert.equal(unknown("Base", { source: "recorded", files: {} }, false), "The prompt of Base is not recorded: its samples are recorded counts.");
  const named = { source: "sampled", files: { prompts: "prompts/a/b.json" } };
  assert.equal(unknown("RL", named, false), "The prompt of RL is not known here: this page holds an excerpt; searchlens view shows all questions.");
  assert.equal(unknown("RL", named, true), "The prompt of RL is not known here: its tokenizer is not on this machine, or is another one now.");
});

test("a prompt is known if its file has the question, with a text for every id", async () => {
  const files = { "p/4": '{"4": {"pieces": ["<s>", "x"], "ids": [0, 5], "special": [0]}}', "p/5": '{"4": {"pieces": [], "ids": []}}', "p/6": "{", "p/7": '{"7": {"pieces": ["a"], "ids": [1, 2], "special": []}}', "p/8": '{"8": {"pieces": [], "ids": []}}' };
  const asked = [];
  const study = { files: async (path) => {
    asked.push(path);
    if (!(path in files)) throw new Error("404");
    const { buffer } = new TextEncoder().encode(files[path]);
    return { byteLength: buffer.byteLength, slice: async (start, end) => buffer.slice(start, end) };
  } };
  const side = { files: { prompts: "p/{question}" } };
  assert.deepEqual(await prompt(study, side, 4), { pieces: ["<s>", "x"], ids: [0, 5], special: [0] });
  assert.deepEqual(await prompt(study, side, 8), { pieces: [], ids: [], special: [] });
  assert.deepEqual(await Promise.all([5, 6, 7, 9].map((at) => prompt(study, side, at))), [null, null, null, null]);
  assert.deepEqual(await prompt(study, { files: { prompts: "p/4" } }, 4), await prompt(study, side, 4));
  const before = asked.length;
  assert.equal(await prompt(study, { files: {} }, 4), null);
  assert.equal(asked.length, before);
});
