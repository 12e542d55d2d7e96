"""Who may import what: the whole syntax tree is walked, so an import inside a function counts too."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.providers.conftest import SHARED_BY_PROVIDERS
from tidemark.kinds import DECODERS, OUR_PROVIDERS, PROVIDERS, SINKS, SOURCES, TRANSFORMS

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "include" / "tidemark"
MODULES = sorted(PACKAGE.rglob("*.py"))
DOORWAYS = [path for folder in ("dags", "plugins", "spark_jobs") for path in sorted((CHECKOUT / folder).rglob("*.py"))]
OURS = [*MODULES, *DOORWAYS, *sorted((CHECKOUT / "sandbox").rglob("*.py"))]

# Every room of the package, and the rooms it may import from: only such as stand above it in this table.
# Of the modules of the package itself, "words" are those that every room may use, "logic" those that reckon with the
# nouns of the model, and "api" is what `import tidemark` offers.
ROOMS: Mapping[str, set[str]] = {
    "words": set(),
    "connections": {"words"},
    "model": {"words"},
    "times": {"words", "model"},
    "logic": {"words", "model"},
    "storage": {"words", "connections"},
    "config": {"words", "model", "storage"},
    "kafka": {"words", "connections", "model", "config"},
    "database": {"words", "model", "times", "logic"},
    "decoders": {"words", "connections", "model", "times", "config"},
    "transforms": {"words", "model", "config", "decoders"},
    "sources": {"words", "connections", "model", "logic", "config", "kafka"},
    "sinks": {"words", "connections", "model", "times", "storage", "config", "database", "decoders"},
    "processing": {"words", "model", "times", "decoders", "transforms", "sinks"},
    "pipeline": {"words", "connections", "model", "times", "config", "decoders", "transforms", "sources", "sinks"},
    "lifecycle": {"words", "connections", "model", "times", "logic", "database", "sources", "sinks", "pipeline"},
    "operations": {"words", "connections", "model", "times", "logic", "database", "sources", "sinks", "processing",
                   "pipeline", "lifecycle"},
    "doctor": {"words", "connections", "model", "database", "sources", "sinks", "processing", "pipeline", "lifecycle"},
    "spark": {"words", "connections", "model", "storage", "sources", "sinks", "transforms", "processing", "pipeline",
              "lifecycle", "doctor"},
    "views": {"words", "connections", "model", "database", "sinks", "pipeline", "operations"},
    "api": {"words", "connections", "model", "times", "database", "sinks", "pipeline", "lifecycle", "operations",
            "spark", "views"},
    "airflow": {"words", "connections", "model", "times", "database", "sinks", "pipeline", "lifecycle", "operations",
                "doctor", "spark", "views"},
    "cli": {"words", "connections", "model", "times", "config", "database", "sources", "sinks", "pipeline", "lifecycle",
            "operations", "doctor", "spark", "views", "api", "airflow"},
}  # fmt: skip
API = {"__init__", "api"}
LOGIC = {"planner"}
OF_THE_MODEL = {"errors", "paths"}  # all that the model imports beside itself
# Every seam, and the packages of its kinds.
SEAMS = {"sources": SOURCES, "decoders": DECODERS, "transforms": TRANSFORMS, "sinks": SINKS}
# The folders of a seam that are no kinds, and the others of them that each may import from.
SHARED: Mapping[str, set[str]] = {
    "decoders/by_topic": set(),
    "decoders/envelopes": {"decoders/json_shapes"},
    "decoders/json_shapes": set(),
    "sinks/encoding": set(),
    "sinks/formats": {"sinks/encoding", "sinks/staging"},
    "sinks/object_store": {"sinks/formats"},
    "sinks/staging": set(),
}
# The rooms of the core that a provider may import from: those that kinds are made of.
FOR_PROVIDERS = {"words", "connections", "model", "times", "storage", "config", "kafka", "database", "decoders",
                 "transforms", "sources", "sinks"}  # fmt: skip
KIND_MODULES = {"decoder", "settings", "sink", "source", "spark", "transform", "writer"}  # their names are fixed

DRIVERS = {"airflow", "boto3", "botocore", "confluent_kafka", "psycopg", "pyspark"}
PURE = ("planner", "paths", "errors", "processing/processor")

# Below include/tidemark, unless the path begins with another folder of the checkout.
MAY_IMPORT = {
    "airflow": ("airflow/",),
    "fastapi": ("airflow/page/",),
    "jinja2": ("airflow/page/",),
    "pyspark": ("spark/", "sources/spark.py", "sources/kafka/spark.py"),
    "confluent_kafka": (
        "kafka/cluster.py",
        "kafka/refusals.py",
        "providers/topic/cluster.py",
        "providers/topic/transaction.py",
    ),
    "boto3": ("storage/s3/store.py", "storage/s3/client.py"),
    "botocore": (
        "storage/s3/store.py",
        "storage/s3/client.py",
        "storage/s3/storage_options.py",
        "providers/dynamodb/client.py",
        "providers/glue/registry.py",
        "providers/msk/",
    ),
    "aws_msk_iam_sasl_signer": ("providers/msk/",),
    "azure": ("providers/azure/",),
    "psycopg": ("database/", "providers/postgres/"),
    "pyiceberg": ("providers/iceberg/",),
    "deltalake": ("providers/delta/",),
    "duckdb": ("transforms/", "providers/lake_tables/workspace.py"),
    "fastavro": (
        "sinks/formats/avro.py",
        "providers/topic/avro.py",
    ),
    "google": ("providers/protobuf/", "providers/topic/protobuf.py"),
    "ptars": ("providers/protobuf/fast.py",),
    "cryptography": ("connections/certificates.py",),
    "rich": ("cli/",),
}


@dataclass
class Module:
    """What the tests want to know of a file; its tree of 1,000 nodes and more is walked once and not kept."""

    imported: list[str] = field(default_factory=list)  # full names of modules, wherever they are imported
    names: list[str] = field(default_factory=list)  # that it gives to anything
    classes: list[str] = field(default_factory=list)
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=list)  # without their bodies


@cache
def read(path: Path) -> Module:
    module = Module()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            module.imported += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            module.imported += [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            module.names.append(node.id)
        elif isinstance(node, ast.arg):
            module.names.append(node.arg)
        elif isinstance(node, ast.ClassDef):
            module.names.append(node.name.lower())
            module.classes.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            module.names.append(node.name.lower())
            module.functions.append(node)
    for function in module.functions:
        function.body = []
    return module


def imported(path: Path) -> list[str]:
    return read(path).imported


@cache
def third_parties(path: Path) -> set[str]:
    """The distributions a file imports, by their first name, and "tidemark"."""
    return {name.partition(".")[0] for name in imported(path)} - set(sys.stdlib_module_names)


@cache
def imported_modules(path: Path) -> frozenset[Path]:
    """The modules of ours that a file names in its imports, without the packages they lie in."""
    modules = set()
    for name in imported(path):
        words = name.split(".")
        if words[0] == "tidemark":
            places = [PACKAGE.joinpath(*words[1:end]) for end in (len(words), len(words) - 1)]
            modules |= set([file for place in places for file in files(place)][:1])
    return frozenset(modules)


@cache
def closure(path: Path) -> set[Path]:
    """A module of ours and every module of ours that importing it runs, packages' ``__init__`` too."""
    reached: set[Path] = set()
    waiting = [path]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        for name in imported(module):
            words = name.split(".")
            if words[0] == "tidemark":
                waiting += [file for end in range(2, len(words) + 1) for file in files(PACKAGE.joinpath(*words[1:end]))]
    return reached


