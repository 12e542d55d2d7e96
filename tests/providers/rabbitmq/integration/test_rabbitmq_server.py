"""The RabbitMQ of the sandbox keeps what it promises, and tests can make of a stream what they read."""

import ssl
import threading
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from rstream import AMQPMessage, Properties, RawMessage

from sandbox.bootstrap import rabbitmq
from sandbox.errors import SandboxFailed
from sandbox.services.processes import port_answers
from sandbox.services.rabbitmq import RabbitMQ
from sandbox.services.streams import CODECS, Connection, Login, StreamRefused, Streams

ACCESS_REFUSED, NO_STREAM, LOGIN_FAILED, EXISTS = 16, 2, 8, 5


@pytest.fixture
def stream(rabbit: RabbitMQ) -> str:
    """The name of an empty stream for one test."""
    name = f"s{uuid4().hex[:12]}"
    rabbit.streams().create_stream(name)
    return name


def test_a_killed_server_has_all_that_it_confirmed_when_it_is_back(mortal_rabbit: RabbitMQ) -> None:
    streams = mortal_rabbit.streams()
    streams.create_stream("kept")
    streams.store_offset("kept", "reader", 7)
    killer = threading.Timer(0.3, mortal_rabbit.kill)
    with streams.publisher("kept", name="publisher") as publisher:
        publisher.send([bytes(100)] * 100)
        killer.start()
        with suppress(ConnectionError):
            while True:
                publisher.send([bytes(100)] * 100)
        confirmed = publisher.confirmed
    killer.join()
    ports = (mortal_rabbit.port, mortal_rabbit.tls_port, mortal_rabbit.amqp_port)
    assert not any(map(port_answers, ports))
    mortal_rabbit.restart()
    assert (mortal_rabbit.port, mortal_rabbit.tls_port, mortal_rabbit.amqp_port) == ports
    assert streams.last_id("kept", "publisher") >= confirmed > 0
    assert streams.query_offset("kept", "reader") == 7


def test_a_later_server_with_the_same_folder_has_the_same_streams(mortal_rabbit: RabbitMQ) -> None:
    mortal_rabbit.streams().create_stream("later")
    mortal_rabbit.streams().publish("later", [b"a"])
    mortal_rabbit.stop()
    assert not port_answers(mortal_rabbit.port)
    with RabbitMQ(mortal_rabbit.state.parent, mortal_rabbit.version) as later:
        assert (later.port, later.password) == (mortal_rabbit.port, mortal_rabbit.password)
        assert later.streams().first_offset("later") == 0
    mortal_rabbit.start()


def test_entries_of_every_codec_and_messages_of_every_kind_are_confirmed(rabbit: RabbitMQ, stream: str) -> None:
    kinds = [
        AMQPMessage(body=b"a", properties=Properties(message_id="1"), application_properties={"n": 1}),
        AMQPMessage(value={"a": 1}),
        AMQPMessage(sequence=[[1, 2]]),
        RawMessage(b"no AMQP at all"),
        b"",
    ]
    rabbit.streams().publish(stream, kinds)
    for codec in CODECS:
        with rabbit.streams().publisher(stream) as publisher:
            publisher.send([b"a" * 100] * 1_000, codec, per_entry=300)
            assert publisher.confirmed == 4


def test_entries_that_a_named_publisher_sends_again_are_confirmed_and_dropped(rabbit: RabbitMQ, stream: str) -> None:
    streams = rabbit.streams()
    with streams.publisher(stream, name="twice") as publisher:
        publisher.send([b"a", b"b"])
    with streams.publisher(stream, name="twice", first_id=1) as publisher:
        publisher.send([b"a", b"b", b"c"])
        assert publisher.confirmed == 3
    assert streams.last_id(stream, "twice") == 3


def test_a_full_stream_drops_its_first_segment(rabbit: RabbitMQ, stream: str) -> None:
    small = f"{stream}-small"
    rabbit.streams().create_stream(small, max_bytes=1_000_000, segment_bytes=300_000)
    assert rabbit.streams().first_offset(small) is None
    rabbit.streams().publish_until_dropped(small)
    assert (rabbit.streams().first_offset(small) or 0) > 0


