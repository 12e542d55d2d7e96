"""Finds out why a TLS connection to Kafka fails: librdkafka reports only that it failed, OpenSSL has the cause.

It is used once, after a client has given up. It opens a connection of its own and makes a TLS handshake with the same
certificates.
"""

import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress

from tidemark.connections.certificates import certificates, private_key
from tidemark.connections.client_certificate import load_pair
from tidemark.connections.lookup import Unusable
from tidemark.kafka.security import Protocol, pem

_TIMEOUT_S = 2.0
_ALERT_S = 0.5  # in TLS 1.3 the refusal of a client's certificate comes after the handshake, at the first read
_CLOSED = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")
# Kafka's protocol: length 10, ApiVersions (18) of version 0, correlation id 7, no client id. Any broker answers it.
_ASK_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def tls_cause(bootstrap_servers: str, config: Mapping[str, str]) -> str | None:
    """The cause at the first of the servers as a sentence; None when TLS is not the cause, or the server is silent.

    ``config`` is that of librdkafka, with its secrets.
    """
    host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
    host = host.strip("[]")
    protocol = Protocol(config.get("security.protocol", Protocol.PLAINTEXT))
    try:
        context = _context(config, protocol)
        with (
            socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            if not protocol.tls:
                return f"port {port} speaks TLS, and security.protocol is {protocol}"
            secured.settimeout(_ALERT_S)
            secured.recv(1)
    except ssl.SSLCertVerificationError as refused:
        return f"the broker's certificate: {refused.verify_message}"
    except ssl.SSLError as failed:
        if failed.reason is None or failed.reason in _CLOSED:
            return _without_tls(host, int(port), protocol)
        return f"the broker ends the handshake: {failed.reason.lower().replace('_', ' ')}" if protocol.tls else None
    except ConnectionResetError:
        return _without_tls(host, int(port), protocol)
    except (OSError, Unusable):
        return None
    return None


def _without_tls(host: str, port: int, protocol: Protocol) -> str | None:
    """Asks a port that ended the handshake without TLS: a broker without TLS answers, a broken one does not."""
    if not protocol.tls:
        return None
    with suppress(OSError, struct.error), socket.create_connection((host, port), timeout=_TIMEOUT_S) as plain:
        plain.sendall(_ASK_VERSIONS)
        _, correlation = struct.unpack(">ii", plain.recv(8, socket.MSG_WAITALL))
        if correlation == 7:
            return f"port {port} does not speak TLS, and security.protocol is {protocol}"
    return None


def _context(config: Mapping[str, str], protocol: Protocol) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = protocol.tls and config.get("ssl.endpoint.identification.algorithm") != "none"
    if not protocol.tls:
        context.verify_mode = ssl.CERT_NONE
        return context
    authorities = pem(config, "ssl.ca")
    if authorities is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata="\n".join(certificates(*authorities)))
    own, key = pem(config, "ssl.certificate"), pem(config, "ssl.key")
    if own is not None and key is not None:
        chain = "\n".join(certificates(*own))
        load_pair(context, chain, private_key(*key)[0], config.get("ssl.key.password"))
    return context
