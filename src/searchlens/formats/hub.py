"""The card of an export in the layout of a dataset of the Hugging Face hub: ``README.md``, whose head is YAML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import yaml

from searchlens import __version__
from searchlens.errors import InputError
from searchlens.plan import pins
from searchlens.store.files import canonical, read_json
from searchlens.store.frames import made_by

if TYPE_CHECKING:
    from searchlens.api.study import Study
    from searchlens.config.sampled import CheckpointSpec
    from searchlens.formats.export import Pool

COLUMNS = {
    "benchmark": "key of the benchmark",
    "question": "id of the question in its benchmark",
    "sample": "position in the stream of samples of the question: 0, 1, 2, …",
    "text": "what the model wrote, without the prompt",
    "tokens": "generated tokens, the stop token included",
    "logprob": "mean natural log-probability of the tokens under the raw model",
    "finish": "`stop`: the model ended the text; `length`: a limit cut it off; `failed`: a search failed",
    "gold": "the right answer",
    "prompt": "the text of the question, without template and worked examples",
    "policy": "how the text was drawn",
    "model": "key of the checkpoint, as the name of the configuration",
    "correct": "verdict of the grader on the text",
    "answer": "what the grader found as the answer of the text",
}
"""Meaning of the columns of the data; null is not known, or withheld."""

_CARD = """---
pretty_name: searchlens samples of {names}
task_categories: [text-generation]
tags: [searchlens]
{configs}# license: yours to choose; questions, weights and their texts have terms of their own
---

# Samples of {names}

{rows:,} texts that language models wrote, each with a verdict, from a study of searchlens {version} with configuration
`{fingerprint}`. `searchlens export --to hub` wrote this folder. **No licence is stated**: who publishes it chooses one.

## How they were made

{made}

## Columns

{columns}

## Reading

```python
from datasets import load_dataset

samples = load_dataset("OWNER/NAME", "{first}", split="samples")  # or the path of this folder
```

`searchlens compare` takes the file `data/<checkpoint>/<benchmark>/<policy>.parquet` of two checkpoints, behind
`--against` that of RL.
"""


def card(study: Study, pools: Sequence[Pool], folder: Path) -> str:
    """The card of the pools that were written into a folder, below ``data``, one folder for each checkpoint."""
    names = list(dict.fromkeys(pool.checkpoint for pool in pools))
    files = {name: [{"split": "samples", "path": f"data/{name}/*/*.parquet"}] for name in names}
    configs = [{"config_name": name, "data_files": each} for name, each in files.items()]
    return _CARD.format(
        configs=yaml.safe_dump({"configs": configs}, sort_keys=False),
        names=", ".join(names),
        rows=sum(pq.read_metadata(path).num_rows for path in (folder / "data").rglob("*.parquet")),
        version=__version__,
        fingerprint=study.fingerprint,
        made="\n\n".join(_made(study, pools)),
        columns=_table("column meaning", COLUMNS.items()),
        first=names[0],
    )


def _table(head: str, rows: Iterable[Sequence[object]]) -> str:
    lines = [head.split(), ["---"] * len(head.split()), *rows]
    escaped = ([str(cell).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _made(study: Study, pools: Sequence[Pool]) -> Iterator[str]:
    """Tables of checkpoints, policies and cells, and what is withheld."""
    checkpoints: dict[str, tuple[str, ...]] = {}
    policies, cells = dict[str, str](), list[tuple[object, ...]]()
    for pool in pools:
        path = study.layout.scores(pool.checkpoint, pool.benchmark).with_suffix(".json")
        if not path.exists():
            raise InputError(f"{path} does not exist: the card of a dataset has its verdicts", made_by("score"))
        signed = read_json(path)
        drawn, grader = signed["samples"], " ".join(signed["grader"].values())
        by = (", ".join(drawn[key]) or "unknown" for key in ("engines", "versions"))
        spec = study.config.checkpoints.get(pool.checkpoint)
        checkpoints.setdefault(pool.checkpoint, (_weights(study, spec), spec.template if spec else "unknown", *by))
        policies[pool.policy] = _parameters(study, pool)
        share = "unknown" if pool.accuracy is None else f"{pool.accuracy:.1%}"
        limit = study.config.benchmarks[pool.benchmark].max_tokens if spec else "unknown"
        of = pool.checkpoint, pool.benchmark, pool.policy
        cells.append((*of, len(pool.questions), pool.drawn, limit, share, grader))
    yield _table("checkpoint weights template engine searchlens", ((name, *rest) for name, rest in checkpoints.items()))
    yield _table("policy parameters", policies.items())
    yield _table("checkpoint benchmark policy questions samples max_tokens right grader", cells)
    for benchmark, why in {pool.benchmark: pool.withheld for pool in pools if pool.withheld}.items():
        yield f"Of {benchmark}, questions, golds, texts and answers are left out: {why}."


def _weights(study: Study, spec: CheckpointSpec | None) -> str:
    """Where the weights are, as far as others can know it: no path of this machine."""
    if spec and spec.hub:
        pin = pins.Lock.read(study.root / study.config.lock).get(pins.Source(spec.hub, spec.revision))
        return f"`{spec.hub}` at `{pin.commit if pin else spec.revision}`"
    return f"a folder with fingerprint `{spec.sha256 or 'unknown'}`" if spec else "imported samples"


def _parameters(study: Study, pool: Pool) -> str:
    spec = study.config.policies.get(pool.policy)
    search = {key: value for key, value in vars(spec).items() if value and key != "local"} if spec else {}
    parts = [f"{key} {value}" for key, value in pool.asked.items()]
    parts += [f"{key} {value if isinstance(value, str) else canonical(value)}" for key, value in search.items()]
    return ", ".join(parts) or "unknown"
