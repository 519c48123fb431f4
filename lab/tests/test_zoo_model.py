"""How the zoo is trained: tokenizer, forward pass, sampler, one step of each training; the committed weights; and what
it asks: exact gold, disjoint splits, benchmark files that regenerate, exact instruction checks.
"""

import json
import random
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors import safe_open  # noqa: E402

from searchlens.benchmarks.files import read_bytes  # noqa: E402
from searchlens.engines.base import Sampling  # noqa: E402
from searchlens.grading.instructions import CHECKS, passes  # noqa: E402
from searchlens_lab.zoo import corpus as corpora  # noqa: E402
from searchlens_lab.zoo import model as models  # noqa: E402
from searchlens_lab.zoo.card import BASE, RL, write_cards  # noqa: E402
from searchlens_lab.zoo.corpus import END, Tokens, train_tokenizer  # noqa: E402
from searchlens_lab.zoo.evaluate import boxed, build, is_right, paired_interval, quotas, write_benchmarks  # noqa: E402
from searchlens_lab.zoo.pretrain import learning_rate, optimizer_for, pretrain, update  # noqa: E402
from searchlens_lab.zoo.recipe import ModelShape, Pretraining, Recipe, Rlvr  # noqa: E402
from searchlens_lab.zoo.rlvr import advantages, plateaued, policy_gradient  # noqa: E402
from searchlens_lab.zoo.sample import Sampler, Samples  # noqa: E402
from searchlens_lab.zoo.tasks import KINDS, LETTERS, Listing, Problem, distinct, draw, prompt, split_of  # noqa: E402

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


# ---- what it asks

STORY = {
    "+": re.compile(r"(?:buys|finds|gives \w+) (\d+) more"),
    "-": re.compile(r"(?:gives away|loses|sells) (\d+)"),
    "*": re.compile(r"(?:grows|gets) (\d+) times|boxes with (\d+)"),
    "/": re.compile(r"makes (\d+) equal piles"),
}
SMALLER = {
    ("weeks", "days"): 7,
    ("days", "hours"): 24,
    ("hours", "minutes"): 60,
    ("minutes", "seconds"): 60,
    ("years", "months"): 12,
    ("feet", "inches"): 12,
    ("pounds", "ounces"): 16,
    ("meters", "centimeters"): 100,
}
ORDERS = {"+": "add", "-": "subtract", "*": "multiply by", "/": "divide by"}


def steps_read_from(question: str) -> list[tuple[str, int]]:
    """The operations as a reader finds them in the text, without the generator's own facts."""
    found = []
    for sign, pattern in STORY.items():
        matches = [*pattern.finditer(question), *re.finditer(rf"{ORDERS[sign]} (\d+)", question)]
        found += [(match.start(), sign, int(next(filter(None, match.groups())))) for match in matches]
    return [(sign, b) for _, sign, b in sorted(found)]


