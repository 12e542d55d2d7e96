"""What an error of a schema registry says, from the answers of registries and of other servers."""

from email.message import Message
from io import BytesIO
from urllib.error import HTTPError

import pytest

from tidemark.providers.registry.client import RegistryClient


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error_code": 409, "message": "incompatible"}', "incompatible"),
        (b'{"error_code": 409}', "409"),
        (b"<html>", "409"),
        (b"[]", "409"),
        (b"", "409"),
    ],
)
def test_a_schema_that_is_not_taken_gives_the_message_of_the_answer_or_its_code(body: bytes, reason: str) -> None:
    answer = HTTPError("http://none", 409, "", Message(), BytesIO(body))
    error = RegistryClient("http://none", {}, "shop")._refused(answer, "subjects/s")
    assert f"shop does not accept a schema at subjects/s: {reason} [" in str(error)
