"""The page of a study: its index equals the frames, what is withheld is not in it, and its size has a bound."""

import base64
import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import searchlens
from searchlens.cli.main import main
from searchlens.errors import InputError
from searchlens.reporting import explorer_files, explorer_html, explorer_sentences
from searchlens.reporting.explorer_files import Files
from searchlens.reporting.explorer_html import Inlined, explorer_page
from searchlens.reporting.explorer_index import headline_html
from small_results import DEFAULT, RIGHT, gate, score_tokens

PAGE = "<!doctype html><title>page</title>\n<!-- searchlens:data -->\n<script>run()</script>\n"
EVIL = "</script><img src=x onerror=alert(1)> \u202e <!-- \x00 \U0001f600"
SIDES = {"base": "toy-base", "rl": "toy-rl"}
Contents = dict[str, bytes]


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(PAGE)
    return path


def contents(made: Inlined) -> Contents:
    found = re.findall(r'<script type="application/octet-stream" data-path="([^"]+)">([^<]*)</script>', made.html)
    return {name: base64.b64decode(data) for name, data in found}


def index_of(files: Contents) -> dict[str, Any]:
    return dict(json.loads(files["index.json"]))


def frame(content: bytes) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(content))


def named(value: Any) -> list[str]:
    """Everything in an index that looks like the name of a file."""
    if isinstance(value, dict):
        return [name for each in value.values() for name in named(each)]
    if isinstance(value, list):
        return [name for each in value for name in named(each)]
    return [value] if isinstance(value, str) and re.fullmatch(r"\S+/\S+\.(parquet|csv|json)", value) else []


# ---- the index


def test_a_page_has_every_file_that_its_index_names(results: Path, template: Path) -> None:
    files = contents(explorer_page(searchlens.open(results), template=template))
    names = set(named(index_of(files)))
    assert names == set(files) - {"index.json"}
    for name, content in files.items():
        if name.startswith("results/"):
            assert content == (results / name.removeprefix("results/")).read_bytes()


def test_the_headline_is_that_of_the_frames(results: Path, template: Path) -> None:
    study = searchlens.open(results)
    (cell,) = index_of(contents(explorer_page(study, template=template)))["cells"]
    line, gaps = cell["headline"], study.gaps((1, 4))
    assert (line["estimator"], line["first"], line["last"]) == ("unbiased", 1, 4)
    for name, row in zip(("first", "last"), gaps.to_dicts(), strict=True):
        expected = [100 * row[key] for key in ("rl_minus_base", "lo", "hi")]
        assert [line[f"rl_minus_base_{name}{end}"] for end in ("", "_lo", "_hi")] == pytest.approx(expected)
    support = study.recovery("toy", "sums").filter(metric="P", estimator="unbiased")
    assert line["rl_minus_best"] == pytest.approx(100 * support["rl_minus_best"].max())
    assert (line["inside"], line["of"]) == (support["inside"].sum(), support.height)
    assert cell["solved"] == {"rl_only": 1, "base_only": 1, "both": 3, "neither": 1}


def test_a_cell_says_in_three_sentences_whether_it_is_sound_who_leads_and_where_base_reaches_rl(results: Path) -> None:
    (cell,) = json.loads(Files(searchlens.open(results)).index)["cells"]
    sound, leader, reached = cell["sentences"]
    assert sound == "The samples are sound: 100% of Base's and 100% of RL's state an answer."
    assert leader.startswith("With 1 sample neither leads surely: RL − Base is +20.8 [")
    greedy = "One greedy answer of Base solves 66.7% [33.3, 100.0], of RL 66.7% [33.3, 100.0]."
    assert leader.endswith(f"(points of pass@k under {DEFAULT}). {greedy}")
    assert reached.startswith("By the estimates RL lies ")


