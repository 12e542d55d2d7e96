"""Joins the columns of several decoders into one schema."""

from collections.abc import Sequence

import pyarrow as pa

from tidemark.decoders.names import check_names
from tidemark.errors import ConfigurationError


def united(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return all columns, in the order in which the schemas have them first. A column that some schema lacks is
    nullable.

    Raises ``ConfigurationError`` if a column has two types. Types that differ only in nullability count as one.
    """
    fields: dict[str, pa.Field] = {}
    first: dict[str, int] = {}
    for index, schema in enumerate(schemas):
        for field in schema:
            try:
                both = pa.schema([fields[field.name]]) if field.name in fields else pa.schema([])
                [fields[field.name]] = pa.unify_schemas([both, pa.schema([field])], promote_options="default")
            except pa.ArrowTypeError:
                raise ConfigurationError(
                    f"column {field.name} is {field.type} in decode[{index}] and {fields[field.name].type} in "
                    f"decode[{first[field.name]}], and a column has one type",
                    next_step="give it one type, or read these topics with two pipelines",
                ) from None
            first.setdefault(field.name, index)
    check_names(list(fields), lambda name: f"column {name} of decode[{first[name]}]")
    everywhere = set.intersection(*(set(schema.names) for schema in schemas))
    return pa.schema([field if field.name in everywhere else field.with_nullable(True) for field in fields.values()])
