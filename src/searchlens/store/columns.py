"""Column names and types of the frames that pass between stages (docs/columns.md describes them)."""

import polars as pl

ESTIMATORS = ("first_k", "unbiased")

PLAIN = "Q_plain"
"""The vote over plain strings: a column of ``VOTES``, and a metric among the points of ``recorded_counts.COMPACT``."""

SCORES = pl.Schema(
    {
        "policy": pl.String(),
        **dict.fromkeys(("question", "sample", "run"), pl.UInt32()),
        "correct": pl.Boolean(),
        "answer": pl.Int32(),
        "tokens": pl.UInt32(),
        "generated": pl.UInt32(),
        "stopped": pl.Boolean(),
        "score": pl.Float32(),
    }
)

GRADED = pl.Schema(
    {
        **SCORES,
        "finished": pl.Boolean(),
        "unknown": pl.Boolean(),
        "extraction": pl.String(),
        "plain": pl.Int32(),
        "checks": pl.String(),
        "finish": pl.String(),
        "wrong_key": pl.Boolean(),
    }
)
"""What scoring writes: what the landscape needs, and how the grader came to it. ``extraction`` is a value of
``grading.How``: ``kept`` and ``withdrawn`` are the texts that end in an open box behind a closed one. ``wrong_key``:
the gold of another question would accept the answer (``grading.wrong_key``); null if that was not judged."""

COMPARED = pl.Schema(
    {
        "policy": pl.String(),
        "question": pl.String(),
        "sample": pl.UInt32(),
        "scorer": pl.String(),
        "value": pl.Float64(),
        **dict.fromkeys(("outcome", "gold", "ours", "theirs", "end"), pl.String()),
    }
)
"""Verdicts that came with imported samples, beside ours. ``outcome``: both_right, both_wrong, ours_alone, theirs_alone
or unscored. Gold, our answer and the end of the text are given where the verdicts differ."""

SCORED_TEXTS = pl.Schema(
    {
        "question": pl.UInt32(),
        "sample": pl.UInt32(),
        "side": pl.String(),
        "text": pl.UInt32(),
        "tokens": pl.UInt32(),
        "logp_base": pl.Float64(),
        "logp_rl": pl.Float64(),
        **dict.fromkeys(("whole_base", "whole_rl", "right", "wrong_key"), pl.Boolean()),
        **dict.fromkeys(("token_ids", "ranks_base", "ranks_rl"), pl.List(pl.Int32())),
        **dict.fromkeys(("logps_base", "logps_rl"), pl.List(pl.Float32())),
    }
)
"""Texts of both sides of a pair with their natural log p under both checkpoints. ``side`` drew the text: base or rl.

``text`` numbers the distinct texts of a question. ``whole_base``, ``whole_rl``: the checkpoint would have ended there
itself, so that the text is one of its own. ``right``: null if no verdict was reached. The lists are of all tokens, and
null unless ``study.likelihood.tokens`` keeps them; a rank is 0 where it is not known."""

BEGINNINGS = pl.Schema(
    {
        "question": pl.UInt32(),
        "kind": pl.String(),
        "sample": pl.UInt32(),
        "unit": pl.String(),
        "at": pl.Float64(),
        "length": pl.UInt32(),
        "whole": pl.Boolean(),
        "logp_base": pl.Float64(),
        "prefix": pl.List(pl.Int32()),
    }
)
"""Beginnings of texts, which Base continues. ``kind`` and ``sample``: the text, such as ``rl_right``. ``unit`` and
``at``: where it is cut, by fraction or tokens; ``length``: in tokens. ``whole``: it is the whole text. ``logp_base``:
log p of the tokens of ``prefix`` under Base's policy."""

HEALTH = pl.Schema(
    {
        "policy": pl.String(),
        **dict.fromkeys(("samples", "answered", "stopped", "truncated", "unknown_end", "whole_answered"), pl.UInt32()),
        **dict.fromkeys(("unknown", "failed", "kept", "withdrawn", "unboxed", "questions", "unsolved"), pl.UInt32()),
    }
)
"""How the samples of a cell ended, all policies together (``policy`` is null) and each policy; null: not recorded."""

VOTES = pl.Schema(
    {
        "policy": pl.String(),
        "budget": pl.UInt32(),
        "estimator": pl.String(),
        "Q": pl.Float64(),
        PLAIN: pl.Float64(),
    }
)

