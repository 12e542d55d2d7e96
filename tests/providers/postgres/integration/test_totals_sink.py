"""Totals by the command line: what they count, what they refuse, and what people ask of them."""

import json
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from tests.worlds.dynamo_world import DynamoWorld
from tests.worlds.totals_world import AGGREGATE, TotalsWorld, totals_sink

Make = Callable[..., TotalsWorld]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}


@pytest.fixture(params=["same database", "another database", "beside a lake"])
def world(request: pytest.FixtureRequest, make_totals_world: Make) -> TotalsWorld:
    """Two manifests published."""
    made = make_totals_world(same=request.param == "same database", has_lake=request.param == "beside a lake")
    made.produce(60, bad_every=13)
    made.ok("run", "demo", "--run-key", "one")
    return made


def test_a_run_counts_every_record_once_and_each_manifest_shows_what_it_contributed(world: TotalsWorld) -> None:
    world.assert_complete()
    contributed = world.query(
        "SELECT _manifest_id, sum(_rows)::int AS rows FROM public.totals_contributions GROUP BY 1 ORDER BY 1"
    )
    written = [world.json("show", str(manifest["id"]))["counts"]["written"] for manifest in world.manifests()]
    assert [row["rows"] for row in contributed] == written
    world.produce(30)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()


@pytest.mark.parametrize("order", [*permutations([1, 2])], ids=str)
def test_manifests_may_be_replayed_in_any_order_and_any_number_of_times(
    make_totals_world: Make, order: tuple[int, ...]
) -> None:
    world = make_totals_world()
    world.produce(60, bad_every=13)
    world.ok("plan", "demo", "--run-key", "one")
    for manifest in (*order, *order):
        world.damage({"id": manifest}) if world.rows() else None
        world.ok("retry" if not world.rows() else "replay", "demo", "--manifest", str(manifest))
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_replay_with_other_code_replaces_what_the_manifest_contributed(make_totals_world: Make) -> None:
    """Also a key that it no longer contributes to; a total that nothing is left of is gone."""
    world = make_totals_world(settings=ONE_MANIFEST)
    world.produce(60)
    world.ok("run", "demo")
    everything = world.rows()
    world.settings["transform"] = [{"filter": "n >= 9 AND k <> 3"}]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    fewer = world.rows()
    assert {k for k, _ in fewer} == {0, 1, 2, 4, 5, 6, 7, 8}
    assert sum(row[0] for row in fewer.values()) == sum(1 for n in range(9, 60) if n % 9 != 3)
    assert world.query("SELECT FROM public.totals_contributions WHERE _rows = 0 OR k = 3") == []
    assert world.ok("audit", "demo", "--deep") == ""
    world.settings["transform"] = [{"filter": "n < 0"}]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    assert world.rows() == {}
    del world.settings["transform"]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    assert world.rows() == everything, "I19 contributions"
    world.assert_complete()


def test_a_late_record_joins_its_window_and_a_window_without_records_has_no_row(make_totals_world: Make) -> None:
    world = make_totals_world()
    world.send(*(record(at) for at in ("2024-03-01T00:59:59Z", "2024-03-01T05:00:00Z")))
    world.ok("run", "demo")
    world.send(record("2024-03-01T00:00:00Z"))
    world.ok("run", "demo", "--run-key", "late")
    starts = {start.isoformat(): row[0] for (_, start), row in world.rows().items()}
    assert starts == {"2024-03-01T00:00:00+00:00": 2, "2024-03-01T05:00:00+00:00": 1}
    assert world.ok("audit", "demo", "--deep") == ""


def record(at: str, **more: Any) -> str:
    return json.dumps({"n": 1, "at": at, "name": "x", "k": 1, **more})


