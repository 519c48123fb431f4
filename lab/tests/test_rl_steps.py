"""The exponent along RL's steps: planted laws come back, and what a fit leaves open is what an enumeration says."""

import io
import math
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal

pytest.importorskip("torch")
pytest.importorskip("transformers")
from searchlens.errors import InputError
from searchlens.zoo import record_file
from searchlens_lab.zoo import steps
from searchlens_lab.zoo.__main__ import main
from searchlens_lab.zoo.pretrain import write_record

ROOT = Path(__file__).parents[2]
ROUND = (1, 2, 4, 8, 16)
QUESTIONS = 361  # per cent to two decimals must still give back whole counts
DEFAULT = "topp0.95_t1.0"
BASE = {DEFAULT: [100, 160, 230, 290, 340], "temp_1.0": [60, 110, 170, 240, 300], "temp_0.5": [130, 180, 236, 270, 296]}
PATHS = {20: (2, 4, 4, 8, 8), 50: (4, 4, 4, 4, 4)}  # alpha = 2^(6/5), beta = 0.5, and alpha = 4, beta = 0.1
ROUGH = [137, 141, 224, 250, 255]  # follows no law: its three sets differ
ALL = [round(0.1 * j, 1) for j in range(13)]


def at(policy: str, path: tuple[int, ...]) -> list[int]:
    """What a Base policy solves along a path of budgets."""
    return [BASE[policy][ROUND.index(n)] for n in path]


def measured(curve: list[int]) -> dict[str, object]:
    solved = dict(zip(map(str, ROUND), curve, strict=True))
    return {"questions": QUESTIONS, "solved": solved, "pass_at": percent(curve)}


def percent(curve: list[int]) -> dict[str, float]:
    return {str(b): round(100 * n / QUESTIONS, 2) for b, n in zip(ROUND, curve, strict=True)}


def write_pair(out: Path, name: str, base: str, curves: dict[int, list[int]]) -> None:
    """Records of a pair whose last curve is that of its RL model; the others are of step checkpoints."""
    last = max(curves)
    greedy = {"questions": QUESTIONS, "solved": {"1": 90}, "pass_at": {"1": 24.93}}
    sides = {
        f"dev-{base}-base": {"numbers": {"math": {p: measured(c) for p, c in BASE.items()} | {"greedy": greedy}}},
        f"dev-{name}-rl": {
            "numbers": {"math": {DEFAULT: measured(curves[last])}},
            "steps": {str(step): percent(curve) for step, curve in curves.items() if step != last},
        },
        f"rl-{name}": {"curve": [{"step": step} for step in range(1, last + 1)]},
    }
    (out / "records").mkdir(exist_ok=True)
    for record, made in sides.items():
        write_record(out, record, made)


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    write_pair(tmp_path, "anchor", "anchor", {step: at(DEFAULT, path) for step, path in PATHS.items()} | {40: ROUGH})
    late = at("temp_0.5", (4, 8, 8, 8, 8))
    write_pair(tmp_path, "overtrained", "anchor", {20: [n + 1 for n in late], 30: late})
    write_pair(tmp_path, "control", "control", {40: [350, 352, 354, 356, 358]})
    return tmp_path


def enumerated(curve: list[int]) -> dict[float, float]:
    """Smallest error at each exponent, in questions summed over budgets: every alpha and policy, one by one."""
    least = dict.fromkeys(ALL, math.inf)
    for beta in ALL:
        for k in range(-10, 21):
            path = []
            for i in range(5):
                place = k / 5 + beta * i  # log2 of the budget before rounding; halves go up
                path.append(2 ** min(max(math.floor(round(place, 6) + 0.5), 0), 4))
            for policy in BASE:
                missed = sum(abs(n - r) for n, r in zip(at(policy, tuple(path)), curve, strict=True))
                least[beta] = min(least[beta], missed)
    return least


def row(frame: pl.DataFrame, pair: str, step: int) -> dict[str, object]:
    return frame.row(by_predicate=(pl.col("pair") == pair) & (pl.col("step") == step), named=True)


def test_base_fits_itself(cohort: Path) -> None:
    """Protects step 0: Base takes its own budgets, N = b."""
    first = row(steps.fit_steps(cohort), "anchor", 0)
    assert [first[name] for name in ("alpha", "beta", "policy", "path", "error")] == [1, 1, DEFAULT, "1/2/4/8/16", 0]
    assert first["rl_4"] == pytest.approx(100 * 230 / QUESTIONS)


def test_planted_laws_come_back(cohort: Path) -> None:
    """Protects the fit of a step: path and policy without error, also of curves that records hold in per cent."""
    frame = steps.fit_steps(cohort)
    for step, path in PATHS.items():
        found = row(frame, "anchor", step)
        assert (found["path"], found["policy"], found["error"]) == ("/".join(map(str, path)), DEFAULT, 0)
    last = row(frame, "overtrained", 30)
    assert (last["path"], last["policy"], last["error"]) == ("4/8/8/8/8", "temp_0.5", 0)
    assert row(frame, "overtrained", 20)["error"] == pytest.approx(100 / QUESTIONS)  # one question at each budget


