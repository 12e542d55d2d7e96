"""The folder of this checkout, and the folder for all its state. Python 3.8 must be able to import this module."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
STATE = CHECKOUT / ".tidemark"
# Airflow's address and login, and the port of each service, as JSON. It exists while `make up` is up, after its demo.
READY = STATE / "up.json"
