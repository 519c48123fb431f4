"""Stop texts: an answer ends before them, however they are cut into tokens; what is scored and what counts as drawn."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer

from conftest import Raw
from searchlens import catalogue
from searchlens.benchmarks import prompts
from searchlens.config import check
from searchlens.engines.base import Completion, Request, Sampling
from searchlens.plan import Grid
from searchlens.sampling import generate
from searchlens.sampling._sample import cut
from searchlens.search.components import Controller, composition
from searchlens.search.driver import Result, run, start
from searchlens.search.evaluators import SelfEvaluation, Verifier
from searchlens.search.policy import Policy, from_spec, parse
from searchlens.search.task import EMPTY, Ask, Candidate, Evaluator, Search, Task, Trace, end, ended
from searchlens.store.ranges import shards_of
from searchlens.store.shards import read
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel

ROOT = Path(__file__).parents[2]
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


# Every controller, on a language model that writes one of five letters at a time, and whose answers end at "ab".

LIMIT, STEP = 18, 4


def small(tokens: Sequence[int]) -> str:
    return "".join("$abc."[token] for token in tokens)


def answer(tokens: Sequence[int]) -> str | None:
    """The last letter but one; what comes after a stop text must not be read."""
    assert "ab" not in small(tokens[:-1])
    return small(tokens)[-2:-1] or None


def small_task(seed: int, check_every: int) -> Task:
    tokens = {"?": (4,), "yes": (1,), "no": (2,)}
    return Task((2, 3), seed, LIMIT, (EOS,), (STEP,), small, answer, check_every, ("ab",), tokens.__getitem__)


def small_model(seed: int) -> ToyModel:
    """Random, but that an "a" is often followed by a "b", and that few texts end with the stop token."""
    model = ToyModel.random(seed, vocab_size=5, eos=-2.0)
    model.logits[:, 1, 2] += 2
    return model


class Watched(ToyEngine):
    """Keeps what it drew."""

    def __init__(self, model: ToyModel) -> None:
        super().__init__(model)
        self.drawn: list[tuple[Request, Completion]] = []

    def _run(self, requests: Sequence[Request]) -> list[Completion]:
        completions = super()._run(requests)
        self.drawn += zip(requests, completions, strict=True)
        return completions


class Longest(Controller):
    """The example of CONTRIBUTING.md, which says nothing of stop texts."""

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        replies = yield [task.request(task.empty, policy.local, task.seed_of(i)) for i in range(4)]
        longest = max(replies, key=lambda reply: len(reply.tokens))
        return [task.empty.extend(longest, longest.finish).candidate(len(longest.tokens))]


VARIANTS: dict[str, dict[str, Any]] = {
    "beam": {"name": "beam", "width": 2},
    "published power": {"name": "power", "mode": "reference"},
    "dvts": {"name": "step_beam", "diverse": "yes"},
}


def small_policy(name: str, evaluator: str | None = None) -> Policy:
    spec: dict[str, Any] = {"controller": VARIANTS.get(name, {"name": name})}
    controller = spec["controller"]["name"]
    if controller == "longest":
        return replace(parse("temp_1.0"), controller=Longest("longest"))
    if evaluator:
        spec["evaluator"] = evaluator
    if "branch" in composition(controller)["transition"]:
        spec["transition"] = {"name": "branch", "gap": 1}
    if "thought" in composition(controller)["transition"]:
        spec["transition"] = {"name": "thought", "max_tokens": 5}
    return from_spec("a search", spec)


CASES = [
    (name, evaluator)
    for name in catalogue.declared("controller")
    for evaluator in composition(name)["evaluator"]
    if evaluator not in ("verifier", "self_evaluation")  # which are not made from a specification alone
]


@pytest.mark.parametrize("check_every", [0, 1, 4])
@pytest.mark.parametrize(
    ("name", "evaluator"), [*CASES, ("longest", None), ("dvts", "mean_logprob"), ("published power", "mean_logprob")]
)
@pytest.mark.long
def test_every_controller_ends_texts_at_the_first_stop_text(name: str, evaluator: str | None, check_every: int) -> None:
    """No candidate is longer than ``task.length`` says, and little is drawn after a stop text."""
    policy, stopped = small_policy(name, evaluator), 0
    for seed in range(4):
        engine, task = Watched(small_model(seed)), small_task(seed, check_every)
        ((_, outcome),) = run([(0, start(task, policy))], engine)
        assert isinstance(outcome, Result), outcome
        for one in outcome.candidates:
            tokens = one.tokens.tolist()
            length = task.length(tokens)
            assert length in (None, len(tokens))
            assert one.finish == ("stop" if length or tokens[-1] == EOS else "length")
            assert len(one.logprobs) == len(one.sampling_logprobs) == len(tokens)
            stopped += length is not None
        for request, completion in engine.drawn:
            assert task.length(request.prefix) is None, "it went on after a stop text"
            tokens = [*request.prefix, *completion.tokens.tolist()]
            if check_every and (length := task.length(tokens)) is not None:
                assert len(tokens) - length < check_every
            assert not check_every or request.max_tokens <= check_every
    assert stopped


def test_evaluators_read_an_answer_and_nothing_of_its_stop_text() -> None:
    """The verifier sees the text that is stored; the model is asked after the last token before the stop text."""
    task, sampling = small_task(0, 0), Sampling(1.0)
    logprobs = np.zeros(4, np.float32)
    path = Trace(np.array([3, 3, 1, 2], np.int32), logprobs, logprobs, finish="stop")
    heard: list[str] = []

    def scorer(_: str, texts: Sequence[str]) -> list[float]:
        heard.extend(texts)
        return [0.0] * len(texts)

    scoring = Verifier(scorer, "mine")(task, [path, EMPTY], sampling, ())
    (call,) = next(scoring)
    call.function()  # type: ignore[union-attr]
    assert heard == ["cc", ""]
    (request,) = next(SelfEvaluation("?", "yes", "no", 2)(task, [path], sampling, ("key",)))
    assert request.prefix == (3, 3, 4)  # type: ignore[union-attr]


def test_pieces_are_one_completion() -> None:
    """Measures and likely tokens of all pieces come together, and requests that are no answer are left alone."""
    task, engine = small_task(1, 4), Watched(ToyModel.random(5, vocab_size=5, eos=-9.0))
    other = Request((1,), Sampling(1.0), 3, LIMIT, (EOS,))
    look = Request(task.prompt, Sampling(1.0), 3, 9, ())
    received: list[Completion] = []

    def search() -> Search:
        asks: list[Ask] = [task.request(EMPTY, Sampling(1.0), 5, measures=True, top=2), other, look]
        received.extend((yield asks))
        return []

    list(run([(0, ended(task, search()))], engine))
    pieces = [reply for request, reply in engine.drawn if request.measures]
    assert len(pieces) > 1
    first, n = received[0], len(received[0].tokens)
    for name in ("tokens", "logprobs", "sampling_logprobs", "entropies", "certainties", "top_tokens", "top_logprobs"):
        whole = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_array_equal(getattr(first, name), whole[:n])
    assert [len(reply.tokens) for reply in received[1:]] == [LIMIT, 9]


def test_a_request_that_fails_is_raised_in_the_search() -> None:
    """A controller that can do without a reply goes on."""
    task = small_task(0, 4)

    def search() -> Search:
        try:
            yield [task.request(EMPTY, Sampling(1.0), 5)]
        except RuntimeError:
            yield []
        return []

    asking = ended(task, search())
    next(asking)
    assert asking.throw(RuntimeError("no memory")) == []
    with pytest.raises(StopIteration):
        asking.send([])


def sampled(folder: Path, monkeypatch: pytest.MonkeyPatch, stops: tuple[str, ...], check_every: int) -> pl.DataFrame:
    """Samples of the micro model, under its template with other stop texts."""
    with monkeypatch.context() as patch:
        # One stream of draws whatever the template, which is part of the id and so of the seeds.
        patch.setattr("searchlens.seeds.sample_seed", lambda _, question, run: crc32(f"{question} {run}".encode()))
        other = {**vars(prompts.families()["zoo"]), "stop_texts": list(stops), "check_every": check_every}
        grid = Grid(check.validate({**study(), "templates": {"zoo": other}}), root=folder)
        (pool,) = grid.jobs.pools("base", "math")
        generate(grid, "base", "math", grid.current_manifest(pool))
        (shard,) = shards_of(grid.folder("base", "math", pool.generations[0].id))
        return read(shard, pool.generations[0].id)


def test_samples_end_at_a_stop_text_and_count_as_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def study() -> Raw:
    return {
        "results": "results",
        "samples": 4,
        "budgets": [1, 2, 4],
        "study": {"pairs": ["micro"], "benchmarks": ["math"]},
        "checkpoints": {side: {"path": str(ZOO / f"micro-1m-{side}")} for side in ("base", "rl")},
        "pairs": {"micro": {"base": "base", "rl": "rl"}},
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
