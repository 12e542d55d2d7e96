"""Dockerfile and docker-compose.yaml agree with the code and the locks; `make test-compose` runs them."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from sandbox.bootstrap import check_machine
from sandbox.bootstrap import jars as sandbox_jars
from sandbox.services import postgres
from tests.compose.images import STAGES, images_named
from tests.unit.test_docs import jar, locked, text
from tidemark.cli import main
from tidemark.pipeline.loader import load

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = text("Dockerfile")
COMPOSE = text("docker-compose.yaml")


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load(COMPOSE)


def built(services: dict[str, Any]) -> dict[str, Any]:
    """The services that run our image."""
    return {name: service for name, service in services.items() if "build" in service}


def ends(compose: Any) -> set[str]:
    """Every ``host:port`` that an environment variable of our image names."""
    environment = compose["x-airflow"]["environment"]
    assert all(environment.items() <= service["environment"].items() for service in built(compose["services"]).values())
    values = [re.sub(r"\$\{[^}]*\}", "secret", value) for value in environment.values()]
    urls = {urlsplit(url).netloc.rpartition("@")[2] for url in values if "://" in url and not url.startswith("{")}
    in_json = re.findall(r'"bootstrap.servers": "([^"]+)"|"endpoint_url": "http://([^"]+)"', str(values))
    return (urls | {server or url for server, url in in_json}) - {"lake"}


class Stage(NamedTuple):
    """Of one stage of a Dockerfile: what it copies from the checkout, to where, and its commands."""

    copied: list[tuple[list[str], str]]
    run: list[str]


def stages_of(dockerfile: str) -> dict[str, Stage]:
    """By name; the last one, which has none, as ``""``."""
    stages: dict[str, Stage] = {}
    for line in dockerfile.replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            current = stages[rest.partition(" AS ")[2]] = Stage([], [])
        elif word == "RUN":
            current.run.append(rest)
        elif word == "COPY" and "--from=" not in rest:
            *sources, target = [name for name in rest.split() if not name.startswith("--")]
            current.copied.append((sources, target))
    return stages


def distinct(values: Iterable[Any]) -> list[Any]:
    values_once: list[Any] = []
    for value in values:
        if value not in values_once:
            values_once.append(value)
    return values_once


def keys(**properties: Any) -> dict[str, Any]:
    """The schema of an object that has only these keys."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def rows(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": keys(**properties) | {"required": list(properties)}}


WORDS, FLAG, ANY = {"type": "string", "minLength": 1}, {"type": "boolean"}, {}
# The keys of Airflow's Helm chart 1.22.0 that we use, with the types in its values.schema.json.
CHART = keys(
    airflowVersion=WORDS, images=keys(airflow=keys(repository=WORDS, tag=WORDS)), executor=WORDS,
    useStandardNaming=FLAG, postgresql=keys(enabled=FLAG), data=keys(metadataSecretName=WORDS),
    fernetKeySecretName=WORDS, jwtSecretName=WORDS, apiSecretKeySecretName=WORDS,
    secret=rows(envName=WORDS, secretName=WORDS, secretKey=WORDS), env=rows(name=WORDS, value=WORDS),
    volumes=rows(name=WORDS, persistentVolumeClaim=ANY), volumeMounts=rows(name=WORDS, mountPath=WORDS),
    scheduler=keys(resources=keys(requests=ANY), serviceAccount=keys(name=WORDS)),
)  # fmt: skip


def test_the_values_for_helm_have_keys_of_the_chart() -> None:
    file = text("examples/kubernetes/values.yaml")
    assert "chart 1.22.0" in file
    jsonschema.validate(yaml.safe_load(file), CHART)


