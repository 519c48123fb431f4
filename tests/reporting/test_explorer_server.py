"""The server of a study: ranges as HTTP has them, nothing outside of the folder, nobody but this machine."""

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import searchlens
from searchlens.errors import InputError
from searchlens.reporting.explorer_server import Server
from test_explorer import PAGE

POINTS = "/data/results/landscape/toy-base/sums/points.parquet"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Sends paths as they are: nothing is normalised."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cookie = f"{server.cookie}={server.token}"

    def __call__(self, path: str, method: str = "GET", **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        ours = {"Host": f"127.0.0.1:{self.server.port}", "Cookie": self.cookie}
        sent = {**ours, **{key.replace("_", "-"): v for key, v in headers.items()}}
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        found = Reply(reply.status, {key.lower(): value for key, value in reply.getheaders()}, reply.read())
        connection.close()
        return found


@pytest.fixture
def ask(results: Path, tmp_path: Path) -> Iterator[Client]:
    template = tmp_path / "page.html"
    template.write_text(PAGE)
    with Server(searchlens.open(results), 0, template) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Client(server)
        server.shutdown()
        thread.join()


def index(ask: Client) -> dict[str, Any]:
    return dict(json.loads(ask("/data/index.json").body))


# ---- files


def test_the_page_says_where_its_data_are_and_what_it_may_do(ask: Client) -> None:
    reply = ask("/")
    assert reply.status == 200
    assert '<meta name="searchlens-source" content="range">' in reply.body.decode()
    assert "connect-src 'self'" in reply.headers["content-security-policy"]
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert ask("/?anything#else").status == 200


def test_every_file_of_the_index_is_given_as_it_is(ask: Client, results: Path) -> None:
    found = index(ask)
    (cell,) = found["cells"]
    shards = [shard["path"] for parts in cell["base"]["shards"].values() for shard in parts]
    frames = [*cell["files"].values(), *cell["base"]["files"].values(), *found["studies"]["boptr"].values()]
    tables = [table["csv"] for table in found["tables"]]
    names = [name for name in (*shards, *frames, *tables) if name.startswith("results/")]
    assert len(shards) == 4 and len(names) > 20
    for name in names:
        assert ask(f"/data/{name}").body == (results / name.removeprefix("results/")).read_bytes()


def test_questions_and_answers_are_made_when_they_are_asked_for(ask: Client, results: Path) -> None:
    found = index(ask)
    questions = pl.read_parquet(io.BytesIO(ask(f"/data/{found['benchmarks'][0]['file']}").body))
    assert questions.row(3) == (3, "q3", "Compute 3+4.", "7", "{}")
    pattern = found["cells"][0]["rl"]["files"]["answers"]

    def answers(policy: str, question: int) -> Reply:
        return ask("/data/" + pattern.replace("{policy}", policy).replace("{question}", str(question)))

    written = pl.read_parquet(io.BytesIO(answers("temp_0.5", 3).body))
    assert written.select("question", "class", "text", "count").rows() == [(3, 0, "7", 2), (3, 1, "99", 2)]
    assert answers("temp_0.5", 6).status == 404
    assert answers("none", 3).status == 404
    assert answers("temp_0.5", 3).headers["etag"]
    assert not list(results.rglob("*.tmp"))


def test_a_shard_tells_where_the_rows_of_a_question_are(ask: Client) -> None:
    (cell,) = index(ask)["cells"]
    (shard,) = cell["rl"]["shards"]["temp_0.5"]
    rows = pl.read_parquet(io.BytesIO(ask(f"/data/{shard['path']}").body))
    assert (shard["questions"], shard["rows"], shard["samples"]) == (6, rows.height, [0, 4])
    each = shard["rows"] // shard["questions"]
    assert rows["question"].to_list() == [f"q{i}" for i in range(6) for _ in range(each)]
    assert rows["sample"].to_list() == list(range(each)) * 6


# ---- ranges


def test_ranges_of_bytes(ask: Client, results: Path) -> None:
    whole = (results / POINTS.removeprefix("/data/results/")).read_bytes()
    size = len(whole)
    for asked, start, stop in (
        ("bytes=0-3", 0, 4),
        ("bytes=4-", 4, size),
        ("bytes=-8", size - 8, size),
        (f"bytes=10-{size + 99}", 10, size),
        (f"bytes=-{size + 99}", 0, size),
        (f"bytes=0-{size - 1}", 0, size),
    ):
        reply = ask(POINTS, Range=asked)
        assert (reply.status, reply.body) == (206, whole[start:stop]), asked
        assert reply.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
        assert reply.headers["content-length"] == str(stop - start)

    for asked in ("bytes=0-1,4-5", "bytes=5-2", "lines=0-3", "bytes=x-3", "bytes=-", "bytes=0-3 4"):
        reply = ask(POINTS, Range=asked)
        assert (reply.status, len(reply.body)) == (200, size), f"{asked} is no single range"
    for asked in ("bytes=99999999-", "bytes=99999999-999999999", "bytes=-0"):
        reply = ask(POINTS, Range=asked)
        assert reply.status == 416 and reply.headers["content-range"].startswith("bytes */"), (
            f"{asked} is beyond the end"
        )


def test_head_tells_the_size_and_sends_nothing(ask: Client) -> None:
    head, whole = ask(POINTS, "HEAD"), ask(POINTS)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.body))
    assert head.headers["accept-ranges"] == "bytes"
    assert head.headers["etag"] == whole.headers["etag"]
    assert ask("/data/results/none.parquet", "HEAD")[::2] == (404, b"")


