"""Compaction of the same batches by Kafka's cleaner and by ours: what is left, and what is served.

A log is filled while it is not compacted.  Then one change of a setting makes both sides clean it,
each in one pass.  A later pass begins when the active segment rolls, which the timestamps of the
records decide.
"""

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from sparklog.types import Compression, OffsetSpec, ResourceType
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.columns import next_offset
from tests.peers.both import TIMEOUT_MS, Both, check, list_offsets, produce
from tests.peers.cleaned_logs import (
    altering,
    await_clean,
    await_past,
    batches_of,
    by_base_offset,
    records_of,
    segments_of,
)
from tests.peers.comparison import differences
from tests.peers.deviations import (
    KEPT_BASE_TIMESTAMP,
    LOG_START,
    RECORD_ERRORS,
    SEGMENTS_MEET,
    Deviation,
)
from tests.peers.dumped_files import figures_of_kafka, figures_of_ours, verify_index
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools
from tests.support.served import ServedCluster

TOPIC = "compacted"
STAMPED = "compacted-stamped"
#: Lately: Kafka forgets a producer by the timestamps of its records.
FIRST = int(time.time() * 1000) - 3_600_000
SEGMENT_MS = 60_000
HOUR_MS = 3_600_000
CONFIG = {
    "segment_bytes": "1048576",
    "flush_messages": "1",
    "index_interval_bytes": "500",
    "min_cleanable_dirty_ratio": "0",
}
KEYS = [b"", b"k" * 300, *(b"key %d" % number for number in range(40))]
VALUES = (None, None, b"", b"v", b"x" * 100)
HEADERS = ((), (), (("a", b"1"),), (("a", None), ("é", b"x" * 200)))
PRODUCERS = range(9000, 9004)


