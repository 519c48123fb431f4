"""A hub on this machine: as much of its HTTP interface as pinning and fetching ask for."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Files = Mapping[str, bytes]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serve(repositories: Mapping[str, Files], commit: str) -> Iterator[str]:
    """Address of a hub with these repositories, each with one commit on ``main``.

    Keys are ``owner/name`` of a model and ``datasets/owner/name`` of a dataset.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Quiet."""

        def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.split("?")[0].replace("/api/models/", "/api/")
            place = path.removeprefix("/api").removeprefix("/")
            repo = "/".join(place.split("/")[: 3 if place.startswith("datasets/") else 2])
            files = repositories.get(repo)
            if "gated" in repo:
                self.answer(b"{}", 403, X_Error_Code="GatedRepo", X_Error_Message="terms")
            elif files is None:
                self.answer(b"{}", 404, X_Error_Code="RepoNotFound")
            elif path in {f"/api/{repo}/revision/{revision}" for revision in ("main", commit)}:
                self.answer(json.dumps({"id": repo, "sha": commit, "siblings": _siblings(files)}).encode())
            elif path == f"/api/{repo}/tree/{commit}":
                tree = [{"type": "file", "path": n, "size": len(c), "oid": "0" * 40} for n, c in files.items()]
                self.answer(json.dumps(tree).encode(), Content_Type="application/json")
            elif path.startswith(f"/{repo}/resolve/{commit}/"):
                content = files[path.split(f"{commit}/")[1]]
                self.answer(content, ETag=f'"{sha256(content)}"', X_Repo_Commit=commit)
            else:
                self.answer(b"{}", 404, X_Error_Code="RevisionNotFound")

        do_HEAD = do_GET

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _siblings(files: Files) -> list[dict[str, Any]]:
    """Files as the hub lists them: hashes are stated for large ones alone."""
    return [
        {"rfilename": name, "size": len(content), "blobId": "0" * 40}
        | (
            {"lfs": {"sha256": sha256(content), "size": len(content), "pointerSize": 100}}
            if "safetensors" in name
            else {}
        )
        for name, content in files.items()
    ]