def files(place: Path) -> list[Path]:
    return [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]


@cache
def short(path: Path) -> str:
    return str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else CHECKOUT))


@cache
def provider_of(path: Path) -> str | None:
    """``iceberg`` for a module of that provider."""
    parts = path.relative_to(PACKAGE).parts
    return parts[1] if len(parts) > 2 and parts[0] == "providers" else None


CORE_MODULES = [path for path in MODULES if provider_of(path) is None]


@cache
def room_of(path: Path) -> str:
    place = path.relative_to(PACKAGE)
    if place.parts == ("providers", "__init__.py"):
        return "words"
    if len(place.parts) > 1:
        return place.parts[0] if provider_of(path) is None else f"providers/{provider_of(path)}"
    if place.stem in LOGIC:
        return "logic"
    return "api" if place.stem in API else "words"


def seam_folder_of(path: Path) -> str | None:
    """``sinks/files`` for a module in a folder of a seam."""
    parts = path.relative_to(PACKAGE).parts
    return "/".join(parts[:2]) if len(parts) > 2 and parts[0] in SEAMS else None


def kind_of(path: Path) -> str | None:
    """The same for a module in the folder of one kind of a seam."""
    folder = seam_folder_of(path)
    return None if folder in SHARED else folder


def test_every_room_stands_in_the_table() -> None:
    assert {room_of(path) for path in CORE_MODULES} == set(ROOMS)