def test_sums_have_any_number_of_digits_a_null_key_is_a_dead_letter_and_nan_is_no_value(
    make_totals_world: Make,
) -> None:
    world = make_totals_world()
    values = {"n_sum": "sum(n)", "cost": "sum(price)", "least": "min(weight)", "most": "max(weight)"}
    world.settings["sinks"] = [totals_sink(aggregate={"group_by": ["k", "_topic"], "values": values})]
    schema = "n BIGINT, at TIMESTAMP NOT NULL, k STRING NOT NULL, price DECIMAL(38, 4), weight DOUBLE"
    world.settings["decode"] = {"format": "json", "schema": schema}
    world.write_pipeline()
    time = "2024-03-01T00:00:00Z"
    largest = "9" * 34 + ".9999"
    world.send(
        *(
            record(time, k="é ,\"'", n=2**63 - 1, price=0).replace('"price": 0', f'"price": {largest}')
            for _ in range(3)
        ),
        record(time, k="é ,\"'", n=None),
        record(time, k=None),
        record(time, k="", weight=2.5, n=None),
        record(time, k="", weight=-1.5, n=None),
    )
    world.ok("run", "demo")
    rows = world.query("SELECT k, _topic, _rows, n_sum, cost::text, least, most FROM public.totals ORDER BY k")
    assert [tuple(row.values()) for row in rows] == [
        ("", world.topic, 2, None, None, -1.5, 2.5),
        ("é ,\"'", world.topic, 4, 3 * (2**63 - 1), "2" + "9" * 34 + ".9997", None, None),
    ]
    assert world.json("dead-letters", "demo")["count"] == 1
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize(
    ("damage", "message", "advice"),
    [
        ("UPDATE public.totals SET least = 0 WHERE k = 1", "not the combination of their contributions, such as (1,",
         "tidemark replay demo --manifest"),
        ("DELETE FROM public.totals WHERE k = 1", "not the combination of their contributions, such as (1,",
         "tidemark replay demo --manifest"),
        ("INSERT INTO public.totals (k, window_start, _rows) VALUES (99, now(), 1)",
         "1 totals of public.totals have no contributions, such as (99,", "delete those rows by hand"),
        ("DELETE FROM tidemark_target.dead_letter WHERE _manifest_id = 2",
         "manifest 2: 0 dead letters are kept where 2 were", "tidemark replay demo --manifest 2"),
    ],
)  # fmt: skip
def test_a_total_that_was_changed_is_named_and_a_replay_combines_it_again(
    make_totals_world: Make, damage: str, message: str, advice: str
) -> None:
    world = make_totals_world()
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    world.execute(damage)
    audit = world.here("audit", "demo", "--deep")
    assert audit.exit_code == 1
    assert message in audit.stdout
    assert advice in audit.stdout
    if "by hand" in advice:
        world.execute("DELETE FROM public.totals WHERE k = 99")
    for line in audit.stdout.splitlines():
        if "replay" in line:
            world.ok(*line.rpartition("next: tidemark ")[2].split())
    world.assert_complete()


def test_a_contribution_that_was_changed_is_named_by_its_manifest(make_totals_world: Make) -> None:
    world = make_totals_world()
    world.produce(60)
    world.ok("run", "demo")
    world.execute("UPDATE public.totals_contributions SET n_sum = n_sum + 1 WHERE _manifest_id = 2")
    assert "manifest 2: its contributions were changed by hand" in world.here("audit", "demo", "--deep").stdout
    world.execute("UPDATE public.totals_contributions SET _rows = _rows + 1 WHERE _manifest_id = 2")
    assert "manifest 2: the contributions of it count" in world.here("audit", "demo", "--deep").stdout
    world.ok("replay", "demo", "--manifest", "2")
    world.assert_complete()
    world.execute("INSERT INTO public.totals_contributions SELECT k, window_start, 99, 1, 0 FROM public.totals LIMIT 1")
    stray = world.here("audit", "demo", "--deep").stdout
    assert "has 1 rows of manifest 99, which has contributed nothing" in stray


@pytest.mark.parametrize("key", ["k", "n"])
@pytest.mark.parametrize(
    "gone", [(1,), *(pytest.param(gone, marks=pytest.mark.exhaustive) for gone in [(3,), (1, 2), (2, 3)]), (1, 2, 3)]
)
def test_contributions_that_were_deleted_are_counted_once_in_whatever_order_the_audits_replays_are_done(
    make_totals_world: Make, gone: tuple[int, ...], key: str
) -> None:
    """Of one, two or three manifests, with totals that they share (``k``) and without; a marker may be gone too."""
    world = make_totals_world(settings=ONE_MANIFEST)
    values = {"records": "count", "n_sum": "sum(n)", "least": "min(n)"}
    world.settings["sinks"] = [totals_sink(aggregate={"group_by": [key], "values": values})]
    world.write_pipeline()
    for number in (1, 2, 3):
        world.produce(30)
        world.ok("run", "demo", "--run-key", str(number))
    asked = f"SELECT {key}, _rows, records, n_sum, least FROM public.totals ORDER BY {key}"
    right = world.query(asked)
    for number, order in enumerate(permutations(range(3))):
        world.execute(f"DELETE FROM public.totals_contributions WHERE _manifest_id = ANY (ARRAY{[*gone]})")
        if number % 2:
            world.execute(f"DELETE FROM tidemark_target.marker WHERE manifest = {gone[0]}")
        audit = world.here("audit", "demo", "--deep")
        assert audit.exit_code == 1
        printed = sorted(line.rpartition("next: ")[2] for line in audit.stdout.splitlines() if "replay demo" in line)
        replays = [line for line in dict.fromkeys(printed) if line.startswith("tidemark replay")]
        assert {f"tidemark replay demo --manifest {manifest}" for manifest in gone} <= set(replays)
        for place in order:
            if place < len(replays):
                world.ok(*replays[place].split()[1:])
        assert world.query(asked) == right, "I19 contributions"
        assert world.ok("audit", "demo", "--deep") == ""


