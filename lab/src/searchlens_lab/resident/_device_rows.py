"""Rows whose whole state is on the device, and the step that draws a token for each of them without the host.

Every tensor has its place once and for all, so that on CUDA a step is captured as a graph for a number of rows and
replayed: the host launches one graph instead of some hundred kernels. On a CPU the same step runs as it stands.

A row has all its keys and values in a place of its own, those of its prompt, too, at the columns of their positions. A
step attends to the first ``window`` columns, or on CUDA with Triton to those that a row has (``_attention.py``). A row
that has finished is computed on, without effect, until the host looks and gives its place to another request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines import sampler
from searchlens.engines._llama import Llama
from searchlens.engines._prompts import Tokens, token_index

log = logging.getLogger(__name__)
Kernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

RUNNING, STOP, LENGTH = range(3)
"""Values of ``finish``."""
NUMBERS = ("token", "position", "drawn", "finish", "limit")
"""Rows of ``DeviceRows.numbers``: the newest token and its position, how many tokens were drawn, how the row has
finished, and how many tokens it may draw."""
MEASURES, COLUMNS = 3, 5
"""Columns of what was drawn: token, log p, log q, then entropy and self-certainty. Their places do not depend on what
rows need, because that changes while a row runs."""


@dataclass(frozen=True, slots=True)
class FilterWhere:
    """A filter of which rows use it is known on the device alone: computed for all rows, kept where it is used."""

    apply: Callable[[Tensor, Tensor], None]
    used: Tensor
    """Shape (rows, 1)."""
    value: Tensor
    """Valid in all rows. Shape (rows, 1), of float64."""

    def __call__(self, weights: Tensor) -> None:
        filtered = weights.clone()
        self.apply(filtered, self.value)
        weights.copy_(torch.where(self.used, filtered, weights))


def filters_of(parameters: Tensor, width: int) -> tuple[FilterWhere, ...]:
    """All filters in the order of the contract, of parameters of shape (8, rows, 1), without asking the device."""
    top_p, top_k, min_p, typical_p = parameters[1:5]
    uses_top_k = (top_k > 0) & (top_k < width)
    return (
        FilterWhere(sampler.filter_min_p, min_p > 0, min_p),
        FilterWhere(sampler.filter_typical_p, typical_p < 1, typical_p),
        FilterWhere(partial(sampler.filter_top_k, largest=width), uses_top_k, top_k.masked_fill(~uses_top_k, width)),
        FilterWhere(sampler.filter_top_p, top_p < 1, top_p),
    )


class Features(NamedTuple):
    """What at least one row needs. A step computes it for all rows, so fewer are faster."""

    filters: tuple[bool, bool, bool, bool] = (False,) * 4  # min-p, typical-p, top-k, top-p
    penalties: bool = False
    measures: bool = False
    top: int = 0  # likely tokens of each draw

    def union(self, other: Features) -> Features:
        """What the rows of either need."""
        filters = tuple(a or b for a, b in zip(self.filters, other.filters, strict=True))
        return Features(
            filters,  # type: ignore[arg-type]
            self.penalties or other.penalties,
            self.measures or other.measures,
            max(self.top, other.top),
        )


class DeviceRows:
    """Static tensors for a number of rows.

    ``logits``: final hidden states to logits, minus infinity for what must not be drawn. ``columns``: most tokens of a
    row. ``steps``: most steps between two visits of the host.
    """

    def __init__(self, model: Llama, logits: Callable[[Tensor], Tensor], rows: int, columns: int, steps: int) -> None:
        shape, device = model.shape, model.device
        self._model, self._logits = model, logits
        width = sampler.padded_vocab(shape.vocab)
        size = shape.layers, 2, rows, shape.kv_heads, columns, shape.head_dim
        self._cache = torch.zeros(size, dtype=model.dtype, device=device)  # what is masked must be finite
        self._numbers = torch.zeros(len(NUMBERS), rows, dtype=torch.int64, device=device)
        self._numbers[NUMBERS.index("finish")] = STOP
        self._parameters = torch.zeros(8, rows, dtype=torch.float64, device=device)
        self._stops = torch.zeros(rows, width, dtype=torch.bool, device=device)
        self._seen = torch.zeros(rows, width, dtype=torch.bool, device=device)
        self._counts = torch.zeros(rows, width, device=device)
        self._out = torch.zeros(rows, columns, COLUMNS, device=device)
        self._top = torch.zeros(rows, 2, 2, 1, device=device)  # (row, draw, token or log p, rank); grows in `make_room`
        self._uniforms = torch.zeros(steps, rows, dtype=torch.float64, device=device)
        self._turn = torch.zeros(1, dtype=torch.int64, device=device)
        self._index = torch.arange(max(rows, columns), device=device)
        self._kernel = self._load_kernel(shape.heads) if device.type == "cuda" else None
        self._graphs: dict[tuple[int, int, Features], torch.cuda.CUDAGraph] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    # ---- what the host writes and reads between steps

    def begin(
        self,
        rows: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
        parameters: npt.NDArray[np.float64],
        stop_ids: Sequence[tuple[int, ...]],
    ) -> None:
        """Put new requests into rows, with their ``NUMBERS`` and ``sampler.parameters``."""
        index = self._tensor(rows)
        self._numbers.index_copy_(1, index, self._tensor(numbers))
        self._parameters.index_copy_(1, index, self._tensor(parameters))
        kinds = {ids: kind for kind, ids in enumerate(dict.fromkeys(stop_ids))}
        table = np.zeros((len(kinds), self._stops.shape[1]), np.bool_)
        for ids, kind in kinds.items():
            table[kind, [token for token in ids if 0 <= token < table.shape[1]]] = True
        kind_of_row = self._tensor(np.array([kinds[ids] for ids in stop_ids]))
        self._stops.index_copy_(0, index, self._tensor(table).index_select(0, kind_of_row))

    def count(self, rows: npt.NDArray[np.int64], prompts: Sequence[Tokens], prefixes: Sequence[Tokens]) -> None:
        """Note the prompts of rows with penalties, and their prefixes, which count as drawn."""
        index, (_, width), device = self._tensor(rows), self._counts.shape, self._counts.device
        seen, counts = (
            sampler.count([np.array(tokens, np.int64) for tokens in texts], width, device)
            for texts in (prompts, prefixes)
        )
        self._seen.index_copy_(0, index, seen > 0)
        self._counts.index_copy_(0, index, counts)

    def make_room(self, draws: int, top: int) -> None:
        """Have memory for ``top`` likely tokens of each of the first draws of every row; keep what is there.

        Its place changes when it grows, so the steps that write it are captured again. The others stay, that of
        ``check`` at least: graphs share memory, which CUDA's allocator gives to no new one once all are gone.

        Raises RuntimeError if the device is out of memory.
        """
        rows, places, _, width = self._top.shape
        if draws < places and top <= width:
            return
        wider = self._top.new_zeros(rows, max(places, draws + 1), 2, max(width, top))
        wider[:, :places, :, :width] = self._top
        self._top = wider
        self._graphs = {key: graph for key, graph in self._graphs.items() if not key[2].top}

    def copy(
        self,
        keys_values: Tensor,
        lengths: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        sequences: npt.NDArray[np.int64],
    ) -> None:
        """Give rows the keys and values of sequences, from their first column on.

        ``keys_values``: one sequence after the other. ``rows``, ``sequences``: rows, and the number of the sequence
        that each gets.
        """
        place, column = token_index(lengths[sequences])
        source = (lengths.cumsum() - lengths)[sequences][place] + column
        targets = self._tensor(rows[place]), self._tensor(column)
        cache, values = _wide(self._cache), _wide(keys_values)
        cache.permute(2, 4, 0, 1, 3, 5)[targets] = values.index_select(0, self._tensor(source))

    def copy_rows(
        self, sources: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> None:
        """Give rows the first keys and values of other rows.

        ``sources``, ``rows``: no row is in both. ``lengths``: how many tokens each row gets.
        """
        place, column = token_index(lengths)
        columns = self._tensor(column)
        cache = _wide(self._cache).permute(2, 4, 0, 1, 3, 5)
        cache[self._tensor(rows[place]), columns] = cache[self._tensor(sources[place]), columns]

    def progress(self, rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Wait for the device; return how many tokens the first rows have drawn, and how they have finished."""
        drawn, finish = self._numbers[2:4, :rows].cpu().numpy()
        return drawn, finish

    def drawn(self, rows: npt.NDArray[np.int64], longest: int, features: Features) -> npt.NDArray[np.float32]:
        """Return what was drawn in some rows, shape (rows, longest, columns up to those that ``features`` need)."""
        return np.asarray(self._out[:, :longest, : _width(features)].index_select(0, self._tensor(rows)).cpu())

    def top(self, rows: npt.NDArray[np.int64], longest: int, most: int) -> npt.NDArray[np.float32]:
        """Return likely tokens of some rows and their log p, shape (rows, longest, 2, most)."""
        return np.asarray(self._top[:, :longest, :, :most].index_select(0, self._tensor(rows)).cpu())

    # ---- steps

    def check(self) -> None:
        """Run the step that takes the most, while no row runs: all rows, all columns and every feature.

        Then with a likely token, too: memory for more is allocated once requests want them.

        Raises RuntimeError if the device cannot capture a step, or is out of memory.
        """
        rows, columns = self._out.shape[:2]
        for top in (0, 1):
            self.advance(np.zeros((1, rows)), columns, Features((True,) * 4, True, True, top))
        self.progress(rows)

    def advance(self, uniforms: npt.NDArray[np.float64], window: int, features: Features) -> None:
        """Draw a token in each running row, once for each row of ``uniforms``, shape (steps, rows); do not wait."""
        steps, rows = uniforms.shape
        self._uniforms[:steps, :rows] = torch.from_numpy(uniforms).to(self._cache.device)
        self._turn.zero_()
        if self._stream is None:
            for _ in range(steps):
                self._step(rows, window, features)
            return
        key = rows, 1 if self._kernel else window, features  # the kernel needs no window
        if key not in self._graphs:
            self._graphs[key] = self._capture(*key)
        for _ in range(steps):
            self._graphs[key].replay()

    def _capture(self, rows: int, window: int, features: Features) -> torch.cuda.CUDAGraph:
        """Record a step. One is run before, because libraries choose kernels and take memory on first use."""
        assert self._stream is not None
        changing = (self._numbers, self._counts, self._turn)
        kept = [tensor.clone() for tensor in changing]
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._cache.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._step(rows, window, features)
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._step(rows, window, features)
            finally:  # a stream that goes on capturing cannot be used, nor its memory be freed
                graph.capture_end()
        current.wait_stream(self._stream)
        for tensor, values in zip(changing, kept, strict=True):
            tensor.copy_(values)
        return graph

    def _step(self, rows: int, window: int, features: Features) -> None:
        """Draw one token in each running row."""
        token, position, _, finish, _ = self._numbers[:, :rows]
        index = self._index[:rows]
        masked = self._index[:window] > position[:, None]

        def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
            cache = self._cache[layer]
            cache[:, :rows].permute(1, 3, 0, 2, 4)[index, position] = keys_values[:rows]
            if self._kernel:
                out = self._kernel(queries[:rows], cache, position, finish)
            else:
                out = _attend(queries[:rows], cache[:, :rows, :, :window], masked)
            padding = queries.shape[0] - rows
            return functional.pad(out, (0, 0, 0, padding)) if padding else out

        hidden = self._model.forward(token, position, attend)
        uniforms = self._uniforms[:, :rows].index_select(0, self._turn)[0]
        draw = sampler.draw(self._logits(hidden), self._sampling(rows, features), uniforms)
        self._record(draw, rows, features)
        self._turn.add_(1)

    def _sampling(self, rows: int, features: Features) -> sampler.SamplingBatch:
        index, parameters = self._index[:rows], self._parameters[:, :rows, None]
        penalties = None
        if features.penalties:
            repetition, frequency, presence = parameters[5:].float()
            seen, counts = self._seen[:rows], self._counts[:rows]
            penalties = sampler.Penalties(index, repetition, frequency, presence, seen, counts)
        greedy, width = parameters[0] == 0, self._stops.shape[1]
        possible = filters_of(parameters, width)
        return sampler.SamplingBatch(
            inverse_temperature=parameters[0].masked_fill(greedy, 1.0).reciprocal_().float(),
            greedy=greedy.squeeze(1),
            all_greedy=False,
            filters=tuple(bound for bound, used in zip(possible, features.filters, strict=True) if used),
            penalties=penalties,
            measure_rows=index if features.measures else None,
            top_rows=index if features.top else None,
            largest_top=features.top,
        )

    def _record(self, draw: sampler.Draw, rows: int, features: Features) -> None:
        """Append a token to each running row, and find out which rows finish with it."""
        index = self._index[:rows]
        token, position, drawn, finish, limit = self._numbers[:, :rows]
        parts = [torch.stack((draw.tokens.float(), draw.logprobs, draw.sampling_logprobs))]
        if draw.measures is not None:
            parts.append(draw.measures)
        self._out[:rows, :, : _width(features)][index, drawn] = torch.cat(parts).t()  # unread beyond the end of a row
        if draw.top_tokens is not None and draw.top_logprobs is not None:
            top = torch.stack((draw.top_tokens.float(), draw.top_logprobs)).permute(2, 0, 1)
            place = drawn.clamp(max=self._top.shape[1] - 1)  # rows that want none may draw more; nobody reads theirs
            self._top[:rows, :, :, : features.top][index, place] = top
        running = finish == RUNNING
        token.copy_(torch.where(running, draw.tokens, token))
        position.add_(running)
        drawn.add_(running)
        code = torch.zeros_like(finish)
        code.masked_fill_(drawn == limit, LENGTH)
        code.masked_fill_(self._stops[:rows].gather(1, token[:, None]).squeeze(1), STOP)
        finish.copy_(torch.where(running, code, finish))

    def _load_kernel(self, heads: int) -> Kernel | None:
        """Return the attention of ``_attention.py`` once it has run; None if this machine cannot run it."""
        _, _, rows, _, _, head_dim = self._cache.shape
        if head_dim & (head_dim - 1):
            return None
        try:
            from searchlens_lab.resident._attention import attend

            queries = self._cache.new_zeros(rows, heads, head_dim)
            attend(queries, self._cache[0], *self._numbers[[NUMBERS.index("position"), NUMBERS.index("finish")]])
        except Exception as error:  # of Triton, of the C compiler that it starts, of the driver
            reason = str(error).strip().partition("\n")[0]
            log.info("attention without Triton, which is slower (%s)", reason)
            return None
        return attend

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._cache.device)


def _attend(queries: Tensor, keys_values: Tensor, masked: Tensor) -> Tensor:
    """Attend to a window, shape (2, rows, kv_heads, window, head_dim), but for masked columns, shape (rows, window)."""
    _, rows, kv_heads, window, head_dim = keys_values.shape
    keys, values = keys_values.flatten(1, 2)
    scores = torch.bmm(queries.reshape(rows * kv_heads, -1, head_dim), keys.transpose(1, 2))
    scores.view(rows, -1, window).masked_fill_(masked[:, None], -torch.inf)
    weights = functional.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
    return torch.bmm(weights, values).view(rows, -1)


def _wide(values: Tensor) -> Tensor:
    """View numbers as elements of 16 bytes, where they can be: a GPU's time to copy by index is one of elements."""
    return values.view(torch.complex128) if values.shape[-1] * values.element_size() % 16 == 0 else values


def _width(features: Features) -> int:
    """Return how many columns of ``out`` a step writes."""
    return COLUMNS if features.measures else MEASURES
