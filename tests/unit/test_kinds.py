"""Kinds of the core, of our providers and of installed packages; a package that is broken stops nobody else."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipeline_text import changed, problems
from tidemark import kinds
from tidemark.config import base
from tidemark.doctor import machine
from tidemark.errors import ConfigurationError
from tidemark.kinds import CORE, KINDS, OUR_PROVIDERS, PROVIDERS, SINKS, Kinds, Providers
from tidemark.model.findings import Severity
from tidemark.pipeline.loader import load
from tidemark.providers import SEAMS, Provider

TOY = ("  - files:\n      root: lake\n", "  - toy:\n      folder: lake\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0].startswith("brought"):
            del sys.modules[name]


def install(site: Path, name: str, provider: str, **modules: str) -> EntryPoint:
    """Put a package there that names a provider, with further modules; give its entry point."""
    package, metadata = site / name, site / f"{name}-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    metadata.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    metadata.joinpath("entry_points.txt").write_text(f"[tidemark.providers]\nx = {name}.provider:PROVIDER\n")
    for module, text in {"__init__": "", "provider": provider, **modules}.items():
        package.joinpath(f"{module}.py").write_text(text)
    [entry] = PathDistribution(metadata).entry_points
    return entry


def providers_with(*entries: EntryPoint) -> Providers:
    providers = Providers(dict(PROVIDERS.by_name))
    for entry in entries:
        providers.add(entry)
    return providers


def provider_of(name: str, **seams: dict[str, str]) -> str:
    return f"from tidemark.providers import Provider\nPROVIDER = Provider({name!r}, **{seams!r})\n"


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes providers those of this process."""

    def patch(providers: Providers) -> None:
        for name in ("by_name", "broken", "distributions"):
            monkeypatch.setattr(PROVIDERS, name, getattr(providers, name))
        for seam, known in KINDS.items():
            monkeypatch.setattr(known, "left_out", {})
            base._entry.cache_clear()
            for kind, package in Kinds(seam, known.word).items():
                if kind not in known:
                    monkeypatch.setitem(known, kind, package)

    return patch


def test_every_kind_is_of_one_provider_and_has_all_modules_of_its_seam() -> None:
    assert set(PROVIDERS.by_name) >= {"core", *OUR_PROVIDERS}
    brought = [known for provider in PROVIDERS.by_name.values() for known in provider.kinds()]
    assert len(brought) == len(set(brought)) == sum(map(len, KINDS.values()))
    for known in KINDS.values():
        for name in known.names:
            if name != "spark":  # which imports Spark
                assert set(known.modules(name)) == set(known)


def test_a_package_brings_kinds_of_any_seam(site: Path) -> None:
    entry = install(site, "brought_all", provider_of("all", **{seam: {"mine": "brought_all"} for seam in SEAMS}))
    providers = providers_with(entry)
    assert providers.broken == {}
    assert all(providers.provider_of(seam, "mine").name == "all" for seam in SEAMS)
    assert providers.distributions["all"].name == "brought_all"


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("import brought_by_nobody", "cannot be imported: ModuleNotFoundError: No module named 'brought_by_nobody'"),
        ("PROVIDERS = 1", "cannot be imported: AttributeError"),
        ("PROVIDER = {'sinks': {}}", "is no tidemark.providers.Provider, but of type dict"),
        (provider_of("iceberg"), "has the name iceberg of another provider"),
        (provider_of("x", sinks={"files": "x"}), "brings files to sinks, which is a kind of the provider core"),
        (provider_of("x", decoders={"avro": "x"}), "brings avro to decoders, which is a kind of the provider avro"),
    ],
)
def test_a_broken_package_is_left_out_with_its_name_and_the_reason(site: Path, provider: str, reason: str) -> None:
    good = install(site, "brought_well", provider_of("well", sinks={"well": "brought_well"}))
    providers = providers_with(install(site, "brought_broken", provider), good)
    assert set(providers.by_name) == {*PROVIDERS.by_name, "well"}
    assert list(providers.broken) == ["brought_broken"]
    assert reason in providers.broken["brought_broken"]


