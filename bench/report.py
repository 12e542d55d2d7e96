"""The figures as Markdown, for a terminal and for `bench/README.md`."""

import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bench import debezium, fleet_report, flink
from bench.records import SMALL_MESSAGES
from bench.timed import MIB, Timing
from sandbox.bootstrap.jars import java

BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"  # the marks of a part in the README
NAMES = {
    "tidemark": "`tidemark run`",
    "warm": "`tidemark run`, Spark stays up",
    "beside": "`tidemark run` of the checkout beside",
    "flink": "Flink, a bounded job",
    "batch": "plain Spark batch job",
    "streaming": "Structured Streaming, `availableNow`",
    "noop": "Spark reading into `noop`",
}
OWN = ("tidemark", "warm", "beside")  # these contenders publish
LONGEST_PLAN_S = 3.0
MOST_US = 2.0  # microseconds of a decoder for a record
TOPIC_PER_SECOND = 60_000
LONGEST_COMMIT_S = 2.0
LONGEST_VIEW_S = 0.3
LONGEST_GROUP_RUN_S = 240
LONGEST_IDLE_RUN_S = 30
GROUP_STEPS = {
    "plan": "`tidemark plan`",
    "run": "`tidemark run` of what was planned",
    "idle": "`tidemark run` with nothing new",
}


def machine() -> dict[str, Any]:
    """Return the machine and the versions of the measurement."""
    java_version = subprocess.run([java(), "-version"], capture_output=True, text=True).stderr.splitlines()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30)),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "java": java_version[0] if java_version else "unknown",
        "spark": version("pyspark"),
        "flink": flink.version(),
        "pyarrow": pa.__version__,
    }


def line(kind: str, timing: Timing) -> str:
    """Return one run in one line."""
    memory = f"{timing.memory / MIB:,.0f} MiB"
    return (
        f"{kind}: whole {timing.whole:.1f} s, session {timing.session:.1f} s, job {timing.job:.1f} s, "
        f"publish {timing.publish:.2f} s, processor {timing.cpu:.1f} s, memory {memory}, {timing.files} files"
    )


def sections(figures: dict[str, Any]) -> dict[str, str]:
    """Return the figures of each part as Markdown; ``machine`` is the first."""
    of = figures["machine"]
    machine = (
        f"The machine: {of['cores']} cores, {of['memory_gib']} GiB, Python {of['python']}, {of['java']}, "
        f"Spark {of['spark']}, Flink {of['flink']}, pyarrow {of['pyarrow']}."
    )
    parts = {name: _SECTIONS[name](figures) for name in _SECTIONS if name in figures}
    when = f"*Measured on {of['date']}, load average before: {of['load_before']}, medians of {figures['runs']}.*"
    return {"machine": machine, **{name: f"{text}\n\n{when}" for name, text in parts.items()}}


def _left_out(figures: dict[str, Any]) -> str:
    return "".join(f"\n\n{NAMES[kind]}, was left out: {why}" for kind, why in figures.get("left_out", {}).items())


def _decoders(decoders: dict[str, dict[str, float]]) -> str:
    raw = decoders["raw"]
    rows = [
        "**Decoders**, the same records in every format, processor time of one core in one process:",
        "",
        "| `format` | bytes a record | decoder alone | the pass without a sink | messages/s per core | beside `raw` |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {_format(kind)} | {of['bytes']:.0f} | {of['decoder']:.2f} us a record | {of['pass']:.2f} us a record "
        f"| {1e6 / of['pass']:,.0f} | {of['pass'] / raw['pass']:.1f} times |"
        for kind, of in decoders.items()
    ]
    slow = [f"{kind} {decoders[kind]['decoder']:.2f}" for kind in ("avro", "protobuf")]
    goal = (
        f"- Avro and Protobuf with a registry's frame: {' and '.join(slow)} us a record (target at most {MOST_US:.0f})"
    )
    lines = [
        f"- {_format(name)}: the decoder alone takes {_of(decoders, name, plain, 'decoder')} that of `{plain}`, "
        f"the pass {_of(decoders, name, plain, 'pass')}"
        for name, plain in debezium.FORMATS.items()
    ]
    return "\n".join([*rows, "", goal, *lines])


def _format(name: str) -> str:
    kind, comma, rest = name.partition(",")
    return f"`{kind}`{comma}{rest}"


def _of(decoders: dict[str, dict[str, float]], name: str, plain: str, part: str) -> str:
    return f"{decoders[name][part] / decoders[plain][part]:.1f} times"


def _median(timings: list[dict[str, Any]], name: str) -> float:
    return statistics.median(float(timing[name]) for timing in timings)