def test_where_names_the_contributions_of_the_manifest_or_the_dead_letter(make_totals_world: Make) -> None:
    world = make_totals_world()
    world.produce(60, bad_every=9)
    world.ok("run", "demo")
    row = world.ok("where", world.topic, "1", "3")
    assert "records that the manifest has contributed to" in row
    assert "public.totals_contributions with _manifest_id = 1" in row
    assert "a dead letter" in world.ok("where", world.topic, "0", "0")


def test_one_table_holds_the_totals_of_one_pipeline_by_one_definition(make_totals_world: Make) -> None:
    world = make_totals_world()
    world.produce(60)
    world.ok("run", "demo")
    text = world.another("second")
    (world.pipelines / "second.yaml").write_text(text)
    refused = world.here("run", "second")
    assert refused.exit_code == 1
    assert "the table holds totals of pipeline demo, and the two would mix" in refused.stderr
    (world.pipelines / "second.yaml").unlink()
    world.settings["sinks"] = [totals_sink(aggregate={**AGGREGATE, "values": {"records": "count(name)"}})]
    world.write_pipeline()
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "the table holds totals by another aggregate than this one" in refused.stderr
    world.settings["sinks"] = [totals_sink()]
    world.write_pipeline()
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


def test_a_definition_that_was_deleted_is_not_taken_for_one_that_never_was(make_totals_world: Make) -> None:
    world = make_totals_world()
    world.produce(60)
    world.ok("run", "demo")
    world.execute("DELETE FROM tidemark_target.aggregate")
    world.settings["sinks"] = [totals_sink(aggregate={**AGGREGATE, "window": "1d"})]
    world.write_pipeline()
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "tidemark_target.aggregate no longer says what they add up" in refused.stderr
    world.settings["sinks"] = [totals_sink()]
    world.write_pipeline()
    refused = world.here("run", "demo")
    world.execute(refused.stderr.partition("run in its database: ")[2].partition(" Else")[0])
    world.ok("retry", "demo")
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()


def test_too_many_keys_are_named_and_nothing_is_applied(make_totals_world: Make) -> None:
    world = make_totals_world(settings=ONE_MANIFEST)
    world.settings["sinks"] = [totals_sink(max_keys=10)]
    world.write_pipeline()
    world.produce(60)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    keys = len(world.latest(world.everything()))
    assert f"the manifest contributes to {keys} keys, and max_keys is 10" in refused.stderr
    assert world.rows() == {}
    world.settings["sinks"] = [totals_sink()]
    world.write_pipeline()
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "CREATE TABLE public.totals (k bigint, window_start timestamptz)",
            "no unique key over just (k, window_start)",
        ),
        ("CREATE TABLE public.totals (n_sum numeric(12, 2))", "column n_sum is numeric(12,2), the rows have numeric"),
        ("CREATE TABLE public.totals_contributions (k text)", "column k is text, the rows have bigint"),
        ("CREATE TABLE public.totals (k numeric(10, 1))", "column k is numeric(10,1), the rows have bigint"),
    ],
)
def test_a_table_of_another_shape_is_refused_by_name(make_totals_world: Make, statement: str, message: str) -> None:
    world = make_totals_world()
    world.execute(statement)
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert message in refused.stderr


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("character(5)", "column k is character(5), the rows have text"),
        ("text COLLATE folded", "column k has a collation in which different texts are equal"),
    ],
)
def test_a_key_in_which_different_texts_are_equal_is_refused(make_totals_world: Make, kind: str, message: str) -> None:
    world = make_totals_world(settings=ONE_MANIFEST)
    # The PostgreSQL of the tests has no ICU, whose collations these are.
    world.execute("CREATE COLLATION public.folded (locale = 'C')")
    world.execute("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'folded'")
    for table in ("totals", "totals_contributions"):
        also = "" if table == "totals" else ", _manifest_id bigint, _attempt int NOT NULL"
        key = "k" if table == "totals" else "k, _manifest_id"
        columns = f"k {kind}, _rows bigint NOT NULL, records bigint{also}, PRIMARY KEY ({key})"
        world.execute(f"SET search_path = public; CREATE TABLE {table} ({columns})")
    world.settings["decode"] = {"format": "json", "schema": "at TIMESTAMP NOT NULL, k STRING NOT NULL"}
    world.settings["sinks"] = [totals_sink(aggregate={"group_by": ["k"], "values": {"records": "count"}})]
    world.write_pipeline()
    world.send(*(json.dumps({"at": "2024-03-01T00:00:00Z", "k": k}) for k in ("a", "A", "a ")))
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert message in refused.stderr
    for change in ("totals", "totals_contributions") if "COLLATE" in kind else ():
        world.execute(f'ALTER TABLE public.{change} ALTER COLUMN k TYPE text COLLATE "C"')
        world.here("retry", "demo")
    if "COLLATE" in kind:
        rows = world.query('SELECT k, records FROM public.totals ORDER BY k COLLATE "C"')
        assert [tuple(row.values()) for row in rows] == [("A", 1), ("a", 1), ("a ", 1)]
        assert world.ok("audit", "demo", "--deep") == ""


