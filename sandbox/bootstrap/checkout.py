"""Where this checkout lies, and the folder that holds all that it makes. Python 3.8 must be able to import it."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
STATE = CHECKOUT / ".tidemark"
