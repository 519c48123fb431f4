"""The table of verdicts: judged once, never rewritten, safe with several writers."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from searchlens.errors import InputError
from searchlens.grading import Extraction, GradedPair, Grader, Verdict, verdicts
from searchlens.grading.verdicts import VerdictStore


@dataclass
class Counting(Grader):
    """Judges by equality of strings, and remembers every pair that it was given."""

    version: str = "counting-1"
    seen: list[GradedPair] = field(default_factory=list)

    def extract(self, text: str, stopped: bool) -> Extraction:
        return Extraction(text, "whole")

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        self.seen += pairs
        return [Verdict(pair.gold == pair.answer, pair.answer) for pair in pairs]


def frame(*pairs: tuple[str, str]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema={"gold": pl.String, "answer": pl.String}, orient="row")


def outcomes(judged: verdicts.Judgements) -> dict[tuple[str, str], bool | None]:
    return {(gold, answer): correct for gold, answer, correct, *_ in judged.verdicts.iter_rows()}


def test_each_distinct_pair_is_judged_once_in_the_life_of_the_store(tmp_path: Path) -> None:
    grader = Counting()
    pairs = frame(("1", "1"), ("1", "2"), ("1", "1"), ("2", "1"))
    first = VerdictStore(tmp_path).judge(grader, pairs)
    assert (first.graded, first.reused, first.verdicts.height) == (3, 0, 3)
    assert sorted(grader.seen) == [("1", "1"), ("1", "2"), ("2", "1")]
    again = VerdictStore(tmp_path).judge(grader, pl.concat([pairs, frame(("2", "2"))]))
    assert (again.graded, again.reused) == (1, 3)
    assert grader.seen[3:] == [("2", "2")]
    assert outcomes(again) == {("1", "1"): True, ("1", "2"): False, ("2", "1"): False, ("2", "2"): True}


def test_another_grader_version_judges_anew_and_keeps_the_old(tmp_path: Path) -> None:
    pairs = frame(("1", "1"))
    for version in ("counting-1", "counting-2", "counting-1"):
        VerdictStore(tmp_path).judge(Counting(version), pairs)
    assert sum(pl.read_parquet(path).height for path in tmp_path.glob("*.parquet")) == 2


def test_long_texts_are_stored_by_hash_and_found_again(tmp_path: Path) -> None:
    grader = Counting()
    pairs = frame(("g" * 600, "ü" * 300), ("g" * 600, "ü" * 301))
    VerdictStore(tmp_path).judge(grader, pairs)
    judgements = VerdictStore(tmp_path).judge(grader, pairs)
    assert (judgements.graded, judgements.reused) == (0, 2)
    assert outcomes(judgements).keys() == set(pairs.iter_rows())
    stored = pl.concat([pl.read_parquet(path) for path in tmp_path.glob("*.parquet")])
    assert stored["answer"].str.starts_with("sha256:").all()


def test_nothing_to_judge_writes_nothing(tmp_path: Path) -> None:
    judgements = VerdictStore(tmp_path / "none").judge(Counting(), frame())
    assert (judgements.graded, judgements.reused, judgements.verdicts.height) == (0, 0, 0)
    assert not (tmp_path / "none").exists()


def test_a_killed_job_keeps_its_finished_batches(tmp_path: Path) -> None:
    class Dying(Counting):
        def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
            if len(self.seen) == 4:
                raise KeyboardInterrupt
            return super().grade(pairs)

    pairs = frame(*(("1", str(i)) for i in range(6)))
    with pytest.raises(KeyboardInterrupt):
        VerdictStore(tmp_path, batch=2).judge(Dying(), pairs)
    judgements = VerdictStore(tmp_path).judge(Counting(), pairs)
    assert (judgements.graded, judgements.reused) == (2, 4)


def test_parts_are_never_rewritten(tmp_path: Path) -> None:
    one, twin = tmp_path / "one" / "sums", tmp_path / "twin" / "sums"
    VerdictStore(one).judge(Counting(), frame(("1", "1")))
    before = {path: (path.read_bytes(), path.stat().st_ino) for path in one.iterdir()}
    VerdictStore(one).judge(Counting(), frame(("1", "1"), ("1", "2")))
    VerdictStore(twin).judge(Counting(), frame(("1", "1")))
    assert all((path.read_bytes(), path.stat().st_ino) == content for path, content in before.items())
    assert {path.name for path in twin.iterdir()} == {path.name for path in before}  # named by content


def test_all_benchmarks_together_are_one_table(tmp_path: Path) -> None:
    for benchmark in ("sums", "products"):
        VerdictStore(tmp_path / benchmark).judge(Counting(), frame(("1", "1"), ("1", "2")))
    table = pl.read_parquet(tmp_path / "**" / "*.parquet")
    assert table.schema == verdicts.VERDICTS
    assert table.select("benchmark", "gold", "answer", "version").n_unique() == table.height == 4


def _job(folder: Path, offset: int, barrier: Any) -> None:
    """One of several processes; its pairs overlap with its neighbours'."""
    barrier.wait(60)
    pairs = frame(*(("1", str(i)) for i in range(offset, offset + 60)))
    judgements = VerdictStore(folder, batch=5).judge(Counting(), pairs)
    expected = {("1", str(i)): i == 1 for i in range(offset, offset + 60)}
    if outcomes(judgements) != expected:
        raise AssertionError(f"job {offset} misses verdicts, or has wrong ones")


