"""A partition of ``__transaction_state`` as a data client sees it, with a broker's producer rules.

Owns: the batches, and the faults that a test asks for.  Must not know the coordinator.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.client.fetch_api import Fetched
from sparklog.client.produce_api import Produced
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition.producer_state import (
    AppendOrigin,
    Duplicate,
    ProducerStateManager,
)
from sparklog.types import OffsetSpec, OffsetTimestamp, TopicPartition
from sparklog.wire.records.batch import read_header
from sparklog.wire.records.builder import decode_records

TP = TopicPartition("__transaction_state", 7)


class FakeLog:
    """Takes appends, and answers fetches of a few bytes at a time.

    ``faults`` has one entry for each coming append: None lets it pass, an error is the answer;
    ``lose_answers`` tells whether such an append happens all the same.
    """

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.faults: deque[KafkaError | None] = deque()
        self.lose_answers = False
        self.sent = 0
        self.closed_lanes: list[str] = []
        self._producers = ProducerStateManager(TP)

    @property
    def cluster(self) -> "FakeLog":
        return self

    async def close_lane(self, lane: str) -> None:
        self.closed_lanes.append(lane)

    def forget(self, batches: int) -> None:
        """An unclean election: the last batches are gone."""
        self.batches = self.batches[:-batches]
        self._producers.clear()
        self.end = 0
        for batch in self.batches:
            header = read_header(batch)
            self._producers.replay(header)
            self.end = header.next_offset

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(r.key, r.value) for batch in self.batches for r in decode_records(batch)]

    async def produce_each(
        self, batches: Mapping[TopicPartition, Sequence[bytes]], *, timeout_s: float
    ) -> dict[TopicPartition, Any]:
        assert timeout_s > 0
        self.sent += 1
        (batch,) = batches[TP]
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not self.lose_answers:
            return {TP: fault}
        try:
            base_offset = self._append(batch)
        except KafkaError as error:
            return {TP: error}
        return {TP: Produced(base_offset=base_offset) if fault is None else fault}

    def _append(self, batch: bytes) -> int:
        header = read_header(batch)
        prepared = self._producers.prepare(
            header, base_offset=self.end, timestamp=0, origin=AppendOrigin.CLIENT, now_ms=0
        )
        if isinstance(prepared, Duplicate):
            return prepared.base_offset
        self._producers.apply(prepared)
        base_offset = self.end
        # A leader sets the base offset, which no checksum covers.
        self.batches.append(base_offset.to_bytes(8, "big") + batch[8:])
        self.end += header.record_count
        return base_offset

    async def fetch(self, tp: TopicPartition, offset: int, **_: object) -> Fetched:
        assert tp == TP
        if not 0 <= offset <= self.end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, str(offset))
        behind = [batch for batch in self.batches if read_header(batch).next_offset > offset]
        return Fetched(
            records=memoryview(b"".join(behind[:2])),
            high_watermark=self.end,
            last_stable_offset=self.end,
            log_start_offset=0,
        )

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], **_: object
    ) -> dict[TopicPartition, OffsetTimestamp]:
        offset = self.end if wanted[TP] == OffsetSpec.LATEST else 0
        return {TP: OffsetTimestamp(offset=offset, timestamp=-1)}
