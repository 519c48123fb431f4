"""Requests that no browser sends: each is answered with a status, and none with a traceback on the terminal."""

import logging
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test_explorer_server import POINTS, Client, ask

__all__ = ["ask"]

DIGITS = "9" * 5000


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """A line of the log that names such a request could not be sent between the processes of the tests."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


NUMBERS = ("", "0", "7", "-1", "+1", "1_0", "0x1", "1e3", "²", "٣", " 1", "9" * 18, "9" * 19, "9" * 4300, DIGITS)
NAMES = (
    *(".", "..", "%2e%2e", "%2f", "%00", "%ff%fe", "%ed%b3%bf", "%", "%zz", "%u0041", "~", "*", "?", "a" * 300),
    *("a" * 5000, "%0d%0aX-Y:%20z", "é", "none", "toy-base", "sums", "temp_0.5", "temp_0.5%00", "C:", "nul", "-rf"),
    *("<script>", "{policy}", "$(id)", "`id`", "'", '"', "\\", "\\..\\", ";", "a;b", "a b", "[", "]", "[::1]", "@"),
)
TARGETS = (
    *("http://[/data/index.json", "http://[::1/data/index.json", "http://[v1.x]/", "http://[zz]/", "//[/", "http:///"),
    *(
        "*",
        "#",
        "?",
        "?token",
        "?token=",
        "?token=%ff",
        "?token=é",
        "/?token=\udcff",
        "/?" + "&".join(["token=x"] * 2000),
    ),
    *("http://a:b@127.0.0.1/", "http://127.0.0.1:99999/", "http://127.0.0.1:x/data/index.json", "http://\u2100/"),
    *(
        "ftp://x/",
        "javascript:1",
        "data:text/html,x",
        "/" * 3000,
        "/data/" * 2000,
        "/" + "x" * 65000,
        "/" + "x" * 70000,
    ),
)
RAW = (
    *(b"GET /", b"GET", b"\0", b"\x16\x03\x01\x02\0\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"x" * 70000),
    *(
        b"GET / HTTP/0.9\r\n",
        b"GET / HTTP/9\r\n",
        b"GET / HTTP/1.1.1\r\n",
        b"GET / HTTP/x.y\r\n",
        b"GET / HTTP/-1.1\r\n",
    ),
    *(b"GET / HTTP/2.0\r\n", b"GET / HTTP/99999999999.1\r\n", b"GET / a b c HTTP/1.1\r\n", b"get / HTTP/1.1\r\n"),
    *(b"GET / HTTP/1." + DIGITS.encode() + b"\r\n", b"\xff\xfe / HTTP/1.1\r\n", b"GET \xff\xfe HTTP/1.1\r\n"),
)
HEADERS = (
    *(
        "Host: a\r\nHost: b",
        "Host:",
        "Host: \0",
        "Host: \xff",
        "X" * 70000,
        ": x",
        "no colon",
        " folded: x",
        "A: b\r\n c",
    ),
    *("\r\n".join(f"A{i}: x" for i in range(200)), "Content-Length: -1", f"Content-Length: {DIGITS}", "Expect: x"),
    *("Expect: 100-continue", "Transfer-Encoding: chunked", "Connection: upgrade", "Upgrade: h2c", "If-None-Match: *"),
    *("If-Range: x", "If-Range: \xff", "Cookie: " + "a=b;" * 9000, "Cookie: =;=;=", "Cookie: \xff=\xff", "Cookie: \0"),
)


def requests(host: str, cookie: str) -> list[bytes]:
    """All of them, with the token where the address or the header is not what is wrong."""

    def request(target: str, *headers: str, method: str = "GET") -> bytes:
        ours = [] if any(header.startswith(("Host", "Cookie")) for header in headers) else [f"Cookie: {cookie}"]
        named = [] if any(header.startswith("Host") for header in headers) else [f"Host: {host}"]
        lines = [f"{method} {target} HTTP/1.1", *named, *ours, "Connection: close", *headers, "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")

    spans = [f"bytes={number}-" for number in NUMBERS] + [f"bytes=-{number}" for number in NUMBERS]
    spans += [f"bytes=0-{number}" for number in NUMBERS] + [f"bytes={number}-{number}" for number in NUMBERS]
    spans += ["bytes", "bytes=", "=", "bytes=0-1,2-3", "bytes=0-1," * 5000, "bits=0-1", "bytes=--", "bytes=0-0-0", "\0"]
    paths = [f"/data/answers/toy-base/sums/temp_0.5/{number}.parquet" for number in NUMBERS]
    paths += [f"/data/prompts/toy-base/sums/{number}.json" for number in NUMBERS]
    for name in NAMES:
        paths += [f"/data/answers/{name}/sums/temp_0.5/0.parquet", f"/data/answers/toy-base/{name}/temp_0.5/0.parquet"]
        paths += [f"/data/answers/toy-base/sums/{name}/0.parquet", f"/data/questions/{name}.parquet"]
        paths += [
            f"/data/pieces/{name}.json",
            f"/data/prompts/{name}/sums/0.json",
            f"/data/prompts/toy-base/{name}/0.json",
        ]
        paths += [
            f"/data/results/{name}/x.parquet",
            f"/data/results/landscape/{name}.parquet",
            f"/{name}",
            f"/data/{name}",
        ]
    made = [request(POINTS, f"Range: {span}") for span in spans]
    made += [request(path) for path in (*paths, *TARGETS)]
    made += [request("/data/index.json", header) for header in HEADERS]
    made += [
        request("/", method=method) for method in ("POST", "G\0T", "GET\t", "é", "M" * 60000, "HEAD", "-", "__init__")
    ]
    made += [line + request("/")[len(b"GET / HTTP/1.1\r\n") :] for line in RAW] + list(RAW)
    rng = random.Random(0)
    sound = request(POINTS, "Range: bytes=0-9")
    for _ in range(200):
        broken = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        made.append(bytes(broken[: rng.choice([None, rng.randrange(1, len(broken))])]))
    return made


def answer(port: int, request: bytes) -> bytes:
    """What comes back until the server ends the connection, which it may do before it has read everything."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                got += part
        except ConnectionError:
            pass
    return got