def test_the_values_for_helm_fit_the_image_and_hold_no_secret() -> None:
    values = yaml.safe_load(text("examples/kubernetes/values.yaml"))
    assert f"apache/airflow:{values['airflowVersion']}-python" in DOCKERFILE
    assert values["images"]["airflow"]["repository"] == yaml.safe_load(COMPOSE)["x-airflow"]["image"]
    secrets = {entry["envName"] for entry in values["secret"]}
    assert {"TIDEMARK_DB", "AIRFLOW_CONN_WAREHOUSE"} <= secrets
    assert secrets.isdisjoint(entry["name"] for entry in values["env"])
    [mount] = values["volumeMounts"]
    assert f"TIDEMARK_HOME={mount['mountPath']}" in DOCKERFILE
    assert [mount["name"]] == [volume["name"] for volume in values["volumes"]]
    [subject] = list(yaml.safe_load_all(text("examples/kubernetes/rights.yaml")))[1]["subjects"]
    assert subject["name"] == values["scheduler"]["serviceAccount"]["name"]


def test_the_services_have_the_versions_of_the_locks(compose: Any) -> None:
    services = compose["services"]
    assert services["kafka"]["image"] == f"apache/kafka:{jar('org.apache.kafka', 'kafka_2.13')}"
    assert services["dynamodb"]["image"] == f"amazon/dynamodb-local:{jar('com.amazonaws', 'DynamoDBLocal')}"
    assert services["postgres"]["image"] == f"postgres:{postgres.Postgres.version}"
    assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+", services["s3"]["image"]), "a version, not whatever is newest"
    assert f"FROM apache/airflow:{locked('apache-airflow')}-python3.11 AS " in DOCKERFILE
    (java,) = re.findall(r"openjdk-(\d+)-", DOCKERFILE)
    assert java in check_machine.JAVA_VERSIONS


def test_the_image_is_made_of_what_there_is() -> None:
    [ignored] = [[line for line in text(".dockerignore").splitlines() if line and not line.startswith("#")]]
    assert ignored[0] == "*"
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = {source for stage in stages_of(DOCKERFILE).values() for sources, _ in stage.copied for source in sources}
    assert all(any(source == path or source.startswith(f"{path}/") for path in sent) for source in copied)
    assert sent <= copied
    assert all((REPOSITORY / path).exists() for path in copied)
    assert set(re.findall(r"--from=(\w+)", DOCKERFILE)) <= set(stages_of(DOCKERFILE))


