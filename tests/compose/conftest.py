"""docker-compose.yaml on an engine of Docker. `make test-compose` runs these tests, and `make test` does not."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.bootstrap.docker_engine import FOLDER
from sandbox.bootstrap.jars import fetch_file, fetch_for_tests
from sandbox.services.docker_engine import DockerEngine
from sandbox.services.dynamodb import SQLITE
from sandbox.services.postgres import wheel_folder
from tests.compose.images import STAGES, images_named

DEBIAN = "tidemark-stand-in/debian"


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """With our image, and stand-ins for those of others. Images are kept; containers and volumes are not."""
    with DockerEngine(FOLDER) as engine:
        make_stand_ins(engine)
        engine.docker("build", "--network", "host", "--tag", "tidemark-airflow", CHECKOUT)
        yield engine


def make_stand_ins(engine: DockerEngine) -> None:
    if not engine.has_image(DEBIAN):
        engine.import_debian(DEBIAN)
    fetch_for_tests(STATE, "dynamodb")
    fetch_file(SQLITE, STATE, "so")
    folders = {
        "jars": STATE / "jars",
        "packages": wheel_folder().parent,
        "requirements": CHECKOUT / "requirements",
        "sandbox": CHECKOUT / "sandbox",
    }
    contexts = [word for name, folder in folders.items() for word in ("--build-context", f"{name}={folder}")]
    for image in sorted(images_named()):
        stage = STAGES[image.partition(":")[0]]
        place = Path(__file__).with_name("stand_ins")
        engine.docker("build", "--network", "host", *contexts, "--target", stage, "--tag", image, place)


@pytest.fixture(scope="session")
def given() -> dict[str, str]:
    """What the head of docker-compose.yaml asks a person to export."""
    return {
        "TIDEMARK_POSTGRES_PASSWORD": secrets.token_hex(16),
        "TIDEMARK_S3_ACCESS_KEY": secrets.token_hex(10),
        "TIDEMARK_S3_SECRET_KEY": secrets.token_hex(20),
        "TIDEMARK_AIRFLOW_FERNET_KEY": Fernet.generate_key().decode(),
        "TIDEMARK_AIRFLOW_JWT_SECRET": secrets.token_hex(32),
    }


@pytest.fixture(scope="session")
def compose(engine: DockerEngine, given: dict[str, str]) -> Iterator[Callable[..., str]]:
    """``docker compose`` in the checkout, with the variables; others may be given, or taken out by an empty text."""

    def run(*words: str, **variables: Any) -> str:
        return engine.docker("compose", "--project-directory", str(CHECKOUT), *words, **{**given, **variables})

    yield run
    run("down", "--volumes", "--timeout", "20")
