"""Policy names are the interface between configuration, files and figures: they must mean one thing only."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scripts import printed
from searchlens import catalogue
from searchlens.cli.stages.source import closure
from searchlens.engines.base import Sampling
from searchlens.errors import InputError
from searchlens.search import components
from searchlens.search.policy import FAMILIES, Policy, from_spec, parse

STAGES = ("score", "landscape", "recovery", "figures", "tables", "boptr", "equivalence")


@given(
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.3, 0.75, 1.0, 1.25]),
        top_p=st.sampled_from([0.5, 0.95, 1.0]),
        top_k=st.sampled_from([0, 1, 40]),
        min_p=st.sampled_from([0.0, 0.05]),
        typical_p=st.sampled_from([0.9, 1.0]),
        repetition_penalty=st.sampled_from([1.0, 1.1]),
        frequency_penalty=st.sampled_from([0.0, -0.5, 2.0]),
        presence_penalty=st.sampled_from([0.0, 0.25]),
    )
)
def test_names_and_policies_are_inverse(local: Sampling) -> None:
    if local.temperature == 0:  # filters have no effect on greedy and are not part of its name
        local = Sampling(
            0.0,
            repetition_penalty=local.repetition_penalty,
            frequency_penalty=local.frequency_penalty,
            presence_penalty=local.presence_penalty,
        )
    policy = Policy(local)
    assert parse(policy.name) == policy
    assert policy.family in FAMILIES


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("topp0.8", "no temperature"),
        ("topq0.8_t0.9", "part 'topq0.8'"),
        ("topp0.8_topp0.9_t1.0", "given twice"),
        ("topp1.8_t0.9", "top_p is 1.8; allowed: > 0, <= 1"),
        ("topk2.5_t0.7", "whole number"),
        ("temp_hot", "part 'thot'"),
        ("", "part ''"),
    ],
)
def test_a_malformed_name_is_refused_with_its_reason(name: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        parse(name)
    assert says in str(error.value)


def test_a_definition_resolves_to_the_same_policy_as_its_name() -> None:
    spelled = parse("topp0.8_t0.9")
    defined = from_spec("mine", {"local": {"top_p": 0.8, "temperature": 0.9}, "controller": "autoregressive"})
    assert defined == spelled
    assert defined.resolved() == spelled.resolved()


def test_a_name_that_contradicts_its_definition_is_refused() -> None:
    with pytest.raises(InputError, match="something else than its name says"):
        from_spec("temp_0.3", {"local": {"temperature": 0.5}})


def test_resolved_policies_do_not_distinguish_whole_numbers_from_floats() -> None:
    assert (
        from_spec("a", {"local": {"temperature": 1}}).resolved()
        == from_spec("b", {"local": {"temperature": 1.0}}).resolved()
    )


def test_planning_reads_every_controller_without_numpy() -> None:
    """The planner resolves all policies several times per job; arrays are needed only once a search runs."""
    code = (
        "import sys; from searchlens.search import policy; from searchlens.search.components import names\n"
        "from searchlens.search.policy import Texts\n"
        "texts = Texts.of_mean(100, 200, 0.7)\n"
        "for name in names('controller'):\n"
        "    assert policy.from_spec('it', {'controller': name}).expected_tokens(texts) is not None\n"
        "print(sorted({'numpy', 'polars', 'pydantic', 'scipy', 'torch'} & set(sys.modules)))"
    )
    assert printed(code) == "[]"


POLICIES = {"__init__.py", "components.py", "kinds.py", "policy.py"}
"""Files of ``search`` that say what a policy is, and search nothing."""


def test_only_stages_that_search_depend_on_controllers() -> None:
    """After an edit of a controller nothing is judged or analysed again: stages are given what the planner resolved."""
    searches = {stage: {path.name for path in closure(stage) if path.parts[0] == "search"} for stage in STAGES}
    controllers = {declared.path.name for declared in catalogue.declared("controller").values()}
    assert {stage for stage in STAGES if searches[stage] & controllers} == {"equivalence"}
    assert controllers <= searches["equivalence"]
    for stage in ("landscape", "recovery", "boptr", "measures", "tables"):
        assert {path.name for path in closure(stage) if path.parts[0] == "search"} <= POLICIES, stage


def test_stages_read_what_the_planner_resolved_without_the_code_of_a_search() -> None:
    planned = from_spec("tree", {"controller": {"name": "mcts", "children": 4}, "local": {"temperature": 0.6}})
    code = (
        "import json, sys; from searchlens.search import kinds\n"
        "read = kinds.from_specs(json.loads(sys.argv[1]))\n"
        "told = {name: [kinds.family(name, read), kinds.controller(name, read)] for name in ('tree', 'temp_0.7')}\n"
        "searches = [name for name in sys.modules if name.startswith('searchlens.search.')]\n"
        "print(json.dumps([told, read['tree'].resolved(), searches]))"
    )
    told, resolved, searches = json.loads(printed(code, json.dumps({"tree": planned.resolved()})))
    assert told == {"tree": ["search", "mcts"], "temp_0.7": ["temperature", "autoregressive"]}
    assert resolved == planned.resolved()
    assert {f"{name.rpartition('.')[2]}.py" for name in searches} <= POLICIES


def test_a_policy_tells_which_component_it_has() -> None:
    policy = from_spec("mine", {"controller": "mcts", "scheduler": {"name": "iterations", "iterations": 3}})
    assert policy.component(components.Iterations).iterations == 3
    assert (policy.delimiter, parse("temp_0.7").delimiter) == ("\n\n", "")
    with pytest.raises(TypeError, match="no component Blocks"):
        policy.component(components.Blocks)


def test_a_search_resolves_to_every_parameter() -> None:
    policy = from_spec("power4", {"local": {"temperature": 0.25}, "controller": {"name": "power", "alpha": 4}})
    assert policy.resolved()["controller"] == {"name": "power", "alpha": 4.0, "mode": "exact"}
    assert policy.resolved()["scheduler"] == {"name": "blocks", "blocks": 16, "steps": 10}
    assert (policy.family, policy.width, policy.smallest_budget, policy.deterministic) == ("search", 1, 1, False)
    assert from_spec("again", policy.resolved()) == policy


def test_a_threshold_is_written_down_with_either_selection() -> None:
    """The default is part of every tree's parameters, so what was resolved must read back."""
    top = from_spec("mine", {"controller": "entropy_tree"})
    assert top.resolved()["controller"]["threshold"] == 1.0
    assert from_spec("again", top.resolved()) == top
    assert from_spec("mine", {"controller": {"name": "entropy_tree", "select": "threshold", "threshold": 1.5}}) != top


