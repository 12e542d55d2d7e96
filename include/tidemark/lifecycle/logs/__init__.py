"""Knowledge of logs that were cut: their generations, and where a log leaves what was published (docs/cut-logs.md).

Frozen: a rarer case ends in a refusal that asks for ``--from``, not in more code here.
"""
