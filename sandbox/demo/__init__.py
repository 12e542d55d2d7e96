"""The demo of `make run` and `make up`."""
