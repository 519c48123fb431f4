"""Engines: token ids in, token ids out. docs/engine.md follows a request through both engines.

Public modules
--------------
base : the contract, which is all that planning and search import
transformers : the embedded engine
vllm : the vLLM engine
sampler : logits to tokens, the filters of the contract
devices : the choice of one of several GPUs

This package imports none of them, because torch and vLLM are optional and take seconds to import.
"""
