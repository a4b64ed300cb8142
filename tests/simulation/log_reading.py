"""A log as a client reads it, from its beginning to its end.

Owns: the reading.  Must not know what the log should hold, nor what world the cluster is in.
"""

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.errors import DecodeError, ErrorCode, KafkaError, SparklogError
from sparklog.types import OffsetSpec, TopicPartition
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import iter_records
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalBatch, FinalLog

READ_TIMEOUT_S = 60.0
#: Empty answers in a row after which nothing more is expected: a fetch does not wait for the bucket
#: of tiered topics for long, and may be asked again.
EMPTY_MAX = 20


async def read_log(cluster: ClusterClient, log: LogId) -> FinalLog:
    data_client, tp = DataClient(cluster), TopicPartition(log.topic, log.partition)
    batches: list[FinalBatch] = []
    start = end = 0
    try:
        await cluster.topic(log.topic, Deadline(READ_TIMEOUT_S))
        start = await _list(data_client, log, OffsetSpec.EARLIEST)
        end = await _list(data_client, log, OffsetSpec.LATEST)
        offset, empty = start, 0
        while offset < end:
            try:
                answer = await data_client.fetch(
                    tp, offset, max_bytes=1 << 20, timeout_s=READ_TIMEOUT_S
                )
            except KafkaError as error:
                moved = await _list(data_client, log, OffsetSpec.EARLIEST)
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or moved <= offset:
                    raise
                # Retention was faster than the reader.
                start = offset = moved
                batches.clear()
                continue
            found = _batches(answer.records)
            empty = 0 if found else empty + 1
            if not found and empty < EMPTY_MAX:
                continue
            if not found:
                damage = f"nothing at offset {offset}"
                return FinalLog(start=start, end=end, batches=tuple(batches), damage=damage)
            batches += found
            offset = found[-1].next_offset
    except (SparklogError, DecodeError) as error:
        return FinalLog(start=start, end=end, batches=tuple(batches), damage=str(error))
    return FinalLog(start=start, end=end, batches=tuple(batches))


async def _list(data_client: DataClient, log: LogId, spec: OffsetSpec) -> int:
    tp = TopicPartition(log.topic, log.partition)
    found = await data_client.list_offsets({tp: int(spec)}, timeout_s=READ_TIMEOUT_S)
    return found[tp].offset


def _batches(data: memoryview) -> list[FinalBatch]:
    found: list[FinalBatch] = []
    for header, start in iter_batches(data, partial_tail=True):
        records = list(iter_records(data, start, header))
        found.append(
            FinalBatch(
                base_offset=header.base_offset,
                values=tuple(record.value for record in records),
                timestamps=tuple(record.timestamp for record in records),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
        )
    return found
