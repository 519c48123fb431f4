"""Wrong types anywhere in a log: an import is clean, or one message names the file, the record and the field."""

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reading import (
    LOGS,
    chat,
    ever,
    lighteval_run,
    nemo,
    predicted,
    predictions,
    reply,
    rollout,
    scoped,
    solved,
    written,
)
from searchlens.catalogue import declared, find
from searchlens.errors import InputError
from searchlens.formats.reading import Choices
from searchlens.formats.reading import read as read_pools

OTHER: tuple[Any, ...] = (
    *(None, True, False, 7, -1, 10**30, -1.5, 1e300, "", "x", "7"),
    *([], [1], [None], ["x"], [[]], {}, {"a": 1}, [{}]),
)
"""What is put in place of a value."""


def own(folder: Path) -> None:
    row = {"text": "t", "tokens": [1, 2], "logprob": [-1.0, -0.5], "finish": "stop", "gold": "1", "correct": True}
    rows = [{"question": f"q{q}", "prompt": f"p{q}", "sample": s, "answer": "1"} for q in range(3) for s in range(2)]
    written(folder / "rows.jsonl", [each | row for each in rows])


def lm_eval(folder: Path) -> None:
    source = LOGS / "lm_eval/ours__scripted"
    for name in ("samples_draws_*", "results_*"):
        for file in source.glob(name):
            shutil.copy(file, folder)


def nemo_skills(folder: Path) -> None:
    judged = {"predicted_answer": "2", "symbolic_correct": True, "judgement": "Judgement: Yes", "finish_reason": "stop"}
    for seed in (1, 2):
        written(
            folder / f"sums/output-rs{seed}.jsonl",
            [nemo(f"t{seed}", id=name, problem=name, **judged) for name in "abc"],
        )


def batch(folder: Path) -> None:
    written(folder / "out.jsonl", [reply(f"r{i}", "A", "B") for i in range(3)])
    written(folder.parent / "asked.jsonl", [chat(f"r{i}", f"{i}+1?", n=2) for i in range(3)])


def verl(folder: Path) -> None:
    written(folder / "5.jsonl", [rollout(f"t{i}", f"p{i % 2}") for i in range(4)])


def trl(folder: Path) -> None:
    made = folder / "completions"
    made.mkdir()
    rows = [{"step": 5, "prompt": f"p{i}", "completion": "2", "acc": 1.0} for i in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), made / "completions_00005.parquet")


def opencompass(folder: Path) -> None:
    predictions(folder / "predictions/m/sums.json", *(predicted(f"p{i}", f"t{i}") for i in range(3)))
    details = {str(i): {"pred": "2", "answer": "2", "correct": True} for i in range(3)}
    (folder / "results/m").mkdir(parents=True)
    (folder / "results/m/sums.json").write_text(json.dumps({"accuracy": 100.0, "details": details}))


