"""Names what this provider brings: a copy of totals in DynamoDB. A plain install has its library, for files in S3."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider("dynamodb", needs=("postgres",), copies={"dynamodb": "tidemark.providers.dynamodb"})
