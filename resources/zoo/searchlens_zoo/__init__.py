"""The micro pair of searchlens as data: weights, benchmarks and recorded readouts. `searchlens.project.zoo` finds it."""
