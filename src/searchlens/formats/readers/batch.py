"""Batch outputs of OpenAI and of ``vllm run-batch``, joined with the requests that they answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    wishes=("requests", "custom_id", "logprobs"),
)
class BatchReader(InFolders):
    """Files of answers, and the file of requests that they answer, which alone has prompts and sampling parameters.

    A sample's number is its request's place among the requests with the same last message of the user, times ``n``,
    plus the index of the choice; with the wish ``custom_id``, a pattern such as ``{question}#{sample}``, ids say it.
    """

    name = r".+\.jsonl"

    def fits(self, path: Path) -> bool:
        """Whether the lines are answers or failures."""
        row = lines.first_object(path)
        return row is not None and "custom_id" in row and ("response" in row or "error" in row)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples in the order of answers; requests without an answer are failed samples at the end. Refuses
        answers without requests or pattern, and a request that occurs twice.
        """
        pattern = _pattern(wishes["custom_id"]) if "custom_id" in wishes else None
        if "requests" not in wishes and pattern is None:
            raise InputError(
                f"{files[0]} has answers alone: their prompts and sampling parameters are in the file of requests",
                "name it by --requests, or say how ids are made: --custom-id '{question}#{sample}'",
            )
        known: dict[str, _Request] = {}
        if "requests" in wishes:
            known, pattern = _requests(Path(wishes["requests"]), pattern, notes), None
        failed: dict[str, str] = {}
        for path in sorted(files):
            for place, row in lines.objects(path, notes, ("custom_id",), "a batch output"):
                body, name = _body(row), str(row["custom_id"])
                request = _request_of(name, known, pattern, place)
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


def _pattern(text: str) -> re.Pattern[str]:
    if "{question}" not in text or "{sample}" not in text:
        raise InputError(
            f"custom_id is {text!r}; allowed: a pattern with {{question}} and {{sample}}",
            "for example '{question}#{sample}' for ids such as sum-1#0",
        )
    escaped = re.escape(text)
    return re.compile(escaped.replace(r"\{question\}", "(?P<question>.+)").replace(r"\{sample\}", r"(?P<sample>\d+)"))


def _requests(path: Path, pattern: re.Pattern[str] | None, notes: Notes) -> dict[str, _Request]:
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
        if pattern is not None:
            question, first = _parsed(pattern, name, place)
            document = documents.setdefault(question, Document(question, False, prompt, True))
            first *= n
        else:
            if prompt is None:
                raise InputError(f"{place}: no messages of a user and no text prompt in 'body'")
            document = documents.setdefault(prompt, Document(None, False, prompt, True))
            first = counts.get((prompt, key), 0)
            counts[prompt, key] = first + n
        requests[name] = _Request(document, first, n, stream)
    return requests


def _parsed(pattern: re.Pattern[str], name: str, place: str) -> tuple[str, int]:
    match = pattern.fullmatch(name)
    if match is None:
        raise InputError(f"{place}: custom_id {name[:60]!r} does not fit the pattern that was given")
    return match["question"], int(match["sample"])


def _request_of(name: str, known: dict[str, _Request], pattern: re.Pattern[str] | None, place: str) -> _Request:
    """The request of an answer; if there is only a pattern, it is made from the id."""
    if name not in known:
        if pattern is None:
            raise InputError(
                f"{place}: custom_id {name[:60]!r} is not in the file of requests", "name the input of this batch"
            )
        question, sample = _parsed(pattern, name, place)
        known[name] = _Request(Document(question), sample, 1, Stream())
    return known[name]


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
