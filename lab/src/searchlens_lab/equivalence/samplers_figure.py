"""Distance of samplers of p^alpha from their target against the tokens that a text costs; one panel for each toy."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from searchlens.reporting.figures import palette, style

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
    """The figure, from ``equivalence.referee.DISTANCES``."""
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
