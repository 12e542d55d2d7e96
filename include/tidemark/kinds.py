"""List the kinds that a pipeline file may name: those of the core, of our own providers and of installed packages.

Our own providers are the folders of ``tidemark.providers``. Any other is an installed package with an entry point of
the group ``tidemark.providers``, which names a ``Provider``. Ours are found without metadata of an installation,
because executors get this package as a zip.

A kind is the name of a package whose modules have fixed names (docs/extending.md). They are imported at first use.
Executors import this module, so it imports only the standard library.
"""

from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, entry_points
from types import ModuleType
from typing import Final

from tidemark.errors import ConfigurationError
from tidemark.extras import absent_libraries, import_for, is_installed
from tidemark.providers import Provider
from tidemark.text import with_nearest

ENTRY_POINTS: Final = "tidemark.providers"
OUR_PROVIDERS: Final = (
    "avro",
    "azure",
    "debezium",
    "delta",
    "dynamodb",
    "glue",
    "iceberg",
    "msk",
    "postgres",
    "protobuf",
    "rabbitmq",
    "registry",
    "topic",
)


CORE: Final = Provider(
    "core",
    sources={"kafka": "tidemark.sources.kafka"},
    decoders={
        "json": "tidemark.decoders.json",
        "raw": "tidemark.decoders.raw",
        "string": "tidemark.decoders.string",
    },
    transforms={
        "filter": "tidemark.transforms.filter",
        "select": "tidemark.transforms.select",
        "sql": "tidemark.transforms.sql",
        "python": "tidemark.transforms.python",
        "spark": "tidemark.transforms.spark",
        "dedupe": "tidemark.transforms.dedupe",
        "explode": "tidemark.transforms.explode",
    },
    sinks={
        "files": "tidemark.sinks.files",
    },
    stores={
        "s3": "tidemark.storage.s3",
    },
)


@dataclass
class Providers:
    """All providers by name.

    ``distributions`` has the installed package of each provider that is not ours, ``broken`` the reason for each
    installed package that cannot be used, in whole or in part.
    """

    by_name: dict[str, Provider]
    broken: dict[str, str] = field(default_factory=dict)
    distributions: dict[str, Distribution] = field(default_factory=dict)

    @classmethod
    def installed(cls) -> "Providers":
        """Return the providers that this Python has. The reason why an installed package fails goes into ``broken``;
        the others are loaded all the same."""
        names = [name for name in OUR_PROVIDERS if is_installed(f"tidemark.providers.{name}.provider")]
        ours = [CORE, *(import_module(f"tidemark.providers.{name}.provider").PROVIDER for name in names)]
        providers = cls({provider.name: provider for provider in ours})
        for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: (entry.name, entry.value)):
            providers.add(entry)
        return providers

    def add(self, entry: EntryPoint) -> None:
        """Add the provider of an installed package; if it cannot be used, add the reason to ``broken``."""
        assert entry.dist is not None  # ``entry_points`` returns each entry with its distribution
        distribution = entry.dist.name
        try:
            provider = entry.load()
        except Exception as error:
            self.broken[distribution] = f"{entry.value} cannot be imported: {type(error).__name__}: {error}"
            return
        if problem := self._problem_with(provider):
            self.broken[distribution] = f"{entry.value} {problem}"
        else:
            self.by_name[provider.name] = provider
            self.distributions[provider.name] = entry.dist

    def _problem_with(self, provider: object) -> str | None:
        if not isinstance(provider, Provider):
            return f"is no tidemark.providers.Provider, but of type {type(provider).__name__}"
        if provider.name in self.by_name:
            return f"has the name {provider.name} of another provider"
        taken = {known: other.name for other in self.by_name.values() for known in other.kinds()}
        for known in provider.kinds():
            if known in taken:
                return f"brings {known[1]} to {known[0]}, which is a kind of the provider {taken[known]}"
        return None

    def provider_of(self, seam: str, kind: str) -> Provider:
        """Return the provider of a kind. Kinds that tests register by hand count as the core's."""
        return next((provider for provider in self.by_name.values() if kind in getattr(provider, seam)), CORE)


PROVIDERS: Final = Providers.installed()


class Kinds(dict[str, str]):
    """The kinds of one seam, each with the package that holds its modules.

    ``word`` is the noun for such a kind in messages, ``names`` are the modules that each package has.
    """

    def __init__(self, seam: str, word: str, *names: str) -> None:
        super().__init__(
            sorted(item for provider in PROVIDERS.by_name.values() for item in getattr(provider, seam).items())
        )
        self.seam, self.word, self.names = seam, word, names
        self.left_out: dict[str, str] = {}

    def module(self, kind: str, name: str) -> ModuleType:
        """Return a module of a kind.

        Raises ``ConfigurationError`` for a kind that no provider has, and for a library that this Python lacks.
        """
        if kind not in self:
            what = with_nearest(f"no {self.word} of kind {kind!r} is installed here", kind, self)
            raise ConfigurationError(what, next_step=f"use one of: {', '.join(self)}")
        return import_for(kind, f"{self[kind]}.{name}", PROVIDERS.provider_of(self.seam, kind).install)

    def modules(self, name: str) -> dict[str, ModuleType]:
        """Return the module of this name of every kind, without the kinds that ``usable`` leaves out."""
        return {kind: module for kind in [*self] if (module := self.usable(kind, name))}

    def usable(self, kind: str, name: str) -> ModuleType | None:
        """Return a module of a kind. If it is of an installed package and cannot be imported, leave the kind out and
        return None."""
        try:
            return self.module(kind, name)
        except Exception as error:
            if PROVIDERS.provider_of(self.seam, kind).name not in PROVIDERS.distributions:
                raise
            self.leave_out(kind, f"its module {name} cannot be imported: {type(error).__name__}: {error}")
            return None

    def leave_out(self, kind: str, reason: str) -> None:
        """Remove a kind of an installed package that cannot be used, and keep the reason."""
        provider = PROVIDERS.provider_of(self.seam, kind)
        del self[kind]
        self.left_out[kind] = reason
        PROVIDERS.broken[PROVIDERS.distributions[provider.name].name] = f"{self.word} {kind}: {reason}"

    def problem_with(self, kind: str) -> str | None:
        """Return which libraries of a kind this Python lacks, with the command to install them; None if it has all."""
        provider = PROVIDERS.provider_of(self.seam, kind)
        absent = absent_libraries(provider.libraries)
        return f"{absent}; install it: {provider.install}" if absent else None


SOURCES: Final = Kinds("sources", "source", "settings", "source", "spark")
DECODERS: Final = Kinds("decoders", "format", "settings", "decoder")
ENVELOPES: Final = Kinds("envelopes", "envelope", "settings", "envelope", "json")
TRANSFORMS: Final = Kinds("transforms", "transform", "settings", "transform")
SINKS: Final = Kinds("sinks", "sink", "settings", "sink", "writer")
COPIES: Final = Kinds("copies", "copy", "settings", "copy")
STORES: Final = Kinds("stores", "store", "address", "store", "storage_options")  # by the schemes of their addresses
REGISTRIES: Final = Kinds("registries", "schema registry", "settings", "registry")
MECHANISMS: Final = Kinds("mechanisms", "SASL mechanism", "mechanism")
KINDS: Final = {
    kinds.seam: kinds
    for kinds in (SOURCES, DECODERS, ENVELOPES, TRANSFORMS, SINKS, COPIES, STORES, REGISTRIES, MECHANISMS)
}
