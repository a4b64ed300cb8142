"""Compacted logs of both sides: their batches as values, and waiting until a log is clean.

Owns: where either side says how far a log is clean; what of a batch is compared.  Must not know
which records a test expects.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparklog.executors.log.names import CLEAN_OFFSET
from sparklog.executors.log.offset_file import decode_offset
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparklog.wire.records.batch import check_batch, iter_batches
from sparklog.wire.records.builder import Record, decode_batch
from sparklog.wire.records.control import EndTxnMarker, read_marker
from tests.support.waiting import wait_for

#: Kafka's file of clean offsets, one for a log directory.
KAFKA_CLEAN_OFFSETS = "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """A batch without its compressed bytes.

    A delete horizon is in the place of the base timestamp.  ``producer`` is the producer's id,
    epoch and base sequence.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    horizon: int | None
    max_timestamp: int
    producer: tuple[int, int, int]
    records: tuple[Record, ...]
    marker: EndTxnMarker | None


def batches_of(data: bytes) -> list[LogBatch]:
    """The batches, whose checksums must be right."""
    found = []
    for header, start in iter_batches(data):
        check_batch(data, start, header)
        found.append(
            LogBatch(
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                leader_epoch=header.partition_leader_epoch,
                attributes=header.attributes,
                base_timestamp=header.base_timestamp,
                horizon=header.base_timestamp if header.has_delete_horizon else None,
                max_timestamp=header.max_timestamp,
                producer=(header.producer_id, header.producer_epoch, header.base_sequence),
                records=tuple(decode_batch(data, start, header)),
                marker=read_marker(data, start, header) if header.is_control else None,
            )
        )
    return found


def by_base_offset(batches: Iterable[LogBatch]) -> Mapping[str, Mapping[str, Any]]:
    """The batches as ``differences`` compares them: without horizons, which come from clocks."""
    return {f"[{batch.base_offset}]": _compared(batch) for batch in batches}


def _compared(batch: LogBatch) -> Mapping[str, Any]:
    fields = asdict(batch)
    if batch.horizon is not None:
        fields["base_timestamp"] = fields["horizon"] = "a horizon"
    return fields


def records_of(batches: Iterable[LogBatch]) -> list[Record]:
    """What consumers see: the records of all batches but control batches."""
    return [record for batch in batches if batch.marker is None for record in batch.records]


def segments_of(partition_dir: Path) -> dict[int, bytes]:
    """The log files, by their base offsets."""
    return {int(path.stem): path.read_bytes() for path in sorted(partition_dir.glob("*.log"))}


def active_base(partition_dir: Path) -> int:
    """The base offset of the active segment."""
    return max(int(path.stem) for path in partition_dir.glob("*.log"))


def clean_offset(partition_dir: Path) -> int:
    """The offset below which the log is clean, on either side; -1 for a log never cleaned."""
    ours = partition_dir / CLEAN_OFFSET
    if ours.exists():
        return decode_offset(ours.read_bytes()) or -1
    kafkas = partition_dir.parent / KAFKA_CLEAN_OFFSETS
    topic, _, partition = partition_dir.name.rpartition("-")
    line = rf"^{re.escape(topic)} {partition} (\d+)$"
    found = re.search(line, kafkas.read_text() if kafkas.exists() else "", re.MULTILINE)
    return int(found.group(1)) if found else -1


def await_clean(partition_dir: Path, offset: int | None = None) -> None:
    """Wait until the log is clean up to an offset; None is the start of the active segment."""

    def is_clean() -> bool:
        wanted = active_base(partition_dir) if offset is None else offset
        return clean_offset(partition_dir) == wanted

    wait_for(is_clean, what=f"{partition_dir} is not clean")


def await_past(timestamp_ms: int) -> None:
    """Wait until the wall clock is past a time."""
    wait_for(lambda: time.time() * 1000 > timestamp_ms, what="the clock stands still")


def altering(kind: ResourceType, name: str, **values: str | None) -> IncrementalAlterConfigsRequest:
    """A request to change settings, or to delete them (None); ``_`` in names is a dot."""
    configs = tuple(
        AlterableConfig(
            name=key.replace("_", "."), config_operation=int(value is None), value=value
        )
        for key, value in values.items()
    )
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=(resource,))
