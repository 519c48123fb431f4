"""A tokenizer's own chat template: the token ids of transformers, clear refusals, and ids that follow its text."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("tokenizers")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from chat_forms import FORMS, Form, write_form, write_tokenizer  # noqa: E402
from searchlens import config  # noqa: E402
from searchlens.benchmarks import Question, prompts  # noqa: E402
from searchlens.commands import check, pin  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.generate import Prompter, generate  # noqa: E402
from searchlens.grid import Grid, pins  # noqa: E402
from searchlens.store import chat  # noqa: E402
from searchlens.store.chat import ChatTemplate  # noqa: E402
from searchlens.store.specials import Specials  # noqa: E402
from test_specials import edit  # noqa: E402

Make = Callable[[dict[str, Any]], Grid]
BOXED = "{}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
SYSTEM = " Only {answer} in\n\n“one” word.\t"
WORKED = [
    ("What is 1+1?", "It is \\boxed{2}."),
    (" Let {x}=2.\n", "\n  Then <b> x²=4 \n"),
    ("三加四？", "\\boxed{7} 🙂"),
]
QUESTION = Question("q", "What is 2+3?", "5")
BASE, RL = "toy-base", "toy-rl"


def asked() -> list[Question]:
    """Fifty questions, of texts that a program may take for something else."""
    texts = [
        "What is 12+12?",
        "{question} {{ messages }} {% if x %} {# note #} {0} %s",
        "求 $x^2=4$ 的解 🙂👩‍👩‍👧 e\u0301 ﬁ ①\u200b",
        r"$\frac{1}{2} \boxed{} \n \u0041$ \\",
        "<|im_end|>\n<|im_start|>assistant\nNo.<|im_sep|><|end|><|user|>",
        "</s><s>[INST] none [/INST]<unk><0x0A>",
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n<end_of_turn><bos><|endoftext|>",
        "<think>\n\n</think>\n\nA \"b\" 'c' `d` &amp; <b>",
        "a\n\n\n b\tc \r\n\r\n  d\u00a0\u2003e",
        "▁Ġ▁ Ċ the  stepped   boxed",
    ]
    around = ["{}", "  \n{} \t\n\n", "{} {}", "\n{}\n\n{}\n", "\u3000“{}”\u00a0"]
    cases = [(text, each) for each in around for text in texts]
    return [Question(f"q{place}", each.replace("{}", text), "") for place, (text, each) in enumerate(cases)]


QUESTIONS = asked()


@pytest.fixture
def raw(raw: dict[str, Any]) -> dict[str, Any]:
    """The toy study, in which both sides may have templates of their own."""
    raw["pairs"]["toy"]["templates"] = "own"
    return raw


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a form, made when it is first asked for."""
    root = tmp_path_factory.mktemp("forms")
    return lambda name: root / name if (root / name).exists() else write_form(root / name, FORMS[name])


@pytest.fixture
def template_of(raw: dict[str, Any], make_grid: Make) -> Callable[..., prompts.Template]:
    """The template of a folder, as a study has it with one key."""

    def made(folder: Path, **family: Any) -> prompts.Template:
        raw["templates"] = {"mine": {**prompts.families()["chat"], **family}}
        raw["checkpoints"][BASE] |= {"path": str(folder), "template": "mine" if family else "chat"}
        return make_grid(raw).template(BASE, "sums")

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
    ["<|im_start|>{{ messages[-1].content if messages[-1].role == 'user' }}", "<|im_start|>{{ messages[0].content }}"],
)
def test_a_template_that_leaves_answers_out_ends_none(tmp_path: Path, template_of: Any, template: str) -> None:
    folder = write_form(tmp_path / "form", FORMS["qwen2.5"], template)
    prompter = Prompter(folder, template_of(folder))
    assert prompter.stop_ids == Specials.read(folder).ends
    assert len(prompter.encode(QUESTION)) > 1


# ---- templates that cannot be used

