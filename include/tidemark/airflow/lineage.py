"""OpenLineage: the data that a task has read and written. Airflow's provider for OpenLineage asks for it, if installed.

Each topic is an input, with its exact offsets as a facet; each sink is an output. A facet of the run names the fields
that records have and the schema does not have.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Final

from tidemark.errors import TidemarkError
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.publish import Outcome
from tidemark.model.dataset import Dataset
from tidemark.model.expectations import ExpectationCount
from tidemark.model.unknown_fields import UnknownField

PROVIDER: Final = "airflow.providers.openlineage"
RANGES: Final = "tidemark_offsetRanges"  # the names of our facets
UNKNOWN_FIELDS: Final = "tidemark_unknownFields"
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    """One topic of a manifest; ``ranges`` such as ``{"partition": 0, "start": 0, "end": 60}``, half-open."""

    dataset: Dataset
    read: int
    bytes: int
    ranges: Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class WrittenDataset:
    """One sink of a manifest; ``bytes`` and ``files`` are None for a sink without files."""

    dataset: Dataset
    rows: int
    bytes: int | None
    files: int | None


@dataclass(frozen=True)
class Lineage:
    """The data that the published attempt of a manifest has read and written."""

    pipeline_name: str
    manifest_id: int
    attempt: int
    inputs: Sequence[Input]
    outputs: Sequence[WrittenDataset]
    unknown_fields: Sequence[UnknownField] = ()
    expectations: Sequence[ExpectationCount] = ()


def lineage_if_asked(context: Context, outcome: Outcome) -> Lineage | None:
    """Return the lineage of an attempt; None without the provider. If a sink does not answer, the task does not fail:
    the log says why there is no lineage.
    """
    if find_spec(PROVIDER) is None:
        return None
    try:
        return lineage(context, outcome.manifest_id, outcome.attempt)
    except TidemarkError as error:
        LOG.warning("the lineage of manifest %s was not sent: %s", outcome.manifest_id, error.what)
        return None


def lineage(context: Context, manifest_id: int, attempt: int) -> Lineage:
    """Return the lineage of the sinks that show this attempt, from the database and the targets, which may be asked."""
    manifest = context.database.manifests.get(manifest_id)
    receipt = context.database.attempts.receipt(manifest_id, attempt)
    measured = receipt.partitions if receipt else ()
    inputs = []
    for topic in sorted({part.at.topic for part in manifest.ranges}):
        of_topic = [count for count in measured if count.topic == topic]
        ranges = [
            {"partition": part.at.partition, "start": part.start, "end": part.end}
            for part in manifest.ranges
            if part.at.topic == topic
        ]
        read, in_bytes = sum(count.read for count in of_topic), sum(count.bytes for count in of_topic)
        inputs.append(Input(context.source.dataset(topic), read, in_bytes, ranges))
    outputs = []
    for sink in context.sinks:
        publication = manifest.published(sink.name)
        if publication is None or publication.attempt != attempt:
            continue
        files = [part for part in receipt.objects_of(sink.name) if part.path] if receipt else []
        size = sum(part.bytes for part in files) if files else None
        outputs.append(WrittenDataset(sink.output.dataset(), publication.counts.written, size, len(files) or None))
    unknown_fields = receipt.unknown_fields if receipt else ()
    expectations = receipt.expectations if receipt else ()
    return Lineage(context.pipeline_name, manifest_id, attempt, inputs, outputs, unknown_fields, expectations)


def facets(lineages: Sequence[Lineage]) -> Any:
    """Return the lineage of a task as an ``OperatorLineage`` for Airflow's provider, which must be installed.

    For a bundle, each manifest with unknown fields has a facet of its own.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import (
        InputDatasetFacet,
        RunFacet,
        data_quality_assertions_dataset,
        input_statistics_input_dataset,
        output_statistics_output_dataset,
    )

    of_input = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
    of_output = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    run_facets: dict[str, RunFacet] = {}
    inputs: list[InputDataset] = []
    outputs: list[OutputDataset] = []
    for lineage in lineages:
        named = {"pipeline": lineage.pipeline_name, "manifest": lineage.manifest_id, "attempt": lineage.attempt}
        quality: dict[str, InputDatasetFacet] = {}
        if lineage.expectations:  # OpenLineage has assertions on inputs
            assertion = data_quality_assertions_dataset.Assertion
            made = [assertion(assertion=count.name, success=count.unmet == 0) for count in lineage.expectations]
            quality["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(made)
        if lineage.unknown_fields:
            fields = [asdict(unknown) for unknown in lineage.unknown_fields]
            name = UNKNOWN_FIELDS if len(lineages) == 1 else f"{UNKNOWN_FIELDS}_{lineage.manifest_id}"
            run_facets[name] = RunFacet().with_additional_properties(**named, fields=fields)
        inputs += [
            InputDataset(
                input_.dataset.namespace,
                input_.dataset.name,
                inputFacets={
                    RANGES: InputDatasetFacet().with_additional_properties(**named, ranges=[*input_.ranges]),
                    "inputStatistics": of_input(rowCount=input_.read, size=input_.bytes),
                    **quality,
                },
            )
            for input_ in lineage.inputs
        ]
        outputs += [
            OutputDataset(
                output.dataset.namespace,
                output.dataset.name,
                outputFacets={
                    "outputStatistics": of_output(rowCount=output.rows, size=output.bytes, fileCount=output.files)
                },
            )
            for output in lineage.outputs
        ]
    return OperatorLineage(run_facets=run_facets, inputs=inputs, outputs=outputs)
