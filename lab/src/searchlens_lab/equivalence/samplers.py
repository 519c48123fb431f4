"""How far samplers of p^alpha are from it, by exact enumeration, and what they cost.

Every sampler is a policy and runs through driver and engine, on language models small enough to enumerate and on a
checkpoint. The published gains of samplers are latencies of one request; here tokens count, because thousands of texts
fill an engine anyway.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from searchlens.analysis.claims import percent
from searchlens.analysis.uncertainty import wilson
from searchlens.plan import Grid
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt
from searchlens.reporting.tables.table import Part, Table, write
from searchlens.search.driver import Failure, run, start
from searchlens.search.policy import from_spec
from searchlens.store.frames import write_frame
from searchlens_lab.equivalence.explicit import POWER, POWER_LIMIT, PROMPT, ToyModel, draws, enumerate_texts
from searchlens_lab.equivalence.subject import Ids, Subject, texts_of
from searchlens_lab.equivalence.tables import total_variation

log = logging.getLogger(__name__)
ALPHA = 4.0
LOW = {"temperature": 1 / ALPHA}


@dataclass(frozen=True)
class Toy:
    """A language model whose texts are enumerated: few texts, or 364 of up to five of four tokens."""

    name: str
    model: ToyModel
    limit: int


TOYS = (
    Toy("easy", POWER, POWER_LIMIT),
    Toy("median", ToyModel.random(1, vocab_size=4, eos=-1.0), 5),
    Toy("hard", ToyModel.random(14, vocab_size=4, eos=-1.0), 5),
)
"""Easy: the model of the equivalence table. Median and hard: of the random models 0 to 79 of this shape, ranked by the
distance of low temperature alone from p^4, one near the median (.76, rank 35) and the last but one (.98)."""


@dataclass(frozen=True)
class Setting:
    """A sampler at one cost."""

    sampler: str
    setting: str
    """What it costs by, such as ``10 steps``."""
    toy: dict[str, Any]
    real: dict[str, Any] | None = None
    """``toy``, ``real``: its policy on a toy, and on a checkpoint, whose texts are longer; no ``real``: only on
    toys."""


def _chain(steps: int, blocks: int, **parameters: Any) -> dict[str, Any]:
    return {
        "local": LOW,
        "controller": {"name": "power", "alpha": ALPHA, **parameters},
        "scheduler": {"name": "blocks", "blocks": blocks, "steps": steps},
    }


def _particles(count: int, every: int, ramp: int, resample: float = 0.5) -> dict[str, Any]:
    parameters = {"particles": count, "every": every, "ramp": ramp, "resample": resample}
    return {"local": LOW, "controller": {"name": "smc", "alpha": ALPHA, **parameters}}


def _lookahead(top: int, rollouts: int, horizon: int) -> dict[str, Any]:
    return {"controller": {"name": "lookahead", "alpha": ALPHA, "top": top, "rollouts": rollouts, "horizon": horizon}}


SETTINGS: tuple[Setting, ...] = (
    Setting("low temperature", "T = 1/4", {"local": LOW}, {"local": LOW}),
    *(
        Setting("best of N, reweighted", f"N = {n}", _particles(n, 5, 0, 0.0), _particles(n, 1000, 0, 0.0))
        for n in (4, 16)
    ),
    Setting("best of N, reweighted", "N = 64", _particles(64, 5, 0, 0.0)),
    *(
        Setting(name, f"{n} steps", _chain(n, 5, **more), None if n == 30 else _chain(n, 16, **more))
        for name, steps, more in (
            ("MH, reference", (2, 10), {"mode": "reference"}),
            ("MH, exact", (2, 10, 30), {}),
            ("MH, entropy cuts", (2, 10, 30), {"cut": "entropy"}),
        )
        for n in steps
    ),
    *(Setting("SMC", f"N = {n}", _particles(n, 1, 0), _particles(n, 4, 0)) for n in (4, 16)),
    Setting("SMC", "N = 64", _particles(64, 1, 0)),
    *(Setting("SMC with ramp", f"N = {n}", _particles(n, 1, 3), _particles(n, 4, 16)) for n in (4, 16, 64)),
    *(Setting("scalable", f"{m} rollouts", _lookahead(4, m, 5)) for m in (1, 4, 16)),
    Setting("scalable, top 2", "4 rollouts", _lookahead(2, 4, 5), _lookahead(2, 4, 16)),
)

DISTANCES = pl.Schema(
    {
        **dict.fromkeys(("sampler", "setting", "toy"), pl.String()),
        "runs": pl.UInt32(),
        **dict.fromkeys(("distance", "noise", "tokens"), pl.Float64()),
    }
)
ACCURACIES = pl.Schema(
    {
        **dict.fromkeys(("sampler", "setting"), pl.String()),
        "texts": pl.UInt32(),
        **dict.fromkeys(("accuracy", "lo", "hi", "tokens", "log_p"), pl.Float64()),
    }
)


def distances(runs: int, settings: Sequence[Setting] = SETTINGS, toys: Sequence[Toy] = TOYS) -> pl.DataFrame:
    """Total variation of every sampler from p^alpha on every toy.

    ``runs``: texts of each sampler and toy. Returns ``DISTANCES``: ``distance`` in [0, 1] between the shares of the
    texts and the exact law; ``noise``, its expected value for as many draws from the law itself, each share taken as
    normal; ``tokens`` drawn for a text, mean.
    """
    rows = []
    for toy in toys:
        p = enumerate_texts(toy.model, PROMPT, toy.limit)
        total = math.fsum(chance**ALPHA for chance in p.values())
        law = {text: chance**ALPHA / total for text, chance in p.items()}
        noise = 0.5 * sum(math.sqrt(2 * c * (1 - c) / (math.pi * runs)) for c in law.values())
        for one in settings:
            counts, tokens = draws(toy.model, from_spec(one.sampler, one.toy), runs, toy.limit, "referee")
            rows.append((one.sampler, one.setting, toy.name, runs, total_variation(counts, law), noise, tokens))
            log.info("%s, %s, on the %s toy: %.3f", one.sampler, one.setting, toy.name, rows[-1][4])
    return pl.DataFrame(rows, DISTANCES, orient="row")


def accuracies(subject: Subject, settings: Sequence[Setting] = SETTINGS) -> pl.DataFrame:
    """Share of right answers of every sampler on a checkpoint, one text for each question.

    Returns ``ACCURACIES``: ``accuracy`` with its 95 % Wilson interval over questions, ``tokens`` drawn for a text and
    ``log_p`` of the text under the raw model in nats, means.
    """
    rows = []
    for one in settings:
        if one.real is None:
            continue
        policy = from_spec(one.sampler, one.real)
        tasks = subject.tasks(policy, stream="referee")
        texts: list[Ids] = [()] * len(tasks)
        generated, level = 0, 0.0
        for place, outcome in run(((i, start(task, policy)) for i, task in enumerate(tasks)), subject.engine):
            if isinstance(outcome, Failure):
                raise RuntimeError(outcome.reason)
            (texts[place],) = texts_of(outcome.candidates)
            generated += outcome.usage.generated
            level += float(outcome.candidates[0].logprobs.sum())
        right, n = sum(subject.right(texts)), len(texts)
        interval = wilson(right, n)
        ends = float(interval.lo), float(interval.hi)
        rows.append((one.sampler, one.setting, n, right / n, *ends, generated / n, level / n))
        log.info("%s, %s, on the checkpoint: %d of %d", one.sampler, one.setting, right, n)
    return pl.DataFrame(rows, ACCURACIES, orient="row")


# ---- table and figure


NOTES = (
    "Total variation from p^4, by exact enumeration: 0 is the law itself, 1 has nothing in common with it. Tokens:"
    " drawn for one text, mean; those of proposals, particles and rollouts that are thrown away count.",
    "Right: share of right answers on a checkpoint, one text for each question, with the 95% Wilson interval. A sampler"
    " that is closer to p^4 need not be right more often.",
)


def write_comparison(grid: Grid, output: Path, *, runs: int, threads: int = 1) -> list[Path]:
    """Compare all samplers, with ``runs`` texts of each on each toy, and write table and figure; returns the files."""
    subject = Subject.of(grid, threads)
    measured = accuracies(subject)
    subject.close()
    return write_results(distances(runs), measured, output)


def write_results(distances: pl.DataFrame, accuracies: pl.DataFrame, output: Path) -> list[Path]:
    """Write ``samplers.{parquet,csv,md,tex,html}`` and the figure ``sampler_distance``."""
    table = table_of(distances, accuracies)
    output.mkdir(parents=True, exist_ok=True)
    write_frame(table.data, output / "samplers.parquet")
    files = [output / "samplers.parquet", *write(table, output / "samplers")]
    return [*files, *style.save(draw(distances), output / "sampler_distance", distances)]


def table_of(distances: pl.DataFrame, accuracies: pl.DataFrame) -> Table:
    """One row for each sampler and setting: distance and tokens on every toy, share of right answers and tokens."""
    toys = distances["toy"].unique(maintain_order=True).to_list()
    data = distances.select("sampler", "setting").unique(maintain_order=True)
    for toy in toys:
        names = {name: f"{name}_{toy}" for name in ("distance", "noise", "tokens")}
        rows = distances.filter(toy=toy).select("sampler", "setting", *names).rename(names)
        data = data.join(rows, on=["sampler", "setting"], how="left", maintain_order="left")
    data = data.join(accuracies, on=["sampler", "setting"], how="left", maintain_order="left")
    lines = [
        {
            "sampler": row["sampler"],
            "setting": row["setting"],
            **{
                key: text
                for toy in toys
                for key, text in (
                    (f"{toy}: distance", f"{row[f'distance_{toy}']:.3f}"),
                    (f"{toy}: tokens", f"{row[f'tokens_{toy}']:,.0f}"),
                )
            },
            "right (%)": "" if row["accuracy"] is None else percent(row["accuracy"], row["lo"], row["hi"]),
            "log p": "" if row["log_p"] is None else f"{row['log_p']:.2f}",
            "tokens": "" if row["tokens"] is None else f"{row['tokens']:,.0f}",
        }
        for row in data.iter_rows(named=True)
    ]
    noise = ", ".join(f"{toy} {data[f'noise_{toy}'][0]:.3f}" for toy in toys)
    notes = [f"By chance alone {distances['runs'][0]:,} draws from p^4 itself are away: {noise}.", *NOTES]
    return Table(
        data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(data["sampler"].to_list()))], notes
    )


LOOKS = {  # Okabe and Ito's colours, which all eyes tell apart; markers tell them apart in grey, too
    "low temperature": ("#000000", "*"),
    "best of N, reweighted": ("#56B4E9", "v"),
    "MH, reference": ("#999999", "s"),
    "MH, exact": ("#0072B2", "o"),
    "MH, entropy cuts": ("#009E73", "D"),
    "SMC": ("#E69F00", "^"),
    "SMC with ramp": ("#D55E00", "P"),
    "scalable": ("#CC79A7", "X"),
    "scalable, top 2": ("#CC79A7", "p"),
}
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)


@style.styled()
def draw(distances: pl.DataFrame) -> Figure:
    """The figure, from ``equivalence.samplers.DISTANCES``."""
    toys = distances["toy"].unique(maintain_order=True).to_list()
    title = (
        "How close samplers come to p⁴, and how many tokens that takes\n"
        "Total variation from p⁴ against tokens drawn for a text; grey: what chance alone leaves"
    )
    floor = max(TICKS[0], min(distances["distance"])) * 0.8
    figure = style.new_figure(style.PAGE, 3.2, title, "sampled")
    for axes, toy in zip(figure.subplots(1, len(toys), sharey=True), toys, strict=True):
        rows = distances.filter(toy=toy)
        axes.axhspan(floor, rows["noise"][0], color=palette.REGION_COLOUR, linewidth=0)
        for (sampler,), group in rows.group_by("sampler", maintain_order=True):
            colour, marker = LOOKS[str(sampler)]
            line = group.sort("tokens")
            axes.plot(
                line["tokens"], line["distance"], color=colour, marker=marker, markersize=5, linewidth=1, label=sampler
            )
        axes.set(xscale="log", yscale="log", xlabel="tokens drawn for a text", ylim=(floor, 1.2))
        axes.set_title(f"{toy} toy", loc="left")
        ticks = [tick for tick in TICKS if tick > floor]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    figure.axes[0].set_ylabel("total variation from p⁴")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5)
    return figure
