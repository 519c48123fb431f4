"""BOPTR tables: what the frames hold is what is printed, dashes have reasons, and LaTeX gets no foreign character."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import planted_landscapes as planted
from run_stages import built
from searchlens import catalogue
from searchlens.analysis.claims import interval, number, percent
from searchlens.boptr.cohort import Benchmark, CohortPlan
from searchlens.boptr.protocol import HELD_OUT_LIMIT
from searchlens.boptr.rule import REASONS
from searchlens.boptr.study import study
from searchlens.config.boptr import BoptrOptions
from searchlens.reporting.boptr import regimes
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.tables.table import DASH, Part, Table, escape, latex, write
from searchlens_lab.simulate import Design, paper_design, simulate
from small_cohort import part_of_paper

OPTIONS = BoptrOptions(draws=30, permutations=10, reselect=False, mu_without=("qwen25_1.5b",))
POLICIES = ("temp_0.5", "topp0.8_t0.9", "topp0.9_t0.7", "topk20_t0.7", "minp0.1_t0.9", "topp0.95_t1.0")
MODELS = ("qwen25_7b", "qwen25_1.5b", "llama31_8b", "orz_7b")
BENCHMARKS = ("math500", "aime", "gpqa", "amc23", "rltrain", "mmlu_stem")
Frames = dict[str, pl.DataFrame]


def design(models: tuple[str, ...], benchmarks: tuple[str, ...]) -> Design:
    """Part of the paper's study, with 40 questions a benchmark; Llama has no GPQA."""
    missing = frozenset({("llama31_8b", "gpqa")} if "llama31_8b" in models else set())
    more = {"extension": {"math500": 64}, "batches": {"123": ("base",)}, "missing": missing}
    searches = {"math500": paper_design().searches["math500"]}
    return part_of_paper(models, benchmarks, POLICIES, 40, searches=searches, **more)


@pytest.fixture(scope="module")
def cohort() -> tuple[Frames, CohortPlan]:
    """Three fitted models and a new one."""
    simulated = simulate(design(MODELS, BENCHMARKS), 7)
    return study(simulated, OPTIONS), simulated.plan


@pytest.fixture(scope="module")
def pair() -> tuple[Frames, CohortPlan]:
    """One pair on two benchmarks: most rows are undefined."""
    small = replace(design(MODELS[:1], ("math500", "gpqa")), batches={}, extension={}, searches={})
    simulated = simulate(small, 7)
    return study(simulated, OPTIONS), simulated.plan


def boptr_tables(frames: Frames, plan: CohortPlan, options: BoptrOptions = OPTIONS) -> dict[str, Table]:
    return built(catalogue.declared("table", stage="boptr"), BoptrContext(frames, plan, options))


@pytest.fixture(scope="module")
def made(cohort: tuple[Frames, CohortPlan]) -> dict[str, Table]:
    return boptr_tables(*cohort)


@pytest.fixture(scope="module")
def alone(pair: tuple[Frames, CohortPlan]) -> dict[str, Table]:
    return boptr_tables(*pair)


def rows(table: Table, part: int = 0) -> dict[str, dict[str, str]]:
    """Lines of a block by their first cell."""
    text = table.parts[part].text
    return {line[text.columns[0]]: line for line in text.iter_rows(named=True)}


def block(table: Table, title: str) -> dict[str, dict[str, str]]:
    """Lines of the block whose title has these words."""
    (place,) = [i for i, part in enumerate(table.parts) if title in part.title]
    return rows(table, place)


def printed(frame: pl.DataFrame, **where: object) -> str:
    """``1.12 [0.76, 2.52]``, the corrected error of the single row of the errors frame that is meant."""
    (row,) = frame.filter(**where).iter_rows(named=True)
    return interval(row["corrected"], row["lo_corrected"], row["hi_corrected"])


AR = {"exponents": "paper", "mu": "cohort", "pool": "ar"}


class Recorder(dict[str, pl.DataFrame]):
    """Frames that remember which of them were read."""

    def __init__(self, frames: Frames) -> None:
        super().__init__(frames)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> pl.DataFrame:
        self.read.add(name)
        return super().__getitem__(name)