@dataclass
class Writing:
    """Batches in the order of their timestamps, with the sequences of idempotent producers."""

    chance: random.Random
    now_ms: int = FIRST
    _sequences: dict[int, int] = field(default_factory=dict)

    def batches(self, count: int, *, keyless: bool = False) -> Iterator[bytes]:
        keys = [None, *KEYS] if keyless else KEYS
        for _ in range(count):
            yield self.batch(*self.chance.choices(keys, k=self.chance.randint(1, 7)))

    def batch(self, *keys: bytes | None, size: int = 0) -> bytes:
        """A batch with these keys, and with values of ``size`` bytes unless that is 0."""
        chance = self.chance
        self.now_ms += 100
        records = [
            Record(
                key=key,
                value=chance.randbytes(size // 2).hex().encode() if size else chance.choice(VALUES),
                timestamp=self.now_ms - chance.randrange(90),
                headers=chance.choice(HEADERS),
            )
            for key in keys
        ]
        codec = Compression.NONE if size else chance.choice(list(Compression))
        producer_id = chance.choice([-1, -1, *PRODUCERS])
        if producer_id < 0:
            return encode_batch(records, compression=codec)
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(records)
        return encode_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=3,
            base_sequence=sequence,
        )

    def roll(self) -> None:
        """The next batch begins a segment."""
        self.now_ms += 2 * SEGMENT_MS


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The log of either side after a cleaning: its segments by their base offsets.

    The cleaning began after ``began_ms`` and ended before ``ended_ms``.
    """

    kafka: Mapping[int, bytes]
    ours: Mapping[int, bytes]
    began_ms: int
    ended_ms: int

    @property
    def active(self) -> int:
        """The base offset of the active segment."""
        return max(self.ours)


def now_ms() -> int:
    return int(time.time() * 1000)


def alter(both: Both, kind: ResourceType, name: str, **values: str | None) -> None:
    answer = both.same(altering(kind, name, **values), 1)
    assert answer.responses[0].error_code == 0, answer


@pytest.fixture(scope="module")
def log_dirs(both: Both, kafka: KafkaBroker, cluster: ServedCluster) -> Iterator[tuple[Path, Path]]:
    """The log directories, of brokers whose cleaners look for work all the time."""
    alter(both, ResourceType.BROKER, "1", log_cleaner_backoff_ms="50")
    yield kafka.log_dir, cluster.data_dir / "broker-1"
    alter(both, ResourceType.BROKER, "1", log_cleaner_backoff_ms=None)


def await_cleaning(log_dirs: tuple[Path, Path], topic: str, began_ms: int) -> Pass:
    found = []
    for log_dir in log_dirs:
        partition_dir = log_dir / f"{topic}-0"
        await_clean(partition_dir)
        found.append(segments_of(partition_dir))
    return Pass(kafka=found[0], ours=found[1], began_ms=began_ms, ended_ms=now_ms())


@pytest.fixture(scope="module")
def passes(both: Both, log_dirs: tuple[Path, Path]) -> list[Pass]:
    """Tombstones of the first pass stay for an hour, those of the second until the third."""
    writing = Writing(random.Random(1))
    both.create(TOPIC, **CONFIG, segment_ms=str(SEGMENT_MS), delete_retention_ms=str(HOUR_MS))
    both.fill(TOPIC, writing.batch(b"first"))  # where a leader epoch begins, we keep a batch
    for number in range(6):
        both.fill(TOPIC, *writing.batches(20, keyless=True))
        if number % 2:  # one segment cannot hold all of them
            both.fill(TOPIC, writing.batch(b"large %d" % number, size=600_000))
            both.fill(TOPIC, writing.batch(KEYS[0], KEYS[1]))
        writing.roll()
    both.fill(TOPIC, writing.batch(KEYS[0], b"active"))
    began_ms = now_ms()
    alter(both, ResourceType.TOPIC, TOPIC, cleanup_policy="compact")
    found = [await_cleaning(log_dirs, TOPIC, began_ms)]
    alter(both, ResourceType.TOPIC, TOPIC, delete_retention_ms="0")
    for _ in range(2):
        both.fill(TOPIC, *writing.batches(20))
        await_past(now_ms())
        began_ms = now_ms()
        writing.roll()
        both.fill(TOPIC, writing.batch(KEYS[0], b"active"))
        found.append(await_cleaning(log_dirs, TOPIC, began_ms))
        await_past(found[-1].ended_ms)
    return found


def check_batches(cleaning: Pass, *meant: Deviation) -> None:
    assert list(cleaning.kafka) == list(cleaning.ours)
    sides = [
        by_base_offset(batches_of(b"".join(side.values())))
        for side in (cleaning.kafka, cleaning.ours)
    ]
    check(differences(*sides), meant)


def test_the_same_batches_are_left(passes: list[Pass]) -> None:
    for cleaning in passes:
        assert len(cleaning.kafka) > 2
        check_batches(cleaning, KEPT_BASE_TIMESTAMP, SEGMENTS_MEET)
    kept = [records_of(batches_of(b"".join(cleaning.ours.values()))) for cleaning in passes]
    assert all(record.key is not None for record in kept[0])
    assert min(sum(record.value is None for record in records) for records in kept) > 5


def test_tombstones_get_their_horizons_once(passes: list[Pass]) -> None:
    first, second, third = passes
    for side in ("kafka", "ours"):
        logs = [batches_of(b"".join(getattr(each, side).values())) for each in passes]
        horizons = [{batch.horizon for batch in batches} - {None} for batches in logs]
        (of_first,) = horizons[0]
        (of_second,) = horizons[1] - horizons[0]
        (of_third,) = horizons[2] - horizons[1]
        assert first.began_ms <= of_first - HOUR_MS <= first.ended_ms
        assert second.began_ms <= of_second <= second.ended_ms
        assert third.began_ms <= of_third <= third.ended_ms
        tombstones = {
            batch.horizon
            for batch in logs[2]
            for record in batch.records
            if record.value is None and batch.base_offset < third.active
        }
        assert tombstones == {of_first, of_third}  # those of the second pass are gone


def test_records_with_the_time_of_their_append(both: Both, log_dirs: tuple[Path, Path]) -> None:
    writing = Writing(random.Random(2))
    both.create(STAMPED, **CONFIG, message_timestamp_type="LogAppendTime", segment_ms="1")
    both.fill(STAMPED, writing.batch(b"first"), *writing.batches(20))
    await_past(now_ms() + 1)
    both.fill(STAMPED, writing.batch(b"active"))
    alter(both, ResourceType.TOPIC, STAMPED, cleanup_policy="compact")
    cleaning = await_cleaning(log_dirs, STAMPED, now_ms())
    sides = [batches_of(side[0]) for side in (cleaning.kafka, cleaning.ours)]
    stamps = (r".*timestamp", r"\[\d+\]\.records")
    check(differences(*map(by_base_offset, sides)), (), where=stamps)
    for batches in sides:
        for each in batches:
            assert {record.timestamp for record in each.records} <= {each.max_timestamp}
    plain = [[replace(record, timestamp=0) for record in records_of(side)] for side in sides]
    assert plain[0] == plain[1]


def test_the_same_offsets_by_time(both: Both, passes: list[Pass]) -> None:
    times = {record.timestamp for record in records_of(batches_of(both.kafka.records(TOPIC)))}
    wanted = (OffsetSpec.LATEST, OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP)
    for timestamp in (*wanted, 0, *times, *(each + 1 for each in times)):
        both.same(list_offsets(TOPIC, timestamp), 10)


def test_the_same_records_from_every_offset(both: Both, passes: list[Pass]) -> None:
    everything = records_of(batches_of(both.kafka.records(TOPIC)))
    gaps = 0
    for offset in range(0, everything[-1].offset + 3, 3):
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 24)
        request = FetchRequest(topics=(FetchTopic(topic=TOPIC, partitions=(wanted,)),))
        answers = both.ask(request, 12)
        both.compare(*answers, where=(r".*\.records",))
        following = [record for record in everything if record.offset >= offset]
        for answer in answers:
            data = bytes(answer.responses[0].partitions[0].records or b"")
            records = [each for each in records_of(batches_of(data)) if each.offset >= offset]
            end = next_offset(data)  # of batches, the last of which may be empty
            assert (end is None) is (offset > everything[-1].offset)
            assert records == [each for each in following if end is not None and each.offset < end]
        gaps += bool(following) and following[0].offset > offset
    assert gaps > 100


def test_both_tools_show_the_same(
    passes: list[Pass], log_dirs: tuple[Path, Path], tools: KafkaTools
) -> None:
    for log_dir in log_dirs:
        for path in cleaned_files(log_dir):
            assert figures_of_ours(path) == figures_of_kafka(tools, path), path


def test_our_indexes_are_as_kafka_wants_them(
    passes: list[Pass], log_dirs: tuple[Path, Path], tools: KafkaTools
) -> None:
    """Those that Kafka's cleaner writes name the last offset of many batches."""
    for path in cleaned_files(log_dirs[1]):
        verify_index(tools, path.with_suffix(".index"), sealed=True)
        times = path.with_suffix(".timeindex")
        done = tools.ok("DumpLogSegments", "--files", str(times), "--index-sanity-check")
        assert done.lines == [f"Dumping {times}", f"{times} passed sanity check."]


