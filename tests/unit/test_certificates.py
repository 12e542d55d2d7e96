"""Certificates and keys: what is wrong with them is said before any client sees them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from sandbox.services.authority import Authority
from tidemark.connections import certificates
from tidemark.connections.certificates import Unusable

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def refused(check: Callable[[], object]) -> str:
    with pytest.raises(Unusable) as caught:
        check()
    assert caught.value.next_step
    return caught.value.what


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2049, 12, 31, tzinfo=UTC)),
        (datetime(2000, 1, 1, tzinfo=UTC), datetime(2050, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (datetime(2051, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_validity_of_a_certificate_is_what_the_certificate_says(
    authority: Authority, start: datetime, end: datetime
) -> None:
    issued = authority.issue("dated", "localhost", not_before=start, not_after=end)
    theirs = x509.load_pem_x509_certificate(issued.certificate.encode())
    assert (theirs.not_valid_before_utc, theirs.not_valid_after_utc) == (start, end)
    certificates.check_own("o", issued.certificate, start)
    certificates.check_own("o", issued.certificate, end - timedelta(seconds=1))
    assert "expired at" in refused(lambda: certificates.check_own("o", issued.certificate, end))
    assert "valid from" in refused(lambda: certificates.check_own("o", issued.certificate, start - DAY))


def test_an_expired_certificate_is_named_with_its_end(authority: Authority) -> None:
    issued = authority.issue("old", "localhost", not_before=NOW - 9 * DAY, not_after=NOW - DAY)
    message = refused(lambda: certificates.check_own("ssl.certificate.pem", issued.certificate, NOW))
    assert message == "ssl.certificate.pem: the client's certificate expired at 2026-11-20 12:00 UTC"


def test_of_a_bundle_one_authority_must_hold_now(authority: Authority) -> None:
    old = authority.issue("old", "localhost", not_before=NOW - 9 * DAY, not_after=NOW - DAY).certificate
    certificates.check_authorities("ssl.ca.pem", old + authority.certificate, NOW)
    message = refused(lambda: certificates.check_authorities("ssl.ca.pem", old + old, NOW))
    assert message == "ssl.ca.pem: no certificate in it is valid now, the last expired at 2026-11-20 12:00 UTC"


def test_every_authority_of_this_machine_can_be_read() -> None:
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if not bundle.exists():
        pytest.skip("this machine has no bundle of authorities where Debian has it")
    text = certificates.read_pem("ssl.ca.location", str(bundle))
    assert len(certificates.certificates("ssl.ca.location", text)) == bundle.read_text().count("BEGIN CERTIFICATE")
    certificates.check_authorities("ssl.ca.location", text, datetime.now(UTC))


def test_a_key_must_belong_to_its_certificate(authority: Authority) -> None:
    issued, another = authority.issue("one", "localhost"), authority.issue("another", "localhost")
    certificates.check_pair("o", issued.certificate, issued.key, None)
    message = refused(lambda: certificates.check_pair("o", issued.certificate, another.key, None))
    assert message == "the private key does not belong to the certificate"


def test_an_encrypted_key_opens_with_its_password_only(authority: Authority) -> None:
    issued = authority.issue("locked", "localhost", password="right")
    assert certificates.private_key("ssl.key.pem", issued.key)[1]
    certificates.check_pair("o", issued.certificate, issued.key, "right")
    message = refused(lambda: certificates.check_pair("o", issued.certificate, issued.key, "hunter2"))
    assert message == "the private key cannot be opened with ssl.key.password"
    assert "cannot be opened" in refused(lambda: certificates.check_pair("o", issued.certificate, issued.key, None))


def test_a_password_that_a_key_does_not_need_counts_for_nothing(authority: Authority) -> None:
    issued = authority.issue("open", "localhost")
    certificates.check_pair("o", issued.certificate, issued.key, "hunter2")


def test_of_a_chain_every_certificate_must_be_readable(authority: Authority) -> None:
    issued = authority.issue("chained", "localhost")
    certificates.check_pair("o", issued.certificate + authority.certificate, issued.key, None)
    message = refused(
        lambda: certificates.check_pair(
            "o", issued.certificate + authority.certificate.replace("M", "A"), issued.key, None
        )
    )
    assert message == "o holds a certificate that cannot be read"


@pytest.mark.parametrize("kind", ["rsa", "ed25519"])
def test_keys_of_other_kinds_are_matched_too(authority: Authority, kind: str) -> None:
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ed25519.Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right")).decode()
    own = self_signed(key)
    certificates.check_pair("o", own, text, "right")
    assert load_pem_private_key(certificates.without_password(text, "right").encode(), None) is not None
    message = refused(
        lambda: certificates.check_pair("o", authority.issue("ec", "localhost").certificate, text, "right")
    )
    assert message == "the private key does not belong to the certificate"


def self_signed(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "reader")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, NOW - DAY, NOW + DAY)
    return (
        builder.sign(key, SHA256() if isinstance(key, rsa.RSAPrivateKey) else None).public_bytes(Encoding.PEM).decode()
    )


def test_a_key_in_another_form_than_pkcs8_is_refused_with_the_command_that_converts_it(
    authority: Authority,
) -> None:
    issued = authority.issue("old-form", "localhost")
    private = load_pem_private_key(issued.key.encode(), None)
    old = private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    with pytest.raises(Unusable) as caught:
        certificates.private_key("ssl.key.location", old)
    assert caught.value.what == "ssl.key.location is in the form 'EC PRIVATE KEY'; both clients read PKCS#8 only"
    assert caught.value.next_step == "convert it: openssl pkcs8 -topk8 -in OLD.key -out NEW.key"
    assert refused(lambda: certificates.private_key("ssl.key.location", issued.certificate)).startswith(
        "ssl.key.location holds no private key"
    )


def test_a_file_that_cannot_be_used_is_named_and_never_quoted(tmp_path: Path, authority: Authority) -> None:
    text = tmp_path / "key.der"
    text.write_bytes(b"\x30hunter2")
    for path, message in [
        (tmp_path / "none.pem", "which cannot be read: No such file or directory"),
        (tmp_path, "which is a folder"),
        (text, "which is not a PEM file"),
    ]:
        assert refused(lambda file=path: certificates.read_pem("ssl.key.location", str(file))) == (
            f"ssl.key.location names {path}, {message}"
        )
    broken = authority.certificate.replace("MII", "XII", 1)
    assert "hunter2" not in refused(lambda: certificates.check_own("o", broken.replace("M", "A"), NOW))
    assert "holds no certificate" in refused(lambda: certificates.certificates("o", "hunter2"))
