"""Beams: token for token as transformers' and as plain sequential implementations, exact where they can be."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from searchlens.engines.base import Completion, Request  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.search.driver import run  # noqa: E402
from searchlens.search.evaluators import Verifier, evaluator  # noqa: E402
from searchlens.search.policy import Policy, from_spec  # noqa: E402
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel, enumerate_texts  # noqa: E402
from toy_searches import TASK, assert_plain, found, texts  # noqa: E402

VOCAB = 50


def policy(controller: str, **parameters: Any) -> Policy:
    """As a configuration would have it; local policy, evaluator, depth and length of thoughts go where they belong."""
    spec = {key: parameters.pop(key) for key in ("local", "evaluator") if key in parameters}
    if controller == "step_beam":
        spec["scheduler"] = {"name": "breadth_first", "depth": parameters.pop("depth", 3)}
        spec["transition"] = {"name": "thought", "max_tokens": parameters.pop("max_tokens", 4)}
        spec.setdefault("local", {"temperature": 1.0, "top_p": 0.95})
    return from_spec("mine", {**spec, "controller": {"name": controller, **parameters}})


@cache
def llama() -> Any:
    """A model with random weights, spread enough that its beams differ and end."""
    torch.set_num_threads(1)
    torch.manual_seed(4)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.5,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config).eval()


class OneForward:
    """The engine contract for single tokens, by a forward pass of transformers over the whole text for each."""

    vocab_size = VOCAB
    max_model_len = 64
    max_rows = 1000
    repeatable = True
    groups: tuple[int, ...] = (1,)
    steps = 0

    def __init__(self) -> None:
        self.queue: list[tuple[int, Request]] = []
        self.longest = 0

    def clear(self) -> None: ...

    def close(self) -> None: ...

    def add(self, request_id: int, request: Request) -> None:
        assert request.max_tokens == 1
        self.queue.append((request_id, request))

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Completion]]:
        request_id, request = self.queue.pop(0)
        self.longest = max(self.longest, len(request.prefix))
        logits = llama()(torch.tensor([[*request.prompt, *request.prefix]])).logits[0, -1].float()
        logprobs, tokens = torch.log_softmax(logits, -1).topk(request.top)
        logprobs, tokens = logprobs.numpy()[None], tokens.numpy().astype(np.int32)[None]
        done = Completion(tokens[0, :1], logprobs[0, :1], logprobs[0, :1], "length", None, None, tokens, logprobs)
        return [(request_id, done)]


def generate(prompt: tuple[int, ...], width: int, penalty: float, stops: tuple[int, ...], most: int) -> Any:
    """transformers' own beam search: texts without padding, and scores."""
    done = llama().generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        num_beams=width,
        num_return_sequences=width,
        length_penalty=penalty,
        early_stopping=False,
        do_sample=False,
        max_new_tokens=most,
        eos_token_id=list(stops),
        pad_token_id=VOCAB - 1,
        return_dict_in_generate=True,
        output_scores=True,
    )
    rows = [row[len(prompt) :].tolist() for row in done.sequences]
    ends = [next((i + 1 for i, token in enumerate(row) if token in stops), most) for row in rows]
    return [tuple(row[:end]) for row, end in zip(rows, ends, strict=True)], done.sequences_scores.tolist()


PROMPTS = [(first, 5, 9) for first in (12, 13, 14)]


@pytest.mark.parametrize(("width", "stops"), [(2, (20,)), (4, (20,)), (3, (4, 20, 16))])
@pytest.mark.parametrize("penalty", [1.0, 0.0, -1.0, 2.0])
def test_token_beam_is_that_of_transformers(width: int, penalty: float, stops: tuple[int, ...]) -> None:
    mine = policy("beam", width=width, length_penalty=penalty)
    for prompt in PROMPTS:
        candidates = found(TASK._replace(prompt=prompt, max_tokens=10, stop_ids=stops), mine, OneForward())
        expected, scores = generate(prompt, width, penalty, stops, 10)
        assert texts(candidates) == expected
        assert [one.score for one in candidates] == pytest.approx(scores, abs=1e-4)


