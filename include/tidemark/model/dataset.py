"""Names topics, folders and tables for lineage tools, as OpenLineage does: https://openlineage.io/docs/spec/naming."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dataset:
    """A dataset: ``namespace`` is its location, ``name`` its name there. Neither contains a secret."""

    namespace: str
    name: str

    @classmethod
    def of_folder(cls, address: str) -> "Dataset":
        """Return the dataset of a folder from its path, or from an address such as ``s3://bucket/prefix``."""
        scheme, separator, rest = address.partition("://")
        if not separator:
            return cls("file", address)
        if scheme == "file":
            return cls("file", rest)
        bucket, _, prefix = rest.partition("/")
        return cls(f"{scheme}://{bucket}", prefix.rstrip("/") or "/")
