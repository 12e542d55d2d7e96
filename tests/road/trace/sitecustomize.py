"""Traces every Python process that inherits ROAD_TRACE, the path of a file, and has this folder in its PYTHONPATH.

The first call of each function of Tidemark in a process adds a line to the file: its module and its first line. Lines
are written at once, because Spark ends its workers without notice.
"""

import inspect
import os
import sys
import threading
from types import CodeType, FrameType

PACKAGE = "/include/tidemark/"
TRACE = os.environ.get("ROAD_TRACE")
IMPORTS = "<frozen importlib._bootstrap>"
_known: set[CodeType] = set()


def _record(frame: FrameType, event: str, _: object) -> None:
    code = frame.f_code
    if event != "call" or code in _known:
        return
    before, package, module = code.co_filename.partition(PACKAGE)
    is_function = code.co_flags & inspect.CO_OPTIMIZED  # the body of a module or of a class is not a step of the road
    if before and package and is_function:
        if _is_importing(frame):
            return
        file = os.open(str(TRACE), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{module}\t{code.co_firstlineno}\n".encode())  # a short write with O_APPEND is never torn
        os.close(file)
    _known.add(code)


def _is_importing(frame: FrameType) -> bool:
    """True while some module is imported: such a call tells nothing about a manifest."""
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename == IMPORTS:
            return True
        caller = caller.f_back
    return False


if TRACE:
    threading.setprofile(_record)
    sys.setprofile(_record)