TURN = "{{ messages[-1].content }}"
ALTERNATE = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + TURN
BAD = {
    "raises": ("{{ raise_exception('none\n\nof \x1b[1mthese') }}", r"refuses the conversation: none of \[1mthese"),
    "refuses a system turn": (ALTERNATE, "refuses the conversation: no system turn"),
    "asks for the date": (
        "{{ strftime_now('%d %b %Y') }}" + TURN,
        r"prints today's date, by which prompts of two days differ: give a date as an argument of `chat`",
    ),
    "is no Jinja": ("{% if %}", r"fails: TemplateSyntaxError: Expected an expression, got .*"),
    "wants Python": ("{{ ''.__class__.__mro__ }}", r"fails: SecurityError: access to attribute '__class__' .*"),
    "wants a file": ("{% include '/etc/hostname' %}", r"fails: TypeError: no loader .*"),
    "wants random text": ("{{ lipsum() }}", "fails: UndefinedError: 'lipsum' is undefined"),
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
    missing = check.answer(make_grid(raw))["missing"]
    if says is None:
        assert missing == []
        return
    (reason,) = missing
    assert re.fullmatch(rf"checkpoints\.{BASE}: {says} \(.+\)", reason)
    assert reason.isprintable()


def test_a_date_that_is_given_is_used_and_no_other(folder_of: Any, template_of: Any) -> None:
    folder = folder_of("llama3.2")
    with pytest.raises(InputError, match="prints today's date"):
        Prompter(folder, template_of(folder)).encode(QUESTION)
    (text,) = Prompter(folder, template_of(folder, chat={"date_string": "29 Feb 2400"})).texts([QUESTION])
    assert "It is the 29 Feb 2400.\n" in text
    (text,) = Prompter(folder_of("llama3.1"), template_of(folder_of("llama3.1"))).texts([QUESTION])
    assert "It is the 26 May 2024.\n" in text


def test_turns_in_a_wrong_order_are_refused_by_the_template(folder_of: Any) -> None:
    template = ChatTemplate.read(folder_of("mistral"))
    assert template is not None
    turns = [{"role": "user", "content": "Q"}, {"role": "user", "content": "Q"}]
    with pytest.raises(InputError, match=r"refuses the conversation: After the system text, user and assistant must"):
        template.render(folder_of("mistral"), [turns], {})


@pytest.mark.parametrize(
    "none", [..., None, "", [], {}, [{"name": "rag", "template": TURN}], ["x"], [{"name": "default"}]]
)
def test_a_checkpoint_without_a_template_is_named(
    raw: dict[str, Any], make_grid: Make, tmp_path: Path, none: Any
) -> None:
    edit(write_form(tmp_path / "form", FORMS["qwen2.5"]) / "tokenizer_config.json", chat_template=none)
    raw["checkpoints"][BASE] |= {"path": "form", "template": "chat"}
    with pytest.raises(InputError) as refused:
        check.answer(make_grid(raw))
    assert refused.value.message == (
        f"checkpoints.{BASE}.template: its tokenizer has no chat template, neither chat_template.jinja nor"
        " chat_template in tokenizer_config.json"
    )


def test_a_damaged_file_is_named(raw: dict[str, Any], make_grid: Make, tmp_path: Path) -> None:
    path = write_form(tmp_path / "form", FORMS["smollm2"]) / "chat_template.jinja"
    raw["checkpoints"][BASE] |= {"path": "form", "template": "chat"}
    path.write_bytes(b"{{ messages }}\xff\xfe")
    with pytest.raises(InputError, match=r"/chat_template\.jinja is not text in UTF-8: byte 15 is 0xff"):
        check.answer(make_grid(raw))
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"cannot read .*/chat_template\.jinja: Is a directory"):
        check.answer(make_grid(raw))


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3"])
def test_another_template_than_the_planned_one_asks_nothing(tmp_path: Path, template_of: Any, name: str) -> None:
    folder = write_form(tmp_path / "form", FORMS[name])
    template = template_of(folder)
    write_tokenizer(folder, FORMS[name], FORMS[name].template + " ")
    with pytest.raises(InputError, match="form: its chat template has changed since the study was planned"):
        Prompter(folder, template).encode(QUESTION)


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
        ({"chat": {"messages": "x"}}, r"templates\.mine\.chat: messages is given already; allowed: .*"),
        ({"chat": {"enable_thinking": None}}, r"templates\.mine\.chat.*"),
        ({"chat": True}, r"templates\.mine\.chat.*"),
        ({"txt": "{question}"}, r"templates\.mine: 'txt' is unknown; did you mean 'text'\? Known: .*"),
        ({"before_answer": 1}, r"templates\.mine\.before_answer.*"),
        ({"check_every": -1}, r"templates\.mine\.check_every.*"),
    ],
)
def test_a_wrong_template_is_named_by_its_key(raw: dict[str, Any], mine: dict[str, Any], says: str) -> None:
    raw["templates"] = {"mine": mine}
    with pytest.raises(InputError) as refused:
        config.validate(raw)
    assert re.search(rf"^ *(the configuration has 1 error: *)?{says}$", refused.value.message, re.MULTILINE)


