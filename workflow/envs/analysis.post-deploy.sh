#!/usr/bin/env bash
# Run by `snakemake --sdm conda` in the environment that it has just made of analysis.yaml: IFEval's checkers, which need
# none of lm-eval's dependencies, and the data that they split sentences with; without these IFEval cannot be graded.
set -euo pipefail
pip install --quiet --no-deps lm-eval==0.4.13
python -m searchlens.grading.punkt || true
