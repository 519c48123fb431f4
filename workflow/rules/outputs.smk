"""Every table and figure that is declared, with its files and its place in the report."""

from searchlens.catalogue import FIGURE_FORMATS, TABLE_FORMATS, declared, figure_files, titles


def tables(stage, **category):
    """Every file of every table that a stage writes, each table listed in the report."""
    for name in declared("table", stage=stage):
        csv, *others = (OUT.table(name, suffix) for suffix in (*TABLE_FORMATS, "json"))
        yield listed(csv, f"tables/{name}", {"table": readable(name)}, **category)
        yield from others


def figures(stage, path, **category):
    """Every file of every figure that a stage draws, each figure listed in the report."""
    for stem, (name, metric) in figure_files(declared("figure", stage=stage)).items():
        labels = {"figure": readable(name)} | ({"metric": titles("metric")[metric]} if metric else {})
        svg, *others = (path(stem, suffix) for suffix in FIGURE_FORMATS)
        yield listed(svg, f"figures/{name}", labels, **category)
        yield from others


def listed(path, caption, labels, **category):
    """A file in the report, with its caption under workflow/report/ if it has one."""
    file = WORKFLOW / "report" / f"{caption}.rst"
    return report(str(path), caption=str(file) if file.exists() else None, labels=labels, **category)


def readable(name):
    """A name as the report shows it."""
    return name.replace("_", " ")
