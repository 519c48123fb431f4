"""The chat template of a checkpoint's tokenizer: a program in Jinja, of whoever made the checkpoint.

It runs as in transformers, in Jinja's sandbox, and in a process of its own with limits of time and memory. It has no
clock and no random numbers, because the same question is to have the same prompt on every day.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens.errors import InputError
from searchlens.store.checkpoints import mapping
from searchlens.store.files import digest
from searchlens.store.inputs import read_text

FILE = "chat_template.jinja"
"""Comes before the ``chat_template`` of tokenizer_config.json, as in transformers."""
_SECONDS, _BYTES = 5, 2 * 2**30
"""Limits of one conversation: of processor time, and of the memory of the process."""
_SHORT = 15
"""Letters of a turn that messages may have by chance."""
_HINT = "change `system` or the arguments of `chat`, or write the turns as a template of your own (docs/templates.md)"

Conversation = Sequence[Mapping[str, str]]
"""Messages with ``role`` and ``content``."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template in Jinja, and the special tokens that it may name, by their roles such as ``bos_token``."""

    source: str
    tokens: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> ChatTemplate | None:
        """That of a checkpoint's folder; None if it has none. An InputError names a damaged file."""
        paths = [folder / f"{name}.json" for name in ("tokenizer_config", "special_tokens_map")]
        settings, older = (mapping(path) if path.exists() else {} for path in paths)
        content = settings.get("chat_template")
        if isinstance(content, list):  # several, each with a name
            content = {str(each.get("name")): each.get("template") for each in content if isinstance(each, Mapping)}
        if isinstance(content, Mapping):
            content = content.get("default")
        if (folder / FILE).exists():
            try:
                content = read_text(folder / FILE)
            except OSError as error:
                raise InputError(f"cannot read {folder / FILE}: {error.strerror}") from None
        tokens = _named(settings) | ({} if "added_tokens_decoder" in settings else _named(older))
        tokens = {name: text for name, text in tokens.items() if text}
        return cls(content, tokens) if isinstance(content, str) and content else None

    @property
    def digest(self) -> str:
        """Hash of everything here that a prompt depends on."""
        return digest([self.source, {name: text for name, text in self.tokens.items() if name in self.source}], 64)

    def render(self, folder: Path, conversations: Sequence[Conversation], arguments: Mapping[str, Any]) -> list[str]:
        """The text of each conversation; one that ends with a turn of the user, up to where the answer begins.

        ``folder`` is for messages. An InputError says that the template is no Jinja, raises an error, does not end,
        needs too much memory, or asks for the date.
        """
        variables = {**self.tokens, **arguments}
        asked = {"source": self.source, "variables": variables, "conversations": conversations, "seconds": _SECONDS}
        command = [sys.executable, "-P", __file__]  # by its path: another copy of the package may be installed
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False, env=paths)
        last = next(reversed(done.stderr.strip().splitlines()), f"its process ended with status {done.returncode}")
        answer = json.loads(done.stdout) if done.returncode == 0 else f"cannot be run: {last[:300]}"
        if done.returncode == -signal.SIGPROF:
            answer = f"does not end within {_SECONDS} s"
        if isinstance(answer, str):
            raise InputError(f"{folder}: the chat template {answer}", _HINT)
        return list(answer)


def _named(settings: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by the names that transformers gives to chat templates; an empty text for none."""
    named = {name: token for name, token in settings.items() if name.endswith("_token")}
    extra = settings.get("extra_special_tokens")
    return {name: _text(token) for name, token in (named | (extra if isinstance(extra, dict) else {})).items()}


def _text(token: object) -> str:
    """The text of a special token, which a file names by it or by a record with it; empty if it does not."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else ""


# ---- in the process


def _main() -> None:
    """Read what ``render`` asks for, and write the texts, or in words why there are none."""
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    size = _BYTES if most == resource.RLIM_INFINITY else min(most, _BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    asked = json.load(sys.stdin)
    try:
        answer = json.dumps(_rendered(**asked))
    except Exception as error:  # anything that a program of others may raise
        said = f"{error}" if isinstance(error, _RefusedError) else f"fails: {type(error).__name__}: {error}"
        for turn in itertools.chain(*asked["conversations"]):  # a question may not be shown in plain text
            content = turn["content"].strip()
            said = said.replace(content, "…") if len(content) > _SHORT else said
        said = "".join(filter(str.isprintable, " ".join(said.split())))[:400]
        answer = json.dumps(said.removesuffix(":"))
    sys.stdout.write(answer)


class _RefusedError(Exception):
    """The template says that it takes no such conversation, or asked for the date."""


def _rendered(
    source: str, variables: Mapping[str, Any], conversations: Sequence[Conversation], seconds: float
) -> list[str]:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Marks around what an assistant wrote, for training; they change no text."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja has it

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)

    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "extensions": [Generation, loopcontrols]}
    environment = ImmutableSandboxedEnvironment(**options)
    environment.filters["tojson"] = _json
    del environment.filters["random"]
    del environment.globals["lipsum"]  # random text
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _date}
    _limit_time(seconds)  # Jinja computes constants when it reads the template
    template = environment.from_string(source)
    texts = []
    for messages in conversations:
        _limit_time(seconds)
        given = {"messages": messages, "add_generation_prompt": messages[-1]["role"] == "user"}
        text = template.render({**given, "tools": None, "documents": None, **variables})
        text.encode()  # which fails for half of a character, as a tokenizer would
        texts.append(text)
    return texts


def _limit_time(seconds: float) -> None:
    """Begin to count; nothing handles the signal at the end, so it ends the process, whatever that computes."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _json(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
    """A value as JSON; Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **layout)


def _refuse(message: object) -> None:
    raise _RefusedError(f"refuses the conversation: {message}")


def _date(_format: object) -> None:
    raise _RefusedError(
        "prints today's date, by which prompts of two days differ: give a date as an argument of `chat`"
    )


if __name__ == "__main__":
    _main()
