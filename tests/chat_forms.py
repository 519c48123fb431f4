"""Small tokenizers with chat templates in the forms of well-known families: same marks, same behaviour, own words."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import write_checkpoint
from searchlens.benchmarks import Question

_CHATML = r"""
{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""

_BY_DEFAULT = r"""
{%- if messages[0]['role'] != 'system' %}{{- '<|im_start|>system\nYou are a small calculator.<|im_end|>\n' }}
{%- endif %}"""

_THINKING = r"""
{%- set last = namespace(user=-1) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
    {%- set text = message.content %}
    {%- if message.role == 'assistant' %}
        {%- set text = text.split('</think>')[-1].lstrip('\n') %}
        {%- if loop.index0 > last.user %}{% set text = '<think>\n\n</think>\n\n' + text %}{% endif %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + text + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}"""

_HEADERS = r"""{{- bos_token }}
{%- macro turn(role, text) %}{{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' + text + '<|eot_id|>' }}
{%- endmacro %}
{%- if date_string is not defined %}{% set date_string = DATE %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system, messages = messages[0]['content'] | trim, messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- turn('system', 'Knows everything until March.\nIt is the ' + date_string + '.\n\n' + system) }}
{%- for message in messages %}{{- turn(message['role'], message['content'] | trim) }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

_MERGED = r"""{{ bos_token }}
{%- set before = messages[0]['content'] + '\n\n' if messages[0]['role'] == 'system' else '' %}
{%- for message in (messages[1:] if before else messages) %}
    {%- if (message['role'] == 'user') != (loop.index0 is even) %}{{ raise_exception('Not in turn') }}{% endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\n' + (before if loop.first else '') }}
    {{- message['content'] | trim }}{{ '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}
"""

_INST = r"""
{%- set turns = messages[1:] if messages[0].role == 'system' else messages %}
{{- bos_token }}
{%- for message in turns %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the system text, user and assistant must take turns.') }}
    {%- endif %}
    {%- if message.role == 'user' and loop.last and turns != messages %}
        {{- '[INST] ' + messages[0].content + '\n\n' + message.content + '[/INST]' }}
    {%- elif message.role == 'user' %}
        {{- '[INST] ' + message.content + '[/INST]' }}
    {%- else %}
        {{- ' ' + message.content | trim + eos_token }}
    {%- endif %}
{%- endfor %}"""

_LINES = r"""{{ bos_token }}{% for message in messages %}
    {% if message['role'] == 'assistant' %}
{{ '<|assistant|>\n' + message['content'] + eos_token + ('' if loop.last else '\n') -}}
    {% else %}
{{ '<|' + message['role'] + '|>\n' + message['content'] + '\n' -}}
    {% endif %}
    {% if loop.last and add_generation_prompt %}
{{ '<|assistant|>\n' -}}
    {% endif %}
{% endfor %}
"""

_SEPARATED = r"""
{%- for message in messages %}{{ '<|im_start|>' ~ message.role ~ '<|im_sep|>' ~ message.content ~ '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""

_ENDED = r"""
{%- for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""


@dataclass(frozen=True)
class Form:
    """A family: its template, its special tokens, of which ``end`` ends turns, and how it splits texts.

    ``stored`` says where the template is: ``config``, ``list`` or ``file``, there beside another one in the settings.
    """

    template: str
    end: str
    marks: Sequence[str]
    named: dict[str, Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    stored: str = "config"
    pieces: str = "bytes"
    begin: str | None = None
    ordinary: Sequence[str] = ()
    rstrip: bool = False


_IM = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_LLAMA = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
_ENDOFTEXT = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
_S = {"bos_token": "<s>", "unk_token": "<unk>"}
_BEGIN = {"bos_token": _LLAMA[0], "eos_token": _LLAMA[1]}
_THINK = ["<think>", "</think>"]

FORMS = {
    "qwen2.5": Form(_BY_DEFAULT + _CHATML, "<|im_end|>", _IM, _ENDOFTEXT, pieces="nfc"),
    "qwen3": Form(_THINKING, "<|im_end|>", _IM, _ENDOFTEXT, {"enable_thinking": False}, "file", "nfc", ordinary=_THINK),
    "llama3.1": Form(_HEADERS.replace("DATE", "'26 May 2024'"), "<|eot_id|>", _LLAMA, _BEGIN, begin=_LLAMA[0]),
    "llama3.2": Form(
        _HEADERS.replace("DATE", "strftime_now('%d %b %Y')"),
        *("<|eot_id|>", _LLAMA, _BEGIN, {"date_string": "1 Jan 2026"}, "file"),
        begin=_LLAMA[0],
    ),
    "gemma3": Form(
        _MERGED,
        "<end_of_turn>",
        ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
        {"bos_token": {"content": "<bos>", "__type": "AddedToken"}, "eos_token": "<eos>", "pad_token": "<pad>"},
        stored="file",
        pieces="spaces",
        begin="<bos>",
    ),
    "mistral": Form(
        _INST,
        "</s>",
        ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
        _S | {"eos_token": "</s>"},
        stored="list",
        pieces="metaspace",
        begin="<s>",
    ),
    "olmo2": Form(_LINES, "<|endoftext|>", _IM, {"bos_token": "<|endoftext|>", **_ENDOFTEXT}),
    "smollm2": Form(_BY_DEFAULT + _CHATML, "<|im_end|>", _IM, {"bos_token": _IM[1], **_ENDOFTEXT}, stored="file"),
    "phi3": Form(
        _ENDED,
        "<|end|>",
        ["<unk>", "<s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        _S | _ENDOFTEXT,
        pieces="metaspace",
        rstrip=True,
    ),
    "phi4": Form(_SEPARATED, "<|im_end|>", [*_IM, "<|im_sep|>"], {"bos_token": "<|endoftext|>", **_ENDOFTEXT}),
}

_MERGES = [*("th", "the", " the", "in", "er", " w", "an", "{}", "\n\n", "  ", "Pl", "st", " st", "ep", " step", "bo")]
_MERGES += ["box", "boxed", "12", " a", "<|", "|>", "us", "user", "\\n"]


def _vocabulary(letters: Sequence[str], spelled: dict[str, str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Ids of letters and of what they are merged to, by rules that take a known beginning and a known end."""
    ids = {letter: place for place, letter in enumerate(letters)}
    merges = []
    for text in ("".join(spelled.get(letter, letter) for letter in merged) for merged in _MERGES):
        cut = next((at for at in range(1, len(text)) if text[:at] in ids and text[at:] in ids), 0)
        if cut:
            ids[text] = len(ids)
            merges.append((text[:cut], text[cut:]))
    return ids, merges


def tokenizer(form: Form) -> Any:
    """The tokenizer of a family, with some dozens of merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    if form.pieces in {"bytes", "nfc"}:
        letters, spelled = sorted(pre_tokenizers.ByteLevel.alphabet()), {" ": "Ġ", "\n": "Ċ"}
        made = Tokenizer(models.BPE(*_vocabulary(letters, spelled)))
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        if form.pieces == "nfc":
            made.normalizer = normalizers.NFC()
    else:
        letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *map(chr, range(33, 127)), "▁", "\n", "求"]
        ids, merges = _vocabulary(letters, {" ": "▁"})
        made = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if form.pieces == "metaspace":
            made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        else:
            made.normalizer = normalizers.Replace(" ", "▁")
        made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens([AddedToken(mark, rstrip=form.rstrip, normalized=False) for mark in form.marks])
    made.add_tokens([AddedToken(mark, normalized=False) for mark in form.ordinary])
    if form.begin:
        begin = (form.begin, made.token_to_id(form.begin))
        made.post_processor = processors.TemplateProcessing(single=f"{form.begin} $A", special_tokens=[begin])
    return made


def write_form(folder: Path, form: Form, template: str | None = None) -> Path:
    """A folder in the layout of a checkpoint: enough for planning and prompts, not for sampling."""
    made = tokenizer(form)
    write_checkpoint(folder, "made", vocab_size=made.get_vocab_size(), eos_token_id=0)
    write_tokenizer(folder, form, template)
    return folder


def write_tokenizer(folder: Path, form: Form, template: str | None = None) -> None:
    """The files of the tokenizer alone."""
    tokenizer(form).save(str(folder / "tokenizer.json"))
    text = form.template if template is None else template
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **form.named}
    if form.stored == "list":
        named = {"tool_use": "{{ 'never' }}", "default": text}
        settings["chat_template"] = [{"name": name, "template": each} for name, each in named.items()]
    else:
        settings["chat_template"] = text if form.stored == "config" else "{{ 'an older one' }}"
    if form.stored == "file":
        (folder / "chat_template.jinja").write_text(text, "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")


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


def with_llamas(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The toy study in a folder, with two models of a Llama's form as checkpoints, and ``template: chat``."""
    for place, side in enumerate(("base", "rl")):
        shutil.rmtree(folder / side)
        write_llama(folder / side, FORMS["llama3.1"], place)
        raw["checkpoints"][f"toy-{side}"]["template"] = "chat"
    return raw


def write_llama(folder: Path, form: Form, seed: int) -> None:
    """A model with random weights that fits a form's tokenizer, in which no two tokens are nearly as likely."""
    import torch
    import transformers

    write_form(folder, form)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"bos_token_id": None, "eos_token_id": size - len(form.marks) + 1, "pad_token_id": None}
    made = transformers.LlamaConfig(**sizes, vocab_size=size, max_position_embeddings=512, initializer_range=0.5, **ids)
    transformers.LlamaForCausalLM(made).save_pretrained(folder)