def test_numbers_in_a_key_are_equal_whatever_type_they_have(make_totals_world: Make) -> None:
    """PostgreSQL compares numbers, so 3.0 is 3.00; a change of the column is asked for."""
    world = make_totals_world(settings=ONE_MANIFEST)
    world.settings["sinks"] = [totals_sink(aggregate={"group_by": ["price"], "values": {"records": "count"}})]
    for number, kind in enumerate(("DECIMAL(10, 1)", "DECIMAL(10, 2)"), start=1):
        world.settings["decode"] = {"format": "json", "schema": f"at TIMESTAMP NOT NULL, price {kind} NOT NULL"}
        world.write_pipeline()
        world.send('{"at": "2024-03-01T00:00:00Z", "price": 3.0}', '{"at": "2024-03-01T00:00:00Z", "price": -0.0}')
        done = world.here("run", "demo", "--run-key", str(number))
        while done.exit_code and "ALTER TABLE" in done.stderr:
            world.execute(done.stderr.partition("run in its database: ")[2].partition(";")[0])
            done = world.here("retry", "demo")
        assert done.exit_code == 0, done.stderr
        rows = world.query("SELECT price::int, records FROM public.totals ORDER BY price")
        assert [tuple(row.values()) for row in rows] == [(0, number), (3, number)]
    assert world.ok("audit", "demo", "--deep") == ""


def test_the_statements_that_a_refusal_names_are_all_that_is_missing(make_totals_world: Make) -> None:
    world = make_totals_world()
    world.settings["sinks"] = [totals_sink(auto_create=False)]
    world.write_pipeline()
    world.produce(60)
    for command in (("run", "demo"), ("retry", "demo")):
        refused = world.here(*command)
        assert refused.exit_code == 1
        world.execute(refused.stderr.partition("run in its database: ")[2].partition(";;")[0].partition(";\n")[0])
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


def test_a_sink_that_is_added_is_filled_and_one_that_is_renamed_goes_on(make_totals_world: Make) -> None:
    world = make_totals_world(has_lake=True)
    lake, totals = world.settings["sinks"]
    world.add_and_rename(totals, lake, to="running")
    assert world.rows() == world.latest(world.everything())
    assert world.ok("audit", "demo", "--deep") == ""