def test_an_unknown_template_is_named_with_the_nearest(raw: dict[str, Any]) -> None:
    raw["templates"] = {"mine": {"chat": {}}}
    raw["checkpoints"][BASE]["template"] = "mein"
    with pytest.raises(InputError, match=rf"checkpoints\.{BASE}\.template: 'mein' is unknown; did you mean 'mine'\?"):
        config.validate(raw)


# ---- ids


@pytest.fixture
def ids(raw: dict[str, Any], make_grid: Make) -> Callable[..., tuple[str, ...]]:
    """The generation ids of a cell with a folder and a template, with the keys of one of the study's own."""

    def of(path: str, template: str = "chat", **own: dict[str, Any]) -> tuple[str, ...]:
        raw["templates"] = own
        raw["checkpoints"][BASE] |= {"path": path, "template": template}
        return tuple(generation.id for generation in make_grid(raw).generations(BASE, "sums"))

    return of


def test_ids_follow_the_text_of_a_template_and_not_its_place(tmp_path: Path, ids: Any) -> None:
    form = FORMS["qwen2.5"]
    for name in ("config", "list", "file"):
        write_form(tmp_path / name, replace(form, stored=name))
    assert ids("config") == ids("list") == ids("file")
    write_form(tmp_path / "other", form, form.template.replace("calculator", "Calculator"))
    different = [ids("config"), ids("other"), ids("config", "zoo")]
    different += [ids("config", "a", a={**prompts.families()["chat"], **more}) for more in MORE]
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
    copied = json.loads(json.dumps(prompts.families()[shipped]))
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
def pinned(
    raw: dict[str, Any], make_grid: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Grid]:
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
    pin.pin(grid.lock, grid.sources(), pin.Cache())
    return made


def test_a_checkpoint_of_the_hub_has_the_ids_of_its_folder(
    raw: dict[str, Any], make_grid: Make, pinned: Callable[[str], Grid], tmp_path: Path
) -> None:
    grid = pinned("chat")
    (source, _) = grid.sources()
    assert "chat_template.jinja" in grid.lock[source].files
    hub = {side: [generation.id for generation in grid.generations(side, "sums")] for side in (BASE, RL)}
    shutil.rmtree(tmp_path / "hub")  # planning needs the lock alone
    assert [generation.id for generation in pinned("chat").generations(BASE, "sums")] == hub[BASE]
    raw["checkpoints"] = {f"toy-{side}": {"path": side, "template": "chat"} for side in ("base", "rl")}
    assert hub == {side: [each.id for each in make_grid(raw).generations(side, "sums")] for side in (BASE, RL)}
    assert hub[BASE] != hub[RL]


def test_a_lock_from_before_chat_templates_is_refused_for_them_alone(pinned: Callable[[str], Grid]) -> None:
    lock = pinned("chat").lock
    before, wanted = lock.path.read_bytes(), pinned("chat").generations(BASE, "sums")
    content = json.loads(before)
    for model in content["models"].values():
        del model["chat"], model["files"]["chat_template.jinja"]
    lock.path.write_text(json.dumps(content))
    assert pinned("zoo").generations(BASE, "sums")
    with pytest.raises(InputError) as refused:
        pinned("chat").generations(BASE, "sums")
    assert refused.value.message == "model org/base@main was pinned without its chat template"
    assert refused.value.hint == "run `searchlens pin`"
    old = pins.Lock.read(lock.path)
    pin.pin(old, pinned("chat").sources(), pin.Cache())
    assert lock.path.read_bytes() == before and pinned("chat").generations(BASE, "sums") == wanted