def test_sets_are_those_of_an_enumeration(cohort: Path) -> None:
    """Protects what a fit leaves open: equal errors, one question, and the noise, at every step of a pair."""
    frame = steps.fit_steps(cohort)
    margins = {"same": 0.0, "within_question": 5.0, "within_noise": 5 * steps.NOISE * QUESTIONS / 100}
    sizes = set()
    for step, curve in {20: at(DEFAULT, PATHS[20]), 40: ROUGH, 50: at(DEFAULT, PATHS[50])}.items():
        least, found = enumerated(curve), row(frame, "anchor", step)
        best = min(least.values())
        assert found["error"] == pytest.approx(100 * best / 5 / QUESTIONS)
        assert found["error_frozen"] == pytest.approx(100 * least[0.6] / 5 / QUESTIONS)
        for name, margin in margins.items():
            assert found[name] == [beta for beta in ALL if least[beta] <= best + margin]
        assert found["beta"] in found["same"]
        sizes.add(tuple(len(found[name]) for name in margins))
    assert any(same < question < noise for same, question, noise in sizes)  # the three differ


def test_over_training_continues_where_its_start_ended(cohort: Path) -> None:
    """Protects the order of steps: measured steps, then the final model; overtrained comes after its start."""
    frame = steps.fit_steps(cohort)
    totals = {pair: frame.filter(pair=pair)["total"].to_list() for pair in ("anchor", "overtrained", "control")}
    assert totals == {"anchor": [0, 20, 40, 50], "overtrained": [70, 80], "control": [0, 40]}


def test_where_rl_is_above_all_of_base_no_exponent_is_preferred(cohort: Path) -> None:
    """Protects the reader of ``control``: its beta is no estimate, and the figure draws none."""
    frame = steps.fit_steps(cohort)
    last = row(frame, "control", 40)
    assert last["same"] == ALL
    assert last["path"] == "16/16/16/16/16"
    thin = {line.get_gid(): list(line.get_xdata()) for line in steps.draw(frame).axes[1].lines}
    assert thin["control"] == [0]


def test_records_that_are_missing_are_named(cohort: Path, tmp_path: Path) -> None:
    """Protects the user: an empty folder, a pair without the record of its RL, a figure without its pairs."""
    with pytest.raises(InputError, match="no pair has dev records"):
        steps.fit_steps(tmp_path / "nothing")
    frame = steps.fit_steps(cohort)
    with pytest.raises(InputError, match="no steps of overtrained"):
        steps.draw(frame.filter(pl.col("pair") != "overtrained"))
    record_file(cohort, "rl-control").unlink()
    with pytest.raises(InputError, match=r"rl-control\.json\.gz is missing"):
        steps.fit_steps(cohort)


def test_the_command_prints_a_line_per_step(cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects the command: every step is printed, and the figure's CSV is the printed one."""
    main(["steps", "--output", str(cohort), "--figure", str(tmp_path / "drawn")])
    printed = capsys.readouterr().out
    rows = pl.read_csv(io.StringIO(printed))
    assert rows.height == 8
    assert rows.row(1, named=True)["path"] == "2/4/4/8/8"
    assert (tmp_path / "drawn.csv").read_text() == printed


def shown_in(figure: Figure, panel: int, gid: str) -> list[float]:
    return next(list(line.get_ydata()) for line in figure.axes[panel].lines if line.get_gid() == gid)


def test_the_figure_draws_the_table(cohort: Path) -> None:
    """Protects the figure: curves, Base's levels, exponents and one box for each exponent of a set."""
    frame = steps.fit_steps(cohort)
    figure = steps.draw(frame)
    followed = frame.filter(pl.col("pair").is_in(["anchor", "overtrained"])).sort("total")
    for b in (1, 16):
        assert shown_in(figure, 0, f"rl-{b}") == followed[f"rl_{b}"].to_list()
        assert set(shown_in(figure, 0, f"base-{b}")) == {100 * BASE[DEFAULT][ROUND.index(b)] / QUESTIONS}
    assert shown_in(figure, 1, "fit") == followed["beta"].to_list()
    for name in ("same", "within_noise"):
        boxes = [patch for patch in figure.axes[1].patches if patch.get_gid() == name]
        centres = [(box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2) for box in boxes]
        expected = followed.select("total", name).explode(name).rows()
        assert [c for pair in centres for c in pair] == pytest.approx([e for pair in expected for e in pair])


@pytest.mark.cohort
def test_the_committed_figure_is_of_the_committed_records() -> None:
    """Protects docs/figures/beta_steps: it is drawn from the records as they are, and small."""
    stem = ROOT / "docs" / "figures" / "beta_steps"
    frame = steps.csv_frame(steps.fit_steps(ROOT / "resources" / "zoo" / "cohort"))
    assert_frame_equal(pl.read_csv(stem.with_suffix(".csv")), frame)
    assert stem.with_suffix(".svg").stat().st_size < 150_000
