"""Two folders as lm-evaluation-harness writes them, one command, and its numbers against some that are computed here.

python .ci/compare-logs.py SEARCHLENS, in an empty folder; SEARCHLENS is the installed program.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from fractions import Fraction
from math import ceil, comb, floor
from pathlib import Path

QUESTIONS, SAMPLES = 30, 8


def write(folder: Path, seed: int, bonus: float) -> list[int]:
    """A folder of logs; returns the right samples of each question."""
    draws, right = random.Random(seed), []
    folder.mkdir(parents=True)
    rows = []
    for i in range(QUESTIONS):
        gold = f"\\frac{{{2 * i + 1}}}{{{2 * i + 3}}}"
        solved = [draws.random() < i / QUESTIONS + bonus for _ in range(SAMPLES)]
        right.append(sum(solved))
        # the same number in another spelling is right, too
        texts = [f"So it is $\\boxed{{{2 * i + 1}/{2 * i + 3}}}$." if good else "It is \\boxed{-7}." for good in solved]
        request = {"arg_0": f"Question: {i}?", "arg_1": {"do_sample": True, "temperature": 1.0, "top_p": 1.0}}
        doc = {"problem": f"Simplify fraction number {i}.", "answer": gold}
        row = {"doc_id": i, "doc": doc, "target": gold, "arguments": {"gen_args_0": request}, "resps": [texts]}
        rows.append({**row, "filtered_resps": texts[:1], "filter": "none", "metrics": []})
    path = folder / "samples_fractions_2026-01-01T00-00-00.000000.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return right


def pass_at(right: list[int], k: int) -> float:
    """Mean of 1 - C(n - c, k) / C(n, k)."""
    missed = [Fraction(comb(SAMPLES - c, k), comb(SAMPLES, k)) for c in right]
    return float(1 - sum(missed) / len(missed))


def close(found: float, wanted: float, what: str) -> None:
    """Stop with a message unless two numbers are equal."""
    if abs(found - wanted) > 1e-9:
        raise SystemExit(f"{what}: {found}, by hand {wanted}")


def main() -> None:
    """Write, compare, check."""
    base = write(Path("logs/base/ours__base"), 1, 0.0)
    rl = write(Path("logs/rl/ours__rl"), 2, 0.2)
    command = [sys.argv[1], "compare", "logs/base", "--against", "logs/rl"]
    done = subprocess.run([*command, "--json", "--html", "page.html"], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    value = {(row["measure"], row["side"], row["k"]): row["value"] for row in found["measures"] if row["tau"] is None}
    for k in (1, 2, 4, 8):
        close(value["pass@k", "Base", k], pass_at(base, k), f"pass@{k} of Base")
        close(value["pass@k", "RL", k], pass_at(rl, k), f"pass@{k} of RL")
    close(value["wrong_key", "RL", 1], 0, "wrong_key")
    cover = {(row["side"], row["tau"]): row["value"] for row in found["measures"] if row["measure"] == "Cover@tau"}
    close(cover["Base", 0.5], sum(c >= SAMPLES / 2 for c in base) / QUESTIONS, "Cover@0.5 of Base")
    support = found["support"][0]
    pairs = list(zip(base, rl, strict=True))
    close(support["kept"], sum(b > 0 and r > 0 for b, r in pairs), "support kept")
    close(support["shrunk"], sum(b > 0 and not r for b, r in pairs), "support shrunk")
    close(support["expanded"], sum(not b and r > 0 for b, r in pairs), "support expanded")
    first = found["equivalents"][0]
    below, above = floor(first["n"]), ceil(first["n"])
    if not pass_at(base, below) <= pass_at(rl, 1) <= pass_at(base, above):
        raise SystemExit(f"N*(1) is {first['n']}, but pass@1 of RL is not between Base's at {below} and {above}")
    if [row["share"] for row in found["graders"]] != [1.0, 1.0]:
        raise SystemExit(f"math-verify alone judges otherwise: {found['graders']}")
    if found["base"]["model"] != "ours/base" or found["matched"]["questions"] != QUESTIONS:
        raise SystemExit(f"read otherwise: {found['base']}, {found['matched']}")
    if sorted(path.name for path in Path().iterdir()) != ["logs", "page.html"]:
        raise SystemExit(f"something else was written: {sorted(Path().iterdir())}")
    print(f"compared two folders of logs: N*(1) = {first['n']:.2f}, numbers as by hand")


if __name__ == "__main__":
    main()
