"""Tokens for librdkafka, by AWS's signer, with the keys that AWS's libraries find."""

from collections.abc import Callable
from typing import Any

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.credentials import CredentialProvider
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from tidemark.errors import AccessDenied


class Keys(CredentialProvider):
    """The keys of the environment, a profile or this machine's role. Keys that expire are fetched again in time."""

    def load(self) -> Any:
        return self.session.get_credentials()


class Tokens:
    """Makes a new token at each call. Threads may share it: each client of a process has its own."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._keys = Keys(Session())

    def check(self) -> None:
        """Raise ``AccessDenied`` if there are no keys, or if they do not come."""
        try:
            missing = self._keys.load() is None
            if not missing:
                self.token("")
        except (BotoCoreError, ClientError, ValueError) as error:
            raise _no_keys(f"cannot be had: {error}") from error
        if missing:
            raise _no_keys("were not found")

    def token(self, config: str) -> tuple[str, float]:
        """Return (token, when it expires, in seconds since 1970). librdkafka asks again before that."""
        del config  # sasl.oauthbearer.config, which connections do not have
        sign: Callable[..., tuple[str, int]] = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider
        token, expires_ms = sign(self._region, self._keys)
        return token, expires_ms / 1000


def _no_keys(what: str) -> AccessDenied:
    return AccessDenied(
        f"keys of AWS for the Kafka connection {what}",
        next_step="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where AWS gives a role; the "
        "same on Spark's machines. `aws sts get-caller-identity` shows who this machine is",
    )
