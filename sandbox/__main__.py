"""`python -m sandbox COMMAND [WORDS..]`: the commands of the Makefile. Exit status 0 done, 1 failed, 2 busy or wrong
use.
"""

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from sandbox.bootstrap.checkout import STATE
from tidemark.errors import TidemarkError


def main(command: str, words: Sequence[str]) -> None:
    """Run one command. Only its own module is imported: others take seconds, or need jars that do not exist yet."""
    if command == "jars":
        from sandbox.bootstrap import jars

        jars.ensure(STATE)
    elif command == "lock-jars":
        from sandbox.bootstrap import jars

        jars.relock(STATE)
    elif command == "lock-azurite":
        from sandbox.bootstrap import azurite

        azurite.relock(STATE)
    elif command == "run":
        from sandbox.demo.run import run

        run()
    elif command == "up":
        from sandbox.demo.background import up

        up()
    elif command == "serve":
        from sandbox.demo.background import serve

        serve()
    elif command == "down":
        from sandbox.demo.background import down

        down()
    elif command == "clean":
        from sandbox.services.postgres import remove_home

        remove_home(STATE)
    elif command == "beside-ceph":
        from sandbox.services.ceph import run_beside

        sys.exit(run_beside(words))
    else:
        sys.exit(f"no such command: {command}")


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


if __name__ == "__main__":
    # By default these signals end the process without leaving its `with` blocks, so services would go on.
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
    except TidemarkError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        sys.exit(130)
