"""Colours and markers of policies and models, which figures and the explorer share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import polars as pl

from searchlens.catalogue import declared
from searchlens.search import kinds
from searchlens.search.kinds import NO_POLICIES, PolicyByName

# The four families of the paper, in their darkest and lightest shades, and RL's red are distinct under every common
# colour blindness (a test simulates them); each family has a marker of its own, too.
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
SEARCH_MARKERS = "o^sDvPX<>dh*"
LIGHTEST = 0.3  # white mixed into the coldest shade of a family
RL_COLOUR, BASE_COLOUR, ENVELOPE_COLOUR = "#B2182B", "#0072B2", "#222222"
REGION_COLOUR, CURVE_COLOUR, MUTED = "#E4E4E4", "#A8A8A8", "#666666"


def families(frame: pl.DataFrame) -> list[str]:
    """The families in the column ``family``, in their order."""
    present = set(frame["family"])
    return [family for family in FAMILY_COLOURS if family in present]


def controller_colours() -> dict[str, str]:
    """Colours of the controllers that declare one, apart from one another, RL's red and envelopes; others are grey."""
    return {name: item.options["colour"] for name, item in declared("controller").items() if "colour" in item.options}


def search_looks(names: Sequence[str], configured: PolicyByName) -> dict[str, dict[str, Any]]:
    """Colour of the controller, and a marker of its own, for each search policy."""
    known = controller_colours()
    return {
        name: {"color": known.get(kinds.controller(name, configured), MUTED), "marker": marker}
        for name, marker in zip(names, cycle(SEARCH_MARKERS), strict=False)
    }


def family_look(family: str) -> dict[str, Any]:
    """Colour and marker of a family."""
    return {"color": FAMILY_COLOURS[family], "marker": FAMILY_MARKERS[family]}


def shades(names: Sequence[str], configured: PolicyByName = NO_POLICIES) -> dict[str, str]:
    """A colour for each policy: that of its family, lighter the lower its temperature within the family."""
    family_of = {name: kinds.family(name, configured) for name in names}
    policies = {name: kinds.policy_of(name, configured) for name in names}
    heat = {name: policy.local.temperature if policy else 1.0 for name, policy in policies.items()}
    colours = {}
    for name in names:
        levels = sorted({heat[other] for other in names if family_of[other] == family_of[name]})
        white = 0.0 if len(levels) == 1 else LIGHTEST * (1 - levels.index(heat[name]) / (len(levels) - 1))
        colour = FAMILY_COLOURS[family_of[name]]
        channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        colours[name] = "#" + "".join(f"{round(255 * (each + (1 - each) * white)):02x}" for each in channels)
    return colours
