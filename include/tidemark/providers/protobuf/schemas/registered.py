"""Converts a registered Protobuf schema into a descriptor set."""

from base64 import b64decode
from binascii import Error as NotBase64

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from tidemark.errors import ConfigurationError
from tidemark.providers.protobuf.schemas.known import known_files
from tidemark.providers.protobuf.schemas.proto_text import NotProto, parsed, resolve
from tidemark.providers.registry.registered_schema import RegisteredSchema


def descriptor_set_of(schema: RegisteredSchema) -> bytes:
    """Return the descriptor set of a schema: of a file (with the id -1), or of a registry, which stores base64 or
    .proto text.

    Raises ``ConfigurationError`` for a text that cannot be read.
    """
    if schema.is_of_file:
        return b64decode(schema.text)
    files: dict[str, FileDescriptorProto] = {}
    texts: list[FileDescriptorProto] = []
    try:
        for name, text in (*schema.references, ("", schema.text)):
            file = file_of(text)
            if file is None:
                file = parsed(text)
                texts.append(file)
            file.name = name or file.name or "schema.proto"
            files[file.name] = file
        imports = [name for file in files.values() for name in file.dependency]
        both = [*known_files(imports, files), *files.values()]
        is_whole = {*imports} <= {file.name for file in both}
        for file in texts:
            resolve(file, both, is_whole=is_whole)
    except NotProto as wrong:
        raise ConfigurationError(
            f"the registry holds schema {schema.id} as the text of a .proto file that cannot be used: {wrong}",
            next_step="make a descriptor set of that file, protoc --include_imports --descriptor_set_out=NAME.desc "
            "NAME.proto, and name it as decode.descriptor_set, beside registry",
        ) from None
    return bytes(FileDescriptorSet(file=both).SerializeToString(deterministic=True))


def file_of(text: str) -> FileDescriptorProto | None:
    """Return the descriptor that a registry stores as base64; None for the text of a .proto file."""
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (NotBase64, ValueError, DecodeError):
        return None
    return file if file.message_type else None