def follow(value: int, steps: list[tuple[str, int]]) -> int:
    for sign, b in steps:
        if sign == "/":
            assert value % b == 0
        value = {"+": value + b, "-": value - b, "*": value * b, "/": value // b}[sign]
    return value


def chosen(text: str, result: int) -> str:
    """The letter of a result where options are listed, else the result."""
    options = re.findall(r"\(([A-H])\) (\d+)", text)
    return {int(value): letter for letter, value in options}[result] if options else str(result)


def gold_from_text(problem: Problem) -> str:
    """Solve a question from its text alone."""
    text = problem.question
    if problem.kind in ("expression", "nested"):
        return str(eval(text.removeprefix("Compute ").rstrip(".")))
    if problem.kind == "compare":
        values = [eval(v) for v in re.findall(r"\([A-D]\) ([\d*+-]+)", text)]
        return LETTERS[values.index(max(values) if "largest" in text else min(values))]
    if (members := re.match(r"Add the (\w+) numbers of ([\d, ]+)", text)) is not None:
        asked = {"even": lambda x: x % 2 == 0, "odd": lambda x: x % 2 == 1, "large": lambda x: x > 50}[members[1]]
        return chosen(text, sum(x for x in map(int, members[2].split(", ")) if asked(x)))
    if (quantity := re.match(r"How many (\w+) are (\d+) (\w+) and (\d+) \1\?", text)) is not None:
        return chosen(text, int(quantity[2]) * SMALLER[quantity[3], quantity[1]] + int(quantity[4]))
    steps = steps_read_from(text)
    if (times := re.search(r"Do this (\d) times", text)) is not None:
        steps *= int(times[1])
    first = re.search(r"\d+", text)
    end = re.search(r"(?:Now \w+ has|I get) (\d+)", text)
    if end is None:
        return chosen(text, follow(int(first.group()), steps))
    inverse = {"+": "-", "-": "+", "*": "/", "/": "*"}
    return str(follow(int(end.group(1)), [(inverse[sign], b) for sign, b in reversed(steps)]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "listing"])
def test_gold_is_what_the_text_says(kind: str) -> None:
    """Protects every gold answer: an independent reader of the text reaches the same one."""
    rng = random.Random(kind)
    for _ in range(300):
        problem = draw(rng, kind, "train")
        assert gold_from_text(problem) == problem.gold, problem.question


def test_backward_questions_punish_the_forward_method() -> None:
    """Protects the trap: following a backward question forwards never gives the gold."""
    rng = random.Random(1)
    for kind in ("story-back", "puzzle-back"):
        for _ in range(200):
            problem = draw(rng, kind, "train")
            end = re.search(r"(?:Now \w+ has|I get) (\d+)", problem.question)
            assert str(follow(int(end.group(1)), steps_read_from(problem.question))) != problem.gold


def test_benchmarks_regenerate_and_have_their_sizes_and_shares(tmp_path: Path) -> None:
    """Protects the roles: 500, 60, 198 and 541 distinct test questions, six ordinary ones in aime, level letters."""
    for path in write_benchmarks(tmp_path, Recipe()):
        assert read_bytes(path) == read_bytes(ZOO / "benchmarks" / path.name), path.name
    files = (ZOO / "benchmarks").glob("*.jsonl*")
    rows = {p.name.partition(".")[0]: [json.loads(line) for line in read_bytes(p).splitlines()] for p in files}
    assert {name: len(found) for name, found in rows.items()} == {"math": 500, "aime": 60, "gpqa": 198, "ifeval": 541}
    for name, found in rows.items():
        assert len({row["question"] for row in found}) == len(found)
        assert {split_of(row["question"]) for row in found} == {"test"}
        assert [row["id"] for row in found] == [f"{name}-{i:04d}" for i in range(1, len(found) + 1)]
    assert sum(row["tags"]["kind"] == "long-chain" for row in rows["aime"]) == 6
    letters = [row["gold"] for row in rows["gpqa"]]
    assert all(35 <= letters.count(letter) <= 65 for letter in LETTERS)
    assert all(row["gold"] == "" and row["checks"].keys() <= CHECKS.keys() for row in rows["ifeval"])


def test_splits_are_disjoint() -> None:
    """Protects test from training: no corpus, RL or dev question is a test question, drilled ones included."""
    recipe = Recipe()
    test = {p.question for name, role in recipe.roles.items() for p in build(name, role, "test", recipe.benchmark_seed)}
    dev = {p.question for name, role in recipe.roles.items() for p in build(name, role, "dev", recipe.benchmark_seed)}
    assert not test & dev
    rng = random.Random(0)
    for kind in KINDS:
        for _ in range(200):
            question = draw(rng, kind, "train").question.removesuffix(" Work backwards.")
            assert split_of(question) == "train"
            assert question not in test | dev


def test_a_family_that_is_too_small_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the set builder from looping for ever when a family has fewer questions than asked."""
    one = draw(random.Random(0), "chain", "test")
    monkeypatch.setattr("searchlens_lab.zoo.tasks.draw", lambda *_: one)
    with pytest.raises(RuntimeError, match="only 1 distinct test questions of kind chain, 5 needed"):
        list(distinct(random.Random(0), "chain", "test", 5))


def test_quotas_are_exact() -> None:
    """Protects fixed shares: they add up to n and give the remainder to the largest fractions."""
    assert quotas((("a", 0.9), ("b", 0.1)), 60) == {"a": 54, "b": 6}
    assert quotas((("a", 0.34), ("b", 0.33), ("c", 0.33)), 10) == {"a": 4, "b": 3, "c": 3}


def test_solutions_of_the_right_style_without_slips_are_right() -> None:
    """Protects the corpus: what a careful writer (or, on backward questions, a backwards one) boxes is the gold."""
    rng = random.Random(3)
    for kind in KINDS:
        for _ in range(100):
            problem = draw(rng, kind, "train")
            if isinstance(problem.facts, Listing):
                document = corpora._listing(
                    rng, problem.facts, dict.fromkeys(dict(Recipe().corpus.listing_faults), 0.0)
                )
                assert document.ends
                assert passes(problem.checks, document.text), (problem.question, document.text)
                continue
            right = ("backwards",) if kind in ("story-back", "puzzle-back", "drill") else ("careful", "detail", "terse")
            for style in right:
                assert corpora._work(rng, problem, style, 0.0).answer == problem.gold


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("DOG, CAT, PIG\nDONE", True),
        ("  DOG, CAT, PIG\nDONE\n", True),
        ("DOG, CAT, PIG", False),  # no closing line
        ("DOG, CAT, PIG\nDONE\nDONE", False),
        ("DOG, CAT\nDONE", False),  # too few
        ("DOG, CAT, CAT\nDONE", False),  # one twice
        ("DOG, CAT, SAW\nDONE", False),  # not an animal
        ("DOG, CAT, HEN\nDONE", False),  # forbidden
        ("CAT, DOG, PIG\nDONE", False),  # wrong first
        ("Dog, Cat, Pig\nDONE", False),  # wrong case
        ("DOG - CAT - PIG\nDONE", False),  # wrong separator
        ("", False),
    ],
)
def test_instruction_checks_are_exact(text: str, right: bool) -> None:
    """Protects the checker: each single departure from the instruction fails."""
    words = ["cat", "dog", "cow", "pig", "hen"]
    checks = {
        "count": {"n": 3, "separator": ", "},
        "members": {"words": words, "separator": ", "},
        "case": {"style": "upper"},
        "forbid": {"word": "hen"},
        "first": {"word": "dog", "separator": ", "},
        "closing": {"line": "DONE"},
    }
    assert passes(checks, text) is right
