"""Where texts begin and end, and what is never drawn: as the files of a checkpoint say, on both engines, and in its id.

The checkpoints are small, and lie as people have them: with ends in three files, pads that end texts, rows without a
token, and settings of the training in the tokenizer.
"""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from conftest import Logged, Make, Patch, Raw, word_tokenizer
from searchlens.benchmarks import Question, prompts
from searchlens.benchmarks.prompter import Prompter
from searchlens.cli import plan
from searchlens.cli import tools as pin
from searchlens.cli.study import check
from searchlens.cli.verify import verify
from searchlens.config.check import validate
from searchlens.engines.base import Request, Sampling, complete
from searchlens.engines.transformers import TransformersEngine
from searchlens.errors import InputError
from searchlens.plan import Grid, pins
from searchlens.sampling import generate
from searchlens.store.specials import Specials

WORDS = ["<s>", "<end>", "<im_end>", "<pad>", "?", *(f"w{i}" for i in range(25))]
BOS, END, IM_END, PAD, COUNT, ROWS = 0, 1, 2, 3, 30, 40
"""The tokenizer has ``COUNT`` tokens, the embedding ``ROWS`` rows."""


def write(folder: Path, seed: int = 0, rows: int = COUNT, **files: dict[str, Any]) -> Path:
    """A checkpoint with random weights. Keys of its files change by ``files``, such as ``generation_config={...}``."""
    import transformers

    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"bos_token_id": None, "eos_token_id": END, "pad_token_id": PAD}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=rows, **ends))
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(word_tokenizer(WORDS, special=4)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "pad_token": "<pad>"}))
    for name, changes in files.items():
        edit(folder / f"{name}.json", **changes)
    return folder


def edit(path: Path, **changes: Any) -> None:
    content = (json.loads(path.read_text()) if path.exists() else {}) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


@pytest.fixture
def study(raw: Raw, tmp_path: Path) -> dict[str, Any]:
    """The toy study with checkpoints that can be sampled."""
    for place, side in enumerate(("base", "rl")):
        shutil.rmtree(tmp_path / side)
        write(tmp_path / side, place)
    return raw


def to_make(grid: Grid) -> dict[str, int]:
    """Generations that a run would draw, by checkpoint."""
    return {cell["checkpoint"]: cell["to_make"] for cell in plan.answer(grid)["cells"]}


def sample(grid: Grid, checkpoint: str = "toy-base") -> None:
    for pool in grid.jobs.pools(checkpoint, "sums"):
        generate(grid, checkpoint, "sums", grid.current_manifest(pool))


@pytest.mark.parametrize(
    ("files", "ends", "masked"),
    [
        ({}, (END,), [PAD]),
        ({"generation_config": {"eos_token_id": [END, IM_END]}}, (END, IM_END), [PAD]),
        ({"generation_config": {"eos_token_id": []}}, (END,), [PAD]),
        ({"generation_config": {"eos_token_id": -1}}, (END,), [PAD]),
        ({"tokenizer_config": {"eos_token": "<im_end>"}}, (END, IM_END), [PAD]),
        ({"tokenizer_config": {"eos_token": {"content": "<im_end>"}}}, (END, IM_END), [PAD]),
        (
            {"tokenizer_config": {"eos_token": ...}, "special_tokens_map": {"eos_token": "<im_end>"}},
            (END, IM_END),
            [PAD],
        ),
        ({"config": {"eos_token_id": None}, "generation_config": {"eos_token_id": None}}, (END,), [PAD]),
        ({"config": {"pad_token_id": None}}, (END,), [PAD]),
        ({"config": {"pad_token_id": -1}, "tokenizer_config": {"pad_token": None}}, (END,), []),
        ({"config": {"pad_token_id": COUNT}, "tokenizer_config": {"pad_token": None}}, (END,), []),
        ({"tokenizer_config": {"pad_token": None}}, (END,), [PAD]),
        ({"tokenizer_config": {"pad_token": "<end>"}}, (END,), []),
        ({"tokenizer_config": {"pad_token": "<unknown>"}}, (END,), [PAD]),
    ],
)
def test_ends_and_pads_are_those_of_all_files(tmp_path: Path, files: Any, ends: Any, masked: list[int]) -> None:
    specials = Specials.read(write(tmp_path, **files))
    assert (set(specials.ends), specials.masked(specials.ends)) == (set(ends), tuple(masked))