def cleaned_files(log_dir: Path) -> list[Path]:
    *sealed, _ = sorted((log_dir / f"{TOPIC}-0").glob("*.log"))
    assert len(sealed) > 2
    return sealed


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_records_without_a_key_are_refused(both: Both, policy: str) -> None:
    topic = both.create(f"keyed-{policy.count(',')}", cleanup_policy=policy)
    keyed = [Record(key=b"k", value=b"v", timestamp=FIRST)]
    for codec in Compression:
        keyless = encode_batch([*keyed, Record(value=b"no key")], compression=codec)
        both.same(produce(topic, keyless), (3, 4))
        both.same(produce(topic, keyless), 7, LOG_START)
        both.same(produce(topic, keyless), (8, 12), LOG_START, RECORD_ERRORS)
        both.same(produce(topic, encode_batch(keyed, compression=codec)), 12)


def test_records_of_a_compacted_topic_are_deleted(both: Both, passes: list[Pass]) -> None:
    """Into a gap."""
    offsets = [record.offset for record in records_of(batches_of(both.kafka.records(TOPIC)))]
    gap = next(a + 1 for a, b in pairwise(offsets) if b > a + 2)
    wanted = DeleteRecordsPartition(partition_index=0, offset=gap)
    topics = (DeleteRecordsTopic(name=TOPIC, partitions=(wanted,)),)
    request = DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    both.same(request, 2)
    both.same(list_offsets(TOPIC, OffsetSpec.EARLIEST), 10)
    alter(both, ResourceType.TOPIC, TOPIC, cleanup_policy="compact,delete")
    both.await_same(request, 2)
    both.same(list_offsets(TOPIC, OffsetSpec.EARLIEST), 10)
    kept = [record.offset for record in records_of(batches_of(both.ours.records(TOPIC, gap)))]
    assert kept == [offset for offset in offsets if offset >= gap]