def _spread(timings: list[dict[str, Any]], name: str) -> str:
    values = [float(timing[name]) for timing in timings]
    return f"{min(values):.1f} to {max(values):.1f}"


def _beside(own: list[dict[str, Any]], others: list[dict[str, Any]], name: str) -> float:
    """Return how many times as long others took, as the median over the turns: other load slows both of a turn down."""
    return statistics.median(float(theirs[name]) / float(ours[name]) for ours, theirs in zip(own, others, strict=True))


def _jobs(jobs: dict[str, list[dict[str, Any]]], messages: int) -> str:
    rows = [
        "| | takes a job after | job | messages/s | publish | memory | files | MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, timings in jobs.items():
        job = _median(timings, "job")
        publish = f"{_median(timings, 'publish'):.2f} s" if kind in OWN else ""
        files, size = _median(timings, "files"), _median(timings, "bytes") / MIB
        wrote = f"{files:,.0f} | {size:,.0f}" if files else " | "
        rows.append(
            f"| {NAMES[kind]} | {_median(timings, 'session'):.1f} s | {job:.1f} s | {messages / job:,.0f} | {publish} "
            f"| {_median(timings, 'memory') / MIB:,.0f} MiB | {wrote} |"
        )
    title = f"**{messages:,} messages**, JSON to Parquet by event hour:"
    return "\n".join([title, "", *_wholes(jobs, messages), "", *rows, "", *_files(jobs), "", *_ratios(jobs)])


def _wholes(jobs: dict[str, list[dict[str, Any]]], messages: int) -> list[str]:
    """Return whole and processor time of each contender, and their ratios to those of `tidemark run`."""
    rows = [
        "| | whole | least to most | messages/s | beside `tidemark run` | processor | least to most | beside it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, timings in jobs.items():
        whole, cpu = (_beside(jobs["tidemark"], timings, name) for name in ("whole", "cpu"))
        rows.append(
            f"| {NAMES[kind]} | {_median(timings, 'whole'):.1f} s | {_spread(timings, 'whole')} "
            f"| {messages / _median(timings, 'whole'):,.0f} | {whole:.2f} times "
            f"| {_median(timings, 'cpu'):.1f} s | {_spread(timings, 'cpu')} | {cpu:.2f} times |"
        )
    return rows


def _files(jobs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the sizes of the files of the last run."""
    rows = ["| | rows of a file: smallest | median | largest | KiB: smallest | median | largest |", "|---" * 7 + "|"]
    for kind, timings in jobs.items():
        last = timings[-1]
        if last["files"]:
            kib = [size / 1024 for size in last["bytes_of_files"]]
            cells = [*(f"{count:,}" for count in last["rows_of_files"]), *(f"{size:,.0f}" for size in kib)]
            rows.append(f"| {NAMES[kind]} | {' | '.join(cells)} |")
    return rows


def _ratios(jobs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the figures that have a target."""
    own = jobs["tidemark"]
    lines = [
        f"- `tidemark run` beside {NAMES[kind]}: the job alone {_beside(own, jobs[kind], 'job'):.2f} times as fast "
        "(target 1.0)"
        for kind in ("batch", "streaming")
    ]
    share = statistics.median(timing["publish"] / timing["whole"] for timing in own)
    return [*lines, f"- publish is {share:.1%} of the whole (target at most 5 %)"]


def _small(small: dict[str, list[dict[str, Any]]]) -> str:
    lines = [f"**{SMALL_MESSAGES:,} messages**, from trigger to done:", "", *_wholes(small, SMALL_MESSAGES), ""]
    for kind, timings in small.items():
        session, job = (_median(timings, name) for name in ("session", "job"))
        lines.append(f"- {NAMES[kind]}: takes a job after {session:.1f} s, the job takes {job:.1f} s")
    return "\n".join(lines)


def _sinks(runs: list[dict[str, Any]]) -> str:
    title = (
        f"{_median(runs, 'messages'):,.0f} messages of one manifest, decoded and staged by one process, then published"
    )
    lines = [
        f"**Each kind of sink**, {title} (target: at least {TOPIC_PER_SECOND:,} messages/s into a topic):",
        "",
        "| sink | stage, messages/s | publish, messages/s | both, messages/s | share of publish |",
        "|---|---|---|---|---|",
    ]
    for sink in dict.fromkeys(run["sink"] for run in runs):
        chosen = [run for run in runs if run["sink"] == sink]
        messages, stage, publish = (_median(chosen, name) for name in ("messages", "stage", "publish"))
        speeds = " | ".join(f"{messages / seconds:,.0f}" for seconds in (stage, publish, stage + publish))
        lines.append(f"| {sink} | {speeds} | {publish / (stage + publish):.1%} |")
    return "\n".join(lines)


def _streams(streams: dict[str, Any]) -> str:
    count, timings = streams["messages"], streams["timings"]
    rows = [
        f"**{count:,} messages from RabbitMQ and from Kafka**, four streams or partitions, JSON to Parquet by hour:",
        "",
        "| `tidemark run` over | job | messages/s | beside Kafka | processor | a record | beside Kafka |",
        "|---|---|---|---|---|---|---|",
    ]
    names = {"kafka": "Kafka, read by Spark's connector", "rabbitmq": "RabbitMQ, read by the tasks"}
    for kind, of in timings.items():
        job, cpu = _median(of, "job"), _median(of, "cpu")
        times = [_beside(timings["kafka"], of, name) for name in ("job", "cpu")]
        rows.append(
            f"| {names[kind]} | {job:.1f} s | {count / job:,.0f} | {times[0]:.2f} times | {cpu:.1f} s "
            f"| {cpu / count * 1e6:.1f} us | {times[1]:.2f} times |"
        )
    return "\n".join(rows)


def _plans(plans: list[dict[str, Any]]) -> str:
    title = f"beyond Kafka's own answer (target: below {LONGEST_PLAN_S:.0f} s for 10,000 partitions, flat in history)"
    rows = [
        f"**`plan`** {title}:",
        "",
        "| partitions | ranges of history | manifests | plan | whole-table reads of `manifest_range` |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {shape['partitions']:,} | {shape['ranges']:,} | {shape['manifests']:,} | {shape['seconds']:.2f} s "
        f"| {shape['whole_table_reads_of_ranges']} |"
        for shape in plans
    ]
    ways = [
        f"- {shape['partitions']:,} partitions with history: {_ways(shape['nodes'])}"
        for shape in plans
        if shape["ranges"]
    ]
    return "\n".join([*rows, "", "How PostgreSQL reads `manifest_range` for each query:", "", *ways])


def _commits(commits: list[dict[str, Any]]) -> str:
    target = f"at most {LONGEST_COMMIT_S:.0f} s at 100 snapshots, the default"
    rows = [
        f"**Commit of a manifest into an Iceberg table** (target: {target}):",
        "",
        "| snapshots kept | commit |",
        "|---|---|",
    ]
    return "\n".join([*rows, *(f"| {commit['snapshots']:,} | {commit['seconds']:.2f} s |" for commit in commits)])


def _rows(turns: list[dict[str, Any]]) -> str:
    """Return the seconds of each side; the ratios are the medians over the turns."""
    rows = [
        f"**A manifest into a table of {turns[0]['rows']:,} current rows**, publishing beside Spark's `MERGE INTO`:",
        "",
        "| table | changed keys | processor | whole | `MERGE INTO`: processor | beside it | whole | beside it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, changed in dict.fromkeys((turn["format"], turn["changed"]) for turn in turns):
        chosen = [turn for turn in turns if (turn["format"], turn["changed"]) == (kind, changed)]
        own, others = ([turn[side] for turn in chosen] for side in ("tidemark", "spark"))
        ours = " | ".join(f"{_median(own, name):.2f} s" for name in ("cpu", "whole"))
        theirs = " | ".join(
            f"{_median(others, name):.1f} s | {_beside(own, others, name):.1f} times" for name in ("cpu", "whole")
        )
        rows.append(f"| {kind.capitalize()} | {changed:,} | {ours} | {theirs} |")
    return "\n".join(rows)


def _page(views: list[dict[str, Any]]) -> str:
    target = f"at most {LONGEST_VIEW_S * 1000:.0f} ms"
    rows = [
        f"**The page in Airflow** with 10,000 manifests on 100 partitions, without Airflow's share (target: {target}):",
        "",
        "| view | server time | answer |",
        "|---|---|---|",
    ]
    return "\n".join(
        [
            *rows,
            *(
                f"| {view['view']} | {view['seconds'] * 1000:.0f} ms | {view['bytes'] / 1024:,.0f} KiB |"
                for view in views
            ),
        ]
    )


def _ledger(ledger: dict[str, Any]) -> str:
    few, many = f"{ledger['fewer']:,} ranges", f"{ledger['ranges']:,} ranges"
    title = f"blocks of 8 KiB that PostgreSQL touches, with {few} of history and with {many}"
    rows = [
        f"**A long ledger**: {title}, on {ledger['partitions']:,} partitions:",
        "",
        f"| | statements | {few} | {many} | what grows |",
        "|---|---|---|---|---|",
    ]
    for verb in ledger["verbs"]:
        before, after = verb["blocks"]
        growing = ", ".join(f"`{name}` {few:,} to {many:,}" for name, (few, many) in verb["growing"].items())
        rows.append(f"| {verb['verb']} | {verb['statements']} | {before:,} | {after:,} | {growing} |")
    return "\n".join(rows)


def _wide(wide: dict[str, list[dict[str, Any]]]) -> str:
    """Return the figures by variant. Memory is that of the driver's processes, so it says nothing about a cluster's
    executors.
    """
    rows = [
        "**Wider and larger**, `tidemark run` in a process of its own:",
        "",
        "| | whole | least to most | messages/s | processor | memory |",
        "|---|---|---|---|---|---|",
    ]
    for name, timings in wide.items():
        whole = _median(timings, "whole")
        rows.append(
            f"| {name} | {whole:.1f} s | {_spread(timings, 'whole')} | {_median(timings, 'messages') / whole:,.0f} "
            f"| {_median(timings, 'cpu'):.1f} s | {_median(timings, 'memory') / MIB:,.0f} MiB |"
        )
    return "\n".join([*rows, "", *_two_workers(wide)])


def _grouped(groupings: dict[str, list[dict[str, Any]]]) -> str:
    rows = [
        "**Files and tasks**, `tidemark run` in a process of its own:",
        "",
        "| | files | MiB of Parquet | rows of the median file | processor | whole | least to most |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, timings in groupings.items():
        newest = timings[-1]
        rows.append(
            f"| {name} | {newest['files']:,} | {newest['bytes'] / MIB:.1f} | {newest['rows_of_files'][1]:,} "
            f"| {_median(timings, 'cpu'):.1f} s | {_median(timings, 'whole'):.1f} s | {_spread(timings, 'whole')} |"
        )
    return "\n".join(rows)


def _two_workers(wide: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield how many times as fast two workers are, for each pair of variants that differ in nothing else."""
    for single, timings in wide.items():
        two = single.replace("1 worker", "2 workers")
        if two != single and two in wide:
            whole, job = (_median(timings, part) / _median(wide[two], part) for part in ("whole", "job"))
            yield f"- {two}: {whole:.2f} times as quick as 1, Spark's job alone {job:.2f} times"


def _group(group: dict[str, Any]) -> str:
    what = f"**{group['members']} topics in one file**, each with {group['records']} new records"
    target = f"200 within {LONGEST_GROUP_RUN_S // 60} minutes, and an idle run within {LONGEST_IDLE_RUN_S} s"
    rows = [f"{what} (target: {target}):", "", "| step | whole | processor | load before |", "|---|---|---|---|"]
    rows += [
        f"| {GROUP_STEPS[step]} | {each['whole']:.1f} s | {each['cpu']:.1f} s | {each['load']:.1f} |"
        for step, each in group["steps"].items()
    ]
    dag = group["dag"]
    rows += [
        "",
        f"Its DAG has {dag['tasks']} tasks, and is made in {dag['cpu']:.2f} s of processor time after imports.",
    ]
    return "\n".join(rows)


def _ways(nodes: dict[str, list[str]]) -> str:
    return "; ".join(f"`{name}` by {', '.join(ways)}" for name, ways in nodes.items())


_SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "decoders": lambda figures: _decoders(figures["decoders"]),
    "jobs": lambda figures: _jobs(figures["jobs"], figures["messages"]) + _left_out(figures),
    "small": lambda figures: _small(figures["small"]) + _left_out(figures),
    "sinks": lambda figures: _sinks(figures["sinks"]),
    "streams": lambda figures: _streams(figures["streams"]),
    "plan": lambda figures: _plans(figures["plan"]),
    "iceberg": lambda figures: _commits(figures["iceberg"]),
    "rows": lambda figures: _rows(figures["rows"]),
    "page": lambda figures: _page(figures["page"]),
    "ledger": lambda figures: _ledger(figures["ledger"]),
    "wide": lambda figures: _wide(figures["wide"]),
    "files": lambda figures: _grouped(figures["files"]),
    "group": lambda figures: _group(figures["group"]),
    "fleet": lambda figures: fleet_report.text(figures["fleet"]),
}


def write_into(readme: Path, parts: dict[str, str]) -> None:
    """Replace the text between the two marks of each of these parts; leave other parts unchanged."""
    text = readme.read_text()
    for name, part in parts.items():
        before, _, rest = text.partition(BEGIN.format(name))
        _, _, after = rest.partition(END.format(name))
        text = f"{before}{BEGIN.format(name)}\n{part}\n{END.format(name)}{after}"
    readme.write_text(text)
