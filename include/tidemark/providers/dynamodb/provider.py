"""Declares the kinds of this provider: a copy of totals in DynamoDB.

A plain install has its library, boto3, because files in S3 need it.
"""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider("dynamodb", needs=("postgres",), copies={"dynamodb": "tidemark.providers.dynamodb"})