CLASSES = pl.Schema(
    {
        "policy": pl.String(),
        **dict.fromkeys(("question", "samples", "width", "correct", "answered"), pl.UInt32()),
        "classes": pl.String(),
        "wrong_key": pl.UInt32(),
    }
)
"""``wrong_key``: samples that the gold of another question would accept; null if that is not known."""

POINTS = pl.Schema(
    {
        "policy": pl.String(),
        "budget": pl.UInt32(),
        "metric": pl.String(),
        "estimator": pl.String(),
        "hits": pl.UInt32(),
        "questions": pl.UInt32(),
        **dict.fromkeys(("value", "lo", "hi"), pl.Float64()),
    }
)

SAME_POLICY = pl.Schema(
    {
        "metric": pl.String(),
        "estimator": pl.String(),
        "policy": pl.String(),
        "budget": pl.UInt32(),
        **dict.fromkeys(("base", "rl", "rl_minus_base", "lo", "hi"), pl.Float64()),
    }
)

COUNTS = pl.Schema(
    {
        "metric": pl.String(),
        "estimator": pl.String(),
        **dict.fromkeys(("budget", "ahead", "ahead_or_level", "policies"), pl.UInt32()),
        **dict.fromkeys((f"{name}_without_default" for name in ("ahead", "ahead_or_level", "policies")), pl.UInt32()),
        **dict.fromkeys(("both_zero", "both_zero_without_default"), pl.UInt32()),
    }
)

SUPPORT = pl.Schema(
    {
        "metric": pl.String(),
        "estimator": pl.String(),
        "budget": pl.UInt32(),
        **dict.fromkeys(("rl", "rl_lo", "rl_hi", "envelope"), pl.Float64()),
        "envelope_policy": pl.String(),
        "envelope_budget": pl.UInt32(),
        **dict.fromkeys(("low", "rl_minus_best", "rl_minus_best_lo", "rl_minus_best_hi", "optimism"), pl.Float64()),
        "inside": pl.Boolean(),
    }
)

_MATCH = {
    "target_budget": pl.UInt32(),
    "target": pl.Float64(),
    "policy": pl.String(),
    "budget": pl.UInt32(),
    "value": pl.Float64(),
    "rl_minus_base": pl.Float64(),
}

NEAR_MATCH = pl.Schema({"metric": pl.String(), **_MATCH})

PATH = pl.Schema({"metric": pl.String(), "kind": pl.String(), **_MATCH})

COORDINATES = ("P", "Q", "T", "D", "C")
"""Metrics of the behaviour signature z(u)."""

GEOMETRY = pl.Schema(
    {
        "model": pl.String(),
        "policy": pl.String(),
        "budget": pl.UInt32(),
        **{coordinate: pl.Float64() for coordinate in COORDINATES},
    }
)

AGREEMENT = pl.Schema(
    {
        "policy": pl.String(),
        "question": pl.String(),
        "sample": pl.UInt32(),
        **dict.fromkeys(("gold", "answer", "ours", "math_verify", "text"), pl.String()),
    }
)
"""Samples that were judged twice: the question's id, the answer that our grader found, two verdicts (``right``,
``wrong``, ``none``: no answer found, ``unknown``: a limit was reached), and the end of the text."""

TRACES = pl.Schema(
    {
        "question": pl.UInt32(),
        "id": pl.String(),
        **dict.fromkeys(("run", "row", "step"), pl.UInt32()),
        "kind": pl.String(),
        **dict.fromkeys(("node", "parent", "start"), pl.UInt32()),
        "text": pl.String(),
        "tokens": pl.List(pl.Int32()),
        "logp": pl.List(pl.Float32()),
        "logq": pl.List(pl.Float32()),
        "finish": pl.String(),
        "score": pl.Float64(),
        "rank": pl.UInt32(),
        "entropy": pl.Float64(),
        "prior": pl.Float64(),
        "visits": pl.UInt32(),
        "value": pl.Float64(),
        "log_ratio": pl.Float64(),
        "uniform": pl.Float64(),
        "accepted": pl.Boolean(),
        "chosen": pl.Boolean(),
        "same_as": pl.UInt32(),
        "sample": pl.UInt32(),
        "nodes": pl.List(pl.UInt32()),
        "scores": pl.List(pl.Float64()),
        "requests": pl.UInt32(),
        "generated": pl.UInt32(),
        "detail": pl.String(),
    }
)
"""What searches did, as ``search.recorder`` records it; docs/columns.md says what it means in each kind of row."""
