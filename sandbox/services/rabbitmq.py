"""A real RabbitMQ server, one node with streams, on free ports of 127.0.0.1.

It runs from unpacked packages, without root and without a service manager. Its ports stay the same after `restart`,
and for a later server with the same state folder. Erlang's `epmd`, which knows the ports of nodes, is a child on a
port of its own.
"""

import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox.bootstrap import rabbitmq
from sandbox.errors import SandboxFailed
from sandbox.services.authority import Authority
from sandbox.services.processes import Child, Service, kept_ports, port_answers
from sandbox.services.streams import Login, Streams

USER = "tidemark"
NODE = "rabbit@localhost"
PLUGINS = ("rabbitmq_stream", "rabbitmq_auth_mechanism_ssl")
# After a restart streams are "not available" for a second, until each has a leader again.
LEADERS = (
    "lists:all(fun(Q) -> (catch is_process_alive(amqqueue:get_pid(Q))) =:= true end, "
    "rabbit_amqqueue:list_by_type(rabbit_stream_queue))"
)
CONNECTS = 20  # tries to connect: on a busy machine a node may miss a handshake, without doing anything
# Two schedulers that do not spin while they wait.
ERLANG = ("+S", "2:2", "+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none", "+B", "i", "+W", "w")


class RabbitMQ(Service):
    """One server of version 3 (3.10) or 4 (4.0). A later one with the same state folder has the same streams.

    The user ``tidemark`` has all rights on the virtual host ``/``; there is no ``guest``. ``authority`` issues
    certificates for clients. Version 4 accepts them for logins (EXTERNAL), as the user with the common name. In version
    3.10 that does not work for streams: it closes the connection.
    """

    def __init__(self, state: Path, version: int = 3) -> None:
        self.state = state.resolve() / "rabbitmq"
        self.log = state.resolve() / "logs" / "rabbitmq.log"
        self.version = version
        self.programs = rabbitmq.programs(version)
        ports = kept_ports(self.state / "ports.json", 5)
        self.amqp_port, self.port, self.tls_port, self._node_port, self._epmd_port = ports
        self.user, self.password = USER, self._kept_secret("password")
        self._kept_secret(".erlang.cookie")
        self.authority = Authority(self.state / "authority")
        self._certificate = self.authority.issue("rabbitmq", "127.0.0.1")
        self._epmd: Child | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_epmd": None}

    def start(self) -> None:
        """Return when the server accepts logins and all its streams answer."""
        (self.state / "rabbitmq.conf").touch(mode=0o600)
        lines = [f"{name} = {value}\n" for name, value in self._settings().items()]
        (self.state / "rabbitmq.conf").write_text("".join(lines))
        (self.state / "enabled_plugins").write_text(f"[{', '.join(PLUGINS)}].\n")
        if self._epmd is None:
            command = [self._program("epmd"), "-address", "127.0.0.1"]
            self._epmd = Child("epmd", command, self.log, env=self.environment, cwd=self.state)
            self._epmd.wait_ready(lambda: port_answers(self._epmd_port), timeout=60)
        command = [
            *(self._program("erlexec"), *ERLANG, "-noinput", "-boot", "start_sasl", "-s", "rabbit", "boot"),
            *("-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"),
            *("-kernel", "prevent_overlapping_partitions", "false", "inet_dist_use_interface", "{127,0,0,1}"),
        ]
        self._child = Child("RabbitMQ", command, self.log, env=self.environment, cwd=self.state)
        self._child.wait_ready(self._answers, timeout=120)
        self._keep_coordinator()
        self._child.wait_ready(lambda: self.erlang(LEADERS) == "true", timeout=60)

    def stop(self) -> None:
        """Stop the server, then epmd; no error if it is not started."""
        super().stop()
        if self._epmd is not None:
            self._epmd.stop()
            self._epmd = None

    def create_user(
        self, name: str, password: str, vhost: str = "/", *, configure: str = ".*", write: str = ".*", read: str = ".*"
    ) -> None:
        """Create a user, or change its password, and set its rights on a virtual host, each as a regular expression.

        A user with an empty password can log in only with a certificate.
        """
        words = ", ".join(map(_text, (name, password)))
        change = f"change_password({words}, {_text(USER)})"
        self.erlang(
            f"case rabbit_auth_backend_internal:exists({_text(name)}) of "
            f"true -> rabbit_auth_backend_internal:{change}; "
            f"false -> rabbit_auth_backend_internal:add_user({words}, {_text(USER)}) end"
        )
        self.set_rights(name, vhost, configure=configure, write=write, read=read)

    def set_rights(
        self, user: str, vhost: str = "/", *, configure: str = ".*", write: str = ".*", read: str = ".*"
    ) -> None:
        """Replace the rights of a user on a virtual host; an empty text gives none."""
        words = ", ".join(map(_text, (user, vhost, configure, write, read, USER)))
        self.erlang(f"rabbit_auth_backend_internal:set_permissions({words})")

    def create_vhost(self, name: str) -> None:
        """Create a virtual host, which the user ``tidemark`` may use."""
        self.erlang(f"rabbit_vhost:add({_text(name)}, {_text(USER)})")
        self.set_rights(USER, name)

    def streams(self, vhost: str = "/") -> Streams:
        """Return the streams of a virtual host. Tests use them to create, publish and delete as the user
        ``tidemark``.
        """
        return Streams(Login(self.port, self.user, self.password, vhost))

    def create_super_stream(self, name: str, partitions: int, vhost: str = "/") -> list[str]:
        """Create a super stream as `rabbitmq-streams add_super_stream` does; return the names of its members."""
        members = [f"{name}-{number}" for number in range(partitions)]
        keys = [str(number) for number in range(partitions)]
        words = (_text(vhost), _text(name), _texts(members), "#{}", _texts(keys), _text(USER))
        answer = self.erlang(f"rabbit_stream_manager:create_super_stream({', '.join(words)})")
        if answer != "ok":
            raise SandboxFailed(f"super stream {name} was not created: {answer}", next_step="choose another name")
        return members

    def erlang(self, expression: str) -> str:
        """Return the value of an Erlang expression in the server: 20 ms, where `rabbitmqctl` takes seconds."""
        address = ["-address", f"127.0.0.1:{self._node_port}"]  # -r: under a random name
        for _ in range(CONNECTS):
            done = subprocess.run(
                [self._program("erl_call"), "-r", *address, "-e"],
                input=f"{expression}.\n", env=self.environment, text=True, capture_output=True,
            )  # fmt: skip
            if "failed to connect" not in done.stderr:
                break
            time.sleep(0.5)
        if done.returncode != 0 or not done.stdout.startswith("{ok, "):
            message = f"RabbitMQ did not do {expression}:\n{done.stdout}{done.stderr}"
            raise SandboxFailed(message, next_step=f"read {self.log}")
        return done.stdout.removeprefix("{ok, ").rstrip().removesuffix("}")

    def ctl(self, *words: str) -> str:
        """Return the output of `rabbitmqctl` for these words; it takes seconds."""
        script = str(self.programs.home / "escript" / "rabbitmqctl")
        done = subprocess.run(
            [
                *(self._program("erlexec"), "+B", "-boot", "start_clean", "-noinput", "-noshell", "-hidden"),
                *("-run", "escript", "start", "-escript", "main", "rabbitmqctl_escript"),
                *("-extra", script, "--node", NODE, *words),
            ],
            env=self.environment, text=True, capture_output=True,
        )  # fmt: skip
        if done.returncode != 0:
            message = f"rabbitmqctl {' '.join(words)} failed:\n{done.stdout}{done.stderr}"
            raise SandboxFailed(message, next_step=f"read {self.log}")
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of RabbitMQ's programs, with all their paths: they know none by themselves."""
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.state),
            "ROOTDIR": str(self.programs.erlang),
            "BINDIR": str(self.programs.erlang_programs),
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_LIBS": str(self.programs.home / "plugins"),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "SYS_PREFIX": str(self.state),
            "RABBITMQ_HOME": str(self.programs.home),
            "RABBITMQ_NODENAME": NODE,
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": str(self.state / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.state / "enabled_plugins"),
            "RABBITMQ_LOGS": "-",
        }

    def _program(self, name: str) -> str:
        return str(self.programs.erlang_programs / name)

    def _answers(self) -> bool:
        if not all(map(port_answers, (self.amqp_port, self.port, self.tls_port))):
            return False
        with contextlib.suppress(SandboxFailed):
            return self.erlang("rabbit:is_running()") == "true"
        return False

    def _keep_coordinator(self) -> None:
        """Start the coordinator, which chooses the leaders of streams, if it never was started, and write its name to
        the disk.

        Otherwise the first stream starts it. A server that is killed within 3 s of that forgets it: its streams would
        have no leaders until another stream is created.
        """
        if self.erlang("whereis(rabbit_stream_coordinator)") == "undefined":
            self.streams().create_stream("first")
            self.streams().delete_stream("first")
            self.erlang("lists:foreach(fun dets:sync/1, dets:all())")

    def _settings(self) -> dict[str, object]:
        return {
            "listeners.tcp.1": f"127.0.0.1:{self.amqp_port}",
            "stream.listeners.tcp.1": f"127.0.0.1:{self.port}",
            "stream.listeners.ssl.1": f"127.0.0.1:{self.tls_port}",
            # The addresses that Metadata gives to clients.
            "stream.advertised_host": "127.0.0.1",
            "stream.advertised_port": self.port,
            "stream.advertised_tls_port": self.tls_port,
            "ssl_options.cacertfile": self.authority.certificate_file,
            "ssl_options.certfile": self._certificate.certificate_file,
            "ssl_options.keyfile": self._certificate.key_file,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "false",
            "auth_mechanisms.1": "PLAIN",
            "auth_mechanisms.2": "AMQPLAIN",
            "auth_mechanisms.3": "EXTERNAL",
            "ssl_cert_login_from": "common_name",
            "default_user": self.user,
            "default_pass": self.password,
            "log.console": "true",
            "log.console.level": "warning",
            "log.file": "false",
            # Above it the server stops publishers.
            "vm_memory_high_watermark.absolute": "512MiB",
            "disk_free_limit.absolute": "50MB",
        }

    def _kept_secret(self, name: str) -> str:
        """Return the text of a file of that name, which only we can read; create it if it is missing."""
        file = self.state / name
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_hex(16))
        return file.read_text()


def _text(text: str) -> str:
    """Return an Erlang binary with these characters."""
    return f"<<{','.join(map(str, text.encode()))}>>"


def _texts(texts: Iterable[str]) -> str:
    """Return an Erlang list of binaries."""
    return f"[{', '.join(map(_text, texts))}]"
