"""Writes docs/glossary.md: ``make schema``. The rules of BOPTR and their names are those that tables print."""

from pathlib import Path

from searchlens.boptr.transfer import MAIN_ROWS
from searchlens.boptr.variants import VARIANT_ROWS

PAGE = Path(__file__).parents[1] / "docs/glossary.md"
HEAD = """# Glossary

For readers of tables and pages. `make schema` writes this page; symbols and their names in the code are in
[notation.md](notation.md). The paper: see the [front page](../README.md#the-paper).

| term | meaning | in the paper |
|---|---|---|
"""
LANDSCAPE, RECOVERY = "SearchLens", "Base+Search Envelopes"
RULE, MODELS, REPLICATION = "Cross-Benchmark Transfer", "Cross-Model Transfer", "Uncertainty and replication"
TERMS = (
    ("RLVR", "Reinforcement learning with verifiable rewards: answers are rewarded if a program accepts them.", ""),
    ("Base, RL", "The two checkpoints of a pair: the model before RLVR, and after it.", "Model pairs"),
    ("cell", "One checkpoint on one benchmark. Where both sides are meant: one pair on one benchmark.", "Notation"),
    ("UDF", "Unified Decoding Framework: samplers and searches as policies of five components.", LANDSCAPE),
    ("decoding policy", "How texts are drawn; it has the five components of UDF.", "Components"),
    ("budget", "Number of samples for one question, n or N.", LANDSCAPE),
    ("operating point", "A policy with a budget, and what it reaches there.", LANDSCAPE),
    ("landscape", "All operating points of a checkpoint on a benchmark.", LANDSCAPE),
    ("controller", "The search that decides which texts are continued; `autoregressive` draws samples.", "Components"),
    ("pool", "The policies that a study compares, or the samples of one policy on one question.", "Policies, metrics"),
    ("default policy", "The policy of the RL curve: temperature 1, top-p 0.95.", "Policies, metrics"),
    ("gold", "The right answer of a question, as its file states it.", ""),
    ("grader", "The rules that find an answer in a text and compare it with the gold.", ""),
    ("verdict", "What a grader says of one sample: right, wrong or unknown.", ""),
    ("pass@k, P", "Share of questions of which any of k samples is right.", "Evaluation metrics"),
    ("self-consistency, Q", "Share of questions whose most frequent answer of n is right.", "Evaluation metrics"),
    ("best-of-N, B", "Share of questions of which the sample with the highest score is right.", "Evaluation metrics"),
    ("first finish, T", "Share of questions of which the shortest finished answer is right.", "Evaluation metrics"),
    ("unbiased", "Estimator: the mean over all subsets of n samples (Chen et al. 2021), whatever their order.", ""),
    ("first_k", "Estimator: the first n samples alone, as the paper takes them.", "Evaluation metrics"),
    ("wrong_key", "pass@k of the same samples if each question had the gold of another question.", ""),
    ("guess null", "pass@k of even guessing among the lettered options of a question.", ""),
    ("measure", "A number about a pair that uses every sample ([measures.md](measures.md)).", ""),
    ("N*(b), budget equivalent", "How many samples of Base solve as much as b samples of RL.", ""),
    ("crossing", "The number of samples from which on Base solves as much as RL.", ""),
    ("exponent set", "Exponents β that the curves of a pair do not reject.", ""),
    ("support", "The questions that a side solves at all with its samples.", ""),
    ("recorded counts", "How many samples gave each answer, without texts: enough for every table.", ""),
    ("health", "Checks whether the numbers of a cell mean anything ([troubleshooting.md](troubleshooting.md)).", ""),
    ("envelope", "The best that any policy of Base reaches with at most b samples.", RECOVERY),
    ("near-match set", "Operating points of Base within a tolerance of RL.", "Near-match sets"),
    ("recovery path", "A point of Base for each budget of RL, as close to RL as possible.", "From Matching Sets"),
    ("BOPTR", "Budgeted Operating-Point Transition Rule: N_base ≈ α · N_RL^β, with one policy.", RULE),
    ("α, β", "Scale and exponent of that rule; β belongs to a regime of benchmarks.", RULE),
    ("δ", "Offset of a model: how far its ln α is from the mean of the cohort.", MODELS),
    ("regime", "Group of benchmarks with one β: math, nonmath, floor (hardly anything is solved).", RULE),
    ("anchor", "The pair and the benchmark on which the rule is fitted before it is transferred.", RULE),
    ("oracle", "A row that reads the curve on which it is scored. It is a bound, not a prediction.", RULE),
    ("batch", "The same checkpoint sampled again with another seed.", REPLICATION),
)
BETWEEN = """
## Rules and their codes

Tables print the name with its code. Every rule predicts an RL curve; "uses" is what it may read of RL for that.

| code | name | uses |
|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    terms = "".join(f"| {term} | {meaning} | {place} |\n" for term, meaning, place in TERMS)
    names = {row.key: row.label.removesuffix(f" ({row.key})") for row in (*MAIN_ROWS, *VARIANT_ROWS)}
    uses = {row.key: row.rl for row in (*MAIN_ROWS, *VARIANT_ROWS)}
    return HEAD + terms + BETWEEN + "".join(f"| {key} | {name} | {uses[key]} |\n" for key, name in names.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
