"""A process that splits a model over two devices, and draws. Arguments: checkpoint folder, device, output file."""

import gc
import json
import os
import sys
from pathlib import Path


def main(folder: str, device: str, into: str) -> None:
    """Write the drawn tokens, how many zmq contexts the engine had, and how many of them it left open."""
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"  # the core of each worker; vLLM requires it
    import rooms  # noqa: F401  # before the tests
    from searchlens.engines.base import complete
    from searchlens.engines.vllm import VllmEngine
    from test_engine_contract import FILTERS, various

    engine = VllmEngine(folder, device=device, dtype="float32", max_rows=8, tensor_parallel=2, enforce_eager=True)
    done = dict(complete(engine, various([*FILTERS.values()], 24)))
    import zmq

    gc.unfreeze()
    contexts = [thing for thing in gc.get_objects() if type(thing) is zmq.Context]
    engine.close()
    drawn = [[done[i].tokens.tolist(), done[i].logprobs.tolist()] for i in range(len(done))]
    report = {"drawn": drawn, "contexts": len(contexts), "open": sum(not context.closed for context in contexts)}
    Path(into).write_text(json.dumps(report))


if __name__ == "__main__":  # because vLLM's workers import this file, too
    main(*sys.argv[1:])
