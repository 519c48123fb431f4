"""Weights, benchmarks and recorded readouts of the micro pair of searchlens: data alone, no code."""