@pytest.mark.parametrize("value", ["1", [0, [5]], True, 1.0, COUNT, [END, COUNT], {"id": 1}])
@pytest.mark.parametrize("name", ["config", "generation_config"])
def test_an_end_that_is_no_id_is_one_clear_line(
    study: Raw, make_grid: Make, tmp_path: Path, name: str, value: Any
) -> None:
    edit(tmp_path / "base" / f"{name}.json", eos_token_id=value)
    with pytest.raises(
        InputError, match=rf"{name}\.json: eos_token_id is .*; allowed: a token id from 0 to {COUNT - 1}"
    ):
        check(make_grid(study))


def test_a_checkpoint_without_an_end_is_refused_unless_the_study_names_one(
    study: Raw, make_grid: Make, tmp_path: Path
) -> None:
    for name in ("config", "generation_config"):
        edit(tmp_path / f"base/{name}.json", eos_token_id=...)
    edit(tmp_path / "base/tokenizer_config.json", eos_token=...)
    with pytest.raises(InputError, match=r"checkpoints\.toy-base: no file names a token that ends a text") as refused:
        check(make_grid(study))
    assert "checkpoints.toy-base.stop_tokens" in (refused.value.hint or "")
    study["checkpoints"]["toy-base"]["stop_tokens"] = ["<im_end>", END]
    grid = make_grid(study)
    prompter = Prompter(tmp_path / "base", grid.inputs.template("toy-base", "sums"), ["<im_end>", END])
    assert prompter.stop_ids == (IM_END, END)
    assert all(g.spec["ends"]["stops"] == [END, "<im_end>"] for g in grid.jobs.generations("toy-base", "sums"))


def test_files_that_disagree_are_named(study: Raw, make_grid: Make, tmp_path: Path) -> None:
    edit(tmp_path / "rl/tokenizer_config.json", eos_token="<im_end>")
    (note,) = check(make_grid(study))["notes"]
    assert note.startswith(
        "toy-rl: texts end at <end> (1) by generation_config.json; <end> (1) by config.json; <im_end>"
    )


