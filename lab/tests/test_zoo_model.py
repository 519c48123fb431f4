"""How the zoo is trained: tokenizer, forward pass, sampler, one step of each training; and the committed weights."""

import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors import safe_open  # noqa: E402

from searchlens.engines.base import Sampling  # noqa: E402
from searchlens_lab.zoo import model as models  # noqa: E402
from searchlens_lab.zoo.card import BASE, RL, write_cards  # noqa: E402
from searchlens_lab.zoo.corpus import END, Tokens, train_tokenizer  # noqa: E402
from searchlens_lab.zoo.evaluate import boxed, is_right, paired_interval  # noqa: E402
from searchlens_lab.zoo.pretrain import learning_rate, optimizer_for, pretrain, update  # noqa: E402
from searchlens_lab.zoo.recipe import ModelShape, Pretraining, Recipe, Rlvr  # noqa: E402
from searchlens_lab.zoo.rlvr import advantages, plateaued, policy_gradient  # noqa: E402
from searchlens_lab.zoo.sample import Sampler, Samples  # noqa: E402
from searchlens_lab.zoo.tasks import draw, prompt  # noqa: E402

ZOO = Path(__file__).parents[2] / "resources" / "zoo"
TINY = ModelShape(vocabulary=32, hidden=16, layers=2, heads=2, kv_heads=1, ffn=32)
RECORD = json.loads((ZOO / "training.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    return transformers.AutoTokenizer.from_pretrained(ZOO / BASE)


def test_the_committed_tokenizer_comes_out_again() -> None:
    """Protects the first pair from what the cohort added: its tokenizer comes out as it was committed.

    The tokenizer is a fingerprint of the 30,000 documents that it was trained on, and so of the corpus writer.
    """
    made = json.loads(train_tokenizer(Recipe()).backend_tokenizer.to_str())
    assert made == json.loads((ZOO / BASE / "tokenizer.json").read_text(encoding="utf-8"))


def test_sampler_continues_greedily_as_transformers_does(tokenizer) -> None:
    """Protects the lock-step sampler: left padding and static cache change nothing, nor do rows of other lengths."""
    asked = [tokenizer.encode(prompt(q)) for q in ("Compute 3*14+25.", "I think of 7. I add 5, multiply by 2.")]
    ours = Sampler(models.load(ZOO / RL), rows=3, prompt_tokens=40, new_tokens=40).draw(asked, Sampling(0.0))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(ZOO / RL, dtype=torch.float32)
    for row, ids in enumerate(asked):
        expected = theirs.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=40)[0, len(ids) :].tolist()
        assert ours.tokens[row, : ours.lengths[row]].tolist() == expected


def test_sampler_keeps_to_the_nucleus() -> None:
    """Protects the default policy: top-p never draws outside the smallest set that reaches it."""
    model = models.Decoder(TINY, seed=1)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(8)
        ranked = model(torch.tensor([[5, 6]]))[0, -1].softmax(-1).sort(descending=True)
        inside = set(ranked.indices[: int((ranked.values.cumsum(0) < 0.6).sum()) + 1].tolist())
    torch.manual_seed(0)
    drawn = Sampler(model, 256, 2, 1).draw([[5, 6]] * 256, Sampling(1.0, top_p=0.6)).tokens[:, 0].tolist()
    assert set(drawn) <= inside
    assert 1 < len(inside) < TINY.vocabulary


def test_pretraining_lowers_the_loss() -> None:
    """Protects the pretraining loop: on a corpus of one pattern, the loss falls by an order of magnitude."""
    document = [2, 3, 4, 5, 6, 7, END]
    n = 64
    corpus = Tokens(np.array(document * n, np.uint16), np.full(n, len(document), np.int32), np.full(n, 2, np.int32))
    settings = Pretraining(steps=200, warmup=10, tokens=128, lr=1e-2)
    _, curve = pretrain(corpus, replace(Recipe(), shape=TINY, pretraining=settings), "cpu")
    assert curve[-1]["loss"] < 0.1 * curve[0]["loss"] < curve[0]["loss"]
    assert learning_rate(settings, 0) < learning_rate(settings, 10) > learning_rate(settings, 199)


def test_an_rlvr_step_raises_what_was_rewarded() -> None:
    """Protects the sign and the masking of the policy gradient: rewarded samples become likelier, others less so."""
    model = models.Decoder(TINY, seed=0)
    optimizer = optimizer_for(model, (0.9, 0.98), 0.0, "cpu")
    asked = [[2, 3]] * 4
    samples = Samples(
        torch.tensor([[4, 5, END], [6, END, END], [7, 8, 9], [4, 4, END]]),
        torch.tensor([3, 2, 3, 3]),
        torch.tensor([True, True, False, True]),
    )

    @torch.no_grad()
    def log_probs() -> list[float]:
        rows = zip(asked, samples.tokens.tolist(), samples.lengths.tolist(), strict=True)
        return [
            float(models.token_log_probs(model(ids), ids)[0, 1:].sum())
            for p, tokens, n in rows
            for ids in [torch.tensor([p + tokens[:n]])]
        ]

    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    before = log_probs()
    for _ in range(5):
        policy_gradient(model, asked, samples, advantages(rewards).flatten())
        update(optimizer, model, 1e-2, 1.0)
    after = log_probs()
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert after[2] < before[2]


def test_the_stopping_rule() -> None:
    """Protects the rule that was fixed beforehand: a plateau of the reward or the entropy floor, not before."""
    settings = Rlvr(min_steps=4, window=2, patience=0.01, entropy_floor=0.1)
    rising = [{"reward": 0.1 * i, "entropy": 0.2} for i in range(6)]
    assert not plateaued(settings, rising)
    assert not plateaued(settings, [{"reward": 0.5, "entropy": 0.2}] * 3)
    assert plateaued(settings, [{"reward": 0.5, "entropy": 0.2}] * 4)
    assert plateaued(settings, [point | {"entropy": 0.05} for point in rising])


def test_the_reward_is_the_last_box_of_a_finished_sample() -> None:
    """Protects the verifiable reward: nothing unfinished and nothing unboxed is ever right."""
    problem = draw(random.Random(0), "chain", "train")
    right = f"\\boxed{{0}} no, \\boxed{{{problem.gold}}}"
    assert boxed(right) == problem.gold
    assert is_right(problem, right, finished=True)
    assert not is_right(problem, right, finished=False)
    assert not is_right(problem, problem.gold, finished=True)


def test_paired_interval_covers_the_mean() -> None:
    """Protects the crossing claim's interval: percent, ordered, around the mean, repeatable."""
    difference = np.array([1] * 30 + [0] * 60 + [-1] * 10)
    low, high = paired_interval(difference)
    assert low < 20 < high
    assert (low, high) == paired_interval(difference)


def test_weights_are_small_and_bf16() -> None:
    """Protects the repository: bf16 weights of about two megabytes each, 36 MB at most for all weights."""
    for name in (BASE, RL):
        with safe_open(ZOO / name / "model.safetensors", "pt") as weights:
            assert {weights.get_tensor(key).dtype for key in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
        assert (ZOO / name / "model.safetensors").stat().st_size < 3_000_000
    assert sum(path.stat().st_size for path in ZOO.rglob("*.safetensors")) < 36_000_000


def test_the_two_models_differ_only_in_weights() -> None:
    """Protects the pair: one tokenizer, one architecture."""
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (ZOO / BASE / name).read_bytes() == (ZOO / RL / name).read_bytes(), name


def test_the_record_is_of_this_recipe_and_shows_the_effect() -> None:
    """Protects the claims: the recorded run used the recipe in the source, and every claim holds on dev and test.

    What recipes have gained since is at its default, which changes nothing.
    """
    recipe = json.loads(json.dumps(asdict(Recipe())))
    recorded = {
        key: recipe[key] | value if key in ("shape", "rlvr") else value for key, value in RECORD["recipe"].items()
    }
    assert recipe | recorded == recipe
    assert RECORD["seconds"]["total"] < 20 * 60
    assert RECORD["pretraining"][-1]["tokens"] >= 500_000_000
    for split in ("dev", "test"):
        failed = [claim for claim, result in RECORD[split]["claims"].items() if not result["holds"]]
        assert not failed, split


def test_cards_say_what_was_recorded(tmp_path: Path) -> None:
    """Protects the model cards: regenerated from the record, they are the committed ones."""
    for name in ("training.json", "tried.json"):
        (tmp_path / name).write_bytes((ZOO / name).read_bytes())
    for name in (BASE, RL):
        (tmp_path / name).mkdir()
    for path in write_cards(tmp_path):
        assert path.read_text(encoding="utf-8") == (ZOO / path.parent.name / path.name).read_text(encoding="utf-8")