def test_the_second_package_with_a_kind_is_left_out(site: Path) -> None:
    entries = [install(site, f"brought_{n}", provider_of(n, sinks={"same": f"brought_{n}"})) for n in ("a", "b")]
    assert providers_with(*entries).broken == {
        "brought_b": "brought_b.provider:PROVIDER brings same to sinks, which is a kind of the provider a"
    }


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("raise OSError('no disk')", "its module settings cannot be imported: OSError: no disk"),
        (
            "import brought_by_nobody",
            "its module settings cannot be imported: ConfigurationError: toy needs the package",
        ),
        ("Settings = int", "brought_toy.settings.Settings is no Section"),
        ("", "brought_toy.settings.Settings is no Section"),
    ],
)
def test_a_kind_whose_settings_are_broken_stops_only_files_that_name_it(
    site: Path, use: Any, tmp_path: Path, settings: str, reason: str
) -> None:
    entry = install(site, "brought_toy", provider_of("toy", sinks={"toy": "brought_toy"}), settings=settings)
    use(providers_with(entry))
    file = tmp_path / "flights.yaml"
    file.write_text(changed(TOY))
    [problem] = problems(file)
    assert "sinks[0].toy: cannot be used: " in problem
    assert reason in problem
    file.write_text(changed())
    load(file)
    [finding] = machine.providers()
    assert (finding.severity, finding.check) == (Severity.FAILED, "providers")
    assert finding.message.startswith(f"brought_toy cannot be used: sink toy: {reason}")


def test_a_word_that_a_broken_package_may_bring_names_that_package(site: Path, use: Any, tmp_path: Path) -> None:
    use(providers_with(install(site, "brought_toy", "1 / 0")))
    file = tmp_path / "flights.yaml"
    file.write_text(changed(TOY))
    [problem] = problems(file)
    assert "sinks[0].toy: is no sink that is installed; packages that cannot be used: brought_toy: " in problem
    [finding] = machine.providers()
    assert (
        "brought_toy cannot be used: brought_toy.provider:PROVIDER cannot be imported: ZeroDivision" in finding.message
    )
    assert "pip uninstall brought_toy" in (finding.next_step or "")


def test_doctor_finds_a_module_that_is_broken_before_a_run_does(site: Path, use: Any) -> None:
    modules = {"settings": "", "sink": "", "writer": "raise OSError('no driver')"}
    use(providers_with(install(site, "brought_toy", provider_of("toy", sinks={"toy": "brought_toy"}), **modules)))
    [finding] = machine.providers()
    assert finding.severity is Severity.FAILED
    assert "its module writer cannot be imported: OSError: no driver" in finding.message


def test_doctor_says_what_a_package_brings(site: Path, use: Any) -> None:
    modules = {"settings": "", "sink": "", "writer": ""}
    use(providers_with(install(site, "brought_toy", provider_of("toy", sinks={"toy": "brought_toy"}), **modules)))
    [finding] = machine.providers()
    assert (finding.severity, finding.message) == (Severity.OK, "brought_toy 1.0 brings: sink toy")


def test_a_library_that_is_missing_is_named_with_the_words_of_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Provider("mine", libraries=("brought_by_nobody", "json"), install="pip install mine", sinks={"mine": "x"})
    monkeypatch.setitem(PROVIDERS.by_name, "mine", mine)
    assert SINKS.problem_with("mine") == "needs brought_by_nobody, not installed here; install it: pip install mine"
    assert SINKS.problem_with("files") is None


def test_a_kind_that_nobody_brings_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"no sink of kind 'icberg' is installed here; did you mean .iceberg"):
        SINKS.module("icberg", "sink")


def test_a_folder_without_modules_is_no_provider(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "brought_empty" / "__pycache__").mkdir(parents=True)
    assert not kinds.is_installed("brought_empty.provider")
    assert not kinds.is_installed("brought_by_nobody.provider")
    assert kinds.is_installed("tidemark.providers.avro.provider")


@pytest.mark.parametrize("first", ["tidemark.providers.avro.provider", "tidemark_toy.provider", "tidemark.kinds"])
def test_any_module_of_a_provider_may_be_imported_first(first: str) -> None:
    program = f"import {first}, tidemark.kinds; print('avro' in tidemark.kinds.DECODERS)"
    words = [sys.executable, "-c", f"import sys; sys.path[:0] = ['examples/provider']; {program}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_the_core_alone_has_what_a_pipeline_of_json_into_files_needs() -> None:
    assert {"kafka", "json", "files", "sql"} <= {kind for _, kind in CORE.kinds()}
