"""The known benchmarks of this package: a function for each, which reads its rows.

The options are read without importing this file, so they are literals (``known.KnownBenchmark`` describes them).
docs/artifacts.md has citations and known issues, docs/add-a-benchmark.md says how to add one, here or in a file outside
of the package. Digests of known golds are in ``golds/<family>.txt``.
"""

from __future__ import annotations

from searchlens.benchmarks import choices, ifeval, mathematics, word_problems
from searchlens.benchmarks.rows import BenchmarkFile, Row
from searchlens.catalogue import family


@family(
    "math500",
    title="Math500",
    grader="math",
    regime="math",
    licence="MIT",
    hub="HuggingFaceH4/MATH-500",
    sizes={500: "the held-out split of PRM800K, everywhere"},
)
def math500(file: BenchmarkFile) -> list[Row]:
    """Lightman et al. 2023, of MATH, Hendrycks et al. 2021."""
    return mathematics.read(file)


@family(
    "aime24",
    title="AIME 2024",
    grader="math",
    regime="floor",
    licence="none stated for the problems (MAA)",
    hub="math-ai/aime24",
    sizes={30: "one year, I and II"},
)
def aime24(file: BenchmarkFile) -> list[Row]:
    """Mathematical Association of America."""
    return mathematics.read(file, integer=True)


@family(
    "aime25",
    title="AIME 2025",
    grader="math",
    regime="floor",
    licence="none stated for the problems (MAA)",
    hub="math-ai/aime25",
    sizes={30: "one year, I and II"},
)
def aime25(file: BenchmarkFile) -> list[Row]:
    """Mathematical Association of America."""
    return mathematics.read(file, integer=True)


@family(
    "aime",
    title="AIME",
    grader="math",
    regime="floor",
    licence="none stated for the problems (MAA)",
    sizes={60: "2024 and 2025"},
    parts=("aime24", "aime25"),
)
def aime(file: BenchmarkFile) -> list[Row]:
    """Both years, if they are in one file."""
    return mathematics.read(file, integer=True)


@family(
    "gpqa",
    title="GPQA-Diamond",
    grader="choice",
    regime="nonmath",
    licence="CC-BY-4.0, rows not to be shown in plain text",
    hub="Idavidrein/gpqa",
    split="train",
    config="gpqa_diamond",
    gated=True,
    sizes={198: "gpqa_diamond"},
)
def gpqa(file: BenchmarkFile) -> list[Row]:
    """Rein et al. 2023. Its file gives the right choice first."""
    return choices.read(file, permuted=True)


@family(
    "ifeval",
    title="IFEval",
    grader="ifeval",
    regime="nonmath",
    licence="Apache-2.0",
    hub="google/IFEval",
    split="train",
    sizes={541: "the published prompts, everywhere"},
)
def ifeval_prompts(file: BenchmarkFile) -> list[Row]:
    """Zhou et al. 2023."""
    return ifeval.read(file)


@family(
    "amc23",
    title="AMC23",
    grader="math",
    regime="math",
    licence="none stated for the problems (MAA)",
    hub="math-ai/amc23",
    sizes={40: "AMC 12 of 2023, questions with an integer answer"},
)
def amc23(file: BenchmarkFile) -> list[Row]:
    """Mathematical Association of America."""
    return mathematics.read(file, integer=True)


@family(
    "minerva",
    title="Minerva",
    grader="math",
    regime="math",
    licence="MIT (harness); MIT OpenCourseWare problems",
    hub="math-ai/minervamath",
    sizes={272: "OCWCourses, everywhere"},
)
def minerva(file: BenchmarkFile) -> list[Row]:
    """Lewkowycz et al. 2022."""
    return mathematics.read(file)


@family(
    "olympiadbench",
    title="OlympiadBench",
    grader="math",
    regime="math",
    licence="MIT",
    hub="math-ai/olympiadbench",
    sizes={675: "Qwen2.5-Math and SimpleRL harnesses; the paper's", 674: "the hub, OE_TO_maths_en_COMP"},
)
def olympiadbench(file: BenchmarkFile) -> list[Row]:
    """He et al. 2024."""
    return mathematics.read(file)


