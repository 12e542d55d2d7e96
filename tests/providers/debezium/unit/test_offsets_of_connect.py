"""The sandbox's Kafka Connect is not killed while its file of offsets is half written: when is the file whole?"""

import base64

from sandbox.services.kafka_connect import is_whole

# Java's ObjectOutputStream wrote it: a HashMap of three byte arrays, one with a null as its value.
MAP = base64.b64decode(
    "rO0ABXNyABFqYXZhLnV0aWwuSGFzaE1hcAUH2sHDFmDRAwACRgAKbG9hZEZhY3RvckkACXRocmVzaG9sZHhwP0AAAAAAAAx3CAAA"
    "ABAAAAADdXIAAltCrPMX+AYIVOACAAB4cAAAAAJrMnB1cQB+AAIAAAACazF1cQB+AAIAAAAMdwB4eyJsc24iOjF9dXEAfgACAAAA"
    "AmswdXEAfgACAAAADHcAeHsibHNuIjowfXg="
)
EMPTY = base64.b64decode(
    "rO0ABXNyABFqYXZhLnV0aWwuSGFzaE1hcAUH2sHDFmDRAwACRgAKbG9hZEZhY3RvckkACXRocmVzaG9sZHhwP0AAAAAAAAx3CAAAABAAAAAAeA=="
)


def test_a_map_is_whole_with_its_last_byte_and_not_before() -> None:
    for file in (MAP, EMPTY):
        assert [length for length in range(len(file) + 1) if is_whole(file[:length])] == [len(file)]
        assert not is_whole(file + b"x")
