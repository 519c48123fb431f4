"""An answer ends where its template says, by whatever tokens: what is kept and scored, and what counts as drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer

from searchlens import config
from searchlens.generate import generate
from searchlens.generate._stops import cut, end
from searchlens.grid import Grid
from searchlens.search.task import Candidate
from searchlens.shards import read
from searchlens.store import shards_of

ROOT = Path(__file__).parents[1]
ZOO = ROOT / "resources/zoo"
STOPS = ("\nQuestion:", "user")


def letters(tokens: Sequence[int]) -> str:
    """One letter for each token."""
    return "".join(map(chr, tokens))


@pytest.mark.parametrize(
    ("text", "kept", "drawn"),
    [
        ("The answer is 2.", "The answer is 2.", 16),
        ("It is 2.\nQuestion: and now?", "It is 2.", 18),
        ("user", "", 4),
        ("2 user \nQuestion:", "2 ", 6),
        ("2\nQuestion: user", "2", 11),
        ("2\nQuestion", "2\nQuestion", 10),
    ],
)
def test_a_text_ends_before_the_first_stop(text: str, kept: str, drawn: int) -> None:
    tokens = [ord(letter) for letter in text]
    assert end(tokens, text, STOPS, letters) == (drawn, kept)


def test_the_end_is_the_first_token_that_completes_a_stop() -> None:
    """Held against trying every beginning, with a real tokenizer and stops at odd places."""
    tokenizer = Tokenizer.from_file(str(ZOO / "micro-1m-base/tokenizer.json"))
    rng = np.random.default_rng(0)

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True))

    found = 0
    for _ in range(200):
        tokens = rng.integers(0, tokenizer.get_vocab_size(), 40).tolist()
        whole = decode(tokens)
        place = int(rng.integers(0, max(1, len(whole) - 3)))
        stops = (whole[place : place + 3] or "?", "\x00")
        lengths = (k for k in range(1, 41) if any(stop in decode(tokens[:k]) for stop in stops))
        length, text = end(tokens, whole, stops, decode)
        assert length == next(lengths, 40)
        assert not any(stop in text for stop in stops)
        found += length < 40
    assert found > 100


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
    assert cut(candidate(9.0), 4, evaluator).score == 9.0
    assert cut(candidate(9.0), 4, evaluator).finish == "length"


def test_samples_end_at_a_stop_text_and_count_as_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The micro model under a template that stops it early, and the same samples without: a prefix, drawn as before."""
    from searchlens.benchmarks import prompts

    long = prompts.TEMPLATES["zoo"]
    # Held to one stream of draws: a template is part of the id, and the id of the seeds.
    monkeypatch.setattr("searchlens.seeds.sample_seed", lambda _, question, run: crc32(f"{question} {run}".encode()))
    frames = {}
    for name, stops in (("whole", ()), ("ended", ("=",))):
        monkeypatch.setitem(prompts.TEMPLATES, "zoo", prompts.Family(long.math, long.turn, stop_texts=stops))
        grid = Grid(config.plain(config.validate(study())), root=tmp_path)
        (pool,) = grid.pools("base", "math")
        generate(grid, "base", "math", grid.current_manifest(pool))
        (shard,) = shards_of(grid.folder("base", "math", pool.generations[0].id))
        frames[name] = read(shard, pool.generations[0].id)
    whole, ended = frames["whole"], frames["ended"]
    expected = [text.split("=")[0] for text in whole["text"]]
    assert ended["text"].to_list() == expected
    assert any(text != kept for text, kept in zip(whole["text"], expected, strict=True))
    assert ended["generated"].to_list() == whole["generated"].to_list()
    cut_short = ended.filter(pl.col("n_tokens") < pl.Series(whole["n_tokens"]))
    assert set(cut_short["finish"]) == {"stop"}
    assert (ended["n_tokens"] <= whole["n_tokens"]).all()


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
