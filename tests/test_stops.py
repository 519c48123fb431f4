"""Stop texts: an answer ends before them, however they are cut into tokens; what is scored and what counts as drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer

from searchlens import config, policies
from searchlens.benchmarks import prompts
from searchlens.engines.base import Completion, FinishReason, Request
from searchlens.generate import generate
from searchlens.generate._stops import cut, end
from searchlens.grid import Grid
from searchlens.search.driver import start
from searchlens.search.task import Candidate, Task
from searchlens.store.ranges import shards_of
from searchlens.store.shards import read

ROOT = Path(__file__).parents[1]
ZOO = ROOT / "resources/zoo"
STOPS = ("\nQuestion:", "user")


def letters(tokens: Sequence[int]) -> str:
    """One letter for each token."""
    return "".join(map(chr, tokens))


@pytest.mark.parametrize(
    ("text", "answer", "drawn"),
    [
        ("It is 2.\nQuestion: and now?", "It is 2.", 18),
        ("user", "", 4),
        ("2 user \nQuestion:", "2 ", 6),
        ("2\nQuestion: user", "2", 11),
    ],
)
def test_a_text_ends_before_the_first_stop(text: str, answer: str, drawn: int) -> None:
    tokens = [ord(letter) for letter in text]
    assert end(tokens, text, STOPS, letters) == (drawn, answer)


@pytest.mark.parametrize("text", ["The answer is 2.", "2\nQuestion", ""])
def test_a_text_without_a_stop_has_no_such_end(text: str) -> None:
    assert end([ord(letter) for letter in text], text, STOPS, letters) is None


def test_the_end_is_the_first_token_that_completes_a_stop() -> None:
    """Compared with a search through all beginnings, with a real tokenizer and stops in the middle of words."""
    tokenizer = Tokenizer.from_file(str(ZOO / "micro-1m-base/tokenizer.json"))
    rng = np.random.default_rng(0)

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True))

    count = 0
    for _ in range(200):
        tokens = rng.integers(0, tokenizer.get_vocab_size(), 40).tolist()
        whole = decode(tokens)
        place = int(rng.integers(0, max(1, len(whole) - 3)))
        stops = (whole[place : place + 3] or "?", "\x00")
        lengths = (k for k in range(1, 41) if any(stop in decode(tokens[:k]) for stop in stops))
        ended = end(tokens, whole, stops, decode)
        assert (ended.length if ended else None) == next(lengths, None)
        assert ended is None or not any(stop in ended.text for stop in stops)
        count += ended is not None
    assert count > 100


def candidate(score: float) -> Candidate:
    logprobs = np.array([-1, -2, -3, -6], np.float32)
    return Candidate(np.arange(4, dtype=np.int32), logprobs, logprobs / 2, "length", score)


@pytest.mark.parametrize(
    ("evaluator", "score"), [("mean_logprob", -1.5), ("sequence_logprob", -3.0), ("verifier", 9.0)]
)
def test_a_cut_candidate_has_ended_and_is_scored_by_what_is_left(evaluator: str, score: float) -> None:
    short = cut(candidate(9.0), 2, evaluator)
    assert short.tokens.tolist() == [0, 1]
    assert short.logprobs.tolist() == [-1, -2]
    assert short.sampling_logprobs.tolist() == [-0.5, -1]
    assert (short.finish, short.score) == ("stop", score)


class Script:
    """An engine that draws the next tokens of one text, and remembers its requests."""

    def __init__(self, text: str) -> None:
        self.text, self.requests = text, list[Request]()

    def __call__(self, request: Request) -> Completion:
        self.requests.append(request)
        begun = len(request.prefix)
        drawn = [ord(letter) for letter in self.text[begun : begun + request.max_tokens]]
        logprobs = -np.arange(begun + 1, begun + 1 + len(drawn), dtype=np.float32)
        finish: FinishReason = "stop" if drawn[-1] in request.stop_ids else "length"
        return Completion(np.array(drawn, np.int32), logprobs, logprobs, finish)


def drawn(text: str, check_every: int, max_tokens: int = 40) -> tuple[Candidate, Script]:
    def length(tokens: Sequence[int]) -> int | None:
        ending = end(tokens, letters(tokens), STOPS, letters)
        return ending.length if ending else None

    script = Script(text)
    task = Task((1,), 7, max_tokens, (ord("$"),), (), letters, lambda _: None, check_every, length)
    controller = start(task, policies.parse("temp_0.7"))
    asks = next(controller)
    while True:
        try:
            asks = controller.send([script(ask) for ask in asks])
        except StopIteration as done:
            return done.value[0], script


@pytest.mark.parametrize("check_every", [0, 1, 5, 40, 100])
@pytest.mark.parametrize(
    ("text", "tokens", "finish"),
    [("a text that goes on and on and on and on", 40, "length"), ("2$", 2, "stop"), ("it is 2 user it is", 12, "stop")],
)
def test_looking_more_often_changes_what_is_drawn_and_not_what_is_kept(
    check_every: int, text: str, tokens: int, finish: str
) -> None:
    result, script = drawn(text, check_every, min(40, len(text)))
    assert letters(result.tokens.tolist()) == text[:tokens]
    assert result.finish == finish
    assert result.score == pytest.approx(-np.arange(1, tokens + 1).mean())
    whole = min(40, len(text))
    looked = -(-tokens // check_every) * check_every if check_every else whole
    assert sum(min(ask.max_tokens, whole - len(ask.prefix)) for ask in script.requests) == min(looked, whole)
    assert len({ask.seed for ask in script.requests}) == len(script.requests)
    assert script.requests[0].seed == 7


def sampled(folder: Path, monkeypatch: pytest.MonkeyPatch, stops: tuple[str, ...], check_every: int) -> pl.DataFrame:
    """Samples of the micro model, under its template with other stop texts."""
    zoo = prompts.TEMPLATES["zoo"]
    with monkeypatch.context() as patch:
        # One stream of draws whatever the template, which is part of the id and so of the seeds.
        patch.setattr("searchlens.seeds.sample_seed", lambda _, question, run: crc32(f"{question} {run}".encode()))
        other = prompts.PromptFamily(zoo.math, zoo.turn, stop_texts=stops, check_every=check_every)
        patch.setitem(prompts.TEMPLATES, "zoo", other)
        grid = Grid(config.plain(config.validate(study())), root=folder)
        (pool,) = grid.pools("base", "math")
        generate(grid, "base", "math", grid.current_manifest(pool))
        (shard,) = shards_of(grid.folder("base", "math", pool.generations[0].id))
        return read(shard, pool.generations[0].id)


def test_samples_end_at_a_stop_text_and_count_as_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of the micro model without a stop text, the same ones with a stop text, and drawn in parts."""
    whole = sampled(tmp_path, monkeypatch, (), 0)
    ended = sampled(tmp_path, monkeypatch, ("=",), 0)
    expected = [text.split("=")[0] for text in whole["text"]]
    assert ended["text"].to_list() == expected
    assert any(text != answer for text, answer in zip(whole["text"], expected, strict=True))
    assert ended["generated"].to_list() == whole["generated"].to_list()
    cut_short = ended.filter(pl.col("n_tokens") < pl.Series(whole["n_tokens"]))
    assert set(cut_short["finish"]) == {"stop"}
    assert (ended["n_tokens"] <= whole["n_tokens"]).all()
    parts = sampled(tmp_path, monkeypatch, ("=",), 4)
    assert not any("=" in text for text in parts["text"])
    assert (parts["generated"] - parts["n_tokens"].cast(parts["generated"].dtype) < 4).all()
    assert parts["generated"].sum() < ended["generated"].sum()


def study() -> dict[str, Any]:
    return {
        "results": "results",
        "samples": 4,
        "budgets": [1, 2, 4],
        "study": {"pairs": ["micro"], "benchmarks": ["math"]},
        "checkpoints": {"base": {"path": str(ZOO / "micro-1m-base")}},
        "pairs": {"micro": {"base": "base", "rl": "base"}},
        "benchmarks": {
            "math": {
                "path": str(ZOO / "benchmarks/math.jsonl"),
                "grader": "math",
                "max_tokens": 48,
                "questions": 4,
                "pool": "one",
            }
        },
        "policies": {"topp0.95_t1.0": None},
        "pools": {"one": ["topp0.95_t1.0"]},
    }
