"""A right that a user of PostgreSQL lacks: the very GRANT lines are named, and with them the work goes on."""

import secrets
from collections.abc import Callable, Iterator

import psycopg
import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World

MakeTableWorld = Callable[..., TableWorld]
ALL = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA"

# What is taken away, and the line that gives it back; {role} is the user.
OF_THE_SINK = {
    "USAGE ON SCHEMA public": "GRANT USAGE ON SCHEMA public TO {role}",
    "USAGE ON SCHEMA tidemark_target": "GRANT USAGE ON SCHEMA tidemark_target TO {role}",
    "CREATE ON SCHEMA tidemark_target": "GRANT CREATE ON SCHEMA tidemark_target TO {role}",
    "SELECT ON public.latest": "GRANT SELECT ON TABLE public.latest TO {role}",
    "INSERT ON public.latest": "GRANT INSERT ON TABLE public.latest TO {role}",
    "UPDATE ON public.latest": "GRANT UPDATE ON TABLE public.latest TO {role}",
    "SELECT ON tidemark_target.marker": "GRANT SELECT ON TABLE tidemark_target.marker TO {role}",
    "INSERT ON tidemark_target.marker": "GRANT INSERT ON TABLE tidemark_target.marker TO {role}",
    "UPDATE ON tidemark_target.owner": "GRANT UPDATE ON TABLE tidemark_target.owner TO {role}",
}
OF_THE_LEDGER = {
    "USAGE ON SCHEMA tidemark": "GRANT USAGE ON SCHEMA tidemark TO {role}",
    "SELECT ON tidemark.manifest": "GRANT SELECT ON TABLE tidemark.manifest TO {role}",
    "INSERT ON tidemark.manifest_range": "GRANT INSERT ON TABLE tidemark.manifest_range TO {role}",
    "UPDATE ON tidemark.manifest": "GRANT UPDATE ON TABLE tidemark.manifest TO {role}",
    "DELETE ON tidemark.failed_task": "GRANT DELETE ON TABLE tidemark.failed_task TO {role}",
    "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tidemark": "GRANT DELETE, INSERT, SELECT, UPDATE "
    "ON ALL TABLES IN SCHEMA tidemark TO {role}",
}


@pytest.fixture
def role(postgres: Postgres) -> Iterator[str]:
    """A user of no database."""
    name = f"guest_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.dsn("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'guest'")
        yield name
        connection.execute(f"DROP ROLE {name}")


def as_role(dsn: str, role: str) -> str:
    return f"postgresql://{role}:guest@{dsn.rpartition('@')[2]}"


def grant_all(dsn: str, role: str, schemas: tuple[str, ...]) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for schema in schemas:
            connection.execute(f"REVOKE USAGE ON SCHEMA {schema} FROM PUBLIC")
            connection.execute(f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}")
            connection.execute(f"GRANT {ALL} {schema} TO {role}")
            connection.execute(f"GRANT UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")


def lines_of(told: str) -> list[str]:
    """The statements that a message names."""
    step = told.split("run in that database: " if "run in that" in told else "run in its database: ")[1].splitlines()[0]
    return [line for line in step.split("; ") if line.startswith("GRANT ")]


@pytest.mark.parametrize("right", OF_THE_SINK)
def test_a_right_that_a_sink_lacks_is_named_with_its_grant(
    make_table_world: MakeTableWorld, role: str, right: str
) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    owner = world.targets["warehouse"]
    try:
        grant_all(owner, role, ("public", "tidemark_target"))
        world.targets["warehouse"] = as_role(owner, role)
        world.produce(20)
        world.ok("run", "demo")
        world.execute(f"REVOKE {right} FROM {role}", owner)
        world.produce(20)
        refused = world.here("run", "demo")
        expected = OF_THE_SINK[right].format(role=role)
        assert (refused.exit_code, lines_of(refused.stderr)) == (1, [expected]), refused.stderr
        for line in lines_of(refused.stderr):
            world.execute(line, owner)
        world.ok("retry", "demo")
        world.ok("run", "demo")
        assert world.status("demo")[0]["state"] == "ok"
        world.assert_complete()
    finally:
        world.targets["warehouse"] = owner
        world.execute(f"DROP OWNED BY {role}", owner)


@pytest.mark.parametrize("right", OF_THE_LEDGER)
def test_a_right_that_the_manifest_database_lacks_is_named_with_its_grant(
    make_world: Callable[..., World], role: str, right: str
) -> None:
    world = make_world()
    owner = world.dsn
    try:
        grant_all(owner, role, ("tidemark",))
        world.dsn = as_role(owner, role)
        world.produce(20)
        world.ok("run", "demo")
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(f"REVOKE {right} FROM {role}")
            world.produce(20)
            refused = world.here("run", "demo")
            expected = OF_THE_LEDGER[right].format(role=role)
            assert (refused.exit_code, lines_of(refused.stderr)) == (1, [expected]), refused.stderr
            for line in lines_of(refused.stderr):
                connection.execute(line)
        world.ok("retry", "demo")
        world.ok("run", "demo")
        world.assert_complete()
    finally:
        world.dsn = owner
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}")
