"""An Iceberg table in a bucket: files of rows and of metadata go there by one client, with one kind of errors."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from sandbox.services.s3 import Bucket
from tests.faults.s3_proxy import Answer, Rule, S3Proxy
from tests.worlds.iceberg_world import IcebergWorld, KeyedIcebergWorld
from tests.worlds.s3_world import ENCRYPTS, Prefix
from tests.worlds.world import KEYS
from tidemark.providers.iceberg.file_io import StoreFileIO

KEY = ("--run-key", "one")
NO_CHECKSUMS = Rule(Answer.REFUSED, header="x-amz-trailer", times=-1, status=411, code="MissingContentLength")


@pytest.fixture
def proxy(s3: Bucket) -> Iterator[S3Proxy]:
    with S3Proxy(s3) as opened:
        yield opened


@pytest.fixture
def own(s3: Bucket) -> Bucket:
    """The place of the table."""
    return s3.below(uuid4().hex)


@pytest.fixture
def world(make_iceberg_world: Callable[..., IcebergWorld], own: Bucket, proxy: S3Proxy) -> IcebergWorld:
    """All requests of the sink go through the proxy."""
    world = make_iceberg_world(iceberg={"warehouse": own.root, "store_connection": "store"})
    world.targets["store"] = own.connection(proxy.endpoint_url)
    world.produce(40, bad_every=13)
    return world


def test_a_store_that_takes_no_checksums_behind_the_bytes_has_tables_too(
    world: IcebergWorld, own: Bucket, proxy: S3Proxy
) -> None:
    """Ceph 16 answers 411 to them."""
    rule = proxy.arm(NO_CHECKSUMS)
    world.ok("run", "demo", *KEY)
    assert world.ok("audit", "demo", "--deep") == ""
    assert rule.struck == 0
    through = {request.partition(" ")[2].partition("?")[0] for request in proxy.requests if request.startswith("PUT ")}
    keys = Prefix(own).keys()
    written = {f"/{own.root.removeprefix('s3://')}/{key}" for key in keys}
    assert written <= through, "nothing goes another way"
    assert any(key.endswith(".metadata.json") for key in keys)


def test_a_table_with_a_key_is_merged_in_a_bucket(
    make_keyed_iceberg_world: Callable[..., KeyedIcebergWorld], own: Bucket, proxy: S3Proxy
) -> None:
    world = make_keyed_iceberg_world(iceberg={"warehouse": own.root, "store_connection": "store"})
    world.targets["store"] = own.connection(proxy.endpoint_url)
    for number in range(3):
        world.produce(40 - 17 * number)
        world.ok("run", "demo", "--run-key", str(number))
    counts = [manifest["publications"][0]["counts"] for manifest in world.json("manifests", "demo")]
    assert [(each["superseded"], each["stale"]) for each in counts] == [(0, 0), (23 - KEYS, 0), (40 - KEYS, 0)]
    assert world.ok("audit", "demo", "--deep") == ""
    keys = Prefix(own).keys()
    assert any("/deletes-" in key for key in keys)


@pytest.mark.parametrize("there", [False, True], ids=["no table", "a table"])
def test_what_the_store_refuses_is_not_said_of_the_catalog_and_doctor_finds_it_first(
    world: IcebergWorld, proxy: S3Proxy, there: bool
) -> None:
    if there:
        world.ok("run", "demo", *KEY)
        world.produce(10)
    assert "(tried)" in world.ok("doctor", "demo")
    proxy.arm(Rule(Answer.REFUSED, "PUT", "/metadata/", times=-1, status=403, code="AccessDenied"))
    for words in (("doctor", "demo"), ("run", "demo", "--run-key", "two")):
        done = world.here(*words)
        assert done.exit_code == 1
        told = done.stdout + done.stderr
        assert "S3 refused to stage s3://" in told
        assert "AccessDenied" in told
        assert "give these keys s3:ListBucket" in told
        assert "the catalog" not in told
    proxy.disarm()
    world.ok("run", "demo", "--run-key", "two")
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_file_of_the_store_is_there_whole_or_not_at_all(own: Bucket, proxy: S3Proxy) -> None:
    io = StoreFileIO(
        {"s3.endpoint": proxy.endpoint_url, "s3.access-key-id": own.key_id, "s3.secret-access-key": own.secret}
    )
    place = f"{own.root}/metadata/v1"
    with pytest.raises(FileNotFoundError):
        io.new_input(place).open()
    with pytest.raises(ZeroDivisionError), io.new_output(place).create() as file:
        file.write(b"half" * (1 // len(b"")))
    assert not io.new_input(place).exists()
    with io.new_output(place).create() as file:
        file.write(b"whole")
        assert file.tell() == 5
    with io.new_input(place).open() as file:
        assert file.read() == b"whole"
    assert len(io.new_input(place)) == 5
    with pytest.raises(FileExistsError):
        io.new_output(place).create()
    proxy.arm(Rule(Answer.REFUSED, "POST", "?delete", times=-1, status=403, code="AccessDenied"))
    with pytest.raises(OSError, match="AccessDenied"):  # a commit that is done goes on
        io.delete(place)
    proxy.disarm()
    io.delete(place)
    assert Prefix(own).keys() == []


@ENCRYPTS
def test_metadata_is_encrypted_as_the_pipeline_says_too(own: Bucket, proxy: S3Proxy) -> None:
    io = StoreFileIO(
        {
            "s3.endpoint": proxy.endpoint_url,
            "s3.access-key-id": own.key_id,
            "s3.secret-access-key": own.secret,
            "s3.server-side-encryption": "AES256",
        }
    )
    with io.new_output(f"{own.root}/metadata/v1").create() as file:
        file.write(b"1")
    head = own.client().head_object(Bucket=own.name, Key=f"{own.prefix}/metadata/v1")
    assert head["ServerSideEncryption"] == "AES256"
