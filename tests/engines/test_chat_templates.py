"""A tokenizer's own chat template: the token ids of transformers, the same samples on both engines, clear refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from chat_forms import FORMS, QUESTIONS, with_llamas, write_form, write_tokenizer  # noqa: E402
from searchlens.benchmarks import Question, prompts  # noqa: E402
from searchlens.benchmarks.prompter import Prompter  # noqa: E402
from searchlens.cli.study import check  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.plan import Grid  # noqa: E402
from searchlens.sampling import generate  # noqa: E402
from searchlens.store import chat  # noqa: E402
from searchlens.store.chat import ChatTemplate  # noqa: E402
from searchlens.store.specials import Specials  # noqa: E402
from test_specials import edit  # noqa: E402
from test_template_ids import raw  # noqa: E402

__all__ = ["raw"]  # fixture

Make = Callable[[dict[str, Any]], Grid]
BOXED = "{}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
SYSTEM = " Only {answer} in\n\n“one” word.\t"
WORKED = [
    ("What is 1+1?", "It is \\boxed{2}."),
    (" Let {x}=2.\n", "\n  Then <b> x²=4 \n"),
    ("三加四？", "\\boxed{7} 🙂"),
]
QUESTION = Question("q", "What is 2+3?", "5")
TURN = "{{ messages[-1].content }}"
BASE, RL = "toy-base", "toy-rl"


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a form, made when it is first asked for."""
    root = tmp_path_factory.mktemp("forms")
    return lambda name: root / name if (root / name).exists() else write_form(root / name, FORMS[name])


@pytest.fixture
def template_of(raw: dict[str, Any], make_grid: Make) -> Callable[..., prompts.Template]:
    """The template of a folder, as a study has it with one key."""

    def made(folder: Path, **family: Any) -> prompts.Template:
        raw["templates"] = {"mine": {**vars(prompts.families()["chat"]), **family}}
        raw["checkpoints"][BASE] |= {"path": str(folder), "template": "mine" if family else "chat"}
        return make_grid(raw).inputs.template(BASE, "sums")

    return made


# ---- the ids of transformers


@pytest.mark.parametrize("worked", [False, True], ids=["", "worked"])
@pytest.mark.parametrize("system", ["", SYSTEM], ids=["", "system"])
@pytest.mark.parametrize("name", FORMS)
def test_prompts_are_those_of_transformers(
    raw: dict[str, Any], tmp_path: Path, folder_of: Any, template_of: Any, name: str, system: str, worked: bool
) -> None:
    folder, form = folder_of(name), FORMS[name]
    family: dict[str, Any] = {"system": system} if system else {}
    family |= {"chat": form.arguments} if form.arguments else {}
    if worked:
        rows = [{"question": question, "answer": answer} for question, answer in WORKED]
        (tmp_path / "worked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        raw["benchmarks"]["sums"] |= {"examples": {"path": "worked.jsonl", "count": 3}}
    as_is = worked == bool(system)
    raw["benchmarks"]["sums"] |= {"wording": "as-is"} if as_is else {}
    found = Prompter(folder, template_of(folder, **family)).prompts(QUESTIONS)

    wording = "{}" if as_is else BOXED
    before = [{"role": "system", "content": system}] if system else []
    for question, answer in WORKED if worked else ():
        before.append({"role": "user", "content": wording.format(question.strip())})
        before.append({"role": "assistant", "content": answer.strip()})
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    how = {"add_generation_prompt": True, "tokenize": True, "return_dict": False, **form.arguments}
    for question, tokens in zip(QUESTIONS, found, strict=True):
        messages = [*before, {"role": "user", "content": wording.format(question.text)}]
        assert list(tokens) == theirs.apply_chat_template(messages, **how), question
    if form.begin:
        assert theirs.convert_ids_to_tokens(list(found[0][:2]))[0] == form.begin != found[0][1]


def test_thinking_is_an_argument(folder_of: Any, template_of: Any) -> None:
    ends = []
    for family in ({}, {"chat": {"enable_thinking": False}}, {"chat": {"enable_thinking": True}}):
        (text,) = Prompter(folder_of("qwen3"), template_of(folder_of("qwen3"), **family)).texts([QUESTION])
        ends.append(text.rpartition("<|im_start|>assistant\n")[2])
    assert ends == ["", "<think>\n\n</think>\n\n", ""]


def test_an_argument_that_a_template_does_not_name_is_noted(folder_of: Any, template_of: Any) -> None:
    arguments = {"enable_thinkin": False, "enable_thinking": False}
    notes = Prompter(folder_of("qwen3"), template_of(folder_of("qwen3"), chat=arguments)).notes
    (said,) = (note for note in notes if "argument" in note)
    assert said == "the chat template does not name enable_thinkin, an argument of `chat`, which so changes no prompt"


NAMES = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ image_token }}|{{ my_token }}|{{ cls_token }}|"
"""Tokens that a template may name."""


