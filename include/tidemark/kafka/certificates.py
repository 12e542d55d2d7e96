"""PEM certificates and keys, read and checked before a client does: a client's own words for these are hard to mend by.

Only the standard library. A message names a file or an option, and never quotes what it holds.
"""

import os
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0
_LARGEST: Final = 2**20  # bytes; a bundle of every public authority takes 220 kB


class WrongCertificate(Exception):
    """What is wrong, and what to do about it; whoever catches it knows which connection is meant."""

    def __init__(self, what: str, next_step: str) -> None:
        self.what, self.next_step = what, next_step
        super().__init__(what)


def read_pem(option: str, path: str) -> str:
    """The text of a PEM file that an option names; a folder of certificates is refused, Java knows none."""
    file = Path(path)
    try:
        if file.is_dir():
            raise WrongCertificate(
                f"{option} names {path}, which is a folder", "name one file that holds all certificates, in PEM"
            )
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
    except OSError as problem:
        raise WrongCertificate(
            f"{option} names {path}, which cannot be read: {problem.strerror}",
            "give the path on the machine where this runs, and let its user read the file",
        ) from None
    text = content.decode("ascii", errors="replace")
    if len(content) > _LARGEST or not _BLOCK.search(text):
        raise WrongCertificate(
            f"{option} names {path}, which is not a PEM file",
            "a PEM file holds -----BEGIN lines; openssl converts: openssl x509 -inform der, or openssl pkcs12 -nodes",
        )
    return text


def certificates(option: str, text: str) -> list[str]:
    """The certificates of a PEM text, each as its own block; the first of a chain is the owner's."""
    found = [match[0] for match in _BLOCK.finditer(text) if match[1] == "CERTIFICATE"]
    if not found:
        raise WrongCertificate(f"{option} holds no certificate", "it must hold -----BEGIN CERTIFICATE-----")
    return found


def check_authorities(option: str, text: str, now: datetime) -> None:
    """At least one of the certificates must hold now: bundles often carry some that have expired."""
    ends = [_validity(option, one) for one in certificates(option, text)]
    if not any(start <= now < end for start, end in ends):
        last = max(end for _, end in ends)
        raise WrongCertificate(
            f"{option}: no certificate in it is valid now, the last expired at {last:%Y-%m-%d %H:%M} UTC",
            "get the present certificate of the authority that signs the brokers'",
        )


def check_own(option: str, text: str, now: datetime) -> None:
    """The client's own certificate must hold now."""
    start, end = _validity(option, certificates(option, text)[0])
    if now >= end:
        raise WrongCertificate(
            f"{option}: the client's certificate expired at {end:%Y-%m-%d %H:%M} UTC",
            "get a new certificate, and put it in the place of the old one",
        )
    if now < start:
        raise WrongCertificate(
            f"{option}: the client's certificate is valid from {start:%Y-%m-%d %H:%M} UTC on, now it is "
            f"{now:%Y-%m-%d %H:%M} UTC",
            "check the clock of this machine",
        )


def private_key(option: str, text: str) -> tuple[str, bool]:
    """(the key's PEM block, whether it is encrypted); only PKCS#8, the one form that Java's client reads, too."""
    found = {match[1]: match[0] for match in _BLOCK.finditer(text) if match[1].endswith("PRIVATE KEY")}
    for label in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        if label in found:
            return found[label], label.startswith("ENCRYPTED")
    what = f"is in the form {next(iter(found))!r}" if found else "holds no private key"
    raise WrongCertificate(
        f"{option} {what}; both clients read PKCS#8 only", "convert it: openssl pkcs8 -topk8 -in OLD.key -out NEW.key"
    )


def check_pair(certificate: str, key: str, password: str | None) -> None:
    """The key must open with the password and belong to the certificate."""
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key, password)
    except ssl.SSLError as problem:
        if problem.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise WrongCertificate(
                "the private key does not belong to the certificate",
                "give the key with which the certificate was requested",
            ) from None
        raise WrongCertificate(
            "the private key cannot be opened" + (" with ssl.key.password" if password else ""),
            "check ssl.key.password: openssl pkey -noout -in KEYFILE asks for it",
        ) from None


def load_pair(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    """Give a context its certificate and key, by a file in memory only; nothing where there are no such files."""
    if not hasattr(os, "memfd_create"):
        return
    descriptor = os.memfd_create("pair")
    try:
        os.write(descriptor, f"{certificate}\n{key}\n".encode())
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password or "")
    finally:
        os.close(descriptor)


def _validity(option: str, block: str) -> tuple[datetime, datetime]:
    """[from, to) of one certificate: RFC 5280 has it as the fifth field of the first field."""
    try:
        der = ssl.PEM_cert_to_DER_cert(block)
        _, certificate, _ = _element(der, 0)
        _, signed, _ = _element(certificate, 0)
        tag, _, at = _element(signed, 0)
        for _ in range(4 if tag == _VERSION else 3):
            _, field, at = _element(signed, at)
        first, start, after = _element(field, 0)
        last, end, _ = _element(field, after)
        return _moment(first, start), _moment(last, end)
    except (ValueError, IndexError):
        raise WrongCertificate(f"{option} holds a certificate that cannot be read", "get the file again") from None


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """(tag, content, where the next one starts) of a DER element."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[at + 2 : start], "big")
    if start + length > len(data):
        raise ValueError
    return tag, data[start : start + length], start + length


def _moment(tag: int, content: bytes) -> datetime:
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year, 50 and later mean the last century
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
