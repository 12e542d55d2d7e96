"""Connections from Airflow's environment, secrets backend or metadata database, outside of tasks.

``python -m tidemark.airflow.stored ID ..`` prints those that exist as JSON. The output contains secrets, so it is only
for a pipe.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any


def main(ids: list[str]) -> None:
    """Print the connections. A backend that does not answer is an error here; Airflow's own look-up takes the
    connection for missing.
    """
    answer = os.dup(1)
    os.dup2(2, 1)  # Airflow and its plugins write to standard output
    from airflow.configuration import ensure_secrets_loaded

    from tidemark.airflow.lookup import as_mapping

    connections: dict[str, Mapping[str, Any]] = {}
    for backend in ensure_secrets_loaded():
        for conn_id in ids:
            connection = None if conn_id in connections else backend.get_connection(conn_id=conn_id)
            if connection is not None:
                connections[conn_id] = as_mapping(connection)
    with os.fdopen(answer, "w") as pipe:
        json.dump(connections, pipe)


if __name__ == "__main__":
    main(sys.argv[1:])
