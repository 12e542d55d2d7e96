"""Returns the bytes of a file of rows, as the writer of a format makes them."""

import io

import pyarrow as pa

from tidemark.model.digest import Digest, row_digest
from tidemark.sinks.formats.base import open_format


def file_of(rows: pa.Table, name: str = "parquet", compression: str = "zstd") -> tuple[bytes, Digest]:
    out = io.BytesIO()
    writer = open_format(name, compression).writer(out, rows)
    digest = writer.write(rows, row_digest(rows))
    writer.close()
    return out.getvalue(), digest
