"""The version of this package, and its folder."""

from pathlib import Path
from typing import Final

VERSION: Final = "0.4.0"
PACKAGE: Final = Path(__file__).parent
