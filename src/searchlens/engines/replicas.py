"""Several processes with an engine each, which share a device: together one engine.

Between two steps of a small or middle-sized model a GPU waits for its host, which schedules and sends the next step row
by row, in one thread. With several processes the GPU runs the step of one while the hosts of the others work. Each
process has the weights and its own cache, so this takes memory, and processor cores.

A request goes to the process that is likely to have the keys and values of its text, unless that one has clearly more
to do than another.
"""

from __future__ import annotations

import atexit
import signal
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Thread
from typing import Any

from searchlens.engines._checks import Bounds, require_idle
from searchlens.engines.base import (
    PLAIN,
    Completion,
    Engine,
    EngineMemoryError,
    Given,
    Request,
    RequestError,
    Sampling,
    Scored,
)
from searchlens.errors import InputError

_PATIENCE = 60.0  # seconds that processes have to free the device
_UNEVEN = 16  # a process may have 1/16 of its rows more than another before it gets no more requests
_BEGINNING = 16  # tokens by which a text is recognised: a search that continues one seldom changes the first ones
_TEXTS_A_ROW = 16  # texts whose process is remembered, for each row: those of searches between two requests, too

Reply = list[tuple[int, Completion | RequestError]]


def share(settings: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Arguments of each of several engines: rows, threads and memory are divided, but for those that are None."""
    rows, threads, kept = (settings[name] for name in ("max_rows", "threads", "kv_cache_memory_bytes"))
    return {
        **settings,
        "max_rows": rows and max(1, rows // count),
        "threads": threads and max(1, threads // count),
        "kv_cache_memory_bytes": kept and kept // count,
        "gpu_memory_utilization": settings["gpu_memory_utilization"] / count,
    }


class Replicas:
    """Engines in processes of their own, as one engine, whose ``max_rows`` is that of all processes together.

    ``make`` starts an engine and can be pickled. It is called once in each process, one after the other: an engine
    measures the memory of the device as it starts, which nobody else may change meanwhile. What an engine raises as it
    starts is raised here; RuntimeError if it failed in another way, or its process ended.
    """

    vocab_size: int
    max_model_len: int
    max_rows: int
    groups: tuple[int, ...]
    masked: tuple[int, ...]
    device: str
    version: str
    bounds: Bounds

    def __init__(self, make: Callable[[], Engine], count: int) -> None:
        self.repeatable = False
        self._processes: list[_Process] = []
        atexit.register(self._kill)  # before multiprocessing waits for its processes
        try:
            for _ in range(count):
                self._processes.append(_Process(make, count))
                known = self._processes[-1].result("started")
        except BaseException:
            self.close()
            raise
        for name, value in known.items():
            setattr(self, name, value)
        self._rows = int(known["max_rows"])
        self.max_rows = count * self._rows
        self._requests: dict[int, tuple[int, Request]] = {}
        self._homes: OrderedDict[tuple[tuple[int, ...], tuple[int, ...]], int] = OrderedDict()

    @property
    def steps(self) -> int:
        """Mean number of steps, up to the last ones that finished a request."""
        return sum(process.steps for process in self._processes) // len(self._processes)

    def clear(self) -> None:
        """Empty the prefix caches. Raises RuntimeError if requests are waiting or running."""
        require_idle(not self._requests, "its cache can be cleared")
        self._homes.clear()
        self._ask_all("clear", [()] * len(self._processes))

    def add(self, request_id: int, request: Request) -> None:
        """Send a request; InputError as ``Engine.add``. What only the engine knows is raised by a later ``step``."""
        self.bounds.check(request_id, request)
        loads = [process.requests for process in self._processes]
        least = min(loads)
        home = self._homes.get((request.prompt, request.prefix[:_BEGINNING]))
        if home is None or loads[home] > least + self._rows // _UNEVEN:
            home = loads.index(least)
        if not request.prefix:
            self._remember(request.prompt, (), home)
        self._requests[request_id] = home, request
        self._processes[home].requests += 1
        self._processes[home].send("add", request_id, request)

    def step(self) -> Reply:
        """Wait until a process has finished requests, and return all that are finished; nothing if none is left.

        Raises what an engine raised, and RuntimeError if it failed in another way, or its process ended.
        """
        busy = {process.connection: process for process in self._processes if process.requests}
        finished: Reply = []
        for connection in wait(list(busy)) if busy else ():
            finished += busy[connection].result("finished")  # type: ignore[index]
        for request_id, reply in finished:
            home, request = self._requests.pop(request_id)
            self._processes[home].requests -= 1
            if isinstance(reply, Completion):
                self._remember(request.prompt, (*request.prefix, *reply.tokens[:_BEGINNING].tolist()), home)
        return finished

    def score(self, texts: Sequence[Given], sampling: Sampling = PLAIN) -> list[Scored]:
        """Score texts as ``Engine.score``, each process a part; also RequestError if an engine gave up a text."""
        require_idle(not self._requests, "texts can be scored")
        self.bounds.check_given(texts, sampling)
        count = len(self._processes)
        # Neighbours may share a prompt.
        edges = [len(texts) * place // count for place in range(count + 1)]
        parts = [list(texts[first:last]) for first, last in pairwise(edges)]
        return [scores for part in self._ask_all("score", [(part, sampling) for part in parts]) for scores in part]

    def close(self) -> None:
        """End the processes, and with them free the device."""
        for process in self._processes:  # a process ends with its connection, also if it waits to be read
            process.connection.close()
        for process in self._processes:
            process.process.join(_PATIENCE)
        self._kill()
        atexit.unregister(self._kill)

    def _ask_all(self, command: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Have every process do something at the same time, and return the results."""
        for process, given in zip(self._processes, arguments, strict=True):
            process.send(command, *given)
        results: list[Any] = []
        errors: list[Exception] = []
        for process in self._processes:  # all of them, so that no answer is left for the next question
            try:
                results.append(process.result(command))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def _remember(self, prompt: tuple[int, ...], text: tuple[int, ...], home: int) -> None:
        key = prompt, text[:_BEGINNING]
        self._homes[key] = home
        self._homes.move_to_end(key)
        if len(self._homes) > _TEXTS_A_ROW * self.max_rows:
            self._homes.popitem(last=False)

    def _kill(self) -> None:
        for process in self._processes:
            process.process.kill()
            process.process.join()
        self._processes = []


class _Process:
    """A process with an engine, how many requests it has, and the steps of its engine, as it said last."""

    def __init__(self, make: Callable[[], Engine], count: int) -> None:
        context = get_context("spawn")  # CUDA cannot be used after a fork
        self.requests = self.steps = 0
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(make, theirs, count), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe ends with the process

    def send(self, *message: Any) -> None:
        try:
            self.connection.send(message)
        except OSError:
            self._raise_ended()

    def result(self, expected: str) -> Any:
        """Wait for what the process says next; raise what it raised."""
        try:
            kind, steps, value = self.connection.recv()
        except (EOFError, OSError):
            self._raise_ended()
        self.steps = steps
        if kind == "failed":
            error, arguments = value
            raise error(*arguments)
        if kind != expected:
            raise RuntimeError(f"an engine's process answers {kind!r} instead of {expected!r}")
        return value

    def _raise_ended(self) -> None:
        self.process.join(_PATIENCE)
        raise RuntimeError(f"an engine's process ended with exit code {self.process.exitcode}") from None


def _serve(make: Callable[[], Engine], connection: Connection, count: int) -> None:
    """Run an engine for the process at the other end of a connection, until that one ends."""
    # A terminal or a scheduler signals all processes of a job. The first one decides what that means.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    inbox: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def read() -> None:
        with suppress(EOFError, OSError):
            while True:
                inbox.put(connection.recv())
        inbox.put(("close",))  # the other process ended

    # At once, whatever the engine does: two ends that both wait to be read would wait forever.
    reader = Thread(target=read, daemon=True)
    engine: Engine | None = None
    try:
        engine = make()
        connection.send(("started", 0, {name: getattr(engine, name, None) for name in Replicas.__annotations__}))
        reader.start()
        for kind, value in _answers(engine, inbox, count):
            connection.send((kind, engine.steps, value))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the other process ended
    except Exception as error:
        with suppress(OSError):
            connection.send(("failed", 0, _described(error, count)))
    finally:
        if engine is not None:
            engine.close()


def _answers(engine: Engine, inbox: SimpleQueue[tuple[Any, ...]], count: int) -> Iterator[tuple[str, Any]]:
    """Yield the name and the result of everything that the engine is asked for, and finished requests."""
    commands: dict[str, Callable[..., Any]] = {"clear": engine.clear, "score": engine.score}
    running = 0
    while True:
        while not running or not inbox.empty():
            command, *arguments = inbox.get()
            if command == "close":
                return
            if command == "add":
                engine.add(*arguments)
                running += 1
                continue
            try:
                yield command, commands[command](*arguments)
            except RequestError as error:  # of one text; the engine goes on
                yield "failed", _described(error, count)
        if finished := list(engine.step()):
            running -= len(finished)
            yield "finished", finished


def _described(error: Exception, count: int) -> tuple[type[Exception], tuple[Any, ...]]:
    """What raises an error again, as one of ``count`` engines; not all errors of libraries can be sent."""
    if isinstance(error, InputError):
        return InputError, (error.message, error.hint)
    if isinstance(error, EngineMemoryError):
        return EngineMemoryError, (str(error), count * error.max_rows)
    if isinstance(error, RequestError):
        return RequestError, (str(error),)
    traceback.print_exception(error)
    return RuntimeError, (f"{type(error).__name__}: {error}",)
