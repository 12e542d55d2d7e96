"""Opens a Delta table with the package deltalake, and translates the errors of that package.

It accesses a store with the same connection as Tidemark's own client. No error quotes a secret.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.connections.lookup import Lookup, Secret, masked, revealed
from tidemark.errors import THEN_RETRY, Unavailable
from tidemark.kinds import STORES
from tidemark.paths import scheme_of
from tidemark.providers.delta.settings import Settings
from tidemark.providers.lake_tables.refusals import file_gone
from tidemark.storage.base import ObjectStore

Options = Mapping[str, "str | Secret"]
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")  # its messages have them
_LAST_CHECKPOINT: Final = "_delta_log/_last_checkpoint"  # a file that every reader of a table may read


class DeltaClient:
    """One table by its location, whether it exists or not. Keys are looked up for each call, because they may
    expire."""

    def __init__(self, settings: Settings, store: ObjectStore, lookup: Lookup) -> None:
        self.location = settings.location
        self._settings = settings
        self._store = store
        self._lookup = lookup

    def load(self, context: Mapping[str, object], version: int | None = None) -> DeltaTable | None:
        """Return the newest state of the table, or that of a version; None if the table does not exist."""
        options = self._options()
        with self._translated(options, context):
            try:
                return DeltaTable(self.location, version=version, storage_options=revealed(options))
            except TableNotFoundError:
                return None

    def create(
        self, schema: Schema, partition_by: str, properties: Mapping[str, str], context: Mapping[str, object]
    ) -> None:
        """Create the table unless it exists. Properties may have names that Delta does not know."""
        options = self._options()
        with self._translated(options, context):
            DeltaTable.create(
                self.location, schema, mode="ignore", partition_by=[partition_by], configuration=properties,
                storage_options=revealed(options), raise_if_key_not_exists=False,
            )  # fmt: skip

    @contextmanager
    def used(self, context: Mapping[str, object]) -> Iterator[None]:
        """Translate errors of deltalake while a loaded table is read or changed."""
        with self._translated(self._options(), context):
            yield

    def _options(self) -> Options:
        scheme = scheme_of(self.location)
        if not scheme:
            return {}
        module = STORES.module(scheme, "storage_options")
        options: Options = module.storage_options(self.location, self._settings.store_settings(), self._lookup)
        return options

    @contextmanager
    def _translated(self, options: Options, context: Mapping[str, Any]) -> Iterator[None]:
        """Translate errors of deltalake into ``Unavailable``.

        deltalake has no error codes that tell the cause. So Tidemark's own client reads a file first: if it is refused
        too, its error is raised.
        """
        try:
            yield
        except FileNotFoundError as error:  # raised by our own client; deltalake's errors name no file
            raise file_gone(error, context) from error
        except (DeltaError, OSError) as error:
            self._store.get(_LAST_CHECKPOINT)
            text = masked(" ".join(_COLOURS.sub("", str(error)).split()), options)[:300]
            raise Unavailable(
                f"the table cannot be read or written: {type(error).__name__}: {text}",
                next_step="check that its folder or bucket can be reached" + THEN_RETRY,
                **context,
            ) from None
