"""Every call that changes something on disk, counted, logged, and made to fail.

``searchlens.store.files`` publishes everything by calls of ``os``; what fills a temporary file counts as one write.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from searchlens.store import files

Fault = Literal["die before", "die after", "ENOSPC", "EIO"]
FAULTS: tuple[Fault, ...] = ("die before", "die after", "ENOSPC", "EIO")
DIED = 70
"""Exit status of a process that dies of a fault."""

_CALLS = ("fsync", "link", "replace", "rename", "unlink", "mkdir", "rmdir", "chmod")


@dataclass
class Call:
    """One call: its name, its paths, and the bytes that a write left."""

    name: str
    paths: tuple[str, ...]
    content: bytes = b""


@dataclass
class Injected:
    """Patches ``os`` in this process: call number ``at`` below the folder fails, counted from 1; none if it is 0.

    ``log`` has every call until now; ``each`` is called at every call.
    """

    folder: Path
    at: int = 0
    fault: Fault = "die before"
    log: list[Call] = field(default_factory=list)
    each: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        for name in _CALLS:
            setattr(os, name, self._faulty(name, getattr(os, name)))
        opened = os.open

        def create(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if not flags & os.O_CREAT:
                return opened(path, flags, *rest, **options)
            return self._call("create", (path,), lambda: opened(path, flags, *rest, **options))

        os.open = create
        written = files._write

        def write(target: Path, fill: Callable[[Path], object]) -> Path:
            return written(target, lambda path: self._fill(path, fill))

        files._write = write

    def _faulty(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **options: Any) -> Any:
            count = 2 if name in ("link", "replace", "rename") else 1
            paths = arguments[:count]
            if (folder := options.get("dir_fd")) is not None:  # as `shutil.rmtree` calls it
                paths = (os.path.join(_path(folder), arguments[0]),)
            return self._call(name, paths, lambda: call(*arguments, **options))

        return faulty

    def _fill(self, path: Path, fill: Callable[[Path], object]) -> None:
        """A write that dies early leaves half of its bytes."""
        if self.at == len(self.log) + 1 and self.fault == "die before":
            fill(path)
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            os._exit(DIED)
        self._call("write", (path,), lambda: fill(path))
        self.log[-1].content = path.read_bytes()

    def _call(self, name: str, paths: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        named = tuple(_path(path) for path in paths)
        if not named[0].startswith(str(self.folder)):
            return call()
        self.log.append(Call(name, named))
        self.each()
        if len(self.log) != self.at:
            return call()
        if self.fault == "die before":
            os._exit(DIED)
        if self.fault == "die after":
            call()
            os._exit(DIED)
        number = getattr(errno, self.fault)
        by_name = isinstance(paths[0], (str, os.PathLike)) and name != "write"
        raise OSError(number, os.strerror(number), *([os.fspath(paths[0])] if by_name else []))  # as `os` has it


def _path(path: Any) -> str:
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    return os.path.abspath(path)