@family(
    "tinymmlu",
    title="TinyMMLU",
    grader="choice",
    regime="nonmath",
    licence="MIT (MMLU)",
    hub="tinyBenchmarks/tinyMMLU",
    config="all",
    sizes={100: "the published selection, everywhere"},
)
def tinymmlu(file: BenchmarkFile) -> list[Row]:
    """Maia Polo et al. 2024, of MMLU, Hendrycks et al. 2021."""
    return choices.read(file)


@family(
    "mmlu_stem",
    title="MMLU-STEM",
    grader="choice",
    regime="nonmath",
    licence="MIT (MMLU)",
    hub="TIGER-Lab/MMLU-STEM",
    sizes={3153: "the hub; the paper's", 3018: "Qwen2.5-Math and DeepSeek-Math harnesses, 18 subjects"},
    repeats=True,
)
def mmlu_stem(file: BenchmarkFile) -> list[Row]:
    """Hendrycks et al. 2021."""
    return choices.read(file)


@family(
    "gsm8k",
    title="GSM8K",
    grader="math",
    regime="math",
    licence="MIT",
    hub="openai/gsm8k",
    config="main",
    sizes={1319: "the test split, everywhere"},
)
def gsm8k(file: BenchmarkFile) -> list[Row]:
    """Cobbe et al. 2021."""
    return word_problems.gsm8k(file)


@family(
    "svamp",
    title="SVAMP",
    grader="math",
    regime="math",
    licence="MIT",
    hub="ChilleD/SVAMP",
    sizes={1000: "SVAMP.json of the authors", 300: "the hub, test", 700: "the hub, train"},
)
def svamp(file: BenchmarkFile) -> list[Row]:
    """Patel et al. 2021."""
    return word_problems.svamp(file)


@family(
    "mawps",
    title="MAWPS",
    grader="math",
    regime="math",
    licence="MIT (the repository of SVAMP); none stated for the problems",
    sizes={384: "fold 0 of the repository of SVAMP, dev", 1537: "the same, train", 1921: "both"},
    repeats=True,
)
def mawps(file: BenchmarkFile) -> list[Row]:
    """Koncel-Kedziorski et al. 2016, in the folds of Patel et al. 2021."""
    return word_problems.mawps(file)


@family(
    "rltrain_easy",
    title="SimpleRL-Zoo Easy (GSM8K, MATH level 1)",
    grader="math",
    regime="math",
    licence="Apache-2.0",
    hub="hkust-nlp/SimpleRL-Zoo-Data",
    split="train",
    config="simplelr_qwen_gsm8k_level1",
    shuffled=True,
    repeats=True,
)
def rltrain_easy(file: BenchmarkFile) -> list[Row]:
    """Zeng et al. 2025."""
    return mathematics.read(file, without_gold=True)


@family(
    "rltrain_medium",
    title="SimpleRL-Zoo Medium (MATH levels 1-4)",
    grader="math",
    regime="math",
    licence="Apache-2.0",
    hub="hkust-nlp/SimpleRL-Zoo-Data",
    split="train",
    config="simplelr_qwen_level1to4",
    shuffled=True,
    repeats=True,
)
def rltrain_medium(file: BenchmarkFile) -> list[Row]:
    """Zeng et al. 2025."""
    return mathematics.read(file, without_gold=True)


@family(
    "rltrain_hard",
    title="SimpleRL-Zoo Hard (MATH levels 3-5)",
    grader="math",
    regime="math",
    licence="Apache-2.0",
    hub="hkust-nlp/SimpleRL-Zoo-Data",
    split="train",
    config="simplelr_qwen_level3to5",
    sizes={8523: "the released file"},
    shuffled=True,
    repeats=True,
)
def rltrain_hard(file: BenchmarkFile) -> list[Row]:
    """Zeng et al. 2025."""
    return mathematics.read(file, without_gold=True)