def test_a_changed_file_has_another_tag(ask: Client, results: Path) -> None:
    tag = ask(POINTS).headers["etag"]
    assert ask(POINTS, If_None_Match=tag)[::2] == (304, b"")
    assert ask(POINTS, Range="bytes=0-3", If_Range=tag).status == 206
    path = results / POINTS.removeprefix("/data/results/")
    os.utime(path, ns=(1, 1))
    assert ask(POINTS, If_None_Match=tag).status == 200
    assert ask(POINTS, Range="bytes=0-3", If_Range=tag).status == 200, "parts of two files must not be put together"


def test_a_short_reply_is_one_packet(ask: Client) -> None:
    """Otherwise its end waits up to 40 ms until the browser confirms its beginning."""
    with socket.create_connection(("127.0.0.1", ask.server.port), timeout=20) as connection:
        for _ in range(3):
            lines = [f"GET {POINTS} HTTP/1.1", f"Host: 127.0.0.1:{ask.server.port}", f"Cookie: {ask.cookie}"]
            connection.sendall("\r\n".join([*lines, "Range: bytes=0-3", "", ""]).encode())
            assert connection.recv(1 << 16).endswith(b"\r\n\r\nPAR1")


# ---- what is refused


OUTSIDE = (
    "/data/results/../secret.parquet",
    "/data/results/landscape/../../secret.parquet",
    "/data/results/%2e%2e/secret.parquet",
    "/data/results/landscape/%2e%2e/%2e%2e/secret.parquet",
    "/data/results/landscape%2f..%2f..%2fsecret.parquet",
    "/data/results/landscape/..%2f..%2fsecret.parquet",
    "/data/results//landscape/toy-base/sums/points.parquet",
    "/data/results/./landscape/toy-base/sums/points.parquet",
    "/data//etc/passwd",
    "//etc/passwd",
    "/etc/passwd",
    "/data/results/landscape/toy-base/sums/points.parquet%00",
    "/data/results/landscape/toy-base/sums",
    "/data/results/landscape/toy-base/sums/provenance.json",
    "/data/results/config/x.json",
    "/data/results/link.parquet",
    "/data/results/landscape/link.parquet",
    "/data/results/landscape/folder/secret.parquet",
    "/data/questions/..%2f..%2fsecret.parquet",
    "/data/questions/none.parquet",
    "/data/answers/none/sums/temp_0.5/0.parquet",
    "/data/",
    "/data",
    "/favicon.ico",
    "/data/results/landscape/%ff%fe.parquet",
)


