"""Every state of the disk that a power failure may legally leave, after each call of a sampling run.

A call on a folder (a new name, a rename, a removal) is on the disk for certain once that folder was synced, and the
bytes of a file once the file was; until then each may be missing, whatever came after it. For each beginning of the log
states are laid out in which nothing, one, or two of the unsynced calls are missing; then the store is verified, and the
same command given again. The idea is that of ALICE (Pillai and others, OSDI 2014).
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import study
from injected import Call, Injected
from parts import in_processes
from points import in_fork
from searchlens.cli.verify import verify

Tree = tuple[frozenset[str], tuple[tuple[str, bytes], ...]]
"""Folders, and files with their bytes."""


class State(NamedTuple):
    """What a failure left, how many samples had been drawn after how many calls, and which calls are missing."""

    tree: Tree
    drawn: int
    after: int
    lost: tuple[str, ...]


@dataclass
class _Disk:
    folders: set[str] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    bytes: dict[int, bytes] = field(default_factory=dict)

    def tree(self) -> Tree:
        there = {path for path in self.folders if self._reaches(path)}
        files = sorted((name, self.bytes[file]) for name, file in self.names.items() if os.path.dirname(name) in there)
        return frozenset(there), tuple(files)

    def _reaches(self, path: str) -> bool:
        """Whether no folder above is missing."""
        above = os.path.dirname(path)
        return above not in self._made or (above in self.folders and self._reaches(above))

    _made: set[str] = field(default_factory=set)


def states(calls: Sequence[tuple[Call, int]], root: str) -> Iterator[State]:
    """Every different state; ``calls`` are given with how many samples had been drawn at each."""
    seen: set[Tree] = set()
    for end in range(len(calls) + 1):
        done = [call for call, _ in calls[:end]]
        open_calls = [i for i in range(end) if not _is_synced(done, i)]
        drops = [(), *((i,) for i in open_calls), *combinations(open_calls, 2)]
        for drop in drops:
            tree = _after(done, set(drop), root)
            if tree not in seen:
                seen.add(tree)
                drawn = calls[end - 1][1] if end else 0
                yield State(tree, drawn, end, tuple(f"{i + 1} {done[i].name}" for i in drop))


def _is_synced(calls: Sequence[Call], place: int) -> bool:
    call = calls[place]
    if call.name == "fsync":
        return True
    target = call.paths[-1]
    synced = target if call.name == "write" else os.path.dirname(target)
    return any(later.name == "fsync" and later.paths[0] == synced for later in calls[place + 1 :])


def _after(calls: Sequence[Call], lost: set[int], root: str) -> Tree:
    """The tree after calls of which some are lost; a lost write leaves half of its bytes."""
    disk, inodes = _Disk({root}), dict[str, int]()
    disk._made = {root, *(call.paths[0] for call in calls if call.name == "mkdir")}
    for number, call in enumerate(calls):
        first, last, is_lost = call.paths[0], call.paths[-1], number in lost
        if call.name == "create":
            inodes[first] = number
            disk.bytes[number] = b""
            if not is_lost:
                disk.names[first] = number
        elif call.name == "write":
            disk.bytes[inodes[first]] = call.content[: len(call.content) // 2] if is_lost else call.content
        elif call.name in ("link", "replace", "rename"):
            inodes[last] = inodes.get(first, -1)
            if not is_lost and inodes[last] >= 0:
                disk.names[last] = inodes[last]
                if call.name != "link":
                    disk.names.pop(first, None)
        elif is_lost:
            continue
        elif call.name == "unlink":
            disk.names.pop(first, None)
        elif call.name == "mkdir":
            disk.folders.add(first)
        elif call.name == "rmdir" and not any(os.path.dirname(name) == first for name in disk.names):
            disk.folders.discard(first)
    return disk.tree()


class Survey:
    """Logs one undisturbed sampling run, and tries the states that a failure may leave of it."""

    def __init__(self, root: Path) -> None:
        self.root, self._log = root, root / "log.json"
        study.found(root / "study")
        in_fork(self._undisturbed)
        found = json.loads(self._log.read_text())
        self.content, self.drawn = found["content"], found["drawn"]
        rows = found["calls"]
        self.calls = [(Call(name, tuple(paths), bytes.fromhex(text)), drawn) for name, paths, text, drawn in rows]

    def _undisturbed(self) -> None:
        drawn, counts = study.Counter(), list[int]()
        study.script(drawn)
        folder = self.root / "study"
        with chdir(folder):
            injected = Injected(folder / "results", at=-1)
            injected.each = lambda: counts.append(drawn.value)
            for arguments in study.generate():
                assert study.run(*arguments) == 0
        logged = zip(injected.log, counts, strict=True)
        rows = [(call.name, call.paths, call.content.hex(), count) for call, count in logged]
        self._log.write_text(json.dumps({"calls": rows, "content": study.content(folder), "drawn": drawn.value}))

    def states(self) -> list[State]:
        return list(states(self.calls, str(self.root / "study" / "results")))

    def attempt(self, number: int, state: State) -> list[str]:
        """Lay a state out, verify it, and sample again; what is wrong, empty if nothing."""
        folder, report = self.root / f"state{number}", self.root / f"state{number}.json"
        try:
            study.found(folder)
            _lay_out(state.tree, str(self.root / "study" / "results"), folder / "results")
            in_fork(lambda: self._check(folder, state, report))
            return list(json.loads(report.read_text()))
        except Exception as error:
            return [f"{state[1:]}: {error!r}"]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            report.unlink(missing_ok=True)

    def _check(self, folder: Path, state: State, report: Path) -> None:
        drawn, wrong = study.Counter(), list[str]()
        study.script(drawn)
        if any(folder.joinpath("results", name).is_dir() for name in ("generations", "manifests", "config")):
            wrong += [f"verify: {line}" for line in verify(folder / "results").damaged]
        with chdir(folder):
            wrong += [f"{arguments[0]} failed" for arguments in study.generate() if study.run(*arguments)]
        wrong += [] if study.content(folder) == self.content else ["other files than an undisturbed run"]
        wrong += [f"verify: {line}" for line in verify(folder / "results").damaged]
        wrong += ["something is still to make"] if study.missing(folder) else []
        again = state.drawn + drawn.value - self.drawn
        wrong += [f"{again} samples were drawn twice"] if again > study.CHUNK else []
        report.write_text(json.dumps([f"{state[1:]}: {one}" for one in wrong]))


def _lay_out(tree: Tree, root: str, results: Path) -> None:
    folders, files = tree
    for path in sorted(folders):
        results.joinpath(os.path.relpath(path, root)).mkdir(exist_ok=True)
    for name, content in files:
        results.joinpath(os.path.relpath(name, root)).write_bytes(content)


def attempt_all(survey: Survey, chosen: Sequence[State], processes: int) -> list[str]:
    """Try states, some at a time; what is wrong."""
    return [line for found in in_processes(survey.root, chosen, processes, survey.attempt) for line in found]
