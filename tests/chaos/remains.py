"""What is left at the end of a run, for the checkers: logs as a client reads them, files, journal.

Owns: where each part of it is found.  Must not know what it should be.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID
from zlib import crc32

from sparklog.client.blocking import BlockingClient
from sparklog.executors.log.checkpoint import decode_epochs
from sparklog.executors.log.names import EPOCH_CHECKPOINT, LOG_SUFFIX, PARTITION_METADATA
from sparklog.executors.log.partition_metadata import decode_partition_metadata
from sparklog.executors.log_dirs.partition_dirs import parse_partition_dir
from sparklog.wire.records.batch import iter_batches
from tests.simulation.events import LogId, ReplicaSeen, SeenBatch
from tests.simulation.final_state import FinalLog
from tests.simulation.log_reading import read_log

READ_SECONDS_MAX = 300.0


def read_logs(bootstrap: str, logs: Sequence[LogId]) -> dict[LogId, FinalLog]:
    """Every log from its beginning to its end."""
    with BlockingClient(bootstrap) as client:
        return {log: client.run(read_log(client.cluster, log), READ_SECONDS_MAX) for log in logs}


def replicas_of(
    data_dir: Path, logs: Mapping[LogId, FinalLog], tiered: Collection[str] = ()
) -> Iterator[ReplicaSeen]:
    """What each broker holds, once all have stopped; the files of tiered topics may begin late."""
    for log, state in logs.items():
        for partition_dir in sorted(data_dir.glob(f"broker-*/{log.topic}-{log.partition}")):
            batches = tuple(_batches(partition_dir))
            late = batches[0].base_offset if log.topic in tiered and batches else state.start
            yield ReplicaSeen(
                broker=int(partition_dir.parent.name.removeprefix("broker-")),
                log=log,
                leads=False,
                leader_epoch=decode_epochs((partition_dir / EPOCH_CHECKPOINT).read_bytes())[
                    -1
                ].epoch,
                start=state.start,
                high_watermark=state.end,
                batches=batches,
                local_start=max(late, state.start),
            )


def partition_dirs_of(data_dir: Path) -> dict[int, dict[str, UUID | None]]:
    """Partition directories by broker, and the topic that each says it belongs to."""
    found: dict[int, dict[str, UUID | None]] = {}
    for broker in data_dir.glob("broker-*"):
        if not broker.name.removeprefix("broker-").isdecimal():
            continue  # the cache of what was read from a bucket
        names = found.setdefault(int(broker.name.removeprefix("broker-")), {})
        for partition_dir in broker.iterdir():
            if partition_dir.is_dir() and parse_partition_dir(partition_dir.name) is not None:
                metadata = partition_dir / PARTITION_METADATA
                whole = metadata.exists()
                names[partition_dir.name] = (
                    decode_partition_metadata(metadata.read_bytes()) if whole else None
                )
    return found


def _batches(partition_dir: Path) -> Iterator[SeenBatch]:
    for path in sorted(partition_dir.glob(f"*{LOG_SUFFIX}")):
        data = path.read_bytes()
        for header, position in iter_batches(data):
            checksum = crc32(data[position : position + header.size])
            yield SeenBatch(header.base_offset, header.next_offset, checksum)
