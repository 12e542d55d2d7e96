"""Names topics, folders and tables as tools for lineage do: the naming of OpenLineage,
https://openlineage.io/docs/spec/naming."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dataset:
    """``namespace`` says where it is, ``name`` what it is called there. Neither holds a secret."""

    namespace: str
    name: str

    @classmethod
    def of_folder(cls, address: str) -> "Dataset":
        """Return the dataset of a folder, by its path or by an address such as ``s3://bucket/prefix``."""
        scheme, separator, rest = address.partition("://")
        if not separator:
            return cls("file", address)
        if scheme == "file":
            return cls("file", rest)
        bucket, _, prefix = rest.partition("/")
        return cls(f"{scheme}://{bucket}", prefix.rstrip("/") or "/")
