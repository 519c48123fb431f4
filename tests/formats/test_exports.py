"""Exports: what is written is what the study has, and our readers read the same questions, texts and verdicts back."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from huggingface_hub import DatasetCard

import searchlens
from reading import samples
from searchlens import catalogue
from searchlens.api.study import Study
from searchlens.cli.main import main
from searchlens.errors import InputError
from searchlens.formats.export import export, lost, pools
from searchlens.formats.hub import COLUMNS
from small_results import finish, gate

POLICY = "topp0.95_t1.0"


@pytest.fixture
def study(raw: dict[str, Any], tmp_path: Path) -> Study:
    return searchlens.open(finish(raw, tmp_path))


def stored(study: Study, checkpoint: str) -> list[tuple[Any, ...]]:
    frame = study.samples(checkpoint, "sums", POLICY).sort("id", "sample")
    return frame.select("id", "sample", "text", "correct", "answer", "tokens", "finish").rows()


@pytest.mark.parametrize(("to", "reader"), [("inspect", "inspect"), ("every-eval-ever", "every_eval_ever")])
def test_out_and_in_again_is_the_same(study: Study, tmp_path: Path, to: str, reader: str) -> None:
    export(study, to, tmp_path / "out", [POLICY])
    drawn = samples(reader, tmp_path / "out")
    golds = {question.id: (question.text, question.gold) for question in study.questions("sums")}
    for checkpoint in ("toy-base", "toy-rl"):
        mine = [s for s in drawn if s.stream.model == checkpoint]
        found = sorted(
            (s.document.id, s.sample, s.text, bool(v.value), v.answer) for s in mine for v in s.verdicts.values()
        )
        assert found == [row[:5] for row in stored(study, checkpoint)]
        assert {(s.document.prompt, *s.document.gold) for s in mine} == set(golds.values())
        assert {s.stream.asked["temperature"] for s in mine} == {1.0}
        if to == "inspect":
            ends = sorted((s.document.id, s.sample, s.tokens, s.finish) for s in mine)
            assert ends == [(row[0], row[1], row[5], row[6]) for row in stored(study, checkpoint)]


@pytest.mark.skipif(not os.environ.get("SEARCHLENS_HARNESSES"), reason="make test-harnesses has the packages")
@pytest.mark.parametrize("to", ["inspect", "every-eval-ever"])
def test_the_package_of_the_format_reads_what_is_written(study: Study, tmp_path: Path, to: str) -> None:
    export(study, to, tmp_path / "out")
    script = Path(__file__).parents[1] / "data/check_exports.py"
    command = [os.environ["SEARCHLENS_HARNESSES"], str(script), to, str(tmp_path / "out")]
    assert int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) == 2 * (3 * 24 + 6)


def test_every_eval_ever_names_its_lines_by_their_place_in_the_data_store(study: Study, tmp_path: Path) -> None:
    for path in (tmp_path / "out").rglob("*.json") if export(study, "every-eval-ever", tmp_path / "out") else ():
        details = json.loads(path.read_text())["detailed_evaluation_results"]
        assert (tmp_path / "out" / details["file_path"]).is_file()
        assert details["total_rows"] in (6, 24)


def test_lm_eval_holds_all_texts_and_the_verdict_of_the_first(study: Study, tmp_path: Path) -> None:
    export(study, "lm-eval", tmp_path / "out", [POLICY])
    drawn = samples("lm_eval", tmp_path / "out/toy-base")
    assert sorted((s.document.id, s.sample, s.text) for s in drawn) == [row[:3] for row in stored(study, "toy-base")]
    first = {row[0]: float(row[3]) for row in stored(study, "toy-base") if row[1] == 0}
    assert {s.document.id: s.document_verdicts["exact_match,none"].value for s in drawn} == first
    assert drawn[0].stream.asked["temperature"] == 1.0


@pytest.mark.parametrize("to", ["jsonl", "parquet", "csv"])
def test_rows_are_those_of_our_own_format(study: Study, tmp_path: Path, to: str) -> None:
    path = next(path for path in export(study, to, tmp_path / "out", [POLICY]) if "toy-rl" in path.parts)
    read = {"jsonl": pl.read_ndjson, "parquet": pl.read_parquet, "csv": pl.read_csv}[to]
    frame = read(path).sort("question", "sample")  # type: ignore[operator]
    columns = [frame["question"], frame["sample"], frame["text"], frame["correct"]]
    found = list(zip(*(column.to_list() for column in columns), strict=True))
    assert found == [row[:4] for row in stored(study, "toy-rl")]
    assert frame["logprob"].to_list() == [-0.25] * len(frame)
    back = sorted((s.document.id, s.sample, s.text, bool(s.verdicts["correct"].value)) for s in samples("own", path))
    assert back == found


def test_the_card_of_a_dataset_names_its_files_and_how_they_were_made(study: Study, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert out / "README.md" in export(study, "hub", out)
    (path,), card = (out / "data/toy-rl/sums").glob(f"{POLICY}.parquet"), DatasetCard.load(out / "README.md")
    assert [one["config_name"] for one in card.data["configs"]] == ["toy-base", "toy-rl"]
    for one in card.data["configs"]:
        (files,) = one["data_files"]
        frame = pl.concat(pl.read_parquet(path) for path in out.glob(files["path"]))
        assert list(frame.columns) == list(COLUMNS) and set(frame["model"]) == {one["config_name"]}
    assert [path.relative_to(out).parts[0] for path in out.rglob("*.parquet")] == ["data"] * 8
    assert "license" not in card.data.to_dict() and f"configuration\n`{study.fingerprint}`" in card.text
    assert f"| toy-rl | sums | {POLICY} | 6 | 4 | 8 | 54.2% | math math-" in card.text, "13 of 24"
    back = sorted((s.document.id, s.sample, s.text) for s in samples("own", path))
    assert back == [row[:3] for row in stored(study, "toy-rl")]
    assert "takes the file `data/<checkpoint>/<benchmark>/<policy>.parquet`" in card.text, "of one policy, not of all"
    study.layout.scores("toy-rl", "sums").with_suffix(".json").unlink()
    with pytest.raises(InputError, match=r"toy-rl/sums\.json does not exist(.|\n)*Hint: `searchlens run` makes it"):
        export(study, "hub", tmp_path / "again")


@pytest.mark.parametrize("to", catalogue.declared("exporter"))
@pytest.mark.long
def test_questions_and_texts_that_are_withheld_stay_at_home(study: Study, tmp_path: Path, to: str) -> None:
    gate(study.results)
    for path in export(searchlens.open(study.results), to, tmp_path / "out", [POLICY]):
        content = path.read_bytes().decode(errors="replace")
        assert not [word for word in ("Secret", "right1", "boxed", "Compute") if word in content]
        is_whole = path.suffix in (".parquet", ".json", ".md") or path.name.startswith("results")
        assert is_whole or "gpqa-0001" in content


def test_the_command_says_what_is_not_in_the_format(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for to in catalogue.declared("exporter"):
        assert main(["export", "--to", to, "--policy", POLICY, str(study.results), str(out / to)]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"{len([path for path in (out / to).rglob('*') if path.is_file()])} files under")
        assert f"not in this format: {lost(to)}" in said


def test_a_folder_with_files_and_unknown_names_are_refused(study: Study, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exporter 'xml' is unknown"):
        export(study, "xml", tmp_path / "out")
    with pytest.raises(InputError, match="no policy nothing; policies with samples: "):
        export(study, "csv", tmp_path / "out", ["nothing"])
    assert list(tmp_path.glob("*out*")) == [], "whole or not at all"
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a").write_text("")
    with pytest.raises(InputError, match="not an empty folder"):
        export(study, "csv", tmp_path / "full")


def test_a_failed_search_and_an_unknown_verdict(study: Study, tmp_path: Path) -> None:
    pool = next(iter(pools(study, [POLICY])))
    frame = (
        pool.read([0])
        .head(2)
        .with_columns(
            finish=pl.Series(["failed", None], dtype=pl.String()), correct=pl.Series([False, None], dtype=pl.Boolean())
        )
    )
    (path,) = catalogue.find("exporter", "inspect")(
        replace(pool, questions=pool.questions[:1], read=lambda _: frame), tmp_path / "out"
    )
    failed, unknown = samples("inspect", path)
    assert (failed.finish, failed.text) == ("failed", None)
    assert unknown.finish == "unknown"
    assert [verdict.value for verdict in unknown.verdicts.values()] == [None]
    assert json.loads(path.read_text())["results"]["completed_samples"] == 2
