"""A descriptor set, as ``protoc --include_imports --descriptor_set_out`` writes it, and one of its messages."""

from collections.abc import Iterable

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from tidemark.errors import ConfigurationError
from tidemark.text import with_nearest

_PROTOC = "protoc --include_imports --descriptor_set_out=NAME.desc NAME.proto"


def needed(content: bytes, name: str) -> bytes:
    """The descriptor set of ``files_of``."""
    return bytes(FileDescriptorSet(file=files_of(content, name)).SerializeToString(deterministic=True))


def files_of(content: bytes, name: str) -> list[FileDescriptorProto]:
    """The files that the message ``name`` needs, each after its imports and without comments.

    Raises ``ConfigurationError`` when ``content`` is no descriptor set, lacks an import or lacks the message.
    """
    files = _files(content)
    home = next((file for file in files.values() if name in _messages(file)), None)
    if home is None:
        known = [message for file in files.values() for message in _messages(file)]
        raise ConfigurationError(
            with_nearest(f"there is no message {name} in the descriptor set", name, known),
            next_step="write the message with its package, such as travel.Flight",
        )
    wanted = _imports(home, files)
    kept = [file for file in files.values() if file.name in wanted]
    for file in kept:
        file.ClearField("source_code_info")
    return kept


def message_descriptor(content: bytes, name: str) -> Descriptor:
    """The message ``name`` of a descriptor set; raises ``ConfigurationError`` like ``files_of``."""
    return pool_of(files_of(content, name)).FindMessageTypeByName(name)


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """The files, which must come in the order of their imports, in a pool of their own."""
    pool = DescriptorPool()
    for file in files:
        try:
            pool.Add(file)
        except TypeError as problem:
            raise ConfigurationError(
                f"the descriptor of {file.name} is wrong: {problem}", next_step=f"make the descriptor set: {_PROTOC}"
            ) from None
    return pool


def _files(content: bytes) -> dict[str, FileDescriptorProto]:
    """The files by name, each after its imports."""
    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(content).file}
    except DecodeError:
        files = {}
    if not files:
        raise ConfigurationError("it is not a descriptor set", next_step=f"make one: {_PROTOC}")
    in_order: dict[str, FileDescriptorProto] = {}
    for name in files:
        in_order |= {each: files[each] for each in _imports(files[name], files)}
    return in_order


def _imports(file: FileDescriptorProto, files: dict[str, FileDescriptorProto]) -> list[str]:
    """The names of the file and of all it needs, each after its imports."""
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
        for name in current.dependency:
            if name not in files:
                raise ConfigurationError(
                    f"{current.name} imports {name}, which is not in the descriptor set",
                    next_step=f"make it with its imports: {_PROTOC}",
                )
            waiting.append((files[name], False))
    return list(names)


def _messages(file: FileDescriptorProto) -> list[str]:
    """The full names of the messages of a file, of nested ones too."""
    names = []
    waiting = [(file.package, message) for message in file.message_type]
    while waiting:
        within, message = waiting.pop()
        name = f"{within}.{message.name}" if within else message.name
        names.append(name)
        waiting += [(name, nested) for nested in message.nested_type if not nested.options.map_entry]
    return names
