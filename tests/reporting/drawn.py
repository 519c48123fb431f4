"""What a figure shows: its lines, marks and words, whether it is legible, and how its colours are seen."""

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

import figure_data
from searchlens.reporting.figures import style
from searchlens.reporting.figures.context import Labels

LABELS = Labels(pair="micro-1m", benchmark="Micro math", questions=200, metric="P")


def prefill_of(cell: figure_data.Cell) -> pl.DataFrame:
    """Prompts of 50 tokens; searches compute a tenth of a token again for each that they generate."""
    rows = [
        (model, name, 50.0, 0.1 if name in figure_data.SEARCHES else 0.0)
        for model, frame in (("Base", cell.base), ("RL", cell.rl))
        for name in frame["policy"].unique(maintain_order=True)
    ]
    return pl.DataFrame(rows, ["model", "policy", "prompt", "again"], orient="row")


def lines(axes: Axes, name: str = "") -> list[tuple[list[float], list[float]]]:
    """Data of the lines that carry this name, or of every line."""
    named = [line for line in axes.get_lines() if name in ("", line.get_gid())]
    return [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in named]


def marks(axes: Axes) -> list[tuple[float, float]]:
    """Where seaborn's marks are."""
    found = [item for item in axes.collections if isinstance(item, PathCollection)]
    return [(float(x), float(y)) for item in found for x, y in np.asarray(item.get_offsets()).tolist()]


def words(figure: Figure) -> str:
    """All texts of a figure, wherever their lines break."""
    return " ".join(" ".join(text.get_text() for text in texts(figure)).split())


def texts(figure: Figure) -> list[Text]:
    return [
        text
        for text in figure.findobj(Text, include_self=False)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
    ]


def check_layout(figure: Figure) -> None:
    with style.styled():
        figure.draw_without_rendering()
    assert not [text.get_text() for text in texts(figure) if text.get_fontsize() < 7]
    extent = figure.get_tightbbox()  # in inches, of what is visible
    width, height = figure.get_size_inches()
    assert extent.x0 > -0.01 and extent.y0 > -0.01 and extent.x1 < width + 0.01 and extent.y1 < height + 0.01
    panels = [axes.get_tightbbox() for axes in figure.axes]
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(panel) for panel in panels if panel is not None)


def has_marks(axes: Axes) -> bool:
    """Whether a panel shows any data: a line, a mark, a bar or a map, not only text."""
    lengths = [len(np.asarray(line.get_xdata())) for line in axes.get_lines()]
    lengths += [len(np.asarray(item.get_offsets())) for item in axes.collections if isinstance(item, PathCollection)]
    maps = [item for item in axes.collections if isinstance(item, QuadMesh)]
    return any(lengths) or bool(maps or axes.patches or axes.images) or axes.get_label() == "<colorbar>"


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


VISION = {
    "usual": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}  # Machado, Oliveira and Fernandes (2009), on linear RGB
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def seen(colour: str, vision: str) -> npt.NDArray[np.float64]:
    """CIELAB coordinates of a colour as it is seen."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ (np.array(VISION[vision]) @ linear).clip(0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
