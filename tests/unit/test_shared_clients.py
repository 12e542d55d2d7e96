"""A client of Kafka lives as long as a command that uses it: a later one asks brokers where they are by then."""

import gc

from tidemark.kafka import cluster


def test_a_cluster_and_its_client_go_with_their_last_user() -> None:
    gc.collect()
    gc.disable()  # a cycle would keep both until some collection
    try:
        user = cluster.shared_cluster("127.0.0.1:1", {})
        assert cluster.shared_cluster("127.0.0.1:1", {}) is user
        assert user._admin is not None
        del user
        assert not cluster._SHARED
    finally:
        gc.enable()
