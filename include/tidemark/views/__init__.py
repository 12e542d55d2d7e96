"""What people and programs look at that no dataclass of the code has: it is put together from several, or from rows.

All else that the Python functions return and ``--json`` prints are the dataclasses of the code themselves.
"""
