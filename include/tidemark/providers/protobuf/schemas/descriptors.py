"""A descriptor set, as ``protoc --include_imports --descriptor_set_out`` writes it, and one of its messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from tidemark.errors import ConfigurationError
from tidemark.providers.protobuf.schemas.known import known_files
from tidemark.text import with_nearest

_PROTOC = "protoc --include_imports --descriptor_set_out=NAME.desc NAME.proto"


def needed(content: bytes, name: str) -> bytes:
    """Return the descriptor set with the files of ``files_of``."""
    return bytes(FileDescriptorSet(file=files_of(content, name)).SerializeToString(deterministic=True))


def files_of(content: bytes, name: str) -> list[FileDescriptorProto]:
    """Return the files that the message ``name`` needs, each after its imports and without comments.

    Raises ``ConfigurationError`` if ``content`` is not a descriptor set, lacks an import or lacks the message.
    """
    files, missing = _files(content)
    home = next((file for file in files.values() if name in _messages(file)), None)
    if home is None:
        known = [message for file in files.values() for message in _messages(file)]
        raise ConfigurationError(
            with_nearest(f"there is no message {name} in the descriptor set", name, known),
            next_step="write the message with its package, such as travel.Flight",
        )
    if missing:
        _leave_unknown_out(files, missing, name)
    wanted = _imports(home, files)
    kept = [file for file in files.values() if file.name in wanted]
    for file in kept:
        file.ClearField("source_code_info")
    return kept


def message_descriptor(content: bytes, name: str) -> Descriptor:
    """Return the message ``name`` of a descriptor set; raises ``ConfigurationError`` like ``files_of``."""
    return pool_of(files_of(content, name)).FindMessageTypeByName(name)


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """Return a new pool with these files, which must come in the order of their imports."""
    pool = DescriptorPool()
    for file in files:
        try:
            pool.Add(file)
        except TypeError as problem:
            raise ConfigurationError(
                f"the descriptor of {file.name} is wrong: {problem}", next_step=f"make the descriptor set: {_PROTOC}"
            ) from None
    return pool


def _files(content: bytes) -> tuple[dict[str, FileDescriptorProto], dict[str, list[str]]]:
    """Return (the files by name, each after its imports; the missing imports of each file, which are removed from
    it)."""
    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(content).file}
    except DecodeError:
        files = {}
    imports = [name for file in files.values() for name in file.dependency]
    files |= {file.name: file for file in known_files(imports, files)}
    if not files:
        raise ConfigurationError("the schema file is not a descriptor set", next_step=f"make one: {_PROTOC}")
    missing = {name: removed for name, file in files.items() if (removed := _without_missing(file, files))}
    in_order: dict[str, FileDescriptorProto] = {}
    for name in files:
        in_order |= {each: files[each] for each in _imports(files[name], files)}
    return in_order, missing


def _without_missing(file: FileDescriptorProto, files: Mapping[str, FileDescriptorProto]) -> list[str]:
    """Remove the imports that are missing, and return their names."""
    names, public = list(file.dependency), {file.dependency[at] for at in file.public_dependency}
    missing = [name for name in names if name not in files]
    if missing:
        kept = [name for name in names if name in files]
        for part in ("dependency", "public_dependency", "weak_dependency"):
            file.ClearField(part)
        file.dependency.extend(kept)
        file.public_dependency.extend(at for at, name in enumerate(kept) if name in public)
    return missing


def _leave_unknown_out(
    files: Mapping[str, FileDescriptorProto], missing: Mapping[str, Sequence[str]], wanted: str
) -> None:
    """Remove the fields whose types only a missing import can define.

    Often only options need such an import. Raises ``ConfigurationError`` if a message inside ``wanted`` has such a
    field.
    """
    known = {name for file in files.values() for name in _types_of(file)}
    messages = {name: message for file in files.values() for name, message in _all_messages(file)}
    used: set[str] = set()
    waiting = [wanted]
    while waiting:
        name = waiting.pop()
        if name in messages and name not in used:
            used.add(name)
            waiting += [field.type_name[1:] for field in messages[name].field if field.type_name]
    for file, imports in missing.items():
        for name, message in _all_messages(files[file]):
            unknown = [
                field for field in message.field if field.type_name[:1] == "." and field.type_name[1:] not in known
            ]
            if unknown and name in used:
                raise ConfigurationError(
                    f"{file} imports {', '.join(imports)}, which is missing in the descriptor set, so the type "
                    f"{unknown[0].type_name[1:]} is unknown",
                    next_step=f"make it with its imports: {_PROTOC}",
                )
            for field in unknown:
                message.field.remove(field)


def _types_of(file: FileDescriptorProto) -> set[str]:
    """Return the full names of the messages and enums of a file."""
    names = {f"{file.package}.{enum.name}".lstrip(".") for enum in file.enum_type}
    for name, message in _all_messages(file):
        names |= {name, *(f"{name}.{enum.name}" for enum in message.enum_type)}
    return names


def _imports(file: FileDescriptorProto, files: dict[str, FileDescriptorProto]) -> list[str]:
    """Return the names of the file and of all that it needs, each after its imports."""
    names: dict[str, None] = {}
    waiting = [(file, False)]
    opened: set[str] = set()
    while waiting:
        current, imports_are_named = waiting.pop()
        if imports_are_named:
            names[current.name] = None
        if imports_are_named or current.name in opened:
            continue
        opened.add(current.name)
        waiting.append((current, True))
        waiting += [(files[name], False) for name in current.dependency]
    return list(names)


def _messages(file: FileDescriptorProto) -> list[str]:
    """Return the full names of the messages of a file, including nested ones, without the entries of maps."""
    return [name for name, message in _all_messages(file) if not message.options.map_entry]


def _all_messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Yield the messages of a file with their full names."""
    waiting = [(file.package, message) for message in file.message_type]
    while waiting:
        within, message = waiting.pop()
        name = f"{within}.{message.name}" if within else message.name
        yield name, message
        waiting += [(name, nested) for nested in message.nested_type]
