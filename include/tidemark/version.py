"""The version of this package, and the folder it lies in."""

from pathlib import Path
from typing import Final

VERSION: Final = "0.1.0"
PACKAGE: Final = Path(__file__).parent
