"""Ready designs: the paper's study, its core, and a small one for tests and demonstrations."""

from __future__ import annotations

from dataclasses import replace

from searchlens_lab.simulate._design import (
    BaseModel,
    Design,
    Mode,
    PolicyEffect,
    RLEffect,
    SimBenchmark,
    SimModel,
)

PAPER24 = (
    *(f"temp_{t}" for t in ("0.3", "0.5", "0.7", "0.9", "1.0")),
    *(f"topp{p}_t{t}" for p in ("0.8", "0.9", "0.95") for t in ("0.7", "0.9")),
    *(f"topk{k}_t{t}" for k in (10, 20, 40) for t in ("0.7", "0.9")),
    *(f"minp{p}_t{t}" for p in ("0.05", "0.1", "0.2") for t in ("0.7", "0.9")),
    "topp0.95_t1.0",
)
"""Pool ``paper24`` of ``config/policies.yaml``."""

_BASES = {
    "qwen25_7b": BaseModel(),
    "qwen25_14b": BaseModel(ability=0.5, invalid=-3.0),
    "qwen25_1.5b": BaseModel(ability=-1.4, invalid=-1.8, verbosity=0.9),
    "qwen25_math_7b": BaseModel(ability=0.5, invalid=-2.2, verbosity=1.1),
    "qwen25_0.5b": BaseModel(ability=-2.6, invalid=-1.8, verbosity=0.8),
    "llama31_8b": BaseModel(ability=-2.2, invalid=-1.4),
    "mistral7b_v01": BaseModel(ability=-3.4, invalid=-1.4),
    "deepseek_math_7b": BaseModel(ability=-1.8, invalid=-1.8),
}
_MODELS = {
    "qwen25_7b": SimModel("qwen25_7b", "upper", 7.6e9, RLEffect(), delta=-0.198),
    "qwen25_14b": SimModel("qwen25_14b", "upper", 14.8e9, RLEffect(1.5, 1.6), delta=0.0792),
    "qwen25_1.5b": SimModel("qwen25_1.5b", "upper", 1.5e9, RLEffect(1.5, 2.3), delta=0.7724),
    "qwen25_math_7b": SimModel("qwen25_math_7b", "upper", 7.6e9, RLEffect(1.5, 1.3), delta=-0.198),
    "qwen25_0.5b": SimModel("qwen25_0.5b", "lower", 0.5e9, RLEffect(1.45, 1.6), delta=-0.0594),
    "llama31_8b": SimModel("llama31_8b", "lower", 8.0e9, RLEffect(1.45, 1.3), delta=-0.0594),
    "mistral7b_v01": SimModel("mistral7b_v01", "lower", 7.2e9, RLEffect(1.4, 0.7), delta=-0.3367),
    "orz_7b": SimModel("qwen25_7b", "new", 7.6e9, RLEffect(1.5, 1.6), delta=0.0),
    "oat_7b": SimModel("qwen25_math_7b", "new", 7.6e9, RLEffect(1.45, 1.3), delta=-0.198),
    "deepseek_math_7b": SimModel("deepseek_math_7b", "new", 7.0e9, RLEffect(1.45, 1.4), delta=-0.0594),
}
_BENCHMARKS = {
    "math500": SimBenchmark("math", 500, level=1.15, spread=2.9, title="Math500"),
    "aime": SimBenchmark("floor", 60, level=-8.4, spread=4.7, transfer=0.8, tokens=1100, title="AIME"),
    "gpqa": SimBenchmark(
        "nonmath", 198, level=-0.45, spread=1.5, slope=0.3, wrong=3, transfer=0.15, tokens=600, title="GPQA"
    ),
    "ifeval": SimBenchmark(
        "nonmath", 541, -0.7, 4.4, slope=0.4, wrong=1, transfer=0.1, tokens=350, open_text=True, title="IFEval"
    ),
    "amc23": SimBenchmark("math", 40, level=-0.2, spread=3.0, role="held_out", tokens=800, title="AMC23"),
    "minerva": SimBenchmark("math", 272, level=-1.4, spread=3.2, role="held_out", title="Minerva"),
    "olympiadbench": SimBenchmark(
        "math", 675, level=-1.0, spread=3.4, role="held_out", tokens=800, title="OlympiadBench"
    ),
    "tinymmlu": SimBenchmark(
        "nonmath", 100, 0.6, 1.8, "held_out", slope=0.3, wrong=3, transfer=0.15, tokens=300, title="TinyMMLU"
    ),
    "rltrain": SimBenchmark("math", 300, level=0.4, spread=2.8, role="rltrain", title="RL-training split"),
    "mmlu_stem": SimBenchmark(
        "nonmath", 500, 0.6, 1.8, "descriptive", slope=0.3, wrong=3, transfer=0.15, tokens=300, title="MMLU-STEM"
    ),
}
_MATH_SEARCHES = {
    "entropy_tree_b4": PolicyEffect(1.15, -0.5, 4.0),
    "power_temp_0.7_b4": PolicyEffect(1.8, -1.0, 4.0),
    "power_topp0.95_t1.0_b4": PolicyEffect(1.6, -0.7, 4.0),
    "power_topk20_t0.7_b4": PolicyEffect(1.9, -1.2, 4.0),
    "mcts16_temp_0.7": PolicyEffect(2.2, -1.5, 16.0),
    "mcts16_topp0.95_t1.0": PolicyEffect(2.0, -1.2, 16.0),
    "tree_b4_temp_0.7": PolicyEffect(1.4, -0.8, 4.0),
    "tree_b8_temp_0.7": PolicyEffect(1.5, -1.0, 8.0),
}
_ALL_SEARCHES = _MATH_SEARCHES | {
    "entropy_tree_b8": PolicyEffect(1.2, -0.6, 8.0),
    "power_minp0.05_t0.9_b4": PolicyEffect(1.7, -1.0, 4.0),
}


