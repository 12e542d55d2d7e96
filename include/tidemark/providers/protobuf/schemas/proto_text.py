"""Parses the text of a .proto file into a descriptor, as protoc would make it, without what does not affect columns.

Left out are options (except ``packed`` and ``map_entry``), defaults, services, extensions and reserved names. Editions
are refused: no registry's text has had one yet.

Confluent's registry makes descriptors from a text itself (``?format=serialized``), which would replace this module. But
Apicurio 3.3.3 accepts the parameter and answers with the bytes of the descriptor as text, not as base64. It replaces
bytes that are not UTF-8, among them the length of each message of 128 bytes or more. It gives imported files other
names than the references have, and answers 500 for a schema that was registered as base64 and for groups of proto2
(``test_serialized_descriptors.py`` checks this).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_TOKEN = re.compile(
    r"""(?P<gap>\s+|//[^\n]*|/\*.*?\*/)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\.?[A-Za-z_][\w.]*|\d[\w.]*|\S""",
    re.DOTALL,
)
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class NotProto(Exception):
    """The text is not a .proto file that can be read; the message says where."""


def parsed(text: str) -> FileDescriptorProto:
    """Return the file. Types of messages and enums are as written, until ``resolve``. Raises ``NotProto``."""
    return _Parser(text).file()


def resolve(file: FileDescriptorProto, others: Iterable[FileDescriptorProto], *, is_whole: bool = True) -> None:
    """Write the full name of each type, as found in this file or in others.

    Raises ``NotProto`` for an unknown type. If files are missing (not ``is_whole``), the type is left as written.
    """
    known: dict[str, bool] = {}  # by full name: true for an enum, false for a message
    for each in (*others, file):
        _remember(known, each.package, each.message_type, each.enum_type)
    for message in file.message_type:
        _resolve_fields(message, f"{file.package}.{message.name}".lstrip("."), known, is_whole=is_whole)


def _remember(
    known: dict[str, bool],
    scope: str,
    messages: Iterable[DescriptorProto],
    enums: Iterable[EnumDescriptorProto],
) -> None:
    known.update({f"{scope}.{enum.name}".lstrip("."): True for enum in enums})
    for message in messages:
        name = f"{scope}.{message.name}".lstrip(".")
        known[name] = False
        _remember(known, name, message.nested_type, message.enum_type)


def _resolve_fields(message: DescriptorProto, scope: str, known: Mapping[str, bool], *, is_whole: bool) -> None:
    for field in message.field:
        if field.type_name:
            name = _full_name(field.type_name, scope, known)
            if name is None and is_whole:
                raise NotProto(f"there is no type {field.type_name.removeprefix('.')}")
            field.type_name = f".{name or field.type_name.removeprefix('.')}"
            if field.type != FieldDescriptorProto.TYPE_GROUP:
                is_enum = name is not None and known[name]
                field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
    for nested in message.nested_type:
        _resolve_fields(nested, f"{scope}.{nested.name}", known, is_whole=is_whole)