JUDGED = """
controller: thought_tree
evaluator: {name: self_evaluation, question: "\\nCorrect?", right: " True", wrong: " False"}
"""


def test_self_evaluation_in_yaml() -> None:
    """Its texts arrive as they were written, spaces included; none of its keys is a truth value of YAML."""
    policy = from_spec("mine", yaml.safe_load(JUDGED))
    question = {"question": "\nCorrect?", "right": " True", "wrong": " False", "top": 100}
    assert policy.resolved()["evaluator"] == {"name": "self_evaluation", **question}
    assert from_spec("again", yaml.safe_load(yaml.safe_dump(policy.resolved()))) == policy
    plain = from_spec("mine", {"controller": "thought_tree", "evaluator": "self_evaluation"}).resolved()["evaluator"]
    assert (plain["right"], plain["wrong"]) == (" yes", " no")


@pytest.mark.parametrize(
    ("controller", "width", "smallest", "deterministic"),
    [
        ({"name": "entropy_tree", "roots": 2, "positions": 3}, 8, 1, False),
        ({"name": "thought_tree", "width": 8}, 8, 1, False),
        ({"name": "mcts"}, 16, 1, False),
        ({"name": "beam", "width": 16}, 16, 16, True),
        ({"name": "step_beam", "width": 8}, 8, 8, False),
    ],
)
def test_candidates_of_a_run(controller: dict[str, object], width: int, smallest: int, deterministic: bool) -> None:
    """A beam of 16 is not sixteen samples: it is read whole."""
    policy = from_spec("mine", {"controller": controller})
    assert (policy.width, policy.smallest_budget, policy.deterministic) == (width, smallest, deterministic)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"local": {"topp": 0.8}}, "'topp'"),
        ({"controller": "annealing"}, "controller 'annealing' is unknown. Known: autoregressive"),
        ({"controller": {"alpha": 4}}, "controller has no name"),
        ({"controller": {"name": "power", "alpha": 0}}, "alpha is 0; allowed: a number, >= 0.01"),
        ({"controller": {"name": "power", "mode": "fast"}}, "mode is 'fast'; allowed: one of exact, reference"),
        ({"controller": {"name": "power", "blocks": 3}}, "parameter 'blocks' is unknown. Known: alpha"),
        ({"controller": {"name": "mcts", "children": 2.5}}, "children is 2.5; allowed: an integer, >= 1"),
        ({"controller": "power", "transition": "thought"}, "transition thought does not go with controller power"),
        ({"controller": "power", "local": {"temperature": 0}}, "controller power needs draws that differ"),
        ({"controller": "smc", "local": {"temperature": 0}}, "needs draws that differ"),
        ({"controller": "lookahead", "local": {"temperature": 0}}, "needs draws that differ"),
        ({"controller": {"name": "power", "mode": "reference", "cut": "entropy"}}, "cut: entropy needs mode: exact"),
        ({"controller": "power", "scheduler": "rounds"}, "scheduler rounds does not go with controller power"),
        ({"controller": "beam", "local": {"temperature": 0.5}}, "a local policy has no effect"),
        ({"controller": {"name": "step_beam", "width": 6}}, "width 6 is no multiple of expand 4"),
        ({"controller": {"name": "entropy_tree", "roots": 2}, "local": {"temperature": 0}}, "are all alike"),
        (
            {"controller": {"name": "entropy_tree", "threshold": 1.5}},
            "threshold is 1.5, which has no effect with select: top; allowed: 1.0, the default",
        ),
        ({"controller": "mcts", "evaluator": "verifier"}, "verifier has no url"),
        (
            {"controller": "mcts", "evaluator": {"name": "self_evaluation", "right": " no"}},
            "evaluator self_evaluation: right and wrong are both ' no'",
        ),
        (
            {"controller": "mcts", "evaluator": {"name": "self_evaluation", "question": ""}},
            "question is ''; allowed: a text",
        ),
        (
            {"controller": "entropy_tree", "evaluator": "self_evaluation"},
            "evaluator self_evaluation does not go with controller entropy_tree",
        ),
        ({"controller": "mcts", "evaluator": {"name": "verifier", "url": "ftp://x"}}, "url is 'ftp://x'"),
    ],
)
def test_contradictory_components_are_refused_before_anything_starts(spec: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        from_spec("mine", spec)
