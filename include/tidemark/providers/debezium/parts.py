"""The parts of the envelope beside the row, which can become columns."""

from typing import Final

PLACEHOLDER: Final = "__debezium_unavailable_value"  # stands for a value that the database did not send
UNSENT: Final = "(unsent)"  # name of the column whose null may be a value that was not sent; the reader of JSON sets it
BEFORE: Final = "before"
LACKS: Final = "(absent)"  # the columns of the schema that a row lacks, as JSON; the reader of JSON sets it
PARTS: Final = {  # the type of each path; a ``source`` has only the paths of its kind of database
    "op": "text",
    "ts_ms": "milliseconds",
    "source.ts_ms": "milliseconds",
    "source.version": "text",
    "source.connector": "text",
    "source.name": "text",
    "source.db": "text",
    "source.schema": "text",
    "source.table": "text",
    "source.collection": "text",
    "source.snapshot": "text",
    "source.sequence": "text",
    "source.txId": "text",  # a number in PostgreSQL, hexadecimal digits in Oracle
    "source.lsn": "number",
    "source.xmin": "number",
    "source.gtid": "text",
    "source.file": "text",
    "source.pos": "number",
    "source.row": "number",
    "source.server_id": "number",
    "source.scn": "text",
    "source.commit_scn": "text",
    "source.change_lsn": "text",
    "source.commit_lsn": "text",
    "source.event_serial_no": "number",
    "transaction.id": "text",
    "transaction.total_order": "number",
}
"""Sources: the field descriptions of Debezium's connectors for PostgreSQL, MySQL, Oracle, SQL Server and MongoDB."""
