"""Addresses of Azure's containers in pipeline files, the codes of its errors, and what else is told of them."""

from pathlib import Path

import pytest
from azure.core.exceptions import ServiceRequestError

from tests.unit.pipeline_text import changed, problems
from tidemark.errors import AccessDenied, SinkRefused, TidemarkError, Unavailable
from tidemark.model.dataset import Dataset
from tidemark.pipeline.loader import load
from tidemark.providers.azure.address import EXAMPLE, AzureAddress, problem_with_address
from tidemark.providers.azure.client import error_of_code, translated

ROOT = "abfss://lake@company.dfs.core.windows.net"
FILES = "root: lake\n"
DELTA = "  - delta:\n      location: {}\n"
TOPIC = "  - topic:\n      connection: c\n      topic: t\n      staging: {}\n"
ICEBERG = "  - iceberg:\n      connection: c\n      table: a.b\n      warehouse: {}\n"


def problems_with(tmp_path: Path, before: str, after: str) -> list[str]:
    file = tmp_path / "flights.yaml"
    file.write_text(changed((before, after)))
    return problems(file)


def test_an_address_has_its_parts_and_an_endpoint() -> None:
    address = AzureAddress.parse(f"{ROOT}/flights/raw")
    assert address == AzureAddress("company", "https://company.blob.core.windows.net", "lake", "flights/raw/")
    assert (address.root("flights/"), address.root("")) == (f"{ROOT}/flights", ROOT)
    assert Dataset.of_folder(f"{ROOT}/flights") == Dataset(ROOT, "flights")


def test_a_pipeline_file_may_name_a_container_with_and_without_a_prefix(tmp_path: Path) -> None:
    file = tmp_path / "flights.yaml"
    for root in (ROOT, f"{ROOT}/", f"{ROOT}/flights", EXAMPLE):
        file.write_text(changed((FILES, f"root: {root}\n      connection: lake\n")))
        assert load(file).sinks[0].target == root.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "abfss://lake", "abfss://lake/flights", "abfss://lake@company.blob.core.windows.net/flights",
        "abfss://la@company.dfs.core.windows.net", f"{ROOT}//flights", f"{ROOT}/a/../b", f"{ROOT}/a b",
        "abfss://Lake@company.dfs.core.windows.net", "abfss://la--ke@company.dfs.core.windows.net",
    ],
)  # fmt: skip
def test_an_address_of_another_form_is_refused_with_the_form(address: str, tmp_path: Path) -> None:
    assert str(problem_with_address(address)).startswith(f"must be {EXAMPLE}")
    [problem] = problems_with(tmp_path, FILES, f"root: {address}\n")
    assert f"sinks[0].files.root: must be {EXAMPLE}" in problem


@pytest.mark.parametrize(
    "address", ["az://lake/flights", "abfs://lake@company", "wasbs://lake@company.blob.core.windows.net/a"]
)
def test_an_address_of_another_program_is_refused_with_the_one_to_write(address: str, tmp_path: Path) -> None:
    [problem] = problems_with(tmp_path, FILES, f"root: {address}\n")
    assert f'"{address.partition("//")[0]}//" is not known; write {EXAMPLE}' in problem


@pytest.mark.parametrize("sink", [DELTA, ICEBERG, TOPIC], ids=["delta", "iceberg", "topic"])
def test_tables_and_staging_may_lie_in_a_container_with_a_right_address(sink: str, tmp_path: Path) -> None:
    files = "  - files:\n      root: lake\n"
    file = tmp_path / "flights.yaml"
    file.write_text(changed((files, sink.format(f"{ROOT}/tables"))))
    assert len(load(file).sinks) == 1
    [problem] = problems_with(tmp_path, files, sink.format("abfss://tables"))
    assert f"must be {EXAMPLE}" in problem


def test_keys_of_s3_are_no_keys_of_a_container(tmp_path: Path) -> None:
    [problem] = problems_with(tmp_path, FILES, f"root: {ROOT}\n      s3:\n        region: eu\n")
    assert "sinks[0].files.s3: is for a root such as s3://bucket/prefix" in problem


@pytest.mark.parametrize(
    ("code", "status", "kind", "advice"),
    [
        ("ContainerNotFound", 404, SinkRefused, "create the container"),
        ("AuthenticationFailed", 403, AccessDenied, "check the key or SAS token"),
        ("AuthorizationPermissionMismatch", 403, AccessDenied, "read, write, delete and list (rwdl)"),
        ("ServerBusy", 503, Unavailable, "the store is busy"),
        ("BlobImmutableDueToPolicy", 409, SinkRefused, "such as immutability"),
    ],
)
def test_each_refusal_is_told_as_what_it_is(code: str, status: int, kind: type[TidemarkError], advice: str) -> None:
    error = error_of_code(code, status, f"Azure refused to write {ROOT}/a: {code}")
    assert type(error) is kind
    assert advice in str(error.next_step)


def test_no_signature_is_in_an_error_or_its_cause() -> None:
    with pytest.raises(Unavailable) as caught, translated("read", f"{ROOT}/a"):
        raise ServiceRequestError("HTTPSConnectionPool(host='company'): Max retries exceeded with url: /a?sig=canary")
    assert "canary" not in f"{caught.value} {caught.value.__cause__}"
    assert caught.value.__suppress_context__
