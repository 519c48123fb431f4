"""A sampler for training: all rows advance together, with one static cache and, on a GPU, one CUDA graph per step.

It draws RLVR's rollouts, the samples that measure levels, and those of dev evaluation; the engines of the project
sample the benchmarks. docs/zoo.md says why this is not the embedded engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines.base import Sampling
from searchlens_lab.zoo.corpus import END, PAD
from searchlens_lab.zoo.model import Decoder, compute_dtype

_PREFILL_ROWS = 1024  # prompts in one forward pass; bounds the memory of their attention
_CHECK_EVERY = 16  # steps between two looks at whether all rows have ended; each look waits for the GPU


@dataclass(frozen=True, slots=True)
class Samples:
    """Completions of a batch of prompts."""

    tokens: Tensor
    """Int64 tensor, on the CPU. Generated ids; the row is filled up with the stop token. Shape (samples, longest)."""
    lengths: Tensor
    """Int64 tensor. Number of generated tokens, the stop token included. Shape (samples,)."""
    finished: Tensor
    """Whether the row ended with the stop token. Shape (samples,)."""


class Sampler:
    """Draws batches of at most ``rows`` completions, with buffers that are allocated once.

    ``prompt_tokens``, ``new_tokens``: of the longest prompt and completion.
    """

    def __init__(self, model: Decoder, rows: int, prompt_tokens: int, new_tokens: int) -> None:
        shape = model.shape
        device = next(model.parameters()).device
        self.rows, self.prompt_tokens, self.new_tokens = rows, prompt_tokens, new_tokens
        self.device, self.dtype = device, compute_dtype(device.type)
        self.model = Decoder(shape).to(device, self.dtype).eval()
        capacity = prompt_tokens + new_tokens
        cache = (shape.layers, rows, shape.kv_heads, capacity, shape.hidden // shape.heads)
        self.keys = torch.zeros(cache, device=device, dtype=self.dtype)
        self.values = torch.zeros(cache, device=device, dtype=self.dtype)
        self.slots = torch.arange(capacity, device=device)
        self.pads = torch.zeros(rows, device=device, dtype=torch.long)  # padding tokens before each prompt
        self.slot = torch.zeros(1, device=device, dtype=torch.long)  # of the cache, where the last tokens go
        self.last = torch.zeros(rows, device=device, dtype=torch.long)
        self.out = torch.zeros(rows, new_tokens, device=device, dtype=torch.long)
        self.finished = torch.zeros(rows, device=device, dtype=torch.bool)
        self.temperature = torch.ones(1, device=device)
        self.top_p = torch.ones(1, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.load(model)

    @torch.no_grad()
    def load(self, model: Decoder) -> None:
        """Copy the weights of ``model``."""
        for target, source in zip(self.model.parameters(), model.parameters(), strict=True):
            target.copy_(source)

    @torch.no_grad()
    def draw(self, prompts: Sequence[Sequence[int]], policy: Sampling, max_tokens: int = 0) -> Samples:
        """Draw one completion of at most ``max_tokens`` (0: the capacity) for each prompt; prompts may repeat."""
        limit = max_tokens or self.new_tokens
        n = len(prompts)
        self.temperature.fill_(max(policy.temperature, 1e-4))
        self.top_p.fill_(policy.top_p)
        self.out.fill_(END)
        self.finished.fill_(True)
        self.finished[:n] = False
        self._choose(self._prefill(prompts))
        steps = 1
        while steps < limit and not (steps % _CHECK_EVERY == 0 and bool(self.finished.all())):
            self._advance()
            steps += 1
        tokens = self.out[:n, :limit].cpu()
        ended = tokens == END
        finished = ended.any(1)
        lengths = torch.where(finished, ended.int().argmax(1) + 1, limit)
        return Samples(tokens[:, : int(lengths.max())], lengths, finished)

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Fill the cache with the prompts; returns the logits after each prompt's last token."""
        width = self.prompt_tokens
        rows = [list(prompt) for prompt in prompts] + [[END]] * (self.rows - len(prompts))
        ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
        self.pads.copy_(torch.tensor([width - len(row) for row in rows]))
        self.slot.fill_(width - 1)
        logits = [self._prefill_rows(ids, slice(i, i + _PREFILL_ROWS)) for i in range(0, self.rows, _PREFILL_ROWS)]
        return torch.cat(logits)

    def _prefill_rows(self, ids: Tensor, rows: slice) -> Tensor:
        width = self.prompt_tokens
        at = self.slots[:width]
        pads = self.pads[rows, None]
        angles = self.model.angles((at[None] - pads).clamp_min(0))
        visible = (at[None, :] <= at[:, None])[None] & (at[None, None, :] >= pads[..., None])
        visible |= torch.eye(width, device=self.device, dtype=torch.bool)[None]
        x = self.model.embed(ids[rows].to(self.device))
        for i, layer in enumerate(self.model.layers):
            q, k, v = layer.before(x, angles)
            self.keys[i, rows, :, :width], self.values[i, rows, :, :width] = k, v
            attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None], enable_gqa=True)
            x = layer.after(x, attended)
        return self.model.unembed(x[:, -1])

    def _advance(self) -> None:
        if self.device.type != "cuda":
            self._step()
            return
        if self.graph is None:
            self._capture()
        assert self.graph is not None
        self.graph.replay()

    def _capture(self) -> None:
        """Record one step as a CUDA graph and restore the state that recording changed."""
        state = (self.slot, self.last, self.out, self.finished)
        copies = [tensor.clone() for tensor in state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()
        for tensor, copy in zip(state, copies, strict=True):
            tensor.copy_(copy)

    def _step(self) -> None:
        """Feed the last token of every row and choose the next one."""
        angles = self.model.angles((self.slot - self.pads)[:, None])
        hidden = ((self.slots > self.slot)[None] | (self.slots[None] < self.pads[:, None]))[:, None, None]
        x = self.model.embed(self.last)[:, None]
        for i, layer in enumerate(self.model.layers):
            q, k, v = layer.before(x, angles)
            self.keys[i].index_copy_(2, self.slot, k)
            self.values[i].index_copy_(2, self.slot, v)
            grouped = q.unflatten(1, (k.shape[1], -1)).squeeze(3)
            scores = (grouped @ self.keys[i].transpose(-1, -2)).float() * q.shape[-1] ** -0.5
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1).to(self.dtype)
            attended = (weights @ self.values[i]).flatten(1, 2).unsqueeze(2)
            x = layer.after(x, attended)
        self._choose(self.model.unembed(x[:, 0]))

    def _choose(self, logits: Tensor) -> None:
        """Draw the next token of every row from the nucleus, which includes the token that crosses its mass."""
        ranked, order = (logits.float() / self.temperature).softmax(-1).sort(-1, descending=True)
        outside = ranked.cumsum(-1) - ranked >= self.top_p
        outside[:, 0] = False
        noise = torch.empty_like(ranked).exponential_().clamp_min(1e-20)
        drawn = (ranked / noise).masked_fill(outside, -1.0).argmax(-1, keepdim=True)
        token = torch.where(self.finished, END, order.gather(1, drawn)[:, 0])
        self.out.index_copy_(1, self.slot - (self.prompt_tokens - 1), token[:, None])
        self.finished |= token == END
        self.last.copy_(token)
        self.slot += 1
