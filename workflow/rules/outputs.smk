"""Every table and figure that is declared, with its files and its place in the report."""

from snakemake.io import AnnotatedString

from searchlens.catalogue import FIGURE_FORMATS, TABLE_FORMATS, declared, figure_files, titles


def tables(stage, **category):
    """Every file of every table that a stage writes, each table listed in the report."""
    for name in declared("table", stage=stage):
        first, *others = (OUT.table(name, suffix) for suffix in (*TABLE_FORMATS, "json"))
        yield first
        for file in others:
            page = file.suffix == ".html"  # the only form that a report shows, rather than offers to save
            yield listed(file, f"tables/{name}", {"table": readable(name)}, **category) if page else file


def figures(stage, path, **category):
    """Every file of every figure that a stage draws, each figure listed in the report.

    An optional figure has a folder for its files, empty if it has nothing to draw.
    """
    known = declared("figure", stage=stage)
    for stem, (name, metric) in figure_files(known).items():
        labels = {"figure": readable(name)} | ({"metric": titles("metric")[metric]} if metric else {})
        svg, *others = (path(stem, suffix) for suffix in FIGURE_FORMATS)
        if known[name].options.get("optional"):
            folder = directory(str(svg.with_suffix("")))
            yield listed(folder, f"figures/{name}", labels, patterns=[f"{{figure}}{svg.suffix}"], **category)
        else:
            yield listed(svg, f"figures/{name}", labels, **category)
            yield from others


def left_out():
    """What an earlier run made and this study leaves out: report and explorer would show it as if it were current."""
    made = {table for tables in addons.made(GRID).values() for table in tables}
    added = {table: table not in made for stage in addons.stages().values() for table in stage.tables}
    without = {"boptr": GRID.study.without_boptr, "likelihood": not GRID.jobs.likelihood_cells, **added}
    names = [name for stage, is_out in without.items() if is_out for name in declared("table", stage=stage)]
    yield from (OUT.table(name, suffix) for name in names for suffix in (*TABLE_FORMATS, "json"))
    yield from (
        OUT.figure(*cell, "any", "svg").parent for cell in GRID.study.pair_cells if cell not in GRID.study.drawn_cells
    )
    yield from (OUT.agreement(*cell) for cell in set(GRID.study.cells) - set(GRID.study.agreement_cells))
    if not needs.overview(GRID).handover:
        yield from (
            OUT.study_figure(name, suffix)
            for name in declared("figure", stage="likelihood")
            for suffix in FIGURE_FORMATS
        )
    if GRID.study.without_boptr:
        yield from (OUT.boptr, OUT.boptr_figure("any", "svg").parent)


def listed(path, caption, labels, **place):
    """A file in the report, with its caption under workflow/report/ if it has one."""
    path = path if isinstance(path, AnnotatedString) else str(path)
    file = captions.path(caption)
    if file and file.is_relative_to(captions.folder()):  # relative to this file, which may be in a remote module
        file = Path("..", "report", file.relative_to(captions.folder()))
    return report(path, caption=str(file) if file else None, labels=labels, **place)


def readable(name):
    """A name as the report shows it."""
    return name.replace("_", " ")