def test_nothing_outside_of_the_study_is_given(ask: Client, results: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "outside"):
        folder.mkdir(exist_ok=True)
        (folder / "secret.parquet").write_text("secret")
    (results / "landscape/link.parquet").symlink_to(tmp_path / "secret.parquet")
    (results / "landscape/folder").symlink_to(tmp_path / "outside")
    for path in OUTSIDE:
        reply = ask(path)
        assert reply.status == 404 and b"secret" not in reply.body, path


def test_samples_are_searched_in_any_letters(ask: Client) -> None:
    """The words are escaped once more, so that a slash in them is none of the address."""
    found = json.loads(ask("/data/found/toy-rl/sums/boxed%257B99.json").body)
    assert sorted(question for _, question, _ in found) == [2, 3, 4, 5], "the other samples are right"
    assert {policy for policy, *_ in found} and all(isinstance(sample, int) for *_, sample in found)
    assert json.loads(ask("/data/found/toy-rl/sums/SO%2520IT.json").body)[0][1:] == [0, 0]
    assert json.loads(ask("/data/found/toy-rl/sums/..%252F.json").body) == []
    assert ask("/data/found/nobody/sums/so.json").status == 404


def test_a_run_is_followed(results: Path, tmp_path: Path) -> None:
    """What is drawn is said, and the index names what was made since the start."""
    (tmp_path / "page.html").write_text(PAGE)
    kept = tmp_path / "kept.parquet"
    points = results / "landscape/toy-rl/sums/points.parquet"
    points.rename(kept)
    said: dict[str, Any] = {"words": "50% sampled", "share": 0.5}
    with Server(searchlens.open(results), 0, tmp_path / "page.html", lambda: said) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask = Client(server)
        first = json.loads(ask("/data/progress.json").body)
        assert {**first, "index": ""} == {**said, "index": ""}
        assert "points" not in index(ask)["cells"][0]["rl"]["files"]
        said.clear()
        kept.rename(points)
        assert set(json.loads(ask("/data/progress.json").body)) == {"index"}
        assert json.loads(ask("/data/progress.json").body)["index"] != first["index"]
        assert "points" in index(ask)["cells"][0]["rl"]["files"]
        server.shutdown()


def test_a_link_inside_of_the_folder_is_followed(ask: Client, results: Path) -> None:
    (results / "landscape/again.parquet").symlink_to(results / POINTS.removeprefix("/data/results/"))
    assert ask("/data/results/landscape/again.parquet").body == ask(POINTS).body


def test_another_host_is_refused(ask: Client) -> None:
    """A page of another site must not read the study through a name that it lets point to this machine."""
    port = ask.server.port
    for host in (f"evil.example:{port}", "127.0.0.1", "localhost:1", "", f"127.0.0.1.evil:{port}", f"[::1]:{port}"):
        for path in ("/", "/data/index.json", POINTS):
            reply = ask(path, Host=host)
            assert reply.status == 403 and b"ssh -L" in reply.body, host
    for name in ("localhost", "127.0.0.1", "LOCALHOST"):
        assert ask("/", Host=f"{name}:{port}").status == 200


def test_it_only_reads(ask: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "WORDS"):
        reply = ask("/", method)
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD"), method


def test_it_listens_on_this_machine_alone(ask: Client) -> None:
    assert ask.server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_refused(ask: Client, results: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"port \d+[\s\S]*--port"):
        Server(searchlens.open(results), ask.server.port, tmp_path / "page.html")


def test_nothing_is_written(ask: Client, results: Path) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in results.rglob("*") if path.is_file()}

    before = files()
    (cell,) = index(ask)["cells"]
    for path in ("/", "/data/questions/sums.parquet", POINTS, "/data/answers/toy-base/sums/temp_0.5/1.parquet"):
        assert ask(path).status == 200
    assert cell["base"]["shards"]
    assert files() == before


def test_an_interrupt_ends_the_command_quietly(results: Path) -> None:
    command = [sys.executable, "-m", "searchlens", "view", str(results), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out, errors) == (0, "ended\n", "")