def paper_design(mode: Mode = "transform") -> Design:
    """The paper's study: ten pairs, ten benchmarks, 24 policies, searches, extension pools and batches.

    The planted parameters are the paper's constants; effects and levels are chosen so that curves look like the
    paper's (``docs/simulation.md``).
    """
    return Design(
        bases=_BASES,
        models=_MODELS,
        benchmarks=_BENCHMARKS,
        anchor_model="qwen25_7b",
        anchor_benchmark="math500",
        policies=PAPER24,
        searches={"math500": _MATH_SEARCHES, "aime": _ALL_SEARCHES, "gpqa": _ALL_SEARCHES},
        extension={"math500": 64, "aime": 256, "gpqa": 64, "ifeval": 64},
        batches={"123": ("base",), "20240": ("base",), "extension": ("rl",)},
        missing=frozenset({("llama31_8b", "ifeval")}),
        mode=mode,
    )


def fitted_design(mode: Mode = "transform") -> Design:
    """The core of the paper's study: seven pairs, four benchmarks, 24 policies, 16 samples."""
    whole = paper_design(mode)
    models = {name: model for name, model in whole.models.items() if model.group != "new"}
    benchmarks = {name: item for name, item in whole.benchmarks.items() if item.role == "fitted"}
    return replace(whole, models=models, benchmarks=benchmarks, searches={}, extension={}, batches={})


def small_design(mode: Mode = "transform") -> Design:
    """Two pairs, two benchmarks of 40 questions, six policies; drawn in a fraction of a second."""
    whole = fitted_design(mode)
    names = ("qwen25_7b", "qwen25_1.5b")
    return replace(
        whole,
        bases={name: whole.bases[name] for name in names},
        models={name: whole.models[name] for name in names},
        benchmarks={name: replace(whole.benchmarks[name], questions=40) for name in ("math500", "gpqa")},
        policies=("temp_0.5", "topp0.8_t0.9", "topp0.9_t0.7", "topk20_t0.7", "minp0.1_t0.9", "topp0.95_t1.0"),
        missing=frozenset(),
    )
