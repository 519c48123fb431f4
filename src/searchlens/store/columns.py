"""Column names and types of the frames that pass between stages (docs/columns.md describes them)."""

from searchlens.store.schema import schema

ESTIMATORS = ("first_k", "unbiased")

PLAIN = "Q_plain"
"""The vote over plain strings: a column of ``VOTES``, and a metric among the points of ``recorded_counts.COMPACT``."""

SCORES = schema(
    "policy:str question,sample,run:u32 correct:bool answer:i32 tokens,generated:u32 stopped:bool score:f32"
)

GRADED = schema("finished,unknown:bool extraction:str plain:i32 checks,finish:str wrong_key:bool", SCORES)
"""What scoring writes: what the landscape needs, and how the grader came to it. ``extraction`` is a value of
``grading.How``: ``kept`` and ``withdrawn`` are the texts that end in an open box behind a closed one. ``wrong_key``:
the gold of another question would accept the answer (``grading.wrong_key``); null if that was not judged."""

COMPARED = schema("policy,question:str sample:u32 scorer:str value:f64 outcome,gold,ours,theirs,end:str")
"""Verdicts that came with imported samples, beside ours. ``outcome``: both_right, both_wrong, ours_alone, theirs_alone
or unscored. Gold, our answer and the end of the text are given where the verdicts differ."""

SCORED_TEXTS = schema(
    "question,sample:u32 side:str text,tokens:u32 logp_base,logp_rl:f64 whole_base,whole_rl,right,wrong_key:bool"
    " token_ids,ranks_base,ranks_rl:i32s logps_base,logps_rl:f32s"
)
"""Texts of both sides of a pair with their natural log p under both checkpoints. ``side`` drew the text: base or rl.

``text`` numbers the distinct texts of a question. ``whole_base``, ``whole_rl``: the checkpoint would have ended there
itself, so that the text is one of its own. ``right``: null if no verdict was reached. The lists are of all tokens, and
null unless ``study.likelihood.tokens`` keeps them; a rank is 0 where it is not known."""

BEGINNINGS = schema("question:u32 kind:str sample:u32 unit:str at:f64 length:u32 whole:bool logp_base:f64 prefix:i32s")
"""Beginnings of texts, which Base continues. ``kind`` and ``sample``: the text, such as ``rl_right``. ``unit`` and
``at``: where it is cut, by fraction or tokens; ``length``: in tokens. ``whole``: it is the whole text. ``logp_base``:
log p of the tokens of ``prefix`` under Base's policy."""

HEALTH = schema(
    "policy:str samples,answered,stopped,truncated,unknown_end,whole_answered:u32"
    " unknown,failed,kept,withdrawn,unboxed,questions,unsolved:u32"
)
"""How the samples of a cell ended, all policies together (``policy`` is null) and each policy; null: not recorded."""

VOTES = schema(f"policy:str budget:u32 estimator:str Q,{PLAIN}:f64")

CLASSES = schema("policy:str question,samples,width,correct,answered:u32 classes:str wrong_key:u32")
"""``wrong_key``: samples that the gold of another question would accept; null if that is not known."""

POINTS = schema("policy:str budget:u32 metric,estimator:str hits,questions:u32 value,lo,hi:f64")

SAME_POLICY = schema("metric,estimator,policy:str budget:u32 base,rl,rl_minus_base,lo,hi:f64")

COUNTS = schema(
    "metric,estimator:str budget,ahead,ahead_or_level,policies:u32 ahead_without_default:u32"
    " ahead_or_level_without_default,policies_without_default,both_zero,both_zero_without_default:u32"
)

SUPPORT = schema(
    "metric,estimator:str budget:u32 rl,rl_lo,rl_hi,envelope:f64 envelope_policy:str envelope_budget:u32"
    " low,rl_minus_best,rl_minus_best_lo,rl_minus_best_hi,optimism:f64 inside:bool"
)

_MATCH = "target_budget:u32 target:f64 policy:str budget:u32 value,rl_minus_base:f64"

NEAR_MATCH = schema(f"metric:str {_MATCH}")

PATH = schema(f"metric,kind:str {_MATCH}")

COORDINATES = ("P", "Q", "T", "D", "C")
"""Metrics of the behaviour signature z(u)."""

GEOMETRY = schema(f"model,policy:str budget:u32 {','.join(COORDINATES)}:f64")

AGREEMENT = schema("policy,question:str sample:u32 gold,answer,ours,math_verify,text:str")
"""Samples that were judged twice: the question's id, the answer that our grader found, two verdicts (``right``,
``wrong``, ``none``: no answer found, ``unknown``: a limit was reached), and the end of the text."""

TRACES = schema(
    "question:u32 id:str run,row,step:u32 kind:str node,parent,start:u32 text:str tokens:i32s logp,logq:f32s finish:str"
    " score:f64 rank:u32 entropy,prior:f64 visits:u32 value,log_ratio,uniform:f64 accepted,chosen:bool"
    " same_as,sample:u32 nodes:u32s scores:f64s requests,generated:u32 detail:str"
)
"""What searches did, as ``search.recorder`` records it; docs/columns.md says what it means in each kind of row."""