@pytest.mark.parametrize(
    ("settings", "older"),
    [
        ({"bos_token": None}, {}),
        ({"unk_token": {"content": "</s>", "__type": "AddedToken"}, "add_bos_token": True, "cls_token": "</s>"}, {}),
        ({"eos_token": ...}, {"eos_token": {"content": "[INST]", "lstrip": False}}),
        ({"eos_token": "</s>"}, {"eos_token": "[INST]"}),
        ({"eos_token": "</s>", "added_tokens_decoder": {}}, {"eos_token": "[INST]", "bos_token": "</s>"}),
        ({"image_token": "[INST]", "extra_special_tokens": {"my_token": "[/INST]"}}, {}),
        ({"chat_template": {"default": "{{ eos_token }}" + TURN, "rag": ""}}, {}),
        ({"chat_template": [{"name": "default", "template": each + TURN} for each in "ab"]}, {}),
    ],
)
def test_settings_mean_what_they_mean_to_transformers(
    tmp_path: Path, template_of: Any, settings: dict[str, Any], older: dict[str, Any]
) -> None:
    folder = write_form(tmp_path / "form", FORMS["mistral"], NAMES + TURN)
    edit(folder / "tokenizer_config.json", **settings)
    edit(folder / "special_tokens_map.json", **older)
    arguments = {"cls_token": "[INST]"}  # an argument comes before a token of the same name
    (found,) = Prompter(folder, template_of(folder, math=None, chat=arguments)).prompts([QUESTION])
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": QUESTION.text}]
    how = {"add_generation_prompt": True, "return_dict": False, **arguments}
    assert list(found) == theirs.apply_chat_template(messages, **how)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
        "{% for m in messages %}{% generation %}\n  {{ m.role }}\n{% endgeneration %}{% endfor %}",
        "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}"
        "{% endfor %}",
    ],
    ids=["tojson", "generation", "loops"],
)
def test_what_transformers_adds_to_jinja_is_there(tmp_path: Path, template_of: Any, template: str) -> None:
    folder = write_form(tmp_path / "form", FORMS["qwen2.5"], template + TURN)
    question = replace(QUESTION, text="Is 2 < 3 & \"é\" > 'e'? 求")
    (found,) = Prompter(folder, template_of(folder, math=None)).prompts([question])
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": question.text}]
    assert list(found) == theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def test_a_prompt_does_not_depend_on_the_working_directory(
    folder_of: Any, template_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it run what lies there under the name of a library."""
    prompter = Prompter(folder_of("phi4"), template_of(folder_of("phi4")))
    before = prompter.prompts(QUESTIONS)
    for name in ("jinja2", "json", "searchlens"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another one')")
    monkeypatch.chdir(tmp_path)
    assert prompter.prompts(QUESTIONS) == before


# ---- where answers end


@pytest.mark.parametrize("name", FORMS)
def test_the_token_after_an_answer_ends_it_although_no_file_says_so(
    tmp_path: Path, template_of: Any, name: str
) -> None:
    form = FORMS[name]
    other = replace(form, named={**form.named, "eos_token": form.marks[-1] if form.end == "</s>" else "<no token>"})
    folder = write_form(tmp_path / "form", other, form.template.replace("eos_token", repr(form.end)))
    if name == "olmo2":  # which may not end where it begins
        edit(folder / "tokenizer_config.json", pad_token=...)
    template = template_of(folder, **({"chat": form.arguments} if form.arguments else {}))
    prompter = Prompter(folder, template)
    end = prompter.tokenizer.token_to_id(form.end)
    assert end not in Specials.read(folder).ends and end in prompter.stop_ids
    assert end not in Prompter(folder, prompts.template("zoo")).stop_ids
    assert set(prompter.stop_ids) == {*Specials.read(folder).ends, end}
    assert end not in prompter.masked


@pytest.mark.parametrize(
    "template",
    [
        "<|im_start|>{{ messages[-1].content if messages[-1].role == 'user' }}",
        "<|im_start|>{{ messages[0].content }}",
        "{{ messages|map(attribute='content')|join }}{% if add_generation_prompt %}<|im_start|>{% endif %}",
    ],
)
def test_a_template_without_answers_or_ends_of_them_ends_none(tmp_path: Path, template_of: Any, template: str) -> None:
    folder = write_form(tmp_path / "form", FORMS["qwen2.5"], template)
    prompter = Prompter(folder, template_of(folder))
    assert prompter.stop_ids == Specials.read(folder).ends
    assert len(prompter.prompts([QUESTION])[0]) > 1


# ---- templates that cannot be used

ALTERNATE = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + TURN
BAD = {
    "raises": ("{{ raise_exception('none\n\nof \x1b[1mthese') }}", r"refuses the conversation: none of \[1mthese"),
    "refuses a system turn": (ALTERNATE, "refuses the conversation: no system turn"),
    "asks for the date": (
        "{{ strftime_now('%d %b %Y') }}" + TURN,
        r"prints today's date, by which prompts of two days differ: give a date as an argument of `chat`",
    ),
    "is no Jinja": ("{% if %}", r"fails: TemplateSyntaxError: Expected an expression, got .*"),
    "writes half of a character": ("{{ '\\ud800' }}", "fails: UnicodeEncodeError: .*surrogates not allowed"),
    "is half of a character": ("\ud800", "fails: UnicodeEncodeError: .*surrogates not allowed"),
    "wants Python": ("{{ ''.__class__.__mro__ }}", r"fails: SecurityError: access to attribute '__class__' .*"),
    "wants a file": ("{% include '/etc/hostname' %}", r"fails: TypeError: no loader .*"),
    "wants random text": ("{{ lipsum() }}", "fails: UndefinedError: 'lipsum' is undefined"),
    "wants something random": ("{{ [1, 2] | random }}", "fails: TemplateAssertionError: No filter named 'random'.*"),
    "needs endless memory": ("{{ messages[0].content * 10 ** 11 }}", "fails: MemoryError"),
    "writes endless text": ("{% for i in range(3000) %}{{ 'a' * 10 ** 6 }}{% endfor %}", "fails: MemoryError"),
    "calls itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails: RecursionError: .*"),
    "loops": ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", r"does not end .*1 s"),
    "has an endless constant": ("{{ 10 ** (10 ** 10) }}", "does not end within 1 s"),
    "asks the system for ever": (
        "{% for i in range(99999) %}{% set x = messages[0].content * 10 ** 8 %}{% endfor %}",
        "does not end within 1 s",
    ),
}


@pytest.mark.parametrize(("template", "says"), BAD.values(), ids=BAD)
def test_a_template_that_fails_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, template: str, says: str) -> None:
    monkeypatch.setattr(chat, "_SECONDS", 1)
    turns = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    with pytest.raises(InputError) as refused:
        ChatTemplate(template, {}).render(Path("some/folder"), [turns], {})
    assert re.fullmatch(f"some/folder: the chat template {says}", refused.value.message)
    assert "system" in refused.value.hint and "templates.md" in refused.value.hint


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ bos_token * 2 }}" + TURN, r".*/form/tokenizer\.json begins a prompt with <s> \(\d+\), <s> \(\d+\)"),
        ("{{ bos_token }}Hello!", r".*/form: its chat template leaves out question q0, or changes its text"),
        (TURN[:-3] + "|upper }}", r".*/form: its chat template leaves out question q0, or changes its text"),
        ("{{ raise_exception('never') }}", r".*/form: the chat template refuses the conversation: never"),
        ("{% if messages|length > 1 %}{{ x() }}{% endif %}" + TURN, None),  # only what follows an answer fails
    ],
)
def test_check_says_what_no_job_would_ask(
    raw: dict[str, Any], make_grid: Make, tmp_path: Path, template: str, says: str | None
) -> None:
    """By the words of ``searchlens check``, one line for each reason."""
    folder = write_form(tmp_path / "form", FORMS["mistral"], template)
    raw["checkpoints"][BASE] |= {"path": str(folder), "template": "chat"}
    missing = check(make_grid(raw))["missing"]
    if says is None:
        assert missing == []
        return
    (reason,) = missing
    assert re.fullmatch(rf"checkpoints\.{BASE}: {says} \(.+\)", reason)
    assert reason.isprintable()


def test_a_template_that_quotes_the_question_in_its_error_shows_none_of_it() -> None:
    template = ChatTemplate("{{ raise_exception('cannot answer ' + messages[-1].content) }}", {})
    with pytest.raises(InputError) as error:
        template.render(Path("form"), [[{"role": "user", "content": "a gated question\n"}]], {})
    assert error.value.message == "form: the chat template refuses the conversation: cannot answer …"


def test_a_date_that_is_given_is_used_and_no_other(folder_of: Any, template_of: Any) -> None:
    folder = folder_of("llama3.2")
    with pytest.raises(InputError, match="prints today's date"):
        Prompter(folder, template_of(folder)).prompts([QUESTION])[0]
    (text,) = Prompter(folder, template_of(folder, chat={"date_string": "29 Feb 2400"})).texts([QUESTION])
    assert "It is the 29 Feb 2400.\n" in text
    (text,) = Prompter(folder_of("llama3.1"), template_of(folder_of("llama3.1"))).texts([QUESTION])
    assert "It is the 26 May 2024.\n" in text


@pytest.mark.parametrize(
    "none",
    [
        *(..., None, "", [], {}, ["x"], [{"name": "default"}], [{"name": "rag", "template": TURN}]),
        [{"name": [], "template": TURN}],
    ],
)
def test_a_checkpoint_without_a_template_is_named(
    raw: dict[str, Any], make_grid: Make, tmp_path: Path, none: Any
) -> None:
    edit(write_form(tmp_path / "form", FORMS["qwen2.5"]) / "tokenizer_config.json", chat_template=none)
    raw["checkpoints"][BASE] |= {"path": "form", "template": "chat"}
    with pytest.raises(InputError) as refused:
        check(make_grid(raw))
    assert refused.value.message == (
        f"checkpoints.{BASE}.template: its tokenizer has no chat template, neither chat_template.jinja nor"
        " chat_template in tokenizer_config.json"
    )


def test_a_folder_that_is_not_there_is_not_said_to_lack_a_template(raw: dict[str, Any], make_grid: Make) -> None:
    raw["checkpoints"][BASE] |= {"path": "nowhere", "template": "chat"}
    with pytest.raises(InputError, match=rf"^checkpoints\.{BASE}\.path: checkpoint folder .*nowhere does not exist"):
        make_grid(raw).jobs.generations(BASE, "sums")


def test_a_damaged_file_is_named(raw: dict[str, Any], make_grid: Make, tmp_path: Path) -> None:
    path = write_form(tmp_path / "form", FORMS["smollm2"]) / "chat_template.jinja"
    raw["checkpoints"][BASE] |= {"path": "form", "template": "chat"}
    path.write_bytes(b"{{ messages }}\xff\xfe")
    with pytest.raises(InputError, match=r"/chat_template\.jinja is not text in UTF-8: byte 15 is 0xff"):
        check(make_grid(raw))
    path.write_bytes(b"")
    with pytest.raises(InputError, match=rf"checkpoints\.{BASE}\.template: its tokenizer has no chat template"):
        check(make_grid(raw))
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"cannot read .*/chat_template\.jinja: Is a directory"):
        check(make_grid(raw))


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3"])
def test_another_template_than_the_planned_one_asks_nothing(tmp_path: Path, template_of: Any, name: str) -> None:
    folder = write_form(tmp_path / "form", FORMS[name])
    template = template_of(folder)
    write_tokenizer(folder, FORMS[name], FORMS[name].template + " ")
    with pytest.raises(InputError, match="form: its chat template has changed since the study was planned"):
        Prompter(folder, template).prompts([QUESTION])[0]


# ---- samples


@pytest.fixture
def llama(raw: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The toy study with two such models; one key makes their prompts."""
    return with_llamas(raw, tmp_path)


def drawn(grid: Grid, checkpoint: str) -> Iterator[tuple[str, pl.DataFrame, dict[str, Any]]]:
    """Policy, samples and record of every shard, after they were drawn."""
    for pool in grid.jobs.pools(checkpoint, "sums"):
        generate(grid, checkpoint, "sums", grid.current_manifest(pool))
    for generation in grid.jobs.generations(checkpoint, "sums"):
        for shard in grid.stored(checkpoint, "sums", generation):
            frame = pl.read_parquet(shard.path).sort("question", "sample")
            yield generation.policies[0], frame, json.loads(shard.sidecar["specials"])


def test_one_key_makes_samples_of_a_llama(llama: dict[str, Any], make_grid: Make, tmp_path: Path) -> None:
    """Also if a template takes no empty question, of which a shard has no prompt."""
    strict = "{% if not messages[-1].content | trim %}{{ raise_exception('empty') }}{% endif %}"
    edit(tmp_path / "rl/tokenizer_config.json", chat_template=strict + FORMS["llama3.1"].template)
    llama["benchmarks"]["sums"]["wording"] = "as-is"
    grid = make_grid(llama)
    assert check(grid)["missing"] == []
    end = Prompter(tmp_path / "base", grid.inputs.template(BASE, "sums")).tokenizer.token_to_id("<|eot_id|>")
    for checkpoint in (BASE, RL):
        found = list(drawn(grid, checkpoint))
        assert sorted(frame.height for _, frame, _ in found) == [6, 24, 24, 24]
        for _, frame, record in found:
            assert record["stops"] == sorted([end, end - 3]) and len(record["prompt"]) > 50
            assert not any({end, end - 3} & set(tokens[:-1]) for tokens in frame["tokens"])
