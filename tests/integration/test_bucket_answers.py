"""A files sink and a bucket that loses answers, cuts questions, or refuses; F4 and so on are rows of the matrix.

Whole runs over such a bucket are in ``tests/faults/test_buckets.py``.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.services.s3 import Bucket
from tests.behaviours.sink_examples import CONNECTION, RANGES, S3Example, agree, plan_two_manifests
from tests.faults.s3_proxy import Answer, Rule, S3Proxy
from tests.sink_faces import holds, put_into, same_output
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.errors import AccessDenied, SinkRefused, TidemarkError, Unavailable
from tidemark.lifecycle.ownership import claim, hand_over
from tidemark.model.manifest import WithoutRows
from tidemark.model.receipt import Receipt
from tidemark.paths import OWNER
from tidemark.sinks.base import Owner, Sink
from tidemark.sinks.capabilities import CompleteHour
from tidemark.sinks.files.settings import Settings as FilesSettings
from tidemark.sinks.registry import open_sink
from tidemark.storage.s3.client import UploadEnded
from tidemark.storage.s3.store import S3Store

STUCK_S = 30.0

GOOD = {at for at in range(10, 40) if at % 10}
COPIED, RECORDED = ("/raw/", True), ("_manifests/demo/", False)


@pytest.fixture
def proxy(s3: Bucket) -> Iterator[S3Proxy]:
    with S3Proxy(s3) as opened:
        yield opened


@pytest.fixture
def make(
    s3: Bucket, proxy: S3Proxy, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], S3Example]]:
    """Opens and claims a lake in the bucket; the sink talks to it through the proxy."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", s3.connection(proxy.endpoint_url))
    with ManifestDatabase(database, "test") as manifests:
        plan_two_manifests(manifests)
        yield lambda: S3Example(tmp_path, manifests, s3.connection(), bucket=s3)


def put(example: S3Example, receipt: Receipt) -> None:
    put_into(example.sink, receipt, RANGES, example.database.id(), agree, agree)


def asked_of(example: S3Example, key: str) -> str:
    """The path of a request for a key."""
    return f"/{example.lake.root.removeprefix('s3://')}/{key}"


