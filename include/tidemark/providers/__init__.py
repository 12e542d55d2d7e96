"""Kinds that not everybody needs: a folder for each provider. ``kinds.py`` finds them; the core imports none of them.

Executors import this module, so it imports only the standard library.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Final


@dataclass(frozen=True)
class Provider:
    """The kinds of one provider, each with the package that holds its modules.

    ``libraries``: modules that its code imports and that a plain install of Tidemark lacks. ``install``: the shell
    command that installs them. ``needs``: the names of other providers that its code imports from. ``project``: the
    files that ``tidemark init --from NAME`` writes; those that differ from the core's are in its folder ``project``.
    """

    name: str
    libraries: tuple[str, ...] = ()
    install: str = ""
    needs: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    decoders: Mapping[str, str] = field(default_factory=dict)
    envelopes: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)  # stores to which totals are copied
    stores: Mapping[str, str] = field(default_factory=dict)  # places of files, by the scheme of their addresses
    registries: Mapping[str, str] = field(default_factory=dict)  # schema registries beside those of Confluent's API
    mechanisms: Mapping[str, str] = field(default_factory=dict)  # SASL mechanisms of connections

    def kinds(self) -> Iterator[tuple[str, str]]:
        """Yield (seam, name) for each kind of this provider."""
        yield from ((seam, kind) for seam in SEAMS for kind in getattr(self, seam))


SEAMS: Final = tuple(item.name for item in fields(Provider) if item.default_factory is dict)
