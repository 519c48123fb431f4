"""`searchlens status --follow`: progress on one line, in a terminal and in a log, until all is done."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from searchlens.cli.status import LOG_SECONDS, WINDOW, Rate, answer, follow, is_finished, line
from searchlens.plan import Grid


def found(drawn: int, *, running: int = 1, failed: int = 0, read: int = 0) -> dict[str, Any]:
    """Two cells of 100 samples each; the first is drawn first."""
    cells = [{"drawn": min(drawn, 100), "wanted": 100}, {"drawn": max(drawn - 100, 0), "wanted": 100}]
    states = {"done": sum(cell["drawn"] == 100 for cell in cells)}
    jobs = {"running": [{}] * running, "failed": [{}] * failed}
    return {"cells": cells, "states": states, "scored": read, "landscapes": read, **jobs}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def followed(out: io.StringIO, looks: list[dict[str, Any]], seconds: float) -> None:
    answers, times = iter(looks), iter(range(0, 10**6, int(seconds)))
    waited: list[float] = []
    last = follow(lambda: next(answers), out, sleep=waited.append, clock=lambda: next(times))
    assert is_finished(last) and next(answers, None) is None
    assert len(waited) == len(looks) - 1


def test_a_log_has_a_line_at_each_look_with_the_time_left() -> None:
    out = io.StringIO()
    looks = [found(0), found(50), found(150, running=2, failed=1), found(200, running=0, read=1)]
    followed(out, [*looks, found(200, running=0, read=2)], LOG_SECONDS)
    lines = [each.partition(" ")[2] for each in out.getvalue().splitlines()]
    assert lines == [
        "0% sampled: 0 of 200, 1 job running, 0 of 2 graded, 0 of 2 read, time left unknown",
        "25% sampled: 50 of 200, 1 job running, 0 of 2 graded, 0 of 2 read, about 3 min of sampling left",
        "75% sampled: 150 of 200, 2 jobs running, 1 job failed, 0 of 2 graded, 0 of 2 read,"
        " under 1 min of sampling left",
        "100% sampled: 200 of 200, 1 of 2 graded, 1 of 2 read",
        "100% sampled: 200 of 200, 2 of 2 graded, 2 of 2 read",
    ]


def test_a_terminal_has_one_line_that_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    followed(out, [found(150), found(200, running=0, read=2)], 5)
    assert out.getvalue().count("\n") == 1 and out.getvalue().endswith("\n")
    first, second = out.getvalue().rstrip("\n").split("\r")[1:]
    assert len(first) == 39 and second.startswith("100% sampled"), "no line is wider than the terminal"


def test_an_interrupt_ends_the_line() -> None:
    def looks() -> Iterator[dict[str, Any]]:
        yield found(10)
        raise KeyboardInterrupt

    out, answers = Terminal(), looks()
    with pytest.raises(KeyboardInterrupt):
        follow(lambda: next(answers), out, sleep=lambda _: None)
    assert out.getvalue().endswith("\n")


def test_the_rate_is_that_of_the_last_minutes() -> None:
    """A study that was resumed did not draw its first samples now, and a slow start is forgotten."""
    rate = Rate()
    rate.see(0, 1000)
    assert rate.per_second is None
    rate.see(WINDOW, 1000)
    assert rate.per_second is None
    rate.see(WINDOW + 10, 1100)
    assert rate.per_second == 10


def test_it_reads_what_status_says(grid: Grid) -> None:
    said = line(answer(grid), None)
    assert said.startswith("0% sampled: 0 of ") and not is_finished(answer(grid))
