"""Reads and checks PEM certificates and keys before a client does: the errors of clients do not say what to correct.

A message names a file or an option, and never shows its content.
"""

import re
import warnings
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509 import Certificate, load_pem_x509_certificate

from tidemark.connections.lookup import Unusable

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
_LARGEST: Final = 2**20  # bytes; a bundle of every public authority takes 220 kB


def read_pem(option: str, path: str) -> str:
    """Return the text of a PEM file that an option names. Java's client cannot read a folder of certificates."""
    file = Path(path)
    try:
        if file.is_dir():
            raise Unusable(
                f"{option} names {path}, which is a folder", "name one file that holds all certificates, in PEM"
            )
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
    except OSError as problem:
        raise Unusable(
            f"{option} names {path}, which cannot be read: {problem.strerror}",
            "give the path on the machine where this runs, and let its user read the file",
        ) from None
    text = content.decode("ascii", errors="replace")
    if len(content) > _LARGEST or not _BLOCK.search(text):
        raise Unusable(
            f"{option} names {path}, which is not a PEM file",
            "a PEM file holds -----BEGIN lines; openssl converts: openssl x509 -inform der, or openssl pkcs12 -nodes",
        )
    return text


def certificates(option: str, text: str) -> list[str]:
    """Return the PEM blocks of the certificates in a text; the first of a chain is the owner's."""
    blocks = [match[0] for match in _BLOCK.finditer(text) if match[1] == "CERTIFICATE"]
    if not blocks:
        raise Unusable(f"{option} holds no certificate", "it must hold -----BEGIN CERTIFICATE-----")
    return blocks


def check_authorities(option: str, text: str, now: datetime) -> None:
    """Check that at least one of the certificates is valid now: bundles often have some that have expired."""
    periods = [_validity(option, block) for block in certificates(option, text)]
    if not any(start <= now < end for start, end in periods):
        last = max(end for _, end in periods)
        raise Unusable(
            f"{option}: no certificate in it is valid now, the last expired at {last:%Y-%m-%d %H:%M} UTC",
            "get the current certificate of the authority that signs the brokers' certificates",
        )


def check_own(option: str, text: str, now: datetime) -> None:
    """Check that the client's own certificate is valid now."""
    start, end = _validity(option, certificates(option, text)[0])
    if now >= end:
        raise Unusable(
            f"{option}: the client's certificate expired at {end:%Y-%m-%d %H:%M} UTC",
            "get a new certificate, and replace the old one with it",
        )
    if now < start:
        raise Unusable(
            f"{option}: the client's certificate is valid from {start:%Y-%m-%d %H:%M} UTC on, now it is "
            f"{now:%Y-%m-%d %H:%M} UTC",
            "check the clock of this machine",
        )


def private_key(option: str, text: str) -> tuple[str, bool]:
    """Return the PEM block of the key, and whether it is encrypted. Only PKCS#8 is accepted: Java's client reads no
    other form.
    """
    blocks = {match[1]: match[0] for match in _BLOCK.finditer(text) if match[1].endswith("PRIVATE KEY")}
    for label in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        if label in blocks:
            return blocks[label], label.startswith("ENCRYPTED")
    what = f"is in the form {next(iter(blocks))!r}" if blocks else "holds no private key"
    raise Unusable(
        f"{option} {what}; both clients read PKCS#8 only", "convert it: openssl pkcs8 -topk8 -in OLD.key -out NEW.key"
    )


def check_pair(option: str, text: str, key: str, password: str | None) -> None:
    """Check that the key opens with the password, and belongs to the first certificate of the option's text.

    A password that the key does not need is ignored, as clients do.
    """
    chain = [
        _parsed(option, block) for block in certificates(option, text)
    ]  # a client refuses a chain with one bad certificate
    try:
        private = _private(key, password)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Unusable(
            "the private key cannot be opened" + (" with ssl.key.password" if password else ""),
            "check ssl.key.password: openssl pkey -noout -in KEYFILE asks for it",
        ) from None
    try:
        certified = chain[0].public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise _unreadable(option) from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != certified.public_bytes(*form):
        raise Unusable(
            "the private key does not belong to the certificate",
            "give the key with which the certificate was requested",
        )


def without_password(key: str, password: str) -> str:
    """Return the same key in PKCS#8, not encrypted. The caller has opened it with ``check_pair``."""
    return _private(key, password).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _validity(option: str, block: str) -> tuple[datetime, datetime]:
    """Return the period [from, to) of one certificate, in UTC."""
    certificate = _parsed(option, block)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _parsed(option: str, block: str) -> Certificate:
    try:
        with warnings.catch_warnings():
            # Debian's bundle has authorities with the serial number 0; both clients accept them.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            return load_pem_x509_certificate(block.encode())
    except ValueError:
        raise _unreadable(option) from None


def _unreadable(option: str) -> Unusable:
    return Unusable(f"{option} holds a certificate that cannot be read", "get the file again")


def _private(key: str, password: str | None) -> PrivateKeyTypes:
    _, encrypted = private_key("", key)
    return load_pem_private_key(key.encode(), password.encode() if encrypted and password else None)