def test_processes_that_judge_the_same_pairs_at_once_lose_and_corrupt_nothing(tmp_path: Path) -> None:
    context = get_context("spawn")
    barrier = context.Barrier(2)
    jobs = [context.Process(target=_job, args=(tmp_path, offset, barrier)) for offset in (0, 20)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(120)
    assert [job.exitcode for job in jobs] == [0, 0]
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet"}  # nothing half-written stays
    after = VerdictStore(tmp_path).judge(Counting(), frame(*(("1", str(i)) for i in range(80))))
    assert (after.graded, after.verdicts.height) == (0, 80)


def test_jobs_with_other_pairs_start_elsewhere_so_that_they_do_not_judge_in_step(tmp_path: Path) -> None:
    first = []
    for extra in range(8):
        grader = Counting()
        pairs = frame(*(("1", f"{i:03}") for i in range(300)), ("2", str(extra)))
        VerdictStore(tmp_path / str(extra), batch=10).judge(grader, pairs)
        first.append(grader.seen[0])
    assert len(set(first)) > 4


def test_an_answer_that_looks_like_a_hash_is_no_other_answer(tmp_path: Path) -> None:
    long = "x" * 600
    imitation = "sha256:" + hashlib.sha256(long.encode()).hexdigest()
    judgements = VerdictStore(tmp_path).judge(Counting(), frame((long, long), (long, imitation)))
    assert outcomes(judgements) == {(long, long): True, (long, imitation): False}


class Tired(Counting):
    """Judges nothing; not for good where its workers were ended from outside."""

    is_lasting = True

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        return [Verdict(None, pair.answer, is_lasting=self.is_lasting) for pair in pairs]


def test_a_judgement_wins_over_a_job_that_gave_up(tmp_path: Path) -> None:
    for folder, grader in (("a", Tired()), ("b", Counting())):
        VerdictStore(tmp_path / folder).judge(grader, frame(("1", "1")))
    for path in [*tmp_path.glob("*/*.parquet")]:
        path.rename(tmp_path / path.name)
    assert outcomes(VerdictStore(tmp_path).judge(Counting(), frame(("1", "1")))) == {("1", "1"): True}


@pytest.mark.parametrize("content", [b"", b"PAR1 not really", None])
def test_a_damaged_part_is_named_with_the_cure(tmp_path: Path, content: bytes | None) -> None:
    part = tmp_path / "0123.parquet"
    if content is None:
        pl.DataFrame({"other": [1]}).write_parquet(part)
    else:
        part.write_bytes(content)
    with pytest.raises(InputError, match=r"0123\.parquet cannot be read: .") as error:
        VerdictStore(tmp_path).judge(Counting(), frame(("1", "1")))
    assert "judged again" in error.value.hint


def test_a_verdict_that_something_from_outside_prevented_is_not_kept(tmp_path: Path) -> None:
    """It is unknown now, and judged when it is asked for next."""
    pairs, interrupted = frame(("1", "1"), ("1", "2")), Tired()
    interrupted.is_lasting = False
    first = VerdictStore(tmp_path).judge(interrupted, pairs)
    assert outcomes(first) == {("1", "1"): None, ("1", "2"): None}
    again = VerdictStore(tmp_path).judge(Counting(), pairs)
    assert (again.graded, outcomes(again)) == (2, {("1", "1"): True, ("1", "2"): False})