def test_recovery_is_said_with_what_the_intervals_leave_open() -> None:
    """A point above Base's best is no verdict if the interval of the gap contains 0, nor is one inside."""
    study: Any = SimpleNamespace(default_policy=DEFAULT)
    rows = {
        1: {"inside": True, "rl_minus_best": -0.08, "rl_minus_best_lo": -0.12, "rl_minus_best_hi": -0.01},
        2: {"inside": False, "rl_minus_best": 0.03, "rl_minus_best_lo": -0.11, "rl_minus_best_hi": 0.21},
        4: {"inside": True, "rl_minus_best": 0.0, "rl_minus_best_lo": -0.02, "rl_minus_best_hi": 0.02},
        8: {"inside": False, "rl_minus_best": 0.2, "rl_minus_best_lo": 0.1, "rl_minus_best_hi": 0.3},
    }

    def said(*budgets: int) -> str:
        support = [{"budget": budget, **rows[budget]} for budget in budgets]
        return explorer_sentences.cell_sentences(
            study, explorer_sentences.Headline([], support, None, policies=27), {}, "sums"
        )[-1]

    assert said(1) == "RL lies inside what Base's 27 policies reach with 1 sample."
    assert said(8) == "RL lies above the best of Base's 27 policies with 8 samples."
    assert said(1, 2, 4, 8) == (
        "By the estimates RL lies inside what Base's 27 policies reach with 1 and 4 samples, and above the"
        " best of Base's 27 policies with 2 and 8 samples; whether it is above their best is open with 2 and 4"
        " samples."
    )
    assert said(2, 4).endswith("with 2 samples; whether it is above their best is open at any of these budgets.")


@pytest.mark.parametrize(
    ("share", "end"),
    [
        (0.12, " Wrong keys, the golds of other questions, solve 12.0% of Base's and 1.0% of RL's with 16 samples."),
        (0.04, ""),
    ],
)
def test_wrong_key_is_said_where_it_solves_much(share: float, end: str) -> None:
    """Of open answers that are often small numbers, or of letters."""
    rows = [
        {"pair": "toy", "benchmark": "sums", "measure": "wrong_key", "k": k, "side": side, "value": value}
        for k in (4, 16)
        for side, value in (("Base", share), ("RL", 0.01), ("RL - Base", 0.01 - share))
    ]
    study: Any = SimpleNamespace(default_policy=DEFAULT, measures=lambda frame: pl.DataFrame(rows))
    gap = {"budget": 1, "rl_minus_base": -0.2, "lo": -0.3, "hi": -0.1}
    found = explorer_sentences.Headline([gap], [], None, wrong_key=explorer_sentences._wrong_key(study, "toy", "sums"))
    (_, leader, _) = explorer_sentences.cell_sentences(study, found, {}, "sums")
    assert leader == f"With 1 sample Base leads by 20.0 [10.0, 30.0] (points of pass@k under {DEFAULT}).{end}"


@pytest.mark.parametrize(
    ("k", "known", "end"),
    [(16, True, ""), (256, True, "; with 256 samples Base leads by 14.5 [8.0, 21.0]"), (256, False, "")],
)
def test_who_leads_with_the_most_samples_is_said(k: int, known: bool, end: str) -> None:
    """RL may lead at all budgets at which policies are compared, and Base with all of its samples."""
    where = {"pair": "toy", "benchmark": "sums", "measure": "pass@k", "side": "RL - Base", "tau": None}
    numbers = {"k": [4, k], "value": [0.1, -0.145], "lo": [0.05, -0.21], "hi": [0.15, -0.08]}
    rows = pl.DataFrame(numbers).with_columns(**{name: pl.lit(value) for name, value in where.items()})
    gaps = pl.DataFrame({"budget": [1, 16], "rl_minus_base": [0.2, 0.1], "lo": [0.1, 0.05], "hi": [0.3, 0.2]})
    labels = {"metric": "P", "estimator": "unbiased"}
    same = gaps.with_columns(**{name: pl.lit(value) for name, value in (labels | {"policy": DEFAULT}).items()})
    support = gaps.select("budget").with_columns(**{name: pl.lit(value) for name, value in labels.items()})
    frames = {"support": support, "same_policy": same}
    study: Any = SimpleNamespace(
        default_policy=DEFAULT,
        sides=(),
        measures=lambda frame: rows if known and frame == "measures" else _missing(),
        recovery=lambda pair, benchmark, frame="support": frames[frame],
    )
    leader = explorer_sentences._leader(study, explorer_sentences.headline(study, "toy", "sums"))
    assert leader == (
        f"With 1 sample RL leads by 20.0 [10.0, 30.0]; with 16 samples RL leads by 10.0 [5.0, 20.0]{end}"
        f" (points of pass@k under {DEFAULT})."
    )


def _missing() -> Any:
    raise InputError("no such frame")


