"""The modules of a pipeline's ``code`` folder, imported from the texts in an order, not from files.

So executors need no copy of the folder. A worker of Spark outlives an application's code, and several pipelines may
have a module ``prices``: each set of texts is imported separately, and found only while its own functions run.
"""

import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import FrameType, ModuleType
from typing import Final

PREFIX: Final = "code/"  # begins the names of files in tracebacks


class Code(MetaPathFinder, InspectLoader):
    """Imports modules from ``texts``, which has them by their paths in the folder, such as ``prices.py`` or
    ``shop/tax.py``. ``roots`` are the first parts of their names: ``prices`` and ``shop``.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self.roots = {path.partition("/")[0].removesuffix(".py") for path in texts}
        self._imported: dict[str, ModuleType] = {}

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Make the modules importable in the block, also for their own functions; afterwards restore the modules of
        before.
        """
        hidden = self._taken_out()
        sys.modules.update(self._imported)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            self._imported = self._taken_out()
            sys.modules.update(hidden)

    def line_of(self, error: BaseException) -> str:
        """Return the line of the code at which the error was raised, such as ``code/prices.py:12``; empty if it was
        elsewhere.
        """
        if isinstance(error, SyntaxError) and error.filename and self._is_ours(error.filename):
            return f"{error.filename}:{error.lineno}"
        lines = [
            f"{frame.filename}:{frame.lineno}"
            for frame in traceback.extract_tb(error.__traceback__)
            if self._is_ours(frame.filename)
        ]
        return lines[-1] if lines else ""

    def line_in(self, frame: FrameType | None) -> str:
        """Return the innermost line of the code in a stack, in the form of ``line_of``."""
        while frame is not None and not self._is_ours(frame.f_code.co_filename):
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] not in self.roots or self._file(fullname) is None:
            return None
        return spec_from_loader(fullname, self, origin=self.get_filename(fullname))

    def is_package(self, fullname: str) -> bool:
        file = self._file(fullname)
        return file is not None and not file.endswith(f"{fullname.rpartition('.')[2]}.py")

    def get_source(self, fullname: str) -> str:
        return self._texts.get(self._file(fullname) or "", "")

    def get_filename(self, fullname: str) -> str:
        return f"{PREFIX}{self._file(fullname)}"

    def exec_module(self, module: ModuleType) -> None:
        name = self.get_filename(module.__name__)
        source = self.get_source(module.__name__)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the user's own code

    def _file(self, fullname: str) -> str | None:
        """Return the path of a module; the ``__init__.py`` of a package need not exist."""
        place = fullname.replace(".", "/")
        if f"{place}.py" in self._texts:
            return f"{place}.py"
        is_folder = any(path.startswith(f"{place}/") for path in self._texts)
        return f"{place}/__init__.py" if is_folder else None

    def _is_ours(self, filename: str) -> bool:
        return filename.startswith(PREFIX) and filename.removeprefix(PREFIX) in self._texts

    def _taken_out(self) -> dict[str, ModuleType]:
        own = [name for name in list(sys.modules) if name.partition(".")[0] in self.roots]  # others may import
        return {name: sys.modules.pop(name) for name in own}
