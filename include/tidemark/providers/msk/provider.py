"""Declares the SASL mechanism of this provider: IAM in Amazon MSK."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "msk",
    libraries=("aws_msk_iam_sasl_signer",),
    install='pip install "tidemark[msk]"',
    mechanisms={"AWS_MSK_IAM": "tidemark.providers.msk"},
)