def test_every_request_gets_a_status_and_none_a_traceback(ask: Client, capfd: pytest.CaptureFixture[str]) -> None:
    host = f"127.0.0.1:{ask.server.port}"
    every = requests(host, f"{ask.server.cookie}={ask.server.token}")
    assert len(every) >= 300
    unanswered = []
    for request in every:
        got = answer(ask.server.port, request)
        if not re.match(rb"HTTP/1\.1 [1-5]\d\d ", got) and request.strip(b"\r\n"):
            unanswered.append((request[:200], got[:80]))
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert unanswered == []
    assert ask("/data/index.json").status == 200


def test_names_that_are_asked_for_do_not_pile_up(ask: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlens.reporting.explorer_files.MOST", 10)

    def size() -> int:
        files: dict[str, Any] = vars(ask.server.files)
        return sum(len(value) for value in files.values() if isinstance(value, dict | list))

    before = size()
    for i in range(50):
        for path in (f"questions/none{i}.parquet", f"pieces/none{i}.json", f"prompts/none{i}/sums/0.json"):
            ask(f"/data/{path}")
        ask(f"/data/answers/toy-base/sums/temp_0.5/{1000 + i}.parquet")
    assert size() <= before + 10


# ---- the token


def test_without_the_token_nothing_is_given(ask: Client, results: Path) -> None:
    for cookie in ("", ask.server.token, f"{ask.server.cookie}=", f"{ask.server.cookie}={ask.server.token}x", "a=b"):
        ask.cookie = cookie
        for path in ("/", "/data/index.json", POINTS, "/none", "/?token=", "/?token=x", f"/?Token={ask.server.token}"):
            reply = ask(path)
            assert reply.status == 403
            assert reply.body.count(b"\n") == 1 and b"searchlens view" in reply.body
            assert ask.server.token.encode() not in reply.body and "set-cookie" not in reply.headers


def test_the_printed_address_gives_a_cookie_with_which_the_page_asks(ask: Client) -> None:
    ask.cookie = ""
    page = ask(ask.server.url.removeprefix(f"http://127.0.0.1:{ask.server.port}"))
    assert page.status == 200
    cookie, *marks = page.headers["set-cookie"].split("; ")
    assert set(marks) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    ask.cookie = f"other=1; {cookie}"
    assert ask("/data/index.json").status == 200 and ask(POINTS).status == 200
    assert ask.server.token.encode() not in page.body


def test_every_start_has_another_token(ask: Client, results: Path, tmp_path: Path) -> None:
    import searchlens
    from searchlens.reporting.explorer_server import Server

    with Server(searchlens.open(results), 0, tmp_path / "page.html") as other:
        assert other.token != ask.server.token and len(other.token) >= 32
        ask.cookie = f"{ask.server.cookie}={other.token}"
        assert ask("/").status == 403
