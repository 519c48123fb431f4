"""Reads exported samples with the package of their format: exits with an error if it does not know them.

    python tests/data/check_exports.py inspect FOLDER
    python tests/data/check_exports.py every-eval-ever FOLDER

``make test-harnesses`` runs this in an environment that has the packages.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path


def inspect_logs(folder: Path) -> int:
    """Samples of all logs, each of which is also written in the package's other format and read again."""
    from inspect_ai.log import read_eval_log, write_eval_log

    count = 0
    for path in sorted(folder.rglob("*.json")):
        log = read_eval_log(str(path))
        copy = path.with_suffix(".eval")
        write_eval_log(log, str(copy))
        again = read_eval_log(str(copy))
        copy.unlink()
        samples, others = log.samples or [], again.samples or []
        assert log.status == "success"
        texts, copied = (
            {(sample.id, sample.epoch): sample.output.completion for sample in part} for part in (samples, others)
        )
        assert texts == copied
        assert len(texts) == len(samples)
        assert all(sample.scores or sample.error for sample in samples)
        count += len(samples)
    return count


def records(folder: Path) -> int:
    """Lines that fit the schemas of Every Eval Ever."""
    from jsonschema.validators import validator_for

    spec = find_spec("every_eval_ever")
    assert spec is not None and spec.origin is not None, "every-eval-ever is not installed"
    schemas = Path(spec.origin).parent / "schemas"
    checks = []
    for name in ("eval", "instance_level_eval"):
        schema = json.loads((schemas / f"{name}.schema.json").read_text())
        checks.append(validator_for(schema)(schema))
    aggregate, line = checks
    count = 0
    for path in sorted(folder.rglob("*.json")):
        aggregate.validate(json.loads(path.read_text()))
    for path in sorted(folder.rglob("*_samples.jsonl")):
        for text in path.read_text().splitlines():
            line.validate(json.loads(text))
            count += 1
    return count


if __name__ == "__main__":
    print({"inspect": inspect_logs, "every-eval-ever": records}[sys.argv[1]](Path(sys.argv[2])))
