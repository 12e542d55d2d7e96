"""Local services, each of them real, only for `make run`, tests and benchmarks. Tidemark itself never imports them."""
