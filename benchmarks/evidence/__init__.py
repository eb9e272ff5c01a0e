"""The measurements of docs/lab/evidence.md: `python benchmarks/evidence DATA OUT`."""
