"""The engine ``resident``: ``transformers`` with rows that stay on the device."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from searchlens import catalogue
from searchlens.engines import sampler
from searchlens.engines.base import Completion, Request
from searchlens.engines.transformers import CUDA_MEMORY, TransformersEngine, bytes_per_token
from searchlens_lab.resident._resident import Resident

log = logging.getLogger(__name__)

_LONGEST = 1024
"""Each row has memory for a whole text, and a step reads as many columns of every row as the longest one has."""


class ResidentEngine(TransformersEngine):
    """Samples as ``TransformersEngine`` does, with the same parameters, from rows that stay on the device.

    Draws are the same in float32; in bfloat16 3% of texts differ. Models that are too large for it are run as by
    ``TransformersEngine``, and so are all on devices that cannot capture a step or lack the memory, which is logged.
    """

    _resident: Resident | None = None

    def __init__(self, path: str | Path, **given: Any) -> None:
        super().__init__(path, **given)
        self._resident = self._start_resident() if self._fits() else None

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request; ``base.Engine`` says what is refused."""
        if self._resident is None:
            super().add(request_id, request)
        else:
            self.bounds.check(request_id, request)
            self._resident.add(request_id, request)

    def close(self) -> None:
        """Drop all requests and the weights; the engine cannot be used afterwards."""
        super().close()
        self._resident = None

    def _turn(self) -> list[tuple[int, Completion]]:
        if self._resident is None:
            return super()._turn()
        finished = self._resident.collect()
        self._resident.admit()
        self.steps += self._resident.launch()
        return finished

    @property
    def _is_idle(self) -> bool:
        return super()._is_idle and (self._resident is None or self._resident.is_idle)

    def _reset(self) -> None:
        super()._reset()
        if self._resident:
            self._resident.reset()

    @torch.inference_mode()
    def _start_resident(self) -> Resident | None:
        """Allocate rows on the device; return None if it cannot run them."""
        sizes = self.max_rows, self.max_model_len, self._prefill_tokens
        try:
            return Resident(self._model, self._cache, self._logits, *sizes)
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            log.warning("rows do not stay on %s, so that sampling is slower (%s)", self.device, reason)
            return None

    def _fits(self) -> bool:
        """Whether all rows can stay on the device: on CUDA, if they fit at full length and no filter has to ask."""
        model = self._model
        if model.device.type == "cpu":
            return True
        memory = torch.cuda.get_device_properties(model.device).total_memory * CUDA_MEMORY
        needed = self.max_rows * self.max_model_len * bytes_per_token(model)
        narrow = sampler.padded_vocab(self.vocab_size) <= sampler.CUDA_PREFIX
        return narrow and self.max_model_len <= _LONGEST and needed <= memory


@catalogue.engine("resident", embedded=True, family="transformers")
def start(folder: Path, *, device: str, **given: Any) -> TransformersEngine:
    """Load a checkpoint for a job; on a CPU such rows would only change batches."""
    engine = TransformersEngine if device == "cpu" else ResidentEngine
    return engine(folder, device=device, **given)
