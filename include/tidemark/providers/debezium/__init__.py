"""Debezium's envelope: a change of a row of a database, with ``op``, ``before``, ``after`` and ``source``."""
