"""A proxy in front of the emulator of DynamoDB: it loses answers or requests, or refuses as DynamoDB does.

A rule's ``having`` is part of the name of an operation, such as ``TransactWriteItems``.
"""

import json
from typing import Any

from tests.faults.s3_proxy import Rule, ServiceProxy


class DynamoProxy(ServiceProxy):
    """The proxy. ``reasons`` are the reasons of a cancelled transaction."""

    reasons: tuple[str, ...] = ()

    def struck(self, method: str, path: str, headers: Any) -> Rule | None:
        return super().struck(method, f"{path}{headers.get('X-Amz-Target', '')}", headers)

    def refusal(self, rule: Rule) -> tuple[str, bytes]:
        reasons = {"CancellationReasons": [{"Code": reason} for reason in self.reasons]} if self.reasons else {}
        answer = {"__type": f"com.amazonaws.dynamodb.v20120810#{rule.code}", "message": "said by a proxy", **reasons}
        return "application/x-amz-json-1.0", json.dumps(answer).encode()
