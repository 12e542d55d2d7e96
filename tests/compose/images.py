"""The images of others that Dockerfile and docker-compose.yaml name, and what stands in for each."""

import re

import yaml

from sandbox.bootstrap.checkout import CHECKOUT

STAGES = {  # of stand_ins/Dockerfile, by the repository of the image that each stands for
    "apache/airflow": "airflow",
    "apache/kafka": "kafka",
    "postgres": "postgres",
    "rustfs/rustfs": "s3",
    "amazon/dynamodb-local": "dynamodb",
}


def images_named() -> set[str]:
    """The images of others that the two files name."""
    services = yaml.safe_load((CHECKOUT / "docker-compose.yaml").read_text())["services"]
    pulled = {service["image"] for service in services.values() if "build" not in service}
    return pulled | set(re.findall(r"^FROM ([a-z/]+:\S+)", (CHECKOUT / "Dockerfile").read_text(), re.MULTILINE))