def test_a_room_may_import_only_from_rooms_above_it_so_there_is_no_cycle() -> None:
    names = list(ROOMS)
    assert {room: above - set(names[:at]) for at, (room, above) in enumerate(ROOMS.items())} == {
        room: set() for room in names
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_no_other_room_than_the_table_says(room: str) -> None:
    wrong = [
        f"{short(path)} imports {short(other)}"
        for path in CORE_MODULES
        if room_of(path) == room
        for other in imported_modules(path)
        if room_of(other) not in {room, *ROOMS[room]}
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_table_allows_nothing_that_no_module_needs(room: str) -> None:
    used = {room_of(other) for path in MODULES if room_of(path) == room for other in imported_modules(path)}
    assert ROOMS[room] - used == set()


def test_the_core_imports_no_provider() -> None:
    wrong = [f"{short(path)} imports {short(other)}" for path in CORE_MODULES for other in imported_modules(path)
             if provider_of(other)]  # fmt: skip
    assert wrong == []


def test_every_folder_of_providers_is_a_provider_or_shared_by_some() -> None:
    folders = {provider_of(path) for path in MODULES} - {None}
    assert folders == {*OUR_PROVIDERS, *SHARED_BY_PROVIDERS}
    assert {path.parent.name for path in MODULES if path.name == "provider.py"} == set(OUR_PROVIDERS)


@pytest.mark.parametrize("name", [*OUR_PROVIDERS, *SHARED_BY_PROVIDERS])
def test_a_provider_imports_the_rooms_that_kinds_are_made_of_and_the_providers_that_it_needs(name: str) -> None:
    imports = {room_of(other) for path in MODULES if provider_of(path) == name for other in imported_modules(path)}
    needs = set(PROVIDERS.by_name[name].needs) if name in PROVIDERS.by_name else SHARED_BY_PROVIDERS[name]
    providers = {room for room in imports if room.startswith("providers/")} - {f"providers/{name}"}
    assert providers == {f"providers/{other}" for other in needs}
    assert imports - providers - {f"providers/{name}"} <= FOR_PROVIDERS


def test_no_module_imports_itself_by_way_of_others() -> None:
    """A late import would hide it from Python, not from here."""
    tuple(TopologicalSorter({path: imported_modules(path) - {path} for path in MODULES}).static_order())


def room_in(folder: Path, module: Path) -> str:
    """``Provider`` alone stands in ``providers/__init__.py``, apart from the providers, which import the core."""
    parts = module.relative_to(folder).parts
    return "/".join(parts) if parts == ("providers", "__init__.py") else parts[0]


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=short)
def test_the_modules_and_folders_within_a_folder_import_each_other_in_no_circle(folder: Path) -> None:
    """A folder counts as one, with all that is in it."""
    imports: dict[str, set[str]] = {}
    within = {path for path in MODULES if folder in path.parents}
    for path in within:
        for other in imported_modules(path):
            if other in within:
                importer, target = (room_in(folder, module) for module in (path, other))
                imports.setdefault(importer, set()).add(target)
    tuple(TopologicalSorter({name: others - {name} for name, others in imports.items()}).static_order())


def test_nobody_in_the_core_imports_from_the_folder_of_a_kind_but_that_kind() -> None:
    wrong = [
        f"{short(path)} imports {short(other)}"
        for path in CORE_MODULES
        for other in imported_modules(path)
        if kind_of(other) not in (None, kind_of(path))
    ]
    assert wrong == []


@pytest.mark.parametrize("seam", SEAMS)
def test_every_folder_of_a_seam_is_a_kind_of_its_registry_or_stands_in_the_table_of_shared_ones(seam: str) -> None:
    kinds = {
        "/".join(package.split(".")[1:3])
        for package in SEAMS[seam].values()
        if not package.startswith("tidemark.providers.")
    }
    shared = {folder for folder in SHARED if folder.startswith(f"{seam}/")}
    assert kinds & shared == set()
    assert {folder for path in MODULES if (folder := seam_folder_of(path)) and path.is_relative_to(PACKAGE / seam)} == (
        kinds | shared
    )


def test_whoever_adds_a_kind_is_told_of_every_shared_folder() -> None:
    page = (PACKAGE.parent.parent / "docs" / "extending.md").read_text()
    assert [folder for folder in SHARED if f"| `{folder}/` |" not in page] == []


@pytest.mark.parametrize("folder", SHARED)
def test_a_shared_folder_of_a_seam_has_no_module_that_is_looked_up_in_kinds(folder: str) -> None:
    assert {path.stem for path in (PACKAGE / folder).rglob("*.py")} & KIND_MODULES == set()


@pytest.mark.parametrize("folder", SHARED)
def test_a_shared_folder_of_a_seam_imports_from_no_other_than_the_table_says(folder: str) -> None:
    used = {
        other_folder
        for path in (PACKAGE / folder).rglob("*.py")
        for other in imported_modules(path)
        if (other_folder := seam_folder_of(other)) not in (None, folder)
    }
    assert used == SHARED[folder]


def test_what_a_command_prints_goes_through_the_module_that_lets_no_escape_sequence_through() -> None:
    past_it = re.compile(r"click\.s?echo|click\.style|(?<![.\w])print\(|rich import|rich\.(table|console)")
    wrong = [path.name for path in (PACKAGE / "cli").glob("*.py") if past_it.search(path.read_text())]
    assert wrong == ["terminal.py"]


@pytest.mark.parametrize("driver", MAY_IMPORT)
def test_a_driver_is_imported_only_where_the_design_says(driver: str) -> None:
    wrong = [
        short(path)
        for path in [*MODULES, *DOORWAYS]
        if driver in third_parties(path) and not short(path).startswith(MAY_IMPORT[driver])
    ]
    assert wrong == []


def test_the_model_imports_only_itself_and_the_helpers_named() -> None:
    imports = {other for path in MODULES if room_of(path) == "model" for other in imported_modules(path)}
    assert {short(other) for other in imports if room_of(other) != "model"} == {f"{name}.py" for name in OF_THE_MODEL}


@pytest.mark.parametrize("name", [*PURE, *(f"model/{path.stem}" for path in MODULES if room_of(path) == "model")])
def test_importing_a_pure_module_imports_no_driver(name: str) -> None:
    wrong = {short(path): third_parties(path) & DRIVERS for path in closure(PACKAGE / f"{name}.py")}
    assert {path: drivers for path, drivers in wrong.items() if drivers} == {}


# What runs on executors, and what it needs beside the standard library, pyarrow and Tidemark.
EXECUTED = {
    "processing/processor.py": {"duckdb"},  # only with expectations
    "providers/avro/decoder.py": {"pyruhvro"},
    "providers/debezium/envelope.py": set(),
    "providers/debezium/json.py": set(),
    "decoders/json/decoder.py": set(),
    "providers/registry/json_schema/decoder.py": set(),
    "providers/protobuf/decoder.py": {"google", "ptars"},
    "decoders/raw/decoder.py": set(),
    "decoders/string/decoder.py": set(),
    "transforms/filter/transform.py": {"duckdb"},
    "transforms/select/transform.py": {"duckdb"},
    "transforms/sql/transform.py": {"duckdb"},
    "transforms/python/transform.py": {"duckdb"},  # only for columns that it changes
    "transforms/spark/transform.py": {"duckdb"},  # the same
    "transforms/dedupe/transform.py": {"duckdb"},
    "transforms/explode/transform.py": set(),
    "providers/rabbitmq/spark.py": set(),
    "providers/delta/writer.py": set(),
    "sinks/files/writer.py": set(),
    "sinks/formats/parquet.py": set(),
    "sinks/formats/json_lines.py": set(),
    "sinks/formats/avro.py": {"fastavro"},
    "providers/iceberg/writer.py": {"pyiceberg"},
    "providers/postgres/long_keys.py": set(),
    "providers/postgres/writer.py": {"psycopg"},
    "providers/tables/required.py": set(),
    "providers/topic/writer.py": set(),
    "providers/topic/long_messages.py": set(),
    "providers/topic/avro.py": {"fastavro", "pyruhvro"},
    "providers/topic/protobuf.py": {"google"},
    "providers/postgres/totals/writer.py": {"psycopg"},
    "providers/azure/store.py": {"azure"},
    "providers/glue/registry.py": {"boto3", "botocore"},
    "storage/s3/store.py": {"boto3", "botocore"},
}


@pytest.mark.parametrize("name", EXECUTED)
def test_executors_need_only_what_their_decoder_and_sinks_name(name: str) -> None:
    foreign = {
        short(path): third_parties(path) - {"tidemark", "pyarrow"} - EXECUTED[name] for path in closure(PACKAGE / name)
    }
    assert len(foreign) > 1
    assert {path: names for path, names in foreign.items() if names} == {}
    assert EXECUTED[name] <= set().union(*(third_parties(path) for path in closure(PACKAGE / name)))


def test_every_decoder_and_writer_of_the_registries_is_among_what_executors_run() -> None:
    packages = [package for kinds in (DECODERS, TRANSFORMS, SINKS) for package in kinds.values()]
    folders = {PACKAGE.joinpath(*package.split(".")[1:]) for package in packages}
    run = {
        short(path) for path in MODULES if path.stem in ("decoder", "transform", "writer") and path.parent in folders
    }
    assert run <= set(EXECUTED)


def test_the_closure_follows_imports_of_packages_and_of_names_in_modules() -> None:
    attempt = closure(PACKAGE / "lifecycle" / "attempt.py")
    assert PACKAGE / "database" / "__init__.py" in attempt
    assert PACKAGE / "sources" / "base.py" in attempt
    assert "confluent_kafka" in third_parties(PACKAGE / "kafka" / "cluster.py")


# The folders that are Kafka's own, and where else its name may stand: the file, what the line says, and why.
OF_KAFKA = ("kafka/", "sources/kafka/", "providers/msk/", "providers/topic/")
SAYS_KAFKA = (
    ("__init__.py", "copies Kafka topics", "what the product does today"),
    ("cli/main.py", "Copies Kafka topics", "what the product does today"),
    ("cli/main.py", "Spark's Kafka connector", "help for a person, who looks for the jars by this name"),
    ("connections/lookup.py", '"conn_type": "kafka"', "an example of a connection, by Airflow's word for its type"),
    ("providers/debezium/units.py", "org.apache.kafka.connect.data.", "names of types in Debezium's records"),
    (
        "providers/debezium/source_types.py",
        "org.apache.kafka.connect.data.",
        "the name of a type in Debezium's records",
    ),
    ("kinds.py", '"kafka": "tidemark.sources.kafka"', "the kinds of the core"),
)


def test_what_is_for_every_source_says_nothing_of_kafka() -> None:
    lines = [
        (short(path), line.strip())
        for path in MODULES
        if not short(path).startswith(OF_KAFKA)
        for line in path.read_text().splitlines()
        if "kafka" in line.lower()
    ]
    allowed = {(file, words) for file, words, _ in SAYS_KAFKA}
    assert [line for line in lines if not any(line[0] == file and words in line[1] for file, words in allowed)] == []
    assert {
        (file, words) for file, words in allowed if not any(file == line[0] and words in line[1] for line in lines)
    } == set(), "no line says this any more"


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "X" * 3])
def test_nothing_is_left_for_later_in_a_comment(word: str) -> None:
    everything = [*OURS, *sorted((CHECKOUT / "tests").rglob("*.py"))]
    assert [short(path) for path in everything if word in path.read_text()] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty_words = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert [short(path) for path in OURS if empty_words & set(path.stem.split("_"))] == []