def test_every_frame_is_in_a_table(cohort: tuple[Frames, CohortPlan]) -> None:
    """A frame that no table reads would be computed for the Parquet file alone, as the details of two variants are."""
    frames = Recorder(cohort[0])
    boptr_tables(frames, cohort[1])
    assert set(catalogue.boptr_frames()) - frames.read == {"variant_scales", "variant_heads"}


def test_the_source_of_the_samples_is_noted(cohort: tuple[Frames, CohortPlan]) -> None:
    frames, plan = cohort
    assert plan.source == "simulated"
    for source in ("sampled", "recorded"):
        for name, table in boptr_tables(frames, replace(plan, source=source)).items():
            assert ("From recorded samples." in table.notes) == (source == "recorded"), name


@pytest.mark.parametrize("which", ["made", "alone"])
def test_faces_of_every_table(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Each file can be read: CSV with its columns, LaTeX in ASCII with complete rows, Markdown with complete rows."""
    tables: dict[str, Table] = request.getfixturevalue(which)
    for name, table in tables.items():
        csv, tex, md, _ = write(table, tmp_path / name)
        assert pl.read_csv(csv, infer_schema_length=0).columns == table.data.columns, name
        assert tex.read_text().isascii(), name
        assert tex.read_text().count(r"\begin{tabular}") == len(table.parts), name
        blocks = tex.read_text().split(r"\begin{tabular}")[1:]
        for part, block_ in zip(table.parts, blocks, strict=True):
            lines = [line for line in block_.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
            assert len(lines) == part.text.height + 1, name
            assert {re.sub(r"\\&", "", line).count("&") for line in lines} == {part.text.width - 1}, name
        pipes = [line for line in md.read_text().splitlines() if line.startswith("|")]
        assert len(pipes) == sum(part.text.height + 2 for part in table.parts), name


def test_no_table_shows_python(made: dict[str, Table], alone: dict[str, Table]) -> None:
    """No None, nan, hyphen for a minus or negative zero in a printed cell."""
    wrong = re.compile(r"\bNone\b|\bnan\b|\binf\b|(^|[ \[(])-\d|−0\.0+\b(?!\d)")
    for name, table in (*made.items(), *alone.items()):
        for part in table.parts:
            cells = [cell for row in part.text.rows() for cell in row]
            assert [cell for cell in cells if wrong.search(cell)] == [], name


def test_horizontal_prints_the_cells(made: dict[str, Table], cohort: tuple[Frames, CohortPlan]) -> None:
    errors, plan = cohort[0]["errors"], cohort[1]
    lines = rows(made["horizontal"])
    for rule, label in {
        "H1": "Base, greedy (H1)",
        "H5": "paper's rule, β by regime (H5)",
        "low temp": "N=b at the best",
    }.items():
        (line,) = [line for name, line in lines.items() if name.startswith(label)]
        for benchmark in plan.with_role("fitted"):
            where = {**AR, "rule": rule, "model": plan.anchor_model, "benchmark": benchmark}
            assert line[plan.title(benchmark)] == printed(errors, **where)
    held_out = block(made["horizontal"], "held-out")["paper's rule, β by regime (H5)"]
    where = {**AR, "rule": "H5", "model": plan.anchor_model, "benchmark": "amc23"}
    assert held_out["AMC23"] == printed(errors, **where)


def test_pools_are_never_mixed(cohort: tuple[Frames, CohortPlan]) -> None:
    """Numbers of the full pool appear in its own blocks and nowhere else."""
    frames, plan = cohort
    marked = pl.when(pool="full").then(pl.lit(77.77)).otherwise("corrected").alias("corrected")
    tables = boptr_tables({**frames, "means": frames["means"].with_columns(marked)}, plan)
    for name in ("horizontal", "vertical", "decomposition", "ablation", "frontier"):
        for part in tables[name].parts:
            cells = [cell for row in part.text.rows() for cell in row]
            assert any("77.77" in cell for cell in cells) == part.title.startswith("full pool"), (name, part.title)
    line = rows(tables["horizontal"])["best point at each b, oracle (H6)"]["Math500"]
    assert line == printed(frames["errors"], **AR, rule="H6", model="qwen25_7b", benchmark="math500")


def test_replication_is_the_batches_mean(made: dict[str, Table], cohort: tuple[Frames, CohortPlan]) -> None:
    batches = cohort[0]["seed_replication"].filter(variant="full_rule", benchmark="math500")["error"]
    line = rows(made["horizontal"])["→ replication, full rule, raw"]
    first, second = batches.to_list()
    assert line["Math500"] == f"{(first + second) / 2:.2f} ± {abs(first - second) / 2**0.5:.2f}"


def test_own_exponents_show_rows_that_differ(made: dict[str, Table], cohort: tuple[Frames, CohortPlan]) -> None:
    means = cohort[0]["means"].filter(scope="vertical", rule="V3", pool="ar", column="micro", mu="cohort")
    values = {row["exponents"]: number(row["corrected"]) for row in means.iter_rows(named=True)}
    assert values["paper"] != values["own"]
    own = block(made["vertical"], "own exponents")
    assert own["paper's rule, own δ (V3)"]["micro"].startswith(values["own"])
    assert "Base, greedy (H1)" not in own
    assert block(made["vertical"], "all models")["paper's rule, own δ (V3)"]["micro"].startswith(values["paper"])


def test_ablation_has_both_cohorts_of_mu(made: dict[str, Table], cohort: tuple[Frames, CohortPlan]) -> None:
    cells = cohort[0]["errors"].filter(rule="V3", mu="without", role="fitted", regime="nonmath")
    errors = cells.filter(pl.col("group") != "new")["corrected"].drop_nulls()
    line = block(made["ablation"], "μ without qwen25_1.5b")["MAIN (BOPTR-P1)"]
    assert line["nonmath"].startswith(f"{number(errors.sum() / len(errors))} [")
    other = rows(made["ablation"])["MAIN (BOPTR-P1)"]
    assert other["nonmath"] != line["nonmath"] and other["cells"] == "8/9"


def test_frontier_sweeps_meet_the_main_rows(made: dict[str, Table]) -> None:
    """Lambda 0 is B0 and lambda 1 the main row: columns of the sweep are not exchanged."""
    main, sweep = rows(made["frontier"]), block(made["frontier"], "sweep of λ")
    assert sweep["Z1-u"]["λ = 0"] == main["anchor's α, no δ (B0)"]["micro"]
    assert sweep["Z1-u"]["λ = 1"] == main["that prior with the anchor (Z1-u)"]["micro"]
    assert [line["base@rltrain"] for line in main.values()] == ["✓", "✓", "×", "×", "✓", "✓", "×", "×"]
    assert [line["#RL"] for line in main.values()][:3] == ["0", "0", "1"]


def test_held_out_cells_and_limit(cohort: tuple[Frames, CohortPlan]) -> None:
    """A dagger stands at the cells above the limit and nowhere else; the new model has a line but is in no mean."""
    frames, plan = cohort
    measured = frames["errors"].filter(**AR, rule="V3", role="held_out")
    worst = measured.sort("error")["model"][-1]
    above = pl.when(rule="V3", role="held_out", model=worst).then(HELD_OUT_LIMIT + 1).otherwise("error").alias("error")
    errors = frames["errors"].with_columns(above)
    lines = rows(boptr_tables({**frames, "errors": errors}, plan)["coverage_heldout"])
    cells = errors.filter(**AR, rule="V3", role="held_out")
    for row in cells.iter_rows(named=True):
        (line,) = [line for name, line in lines.items() if name.split(" ")[0] == row["model"]]
        raw = f"({row['error']:.2f}{'†' if row['error'] > HELD_OUT_LIMIT else ''})"
        assert line["AMC23"] == f"{printed(cells, model=row['model'])} {raw}"
    assert {"†" in line["AMC23"] for line in lines.values()} == {True, False}
    fitted = measured.filter(pl.col("group") != "new")
    assert lines["benchmark mean"]["AMC23"].startswith(f"{number(fitted['corrected'].sum() / 3)} [")
    assert f"({fitted['error'].sum() / 3:.2f}" in lines["benchmark mean"]["AMC23"]
    assert lines["orz_7b (new)"]["mean"] == DASH


def test_undefined_cells_are_dashes_with_reasons(made: dict[str, Table], alone: dict[str, Table]) -> None:
    """The missing cell keeps its place, a code in the CSV and a sentence in the notes."""
    line = made["percell"].text.row(8, named=True)
    assert (line["model"], line["benchmark"], line["mech anchor"]) == ("llama31_8b", "GPQA", DASH)
    reason = made["percell"].data.filter(model="llama31_8b", benchmark="gpqa")["reason"]
    assert set(reason) == {"no_base"} and any(REASONS["no_base"] in note for note in made["percell"].notes)
    assert rows(alone["vertical"])["paper's rule, δ from Base (V5b)"]["qwen25_7b (anchor)"] == DASH
    codes = alone["vertical"].data.filter(rule="V5b", column="micro", pool="ar")["reason"]
    assert set(codes) == {"no_rltrain"} and any(REASONS["no_rltrain"] in note for note in alone["vertical"].notes)
    assert not any(REASONS["no_rltrain"] in note for note in made["vertical"].notes)


def test_a_single_pair_is_said(made: dict[str, Table], alone: dict[str, Table]) -> None:
    """With one pair the offset is nothing, and tables of offsets say so; with several they do not."""
    sentence = "With a single pair δ = 0 by definition and H5 = B0."
    for name in ("horizontal", "vertical", "decomposition", "ablation", "frontier", "percell", "offsets"):
        assert sentence in alone[name].notes and sentence not in made[name].notes
    main = rows(alone["frontier"])
    h5 = rows(alone["horizontal"])["paper's rule, β by regime (H5)"]["mean"]
    assert main["anchor's α, no δ (B0)"]["micro"] == h5
    identical = "V2-δ0 − V3 = +0.00, corrected +0.00 (cells: 2, questions: 80; identical"
    assert any(identical in note for note in alone["vertical"].notes)


@pytest.mark.parametrize(
    ("gap", "verdict", "says"),
    [
        (1.0, "second lower", "low temp, which does without the law, has a lower error than H5 over questions;"),
        (1.0, "not distinguishable", "low temp, which does without the law, has the lower point estimate, not"),
        (-1.0, "first lower", None),
    ],
)
def test_a_better_rival_is_named(cohort: tuple[Frames, CohortPlan], gap: float, verdict: str, says: str | None) -> None:
    frames, plan = cohort
    here = (pl.col("scope") == "anchor") & (pl.col("second") == "low temp") & (pl.col("exponents") == "paper")
    doctored = frames["contrasts"].with_columns(
        corrected=pl.when(here).then(pl.lit(gap)).otherwise("corrected"),
        verdict=pl.when(here).then(pl.lit(verdict)).otherwise("verdict"),
    )
    notes = boptr_tables({**frames, "contrasts": doctored}, plan)["horizontal"].notes
    named = [note for note in notes if note.startswith("low temp")]
    assert len(named) == (says is not None) and all(note.startswith(str(says)) for note in named)


DEFINITIONS = (
    "below 0 the first has the lower error",
    "A pseudo-R2 below 0 predicts worse than the mean",
    "Lower block",
)
"""Beginnings of clauses that compare nothing in this study."""


def test_no_note_calls_a_row_lower_without_its_scope(made: dict[str, Table], alone: dict[str, Table]) -> None:
    """Whether over questions or over models, in each clause of every note and in every verdict that is printed."""
    compared = 0
    for name, table in [*made.items(), *alone.items()]:
        verdicts = [cell for part in table.parts for cell in part.text.to_dict(as_series=False).get("verdict", [])]
        details = [cell for part in table.parts for cell in part.text.to_dict(as_series=False).get("detail", [])]
        for note in [*table.notes, *verdicts, *details]:
            for clause in map(str.strip, re.split(r"; |\. |, AR pool", note)):
                if re.search(r"\b(lower|higher|better|worse)\b", clause, re.IGNORECASE):
                    compared += 1
                    scoped = re.search(r"over (questions|models)", clause)
                    assert scoped or clause.startswith(DEFINITIONS), f"{name}: {clause}"
    assert compared > 10


def test_latex_of_symbols() -> None:
    """Greek letters, hats and signs become mathematics; a bracket that opens a row is no option of the row before."""
    assert escape("π̂, N̂(b), δ̂_m") == r"$\widehat{\pi}$, $\widehat{N}$(b), $\widehat{\delta}$\_m"
    assert escape("αβδμλτε ≤ ≥ ± − — ✓×") == (
        r"$\alpha$$\beta$$\delta$$\mu$$\lambda$$\tau$$\varepsilon$ $\leq$ $\geq$ $\pm$ $-$ --- $\surd$$\times$"
    )
    table = Table(pl.DataFrame({"a": ["x"]}), [Part(pl.DataFrame({"state": ["plain", "[S,A,T]"]}))])
    assert latex(table).splitlines()[4:6] == [r"plain \\", r"{}[S,A,T] \\"]


def test_numbers_in_print() -> None:
    """True minus, no negative zero, infinity as a sign, undefined as a dash."""
    shown = [number(value) for value in (-1.234, -0.001, float("inf"), None, float("nan"))]
    assert shown == ["−1.23", "0.00", "∞", DASH, DASH]
    assert interval(-0.04, -2.69, 2.5, sign="+") == "−0.04 [−2.69, +2.50]"
    assert percent(0.05, 0.017, 0.137) == "5.0 [1.7, 13.7]"


def test_exponents_are_drawn_together() -> None:
    assert regimes.ranges([0.0, 0.1, 0.2, 0.7]) == "0–0.2, 0.7"
    assert regimes.ranges([1.2]) == "1.2" and regimes.ranges(None) == DASH


def test_what_rests_on_nothing_is_left_out(alone: dict[str, Table]) -> None:
    """One pair leaves no model out, and a floor on which nobody solves anything has no crossing: a sentence says so."""
    assert alone["v4"].text.columns == ["(no rows)"]
    assert any(note.startswith("Nothing is printed: too few models") for note in alone["v4"].notes)
    none, solved = (0,) * 5, (20, 30, 40, 45, 50)
    cells = {("m", name): ({planted.DEFAULT: curve}, curve) for name, curve in (("math", solved), ("aime", none))}
    found = planted.cohort(cells, {"math": Benchmark(regime="math"), "aime": Benchmark(regime="floor")})
    table = boptr_tables(study(found, replace(OPTIONS, estimator="first_k")), found.plan)["aime_large_budget"]
    assert not [part.title for part in table.parts if "never behind" in part.title]
    assert "No k*, since both solve equally many questions at every budget: m (anchor), aime, AR pool." in table.notes


def test_differences_are_rl_minus_base(made: dict[str, Table]) -> None:
    curves = made["aime_large_budget"].data.drop_nulls("rl_minus_best")
    assert (curves["rl_minus_best"] - (curves["rl"] - curves["envelope"])).abs().max() < 1e-6  # type: ignore[operator]
    assert any(part.title.startswith("RL \u2212 envelope") for part in made["aime_large_budget"].parts)
    cells = made["signatures"].data.drop_nulls("decision")
    assert (cells["rl_minus_base"] - (cells["rl"] - cells["base"])).abs().max() < 1e-6  # type: ignore[operator]
    recovered = cells.filter(signature="base_recovery", decision="yes")
    assert recovered.height and (recovered["hi"] < 0).all()
    assert not [note for table in made.values() for note in table.notes if "Base \u2212 RL" in note]


def test_decisions_say_how_many_questions_they_rest_on(made: dict[str, Table]) -> None:
    """A verdict without its number of questions and its policy cannot be weighed."""
    decided = made["signatures"].parts[1].text
    assert set(decided["questions"]) == {"40"}
    assert "topp0.95_t1.0" in made["signatures"].notes[0]
    assert "termination gain (T@4)" in decided.columns
