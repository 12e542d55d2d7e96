"""The documents say what is so: files, commands, messages, tests, versions and links that they name exist."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from sandbox.bootstrap.jars import locked as locked_jars
from sandbox.bootstrap.jars import sparks
from tests.road.page import chapters
from tests.ui.pictures import PICTURES
from tidemark import __version__
from tidemark.cli import main
from tidemark.failpoints import FAILPOINTS
from tidemark.kafka.security import SECRETS
from tidemark.kinds import SINKS
from tidemark.pipeline.loader import load
from tidemark.providers.registry.client import _SECRET as REGISTRY_SECRETS

REPOSITORY = Path(__file__).parents[2]
DOCS = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "tests").glob("*/*.md")],
    key=lambda path: path.relative_to(REPOSITORY),
)
ADRS = [path for path in DOCS if path.parent.name == "adr"]
ALLOWED_HOSTS = {
    "ant.apache.org",
    "json-schema.org",
    "kubernetes.default.svc",
    "openlineage.io",
    "yaml.org",
    "example.com",
    "example.org",
}
GROUPS = rf"(?:{'|'.join(main.GROUPS)}) [a-z][a-z-]*"  # with one of its commands
each_document = pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(REPOSITORY)))


def text(name: str) -> str:
    return (REPOSITORY / name).read_text()


def code(document: str) -> list[str]:
    """What stands in backticks: the lines of blocks, and spans."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", document, flags=re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", prose)