def test_an_empty_database_adopts_what_markers_say(world: TotalsWorld) -> None:
    world.lose_manifest_database()
    refused = world.here("run", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "belongs to another manifest database" in refused.stderr
    assert world.json("db", "adopt", "demo", "--why", "a test")["manifests"] == [1, 2]
    world.assert_complete()
    world.produce(20)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()


def test_the_doctor_tries_what_an_attempt_needs_and_leaves_nothing(make_totals_world: Make) -> None:
    world = make_totals_world()
    assert "tables, keys and rights are what an attempt needs" in world.here("doctor", "demo").stdout
    assert world.query("SELECT FROM pg_class WHERE starts_with(relname, 'totals')") == []


def test_adopting_a_target_combines_all_totals_again_as_its_tables_may_be_of_different_copies(
    make_totals_world: Make,
) -> None:
    """A total that is wrong, one that is missing, and one that nobody contributes to."""
    world = make_totals_world()
    world.produce(60)
    world.ok("run", "demo")
    right = world.rows()
    world.execute("UPDATE public.totals SET n_sum = n_sum + 1, last_name = NULL WHERE k = 1")
    world.execute("DELETE FROM public.totals WHERE k = 2")
    world.execute("INSERT INTO public.totals (k, window_start, _rows) VALUES (99, now(), 1)")
    world.lose_manifest_database()
    wrong = world.rows()
    told = world.json("db", "adopt", "demo", "--why", "a test", "--dry-run")["lines"]
    assert "totals combined again from what the manifests have contributed" in told[-1]
    assert world.rows() == wrong
    assert world.json("db", "adopt", "demo", "--why", "a test")["lines"] == told
    assert world.rows() == right
    world.assert_complete()


@pytest.fixture(params=["totals", "dynamodb"])
def either(
    request: pytest.FixtureRequest, make_totals_world: Make, make_dynamo_world: Callable[..., DynamoWorld]
) -> TotalsWorld:
    """Totals in PostgreSQL or in DynamoDB, of one published manifest."""
    made = (make_totals_world if request.param == "totals" else make_dynamo_world)(settings=ONE_MANIFEST)
    made.produce(60)
    made.ok("run", "demo")
    return made


def test_totals_are_not_combined_by_another_aggregate_than_they_were_made_by(either: TotalsWorld) -> None:
    """``adopt`` refuses the file, and changes nothing."""
    right = either.rows()
    [[kind, own]] = either.settings["sinks"][-1].items()
    other = {**AGGREGATE, "values": {**AGGREGATE["values"], "n_sum": "max(n)"}}
    either.settings["sinks"][-1] = {kind: {**own, "aggregate": other}}
    either.write_pipeline()
    either.lose_manifest_database()
    for dry_run in (["--dry-run"], []):
        refused = either.here("db", "adopt", "demo", "--why", "a test", *dry_run)
        assert refused.exit_code == 1
        assert "the table holds totals by another aggregate than this one" in refused.stderr
        assert "put the aggregate that they were made by back into the pipeline file" in refused.stderr
        assert either.rows() == right
    either.settings["sinks"][-1] = {kind: own}
    either.write_pipeline()
    assert either.json("db", "adopt", "demo", "--why", "a test")["manifests"] == [1]
    either.produce(20)
    either.ok("run", "demo")
    either.assert_complete()


def test_what_a_retired_sink_of_the_same_table_has_contributed_is_not_added_a_second_time(
    make_totals_world: Make,
) -> None:
    """Also when somebody deletes those contributions, which the audit does not ask for."""
    world = make_totals_world(settings=ONE_MANIFEST, has_lake=True)
    world.produce(60)
    world.ok("run", "demo")
    right = world.rows()
    lake = [entry for entry in world.settings["sinks"] if "totals" not in entry]
    world.settings["sinks"] = lake
    world.write_pipeline()
    world.ok("retire", "sink", "demo", "totals", "--why", "a test")
    world.settings["sinks"] = [*lake, totals_sink(name="sums")]
    world.write_pipeline()
    audit = world.here("audit", "demo", "--deep").stdout
    assert "rows of manifest 1, which sums has not published" in audit
    assert "tidemark fill demo sums --why TEXT" in audit
    assert "by hand" not in audit
    world.execute("DELETE FROM public.totals_contributions WHERE _manifest_id = 1")
    world.ok("fill", "demo", "sums", "--why", "a test")
    assert world.rows() == right
    world.ok("audit", "demo", "--deep")


def test_totals_that_nobody_owns_are_not_added_to(either: TotalsWorld) -> None:
    """All that says what they are made of is gone; with the rows gone too, everything is read again."""
    either.execute("DROP TABLE public.totals_contributions; DROP SCHEMA tidemark_target CASCADE")
    either.lose_manifest_database()
    right = either.rows()
    refused = either.here("run", "demo", "--run-key", "one")
    assert refused.exit_code == 1
    assert "nothing says any longer which manifests they come from: new totals would be added to them" in refused.stderr
    assert either.rows() == right
    either.execute("DELETE FROM public.totals")
    if isinstance(either, DynamoWorld):
        either.client.delete_table(TableName=either.items_table)
    either.ok("retry", "demo")
    either.ok("run", "demo", "--run-key", "two")
    either.assert_complete()
