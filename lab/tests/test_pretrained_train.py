"""Training of a pair in miniature: what is rewarded, that padding changes nothing, and that both parts learn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gguf")

from searchlens.errors import InputError  # noqa: E402
from searchlens.store.checkpoints import Adapter  # noqa: E402
from searchlens_lab.pretrained import train  # noqa: E402
from searchlens_lab.pretrained.equations import equations  # noqa: E402
from searchlens_lab.pretrained.train import Learner, Options, Task, reinforce, reward, warm_up, worked_answer  # noqa: E402
from test_pretrained import network, vocabulary  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gemma of random weights with a tokenizer of letters."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.processors import TemplateProcessing

    folder = tmp_path_factory.mktemp("model")
    network().save_pretrained(folder)
    described = json.loads((folder / "config.json").read_text()) | {"eos_token_id": 1, "pad_token_id": 0}
    (folder / "config.json").write_text(json.dumps(described))
    ids = {piece: place for place, (piece, _, _) in enumerate(vocabulary())}
    tokenizer = Tokenizer(BPE(ids, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(["<eos>", "<bos>"])
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_worked_answers_lose_the_marks_and_state_their_number() -> None:
    answer = "He has 2*3=<<2*3=6>>6 eggs.\nSo 6+1,000=<<6+1000=1006>>1006.\n#### 1,006"
    assert worked_answer(answer) == "He has 2*3=6 eggs. So 6+1,000=1006. The answer is 1006."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He has 3 + 4 = 7. The answer is 7.", 1),
        ("The answer is $7.", 1),
        ("The answer is 7.00.", 1),
        ("The answer is 5. No, the answer is 7.", 1),
        ("He has 3 + 5 = 7. The answer is 7.", 0),  # right by chance
        ("He has 14 / 2 = 7 and 10 / 3 = 3.33. The answer is 7.", 1),
        ("He has 7 / 0 = 7. The answer is 7.", 0),
        ("He has 1 + 2 * 4 = 7. The answer is 7.", 0),
        ("He has 1 + 2 + 4 = 7. The answer is 7.", 1),
        ("He has 2 + 3 + 4 = 10. The answer is 7.", 0),
        ("12 apples minus 5 apples = 7 apples. The answer is 7.", 1),
        ("12 apples minus 5 apples = 9 apples. The answer is 7.", 0),
        ("He has 3 + 4 = 7.", 0),
        ("The answer is 8.", 0),
    ],
)
def test_a_reward_needs_the_number_and_true_equations(text: str, expected: float) -> None:
    assert reward(text, 7) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 + 3 + 4 = 10", [False]),
        ("(2 + 3) * 4 = 20", [True]),
        ("12 apples minus 5 apples = 9 apples", [False]),
        ("9 red apples - 2 apples = 7", [True]),
        ("He has 12 apples and 5 - 3 = 2 pears. The answer is 5. 3 + 4 = 8", [True, False]),
        ("2 * 3 = 6 + 1 = 7", [False, True]),
        ("$1,000 plus $6 = $1,006, 3 x 4 = 12, 3 times 4 equals 12", [True, True, True]),
        ("10 / 3 = 3.33 and 10 ÷ 4 = 2.6", [True, False]),
        ("y + 3 = 7, 3 + 4 = 7 + y, 5 = 5, -3 + 5 = 1, (2 + 3 = 6, 05 + 1 = 7", []),
        ("The answer is 7.", []),
    ],
)
def test_equations_of_several_numbers_and_words_are_read(text: str, expected: list[bool]) -> None:
    assert list(equations(text)) == expected


@pytest.mark.parametrize("text", ["1 + " * 20_000, "(" * 20_000 + "1", "1 apple " * 10_000, "9" * 5_000 + " + 1 = 2"])
def test_long_texts_without_a_whole_equation_cost_little(text: str) -> None:
    assert list(equations(text)) == []


def test_a_batch_of_different_lengths_is_each_text_alone(folder: Path) -> None:
    """Nothing is masked: what stands behind a text is never read."""
    learner = Learner(folder, "cpu")
    texts = [(learner.prompt("of" * n), learner.answer("the capital" * (n + 1))) for n in (1, 4, 2)]
    with torch.no_grad():
        together = learner.logprobs(texts)
        alone = torch.cat([learner.logprobs([text]) for text in texts])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    assert [len(answer) for _, answer in texts] == [24, 57, 35]


def test_the_warm_up_learns_and_leaves_the_embedding(folder: Path) -> None:
    learner = Learner(folder, "cpu")
    before = learner.model.get_input_embeddings().weight.clone()
    options = Options(warm_steps=12, warm_batch=4, warm_rate=3e-3, limit=300)
    losses = [record["loss"] for record in warm_up(learner, [("a", "the capital"), ("b", "of it")] * 2, options)]
    assert losses[-1] < 0.7 * losses[0]
    assert torch.equal(learner.model.get_input_embeddings().weight, before)


def test_no_warm_up_leaves_the_model_as_it_is(folder: Path) -> None:
    """As when training goes on from a Base that is there already."""
    assert list(warm_up(Learner(folder, "cpu"), [("a", "b")], Options(warm_steps=0))) == []


def test_reinforcement_makes_what_is_rewarded_likelier(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward here is the share of one letter, so that random texts differ in it."""
    learner = Learner(folder, "cpu")
    monkeypatch.setattr(train, "reward", lambda text, gold: float("a" in text))
    options = Options(steps=12, questions=2, samples=24, rate=1e-2, max_tokens=6, limit=2_000)
    records = list(reinforce(learner, [[Task("a", 1.0)], [Task("b", 2.0)]], options))
    assert sum(each["reward"] for each in records[-3:]) > 1.5 * sum(each["reward"] for each in records[:3]) > 0


