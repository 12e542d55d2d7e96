"""What AWS says when a bucket wants more than the keys give, and what a person is told to do."""

import pytest

from tidemark.errors import AccessDenied, SinkRefused, TidemarkError
from tidemark.storage.s3.client import error_of_code

USER = "User: arn:aws:sts::123456789012:assumed-role/lake/i-0123456789abcdef0 is not authorized to perform:"
KEY = (
    f"{USER} kms:GenerateDataKey on resource: arn:aws:kms:eu-central-1:123456789012:key/0-1 because no policy allows it"
)
POLICY = f'{USER} s3:PutObject on resource: "arn:aws:s3:::lake/x" with an explicit deny in a resource-based policy'
LOCK = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"
LOCK_OF_PARTS = "Content-MD5 HTTP header is required for Put Part requests with Object Lock parameters"


@pytest.mark.parametrize(
    ("code", "message", "kind", "advice"),
    [
        ("AccessDenied", KEY, SinkRefused, "kms:GenerateDataKey to write and kms:Decrypt to read"),
        ("AccessDenied", POLICY, AccessDenied, "server_side_encryption in s3 of the sink"),
        ("AccessDenied", "Access Denied", AccessDenied, "server_side_encryption in s3 of the sink"),
        ("InvalidRequest", LOCK, SinkRefused, "checksums: true"),
        ("InvalidRequest", LOCK_OF_PARTS, SinkRefused, "checksums: true"),
        ("KMS.DisabledException", "the key is disabled", SinkRefused, "check kms_key_id"),
    ],
)
def test_a_bucket_that_wants_more_is_told_as_what_it_is(
    code: str, message: str, kind: type[TidemarkError], advice: str
) -> None:
    status = 403 if code == "AccessDenied" else 400
    error = error_of_code(code, status, f"S3 refused to write s3://lake/x: {code}, {message}")
    assert type(error) is kind
    assert advice in error.next_step
    assert message in error.what