def test_F4_a_staged_file_whose_answer_is_lost_is_looked_up(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    example = make()
    rule = proxy.arm(Rule(Answer.LOST, "PUT", "/00000-0-00001.parquet"))  # others are staged at the same time
    put(example, example.stage(1))
    assert rule.struck == rule.times
    assert set(example.seen()) == GOOD


def test_F4_a_staged_file_that_never_arrives_is_named_and_the_task_removes_the_others(
    make: Callable[[], S3Example], proxy: S3Proxy
) -> None:
    example = make()
    rule = proxy.arm(Rule(Answer.CUT_BEFORE, "PUT", "/00000-0-00001.parquet", times=-1))
    with pytest.raises(Unavailable, match=r"S3 did not answer the request to stage .*/00000-0-00001\.parquet"):
        example.stage(1)
    assert rule.struck >= 3
    assert example.keys("") == [OWNER]


def test_the_small_files_of_a_task_are_staged_at_once(
    make: Callable[[], S3Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = make()
    together, put_object = Barrier(4), S3Store._put

    def put_together(store: S3Store, key: str, content: Any, **more: Any) -> None:
        together.wait(STUCK_S)  # breaks when the others do not come
        put_object(store, key, content, **more)

    with monkeypatch.context() as patched:
        patched.setattr(S3Store, "_put", put_together)
        receipt = example.stage(1)
    assert len(receipt.objects) == 4
    assert example.keys("_staging/") == sorted(object_.staged for object_ in receipt.objects)


@pytest.mark.parametrize(("having", "copy"), [COPIED, RECORDED], ids=["copied", "recorded"])
def test_F4_a_copy_or_record_whose_answer_is_lost_is_looked_up(
    make: Callable[[], S3Example], proxy: S3Proxy, having: str, copy: bool
) -> None:
    example = make()
    receipt = example.stage(1)
    rule = proxy.arm(Rule(Answer.LOST, "PUT", having, copy))
    put(example, receipt)
    assert rule.struck == rule.times
    assert set(example.seen()) == GOOD
    assert holds(example.sink, receipt)


@pytest.mark.parametrize(("having", "copy"), [COPIED, RECORDED], ids=["copied", "recorded"])
def test_F4_a_copy_or_record_that_never_arrives_is_not_believed_and_all_is_taken_back(
    make: Callable[[], S3Example], proxy: S3Proxy, having: str, copy: bool
) -> None:
    example = make()
    receipt = example.stage(1)
    rule = proxy.arm(Rule(Answer.CUT_BEFORE, "PUT", having, copy, times=-1, skip=1 if copy else 0))
    with pytest.raises(Unavailable, match="S3 did not answer the request to"):
        put(example, receipt)
    assert rule.struck >= 3
    proxy.disarm()
    assert not example.sink.ledger.has(receipt)
    example.sink.discard(receipt)
    assert example.keys("") == [OWNER]
    put(example, example.stage(2))
    assert set(example.seen()) == GOOD


def test_F4_an_owner_whose_answer_is_lost_is_known_to_be_ours(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    rule = proxy.arm(Rule(Answer.LOST, "PUT", OWNER, times=1))
    example = make()
    assert rule.struck == 1
    assert example.sink.ledger.owner() == Owner(example.database.id())
    assert example.keys("") == [OWNER], "the probe is gone"


def test_F4_a_create_whose_answer_is_lost_spares_what_is_there(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    example = make()
    before = example.content(OWNER)
    rule = proxy.arm(Rule(Answer.LOST, "PUT", OWNER, header="If-None-Match", times=1))
    store = S3Store(example.lake.root, {"connection": CONNECTION}, from_environment)
    assert not store.put_if_absent(OWNER, b"of another")
    assert (rule.struck, example.content(OWNER)) == (1, before), "the store was asked with the condition"


def test_an_object_takes_one_request_to_stage_and_two_to_publish(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    example = make()
    receipt = example.stage(1)
    put(example, receipt)
    for object_ in receipt.objects:
        asked = [request for request in proxy.requests if object_.staged in request or object_.path in request]
        assert asked == [f"{method} {asked_of(example, key)}" for method, key in (
            ("PUT", object_.staged), ("PUT", object_.path), ("HEAD", object_.path)
        )]  # fmt: skip


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each staged file is an upload."""
    monkeypatch.setattr(S3Store, "uploads_from", 1)


@pytest.mark.usefixtures("all_are_large")
def test_a_large_file_is_sent_once_and_takes_four_requests_to_publish(
    make: Callable[[], S3Example], proxy: S3Proxy
) -> None:
    example = make()
    receipt = example.stage(1)
    assert [object_.path.rpartition("-")[2] for object_ in receipt.objects] == [
        f"1000000{number}.parquet" for number in (0, 1, 2, 3)
    ]
    put(example, receipt)
    for object_ in receipt.objects:
        asked = [request for request in proxy.requests if object_.staged in request or object_.path in request]
        note, key = f"{asked_of(example, object_.staged)}.upload", asked_of(example, object_.path)
        assert [request.partition("Id=")[0] for request in asked] == [
            f"PUT {note}", f"POST {key}?uploads", f"PUT {key}?upload", f"PUT {note}",
            f"PUT {key}", f"GET {note}", f"POST {key}?upload", f"HEAD {key}",
        ]  # fmt: skip
    assert set(example.seen()) == GOOD


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize("answer", [Answer.LOST, Answer.CUT_BEFORE])
@pytest.mark.parametrize(
    ("method", "having"),
    [("POST", "-10000001.parquet?uploads"), ("PUT", "-00001.parquet.upload"), ("PUT", "-10000001.parquet?uploadId=")],
    ids=["begun", "noted", "a part"],
)
def test_F4_an_upload_whose_answers_are_lost_is_aborted_and_the_task_removes_the_others(
    make: Callable[[], S3Example], proxy: S3Proxy, answer: Answer, method: str, having: str
) -> None:
    example = make()
    rule = proxy.arm(Rule(answer, method, having))  # others are sent at the same time
    if answer is Answer.LOST and having.endswith(".upload"):
        put(example, example.stage(1))  # whether the note is there is looked up
    else:
        with pytest.raises(Unavailable, match="S3 did not answer the request to"):
            example.stage(1)
        assert example.keys("") == [OWNER]
        put(example, example.stage(2))
    assert rule.struck == rule.times
    assert set(example.seen()) == GOOD


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize("times", [1, 3])
def test_F4_a_completed_upload_whose_answer_is_lost_is_looked_up(
    make: Callable[[], S3Example], proxy: S3Proxy, times: int
) -> None:
    example = make()
    receipt = example.stage(1)
    rule = proxy.arm(Rule(Answer.LOST, "POST", "?uploadId=", times=times))
    put(example, receipt)
    assert rule.struck == times
    assert set(example.seen()) == GOOD
    assert holds(example.sink, receipt)


@pytest.mark.usefixtures("all_are_large")
def test_F12_uploads_that_are_not_completed_leave_nothing_half(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    example = make()
    receipt = example.stage(1)
    rule = proxy.arm(Rule(Answer.REFUSED, "POST", "?uploadId=", times=-1, skip=2))
    with pytest.raises(Unavailable, match=r"S3 refused to complete the upload of .* InternalError"):
        put(example, receipt)
    assert rule.struck >= 3
    proxy.disarm()
    assert example.keys("raw/")
    example.sink.discard(receipt)
    assert example.keys("") == [OWNER]
    with pytest.raises(TidemarkError, match="no longer exists, and was not copied"):
        put(example, receipt)
    assert example.keys("raw/") == [], "a paused attempt completes nothing that was stopped"


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize(("stopped", "kind"), [(True, UploadEnded), (False, Unavailable)], ids=["ended", "busy"])
def test_an_upload_that_another_has_ended_is_told_from_a_store_that_is_busy(
    make: Callable[[], S3Example], proxy: S3Proxy, stopped: bool, kind: type[TidemarkError]
) -> None:
    """Ceph answers 500 to who completes an upload that is not there any more."""
    example = make()
    receipt = example.stage(1)
    if stopped:
        example.sink.output.store.stop_uploads("_staging")
    rule = proxy.arm(Rule(Answer.REFUSED, "POST", "?uploadId=", times=-1, code="UnknownError"))
    with pytest.raises(kind) as ended:
        put(example, receipt)
    assert rule.struck >= 3
    assert type(ended.value) is kind
    assert ("tidemark retry" in ended.value.next_step, "busy" in ended.value.next_step) == (True, not stopped)
    assert example.keys("raw/") == []


def test_a_file_that_cannot_be_compared_with_a_replay_is_named(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    example = make()
    receipt = example.stage(1)
    put(example, receipt)
    path = receipt.objects[2].path
    rule = proxy.arm(Rule(Answer.REFUSED, "GET", path, times=-1, status=503, code="SlowDown"))
    with pytest.raises(Unavailable, match=f"S3 refused to read .*{path}: SlowDown"):
        same_output(example.sink, receipt, receipt)
    assert rule.struck
    proxy.disarm()
    assert same_output(example.sink, receipt, receipt)


def test_F12_copies_that_fail_half_way_leave_nothing_half(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    example = make()
    receipt = example.stage(1)
    proxy.arm(Rule(Answer.REFUSED, "PUT", "/raw/", copy=True, times=-1, skip=2))
    with pytest.raises(Unavailable, match=r"S3 refused to copy .* InternalError"):
        put(example, receipt)
    proxy.disarm()
    example.sink.discard(receipt)
    assert example.keys("") == [OWNER]


def test_F14_a_store_that_overwrites_what_should_be_absent_is_refused(
    make: Callable[[], S3Example], proxy: S3Proxy
) -> None:
    example = make()
    example.remove(OWNER)
    proxy.arm(Rule(Answer.UNCONDITIONAL, "PUT", times=-1))
    with pytest.raises(SinkRefused, match="overwrites objects that must be created only when absent"):
        claim(example.sink, example.database.id())
    assert example.keys("") == []


REFUSALS: dict[str, tuple[int, type[TidemarkError], str]] = {
    "InvalidAccessKeyId": (403, AccessDenied, "check the keys"),
    "SignatureDoesNotMatch": (403, AccessDenied, "check the keys"),
    "ExpiredToken": (400, AccessDenied, "check the keys"),
    "AccessDenied": (403, AccessDenied, "give these keys s3:ListBucket"),
    "RequestTimeTooSkewed": (403, AccessDenied, "the clock of this machine is off"),
    "NoSuchBucket": (404, SinkRefused, "create the bucket"),
    "NotImplemented": (501, SinkRefused, "the store does not do what a lake needs"),
    "KMS.DisabledException": (400, SinkRefused, "check kms_key_id of the sink"),
    "SlowDown": (503, Unavailable, "the store is busy"),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_what_s3_refuses_is_named_with_what_to_do(make: Callable[[], S3Example], proxy: S3Proxy, code: str) -> None:
    status, kind, advice = REFUSALS[code]
    example = make()
    proxy.arm(Rule(Answer.REFUSED, times=-1, status=status, code=code))
    sink = open_sink("demo", example.config, from_environment)
    with pytest.raises(kind, match=code) as caught:
        claim(sink, example.database.id())
    assert caught.value.next_step.startswith(advice)


def test_keys_that_may_not_abort_an_upload_are_refused_before_anything_is_written(
    make: Callable[[], S3Example], proxy: S3Proxy
) -> None:
    proxy.arm(Rule(Answer.REFUSED, "DELETE", "?uploadId=", times=-1, status=403, code="AccessDenied"))
    with pytest.raises(AccessDenied, match=r"S3 refused to abort an upload of .*: AccessDenied") as refused:
        make()
    assert "AbortMultipartUpload" in refused.value.next_step
    proxy.disarm()
    assert make().keys("") == [OWNER]


def test_what_may_not_be_removed_is_named(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    example = make()
    receipt = example.stage(1)
    proxy.arm(Rule(Answer.REFUSED, "POST", "?delete", times=-1, status=403, code="AccessDenied"))
    with pytest.raises(AccessDenied, match="S3 refused to remove") as caught:
        example.sink.discard(receipt)
    assert "DeleteObject" in caught.value.next_step


# what success files need

HOUR = CompleteHour(datetime(2024, 3, 1, tzinfo=UTC), revision=1, rows=3, late=0, without_rows=WithoutRows())
MARK = "raw/orders/2024/03/01/00/_SUCCESS"
NO_ETAG = "0" * 32
FIRST_ETAG = md5(b"first", usedforsecurity=False).hexdigest()  # of what the check puts
REFUSED = Rule(Answer.REFUSED, "PUT", times=-1, status=412, code="PreconditionFailed")
QUOTED = replace(REFUSED, quoted=True)
UNQUOTED = replace(REFUSED, quoted=False)


def show(sink: Sink, revision: int) -> None:
    sink.output.show_complete(["orders"], replace(HOUR, revision=revision))


def with_success_files(example: S3Example) -> Sink:
    settings = FilesSettings.model_validate({**example.config.model_dump(), "success_files": True})
    return open_sink("demo", settings, from_environment)


@pytest.fixture
def takes_quotes(make: Callable[[], S3Example]) -> None:
    """The store that a proxy shall make strict must take an ETag with its quotes itself."""
    store = with_success_files(make()).output.store
    store.put("quoted", b"1")
    taken = store._put_where("quoted", b"2", IfMatch=f'"{store._attributes("quoted").etag}"')
    store.delete(["quoted"])
    if not taken:
        pytest.skip("this store takes no ETag with its quotes")


def test_a_store_that_takes_etags_without_quotes_only_is_sent_them_so(
    make: Callable[[], S3Example], proxy: S3Proxy
) -> None:
    """As Ceph 16.2: it answers 412 to the quoted ETag that it gave itself."""
    example = make()
    example.remove(OWNER)
    sink = with_success_files(example)
    proxy.arm(replace(QUOTED))
    claim(sink, example.database.id())  # the store is tried here, and not refused
    rule = proxy.arm(replace(QUOTED))
    for revision in (1, 2):
        show(sink, revision)
    assert json.loads(example.content(MARK))["revision"] == 2
    assert rule.struck == 0


@pytest.mark.usefixtures("takes_quotes")
def test_a_store_that_takes_etags_with_quotes_only_is_sent_them_so_next(
    make: Callable[[], S3Example], proxy: S3Proxy
) -> None:
    """A store that takes the words of HTTP strictly."""
    example = make()
    example.remove(OWNER)
    sink = with_success_files(example)
    proxy.arm(replace(UNQUOTED))
    claim(sink, example.database.id())  # the store is tried here, and not refused
    rule = proxy.arm(replace(UNQUOTED))
    for revision in (1, 2):
        show(sink, revision)
    assert json.loads(example.content(MARK))["revision"] == 2
    assert rule.struck == 1


def test_the_other_form_of_an_etag_is_not_sent_when_the_object_has_changed(
    make: Callable[[], S3Example], proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = make()
    store = with_success_files(example).output.store
    store.put("raw/h/_SUCCESS", b"1")
    rule = proxy.arm(replace(REFUSED, having="_SUCCESS"))
    monkeypatch.setattr(S3Store, "_is_still", lambda *_: False)
    assert not store.replace("raw/h/_SUCCESS", b"1", b"2")
    assert rule.struck == 1


def test_a_store_that_replaces_nothing_ends_the_run_after_some_tries_and_says_so(
    make: Callable[[], S3Example], proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    example = make()
    sink = with_success_files(example)
    show(sink, 1)
    rule = proxy.arm(replace(REFUSED, having="_SUCCESS"))
    monkeypatch.setattr("tidemark.sinks.files.success.time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(SinkRefused, match="could not be put in 8 tries: the store refuses to replace it") as refused:
        show(sink, 2)
    assert refused.value.next_step.endswith("tidemark run demo")
    assert rule.struck == 16, "each try with both forms of the ETag"
    assert len([line for line in caplog.messages if "trying again in" in line]) == 7
    assert json.loads(example.content(MARK))["revision"] == 1


WITHOUT_IF_MATCH = pytest.mark.parametrize(
    ("rule", "what"),
    [
        (Rule(Answer.UNCONDITIONAL, "PUT", if_match=NO_ETAG, times=-1), "overwrites an object that has changed"),
        (replace(REFUSED, if_match=FIRST_ETAG), "does not replace an object that has not changed"),
    ],
)


@WITHOUT_IF_MATCH
def test_a_store_without_if_match_is_refused_where_success_files_need_it(
    make: Callable[[], S3Example], proxy: S3Proxy, rule: Rule, what: str
) -> None:
    example = make()
    example.remove(OWNER)
    proxy.arm(replace(rule))
    with pytest.raises(SinkRefused, match=what) as refused:
        claim(with_success_files(example), example.database.id())
    assert "take success_files out of the sink" in refused.value.next_step
    assert example.keys("") == [], "nothing is left, and the lake is not taken"
    with pytest.raises(SinkRefused, match=what):
        list(with_success_files(example).output.rehearse({}, []))  # as the doctor does
    claim(example.sink, example.database.id())  # without success_files nothing replaces anything


@WITHOUT_IF_MATCH
def test_a_store_without_if_match_is_refused_when_success_files_come_into_a_lake_that_is_taken(
    make: Callable[[], S3Example], proxy: S3Proxy, rule: Rule, what: str
) -> None:
    example = make()
    owner = example.content(OWNER)
    proxy.arm(replace(rule))
    for _ in range(2):
        with pytest.raises(SinkRefused, match=what):
            claim(with_success_files(example), example.database.id())
        with pytest.raises(SinkRefused, match=what):  # a close whose pipeline file got them after the plan
            show(with_success_files(example), 1)
    assert (example.keys(""), example.content(OWNER)) == ([OWNER], owner), "nothing is written, and the owner stays"
    claim(example.sink, example.database.id())
    proxy.disarm()
    claim(with_success_files(example), example.database.id())  # another version of the store, say


def test_a_lake_that_is_taken_is_tried_once_when_success_files_come(
    make: Callable[[], S3Example], proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = make()
    before, tried, check = example.sink.ledger.owner(), [], S3Store.check

    def checked(store: S3Store, *, replaces: bool = False) -> None:
        tried.append(replaces)
        check(store, replaces=replaces)

    monkeypatch.setattr(S3Store, "check", checked)
    for _ in range(3):
        claim(example.sink, example.database.id())
        claim(with_success_files(example), example.database.id())
        show(with_success_files(example), 1)
    assert tried == [True]
    assert example.sink.ledger.owner() == before

    hand_over(example.sink, Owner("another", (example.database.id(),)))
    for _ in range(2):
        claim(with_success_files(example), "another")
    assert (tried, example.sink.ledger.owner()) == ([True, True], Owner("another", (example.database.id(),)))

    example.remove(OWNER)
    for _ in range(2):
        claim(with_success_files(example), "a-third")
    assert tried == [True, True, True], "what a first claim tries it need not try again"


def test_an_owner_that_changes_while_a_store_is_tried_stays(
    make: Callable[[], S3Example], proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = make()
    adopted = Owner("another", (example.database.id(),))
    put_where = S3Store._put_where

    def put_late(store: S3Store, key: str, content: bytes, **condition: str) -> bool:
        if key == OWNER:
            hand_over(example.sink, adopted)
        return put_where(store, key, content, **condition)

    monkeypatch.setattr(S3Store, "_put_where", put_late)
    claim(with_success_files(example), example.database.id())
    assert example.sink.ledger.owner() == adopted


def test_a_file_of_an_hour_goes_back_on_no_store(make: Callable[[], S3Example], proxy: S3Proxy) -> None:
    """One that ignores If-Match would put the revision of a paused close over a newer one, and nobody would know."""
    example = make()
    proxy.arm(Rule(Answer.UNCONDITIONAL, "PUT", times=-1))
    sink = with_success_files(example)
    with pytest.raises(SinkRefused):
        show(sink, 1)
    with pytest.raises(SinkRefused):
        show(sink, 2)
    assert example.keys("raw/") == []