def test_no_name_stands_in_for_a_noun() -> None:
    empty_words = {"one", "ones", "found", "said"}
    others = [path for folder in ("bench", "tests") for path in sorted((CHECKOUT / folder).rglob("*.py"))]
    named = [(path, name) for path in [*OURS, *others] for name in read(path).names]
    assert [f"{short(path)}: {name}" for path, name in named if name.strip("_") in empty_words] == []


def test_a_question_what_is_wrong_is_called_problem_with_and_answers_none_when_nothing_is() -> None:
    functions = [(path, node) for path in OURS for node in read(path).functions]
    assert [f"{short(path)}: {node.name}" for path, node in functions if re.match(r"_?why(_|$)", node.name)] == []
    assert [
        f"{short(path)}: {node.name}"
        for path, node in functions
        if re.match(r"_?problem_with", node.name)
        and (node.returns is None or ast.unparse(node.returns) != "str | None")
    ] == []


# Names of classes that several modules define, each for its own kind or format: the meaning is the same.
NAMED_ALIKE = {
    "Writer": "of each kind of sink",
    "Settings": "of each kind",
    "Compression": "of files and of messages",
    "Field": "the shape of a value, in JSON and in Protobuf",
    "ListOf": "the same",
    "MapOf": "the same",
    "Scalar": "the same",
    "Shape": "the same",
}


def test_a_class_has_a_name_of_its_own_unless_each_kind_has_such_a_class() -> None:
    names = Counter(name for path in MODULES for name in read(path).classes if not name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == set(NAMED_ALIKE)


@pytest.mark.parametrize("word", ["chain", "manifest", "pipeline", "receipt"])
def test_an_argument_named_as_a_thing_of_ours_is_that_thing_and_no_id_or_name_of_it(word: str) -> None:
    """An id is ``manifest_id``, a name ``pipeline_name``."""
    assert [
        f"{short(path)}: {node.name}"
        for path in MODULES
        for node in read(path).functions
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if argument.arg == word and argument.annotation is not None
        if {"int", "str"} & set(ast.unparse(argument.annotation).split(" | "))
    ] == []


def test_modules_of_tests_have_names_of_their_own() -> None:
    names = Counter(file.name for file in (CHECKOUT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == [], "pytest imports them by these names"
