"""Every name of vLLM that is used, in the sources of versions: the newest allowed one was never run here.

vLLM promises none of them. Sources are read, not imported, because each version wants another torch.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import searchlens.engines

NEWEST = "0.33.0"
OURS = Path(searchlens.engines.__file__).parent
FIRST, SECOND = "v1/worker/gpu_model_runner.py:GPUModelRunner", "v1/worker/gpu/model_runner.py:GPUModelRunner"
BOTH = "device max_model_len max_num_reqs model_config sampler"
SAMPLING = (
    "n temperature top_p top_k min_p repetition_penalty frequency_penalty presence_penalty seed max_tokens min_tokens"
    " stop ignore_eos logprobs flat_logprobs detokenize output_kind skip_clone stop_token_ids extra_args"
)
ARGUMENTS = (
    "model dtype max_num_seqs max_model_len tensor_parallel_size gpu_memory_utilization quantization load_format"
    " enforce_eager kv_cache_dtype max_num_batched_tokens compilation_config async_scheduling block_size"
    " kv_cache_memory_bytes enable_chunked_prefill enable_lora max_loras max_lora_rank skip_tokenizer_init"
    " generation_config trust_remote_code enable_prefix_caching max_logprobs worker_extension_cls disable_log_stats"
)
MEMBERS = {
    FIRST: f"{BOTH} input_batch",
    SECOND: f"{BOTH} req_states",
    "v1/worker/worker_base.py:WorkerBase": "rank model_runner",
    "v1/worker/gpu/states.py:RequestState": "prompt_len all_token_ids",
    "v1/worker/gpu/buffer_utils.py:UvaBackedTensor": "np",
    "v1/worker/gpu/buffer_utils.py:StagedWriteTensor": "gpu",
    "v1/worker/gpu/input_batch.py:InputBatch": "idx_mapping_np num_computed_tokens_np num_scheduled_tokens"
    " prefill_len_np",
    "v1/worker/gpu/sample/sampler.py:Sampler": "add_request sample __call__",
    "v1/worker/gpu_input_batch.py:InputBatch": "num_reqs num_prompt_tokens num_tokens_no_spec logitsprocs",
    "v1/sample/logits_processor/state.py:LogitsProcessors": "non_argmax_invariant",
    "v1/sample/logits_processor/interface.py:BatchUpdate": "removed added moved",
    "v1/sample/logits_processor/interface.py:MoveDirectionality": "SWAP",
    "v1/sample/metadata.py:SamplingMetadata": "generators max_num_logprobs",
    "v1/outputs.py:SamplerOutput": "sampled_token_ids logprobs_tensors",
    "v1/outputs.py:LogprobsTensors": "logprob_token_ids logprobs selected_token_ranks",
    "v1/engine/llm_engine.py:LLMEngine": "from_engine_args add_request step abort_request collective_rpc"
    " reset_prefix_cache engine_core output_processor",
    "v1/engine/output_processor.py:OutputProcessor": "external_req_ids request_states",
    "v1/engine/output_processor.py:RequestState": "num_cached_tokens",
    "outputs.py:RequestOutput": "request_id outputs finished num_cached_tokens",
    "outputs.py:CompletionOutput": "token_ids finish_reason logprobs",
    "logprobs.py:FlatLogprobs": "start_indices token_ids logprobs",
    "sampling_params.py:SamplingParams": SAMPLING,
    "engine/arg_utils.py:EngineArgs": ARGUMENTS,
}
TEXTS = {
    "envs.py": ("VLLM_USE_V2_MODEL_RUNNER", "VLLM_BATCH_INVARIANT", "VLLM_ENABLE_V1_MULTIPROCESSING"),
    # What our samplers are called with, and by whom.
    "v1/worker/gpu/sample/sampler.py": ("sampled, processed_logits = self.sample(\n            logits,",),
    "v1/worker/gpu/model_runner.py": ("self.sampler(logits, input_batch)", "self.sampler.add_request("),
    "v1/worker/gpu_model_runner.py": (
        "self.sampler(\n                logits=logits,\n                sampling_metadata",
    ),
}


@pytest.fixture(scope="module", params=["installed", NEWEST])
def vllm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's folder; that of the newest version is downloaded."""
    if request.param == "installed":
        spec = find_spec("vllm")
        if spec is None or spec.origin is None:
            pytest.skip("vllm is not installed")
        return Path(spec.origin).parent
    folder = tmp_path_factory.mktemp("wheel")
    platform = ("--only-binary=:all:", "--platform", "manylinux_2_28_x86_64", "--python-version", "3.12")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *platform, "-d", str(folder)]
    done = subprocess.run([*command, f"vllm=={request.param}"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"vllm {request.param} cannot be downloaded: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(
            folder, [name for name in archive.namelist() if name.startswith("vllm/") and name[-3:] == ".py"]
        )
    wheel.unlink()
    return folder / "vllm"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def members(tree: ast.AST) -> Iterator[str]:
    """Fields, methods and attributes of a class, and the parameters of its constructor."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@pytest.mark.parametrize("place", MEMBERS)
def test_members(vllm: Path, place: str) -> None:
    file, name = place.split(":")
    (found,) = (node for node in parsed(vllm / file).body if isinstance(node, ast.ClassDef) and node.name == name)
    assert set(MEMBERS[place].split()) <= {*members(found)}


@pytest.mark.parametrize("file", TEXTS)
def test_calls(vllm: Path, file: str) -> None:
    text = (vllm / file).read_text()
    assert [part for part in TEXTS[file] if part not in text] == []


def test_the_filter_of_top_k_and_top_p(vllm: Path) -> None:
    tree = parsed(vllm / "v1/sample/ops/topk_topp_sampler.py")
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "apply_top_k_top_p")
    names = [argument.arg for argument in found.args.args]
    assert names[:3] == ["logits", "k", "p"] and len(names) - 3 == len(found.args.defaults)


def imported() -> list[tuple[str, str]]:
    """Modules of vLLM and what is imported from them here."""
    nodes = (node for path in OURS.glob("*.py") for node in ast.walk(parsed(path)))
    froms = (node for node in nodes if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vllm."))
    return sorted({(str(node.module), alias.name) for node in froms for alias in node.names})


def test_imports(vllm: Path) -> None:
    missing = []
    for module, name in imported():
        path = vllm.joinpath(*module.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        tree = parsed(file)
        known = {*members(tree), *(node.name for node in tree.body if isinstance(node, ast.ClassDef))}
        known |= {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        if name not in known:
            missing.append((module, name))
    assert missing == [] and len(imported()) > 15
