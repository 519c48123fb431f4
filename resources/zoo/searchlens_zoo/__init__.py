"""Weights, benchmarks and recorded counts of the micro pair of searchlens: data alone, no code."""
