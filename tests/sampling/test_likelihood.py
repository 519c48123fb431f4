"""Cross-likelihoods: what is said of known distributions, and texts of the micro pair scored under both sides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import DEFAULT, ZOO, micro_study
from run_stages import score_cell
from searchlens import catalogue
from searchlens.analysis.likelihood import QUANTILES, summary
from searchlens.cli.main import main
from searchlens.cli.stages.likelihood import likelihood
from searchlens.cli.stages.record import record
from searchlens.config import check
from searchlens.config.model import plain
from searchlens.engines.base import EngineMemoryError
from searchlens.errors import InputError, JobError
from searchlens.plan import Grid, needs
from searchlens.reporting.tables.likelihood import Likelihoods, said
from searchlens.reporting.tables.table import build
from searchlens.sampling import generate
from searchlens.store.columns import SCORED_TEXTS

Make = Callable[[Mapping[str, Any]], Grid]
Values = dict[tuple[str, str], tuple[float | None, float | None, float | None]]


def texts(
    base: np.ndarray, rl: np.ndarray, right: np.ndarray | None = None, tokens: int = 2, drawn: Mapping[str, Any] = {}
) -> pl.DataFrame:
    """The same texts of both sides, or those numbers of ``drawn``; log p of shape (questions, texts)."""
    rows = []
    for side in ("base", "rl"):
        for question in range(len(base)):
            chosen = drawn.get(side, range(base.shape[1]))
            for sample, text in enumerate(chosen):
                verdict = bool(text % 2) if right is None else bool(right[question, text])
                log_p = {"logp_base": base[question, text], "logp_rl": rl[question, text]}
                facts = {"question": question, "sample": sample, "side": side, "text": text, "tokens": tokens}
                rows.append({**facts, **log_p, "right": verdict})
    return pl.DataFrame(rows, SCORED_TEXTS)


def read(frame: pl.DataFrame, **options: Any) -> Values:
    return {
        (row["texts"], row["measure"]): (row["value"], row["lo"], row["hi"])
        for row in summary(frame, draws=200, **options).rows(named=True)
    }


def test_divergences_are_those_of_the_distributions() -> None:
    """Texts in exact proportion to a distribution of four: means over them are its entropy and its divergence."""
    p, q = np.array([4, 2, 1, 1]) / 8, np.array([1, 1, 1, 5]) / 8
    drawn = {"base": np.repeat(range(4), [4, 2, 1, 1]), "rl": np.repeat(range(4), [1, 1, 1, 5])}
    found = read(texts(np.log([p] * 3), np.log([q] * 3), tokens=2, drawn=drawn))
    kl = {"base": np.sum(p * np.log(p / q)), "rl": np.sum(q * np.log(q / p))}
    for side, own in (("base", p), ("rl", q)):
        entropy = -np.sum(own * np.log(own))
        assert found[side, "kl_text"] == pytest.approx((kl[side],) * 3)
        assert found[side, "kl_token"][0] == pytest.approx(kl[side] / 2)
        assert found[side, "entropy_text"][0] == pytest.approx(entropy)
        assert found[side, "entropy_token"][0] == pytest.approx(entropy / 2)
        cross = {side: entropy, ("rl" if side == "base" else "base"): entropy + kl[side]}
        for name in ("base", "rl"):
            assert found[side, f"perplexity_{name}"][0] == pytest.approx(np.exp(cross[name] / 2))
    assert found["base", "log10_samples_q50"][0] == pytest.approx(np.log10(8))
    assert found["rl", "log10_samples_q10"][0] == pytest.approx(np.log10(2))
    assert found["rl", "log10_samples_q50"][0] == pytest.approx(np.log10(8))


@pytest.mark.parametrize(("alpha", "gamma"), [(1.7, 0.0), (1.0, 2.0), (1.3, 0.8)])
def test_power_and_tilt_are_told_apart(alpha: float, gamma: float) -> None:
    """Laws that hold exactly, with a constant of its own for each question, are found exactly, and fit perfectly."""
    rng = np.random.default_rng(1)
    base, right = -rng.exponential(3, (12, 10)), rng.random((12, 10)) < 0.4
    rl = rng.normal(0, 5, (12, 1)) + alpha * base + gamma * right
    found = read(texts(base, rl, right))
    for name in ("base", "rl", "both"):
        assert found[name, "alpha"] == pytest.approx((alpha,) * 3)
        assert found[name, "gamma"] == pytest.approx((gamma,) * 3, abs=1e-7)
        assert found[name, "r2"] == pytest.approx((1, 1, 1))
        assert (found[name, "r2_power"][0] == pytest.approx(1)) == (gamma == 0)
        assert (found[name, "r2_tilt"][0] == pytest.approx(1)) == (alpha == 1)
    if alpha == 1:
        assert found["base", "gamma_tilt"] == pytest.approx((gamma,) * 3)
    if gamma == 0:
        assert found["base", "alpha_power"] == pytest.approx((alpha,) * 3)


def test_regression_is_that_of_least_squares_with_a_constant_for_each_question() -> None:
    rng = np.random.default_rng(2)
    base, right = -rng.exponential(3, (6, 9)), rng.random((6, 9)) < 0.5
    rl = 1.2 * base + 0.7 * right + rng.normal(0, 1, (6, 9))
    design = np.column_stack([base.ravel(), right.ravel(), np.repeat(np.eye(6), 9, axis=0)])
    alpha, gamma = np.linalg.lstsq(design, rl.ravel(), rcond=None)[0][:2]
    found = read(texts(base, rl, right))
    for name, value in (("alpha", alpha), ("gamma", gamma)):
        point, low, high = found["base", name]
        assert point == pytest.approx(value)
        assert low < value < high


def test_what_cannot_be_said_is_null_or_infinite() -> None:
    """A text that the other side cannot draw, verdicts that are all alike, and a single question."""
    base, rl = -np.random.default_rng(3).exponential(3, (2, 4, 5))
    rl[0, 0] = -np.inf
    found = read(texts(base, rl, np.zeros((4, 5)), drawn={"rl": range(1, 5)}))
    assert found["base", "impossible"][0] == 1 / 20
    assert found["base", "kl_text"] == found["base", "perplexity_rl"] == (np.inf, None, None)
    assert found["rl", "log10_samples_q50"][0] is not None
    for name in ("alpha", "gamma", "r2", "gamma_tilt"):
        assert found["base", name] == (None, None, None), "right does not vary"
    assert found["base", "alpha_power"][0] is not None
    alone = read(texts(base[1:2], rl[1:2]))
    assert alone["base", "kl_text"][0] is not None
    assert {ends[1:] for ends in alone.values()} == {(None, None)}


def test_quantiles_are_inverted_distribution_functions() -> None:
    values = -np.arange(1.0, 11.0)[None] * np.log(10)
    found = read(texts(values, values))
    assert [found["base", f"log10_samples_q{100 * level:.0f}"][0] for level in QUANTILES] == pytest.approx([1, 5, 9])


# ---- the stage


def study(results: Path, rl: str = "rl", **changes: Any) -> Grid:
    raw = micro_study(questions=4, samples=2, results=str(results), budgets=[1, 2], references=[], landscape={})
    raw["study"] = {"pairs": ["micro"], "benchmarks": ["math"], "likelihood": {"questions": 3, "samples": 2}}
    raw["checkpoints"] = {
        "base": {"path": str(ZOO / "micro-1m-base"), "device": "cpu"},
        "rl": {"path": str(ZOO / f"micro-1m-{rl}"), "device": "cpu", "seed": 7},
    }
    raw["pairs"] = {"micro": {"base": "base", "rl": "rl"}}
    raw["benchmarks"]["math"]["max_tokens"] = 48
    raw["policies"] = {"mine": {"local": {"temperature": 1.0}}, DEFAULT: None}
    return Grid(check.validate(raw | changes))


def drawn(grid: Grid) -> Grid:
    for cell in grid.study.cells:
        for manifest in grid.manifests(*cell):
            generate(grid, *cell, manifest)
        score_cell(grid, *cell, grid.manifests(*cell), grid.scores(*cell))
    return grid


def scored(grid: Grid, output: Path) -> pl.DataFrame:
    likelihood(grid, needs.likelihood(grid, "micro", "math"), output, fingerprint="0" * 12)
    return pl.read_parquet(output / "texts.parquet")


def test_texts_of_both_sides_are_scored_under_both(tmp_path: Path) -> None:
    """Those of the plain policy, with the log p that was recorded when they were drawn; the table shows them."""
    pytest.importorskip("torch")
    grid = drawn(study(tmp_path / "results"))
    cell = needs.likelihood(grid, "micro", "math")
    assert (cell.policy, cell.questions, cell.samples) == ("mine", 3, 2)
    found = scored(grid, tmp_path)
    assert found.schema == SCORED_TEXTS
    assert found.select("side", "question", "sample").rows() == [
        (side, question, sample) for side in ("base", "rl") for question in range(3) for sample in range(2)
    ]
    ids = [question.id for question in grid.inputs.questions("math")]
    for side, (checkpoint, stream) in cell.sides.items():
        folder = grid.folder(checkpoint, "math", stream)
        shard = pl.concat([pl.read_parquet(path) for path in folder.glob("*.parquet")])
        own = found.filter(side=side)
        verdicts = pl.read_parquet(grid.scores(checkpoint, "math")).filter(policy="mine")
        for row in own.rows(named=True):
            sample = shard.filter(question=ids[row["question"]], sample=row["sample"]).row(0, named=True)
            assert row["tokens"] == sample["n_tokens"]
            assert row[f"logp_{side}"] == pytest.approx(sum(sample["logprobs"]), abs=1e-3)
            verdict = verdicts.filter(question=row["question"], sample=row["sample"])
            assert row["right"] == verdict["correct"].item()
    assert (found["logp_base"] != found["logp_rl"]).all()
    frames = {name: pl.read_parquet(tmp_path / f"{name}.parquet") for name in catalogue.LIKELIHOOD_FRAMES}
    context = Likelihoods({("micro", "math"): frames, ("micro", "aime"): "no policy"})
    table = build(catalogue.declaration("table", "cross_likelihood"), context)
    assert table.data.height == frames["summary"].height
    assert "Not scored: micro/aime (no policy)." in table.notes
    assert [part.text.height for part in table.parts] == [2, 3]
    assert frames["bounds"]["spread"].max() < 1e-3  # type: ignore[operator]
    assert frames["bounds"]["id"].to_list() == ids[:3]
    assert found["token_ids"].null_count() == found.height, "study.likelihood.tokens is false"
    assert frames["handover"].is_empty() and frames["splits"].is_empty()


def test_base_continues_texts_under_its_policy(tmp_path: Path) -> None:
    """With a filter: log q of each token is that of drawing, and a continuation depends on its own seed alone."""
    pytest.importorskip("torch")
    handover = {"questions": 2, "continuations": 3, "fractions": [0.5], "tokens": [1, 400]}
    section = {"questions": 4, "samples": 6, "policy": DEFAULT, "tokens": True, "handover": handover}
    grid = study(tmp_path / "results", study={"pairs": ["micro"], "benchmarks": ["math"], "likelihood": section})
    raw = plain(grid.config)
    raw["benchmarks"]["math"]["samples"] = 6
    grid = drawn(Grid(check.validate(raw)))
    cell = needs.likelihood(grid, "micro", "math")
    assert cell.policy == DEFAULT
    found = scored(grid, tmp_path / "a")
    for side, (checkpoint, stream) in cell.sides.items():
        own = found.filter(side=side).join(
            pl.DataFrame({"id": [q.id for q in grid.inputs.questions("math")]}).with_row_index("question"),
            on="question",
        )
        shards = [pl.read_parquet(path) for path in grid.folder(checkpoint, "math", stream).glob("*.parquet")]
        drawn_texts = pl.concat(shards).select(
            pl.col("question").alias("id"), "sample", "sampling_logprobs", ids="tokens"
        )
        both = own.join(drawn_texts, on=["id", "sample"])
        assert both.height == own.height == 24
        assert both["token_ids"].to_list() == both["ids"].to_list()
        scores, recorded = (both[name].explode().to_numpy() for name in (f"logps_{side}", "sampling_logprobs"))
        np.testing.assert_allclose(scores, recorded, atol=1e-4)
        assert both[f"ranks_{side}"].explode().min() == 1
        assert both[f"whole_{side}"].all()
    frames = {name: pl.read_parquet(tmp_path / f"a/{name}.parquet") for name in catalogue.LIKELIHOOD_FRAMES}
    places = frames["handover"].filter(kind="rl_right", among="all").select("unit", "at").rows()
    assert places == [("fraction", 0.5), ("tokens", 1.0), ("tokens", 400.0)]
    whole = frames["handover"].filter(at=400.0)
    assert dict(whole.filter(among="all").select("kind", "value").rows())["rl_right"] == 1, "nothing is left to draw"
    assert frames["splits"]["at"].to_list() == [1, 400] * (frames["splits"].height // 2)
    scored(grid, tmp_path / "b")
    for name in catalogue.LIKELIHOOD_FRAMES:
        assert (tmp_path / f"a/{name}.parquet").read_bytes() == (tmp_path / f"b/{name}.parquet").read_bytes()
    tables = {
        name: build(catalogue.declaration("table", name), Likelihoods({("micro", "math"): frames}))
        for name in ("bounds", "handover", "token_shift")
    }
    assert tables["token_shift"].parts[0].text.height == 22
    assert tables["handover"].parts[0].text["cut"].to_list()[:3] == ["50%", "1 token", "400 tokens"]
    assert tables["bounds"].data.height == 4


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(3, 0, 0.5)], "RL solves no question that 64 samples of Base do not."),
        ([(0, 1, 0.0)], "1 question that RL solves and 64 samples of Base do not. No right text is known"),
        ([(0, 1, 0.01)], "Base can solve 1 of them: its mean number of samples until a right one is at most 100."),
        ([(0, 1, 0.01), (0, 2, 0.0005), (0, 2, 0.0)], "3 questions .* Base can solve 2 of them: .* at most 100 to 2e"),
    ],
)
def test_what_is_said_of_expanded_questions(rows: list[tuple[int, int, float]], words: str) -> None:
    """Nothing stronger than the bounds: a question without a known right text is open."""
    base, rl, least = zip(*rows, strict=True)
    columns = {"base_samples": [64] * len(rows), "base_right": base, "rl_right": rl, "at_least": least}
    frame = pl.DataFrame({"pair": ["p"] * len(rows), "benchmark": ["b"] * len(rows), **columns})
    assert re.search(words, said(frame))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("another", "study.likelihood.policy: 'another' is unknown"),
        ("greedy", "greedy is no policy of its pool that draws each text by itself, without penalties"),
    ],
)
def test_policies_that_cannot_be_scored(tmp_path: Path, policy: str, message: str) -> None:
    section = {"likelihood": {"policy": policy}, "pairs": ["micro"], "benchmarks": ["math"]}
    policies = {"greedy": None, "mine": {"local": {"temperature": 1.0}}, DEFAULT: None}
    try:
        said_of = study(tmp_path, study=section, policies=policies).jobs.without_likelihood("micro", "math")
    except InputError as error:
        said_of = str(error)
    assert message in said_of


def test_two_tokenizers_are_refused(tmp_path: Path) -> None:
    """Before a model is loaded, with the token that differs."""
    pytest.importorskip("torch")
    grid = drawn(study(tmp_path / "results"))
    other = tmp_path / "other"
    other.mkdir()
    for path in (ZOO / "micro-1m-rl").iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    text = (other / "tokenizer.json").read_text()
    assert text.count('"="') >= 1
    (other / "tokenizer.json").write_text(text.replace('"="', '"equals"'))
    cell = needs.likelihood(grid, "micro", "math")
    changed = study(tmp_path / "results", checkpoints={**plain(grid.config)["checkpoints"], "rl": {"path": str(other)}})
    with pytest.raises(InputError, match=r"token .* is '=' to base and 'equals' to rl"):
        likelihood(changed, cell, tmp_path, fingerprint="0" * 12)


def test_a_device_without_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from searchlens.engines.transformers import TransformersEngine

    def full(*_: Any) -> Any:
        raise EngineMemoryError("CUDA out of memory", 16)

    grid = drawn(study(tmp_path / "results"))
    monkeypatch.setattr(TransformersEngine, "score", full)
    with pytest.raises(JobError, match=r"base ran out of memory while scoring texts of math: CUDA out of memory"):
        scored(grid, tmp_path)
    assert not (tmp_path / "texts.parquet").exists()


def test_cells_without_texts_to_score_say_why(
    raw: dict[str, Any], make_grid: Make, sampled: Grid, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sampled.jobs.without_likelihood("toy", "sums") == "study.likelihood is null"
    assert sampled.jobs.likelihood_cells == ()
    section = {**raw["study"], "likelihood": {}}
    without = make_grid({**raw, "study": section}).jobs.without_likelihood("toy", "sums")
    assert without == "no policy draws at temperature 1 without filters"
    raw["policies"]["temp_1.0"] = None
    raw["references"] = ["temp_1.0"]
    assert make_grid({**raw, "study": section}).jobs.likelihood_cells == (("toy", "sums"),)
    record(sampled, tmp_path / "kept")
    del raw["policies"]["temp_1.0"]
    raw["references"] = ["greedy"]
    kept = make_grid({**raw, "study": {**section, "recorded_counts": "kept", "sample": []}})
    assert kept.jobs.without_likelihood("toy", "sums") == "no tokens of toy-base: its samples are recorded"
    assert kept.jobs.without_likelihoods == ["toy/sums: no tokens of toy-base: its samples are recorded"]
    assert sampled.jobs.without_likelihoods == []
    study_file = tmp_path / "study.yaml"
    study_file.write_text("{}")
    cell = ["--pair", "micro-1m", "--benchmark", "math", "--output", str(tmp_path / "out")]
    assert main(["likelihood", "--config", str(study_file), *cell]) == 2
    assert "study.likelihood is null" in capsys.readouterr().err