@each_document
def test_a_line_of_prose_is_short_enough_to_compare(path: Path) -> None:
    """Code, links and tables are as long as they are."""
    prose = re.sub(r"^( *)```.*?^\1```|^\|.*?$|^> .*?$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"`[^`]*`|\]\([^)]*\)", "", line) for line in prose.splitlines()]
    assert [line for line in lines if len(line) > 120] == []


def anchors(document: str) -> set[str]:
    """The anchors of a page's headings, as renderers make them."""
    headings = re.findall(r"^#+ (.+)$", document, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def locked(package: str) -> str:
    """The version of a Python package in the lock."""
    match = re.search(rf"^{re.escape(package)}==(\S+)", text("requirements/tidemark.lock"), re.MULTILINE)
    assert match, package
    return match[1]


def jar(group: str, name: str) -> str:
    """The version of a jar in the lock."""
    [revision] = {jar.revision for jar in locked_jars() if (jar.organisation, jar.name) == (group, name)}
    return revision


def test_the_core_is_read_in_a_morning() -> None:
    assert 20 <= len(chapters(text("docs/the-core.md"))) <= 30
    prose = re.sub(r"^\|.*$", "", text("docs/the-core.md"), flags=re.MULTILINE)
    assert len(prose.split()) <= 2500  # eleven minutes


@each_document
def test_every_make_target_that_is_named_exists(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE))
    named = {name for line in code(path.read_text()) for name in re.findall(r"\bmake ([a-z]+)", line)}
    assert named <= targets


@each_document
def test_every_command_and_option_that_is_named_exists(path: Path) -> None:
    for line in code(path.read_text()):
        for name, words in re.findall(rf"(?<![-\w/])tidemark ({GROUPS}|[a-z][a-z-]*)\b([^;#|]*)", line):
            if name in main.GROUPS:  # all of its commands are meant
                assert words.strip() in ("", "--help"), line
                continue
            assert name in main.NAMED, line
            params = main.NAMED[name].load().params
            options = {option for parameter in params for option in (*parameter.opts, *parameter.secondary_opts)}
            options.add("--help")
            assert set(re.findall(r"(?<!\S)--[a-z-]+", words)) <= options, line


def test_the_page_of_commands_has_the_sections_of_the_help_and_names_each() -> None:
    sections = re.findall(r"^## (.*)\n\n((?:\|.*\n)+)", text("docs/commands.md"), re.MULTILINE)
    rows = {title: re.findall(r"^\| `tidemark ([\w -]+)` \|", table, re.MULTILINE) for title, table in sections}
    assert rows == {title: list(commands) for title, commands in main.COMMANDS.items()}
    assert all(any("--json" in option.opts for option in named.load().params) for named in main.NAMED.values())


def test_the_pipeline_of_the_readme_loads_and_one_of_the_configuration_has_every_kind_of_sink(
    write: Callable[..., Path],
) -> None:
    [pipeline] = re.findall(r"```yaml\n(.*?)```", text("README.md"), re.DOTALL)
    assert load(write(pipeline), {}).name == "orders"
    of_all = text("docs/configuration.md").split("A pipeline with every kind of sink:\n\n```yaml\n")[1].split("```")[0]
    assert sorted(entry.kind for entry in load(write(of_all), {}).sinks) == sorted(SINKS)


def test_the_readme_is_read_in_four_minutes_and_leads_to_few_pages() -> None:
    prose = re.sub(r"^```.*?^```", "", text("README.md"), flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) < 900  # 225 a minute
    assert len(text("README.md").split()) <= 1200
    assert len(re.findall(r"^- .*\[", text("README.md").split("## Read on")[1], re.MULTILINE)) <= 10


@each_document
def test_every_test_that_is_named_exists(path: Path) -> None:
    for file, name in re.findall(r"\b(tests/[\w/]+\.py)(?:::(\w+))?", path.read_text()):
        assert re.search(rf"^def {name}\(" if name else "", text(file), re.MULTILINE), f"{file}::{name}"


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs" / "adr").glob("*.md")), ids=lambda path: path.name)
def test_every_file_of_the_package_that_a_decision_names_exists(path: Path) -> None:
    folders = [folder for folder in REPOSITORY.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    files = [*REPOSITORY.glob("*.*"), *(file for folder in folders for file in folder.rglob("*.*"))]
    here = [f"/{file.as_posix()}" for file in files]
    named = re.findall(r"`((?:[\w-]+/)*\w+\.(?:py|sql|html|toml|css|js))`", path.read_text())
    assert [name for name in named if not any(each.endswith(f"/{name}") for each in here)] == []


@each_document
def test_every_relative_link_resolves(path: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)]+)\)", prose):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_the_documents_show_every_picture_that_the_tests_take_and_no_other() -> None:
    shown = {name for path in DOCS for name in re.findall(r"images/([\w-]+)\.png", path.read_text())}
    files = {path.stem: path.stat().st_size for path in (REPOSITORY / "docs" / "images").iterdir()}
    assert shown == set(files) == set(PICTURES)
    assert max(files.values()) < 150_000, "a page with several loads at once"


def test_every_failpoint_stands_in_the_tables_of_the_guarantees_in_order() -> None:
    tables = re.split(r"^###? ", text("docs/guarantees.md"), flags=re.MULTILINE)
    rows = {part.splitlines()[0]: re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", part, re.MULTILINE) for part in tables}
    assert rows["Killed while a manifest is done for the first time"] == list(FAILPOINTS)
    assert rows["A table"] == list(FAILPOINTS)
    assert rows["Killed while a done manifest is replayed"] == [
        failpoint for failpoint in FAILPOINTS if not failpoint.startswith("plan.")
    ]
    story = " ".join(text("docs/the-core.md").split("## Kill it")[0].split())
    places = [story.index(f"⚡ `{name}`") for name in FAILPOINTS]
    assert places == sorted(places)


def test_every_row_of_the_failure_matrix_that_concerns_us_is_there() -> None:
    matrix = text("tests/faults/README.md")
    cells = re.findall(r"^\| ((?:Iceberg )?[PRFGKNMTQ]\d+(?:, [^|]+)?) \|", matrix, re.MULTILINE)
    rows = [row for cell in cells for row in cell.split(", ")]
    counts = {"P": 13, "R": 21, "F": 15, "G": 9, "K": 11, "N": 6, "Iceberg T": 5, "M": 7, "T": 12, "Q": 7}
    assert rows == [f"{kind}{number}" for kind, count in counts.items() for number in range(1, count + 1)]


def test_the_five_steps_of_publish_are_those_of_the_code() -> None:
    def steps(document: str) -> list[tuple[str, list[str]]]:
        lines = re.findall(r"^(\d)\. (`.*)$", document, re.MULTILINE)
        return [(number, re.findall(r"`(publish\.\w+)`", line)) for number, line in lines]

    guarantees = text("docs/guarantees.md").split("in five steps")[1].split("\n## ")[0]
    of_code = steps(text("include/tidemark/lifecycle/publish.py").split('"""')[1])
    assert steps(guarantees) == of_code
    assert [number for number, _ in of_code] == ["1", "2", "3", "4", "5"]


def test_every_message_that_operations_quotes_is_said_by_the_code() -> None:
    sources = [*(REPOSITORY / "include").rglob("*.py"), *(REPOSITORY / "sandbox").rglob("*.py")]
    code = "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in sources)
    symptoms = re.findall(r"^\| ([^|]+) \|", text("docs/operations.md"), re.MULTILINE)
    quoted = [message for symptom in symptoms for message in re.findall(r'(?<!`\{)"([^"]+)"(?!:)', symptom)]
    assert len(quoted) > 20
    for message in quoted:
        for piece in message.split(".."):
            assert piece.strip() in code, message


def test_every_variable_that_the_code_reads_is_explained() -> None:
    sources = "\n".join(path.read_text() for path in (REPOSITORY / "include").rglob("*.py"))
    read = set(re.findall(r'"(TIDEMARK_[A-Z_]+)"', sources))
    explained = set(re.findall(r"^\| `(TIDEMARK_[A-Z_]+)` \|", text("docs/operations.md"), re.MULTILINE))
    assert explained == read