def test_a_broken_cell_says_so_and_states_no_number(results: Path) -> None:
    path = results / "landscape/toy-rl/sums/health.parquet"
    pl.read_parquet(path).with_columns(answered=pl.lit(1, pl.UInt32)).write_parquet(path)
    (cell,) = json.loads(Files(searchlens.open(results)).index)["cells"]
    assert cell["health"]["state"] == "bad"
    assert cell["headline"] == {}
    assert cell["sentences"][0].startswith("sums is not interpretable. RL: ")
    assert not re.search(r"\[", cell["sentences"][1])


def test_policies_look_as_in_figures(results: Path) -> None:
    index = json.loads(Files(searchlens.open(results)).index)
    assert [policy["name"] for policy in index["policies"]] == ["temp_0.5", "topp0.95_t1.0", "topp0.9_t0.7", "greedy"]
    by_name = {policy["name"]: policy for policy in index["policies"]}
    assert by_name[DEFAULT]["title"] == "top-p 0.95, temperature 1"
    assert by_name[DEFAULT]["parameters"] == {"top_p": 0.95}
    assert by_name["greedy"] | {"colour": "#000000", "marker": "h", "search": False} == by_name["greedy"]


def test_samples_are_counted_in_the_order_of_the_scores(results: Path) -> None:
    """The page finds the rows of a question by these counts."""
    (cell,) = json.loads(Files(searchlens.open(results)).index)["cells"]
    for role, checkpoint in SIDES.items():
        scores, start = pl.read_parquet(results / f"scores/{checkpoint}/sums.parquet"), 0
        for policy in cell[role]["policies"]:
            each = cell[role]["samples"][policy]
            rows = scores[start : start + 6 * each]
            assert rows["policy"].unique().to_list() == [policy]
            assert rows["question"].to_list() == [q for q in range(6) for _ in range(each)]
            start += 6 * each
        assert start == scores.height


def test_an_unfinished_study_has_what_there_is(results: Path, template: Path) -> None:
    for folder in ("recovery", "measures", "tables", "landscape/toy-rl"):
        shutil.rmtree(results / folder)
    (cell,) = index_of(contents(explorer_page(searchlens.open(results), template=template)))["cells"]
    assert (cell["headline"], cell["solved"], cell["files"], cell["rl"]["files"]) == ({}, {}, {}, {})
    assert "points" in cell["base"]["files"]
    assert all("not known" in sentence for sentence in cell["sentences"])


# ---- texts


def test_the_excerpt_is_of_the_samples_and_begins_with_what_rl_alone_solves(results: Path, template: Path) -> None:
    study = searchlens.open(results)
    assert explorer_files.telling(study, "sums", *SIDES.values(), 6)[:2] == [3, 4]
    files = contents(explorer_page(study, template=template))
    (cell,) = index_of(files)["cells"]
    for role, checkpoint in SIDES.items():
        excerpt = frame(files[cell[role]["excerpt"]])
        every = study.samples(checkpoint, "sums", tokens=True)
        joined = excerpt.join(every, on=["policy", "question", "sample"], suffix="_there")
        assert joined.height == excerpt.height == every.height, "four samples each are all of them"
        pairs = {"logp": "logprobs", "logq": "sampling_logprobs", "class": "answer_class", "n_tokens": "tokens_there"}
        pairs |= {name: f"{name}_there" for name in ("text", "correct", "answer", "finish", "score")}
        for ours, theirs in pairs.items():
            assert joined[ours].to_list() == joined[theirs].to_list()
        assert joined["tokens"].to_list() == joined["token_ids"].to_list()


def test_an_excerpt_has_a_right_and_a_wrong_sample_of_a_question_that_has_both(results: Path) -> None:
    study, extent = searchlens.open(results), explorer_files.Extent(6, 2)
    drawn = explorer_files.drawn(study, "toy-rl", "sums", range(6), extent)
    chosen = explorer_files.excerpt(drawn, extent, explorer_files.recorded_verdicts(study, "toy-rl", "sums"))
    assert chosen["policy"].unique().to_list() == [DEFAULT]
    assert chosen.group_by("question").len()["len"].unique().to_list() == [2]
    assert chosen["tokens"].null_count() == chosen.height
    for question, right in enumerate(RIGHT["toy-rl"].values()):
        found = chosen.filter(question=question)["correct"].to_list()
        assert found == ([True, False] if 0 < right < 4 else [right == 4] * 2)