def evalscope(folder: Path) -> None:
    written(folder / "predictions/m/sums_main.jsonl", [scoped(i, f"t{i}") for i in range(4)])
    score = {"value": {"acc": 1.0}, "extracted_prediction": "2", "status": "success"}
    rows = [
        {
            "index": i,
            "input": f"q{i // 2}",
            "sample_score": {"group_id": i // 2, "generation_index": i % 2, "score": score},
        }
        for i in range(4)
    ]
    written(folder / "reviews/m/sums_main.jsonl", [row | {"target": "2"} for row in rows])
    (folder / "configs").mkdir()
    config = {"repeats": 2, "generation_config": {"temperature": 1}}
    (folder / "configs/task_config_x.yaml").write_text(json.dumps(config))


def limit_of_rlvr(folder: Path) -> None:
    place = folder / "run-n2/eval_results/global_step_8/math"
    written(place / "test_qwen-boxed_-1_seed3_t0.6_s0_e-1.jsonl", [solved(i, "2", f"x{i}") for i in range(3)])


def every_eval_ever(folder: Path) -> None:
    written(folder / "u_samples.jsonl", [ever(name, f"t{i}", input={"raw": f"p{name}", "reference": ["2"]})
                                         for name in "abc" for i in range(2)])  # fmt: skip
    generation = {"generation_config": {"generation_args": {"temperature": 0.5}}, "evaluation_name": "sums"}
    aggregate = {"eval_library": {"name": "ours", "version": "1"}, "evaluation_results": [generation]}
    (folder / "u.json").write_text(json.dumps(aggregate))


def lighteval(folder: Path) -> None:
    docs = [
        {"id": str(i), "query": f"p{i}", "choices": ["2"], "gold_index": [0], "generation_size": 3} for i in range(3)
    ]
    answers = [{"text": ["2"], "output_tokens": [[9, 9]], "logprobs": [-0.5, -0.5]}] * 3
    lighteval_run(folder, docs, answers, [{"em": 1.0, "length": 9.0}] * 3)


FIXTURES: dict[str, Callable[[Path], None]] = {
    "own": own, "lm_eval": lm_eval,
    "inspect": lambda folder: shutil.copy(LOGS / "inspect/draws.json", folder),
    "nemo_skills": nemo_skills, "batch": batch, "verl": verl,
    "trl": trl, "opencompass": opencompass, "evalscope": evalscope, "limit_of_rlvr": limit_of_rlvr,
    "every_eval_ever": every_eval_ever, "lighteval": lighteval,
}  # fmt: skip


def records(path: Path) -> list[Any]:
    """What a file holds, as JSON."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return [json.loads(path.read_text())]


def write(path: Path, content: list[Any]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(content), path)
    else:
        lines = [json.dumps(each) for each in content]
        path.write_text("\n".join(lines) + "\n" * (path.suffix == ".jsonl"))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every value within a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


def mutated(content: list[Any], draw: random.Random, *, is_table: bool) -> list[Any]:
    """One value replaced by one of another type, or left out; in every row of a table, whose columns have types."""
    changed = copy.deepcopy(content)
    place = draw.choice([each for each in places(changed) if len(each) > is_table])
    value: Any = ...
    for start in range(len(changed)) if is_table else (place[0],):
        holder: Any = changed
        for key in (start, *place[1:-1]) if len(place) > 1 else ():
            holder = holder[key]
        if value is ...:
            others = [each for each in OTHER if type(each) is not type(holder[place[-1]])]
            value = draw.choice(others) if isinstance(holder, list) or draw.random() < 0.9 else None
        holder[place[-1]] = value
    return changed


def outcome(folder: Path, name: str) -> str:
    """What an import of a folder says: nothing, or the message of an ``InputError``; anything else is raised."""
    wishes = {"requests": str(folder.parent / "asked.jsonl"), "right": "acc >= 1"}
    asked = {key: wishes[key] for key in declared("reader")[name].options["wishes"] if key in wishes}
    try:
        with read_pools([folder], None, "math", Choices(wishes=asked), needs_golds=False) as reading:
            for pool in reading.pools:
                heights = [part.height for part in (*pool.frames(), *pool.recorded())]
                assert sum(heights) and len(pool.id) == 12 and str(pool.proposal)
    except InputError as error:
        assert error.message.strip()
        return error.message
    return ""


def fuzz(folder: Path, name: str, count: int, seed: int) -> list[str]:
    """Outcomes of some mutations of a format's fixture."""
    draw = random.Random(f"{name} {seed}")
    source = folder / name / "source"
    source.mkdir(parents=True)
    FIXTURES[name](source)
    if name == "batch":
        shutil.copy(folder / name / "asked.jsonl", folder / "asked.jsonl")
    found = []
    files = sorted(file for file in source.rglob("*") if file.is_file())
    contents = {file: records(file) for file in files}
    copied = folder / "copy"
    for _ in range(count):
        file = draw.choice(files)
        try:
            shutil.copytree(source, copied)
            changed = mutated(contents[file], draw, is_table=file.suffix == ".parquet")
            write(copied / file.relative_to(source), changed)
            found.append(outcome(copied, name))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            pass  # no Parquet can hold it
        finally:
            shutil.rmtree(copied)
    return found


@pytest.mark.parametrize("name", FIXTURES)
def test_a_wrong_type_is_one_message_or_no_mistake(tmp_path: Path, name: str) -> None:
    source = tmp_path / "whole"
    source.mkdir()
    FIXTURES[name](source)
    if name == "batch":
        assert (tmp_path / "asked.jsonl").exists()
    assert outcome(source, name) == "", "the fixture itself is read"
    found = fuzz(tmp_path / "fuzz", name, 25, seed=1)
    assert any(found) and not any("Traceback" in message for message in found)


def test_no_file_fits_two_readers(tmp_path: Path) -> None:
    """A file of one format must not be taken for another one; every format is here."""
    readers = {name: find("reader", name)() for name in declared("reader")}
    assert set(FIXTURES) == set(readers)
    for name, make in FIXTURES.items():
        folder = tmp_path / name / "logs"
        folder.mkdir(parents=True)
        make(folder)
        assert [other for other, reader in readers.items() if reader.files(folder)] == [name]
        for file in readers[name].files(folder):
            assert [other for other, reader in readers.items() if reader.files(file)] == [name]
