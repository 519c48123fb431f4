"""Stage ``transfer``: the frames of BOPTR to what they say in words, its tables and figures."""

from __future__ import annotations

from pathlib import Path

from searchlens.boptr.cohort import CohortPlan, read_cohort
from searchlens.boptr.study import words
from searchlens.catalogue import BOPTR_WORDS, boptr_frames, loaded
from searchlens.cli.stages._frames import read_sampling_cost
from searchlens.config.boptr import BoptrOptions
from searchlens.config.health import DEFAULTS, HealthOptions
from searchlens.errors import InputError
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.figures import style as figures_of
from searchlens.reporting.tables.graders import of_judges
from searchlens.reporting.tables.table import save
from searchlens.store.frames import read_frame, write_frame
from searchlens.store.layout import SIGNATURE, Layout, landscape_folder
from searchlens.store.provenance import Judge


def transfer(
    plan: CohortPlan,
    options: BoptrOptions,
    landscapes: Path,
    output: Layout,
    limits: HealthOptions = DEFAULTS,
    *,
    fingerprint: str = "",
    figures: bool = True,
) -> None:
    """Write every table and figure of the transfer analysis, and the frames of BOPTR without numbers.

    ``limits`` say from where on a cell is flagged as not interpretable. An InputError: a frame is missing, because
    BOPTR was not fitted here; or the frames hold another estimator than the options name.
    """
    frames = {name: read_frame(output.boptr_frame(name), "boptr") for name in boptr_frames() if name not in BOPTR_WORDS}
    read = frames["errors"].get_column("estimator", default=None)
    if read is None or set(read) - {options.estimator}:
        found = "no estimate" if read is None else f"the estimator {read[0]}"
        raise InputError(
            f"{output.boptr}: the frames name {found}, boptr.estimator is {options.estimator}",
            f"run `searchlens boptr` again, or give --estimator {'unbiased' if read is None else read[0]}",
        )
    frames |= words(read_cohort(landscapes, plan, estimator=options.estimator), options, frames, limits)
    for name in BOPTR_WORDS:
        write_frame(frames[name], output.boptr_frame(name))
    spent = read_sampling_cost(output.boptr / SIGNATURE)
    judged = {cell: Judge.read(landscape_folder(landscapes, *cell)) for cell in plan.cells}
    context = BoptrContext(frames, plan, options, of_judges(judged))
    tables, figures_to = (output.failures("transfer", name) for name in ("tables.json", "figures.json"))
    save(loaded("table", stage="boptr"), context, output, tables, fingerprint, spent)
    if figures:
        figures_of.write(loaded("figure", stage="boptr"), context, output.boptr_figure("any", "svg").parent, figures_to)
