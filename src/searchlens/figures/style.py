"""What all figures share: labels, palette, order of policies, axes in budgets, and writing a figure with its numbers.

Figures are made to be printed at the size they are drawn: ``COLUMN`` is one column of a two-column paper, ``PAGE`` the
width of the page. Proportions are drawn as percentages; nothing else happens to a number between a frame and the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from searchlens.policies import kinds
from searchlens.policies.kinds import NO_POLICIES, PolicyByName

COLUMN, PAGE = 3.5, 7.0
Source = Literal["sampled", "imported", "recorded", "simulated"]
FORMATS = ("svg", "pdf", "png", "csv")
METRIC_NAMES = {"P": "pass@k", "Q": "self-consistency"}

# The four families of the paper, in both shades, and RL's red stay apart under every common colour blindness (a test
# simulates them); shapes of markers say the same again.
FAMILY_COLOURS = {
    "temperature": "#332288",
    "top-p": "#E69F00",
    "top-k": "#228B5B",
    "min-p": "#C785C4",
    "typical": "#56B4E9",
    "penalty": "#7F6A00",
    "mixed": "#8C564B",
    "search": "#008080",
    "greedy": "#000000",
}
FAMILY_MARKERS = dict(zip(FAMILY_COLOURS, "os^DvPXph", strict=True))
# The controllers stay apart from one another, from RL's red and from the envelopes in the same way.
CONTROLLER_COLOURS = {
    "power": FAMILY_COLOURS["search"],
    "mcts": "#332288",
    "entropy_tree": "#E69F00",
    "thought_tree": "#56B4E9",
    "beam": "#A6761D",
    "step_beam": "#DDCC77",
}
SEARCH_MARKERS = "o^sDvPX<>dh*"
LIGHTEST = 0.3  # white mixed into the coldest shade of a family
RL_COLOUR, BASE_COLOUR, ENVELOPE_COLOUR = "#B2182B", "#0072B2", "#222222"
REGION_COLOUR, CURVE_COLOUR, MUTED = "#E4E4E4", "#A8A8A8", "#666666"

POWER_LINE: dict[str, Any] = {"color": CONTROLLER_COLOURS["power"], "linewidth": 1.2, "linestyle": (0, (3, 1))}

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same file on every machine
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlelocation": "left",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.0,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.4,
    "axes.unicode_minus": True,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "searchlens",
    "savefig.dpi": 300,
}


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's own defaults and ``STYLE``, whatever this machine is set up to use."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What a figure says about its cell.

    Attributes
    ----------
    pair, benchmark : str
        Names for people.
    questions : int
        Number of questions in the benchmark.
    metric : str
        ``P`` or ``Q``.
    source : str
        Where the samples come from; said in the figure unless they were sampled in this study.
    readout : str
        ``prefix`` or ``expected``.
    default_policy : str
        Policy of the RL target curve.
    epsilon, quantile, confidence : float
        Near-match tolerance, lower bound of the support region and level of the intervals, as configured.
    policies : mapping of str to Policy
        What names stand for. A name that is not here must spell its policy, or counts as a search of unknown kind.
    parameters : float or None
        Of either model of the pair; None where unknown.
    """

    pair: str
    benchmark: str
    questions: int
    metric: str = "P"
    source: Source = "sampled"
    readout: str = "prefix"
    default_policy: str = "topp0.95_t1.0"
    epsilon: float = 0.03
    quantile: float = 0.10
    confidence: float = 0.95
    policies: PolicyByName = field(default_factory=dict)
    parameters: float | None = None

    @property
    def title(self) -> str:
        """Two lines: pair, benchmark and number of questions; then the metric."""
        return f"{self.pair}, {self.benchmark} ({self.questions} questions)\n{self.measure}"

    @property
    def measure(self) -> str:
        """The metric by its name; the readout is said only where it is not the usual one."""
        name = METRIC_NAMES[self.metric]
        return name if self.readout == "prefix" else f"{name}, expected"

    @property
    def band(self) -> str:
        """For example ``95% band``."""
        return f"{self.confidence:.0%} band"


def pick(frame: pl.DataFrame, **equal: str | int) -> pl.DataFrame:
    """The rows where each named column has the given value."""
    return frame.filter(*(pl.col(column) == value for column, value in equal.items()))


def by_policy(frame: pl.DataFrame, known: PolicyByName = NO_POLICIES) -> pl.DataFrame:
    """The frame with a column ``family``, rows in the order of ``kinds.ordered`` and by budget."""
    names = kinds.ordered(frame["policy"], known)
    family_of = [kinds.family(name, known) for name in names]
    rank = pl.col("policy").replace_strict(names, list(range(len(names))), return_dtype=pl.Int64)
    family = pl.col("policy").replace_strict(names, family_of, return_dtype=pl.String)
    return frame.with_columns(family=family).sort(rank, "budget", maintain_order=True)