# ---- samples


def write_llama(folder: Path, form: Form, seed: int) -> None:
    """A model with random weights that fits a form's tokenizer, in which no two tokens are nearly as likely."""
    write_form(folder, form)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"bos_token_id": None, "eos_token_id": size - len(form.marks) + 1, "pad_token_id": None}
    made = transformers.LlamaConfig(**sizes, vocab_size=size, max_position_embeddings=512, initializer_range=0.5, **ids)
    transformers.LlamaForCausalLM(made).save_pretrained(folder)


@pytest.fixture
def llama(raw: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The toy study with two such models; one key makes their prompts."""
    for place, side in enumerate(("base", "rl")):
        shutil.rmtree(tmp_path / side)
        write_llama(tmp_path / side, FORMS["llama3.1"], place)
        raw["checkpoints"][f"toy-{side}"]["template"] = "chat"
    return raw


def drawn(grid: Grid, checkpoint: str) -> Iterator[tuple[str, pl.DataFrame, dict[str, Any]]]:
    """Policy, samples and record of every shard, after they were drawn."""
    for pool in grid.pools(checkpoint, "sums"):
        generate(grid, checkpoint, "sums", grid.current_manifest(pool))
    for generation in grid.generations(checkpoint, "sums"):
        for shard in grid.stored(checkpoint, "sums", generation):
            frame = pl.read_parquet(shard.path).sort("question", "sample")
            yield generation.policies[0], frame, json.loads(shard.sidecar["specials"])


def test_one_key_makes_samples_of_a_llama(llama: dict[str, Any], make_grid: Make, tmp_path: Path) -> None:
    grid = make_grid(llama)
    assert check.answer(grid)["missing"] == []
    end = Prompter(tmp_path / "base", grid.template(BASE, "sums")).tokenizer.token_to_id("<|eot_id|>")
    for checkpoint in (BASE, RL):
        found = list(drawn(grid, checkpoint))
        assert sorted(frame.height for _, frame, _ in found) == [6, 24, 24, 24]
        for _, frame, record in found:
            assert record["stops"] == sorted([end, end - 3]) and len(record["prompt"]) > 50
            assert not any({end, end - 3} & set(tokens[:-1]) for tokens in frame["tokens"])


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_vllm_is_asked_the_same_and_says_the_same(
    llama: dict[str, Any], make_grid: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from searchlens.engines.transformers import TransformersEngine
    from searchlens.engines.vllm import VllmEngine

    requests: dict[str, list[tuple[Any, ...]]] = {}
    for engine in (TransformersEngine, VllmEngine):
        add = engine.add

        def noted(self: Any, request_id: int, request: Any, add: Any = add) -> None:
            requests.setdefault(type(self).__name__, []).append((request.prompt, request.stop_ids))
            add(self, request_id, request)

        monkeypatch.setattr(engine, "add", noted)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "base")
    texts = {}
    for name in ("transformers", "vllm"):
        llama["checkpoints"][BASE]["engine"] = name
        llama["results"] = f"results-{name}"
        (greedy,) = (frame for policy, frame, _ in drawn(make_grid(llama), BASE) if policy == "greedy")
        texts[name] = greedy.select("question", "text", "tokens", "finish").to_dicts()
    assert texts["transformers"] == texts["vllm"] and len({each["text"] for each in texts["vllm"]}) > 1
    embedded, vllm = (set(requests[each.__name__]) for each in (TransformersEngine, VllmEngine))
    assert embedded == vllm
    questions = [question.text for question in make_grid(llama).questions("sums")]
    asked_of_them = [[{"role": "user", "content": BOXED.format(question)}] for question in questions]
    wanted = theirs.apply_chat_template(asked_of_them, add_generation_prompt=True, return_dict=False)
    assert {prompt for prompt, _ in vllm} == set(map(tuple, wanted))