def test_a_stream_that_is_made_again_is_empty(rabbit: RabbitMQ, stream: str) -> None:
    streams = rabbit.streams()
    streams.publish(stream, [b"a"])
    streams.store_offset(stream, "reader", 1)
    streams.delete_stream(stream)
    with pytest.raises(StreamRefused) as refused:
        streams.first_offset(stream)
    assert refused.value.response_code == NO_STREAM
    streams.create_stream(stream)
    assert streams.query_offset(stream, "reader") is None
    with pytest.raises(StreamRefused) as refused:
        streams.create_stream(stream)
    assert refused.value.response_code == EXISTS


def test_a_super_stream_has_members_that_can_be_deleted(rabbit: RabbitMQ, stream: str) -> None:
    first, second = rabbit.create_super_stream(f"{stream}-all", 2)
    rabbit.streams().publish(first, [b"a"])
    rabbit.streams().delete_stream(second)
    with pytest.raises(SandboxFailed, match="was not created"):
        rabbit.create_super_stream(f"{stream}-all", 2)


def test_a_user_has_only_the_rights_that_were_given(rabbit: RabbitMQ, stream: str) -> None:
    rabbit.create_user("reader", "secret", configure="", write="")
    reader = Streams(Login(rabbit.port, "reader", "secret"))
    assert reader.query_offset(stream, "none") is None
    with pytest.raises(StreamRefused) as refused:
        reader.publish(stream, [b"a"])
    assert refused.value.response_code == ACCESS_REFUSED
    rabbit.set_rights("reader", configure="", write=".*")
    reader.publish(stream, [b"a"])
    rabbit.create_user("reader", "other")
    with pytest.raises(StreamRefused) as refused:
        reader.publish(stream, [b"a"])
    assert refused.value.response_code == LOGIN_FAILED
    assert set(rabbit.ctl("--silent", "list_users").split()) >= {"reader", "tidemark"}
    assert "guest" not in rabbit.ctl("list_users")


def test_a_virtual_host_has_its_own_streams(rabbit: RabbitMQ, stream: str) -> None:
    rabbit.create_vhost("other/host")
    with pytest.raises(StreamRefused) as refused:
        rabbit.streams("other/host").first_offset(stream)
    assert refused.value.response_code == NO_STREAM
    rabbit.streams("other/host").create_stream(stream)


def test_tls_shows_a_certificate_of_the_authority_and_takes_those_of_clients(rabbit: RabbitMQ, stream: str) -> None:
    context = ssl.create_default_context(cafile=str(rabbit.authority.certificate_file))
    login = Login(rabbit.tls_port, rabbit.user, rabbit.password, tls=context)
    Streams(login).publish(stream, [b"a"])
    client = rabbit.authority.issue("client", "127.0.0.1")
    context.load_cert_chain(client.certificate_file, client.key_file)
    Streams(login).publish(stream, [b"b"])
    stranger = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        Connection(Login(rabbit.tls_port, rabbit.user, rabbit.password, tls=stranger))


def test_a_certificate_is_a_login_in_version_4_only(rabbit: RabbitMQ, stream: str) -> None:
    rabbit.create_user("by-certificate", "")
    client = rabbit.authority.issue("by-certificate", "127.0.0.1")
    context = ssl.create_default_context(cafile=str(rabbit.authority.certificate_file))
    context.load_cert_chain(client.certificate_file, client.key_file)
    streams = Streams(Login(rabbit.tls_port, "", "", tls=context))
    if rabbit.version == 4:
        streams.publish(stream, [b"a"])
    else:
        with pytest.raises(ConnectionError):
            streams.publish(stream, [b"a"])
    with pytest.raises(StreamRefused) as refused:
        Streams(Login(rabbit.port, "by-certificate", "")).publish(stream, [b"a"])
    assert refused.value.response_code == LOGIN_FAILED


def test_packages_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxFailed, match=r"rabbitmq-server, erlang-base"):
        rabbitmq.programs(state=tmp_path)
    assert not list((tmp_path / "rabbitmq").glob("bookworm"))