def families(frame: pl.DataFrame) -> list[str]:
    """Families that a frame's column of that name holds, in their order."""
    present = set(frame["family"])
    return [kind for kind in FAMILY_COLOURS if kind in present]


def family_names(names: Sequence[str]) -> dict[str, str]:
    """What legends call families: where searches are among them, the others are marked as autoregressive (AR)."""
    return {name: f"AR {name}" if "search" in names and name != "search" else name for name in names}


def power_policies(names: Iterable[str], labels: Labels) -> list[str]:
    """Those policies that sample from a power of the model's distribution."""
    return [
        name for name in kinds.ordered(names, labels.policies) if kinds.controller(name, labels.policies) == "power"
    ]


def power_curves(points: pl.DataFrame, budgets: pl.Series, labels: Labels) -> pl.DataFrame:
    """Policy, budget and value of every power-sampling policy at some budgets."""
    rows = pick(points, metric=labels.metric, readout=labels.readout)
    chosen = rows.filter(
        pl.col("policy").is_in(power_policies(rows["policy"], labels)), pl.col("budget").is_in(budgets.to_list())
    )
    return by_policy(chosen.select("policy", "budget", "value"), labels.policies)


def search_looks(names: Sequence[str], known: PolicyByName) -> dict[str, dict[str, Any]]:
    """A marker for each search policy, and the colour of its controller."""
    colours = [CONTROLLER_COLOURS.get(kinds.controller(name, known), MUTED) for name in names]
    markers = (SEARCH_MARKERS[i % len(SEARCH_MARKERS)] for i in range(len(names)))
    return {
        name: {"color": colour, "marker": marker} for name, colour, marker in zip(names, colours, markers, strict=True)
    }


def family_look(kind: str) -> dict[str, Any]:
    """Colour and marker of a family."""
    return {"color": FAMILY_COLOURS[kind], "marker": FAMILY_MARKERS[kind]}


def shades(names: Sequence[str], known: PolicyByName = NO_POLICIES) -> dict[str, str]:
    """A colour for each policy: its family's, lighter the colder it samples within that family."""
    family_of = {name: kinds.family(name, known) for name in names}
    policies = {name: kinds.policy_of(name, known) for name in names}
    heat = {name: policy.local.temperature if policy else 1.0 for name, policy in policies.items()}
    colours = {}
    for name in names:
        levels = sorted({heat[other] for other in names if family_of[other] == family_of[name]})
        white = 0.0 if len(levels) == 1 else LIGHTEST * (1 - levels.index(heat[name]) / (len(levels) - 1))
        colours[name] = lightened(FAMILY_COLOURS[family_of[name]], white)
    return colours


def lightened(colour: str, white: float) -> str:
    """A colour with a share of white mixed in."""
    red, green, blue = (channel + (1 - channel) * white for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def percent(column: pl.Series) -> list[float]:
    """Proportions as percentages; nothing is drawn where there is none."""
    return (column * 100).fill_null(float("nan")).to_list()


def new_figure(width: float, height: float, title: str, source: Source) -> Figure:
    """An empty figure whose parts do not overlap, with a two-line title; a note on samples from elsewhere."""
    pad = 0.04
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=pad, h_pad=pad))
    figure.suptitle(title, x=0.01, ha="left")
    if source != "sampled":
        second_line = 1 - (pad + 1.2 * STYLE["figure.titlesize"] / 72) / height  # the layout puts the title below a pad
        figure.text(0.99, second_line, f"from {source} samples", ha="right", va="top", color=MUTED, style="italic")
    return figure


def budget_axis(axes: Axes, budgets: Iterable[int], label: str = "budget N (samples per question)") -> None:
    """Budgets on a base-2 logarithmic axis, one labelled tick each."""
    ticks = sorted(set(budgets))
    axes.set_xscale("log", base=2)
    axes.set_xlim(ticks[0] / 2**0.3, ticks[-1] * 2**0.3)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def zero_line(axes: Axes) -> None:
    """A thin line at no difference."""
    axes.axhline(0, color=MUTED, linewidth=0.7, zorder=1.5)


def say_nothing_shared(axes: Axes) -> None:
    """In place of a comparison that has no rows."""
    axes.set_axis_off()
    text = "no policy was sampled from both models"
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)


def signed(value: float) -> str:
    """A difference of proportions in percentage points, with its sign."""
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


@styled()
def save(figure: Figure, stem: Path, numbers: pl.DataFrame) -> list[Path]:
    """Write ``stem.svg``, ``.pdf``, ``.png`` and the numbers they show as ``.csv``.

    The bytes depend on the figure alone: no date, no random identifiers.

    Returns
    -------
    list of Path
        The files, in the order of ``FORMATS``.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{suffix}") for suffix in FORMATS]
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
        "png": {"Software": None},
    }
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # where things stand is decided once, and not by each format again
    for file, suffix in zip(files[:3], FORMATS[:3], strict=True):
        figure.savefig(file, format=suffix, metadata=metadata[suffix])
    numbers.write_csv(files[3])
    return files
