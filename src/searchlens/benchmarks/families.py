"""The known benchmarks: what they are, where they come from, and how large they should be.

A family is a row of data here, a reader for its kind of question, and, where its golds are known, a list of digests
under ``golds/``. docs/add-a-benchmark.md adds one; docs/artifacts.md has citations and known issues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

READERS: dict[str, str] = {
    "math": "searchlens.benchmarks.mathematics",
    "integer": "searchlens.benchmarks.mathematics",
    "choice": "searchlens.benchmarks.choices",
    "ifeval": "searchlens.benchmarks.ifeval",
}
"""Kind of row to the module that reads it: ``read(rows, family) -> list of Row`` and ``LAYOUTS``."""


@dataclass(frozen=True, slots=True)
class Hub:
    """One split of a dataset on the Hugging Face hub.

    Attributes
    ----------
    id : str
        ``owner/name``.
    config : str
        Empty for the only or default one.
    split : str
    gated : bool
        Its terms have to be accepted there: never fetched from here, read from the user's own file.
    """

    id: str
    split: str = "test"
    config: str = ""
    gated: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """A known benchmark.

    Attributes
    ----------
    name : str
        Key of ``FAMILIES``; also starts the ids of its questions.
    title : str
    kind : str
        Key of ``READERS``.
    grader : str
        Kind of grading (``catalogue.declared("grader")``).
    regime : str
        g(d) of BOPTR, as the paper assigns it.
    licence : str
        As the source states it; it does not settle the rights in contest problems.
    hub : Hub or None
    sizes : mapping
        Number of rows to the source known to have as many; empty where none is known.
    parts : tuple of str
        Families whose files, one each and in this order, make up this one.
    permuted : bool
        The file gives the right choice first, so that the choices have to be put into an order of our own.
    without_gold : bool
        Rows without a gold occur and are left out.
    shuffled : bool
        Questions are put in the order of their hashes: the first so many of them are a fair sample of a large set,
        whatever the order of its file. Ids count the rows of the file still.
    """

    name: str
    title: str
    kind: str
    grader: str
    regime: str
    licence: str
    hub: Hub | None = None
    sizes: Mapping[int, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    permuted: bool = False
    without_gold: bool = False
    shuffled: bool = False


_CONTEST = "none stated for the problems (MAA)"
_AIME = {30: "one year, I and II"}


def _rltrain(name: str, title: str, folder: str, sizes: Mapping[int, str]) -> Family:
    hub = Hub("hkust-nlp/SimpleRL-Zoo-Data", "train", f"simplelr_qwen_{folder}")
    return Family(name, title, "math", "math", "math", "Apache-2.0", hub, sizes, without_gold=True, shuffled=True)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "math500",
            "Math500",
            "math",
            "math",
            "math",
            "MIT",
            Hub("HuggingFaceH4/MATH-500"),
            {500: "the held-out split of PRM800K, everywhere"},
        ),
        Family("aime24", "AIME 2024", "integer", "math", "floor", _CONTEST, Hub("math-ai/aime24"), _AIME),
        Family("aime25", "AIME 2025", "integer", "math", "floor", _CONTEST, Hub("math-ai/aime25"), _AIME),
        Family(
            "aime",
            "AIME",
            "integer",
            "math",
            "floor",
            _CONTEST,
            None,
            {60: "2024 and 2025"},
            parts=("aime24", "aime25"),
        ),
        Family(
            "gpqa",
            "GPQA-Diamond",
            "choice",
            "choice",
            "nonmath",
            "CC-BY-4.0, rows not to be shown in plain text",
            Hub("Idavidrein/gpqa", "train", "gpqa_diamond", gated=True),
            {198: "gpqa_diamond"},
            permuted=True,
        ),
        Family(
            "ifeval",
            "IFEval",
            "ifeval",
            "ifeval",
            "nonmath",
            "Apache-2.0",
            Hub("google/IFEval", "train"),
            {541: "the published prompts, everywhere"},
        ),
        Family(
            "amc23",
            "AMC23",
            "integer",
            "math",
            "math",
            _CONTEST,
            Hub("math-ai/amc23"),
            {40: "AMC 12 of 2023, questions with an integer answer"},
        ),
        Family(
            "minerva",
            "Minerva",
            "math",
            "math",
            "math",
            "MIT (harness); MIT OpenCourseWare problems",
            Hub("math-ai/minervamath"),
            {272: "OCWCourses, everywhere"},
        ),
        Family(
            "olympiadbench",
            "OlympiadBench",
            "math",
            "math",
            "math",
            "MIT",
            Hub("math-ai/olympiadbench"),
            {675: "Qwen2.5-Math and SimpleRL harnesses; the paper's", 674: "the hub, OE_TO_maths_en_COMP"},
        ),
        Family(
            "tinymmlu",
            "TinyMMLU",
            "choice",
            "choice",
            "nonmath",
            "MIT (MMLU)",
            Hub("tinyBenchmarks/tinyMMLU", "test", "all"),
            {100: "the published selection, everywhere"},
        ),
        Family(
            "mmlu_stem",
            "MMLU-STEM",
            "choice",
            "choice",
            "nonmath",
            "MIT (MMLU)",
            Hub("TIGER-Lab/MMLU-STEM"),
            {3153: "the hub; the paper's", 3018: "Qwen2.5-Math and DeepSeek-Math harnesses, 18 subjects"},
        ),
        _rltrain("rltrain_easy", "SimpleRL-Zoo Easy (GSM8K, MATH level 1)", "gsm8k_level1", {}),
        _rltrain("rltrain_medium", "SimpleRL-Zoo Medium (MATH levels 1-4)", "level1to4", {}),
        _rltrain("rltrain_hard", "SimpleRL-Zoo Hard (MATH levels 3-5)", "level3to5", {8523: "the released file"}),
    )
}
"""Name to family, in the order in which they are listed."""