def test_ids_without_a_token_are_ranges(tmp_path: Path) -> None:
    """Also in between, and where the embedding has rows to spare."""
    write(tmp_path, rows=ROWS)
    content = word_tokenizer(WORDS, special=4)
    del content["model"]["vocab"]["w3"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert Specials.read(tmp_path).absent == [[8, 9], [COUNT, ROWS]]


def test_an_added_token_without_a_row_harms_nobody_but_its_prompt(tmp_path: Path) -> None:
    content = word_tokenizer([*WORDS, "<image>"], special=4)
    content["added_tokens"].append({**content["added_tokens"][0], "id": COUNT, "content": "<image>"})
    write(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert "'<image>'" in Specials.read(tmp_path).notes[0]
    prompter = Prompter(tmp_path, prompts.Template("{question}"))
    assert prompter.prompts([Question("q", "w1 w2", "")])[0] == (6, 7)
    with pytest.raises(InputError, match=r"gives a prompt <image> \(30\), which has no row in the model's embedding"):
        prompter.prompts([Question("q", "w1 <image>", "")])[0]


@pytest.mark.parametrize("place", ["config", "tokenizer_config"])
def test_a_pad_that_is_an_ordinary_token_can_be_drawn(tmp_path: Path, place: str) -> None:
    """Such as the first of a vocabulary, "!", which is no more than a habit of trainers."""
    named = "w4" if place == "tokenizer_config" else None
    files = {"config": {"pad_token_id": 9}, "tokenizer_config": {"pad_token": named}}
    specials = Specials.read(write(tmp_path, **files))
    assert specials.masked(specials.ends) == () and not specials.usual
    assert specials.notes == ("the pad token w4 (9) is an ordinary token, which texts may have",)


def test_an_end_without_a_row_ends_nothing(tmp_path: Path) -> None:
    content = word_tokenizer([*WORDS, "<eot>"], special=4)
    content["added_tokens"].append({**content["added_tokens"][0], "id": COUNT, "content": "<eot>"})
    write(tmp_path, config={"eos_token_id": None}, generation_config={"eos_token_id": None})
    edit(tmp_path / "tokenizer_config.json", eos_token="<eot>")
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="has no end-of-sequence token"):
        Prompter(tmp_path, prompts.template("zoo"))
    with pytest.raises(InputError, match=r"'<eot>' is no token that the model of .* can draw"):
        Prompter(tmp_path, prompts.template("zoo"), ["<eot>"])
    turns = prompts.Template("{question}", stop_tokens=("<eot>", "<im_end>"))
    assert Prompter(tmp_path, turns, ["<end>"]).stop_ids == (END, IM_END)


def test_ids_that_the_tokenizer_does_not_use_are_refused(tmp_path: Path) -> None:
    """Its reader numbers added tokens itself; stops and masks by the ids in the file would be those of other tokens."""
    write(tmp_path, rows=ROWS)
    content = word_tokenizer(WORDS, special=4)
    content["added_tokens"].append({**content["added_tokens"][0], "id": COUNT + 5, "content": "<eot>"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"tokenizer\.json: ids of added_tokens are not those"):
        Prompter(tmp_path, prompts.template("zoo"))


@pytest.mark.parametrize("changes", [{"added_tokens": None}, {"model": {"type": "Foo", "vocab": {"a": 0}}}])
def test_a_tokenizer_that_cannot_be_read_is_one_line(
    study: Raw, make_grid: Make, tmp_path: Path, changes: dict[str, Any]
) -> None:
    for name in ("config", "generation_config"):
        edit(tmp_path / f"rl/{name}.json", eos_token_id=None if "model" in changes else END)
    edit(tmp_path / "rl/tokenizer.json", **changes)
    study["checkpoints"]["toy-rl"]["stop_tokens"] = ["a"] if "model" in changes else None
    (reason,) = check(make_grid(study))["missing"]
    assert reason.startswith("checkpoints.toy-rl: ") and "tokenizer.json is no tokenizer: " in reason


@pytest.mark.parametrize(
    ("file", "key", "values"),
    [
        ("generation_config", "eos_token_id", ([IM_END, END], [END, IM_END])),
        ("tokenizer_config", "pad_token", (None, "<end>")),
    ],
    ids=["the order of ends", "a pad that is the end"],
)
def test_what_changes_no_draw_is_no_part_of_the_id(
    study: Raw, make_grid: Make, tmp_path: Path, file: str, key: str, values: tuple[Any, Any]
) -> None:
    """Trainers write a pad where there was none."""
    edit(tmp_path / "rl/config.json", pad_token_id=None)
    ids = []
    for value in values:
        edit(tmp_path / f"rl/{file}.json", **{key: value})
        ids.append([g.id for g in make_grid(study).jobs.generations("toy-rl", "sums")])
    assert ids[0] == ids[1]


def test_an_edit_of_the_ends_samples_that_model_again(study: Raw, make_grid: Make, tmp_path: Path) -> None:
    for checkpoint in ("toy-base", "toy-rl"):
        sample(make_grid(study), checkpoint)
    assert to_make(make_grid(study)) == {"toy-base": 0, "toy-rl": 0}
    edit(tmp_path / "rl/generation_config.json", eos_token_id=[END, *range(10, 20)])
    assert to_make(make_grid(study)) == {"toy-base": 0, "toy-rl": 4}
    edit(tmp_path / "rl/generation_config.json", eos_token_id=END)
    edit(tmp_path / "base/tokenizer_config.json", pad_token="w7")
    assert to_make(make_grid(study)) == {"toy-base": 4, "toy-rl": 0}
    edit(tmp_path / "base/tokenizer_config.json", pad_token="<pad>", padding_side="left", model_max_length=7)
    assert to_make(make_grid(study)) == {"toy-base": 0, "toy-rl": 0}


def as_a_trainer_writes(study: Raw, folder: Path) -> None:
    """Equal weights of a family whose Base ends and pads at one token, and whose RL ends at another."""
    for side, eos in (("base", "<|endoftext|>"), ("rl", "<|im_end|>")):
        write(folder / side)
        renamed = json.dumps(word_tokenizer(WORDS, special=4)).replace("<pad>", "<|endoftext|>")
        (folder / side / "tokenizer.json").write_text(renamed.replace("<im_end>", "<|im_end|>"))
        edit(folder / side / "tokenizer_config.json", eos_token=eos, pad_token="<|endoftext|>")
        for name in ("config", "generation_config"):
            edit(folder / side / f"{name}.json", eos_token_id=IM_END if side == "rl" else PAD)
        study["checkpoints"][f"toy-{side}"]["template"] = "qwen-boxed"
    study["benchmarks"]["sums"] |= {"max_tokens": 30, "wording": "as-is"}


def test_a_pin_that_changes_such_a_file_alone_samples_that_model_again(
    study: Raw, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    study["checkpoints"] = {f"toy-{side}": {"hub": f"org/{side}"} for side in ("base", "rl")}
    study["lock"] = "lock.json"

    def pinned(commit: str) -> Grid:
        for side in ("base", "rl"):
            repository = tmp_path / f"hub/models--org--{side}"
            shutil.copytree(tmp_path / side, repository / "snapshots" / commit)
            (repository / "refs").mkdir(exist_ok=True)
            (repository / "refs/main").write_text(commit)
        grid = Grid(validate(study), root=tmp_path)
        pin.pin(grid.inputs.lock, grid.inputs.sources(), pin.Cache(), update=True)
        return Grid(validate(study), root=tmp_path)

    first = pinned("a" * 40)
    for checkpoint in ("toy-base", "toy-rl"):
        sample(first, checkpoint)
    edit(tmp_path / "rl/generation_config.json", eos_token_id=[END, IM_END])
    later = pinned("b" * 40)
    assert to_make(later) == {"toy-base": 0, "toy-rl": 4}
    snapshot = tmp_path / "hub/models--org--rl/snapshots" / ("b" * 40)
    edit(snapshot / "special_tokens_map.json", eos_token="w5")  # comes with a later download of another program
    with pytest.raises(InputError, match=r"special_tokens_map\.json is not pinned"):
        later.inputs.checked_folder("toy-rl")
    shutil.rmtree(tmp_path / "hub")  # planning needs the lock alone
    assert to_make(Grid(later.config, root=tmp_path)) == {"toy-base": 0, "toy-rl": 4}
    pinned_rl = pins.Lock.read(tmp_path / "lock.json")[pins.Source("org/rl", "main")]
    assert pinned_rl.specials == later.inputs.specials("toy-rl")


def test_rows_without_a_token_are_never_drawn_and_have_no_probability(tmp_path: Path) -> None:
    """As on vLLM; before, a fifth of the tokens of such a model had no text."""
    import transformers

    folder = write(tmp_path, rows=ROWS)
    engine = TransformersEngine(folder, threads=1)
    requests = [Request((5, 6), Sampling(1.0), seed, 8, ()) for seed in range(50)]
    done = [completion for _, completion in complete(engine, requests)]
    drawn = np.concatenate([completion.tokens for completion in done])
    assert len(drawn) == 400 and drawn.max() < COUNT and PAD not in drawn
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for completion in done[:5]:
            ids = torch.tensor([[5, 6, *completion.tokens[:-1].tolist()]])
            logits = model(ids).logits[0, 1:]
            logits[:, [PAD, *range(COUNT, ROWS)]] = -torch.inf
            wanted = logits.log_softmax(-1)[range(8), completion.tokens.tolist()]
            assert np.allclose(completion.logprobs, wanted.numpy(), atol=1e-5)


def test_one_pair_is_drawn_under_one_law(study: Raw, make_grid: Make, tmp_path: Path) -> None:
    """Before, RL could not draw the token at which half of the texts of Base ended."""
    as_a_trainer_writes(study, tmp_path)
    grid = make_grid(study)
    assert grid.jobs.generations("toy-rl", "sums")[0].spec["ends"] == {"stops": [IM_END], "masked": []}
    assert "ends" not in grid.jobs.generations("toy-base", "sums")[0].spec
    for side in ("base", "rl"):
        prompter = Prompter(tmp_path / side, grid.inputs.template(f"toy-{side}", "sums"))
        assert (set(prompter.stop_ids), prompter.masked) == ({IM_END, PAD}, ())
        sample(grid, f"toy-{side}")
        folders = [grid.folder(f"toy-{side}", "sums", g.id) for g in grid.jobs.generations(f"toy-{side}", "sums")]
        texts = [tokens for folder in folders for tokens in pl.read_parquet(folder / "*.parquet")["tokens"].to_list()]
        assert {tokens[-1] for tokens in texts if len(tokens) < 30} == {IM_END, PAD}
        assert not any({IM_END, PAD} & set(tokens[:-1]) for tokens in texts)


PADDED = {"pad_id": PAD, "pad_type_id": 0, "pad_token": "<pad>"}


@pytest.mark.parametrize(
    "section",
    [
        {"truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}},
        {"padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None} | PADDED},
    ],
)
def test_settings_of_the_training_neither_cut_nor_pad_a_prompt(tmp_path: Path, section: dict[str, Any]) -> None:
    folder = write(tmp_path)
    edit(folder / "tokenizer.json", **section)
    question = Question("q", " ".join(f"w{i}" for i in range(25)), "")
    assert Prompter(folder, prompts.Template("{question}")).prompts([question])[0] == tuple(range(5, 30))


def post(*parts: str) -> dict[str, Any]:
    """A post-processor that puts special tokens around the text, ``$A``."""
    single = [
        {"Sequence": {"id": "A", "type_id": 0}} if part == "$A" else {"SpecialToken": {"id": part, "type_id": 0}}
        for part in parts
    ]
    tokens = {part: {"id": part, "ids": [WORDS.index(part)], "tokens": [part]} for part in parts if part != "$A"}
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": tokens}


def test_a_token_after_the_prompt_is_refused_by_name(study: Raw, make_grid: Make, tmp_path: Path) -> None:
    edit(tmp_path / "rl/tokenizer.json", post_processor=post("$A", "<end>"))
    with pytest.raises(InputError, match=r"tokenizer\.json puts <end> \(1\) after a text, where a model would go on"):
        Prompter(tmp_path / "rl", prompts.template("zoo")).prompts([Question("q", "w1", "")])[0]
    assert any("puts <end> (1) after a text" in reason for reason in check(make_grid(study))["missing"])


def test_bos_may_come_again_but_not_twice_at_the_beginning(tmp_path: Path) -> None:
    """SmolLM's BOS is the token with which every turn begins."""
    folder = write(tmp_path, tokenizer_config={"bos_token": "<s>"})
    edit(folder / "tokenizer.json", post_processor=post("<s>", "$A"))
    turns = prompts.Template("<s> w1 {question} <end> <s> w2")
    assert Prompter(folder, turns).prompts([Question("q", "w3", "")])[0] == (BOS, 6, 8, END, BOS, 7)
    with pytest.raises(InputError, match=r"begins a prompt with <s> \(0\), <s> \(0\)"):
        Prompter(folder, prompts.Template("<s> <s> {question}")).prompts([Question("q", "w3", "")])[0]


def test_a_pair_whose_prompts_differ_is_named(study: Raw, make_grid: Make, tmp_path: Path) -> None:
    assert check(make_grid(study))["notes"] == []
    edit(tmp_path / "base/tokenizer.json", post_processor=post("<s>", "$A"))
    (note,) = check(make_grid(study))["notes"]
    assert note.startswith("toy/sums: prompts of toy-base and toy-rl differ, first in question q0 at token 1: <s> (0)")


def test_bos_that_only_its_settings_ask_for_is_said(tmp_path: Path) -> None:
    notes = Specials.read(write(tmp_path, tokenizer_config={"bos_token": "<s>", "add_bos_token": True})).notes
    assert notes == (
        "tokenizer_config.json has add_bos_token, but tokenizer.json, which decides, puts no token before a text",
    )


def test_marks_of_a_template_that_are_no_tokens_are_named(tmp_path: Path) -> None:
    (first, second) = Prompter(write(tmp_path), prompts.template("qwen-boxed")).notes
    assert first.startswith("<|im_start|> of the template is no token of the vocabulary, but ")
    assert second.startswith("<|im_end|> of the template")


def test_a_job_says_and_records_where_texts_end(study: Raw, make_grid: Make, tmp_path: Path, caplog: Logged) -> None:
    grid = make_grid(study)
    with caplog.at_level(logging.INFO, logger="searchlens"):
        sample(grid)
    (line,) = [record.message for record in caplog.records if record.message.startswith("stop tokens")]
    assert line.startswith("stop tokens <end> (1); never drawn: <pad> (3); first prompt: ? ")
    sidecar = next((tmp_path / "results/generations/toy-base/sums").glob("*/*.json"))
    record = json.loads(json.loads(sidecar.read_text())["specials"])
    assert (record["stops"], record["masked"]) == ([END], [[PAD, PAD + 1]])
    assert record["prompt"] == list(
        Prompter(tmp_path / "base", grid.inputs.template("toy-base", "sums")).prompts([Question("", "", "")])[0]
    )


def test_verify_compares_the_record_with_the_folder(study: Raw, make_grid: Make, tmp_path: Path) -> None:
    """A declared hash spares the planner the bytes, so nobody else would notice another tokenizer."""
    grid = make_grid(study)
    study["checkpoints"]["toy-base"]["sha256"] = grid.inputs.fingerprint("toy-base")
    sample(make_grid(study))
    assert verify(tmp_path / "results", study=make_grid(study)).damaged == []
    edit(tmp_path / "base/tokenizer.json", post_processor=post("<s>", "$A"))
    damaged = verify(tmp_path / "results", study=make_grid(study)).damaged
    assert len(damaged) == 4
    assert "was drawn with another prompt than toy-base has now" in damaged[0]
    (tmp_path / "base/tokenizer.json").write_text("{")
    report = verify(tmp_path / "results", study=make_grid(study))
    assert not report.damaged and report.notes[0].startswith("samples are not compared with their checkpoints: ")


def test_an_adapter_beside_the_weights_is_said_not_to_be_added(study: Raw, make_grid: Make, tmp_path: Path) -> None:
    (tmp_path / "rl/adapter_config.json").write_text("{}")
    (note,) = check(make_grid(study))["notes"]
    assert note.startswith("toy-rl: the adapter in ") and "is not added" in note


def test_the_highest_ids_of_a_vocabulary_with_holes_are_looked_at(tmp_path: Path) -> None:
    write(tmp_path, rows=ROWS)
    content = word_tokenizer(WORDS, special=4)
    content["model"]["vocab"]["."] = ROWS - 1
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert Prompter(tmp_path, prompts.template("zoo")).tokens_with(".") == (ROWS - 1,)
