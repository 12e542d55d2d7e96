"""Reads the fields of a JSON Schema in a registry."""

import json

from tidemark.decoders.json.json_schema import struct_of
from tidemark.decoders.json_shapes.nested import Struct
from tidemark.errors import ConfigurationError
from tidemark.providers.registry.registered_schema import RegisteredSchema


def struct_of_registered(schema: RegisteredSchema) -> Struct:
    """Return all fields of a record; ``ConfigurationError`` for a schema that is wrong or has unsupported words."""
    try:
        texts = {name: json.loads(text) for name, text in schema.references}
        return struct_of(json.loads(schema.text), texts)
    except (ValueError, RecursionError):
        raise ConfigurationError(
            f"schema {schema.id} of the registry is not JSON", next_step="look at it in the registry"
        ) from None