@pytest.mark.parametrize("path", ADRS, ids=lambda path: path.stem)
def test_a_decision_is_short_and_has_its_four_parts(path: Path) -> None:
    document = path.read_text()
    assert len(document.split()) <= 1000
    lines = document.splitlines()
    assert lines[0].startswith(f"# {path.stem[:4]} ")
    parts = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert parts == ["Context", "Decision", "Consequences", "What would change our mind"]


def test_decisions_have_numbers_of_their_own_and_a_history() -> None:
    """One for each subject: what another decision takes in gives up its number."""
    assert len({path.stem[:4] for path in ADRS}) == len(ADRS) <= 25
    assert [path.name for path in ADRS if "\n\n**History.** " not in path.read_text().split("## Decision")[0]] == []


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    heading = re.search(r"^## \[([^]]+)\]", text("CHANGELOG.md"), re.MULTILINE)
    assert heading is not None
    assert heading[1] == __version__ == tomllib.loads(text("pyproject.toml"))["project"]["version"]


def test_spark_has_one_version_everywhere() -> None:
    assert locked("pyspark") == locked("pyspark-client")
    jars = [jar for jar in locked_jars() if jar.set.startswith("spark-")]
    assert {jar.revision for jar in jars if jar.organisation == "org.apache.spark"} == set(sparks())
    assert all(jar.set == f"spark-{jar.revision}" for jar in jars if jar.organisation == "org.apache.spark")


def test_the_package_takes_each_pyspark_that_is_tested() -> None:
    assert set(re.findall(r'"pyspark(?:-client|\[\w+\])?([^"\w-][^"]*)"', text("pyproject.toml"))) == {">=4.0,<4.3"}
    own = locked("pyspark")
    assert own in sparks()
    for version in sparks():
        file = "tidemark" if version == own else f"spark-{version}"
        pinned = re.findall(r"^(pyspark\S*)==(\S+)", text(f"requirements/{file}.lock"), re.MULTILINE)
        assert pinned == [(each, version) for each in ("pyspark", "pyspark-client")]
        assert version in text("docs/operations.md").split("## Another version of Spark")[1].split("\n## ")[0]


def test_the_license_is_apaches_and_the_package_says_so() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0, January 2004" in text("LICENSE")
    assert "END OF TERMS AND CONDITIONS" in text("LICENSE")


def tracked() -> list[Path]:
    """The text files of the repository, also those that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=REPOSITORY, text=True, capture_output=True, check=True).stdout.splitlines()
    return [REPOSITORY / name for name in names if (REPOSITORY / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_some_machine() -> None:
    host = re.compile(r"(?<![\w.-])(?:[a-z0-9-]+\.)+(?:org|com|net)(?![\w.-])|https?://([a-z0-9-]+(?:\.[a-z0-9-]+)+)")
    somewhere = re.compile(r"(?<![\w.}])/(?:work|root|home|Users)/\w")
    for path in tracked():
        content = path.read_bytes().decode(errors="replace")
        of_others = path.name == "LICENSE" or path.parent.name == "uplot"  # their words are not ours
        for match in host.finditer("" if of_others else content):
            name = match[1] or match[0]
            of_a_cloud = name.endswith((".core.windows.net", ".amazonaws.com"))  # of an account of the reader's
            assert of_a_cloud or name in ALLOWED_HOSTS or re.fullmatch(r"[\d.]+", name), f"{path}: {name}"
        assert not somewhere.search(content), path


def test_every_command_and_every_option_has_a_help_text() -> None:
    for name, named in main.NAMED.items():
        command = named.load()
        assert command.help, name
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{name} {parameter.name}"


def test_no_example_has_a_secret_in_the_extra_of_a_connection() -> None:
    """There Airflow shows it in clear, in its audit log too: docs/configuration.md says so."""
    words = (*SECRETS, *REGISTRY_SECRETS, "token", "aws_session_token", "password", "secret")
    for path in DOCS:
        for extra in re.findall(r'"extra": (\{[^{}]*\})', path.read_text()):
            assert [word for word in words if f'"{word}":' in extra] == [], f"{path.name}: {extra}"


def test_the_page_of_backfills_has_every_key_of_a_trigger() -> None:
    tree = ast.parse(text("include/tidemark/airflow/run_conf.py"))
    [params] = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PARAMS"
    ]
    assert isinstance(params, ast.Dict)
    keys = [key.value for key in params.keys if isinstance(key, ast.Constant)]
    assert sorted(re.findall(r"^\| `(\w+)` \|", text("docs/backfills.md"), re.MULTILINE)) == sorted(keys)