def _full_name(name: str, scope: str, known: Collection[str]) -> str | None:
    """Return the full name of the innermost type of that name visible from a scope; None if no scope has one."""
    if name.startswith("."):
        scope, name = "", name[1:]
    while True:
        candidate = f"{scope}.{name}".lstrip(".")
        if candidate in known:
            return candidate
        if not scope:
            return None
        scope = scope.rpartition(".")[0]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [match.group() for match in _TOKEN.finditer(text) if match["gap"] is None]
        self._at = 0
        self._file = FileDescriptorProto()

    def file(self) -> FileDescriptorProto:
        while self._at < len(self._tokens):
            match word := self._next():
                case "syntax":
                    self._expect("=")
                    syntax = self._string()
                    self._expect(";")
                    if syntax != "proto2":  # protoc leaves the default out
                        self._file.syntax = syntax
                case "package":
                    self._file.package = self._next()
                    self._expect(";")
                case "import":
                    kind = self._next() if self._peek() in ("public", "weak") else ""
                    if kind == "public":
                        self._file.public_dependency.append(len(self._file.dependency))
                    self._file.dependency.append(self._string())
                    self._expect(";")
                case "message":
                    self._message(self._file.message_type.add(name=self._next()))
                case "enum":
                    self._enum(self._file.enum_type.add(name=self._next()))
                case "option" | "service" | "extend":
                    self._skip()
                case ";":
                    pass
                case _:
                    raise self._wrong(word)
        if self._file.syntax not in ("", "proto3"):
            raise NotProto(f"its syntax is {self._file.syntax}")
        return self._file

    def _message(self, message: DescriptorProto) -> None:
        self._expect("{")
        while (word := self._next()) != "}":
            match word, self._peek():
                case "message", _ if self._tokens[self._at + 1 : self._at + 2] == ["{"]:
                    self._message(message.nested_type.add(name=self._next()))
                case "enum", _ if self._tokens[self._at + 1 : self._at + 2] == ["{"]:
                    self._enum(message.enum_type.add(name=self._next()))
                case "oneof", _ if self._tokens[self._at + 1 : self._at + 2] == ["{"]:
                    self._oneof(message)
                case "option", "map_entry":  # some registries write the entry message of a map explicitly
                    message.options.map_entry = self._tokens[self._at + 2 : self._at + 3] == ["true"]
                    self._skip()
                case (("option" | "reserved" | "extensions" | "extend"), following) if following != "=":
                    self._skip()
                case ";", _:
                    pass
                case _:
                    self._field(message, word)
        for field in message.field:  # protoc puts the oneofs that it makes for optional fields after all others
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=self._free(f"_{field.name}", message))

    @staticmethod
    def _free(name: str, message: DescriptorProto) -> str:
        taken = {field.name for field in message.field} | {oneof.name for oneof in message.oneof_decl}
        while name in taken:
            name = f"X{name}"
        return name

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip()
            elif word != ";":
                self._field(message, word, index)

    def _field(self, message: DescriptorProto, word: str, oneof: int | None = None) -> None:
        label = _LABELS.get(word)
        kind = word if label is None else self._next()
        field = message.field.add(label=label or FieldDescriptorProto.LABEL_OPTIONAL)
        field.proto3_optional = word == "optional" and self._file.syntax == "proto3"
        if not field.proto3_optional:
            field.ClearField("proto3_optional")
        if oneof is not None:
            field.oneof_index = oneof
        entry = self._entry(message, field) if kind == "map" and self._peek() == "<" else None
        if entry is None:
            self._type(field, kind)
        field.name = self._next()
        if entry is not None:
            entry.name = f"{_camel(field.name)}Entry"
            field.type_name = entry.name
        self._expect("=")
        field.number = self._number()
        packed = self._packed()
        if packed is not None:
            field.options.packed = packed
        if kind == "group":
            field.type, field.type_name = FieldDescriptorProto.TYPE_GROUP, field.name
            self._message(message.nested_type.add(name=field.name))
            field.name = field.name.lower()
        else:
            self._expect(";")

    def _entry(self, message: DescriptorProto, field: FieldDescriptorProto) -> DescriptorProto:
        """Return the message for a map's entries. Its name is set later, because the field's name is not known yet."""
        entry = message.nested_type.add()
        entry.options.map_entry = True
        self._expect("<")
        for number, (name, end) in enumerate((("key", ","), ("value", ">")), 1):
            part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            self._type(part, self._next())
            self._expect(end)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        return entry

    def _type(self, field: FieldDescriptorProto, kind: str) -> None:
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif re.match(r"\.?[A-Za-z_]", kind):
            field.type_name = kind
        else:
            raise self._wrong(kind)

    def _packed(self) -> bool | None:
        """Skip a field's options, and return the value of ``packed``; None if it is not set."""
        if self._peek() != "[":
            return None
        begin = self._at
        self._skip_block()
        options = self._tokens[begin : self._at]
        for at in range(len(options) - 2):
            if options[at] == "packed" and options[at + 1] == "=" and options[at - 1] in ("[", ","):
                return options[at + 2] == "true"
        return None

    def _enum(self, enum: EnumDescriptorProto) -> None:
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option" and self._peek() == "allow_alias":
                enum.options.allow_alias = self._tokens[self._at + 2 : self._at + 3] == ["true"]
            if word in ("option", "reserved") and self._peek() != "=":
                self._skip()
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=self._number())
                if self._peek() == "[":
                    self._skip_block()
                self._expect(";")

    def _number(self) -> int:
        sign = -1 if self._peek() == "-" else 1
        if sign < 0:
            self._next()
        word = self._next()
        try:
            is_octal = len(word) > 1 and word.isdecimal() and word[0] == "0"
            return sign * (int(word, 8) if is_octal else int(word, 0))
        except ValueError:
            raise self._wrong(word) from None

    def _string(self) -> str:
        word = self._next()
        if word[0] not in "'\"":
            raise self._wrong(word)
        return word[1:-1]

    def _skip(self) -> None:
        """Skip to the end of a statement: after its ``;`` or its block."""
        while True:
            if self._peek() in _CLOSING:
                is_block = self._peek() == "{"
                self._skip_block()
                if is_block and self._peek() != ";":
                    return
            elif self._next() == ";":
                return

    def _skip_block(self) -> None:
        open_: list[str] = []
        while True:
            word = self._next()
            if word in _CLOSING:
                open_.append(_CLOSING[word])
            elif open_ and word == open_[-1]:
                open_.pop()
                if not open_:
                    return

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        word = self._peek()
        if not word:
            raise NotProto("it ends within a statement")
        self._at += 1
        return word

    def _expect(self, word: str) -> None:
        if (given := self._next()) != word:
            raise self._wrong(given)

    def _wrong(self, word: str) -> NotProto:
        before: Sequence[str] = self._tokens[max(0, self._at - 6) : self._at - 1]
        place = f"after {' '.join(before)[-80:]}" if before else "its first word"
        return NotProto(f"it cannot be read at {word[:40]}, {place}")


def _camel(name: str) -> str:
    """Return a name as protoc writes it for the entries of a map: ``user_ids`` becomes ``UserIds``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
