"""A server of one study for the browser of this machine: it reads, listens on 127.0.0.1 alone, and writes nothing.

It answers GET and HEAD of the page and of its data, with ranges of bytes (RFC 9110, section 14), so that a page reads a
question out of a shard without the rest of it. A request is refused unless its ``Host`` is this machine and this port:
otherwise a foreign page could read the study through a name that it lets point here. It is refused without the token of
this start, too, which is in the address that is printed: otherwise every user of this machine could read the study.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

from searchlens.api.study import Study
from searchlens.errors import InputError
from searchlens.reporting import explorer_html
from searchlens.reporting.explorer_files import Files

ADDRESS = "127.0.0.1"
PORT = 8642
_NAMES = ("127.0.0.1", "localhost")
_DATA = "data/"
_FOLLOWED = ("manifests", "scores", "landscape", "recovery", "measures", "likelihood", "boptr", "tables")
"""Folders of the results after which the index is made anew."""
Progress = Callable[[], Mapping[str, Any]]
_TYPES = {".json": "application/json", ".csv": "text/csv; charset=utf-8", ".svg": "image/svg+xml", ".html": "text/html"}
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
"""More digits are no place in a file, and Python refuses to read thousands of them."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Content:
    """What a name stands for."""

    size: int
    """Bytes."""
    tag: str
    """``ETag``: other content has another one."""
    kind: str
    """``Content-Type``."""
    open: Callable[[], BinaryIO]
    """A new stream of the content."""


def in_memory(content: bytes, kind: str) -> Content:
    """Content that was made."""
    return Content(len(content), f'"{hashlib.sha256(content).hexdigest()[:24]}"', kind, lambda: BytesIO(content))


def of_file(path: Path) -> Content:
    """Content of a file as it is now."""
    stat = path.stat()
    tag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    return Content(stat.st_size, tag, _kind(path.name), lambda: path.open("rb"))


def _kind(name: str) -> str:
    return _TYPES.get(Path(name).suffix, "application/octet-stream")


