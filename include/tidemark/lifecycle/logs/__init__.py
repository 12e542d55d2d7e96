"""Logs that were cut: their generations, and the first offset that differs from what is published (docs/guarantees.md).

Frozen: a rarer case is refused with a message that asks for ``--from``; it gets no more code here.
"""
