"""A client of Kafka lives as long as a command that uses it: a later one asks brokers where they are by then."""

import gc
from concurrent.futures import Future
from typing import Any

import pytest

from tidemark.kafka import cluster


def test_a_cluster_and_its_client_go_with_their_last_user() -> None:
    gc.collect()
    gc.disable()  # a cycle would keep both until some collection
    try:
        user = cluster.shared_cluster("127.0.0.1:1", {})
        assert cluster.shared_cluster("127.0.0.1:1", {}) is user
        assert user._admin is not None
        others = len(cluster._SHARED) - 1  # a test before this one may have left some
        del user
        assert len(cluster._SHARED) == others
    finally:
        gc.enable()


def test_a_client_that_another_thread_has_dropped_stays_until_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked of a client that ends at that moment may never be answered."""
    made: list[str] = []
    user = cluster.KafkaCluster("127.0.0.1:1", {})
    answer: Future[Any] = Future()

    class Client:
        def __init__(self, *options: Any, **more: Any) -> None:
            del options, more
            made.append("a client")

        def __del__(self) -> None:
            made.append("its end")

        def describe_topics(self, *asked: Any, **more: Any) -> dict[str, Future[Any]]:
            del asked, more
            user.__dict__.pop("_admin")  # as a thread does that gets no answer
            return {"flights": answer}

        def poll(self, _: float) -> None:
            made.append("polled")
            answer.set_result(None)

    monkeypatch.setattr(cluster, "AdminClient", Client)
    user._results(lambda admin: admin.describe_topics())
    assert made == ["a client", "polled", "its end"]
