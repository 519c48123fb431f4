"""Batch outputs of OpenAI and of ``vllm run-batch``, joined with the requests that they answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import InFolders, count_of, last_asked
from searchlens.formats.readers.logged import Document, Finish, LoggedSample, Notes, Stream
from searchlens.store.inputs import CHOICES, require_at_most


@dataclass
class _Request:
    """What was asked for under a ``custom_id``."""

    document: Document
    first: int
    n: int
    stream: Stream
    is_answered: bool = False


@reader(
    "batch",
    title="batch outputs of OpenAI and of vllm run-batch",
    versions="OpenAI's per-line object of batch outputs; vLLM 0056ae7b",
    ran=False,
    wishes=("requests", "logprobs"),
)
class BatchReader(InFolders):
    """Files of answers, and the file of requests that they answer, which alone has prompts and sampling parameters.

    A sample's number is its request's place among the requests with the same last message of the user, times ``n``,
    plus the index of the choice.
    """

    name = r".+\.jsonl"

    def is_row(self, row: Mapping[str, Any]) -> bool:
        """Whether the lines are answers or failures."""
        return "custom_id" in row and ("response" in row or "error" in row)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples in the order of answers; requests without an answer are failed samples at the end. Refuses
        answers without requests, and a request that occurs twice.
        """
        if "requests" not in wishes:
            raise InputError(
                f"{files[0]} has answers alone: their prompts and sampling parameters are in the file of requests",
                "name it by --requests",
            )
        known = _requests(Path(wishes["requests"]), notes)
        failed: dict[str, str] = {}
        for path in sorted(files):
            for place, row in lines.objects(path, notes, ("custom_id",), "a batch output"):
                body, name = _body(row), str(row["custom_id"])
                if name not in known:
                    what = f"{place}: custom_id {name[:60]!r} is not in the file of requests"
                    raise InputError(what, "name the input of this batch")
                request = known[name]
                if body is None:
                    failed.setdefault(name, place)
                elif request.is_answered:
                    notes.add("a request was answered again; its first answer counts", place)
                else:
                    request.is_answered = True
                    yield from _samples(body, request, wishes.get("logprobs") == "raw", place, notes)
        for name, request in known.items():
            if not request.is_answered:
                place = failed.get(name, f"custom_id {name}")
                notes.add("a request failed" if name in failed else "a request has no answer", place)
                for number in range(request.first, request.first + request.n):
                    yield LoggedSample(request.stream, request.document, number, None, place, "failed")


def _requests(path: Path, notes: Notes) -> dict[str, _Request]:
    """Requests by id. Questions, parameters and numbers are shared objects, so that a million requests fit."""
    requests: dict[str, _Request] = {}
    documents: dict[str, Document] = {}
    counts: dict[tuple[str, str], int] = {}
    streams: dict[str, Stream] = {}
    for place, row in lines.objects(path, notes, ("custom_id", "body"), "a file of requests"):
        name, body = str(row["custom_id"]), row["body"]
        if name in requests:
            raise InputError(f"{place}: custom_id {name[:60]!r} occurs already above; allowed: once")
        asked = fields.parameters(body)
        n = count_of(body.get("n")) or 1
        require_at_most(CHOICES, n, "choices of a request (n)", place)
        key = repr((body.get("model"), sorted(asked.items(), key=repr)))
        stream = streams.setdefault(key, Stream(str(body.get("model") or ""), "", asked, ""))
        prompt = last_asked(body.get("messages", body.get("prompt")))
        if prompt is None:
            raise InputError(f"{place}: no messages of a user and no text prompt in 'body'")
        document = documents.setdefault(prompt, Document(None, False, prompt, True))
        first = counts.get((prompt, key), 0)
        counts[prompt, key] = first + n
        requests[name] = _Request(document, first, n, stream)
    return requests


def _body(row: lines.Object) -> lines.Object | None:
    """What the server answered; None if the request failed."""
    response = row.get("response")
    if not isinstance(response, dict) or row.get("error"):
        return None
    body = response.get("body")
    return body if response.get("status_code", 200) == 200 and isinstance(body, dict) else None


def _samples(body: lines.Object, request: _Request, is_raw: bool, place: str, notes: Notes) -> Iterator[LoggedSample]:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        keys = ", ".join(list(body)[:8])
        raise InputError(
            f"{place}: no choices in the answer; its keys: {keys}", "use /v1/chat/completions or /v1/completions"
        )
    usage = body.get("usage") or {}
    stream = request.stream
    if not stream.model and body.get("model"):
        stream = Stream(str(body["model"]), stream.task, stream.asked, stream.made_by)
    for position, choice in enumerate(choices):
        said = choice["logprobs"] if isinstance(choice.get("logprobs"), dict) else {}
        is_chat = isinstance(said.get("content"), list)
        logprobs = fields.token_logprobs(said) if is_chat else fields.logprobs_of(said.get("token_logprobs"))
        text, finish = _text(choice, notes, place)
        count = count_of(usage.get("completion_tokens")) if len(choices) == 1 else len(logprobs or ()) or None
        number = request.first + (count_of(choice.get("index")) or 0 if "index" in choice else position)
        is_sure = is_raw and logprobs and count == len(logprobs)
        yield LoggedSample(stream, request.document, number, text, place, finish, count, logprobs if is_sure else None)


def _text(choice: lines.Object, notes: Notes, place: str) -> tuple[str | None, Finish]:
    finish = fields.end_of(choice.get("finish_reason"), notes, place)
    message = choice.get("message")
    if not isinstance(message, dict):
        return choice.get("text"), finish
    reasoning, text = fields.parts_of(message.get("content"))
    reasoning = reasoning or message.get("reasoning_content") or message.get("reasoning") or ""
    is_empty = message.get("content") is None and not reasoning
    if is_empty or message.get("refusal"):
        notes.add("an answer has no text (a refusal, or calls of tools)", place)
        return None, "failed"
    return fields.joined(reasoning if isinstance(reasoning, str) else "", text), finish