class Server(ThreadingHTTPServer):
    """A server of one study; port 0 is any that is free.

    ``progress`` says what a run draws: ``words``, and its ``share``; empty if there is no run. An ``InputError`` if the
    port is taken or forbidden, or there is no page.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, study: Study, port: int = PORT, template: Path = explorer_html.PAGE, progress: Progress = dict
    ) -> None:
        self._study, self._progress = study, progress
        self._changed, self._making = -1, Lock()
        self._refresh()
        page = explorer_html.read_page(template).replace(explorer_html.PLACE, explorer_html.BY_RANGES)
        self.page = in_memory(page.encode(), "text/html; charset=utf-8")
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            hint = "choose another one with --port; 0 is any that is free"
            raise InputError(f"port {port} of {ADDRESS}: {error.strerror}", hint) from None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """Name of the cookie that has the token; browsers keep the cookies of all ports of a host together."""
        return f"searchlens-{self.port}"

    @property
    def hosts(self) -> set[str]:
        """Allowed values of ``Host``."""
        return {f"{name}:{self.port}" for name in _NAMES}

    def content(self, path: str) -> Content | None:
        """What a path of the address stands for; None if there is nothing. An ``InputError`` if what it would be made
        of is not here.
        """
        if path == "/":
            return self.page
        name = unquote(path.removeprefix("/"), errors="surrogateescape")
        if not name.startswith(_DATA):
            return None
        name = name.removeprefix(_DATA)
        if name == "index.json":
            self._refresh()
            return self.index
        if name == "progress.json":
            self._refresh()
            return in_memory(json.dumps({**self._progress(), "index": self.index.tag}).encode(), _kind(name))
        if found := self.files.path(name):
            return of_file(found)
        made = self.files.made(name)
        return None if made is None else in_memory(made, _kind(name))

    def _refresh(self) -> None:
        """Name the files that there are now, if any was made since."""
        folders = [self._study.results / name for name in _FOLLOWED]
        with self._making:
            changed = max((path.stat().st_mtime_ns for each in folders for path in each.rglob("*")), default=0)
            if changed != self._changed:
                self.files = Files(self._study)
                self.index = in_memory(self.files.index, "application/json")
                self._changed = changed

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away; anything else is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError | socket.timeout):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    protocol_version = default_request_version = "HTTP/1.1"
    server_version, sys_version = "searchlens", ""
    timeout = 60
    disable_nagle_algorithm = True
    """Otherwise the end of a reply waits up to 40 ms until the browser confirms its beginning."""
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        """A file, or a range of it."""
        try:
            content = self.server.content(self.address.path)
            words = "There is no such file, or it is not to be shown."
        except InputError as error:
            content, words = None, str(error)
        except OSError as error:
            content, words = None, f"It cannot be read: {error.strerror}."
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND, words)
        elif self.headers.get("If-None-Match") in (content.tag, "*"):
            self._head(HTTPStatus.NOT_MODIFIED, content, {})
        else:
            self._send(content)

    def do_HEAD(self) -> None:
        """What GET would say of a file, without it."""
        self.do_GET()

    def parse_request(self) -> bool:
        """Refuse other methods in words, and any request that names another host or does not have the token."""
        if not super().parse_request():
            return False
        self.request_version = self.protocol_version  # to an older one the reply would have no status
        if self.command not in ("GET", "HEAD"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This server only reads: GET and HEAD.", Allow="GET, HEAD")
            return False
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            allowed = " or ".join(sorted(self.server.hosts))
            words = f"Ask for {allowed}. Behind ssh -L, use the same port on both sides."
            self._refuse(HTTPStatus.FORBIDDEN, words)
            return False
        try:
            self.address = urlsplit(self.path)
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"{error}.")
            return False
        if not self._is_known():
            words = "This address lacks its token: open the one that `searchlens view` printed where it was started."
            self._refuse(HTTPStatus.FORBIDDEN, words)
            return False
        return True

    def _is_known(self) -> bool:
        """Whether a request has the token: the page in its address, what it asks for in a cookie."""
        cookies = [part.strip().partition("=") for part in self.headers.get("Cookie", "").split(";")]
        given = parse_qs(self.address.query).get("token", [])
        given += [value for name, _, value in cookies if name == self.server.cookie]
        return any(hmac.compare_digest(value.encode(), self.server.token.encode()) for value in given)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name of the standard library
        """Requests are not logged."""

    def _send(self, content: Content) -> None:
        is_same = self.headers.get("If-Range", content.tag) == content.tag
        asked = byte_range(self.headers.get("Range") if is_same else None, content.size)
        start, stop = asked or (0, content.size)
        if asked and start == stop:
            there = {"Content-Range": f"bytes */{content.size}"}
            self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "There are no such bytes.", **there)
            return
        lengths = {"Content-Length": str(stop - start), "Accept-Ranges": "bytes"}
        if asked:
            lengths["Content-Range"] = f"bytes {start}-{stop - 1}/{content.size}"
        self._head(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK, content, lengths)
        if self.command == "HEAD":
            return
        left = stop - start
        with content.open() as stream:
            stream.seek(start)
            while piece := stream.read(min(left, 1 << 18)):
                self.wfile.write(piece)
                left -= len(piece)

    def _head(self, status: HTTPStatus, content: Content, lengths: dict[str, str]) -> None:
        policy = {"Content-Security-Policy": _PAGE_POLICY if content is self.server.page else "default-src 'none'"}
        if content is self.server.page:
            policy["Set-Cookie"] = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        kind = {"Content-Type": content.kind} if lengths else {}
        self._reply(status, {**kind, **lengths, "ETag": content.tag, **policy})

    def _reply(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, words: str, **extra: str) -> None:
        body = f"{words}\n".encode("utf-8", "backslashreplace")
        self.close_connection = True
        headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body)), "Connection": "close"}
        self._reply(status, {**headers, **extra})
        if self.command != "HEAD":
            self.wfile.write(body)


def byte_range(asked: str | None, size: int) -> tuple[int, int] | None:
    """The bytes [start, stop) that a header ``Range`` asks for, both equal if there are no such bytes.

    None is everything: there is no such header, or it names no bytes, or several ranges.

    >>> byte_range("bytes=2-5", 10), byte_range("bytes=8-", 10), byte_range("bytes=-3", 10)
    ((2, 6), (8, 10), (7, 10))
    >>> byte_range("bytes=10-", 10), byte_range("bytes=5-2", 10), byte_range("bytes=0-1,4-5", 10), byte_range(None, 10)
    ((10, 10), None, None, None)
    """
    match = _RANGE.fullmatch(asked.strip()) if asked else None
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    if last and int(last) < int(first):
        return None
    start = min(int(first), size)
    return start, min(size, int(last) + 1) if last else size
