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

import torch
from safetensors.torch import save_file

from chat_forms import FORMS, write_form
from conftest import Make, Raw
from searchlens.benchmarks import prompts
from searchlens.cli import tools as pin
from searchlens.config import check
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.store.checkpoints import SETTINGS, WEIGHTS, Adapter
from test_specials import edit

BASE, RL = "toy-base", "toy-rl"


@pytest.fixture
def raw(raw: Raw) -> Raw:
    """The toy study, in which both sides may have templates of their own."""
    raw["pairs"]["toy"]["templates"] = "own"
    return raw


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


# ---- Adapters of a configuration: what is refused when a study is planned, and that ids follow settings and weights


PLAIN = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none", "use_dora": False}


def write(folder: Path, settings: object = PLAIN, weights: bytes = b"weights") -> Path:
    """The planner hashes weights and does not open them."""
    folder.mkdir(exist_ok=True)
    (folder / SETTINGS).write_text(json.dumps(settings))
    (folder / WEIGHTS).write_bytes(weights)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "only 'LORA' is supported"),
        ({"use_dora": True}, "use_dora is more than plain LoRA"),
        ({"bias": "all"}, "bias is more than plain LoRA"),
        ({"rank_pattern": {"q_proj": 4}, "modules_to_save": ["lm_head"]}, "modules_to_save, rank_pattern is more"),
        ({"invented_by_a_later_version": 1}, "invented_by_a_later_version is more"),
        ({"init_lora_weights": "pissa"}, "changes the checkpoint, too"),
        ({"r": 0}, "r is 0, it must be"),
        ({"r": True}, "r is True, it must be"),
    ],
)
def test_only_plain_lora_is_read(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Whatever else an adapter holds would silently be left out by one of the engines."""
    with pytest.raises(InputError, match=message):
        Adapter.read(write(tmp_path / "adapter", PLAIN | change))


@pytest.mark.parametrize("start", [True, False, None, "gaussian", "orthogonal", "eva"])
def test_how_an_adapter_was_begun_does_not_matter(start: object, tmp_path: Path) -> None:
    """None of these changes the weights of the checkpoint; the lowest rank is read."""
    for rank in (1, 8):
        settings = PLAIN | {"init_lora_weights": start, "r": rank}
        assert Adapter.read(write(tmp_path / "adapter", settings)).rank == rank


def test_a_matrix_of_a_weight_that_is_not_there_does_not_fit(tmp_path: Path) -> None:
    """Not even one without columns or rows: vLLM would leave it out."""
    checkpoint, names = tmp_path / "checkpoint", ("A", "B")
    checkpoint.mkdir()
    save_file({"layer.weight": torch.zeros(3, 5)}, checkpoint / "model.safetensors")
    for part, fits, no_weight in zip(names, ((8, 5), (3, 8)), ((8, 0), (0, 8)), strict=True):
        adapter = Adapter.read(write(tmp_path / "adapter"))
        for module, shape, found in (("layer", fits, True), ("layer", fits[::-1], False), ("other", no_weight, False)):
            matrix = {f"base_model.model.{module}.lora_{part}.weight": torch.zeros(*shape)}
            save_file(matrix, tmp_path / "adapter" / WEIGHTS)
            if found:
                adapter.require_fits(checkpoint)
            else:
                with pytest.raises(InputError, match="fits no weight of"):
                    adapter.require_fits(checkpoint)


@pytest.mark.parametrize("settings", [[], "text", {}])
def test_damaged_settings_are_named(settings: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=SETTINGS):
        Adapter.read(write(tmp_path / "adapter", settings))


def test_a_missing_file_names_the_key(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    raw["checkpoints"]["toy-rl"]["adapter"] = str(write(tmp_path / "adapter"))
    (tmp_path / "adapter" / WEIGHTS).unlink()
    with pytest.raises(InputError, match=rf"checkpoints\.toy-rl\.adapter: .* has no {WEIGHTS}"):
        make_grid(raw).inputs.fingerprint("toy-rl")


def test_ids_follow_the_checkpoint_and_the_adapter(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """RL as an adapter on Base is another checkpoint than Base, and than any other adapter on it."""
    base, rl = raw["checkpoints"]["toy-base"], raw["checkpoints"]["toy-rl"]

    def ids(**settings: Any) -> tuple[str, str]:
        raw["checkpoints"]["toy-rl"] = rl | settings
        grid = make_grid(raw)
        return grid.inputs.fingerprint("toy-base"), grid.inputs.fingerprint("toy-rl")

    one, other = write(tmp_path / "one"), write(tmp_path / "other", PLAIN | {"lora_alpha": 32})
    third = write(tmp_path / "third", weights=b"others")
    alone = ids()
    found = [ids(path=base["path"], adapter=str(path)) for path in (one, other, third)]
    assert {before for before, _ in found} == {alone[0]}
    assert len({alone[0], alone[1], *(after for _, after in found)}) == 5
    assert ids(path=base["path"], adapter=str(one)) == found[0]


def test_an_adapter_of_another_checkpoint_is_refused_before_anything_runs(
    raw: Raw, make_grid: Make, tmp_path: Path
) -> None:
    """The checkpoint of this study has one vector; no matrix fits it."""
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    header = json.dumps({name: {"dtype": "F32", "shape": [8, 2], "data_offsets": [0, 64]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(64)
    raw["checkpoints"]["toy-rl"]["adapter"] = str(write(tmp_path / "adapter", weights=weights))
    with pytest.raises(InputError, match=r"checkpoints\.toy-rl\.adapter: .*q_proj.* fits no weight"):
        make_grid(raw).inputs.require_whole("toy-rl")
