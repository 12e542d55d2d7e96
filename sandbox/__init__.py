"""Local services, each real: only for `make run`, tests and benchmarks, never imported by tidemark itself."""
