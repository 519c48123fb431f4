"""Templates as keys of the configuration: what is refused, and ids that follow their text and no name."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from chat_forms import FORMS, write_form
from conftest import Make, Raw
from searchlens.benchmarks import prompts
from searchlens.cli import tools as pin
from searchlens.config import check
from searchlens.errors import InputError
from searchlens.plan import Grid
from test_specials import edit

BASE, RL = "toy-base", "toy-rl"


@pytest.fixture
def raw(raw: Raw) -> Raw:
    """The toy study, in which both sides may have templates of their own."""
    raw["pairs"]["toy"]["templates"] = "own"
    return raw


# ---- the configuration


@pytest.mark.parametrize(
    ("mine", "says"),
    [
        ({"text": "Q:"}, r"templates\.mine\.text: must have \{question\} once, found 0: 'Q:'"),
        ({"text": "{question} {question}"}, r"templates\.mine\.text: must have \{question\} once, found 2: '.*'"),
        ({"math": "{Question}"}, r"templates\.mine\.math: must have \{question\} once, found 0: '.*'"),
        ({"system": "{question}"}, r"templates\.mine\.system: must have \{question\} never, found 1: '.*'"),
        ({"math_system": "{question}"}, r"templates\.mine\.math_system: must have \{question\} never, found 1: '.*'"),
        ({"stop_texts": ["a", ""]}, r"templates\.mine\.stop_texts: an empty text would end every answer"),
        ({"recipe_stops": [""]}, r"templates\.mine\.recipe_stops: an empty text would end every answer"),
        ({"chat": {"messages": "x"}}, r"templates\.mine\.chat: messages is given already; allowed: .*"),
        ({"chat": {"enable_thinking": None}}, r"templates\.mine\.chat.*"),
        ({"chat": True}, r"templates\.mine\.chat.*"),
        ({"txt": "{question}"}, r"templates\.mine: 'txt' is unknown; did you mean 'text'\? Known: .*"),
        ({"before_answer": 1}, r"templates\.mine\.before_answer.*"),
        ({"check_every": -1}, r"templates\.mine\.check_every.*"),
    ],
)
def test_a_wrong_template_is_named_by_its_key(raw: Raw, mine: dict[str, Any], says: str) -> None:
    raw["templates"] = {"mine": mine}
    with pytest.raises(InputError) as refused:
        check.validate(raw)
    assert re.search(rf"^ *(the configuration has 1 error: *)?{says}$", refused.value.message, re.MULTILINE)


def test_an_unknown_template_is_named_with_the_nearest(raw: Raw) -> None:
    raw["templates"] = {"mine": {"chat": {}}}
    raw["checkpoints"][BASE]["template"] = "mein"
    with pytest.raises(InputError, match=rf"checkpoints\.{BASE}\.template: 'mein' is unknown; did you mean 'mine'\?"):
        check.validate(raw)


# ---- ids


@pytest.fixture
def ids(raw: Raw, make_grid: Make) -> Callable[..., tuple[str, ...]]:
    """The generation ids of a cell with a folder and a template, with the keys of one of the study's own."""

    def of(path: str, template: str = "chat", **own: dict[str, Any]) -> tuple[str, ...]:
        raw["templates"] = own
        raw["checkpoints"][BASE] |= {"path": path, "template": template}
        return tuple(generation.id for generation in make_grid(raw).jobs.generations(BASE, "sums"))

    return of


def test_ids_follow_the_text_of_a_template_and_not_its_place(tmp_path: Path, ids: Any) -> None:
    form = FORMS["qwen2.5"]
    for name in ("config", "list", "file"):
        write_form(tmp_path / name, replace(form, stored=name))
    assert ids("config") == ids("list") == ids("file")
    write_form(tmp_path / "other", form, form.template.replace("calculator", "Calculator"))
    different = [ids("config"), ids("other"), ids("config", "zoo")]
    different += [ids("config", "a", a={**vars(prompts.families()["chat"]), **more}) for more in MORE]
    assert len(set(different)) == len(different)


MORE: Sequence[dict[str, Any]] = [
    {"system": "Be brief."},
    {"chat": {"enable_thinking": False}},
    {"chat": {"enable_thinking": True}},
    {"chat": {"date_string": "1 Jan 2026"}},
    {"math": "{question}"},
]


@pytest.mark.parametrize("shipped", prompts.families())
def test_the_name_of_a_template_is_no_part_of_ids(tmp_path: Path, ids: Any, shipped: str) -> None:
    write_form(tmp_path / "form", FORMS["qwen2.5"])
    copied = json.loads(json.dumps(vars(prompts.families()[shipped])))
    assert ids("form", shipped) == ids("form", "mine", mine=copied) == ids("form", shipped, **{shipped: copied})


def test_only_tokens_that_a_template_names_are_part_of_ids(tmp_path: Path, ids: Any) -> None:
    folder = write_form(tmp_path / "form", FORMS["mistral"])
    before = ids("form")
    edit(folder / "tokenizer_config.json", sep_token="[INST]", cls_token="[/INST]")
    assert ids("form") == before
    edit(folder / "tokenizer_config.json", bos_token={"content": "<s>", "lstrip": False})
    assert ids("form") == before
    edit(folder / "tokenizer_config.json", bos_token="[INST]")
    assert ids("form") != before


# ---- checkpoints of the hub


@pytest.fixture
def pinned(raw: Raw, make_grid: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Grid]:
    """The study with both sides from a cache of the hub, pinned, with a template."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for side in ("base", "rl"):
        shutil.rmtree(tmp_path / side)
        write_form(tmp_path / side, FORMS["smollm2"], FORMS["smollm2"].template + side)
        repository = tmp_path / f"hub/models--org--{side}"
        shutil.copytree(tmp_path / side, repository / "snapshots" / ("a" * 40))
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text("a" * 40)

    def made(template: str) -> Grid:
        raw["lock"] = "lock.json"
        raw["checkpoints"] = {f"toy-{side}": {"hub": f"org/{side}", "template": template} for side in ("base", "rl")}
        return make_grid(raw)

    grid = made("zoo")
    pin.pin(grid.inputs.lock, grid.inputs.sources(), pin.Cache())
    return made


def test_a_checkpoint_of_the_hub_has_the_ids_of_its_folder(
    raw: Raw, make_grid: Make, pinned: Callable[[str], Grid], tmp_path: Path
) -> None:
    grid = pinned("chat")
    (source, _) = grid.inputs.sources()
    assert "chat_template.jinja" in grid.inputs.lock[source].files
    hub = {side: [generation.id for generation in grid.jobs.generations(side, "sums")] for side in (BASE, RL)}
    shutil.rmtree(tmp_path / "hub")  # planning needs the lock alone
    assert [generation.id for generation in pinned("chat").jobs.generations(BASE, "sums")] == hub[BASE]
    raw["checkpoints"] = {f"toy-{side}": {"path": side, "template": "chat"} for side in ("base", "rl")}
    assert hub == {side: [each.id for each in make_grid(raw).jobs.generations(side, "sums")] for side in (BASE, RL)}
    assert hub[BASE] != hub[RL]
