"""A process that splits a model over two devices, draws, and ends: folder of the checkpoint, device, where to."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path


def main(folder: str, device: str, into: str) -> None:
    """Write down what is drawn, and whether anything is left open between the processes."""
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"  # each worker's core; vLLM asks for it
    from searchlens.engines.base import complete
    from searchlens.engines.vllm import VllmEngine
    from test_engine_contract import FILTERS, various

    engine = VllmEngine(folder, device=device, dtype="float32", max_rows=8, tensor_parallel=2, enforce_eager=True)
    done = dict(complete(engine, various([*FILTERS.values()], 24)))
    import zmq

    gc.unfreeze()
    contexts = [one for one in gc.get_objects() if type(one) is zmq.Context]
    engine.close()
    drawn = [[done[i].tokens.tolist(), done[i].logprobs.tolist()] for i in range(len(done))]
    told = {"drawn": drawn, "contexts": len(contexts), "open": sum(not one.closed for one in contexts)}
    Path(into).write_text(json.dumps(told))


if __name__ == "__main__":  # vLLM's workers import this file, too
    main(*sys.argv[1:])
