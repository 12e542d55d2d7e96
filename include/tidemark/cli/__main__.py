"""The process of the command line: ``tidemark``, or ``python -m tidemark.cli`` if its script is not on the PATH."""

import atexit
import os
import sys
import threading

from tidemark.cli.main import main


def run() -> None:
    """Run the command and end the process at once: to free what Spark, Arrow and others have imported takes 0.3 s.

    Python ends the process itself if a thread is still at work, or if output cannot be written.
    """
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int) and not _has_threads():
            atexit._run_exitfuncs()
            if _is_written():
                os._exit(ended.code)
        raise


def _has_threads() -> bool:
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())


def _is_written() -> bool:
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return False
    return True


if __name__ == "__main__":
    run()
