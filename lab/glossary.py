"""Writes docs/glossary.md: ``make schema``. The rules of BOPTR and their names are those that tables print."""

from pathlib import Path

from searchlens.boptr.transfer import MAIN_ROWS
from searchlens.boptr.variants import VARIANT_ROWS

PAGE = Path(__file__).parents[1] / "docs/glossary.md"
HEAD = """# Glossary

For readers of tables and pages: every term in a sentence, with its place in [the paper](../README.md#the-paper). Below
are the codes of rules, and the symbols with their names in code and columns. `make schema` writes this page.

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
SYMBOLS = (
    ("u = (π, n)", "operating point: a policy and a budget", "`DenseLandscape.points`", "`policy`, `budget`"),
    (
        "Π",
        "policies: local policy, controller, evaluator, transition, scheduler",
        "`search.policy.Policy`, `pools`",
        "`policy`",
    ),
    ("π₀", "RL default policy, `topp0.95_t1.0`", "`default_policy`", ""),
    ("B", "allowed budgets {1, 2, 4, 8, 16}", "`budgets`; in arrays, position i stands for 2^i", "`budget`"),
    ("b", "budget of RL that is predicted", "`R`, `target`", "`target_budget`"),
    (
        "(m, d)",
        "cell: model m (a Base and an RL checkpoint) on benchmark d",
        "`Rule.cell(model, benchmark)`",
        "`model`, `benchmark`",
    ),
    ("A_Base, A_RL", "accuracy of Base and RL at an operating point, in any metric", "`base`, `rl`", "`base`, `rl`"),
    (
        "P",
        "pass@k: any of k samples is right; mean over all subsets (`unbiased`, the default) or the first k (`first_k`)",
        "`P`",
        "`metric = P`",
    ),
    ("Q", "self-consistency: majority vote of n samples, read like P", "`Q`", "`metric = Q`"),
    ("T", "first finish: the shortest finished, valid answer of the first n", "`T`", "`metric = T`"),
    ("D", "diversity, P - Q", "`D`", "`metric = D`"),
    (
        "C",
        "cost: mean generated tokens per question; in the selector, tokens per sample over the largest of the pool",
        "`tokens`, `relative_cost`",
        "`metric = C`",
    ),
    ("best-of-N", "the sample with the highest evaluator score of the first n", "`B`", "`metric = B`"),
    ("z(u)", "behaviour signature [P, Q, T, D, C]", "`analysis.recovery.geometry`", "`geometry.parquet`"),
    ("d(uᵢ, uⱼ)", "distance of operating points", "`analysis.recovery.distance`, `l_comp`, `l_z`, `l_b`", ""),
    ("E(b)", "envelope: best Base accuracy at n ≤ b over all policies", "`analysis.recovery.support`", "`envelope`"),
    ("G", "recovery gap, A_RL(π₀, b) - E(b)", "`analysis.recovery.support`", "`rl_minus_best`"),
    (
        "N_ε(b)",
        "near-match set, within ε of A_RL(π₀, b)",
        "`analysis.recovery.near_match`, `epsilon`",
        "`near_match.parquet`",
    ),
    ("g(d)", "regime: math, nonmath, floor", "`Regime`, `Rule.regime`", "`regime`"),
    ("β_g", "budget exponent of a regime", "`Rule.beta`, `beta`", "`beta`"),
    (
        "α_{m,d}",
        "scale of a cell, ln α = μ_g + δ_m",
        "`Fit.alpha`, `Rule.log_alpha`",
        "`alpha`; `alpha_lo`, `alpha_hi`: the interval of scales that give the same path",
    ),
    ("μ_g", "cohort mean of ln α in a regime", "`Rule.mu`, `mean_log_alpha`", ""),
    ("δ_m", "offset of a model", "`Rule.delta`", ""),
    ("round_B", "nearest allowed budget, in log2", "`round_position`", ""),
    ("N̂(b)", "round_B(α b^β)", "`Rule.n_hat`, `budget_path`, `Path.budget`", "`path`, as `2/4/8/8/16`"),
    ("π̂", "selected policy, argmin L", "`Rule.select`, `Path.policy`", "`policy`"),
    ("r, r̄_proto", "selector features and their prototype on the anchor", "`fit.features`, `prototype`", ""),
    ("ctrl", "controller index, 0 (autoregressive) to 1", "`Features.fixed`", ""),
    ("W, λ_cost", "selector weights (1, 1, 1, 0.5, 0.2), cost penalty 0.01", "`boptr/fit.py`", ""),
    ("ch", "channel of a prediction, P or Q", "`metric`", "`metric`"),
    ("P̂_RL(b)", "prediction P_Base(π̂, N̂(b))", "`rows.curve`", ""),
    (
        "mech_P",
        "100 · mean over b of abs(P̂_RL - P_RL), percentage points",
        "`rows.mech`",
        "`error`; `corrected`: without the upward bias of absolute values",
    ),
    (
        "R0, R1, R2",
        "fits with a policy per budget, one policy, the default policy",
        "`fit_free`, `fit_locked`; R1 is `Rule.smooth`",
        "",
    ),
    ("P₀, Pmax", "Base pass@1 of π₀; best Base policy's pass@16, on base@rltrain", "`rltrain` benchmarks", ""),
    (
        "u (frontier)",
        "sampling-headroom prior sqrt((1 - P₀) (Pmax - P₀)); not an operating point",
        "`boptr/frontier.py`",
        "`u`",
    ),
    ("N⋆", "saturation knee: smallest budget within τ of P at the largest", "`boptr/frontier.py`", ""),
    ("v5, v6, v7", "rule variants ([rule-variants.md](rule-variants.md))", "`variants.py`", ""),
    ("S, A, T (variants)", "support, signed sharpening-expansion axis, first finish", "", ""),
)
SYMBOL_HEAD = """
## Symbols

The paper's symbols and their names in the code and in columns ([columns.md](columns.md)). Proportions are in [0, 1],
errors in percentage points; logarithms, as in α, μ and δ, are natural. The paper calls a row that samples at a low
temperature "Base greedy" (H1). `greedy` in the code is literal: one sample, the most likely token at every step.

| symbol | meaning | code | columns |
|---|---|---|---|
"""
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
    rules = "".join(f"| {key} | {name} | {uses[key]} |\n" for key, name in names.items())
    symbols = "".join(f"| {' | '.join(row)} |\n" for row in SYMBOLS)
    return HEAD + terms + BETWEEN + rules + SYMBOL_HEAD + symbols


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
