"""Issues certificates for a secured broker and its clients, as PEM files, from an authority of its own.

Keys are PKCS#8, the only format that both of Kafka's clients read.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as text and as files."""

    certificate: str
    key: str
    certificate_file: Path
    key_file: Path


class Authority:
    """One certificate authority; its files lie in ``folder``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.certificate = self._authority.cert_pem.bytes().decode()
        self.certificate_file = folder / "ca.pem"
        self.certificate_file.write_text(self.certificate)

    def __getstate__(self) -> dict[str, Any]:
        key = self._authority.private_key_pem.bytes()
        return {**vars(self), "_authority": (self._authority.cert_pem.bytes(), key)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "_authority": trustme.CA.from_pem(*state["_authority"])})

    def issue(
        self,
        name: str,
        host: str,
        *,
        password: str | None = None,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Identity:
        """Return a certificate for ``host`` with the common name ``name``; ``password`` encrypts the key."""
        issued = self._authority.issue_cert(host, common_name=name, not_before=not_before, not_after=not_after)
        (part,) = issued.cert_chain_pems
        certificate = self._with_names_not_critical(part.bytes())
        secret = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        private = load_pem_private_key(issued.private_key_pem.bytes(), None)
        key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret).decode()
        identity = Identity(certificate, key, self._folder / f"{name}.pem", self._folder / f"{name}.key")
        identity.certificate_file.write_text(certificate)
        identity.key_file.write_text(key)
        identity.key_file.chmod(0o600)
        return identity

    def _with_names_not_critical(self, certificate: bytes) -> str:
        """Sign the certificate again with its names in an extension that is not critical: otherwise RabbitMQ's Erlang
        refuses it.
        """
        issued = x509.load_pem_x509_certificate(certificate)
        builder = (
            x509.CertificateBuilder(issued.issuer, issued.subject, issued.public_key(), issued.serial_number)
            .not_valid_before(issued.not_valid_before_utc)
            .not_valid_after(issued.not_valid_after_utc)
        )
        for extension in issued.extensions:
            critical = extension.critical and not isinstance(extension.value, x509.SubjectAlternativeName)
            builder = builder.add_extension(extension.value, critical=critical)
        key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        return builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()