def test_what_the_stage_of_the_jars_copies_is_all_that_its_command_imports(tmp_path: Path) -> None:
    """With a Python that has nothing else: no packages, no variables, no checkout."""
    stage = stages_of(DOCKERFILE)["jars"]
    for sources, target in stage.copied:
        for source in sources:
            place = tmp_path / target / (Path(source).name if target.endswith("/") else "")
            if (REPOSITORY / source).is_dir():
                shutil.copytree(REPOSITORY / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / source, place)
    [command] = stage.run
    variables, code = re.fullmatch(r"((?:\w+=\S+ )*)python -c \"(.*)\"", command, re.DOTALL).groups()  # type: ignore[union-attr]
    statements = [statement.strip() for statement in code.split(";")]
    assert statements[-1].startswith("ensure("), "which asks the network"
    environment = dict(word.split("=", 1) for word in variables.split())
    python = [
        sys.executable,
        "-S",
        "-c",
        "; ".join(
            [*statements[:-1], "from sandbox.bootstrap.jars import sparks", "print(ensure.__module__, sparks()[0])"]
        ),
    ]
    done = subprocess.run(python, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert (done.stdout, done.stderr) == (f"sandbox.bootstrap.jars {sandbox_jars.sparks()[0]}\n", "")


def test_the_jars_of_the_image_are_fetched_and_found_where_the_code_says() -> None:
    assert "from sandbox.bootstrap.jars import ensure" in DOCKERFILE
    assert callable(sandbox_jars.ensure)
    [(source, target)] = re.findall(r"--from=jars \S+ (\S+) (\S+)$", DOCKERFILE, re.MULTILINE)
    assert source == "/tmp/fetched/jars/spark"
    assert sandbox_jars.folder_of(sandbox_jars.spark_set(), Path("/tmp/fetched")).parent == Path(source)
    assert f"TIDEMARK_SPARK_JARS=/opt/tidemark/{target}" in DOCKERFILE


def test_every_variable_of_ours_is_one_the_code_or_a_pipeline_reads(compose: Any) -> None:
    sources = "\n".join(
        path.read_text() for kind in ("*.py", "*.yaml") for path in (REPOSITORY / "include").rglob(kind)
    )
    read = set(re.findall(r'"(TIDEMARK_[A-Z_]+)"', sources)) | set(re.findall(r"\$\{(TIDEMARK_[A-Z_]+)", sources))
    for service in built(compose["services"]).values():
        assert {name for name in service["environment"] if name.startswith("TIDEMARK_")} <= read
    assert set(re.findall(r"\b(TIDEMARK_[A-Z_]+)=", DOCKERFILE)) <= read
    assert {"TIDEMARK_DB"} <= {
        name for service in built(compose["services"]).values() for name in service["environment"]
    }


def test_folders_in_variables_are_folders_of_the_image_or_volumes(compose: Any) -> None:
    variables = dict(re.findall(r"\b([A-Z_]+)=(/\S+)", DOCKERFILE.split("ENV ")[1]))
    made = {"/opt/tidemark/" + folder for folder in re.findall(r"^COPY .* (\S+)$", DOCKERFILE, re.MULTILINE)}
    [volumes] = distinct(service["volumes"] for service in built(compose["services"]).values())
    mounted = {volume.split(":")[1] for volume in volumes}
    for name, folder in variables.items():
        assert any(folder == volume or folder.startswith(f"{volume}/") for volume in made | mounted), name
    assert variables["TIDEMARK_HOME"] in mounted, "what must outlive a container"
    assert variables["TIDEMARK_PIPELINES"] in mounted, "pipelines are edited without a build"
    assert f"{variables['TIDEMARK_HOME']}\n" in DOCKERFILE.split("install --directory")[1], "owned by airflow"


def test_services_find_each_other_by_name_and_port(compose: Any) -> None:
    services = compose["services"]
    listening = {
        "api-server": {"8080"},
        "postgres": {"5432"},
        "kafka": set(re.findall(r":(\d+)", services["kafka"]["environment"]["KAFKA_LISTENERS"])),
        "s3": {services["s3"]["environment"]["RUSTFS_ADDRESS"].removeprefix(":")},
        "dynamodb": {services["dynamodb"]["command"][-1]},
    }
    browsers = ("localhost", "8080")  # where people open Airflow: its base_url
    wanted = {tuple(address.split(":")) for address in ends(compose)}
    assert browsers in wanted
    wanted.remove(browsers)
    assert wanted == {
        ("kafka", "9092"),
        ("postgres", "5432"),
        ("s3", "9000"),
        ("dynamodb", "8000"),
        ("api-server", "8080"),
    }
    assert all(port in listening[host] for host, port in wanted)
    for name, service in services.items():
        for published in service.get("ports", []):
            interface, _, inside = published.split(":")
            assert (interface, inside in listening[name]) == ("127.0.0.1", True), published
        checked = re.findall(r"(?:localhost:|127.0.0.1/)(\d+)", str(service.get("healthcheck", "")))
        assert set(checked) <= listening.get(name, set())
    advertised = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert set(re.findall(r":(\d+)", advertised)) <= listening["kafka"]


def test_there_is_no_secret_and_compose_stops_without_one(compose: Any) -> None:
    names = re.compile("PASSWORD(?!S_FILE)|SECRET|KEY|TIDEMARK_DB|SQL_ALCHEMY_CONN")
    secrets = {}
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if names.search(name):
                secrets[name] = re.findall(r"\$\{(TIDEMARK_\w+):\?[^}]+\}", value)
                assert secrets[name], name
    assert not re.search(r"\$\{\w+(:?-|\})", COMPOSE), "no default, no silent empty one"
    exported = set(re.findall(r"\b(TIDEMARK_\w+)=\.\.", COMPOSE))
    assert exported == {variable for variables in secrets.values() for variable in variables}
    assert secrets["AWS_SECRET_ACCESS_KEY"] == secrets["RUSTFS_SECRET_KEY"]
    assert "ENV " in DOCKERFILE
    assert not names.search(DOCKERFILE.split("ENV ")[1])


def test_every_service_is_waited_for_by_its_health_and_every_volume_is_declared(compose: Any) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert name == "prepare" or "healthcheck" in service
        for other, condition in service.get("depends_on", {}).items():
            once = "service_completed_successfully" if other == "prepare" else "service_healthy"
            assert condition["condition"] == once
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert {volume for volume in mounted if not volume.startswith(".")} == set(compose["volumes"])
    assert all((REPOSITORY / volume).is_dir() for volume in mounted if volume.startswith("."))


def test_what_makes_the_database_of_airflow_does_not_wait_for_it(compose: Any) -> None:
    """The image's entrypoint runs `airflow db check` before any command, as often as this variable says."""
    services = built(compose["services"])
    checks = {name: service["environment"].get("CONNECTION_CHECK_MAX_COUNT") for name, service in services.items()}
    assert checks == {name: "0" if name == "prepare" else None for name in services}
    assert "CREATE DATABASE airflow" in str(services["prepare"]["command"])


def test_a_service_is_healthy_when_it_takes_connections_and_asking_costs_little(compose: Any) -> None:
    services = compose["services"]
    asked = services["postgres"]["healthcheck"]["test"]
    assert asked[asked.index("--host") + 1] == "127.0.0.1", "while it is set up, it answers on its socket alone"
    kafka = services["kafka"]["healthcheck"]
    assert not any(".sh" in word for word in kafka["test"]), "Kafka's commands start a Java each time"
    port = re.findall(r"/dev/tcp/127.0.0.1/(\d+)", kafka["test"][-1])
    assert port == ["9092"]


def test_the_services_of_airflow_share_one_image_by_name(compose: Any) -> None:
    services = built(compose["services"])
    assert {"scheduler", "dag-processor", "triggerer"} < services.keys()
    assert distinct((service["build"], service.get("image")) for service in services.values()) == [
        (".", "tidemark-airflow")
    ]


def test_the_password_of_airflow_is_in_a_volume(compose: Any) -> None:
    for service in built(compose["services"]).values():
        file = service["environment"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
        assert f"home:{Path(file).parent}" in service["volumes"]


def test_the_topics_of_the_pipelines_are_created_and_named(compose: Any) -> None:
    topics = {topic for file in (REPOSITORY / "include/pipelines").glob("*.yaml") for topic in load(file).source.topics}
    services = compose["services"]
    assert topics == set(re.findall(r'NewTopic\("(\w+)"', str(services["prepare"]["command"])))
    assert services["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert services["prepare"]["depends_on"]["kafka"] == {"condition": "service_healthy"}
    head = COMPOSE.partition("\nname:")[0]
    assert all(f"the topic `{topic}`" in head for topic in topics)
    assert "localhost:9094" in head


def test_the_python_of_prepare_is_python(compose: Any) -> None:
    [code] = re.findall(r"<<'PYTHON'\n(.*)\nPYTHON\n", compose["services"]["prepare"]["command"][-1], re.DOTALL)
    compile(code, "prepare", "exec")
    assert "$" not in code, "compose would replace it"


def test_the_doctor_that_is_named_is_the_one_there_is() -> None:
    assert "python -m tidemark.cli doctor --airflow" in COMPOSE
    assert "--airflow" in {option for parameter in main.NAMED["doctor"].load().params for option in parameter.opts}


@pytest.mark.parametrize("name", ["Dockerfile", "docker-compose.yaml"])
def test_it_is_said_which_images_were_stand_ins_where_it_was_run(name: str) -> None:
    head = text(name).partition("\n\n")[0]
    assert "`make test-compose`" in head
    assert "stand-in" in head
    assert "not been" in head, "what no test has tried"


def test_every_image_of_others_has_a_stand_in(compose: Any) -> None:
    named = {image.partition(":")[0] for image in images_named()}
    assert named == set(STAGES)
    stages = stages_of(text("tests/compose/stand_ins/Dockerfile"))
    assert set(STAGES.values()) <= set(stages)