def test_token_beam_on_the_embedded_engine(tmp_path: Path) -> None:
    """Many beams at once, in one batch: still transformers' texts."""
    llama().save_pretrained(tmp_path)
    words = {f"w{i}": i for i in range(VOCAB)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    mine = policy("beam", width=4, length_penalty=0.0)
    tasks = [TASK._replace(prompt=prompt, max_tokens=10, stop_ids=(20,)) for prompt in PROMPTS]
    controllers = [(task.prompt, mine.controller.search(task, mine, evaluator(mine.evaluator))) for task in tasks]
    results = dict(run(controllers, TransformersEngine(tmp_path)))
    for prompt in PROMPTS:
        result = results[prompt]
        assert texts(result.candidates) == generate(prompt, 4, 0.0, (20,), 10)[0]


def test_wide_beam_finds_the_most_likely_texts() -> None:
    """Wide enough to hold every text of two tokens, the beam is exact enumeration."""
    model = ToyModel.random(1, vocab_size=60, scale=2.0)
    task = TASK._replace(max_tokens=2)
    exact = enumerate_texts(model, task.prompt, 2)
    candidates = found(task, policy("beam", width=30, length_penalty=0.0), ToyEngine(model))
    best = sorted(exact.items(), key=lambda one: -one[1])[:30]
    assert len({text[0] for text, _ in best}) < 30, "a first token outside the beam would have to be one of the best"
    assert texts(candidates) == [text for text, _ in best]
    assert [one.score for one in candidates] == pytest.approx([np.log(p) for _, p in best], abs=1e-5)


def test_candidates_of_a_token_beam() -> None:
    """Every token has its raw log-probability, none was drawn, and the score is their sum over length**penalty."""
    model = ToyModel.random(2, vocab_size=12)
    engine = ToyEngine(model)
    candidates = found(TASK, policy("beam", width=4, length_penalty=0.7), engine)
    assert len(set(texts(candidates))) == 4
    for one in candidates:
        context = (*TASK.prompt, *one.tokens.tolist())
        expected = [model.logprobs[context[i : i + 3]] for i in range(len(one.tokens))]
        np.testing.assert_allclose(one.logprobs, expected, atol=1e-5)
        assert not one.sampling_logprobs.any()
        assert one.score == pytest.approx(sum(expected) / len(expected) ** 0.7, abs=1e-5)
    assert {(one.max_tokens, one.top) for one in engine.requests} == {(1, 8)}
    assert max(len(one.prefix) for one in engine.requests) < TASK.max_tokens


def test_beam_wider_than_the_vocabulary_is_refused() -> None:
    """Five tokens allow two paths; a third needs a sixth token."""
    model = ToyModel.random(2, vocab_size=5)
    assert len(found(TASK, policy("beam", width=2), ToyEngine(model))) == 2
    with pytest.raises(InputError, match="needs the 6 most likely tokens, but the model can draw only 5"):
        found(TASK, policy("beam", width=3), ToyEngine(model))
    impossible = model.logits.copy()
    impossible[..., 4] = -np.inf
    with pytest.raises(InputError, match="can draw only 4"):
        found(TASK._replace(stop_ids=(EOS, 2)), policy("beam", width=2), ToyEngine(ToyModel(impossible)))


@pytest.mark.parametrize(("width", "expand", "depth"), [(4, 4, 3), (8, 2, 4), (6, 3, 1), (4, 1, 3)])
@pytest.mark.parametrize("diverse", ["no", "yes"])
def test_step_beam_is_a_plain_sequential_implementation(width: int, expand: int, depth: int, diverse: str) -> None:
    mine = policy("step_beam", width=width, expand=expand, depth=depth, diverse=diverse)
    tasks = [TASK._replace(seed=seed) for seed in range(8)]
    assert_plain(mine, ToyModel.random(width, vocab_size=6, eos=-0.5), tasks, max_rows=23)


@pytest.mark.parametrize("diverse", ["no", "yes"])
@pytest.mark.parametrize("name", ["rollout_utility", "answer_agreement", "self_certainty"])
def test_step_beam_with_other_evaluators(name: str, diverse: str) -> None:
    """No text outgrows the limit, no seed is used twice, measures are asked for where they are needed."""
    engine = ToyEngine(ToyModel.random(2, vocab_size=6, eos=-0.5))
    mine = policy("step_beam", width=4, expand=2, diverse=diverse, evaluator=name)
    candidates = found(TASK, mine, engine)
    assert len(candidates) == 4
    assert all(len(one.prefix) + one.max_tokens <= TASK.max_tokens for one in engine.requests)
    assert all(len(one.tokens) <= TASK.max_tokens for one in candidates)
    assert len({one.seed for one in engine.requests}) == len(engine.requests)
    assert {one.measures for one in engine.requests} == {name == "self_certainty"}


def test_subtrees_do_not_see_each_other() -> None:
    """A second subtree changes nothing in the first: its agreement is among its own children."""
    model = ToyModel.random(2, vocab_size=6, eos=-0.5)
    asked = []
    for width in (3, 6):
        engine = ToyEngine(model)
        found(TASK, policy("step_beam", width=width, expand=3, diverse="yes", evaluator="answer_agreement"), engine)
        asked.append({(one.prefix, one.seed) for one in engine.requests})
    assert asked[0] < asked[1]


# ---- Tree of Thoughts against a plain sequential implementation, and its edges: ends, duplicates, too few paths


def thoughts_of(local: dict[str, Any] | None = None, evaluator: Any = "mean_logprob", **parameters: Any) -> Policy:
    """As a configuration would have it; `depth` and `max_tokens` go to scheduler and transition."""
    spec: dict[str, Any] = {
        "local": local or {"temperature": 1.0, "top_p": 0.95},
        "scheduler": {"name": "breadth_first", "depth": parameters.pop("depth", 3)},
        "transition": {"name": "thought", "max_tokens": parameters.pop("max_tokens", 4)},
        "controller": {"name": "thought_tree", **parameters},
        "evaluator": evaluator,
    }
    return from_spec("mine", spec)


@pytest.mark.parametrize(("b", "k", "depth"), [(4, 2, 3), (3, 4, 5), (1, 3, 2), (8, 3, 1)])
def test_same_tokens_as_a_plain_sequential_implementation(b: int, k: int, depth: int) -> None:
    tasks = [TASK._replace(seed=seed) for seed in range(10)]
    model = ToyModel.random(b, vocab_size=6, eos=-0.5)
    assert_plain(thoughts_of(width=b, children=k, depth=depth), model, tasks, max_rows=17)


def always(model: ToyModel, text: Sequence[int], prompt: Sequence[int]) -> ToyModel:
    """A model that writes `text` and nothing else."""
    logits = np.full_like(model.logits, -50.0)
    context = [*prompt, *text]
    for i in range(len(text)):
        logits[context[i], context[i + 1], context[i + 2]] = 50.0
    return ToyModel(logits)


def test_a_search_whose_paths_have_all_ended_asks_for_nothing_more() -> None:
    engine = ToyEngine(always(ToyModel.random(0, vocab_size=6), [4, EOS], TASK.prompt))
    assert texts(found(TASK, thoughts_of(width=3, children=2, depth=50), engine)) == [(4, EOS)] * 3
    assert len(engine.requests) == 2


def test_an_ended_path_competes_and_can_be_displaced() -> None:
    """It is scored again at every level, and keeps its place only while it is among the best."""
    model = ToyModel.random(3, vocab_size=6, eos=-0.5)
    longer = Verifier(lambda _, shown: [len(text) for text in shown], "longest")
    shorter = Verifier(lambda _, shown: [-len(text) for text in shown], "shortest")
    task = TASK._replace(decode=lambda tokens: "x" * len(tokens))
    mine = thoughts_of(width=2, children=4, depth=5)
    long = found(task, mine, ToyEngine(model), longer)
    short = found(task, mine, ToyEngine(model), shorter)
    assert max(len(one.tokens) for one in short) < min(len(one.tokens) for one in long)
    assert [one.score for one in long] == [len(one.tokens) for one in long]


def test_measures_are_asked_for_when_the_evaluator_needs_them() -> None:
    engine = ToyEngine(ToyModel.random(2, vocab_size=6))
    candidates = found(TASK, thoughts_of(evaluator="self_certainty", width=2), engine)
    assert all(one.measures for one in engine.requests)
    assert all(one.score > 0 for one in candidates)


def test_a_narrow_tree_is_found_again_in_a_wide_one() -> None:
    """Seeds come from the place in the tree: with every path kept, the wide tree holds the narrow one's thoughts."""
    model = ToyModel.random(4, vocab_size=6, eos=-0.5)
    narrow, wide = ToyEngine(model), ToyEngine(model)
    found(TASK, thoughts_of(width=2, children=2, depth=3), narrow)
    found(TASK, thoughts_of(width=100, children=3, depth=3), wide)
    assert {(one.prefix, one.seed) for one in narrow.requests} <= {(one.prefix, one.seed) for one in wide.requests}