@pytest.mark.parametrize("rank", [None, 2])
def test_a_pair_is_written_and_can_be_loaded(folder: Path, tmp_path: Path, rank: int | None) -> None:
    options = Options(warm_steps=1, warm_batch=2, steps=3, questions=1, samples=2, max_tokens=4, keep=(1,), rank=rank)
    train.train(folder, tmp_path / "pair", [("a", "b")] * 2, [[Task("a", 1.0)]], options, "cpu")
    names = sorted(path.name for path in (tmp_path / "pair").iterdir())
    assert names == ["base", "rl-00001", "rl-00003", "training.jsonl"]
    parts = [json.loads(line)["part"] for line in (tmp_path / "pair/training.jsonl").read_text().splitlines()]
    assert parts == ["warm-up", "GRPO", "GRPO", "GRPO"]
    if rank:
        Adapter.read(tmp_path / "pair/rl-00003").require_fits(folder)
    else:
        Learner(tmp_path / "pair/rl-00003", "cpu")


def test_an_adapter_alone_is_trained_and_starts_at_nothing(folder: Path) -> None:
    """The warm-up and GRPO change the same matrices, and the network below them stays as it is."""
    learner, plain = Learner(folder, "cpu", rank=3), Learner(folder, "cpu")
    texts = [(learner.prompt("of"), learner.answer("the capital"))]
    weights = {name: weight.clone() for name, weight in plain.model.state_dict().items()}
    with torch.no_grad():
        assert torch.equal(learner.logprobs(texts), plain.logprobs(texts))
    options = Options(warm_steps=12, warm_batch=4, warm_rate=3e-2, limit=300)
    losses = [record["loss"] for record in warm_up(learner, [("a", "the capital"), ("b", "of it")] * 2, options)]
    assert losses[-1] < 0.7 * losses[0]
    frozen = {
        name.replace("parametrizations.weight.original", "weight"): weight
        for name, weight in learner.model.named_parameters()
        if not weight.requires_grad
    }
    assert len(frozen) == len(weights) - 1  # the head is the embedding
    assert all(torch.equal(weight, weights[name]) for name, weight in frozen.items())
    assert sum(weight.requires_grad for weight in learner.model.parameters()) == 2 * 7 * 7  # of seven layers


def test_an_adapter_is_added_once_for_all_tokens_of_a_sample(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(folder, "cpu", rank=3)
    added: list[object] = []
    forward = train.LowRank.forward

    def counted(matrices: train.LowRank, weight: torch.Tensor) -> torch.Tensor:
        added.append(matrices)
        return forward(matrices, weight)

    monkeypatch.setattr(train.LowRank, "forward", counted)
    learner.sample(["a"], 2, 5)
    assert len(added) == len(set(map(id, added))) == 7 * 7


def test_an_adapter_is_written_as_the_engines_read_it(folder: Path, tmp_path: Path) -> None:
    """It fits the model by the check that both engines make, and peft adds the same matrices to the same weights."""
    peft = pytest.importorskip("peft")
    learner, merged = Learner(folder, "cpu", rank=3), Learner(folder, "cpu")
    torch.manual_seed(0)
    for weight in learner.model.parameters():
        if weight.requires_grad:
            weight.data = (0.3 * torch.randn_like(weight)).to(torch.bfloat16).float()
    learner.save(tmp_path)
    adapter = Adapter.read(tmp_path)
    adapter.require_fits(folder)
    assert adapter.rank == 3
    texts = [(merged.prompt("of"), merged.answer("the capital"))]
    with torch.no_grad():
        plain = merged.logprobs(texts)
        merged.model = peft.PeftModel.from_pretrained(merged.model, tmp_path).merge_and_unload()
        torch.testing.assert_close(merged.logprobs(texts), learner.logprobs(texts), rtol=1e-4, atol=1e-4)
        assert (plain - learner.logprobs(texts)).abs().max() > 0.1


def test_a_network_without_such_layers_is_refused() -> None:
    with pytest.raises(InputError, match="has no layers q_proj, k_proj"):
        train.add_adapter(torch.nn.Linear(2, 2), 1, 1)


@pytest.mark.parametrize(
    ("option", "message"), [("--questions", "one of each benchmark"), ("--samples", "alone has no group")]
)
def test_too_few_for_a_step_of_grpo_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, message: str
) -> None:
    """The warm-up, which takes minutes, would have come first."""
    with pytest.raises(SystemExit):
        train.main([str(tmp_path), str(tmp_path / "pair"), "--worked", "no.jsonl", "--mawps", "no.csv", option, "1"])
    assert f"{option} 1: at least 2" in (said := capsys.readouterr().err) and message in said
