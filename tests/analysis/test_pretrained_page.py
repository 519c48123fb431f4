"""docs/pretrained.md: the differences that it prints with their wrong-key rate, from the committed counts."""

from pathlib import Path

import pytest

from searchlens.analysis.classes import Pool, independent_pools, recorded_classes
from searchlens.analysis.measures import beside_wrong_key, compared
from searchlens.analysis.uncertainty import Resamples
from searchlens.store import recorded_counts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/pretrained.md").read_text()
MEASURES = ("pass@k", "wrong_key", "wrong_key-corrected pass@k")


def pool(model: str, benchmark: str) -> Pool:
    path = ROOT / "resources/pretrained" / model / f"{benchmark}.arrow.xz"
    return independent_pools(recorded_classes(recorded_counts.read(path)), {})["topp0.95_t1.0"]


def differences(base: Pool, rl: Pool, k: int) -> list[str]:
    draws = Resamples.draw(len(base.questions), 2000, 42)
    passed = compared("pass@k", base.solved([k]), rl.solved([k]), draws, 0.95, ks=[k])
    rows = passed.vstack(beside_wrong_key(base, rl, [k], draws, 0.95)).filter(side="RL - Base")
    found = {row["measure"]: [100 * row[key] for key in ("value", "lo", "hi")] for row in rows.to_dicts()}
    numbers = ([f"{x + 0.0:.1f}".replace("-0.0", "0.0").replace("-", "−") for x in found[name]] for name in MEASURES)
    return [f"{value} [{lo}, {hi}]" for value, lo, hi in numbers]


@pytest.mark.parametrize("benchmark", ["mawps", "svamp", "gsm8k"])
def test_differences_stand_on_the_page_with_their_wrong_key(benchmark: str) -> None:
    base, rl = (pool(f"adapters/{model}", benchmark) for model in ("gemma-warm", "gemma-rl-60"))
    for k in (1, 16, 64, 256):
        assert f"| {k} | {' | '.join(differences(base, rl, k))} |" in PAGE


@pytest.mark.parametrize("step", [5, 10, 20, 40, 60])
def test_steps_stand_on_the_page_with_their_wrong_key(step: int) -> None:
    base, rl = (pool(f"steps/{model}", "mawps") for model in ("gemma-warm", f"gemma-rl-{step}"))
    passed, wrong_key, known = differences(base, rl, 64)
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {step} | "))
    assert passed in line and line.endswith(f"| {wrong_key} | {known} |")
