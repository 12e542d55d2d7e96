"""Gives a TLS client its own certificate, without writing the key to a disk."""

import os
import ssl


def load_pair(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    """Give a context its certificate and key through a file in memory; does nothing on systems without such files."""
    if not hasattr(os, "memfd_create"):
        return
    descriptor = os.memfd_create("pair")
    try:
        os.write(descriptor, f"{certificate}\n{key}\n".encode())
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password or "")
    finally:
        os.close(descriptor)