def test_texts_of_every_question_come_before_more_texts_of_some(
    results: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = searchlens.open(results)
    telling = explorer_files.telling(study, "sums", *SIDES.values(), 2)
    assert telling[:2] == [3, 4] and sorted(telling) == [*range(6)]
    parts = (explorer_files.Extent(2, 3, every_policy=True, tokens=True), explorer_files.Extent(None, 1))
    monkeypatch.setattr(explorer_html, "TELLING", 2)
    monkeypatch.setattr(explorer_html, "EXCERPTS", [parts])
    made = explorer_page(study, template=template)
    files = contents(made)
    for checkpoint in SIDES.values():
        rows = frame(files[f"samples/{checkpoint}/sums.parquet"])
        counts = rows.group_by("question").agg(pl.len(), pl.col("policy").n_unique(), pl.col("tokens").is_null().any())
        wide, narrow = (3 * 3 + 1, 4, False), (1, 1, True)  # of greedy there is one
        assert sorted(counts.rows()) == [(q, *(wide if q in (3, 4) else narrow)) for q in range(6)]
        counted = frame(files[f"answers/{checkpoint}/sums.parquet"]).filter(policy=DEFAULT)
        assert counted["count"].sum() == 6 * 4, "answers are those of all samples"
    assert made.left_out[-1] == (
        "Samples beyond an excerpt: 2 questions of each cell, 3 samples of every policy at most, with log-probabilities"
        " of tokens; then every question, 1 sample of the default policy at most, without log-probabilities of tokens;"
        " `searchlens view` shows all of them."
    )


def test_answers_are_counted_by_class_as_they_were_written_most_often(results: Path) -> None:
    study = searchlens.open(results)
    samples = study.samples("toy-rl", "sums", DEFAULT, [1, 3])
    found = explorer_files.answers(samples)
    assert found.filter(question=1).rows() == [(DEFAULT, 1, 0, True, "3", 4)]
    assert found.filter(question=3).rows() == [(DEFAULT, 3, 0, True, "7", 2), (DEFAULT, 3, 1, False, "99", 2)]
    respelled = samples.with_columns(answer=pl.when(pl.col("sample") == 0).then(pl.lit("3.0")).otherwise("answer"))
    assert explorer_files.answers(respelled).filter(question=1)["text"].to_list() == ["3"]


def test_hostile_texts_stay_inside_of_their_element(results: Path, template: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (tmp_path / "sums.jsonl").read_text().splitlines()]
    (tmp_path / "sums.jsonl").write_text(
        "".join(json.dumps({**row, "question": row["id"] + EVIL}) + "\n" for row in rows)
    )
    made = explorer_page(searchlens.open(results), template=template)
    assert EVIL not in made.html and "onerror" not in made.html and "\u202e" not in made.html
    files = contents(made)
    assert frame(files["questions/sums.parquet"])["text"].to_list() == [f"q{i}{EVIL}" for i in range(6)]
    assert "\x1b[31m" in frame(files["samples/toy-rl/sums.parquet"])["text"][0]
    without_data = re.sub(
        r'<script type="application/octet-stream" data-path="[^"<>]+">[\w+/=]*</script>\n', "", made.html
    )
    assert without_data == PAGE.replace(f"{explorer_html.PLACE}\n", "")


def test_what_cannot_be_read_is_said(results: Path, template: Path, tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").unlink()
    shutil.rmtree(results / "generations/toy-rl")
    said = "\n".join(explorer_page(searchlens.open(results), template=template).left_out)
    assert re.search(r"Questions of sums: .*sums.jsonl", said)
    assert re.search(r"Samples of toy-rl on sums: .* has no samples", said)


def test_damaged_samples_are_left_out_and_damaged_numbers_are_named(results: Path, template: Path) -> None:
    for shard in (results / "generations/toy-rl").glob("*/*/*.parquet"):
        shard.write_bytes(shard.read_bytes()[:-40])
    said = "\n".join(explorer_page(searchlens.open(results), template=template).left_out)
    assert re.search(r"Samples of toy-rl on sums: shard \S+\.parquet cannot be used: it has \d+ bytes", said)
    for points in (results / "landscape").glob("*/sums/points.parquet"):
        points.write_bytes(points.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"landscape/\S+/sums/points\.parquet is not readable Parquet"):
        explorer_page(searchlens.open(results), template=template)


def test_nothing_of_a_gated_benchmark_can_be_read(results: Path, template: Path, tmp_path: Path) -> None:
    """Neither questions nor texts nor answers: not in the page, and not from the server."""
    gate(results)
    study = searchlens.open(results)
    made = explorer_page(study, template=template)
    files = contents(made)
    assert not [name for name in files if name.startswith(("questions/", "samples/", "answers/", "pieces/"))]
    everything = b"".join(files.values())
    for name, content in files.items():
        if name.endswith(".parquet"):
            everything += repr(frame(content).to_dicts()).encode()
    assert not [word for word in (b"Secret", b"right3", b"evil", b'"order"') if word in everything]
    assert "sums" in made.left_out[0] and "gated" in made.left_out[0]
    index = index_of(files)
    assert "gated" in index["benchmarks"][0]["withheld"] and "gated" in index["cells"][0]["base"]["without_texts"]
    served = Files(study)
    shard = min((results / "generations/toy-base/sums").glob("*/s*.parquet"))
    assert served.path(f"results/{shard.relative_to(results).as_posix()}") is None
    assert served.made("questions/sums.parquet") is None
    assert served.made("answers/toy-base/sums/temp_0.5/0.parquet") is None
    assert served.made("found/toy-base/sums/evil.json") is None
    (cell,) = json.loads(served.index)["cells"]
    assert not {"shards", "excerpt"} & set(cell["base"]) and "answers" not in cell["base"]["files"]


# ---- scored texts


def test_the_page_has_what_both_sides_say_of_the_tokens_of_its_excerpt(
    results: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of samples whose very tokens were scored, and that the page shows with their tokens."""
    score_tokens(results)
    study, path = searchlens.open(results), results / "likelihood/toy/sums/texts.parquet"
    texts = pl.read_parquet(path)
    other = pl.when(pl.col("question") == 5).then(pl.lit([9], pl.List(pl.Int32))).otherwise("token_ids")
    texts.with_columns(token_ids=other).write_parquet(path)
    parts = (explorer_files.Extent(2, 1, tokens=True), explorer_files.Extent(None, 1))
    for extents, telling, shown, samples in ((explorer_html.EXCERPTS[0], 20, range(5), 2), (parts, 2, (3, 4), 1)):
        monkeypatch.setattr(explorer_html, "EXCERPTS", [extents])
        monkeypatch.setattr(explorer_html, "TELLING", telling)
        files = contents(explorer_page(study, template=template))
        (cell,) = index_of(files)["cells"]
        found = frame(files[cell["files"]["scored"]])
        keys = [(q, s, side) for side in ("base", "rl") for q in shown for s in range(samples)]
        assert found.columns == list(explorer_files.SCORED)
        assert found.select("question", "sample", "side").rows() == keys
        assert found.equals(texts.select(found.columns).join(found, on=["question", "sample", "side"], how="semi"))
        assert frame(files[cell["files"]["bounds"]])["at_least"].to_list() == [0.00231]


@pytest.mark.parametrize("kept", [True, False])
def test_texts_whose_tokens_were_not_kept_are_not_named(results: Path, template: Path, kept: bool) -> None:
    """A server names them where they are; results of a study that scores no texts have neither file."""
    assert not {"scored", "bounds"} & set(json.loads(Files(searchlens.open(results)).index)["cells"][0]["files"])
    score_tokens(results)
    if not kept:
        (path,) = (results / "config").glob("*.json")
        path.write_text(path.read_text().replace('"likelihood": {"tokens": true}', '"likelihood": {}'))
        texts = results / "likelihood/toy/sums/texts.parquet"
        lists = pl.lit(None, pl.List(pl.Int32)).alias("token_ids")
        pl.read_parquet(texts).with_columns(lists).write_parquet(texts)
    study = searchlens.open(results)
    (served,) = json.loads(Files(study).index)["cells"]
    (inlined,) = index_of(contents(explorer_page(study, template=template)))["cells"]
    name = {"scored": "results/likelihood/toy/sums/texts.parquet"} if kept else {}
    bounds = "results/likelihood/toy/sums/bounds.parquet"
    assert {key: served["files"].get(key) for key in ("bounds", *name)} == {"bounds": bounds, **name}
    assert ("scored" in served["files"], "scored" in inlined["files"]) == (kept, kept)
    assert inlined["files"]["bounds"] == bounds


def test_tokens_of_a_gated_benchmark_stay_withheld_and_its_bounds_are_shown(results: Path, template: Path) -> None:
    score_tokens(results)
    gate(results)
    study = searchlens.open(results)
    files, served = contents(explorer_page(study, template=template)), Files(study)
    for index in (index_of(files), json.loads(served.index)):
        (cell,) = index["cells"]
        assert "scored" not in cell["files"] and cell["files"]["bounds"].endswith("toy/sums/bounds.parquet")
    assert not [name for name in files if name.startswith("scored/") or "texts.parquet" in name]
    folder = "results/likelihood/toy/sums"
    assert served.path(f"{folder}/texts.parquet") is None and served.path(f"{folder}/bounds.parquet")
    (results / "likelihood/toy/sums/deeper").mkdir()
    shutil.copy(results / "likelihood/toy/sums/texts.parquet", results / "likelihood/toy/sums/deeper")
    shutil.copy(results / "likelihood/toy/sums/texts.parquet", results / "likelihood/toy/texts.parquet")
    for name in (f"{folder}/deeper/texts.parquet", "results/likelihood/toy/texts.parquet", f"{folder}/./texts.parquet"):
        assert served.path(name) is None


def test_damaged_scored_texts_are_named(results: Path, template: Path) -> None:
    score_tokens(results)
    path = results / "likelihood/toy/sums/texts.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    made = explorer_page(searchlens.open(results), template=template)
    assert re.search(r"Scored tokens of toy on sums: \S+texts\.parquet is not readable Parquet", made.left_out[-1])
    assert "samples/toy-rl/sums.parquet" in contents(made), "its samples are shown"


# ---- size


def test_a_smaller_page_leaves_texts_out_before_it_says_nothing(results: Path, template: Path) -> None:
    study = searchlens.open(results)
    whole = explorer_page(study, template=template)
    assert len(whole.html.encode()) < 15_000_000
    for share in (0.9, 0.75, 0.6):
        size = int(share * len(whole.html.encode()))
        made = explorer_page(study, size, template)
        assert len(made.html.encode()) <= size
        assert len(made.left_out) >= len(whole.left_out)
        assert set(named(index_of(contents(made)))) == set(contents(made)) - {"index.json"}
        assert index_of(contents(made))["left_out"] == list(made.left_out)
    with pytest.raises(InputError, match=r"--size 2,000 bytes"):
        explorer_page(study, 2_000, template)


# ---- the command


def test_the_command_writes_the_page_and_says_what_it_left_out(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explore", str(results)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"{results / 'explorer.html'}: ")
    assert printed[1].startswith("left out: Samples beyond an excerpt: every question, 4 samples of every policy")
    assert (results / "explorer.html").read_text().startswith("<!doctype html>")


def test_the_headline_has_the_sentences_of_every_cell(results: Path, template: Path, tmp_path: Path) -> None:
    """The report's first page and the explorer say the same; a title is text, whatever it contains."""
    study = searchlens.open(results)
    written = headline_html(study).replace("&#39;", "&#x27;")
    for cell in index_of(contents(explorer_page(study, template=template)))["cells"]:
        assert len(cell["sentences"]) in (2, 3)
        for sentence in cell["sentences"]:
            assert f"<li>{escape(sentence)}</li>" in written
    titled = {name: replace(spec, title="<b>") for name, spec in study.config.benchmarks.items()}
    hostile = headline_html(replace(study, config=replace(study.config, benchmarks=titled)))
    assert "&lt;b&gt;</strong>" in hostile
    assert "<b>" not in hostile


def test_the_package_has_its_page_with_the_licences_of_what_is_in_it(results: Path) -> None:
    made = explorer_page(searchlens.open(results))
    assert contents(made)["index.json"]
    assert "connect-src" not in made.html, "a page that has its data needs no server"
    assert "MIT" in (explorer_html.PAGE.parent / "explorer.LICENSES.txt").read_text()


def test_the_explorer_needs_no_optional_library() -> None:
    """A server on a node of a cluster has the base dependencies alone."""
    code = (
        "import sys, searchlens.reporting, searchlens.cli.stages.explorer;"
        "found = {'matplotlib', 'seaborn', 'torch', 'tokenizers', 'snakemake'} & set(sys.modules);"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_page_without_a_place_for_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="make web"):
        explorer_html.read_page(tmp_path / "none.html")
    (tmp_path / "wrong.html").write_text("<p>")
    with pytest.raises(InputError, match="must have one"):
        explorer_html.read_page(tmp_path / "wrong.html")
