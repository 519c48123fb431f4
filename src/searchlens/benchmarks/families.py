"""The known benchmarks of this package: a function for each, which reads its rows.

The options are read without importing this file, so they are literals (``known.KnownBenchmark`` describes them).
docs/artifacts.md has citations and known issues, docs/add-a-benchmark.md says how to add one, here or in a file outside
of the package. Digests of known golds are in ``golds/<family>.txt``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from searchlens.benchmarks import choices, mathematics
from searchlens.benchmarks.questions import BenchmarkFile, Layout, Question, RawRow, Row, RowError, tags_of, text_of
from searchlens.catalogue import family
from searchlens.store.files import canonical

OF_INSTRUCTIONS = Layout(
    "google-research; google/IFEval",
    {"prompt": "prompt", "instructions": "instruction_id_list", "parameters": "kwargs"},
)
WORKED = Layout("openai/grade-school-math; openai/gsm8k on the hub", {"question": "question", "gold": "answer"})
IN_TWO_PARTS = Layout(
    "SVAMP.json; ChilleD/SVAMP on the hub", {"story": "Body", "question": "Question", "gold": "Answer"}
)
WITH_PLACEHOLDERS = Layout(
    "cv_mawps of arkilpatel/SVAMP", {"question": "Question", "numbers": "Numbers", "gold": "Answer"}
)

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)


@family(
    "math500",
    title="Math500",
    grader="math",
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
@family(
    "aime25",
    title="AIME 2025",
    grader="math",
    regime="floor",
    licence="none stated for the problems (MAA)",
    hub="math-ai/aime25",
    sizes={30: "one year, I and II"},
)
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
    """Mathematical Association of America. Both years may be in one file."""
    return mathematics.read(file, integer=True)


@family(
    "gpqa",
    title="GPQA-Diamond",
    grader="choice",
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
    licence="Apache-2.0",
    hub="google/IFEval",
    split="train",
    sizes={541: "the published prompts, everywhere"},
)
def ifeval(file: BenchmarkFile) -> list[Row]:
    """Zhou et al. 2023.

    Prompts, and the instructions that a response is checked against. The files of the hub give each instruction the
    parameters of all instructions, with null for those that it does not have, and numbers as floats. Here it has its
    own parameters only, and whole numbers are integers.
    """
    file.layout((OF_INSTRUCTIONS,))

    def convert(name: str, row: RawRow) -> Row:
        prompt, names, parameters = row.get("prompt"), row.get("instruction_id_list"), row.get("kwargs")
        if not isinstance(prompt, str) or not prompt.strip():
            raise RowError("no prompt in 'prompt'")
        fitting = isinstance(names, list) and isinstance(parameters, list) and len(names) == len(parameters) > 0
        if not fitting or not all(isinstance(each, Mapping | None) for each in parameters or ()):
            raise RowError("needs one set of parameters in 'kwargs' for each of 'instruction_id_list'")
        given = [
            {
                key: int(value) if isinstance(value, float) and value.is_integer() else value
                for key, value in (each or {}).items()
                if value is not None
            }
            for each in parameters or ()
        ]
        check = {"instruction_id_list": names, "kwargs": given}
        return Row(Question(name, prompt, "", {"ifeval": check}, tags_of(row)), prompt, canonical(check))

    return file.read(convert)


@family(
    "amc23",
    title="AMC23",
    grader="math",
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
    licence="MIT (harness); MIT OpenCourseWare problems",
    hub="math-ai/minervamath",
    sizes={272: "OCWCourses, everywhere"},
)
@family(
    "olympiadbench",
    title="OlympiadBench",
    grader="math",
    licence="MIT",
    hub="math-ai/olympiadbench",
    sizes={675: "Qwen2.5-Math and SimpleRL harnesses; the paper's", 674: "the hub, OE_TO_maths_en_COMP"},
)
def minerva_and_olympiadbench(file: BenchmarkFile) -> list[Row]:
    """Lewkowycz et al. 2022; He et al. 2024."""
    return mathematics.read(file)


@family(
    "tinymmlu",
    title="TinyMMLU",
    grader="choice",
    licence="MIT (MMLU)",
    hub="tinyBenchmarks/tinyMMLU",
    config="all",
    sizes={100: "the published selection, everywhere"},
)
@family(
    "mmlu_stem",
    title="MMLU-STEM",
    grader="choice",
    licence="MIT (MMLU)",
    hub="TIGER-Lab/MMLU-STEM",
    sizes={3153: "the hub; the paper's", 3018: "Qwen2.5-Math and DeepSeek-Math harnesses, 18 subjects"},
    repeats=True,
)
def mmlu(file: BenchmarkFile) -> list[Row]:
    """Hendrycks et al. 2021; the selection is of Maia Polo et al. 2024."""
    return choices.read(file)


@family(
    "gsm8k",
    title="GSM8K",
    grader="math",
    licence="MIT",
    hub="openai/gsm8k",
    config="main",
    sizes={1319: "the test split, everywhere"},
)
def gsm8k(file: BenchmarkFile) -> list[Row]:
    """Cobbe et al. 2021.

    Questions whose gold stands behind ``####`` at the end of a worked answer, perhaps with commas in thousands.
    """
    layout = file.layout((WORKED,))

    def convert(name: str, row: RawRow) -> Row:
        worked = layout.text(row, "gold") or ""
        if "####" not in worked:
            raise RowError("no gold behind '####' in 'answer'")
        return _row(name, text_of(row["question"]), worked.rpartition("####")[2].replace(",", ""), row)

    return file.read(convert)


@family(
    "svamp",
    title="SVAMP",
    grader="math",
    licence="MIT",
    hub="ChilleD/SVAMP",
    sizes={1000: "SVAMP.json of the authors", 300: "the hub, test", 700: "the hub, train"},
)
def svamp(file: BenchmarkFile) -> list[Row]:
    """Patel et al. 2021.

    Questions in two parts, a story and what is asked; a comma joins them where the story ends without a stop.
    """
    layout = file.layout((IN_TWO_PARTS,))

    def convert(name: str, row: RawRow) -> Row:
        story, asked = (layout.text(row, part) for part in ("story", "question"))
        if story and asked:
            asked = f"{story}{'' if story[-1] in '.?!,' else ','} {asked}"
        return _row(name, asked, layout.value(row, "gold"), row)

    return file.read(convert)


@family(
    "mawps",
    title="MAWPS",
    grader="math",
    licence="MIT (the repository of SVAMP); none stated for the problems",
    sizes={384: "fold 0 of the repository of SVAMP, dev", 1537: "the same, train", 1921: "both"},
    repeats=True,
)
def mawps(file: BenchmarkFile) -> list[Row]:
    """Koncel-Kedziorski et al. 2016, in the folds of Patel et al. 2021.

    Questions with ``number0``, ``number1`` … in place of the numbers, which stand in a field of their own.
    """
    layout = file.layout((WITH_PLACEHOLDERS,))

    def convert(name: str, row: RawRow) -> Row:
        numbers = [_number(number) for number in str(layout.value(row, "numbers")).split()]

        def spelled(place: re.Match[str]) -> str:
            if int(place[1]) >= len(numbers) or numbers[int(place[1])] is None:
                raise RowError(f"no {place[0]} in 'Numbers'")
            return str(numbers[int(place[1])])

        asked = layout.text(row, "question") or ""
        asked = re.sub(r"\bnumber(\d+)\b", spelled, asked)
        return _row(name, re.sub(r" +(?=[.,?!;:](?:\s|$))", "", asked), layout.value(row, "gold"), row)

    return file.read(convert)


@family(
    "rltrain_easy",
    title="SimpleRL-Zoo Easy (GSM8K, MATH level 1)",
    grader="math",
    licence="Apache-2.0",
    hub="hkust-nlp/SimpleRL-Zoo-Data",
    split="train",
    config="simplelr_qwen_gsm8k_level1",
    shuffled=True,
    repeats=True,
)
@family(
    "rltrain_medium",
    title="SimpleRL-Zoo Medium (MATH levels 1-4)",
    grader="math",
    licence="Apache-2.0",
    hub="hkust-nlp/SimpleRL-Zoo-Data",
    split="train",
    config="simplelr_qwen_level1to4",
    shuffled=True,
    repeats=True,
)
@family(
    "rltrain_hard",
    title="SimpleRL-Zoo Hard (MATH levels 3-5)",
    grader="math",
    licence="Apache-2.0",
    hub="hkust-nlp/SimpleRL-Zoo-Data",
    split="train",
    config="simplelr_qwen_level3to5",
    sizes={8523: "the released file"},
    shuffled=True,
    repeats=True,
)
def rltrain(file: BenchmarkFile) -> list[Row]:
    """Zeng et al. 2025."""
    return mathematics.read(file, without_gold=True)


def _row(name: str, asked: str | None, gold: Any, row: RawRow) -> Row:
    if not asked:
        raise RowError("no question")
    number = _number(gold)
    if number is None:
        raise RowError("its gold is not a number")
    named = {"source_id": text_of(row.get("ID")), "subject": text_of(row.get("Type"))}
    tags = tags_of(row) | {tag: text for tag, text in named.items() if text}
    return Row.of(Question(name, asked, number, tags=tags))


def _number(content: Any) -> str | None:
    """A number without spaces, and without a fraction of zero: ``27.0`` is ``27``; None if it is no number."""
    text = "" if isinstance(content, bool) or content is None else str(content).strip()
    if not _NUMBER.fullmatch(text):
        return None
    whole, _, fraction = text.partition(".")
    return text if fraction.strip("0") else str(int(whole or 0))
