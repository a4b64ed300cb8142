"""The handle of a topic: its offsets, sizes and newest records, and DataFrames of its records.

Owns: ``Topic`` and its HTML, and how options given as values reach ``format("sparklog")``.  Must
not know how a cluster is started.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sparklog.client.admin import Admin, LogDirDescription, PartitionSizes
from sparklog.client.blocking import BlockingClient
from sparklog.client.consumer import ConsumedRecord
from sparklog.client.deadline import Deadline
from sparklog.dataframe.options import option_texts
from sparklog.dataframe.thread_sessions import activate
from sparklog.driver.launcher import is_stopped
from sparklog.errors import ConfigError, ErrorCode, KafkaError, SparklogError, StartError
from sparklog.html_text import bytes_text, code, message, table
from sparklog.plurals import counted, listed
from sparklog.types import OffsetSpec, TopicPartition

#: The longest time that the HTML of a topic waits for the cluster, in seconds.  The newest records
#: may take as long again.
LOOK_SECONDS_MAX: Final = 2.0
#: The longest time that a preview reads records, in seconds.
PREVIEW_SECONDS_MAX: Final = 10.0
#: Number of records in the HTML of a topic.
RECORDS_SHOWN: Final = 5
#: Number of partitions in the error about records that were not read.
UNREAD_SHOWN_MAX: Final = 3
#: The largest number of rows in the HTML table of partitions.
PARTITIONS_SHOWN_MAX: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionState:
    """The state of one partition.

    Attributes:
        partition: The partition's number.
        leader: Node id of the leader.
        replicas: Node ids of all replicas, the preferred leader first.
        isr: Node ids of the in-sync replicas.
        earliest: The first offset (the log start offset).
        latest: The offset behind the last record that consumers can read.
        size_bytes: Size of the leader's files; None when the leader did not tell.
        remote_bytes: Size of what a tiered partition has in the cluster's ``remote_dir``, the
            copies of records that are in files included; None for one that is not tiered, and while
            its leader does not know.
        copy_lag_bytes: Size of its sealed segments that are to be copied; None likewise.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest: int
    latest: int
    size_bytes: int | None = None
    remote_bytes: int | None = None
    copy_lag_bytes: int | None = None

    @property
    def records(self) -> int:
        """The number of offsets.  Gaps that compaction or transactions left count too."""
        return self.latest - self.earliest


class TopicFrames:
    """DataFrames of one cluster's topics, in one Spark session."""

    def __init__(self, spark: Any, bootstrap_servers: str, check_open: Callable[[], None]) -> None:
        """``spark`` is None when the cluster has no Spark.

        ``check_open`` raises ClosedError once the cluster was stopped.
        """
        self._spark = spark
        self._check_open = check_open
        self._servers = {"kafka.bootstrap.servers": bootstrap_servers}

    def read(self, topic: str | Sequence[str], *, schema: Any = None, **options: Any) -> Any:
        """See ``Cluster.read``."""
        self._check_open()
        self._require_spark()
        names = topic if isinstance(topic, str) else ",".join(topic)
        texts = self._servers | option_texts(options)
        reader = self._spark.read.format("sparklog").options(**texts).option("subscribe", names)
        return (reader if schema is None else reader.schema(schema)).load()

    def write(self, frame: Any, topic: str | None = None, **options: Any) -> None:
        """See ``Cluster.write``."""
        self._check_open()
        self._require_spark()
        _require_frame(frame)
        texts = self._servers | option_texts(options)
        activate(frame.sparkSession)
        writer = frame.write.format("sparklog").mode("append").options(**texts)
        (writer if topic is None else writer.option("topic", topic)).save()

    def _require_spark(self) -> None:
        if self._spark is None:
            raise StartError("this cluster runs without Spark; use sparklog.connect(spark, ...)")
        context = getattr(self._spark, "_sc", None)  # Spark Connect has none
        if context is not None and is_stopped(context):
            raise StartError(
                "this Spark session has been stopped; make a new one, and use sparklog.connect()"
            )


class Topic:
    """A handle of a topic; ``Cluster.topic`` makes it.  Each use asks the cluster.

    Every method and property raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION) when the topic does not
    exist, ConnectError when no node answers in time, and ClosedError once the cluster was stopped.
    """

    def __init__(
        self, name: str, open_client: Callable[[], BlockingClient], frames: TopicFrames
    ) -> None:
        """``open_client`` returns the cluster's client, or raises ClosedError."""
        self.name = name
        self._open_client = open_client
        self._frames = frames

    def read(self, **options: Any) -> Any:
        """Return a Spark DataFrame of the topic's records; see ``Cluster.read``."""
        return self._frames.read(self.name, **options)

    def write(self, frame: Any, **options: Any) -> None:
        """Append a Spark DataFrame of records to the topic; see ``Cluster.write``."""
        self._frames.write(frame, self.name, **options)

    @property
    def configs(self) -> dict[str, str | None]:
        """The topic's settings in force by name, the defaults included."""
        found = self._open_client().admin.describe_topic_configs(self.name)
        return {name: entry.value for name, entry in found.items()}

    def partitions(self, timeout_s: float | None = None) -> tuple[TopicPartitionState, ...]:
        """Describe leaders, replicas, offsets and sizes.

        Args:
            timeout_s: Time limit of the whole call in seconds.  Default: 60 seconds.

        Returns:
            The partitions by number.
        """
        client = self._open_client()
        deadline = Deadline(client.timeout_s if timeout_s is None else timeout_s)
        view = client.metadata([self.name], timeout_s=deadline.left_s).topic(self.name)
        tps = {number: TopicPartition(self.name, number) for number in sorted(view.partitions)}
        offsets = {
            spec: client.list_offsets(
                dict.fromkeys(tps.values(), int(spec)), timeout_s=deadline.left_s
            )
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        }
        nodes = self._log_dirs(client, deadline)
        return tuple(
            TopicPartitionState(
                partition=number,
                leader=view.partitions[number].leader,
                replicas=view.partitions[number].replicas,
                isr=view.partitions[number].isr,
                earliest=offsets[OffsetSpec.EARLIEST][tp].offset,
                latest=offsets[OffsetSpec.LATEST][tp].offset,
                **PartitionSizes.find(nodes.get(view.partitions[number].leader, ()), tp)._asdict(),
            )
            for number, tp in tps.items()
        )

    @property
    def offsets(self) -> dict[int, tuple[int, int]]:
        """``(earliest, latest)`` by partition; see ``TopicPartitionState``."""
        return {state.partition: (state.earliest, state.latest) for state in self.partitions()}

    @property
    def records(self) -> int:
        """The number of offsets in all partitions; see ``TopicPartitionState.records``."""
        return sum(state.records for state in self.partitions())

    @property
    def size_bytes(self) -> int:
        """Size of the leaders' files in bytes, as far as it is known.  Followers do not count."""
        return sum(state.size_bytes or 0 for state in self.partitions())

    @property
    def remote_bytes(self) -> int:
        """Size of what the topic has in the cluster's ``remote_dir``, as far as it is known."""
        return sum(state.remote_bytes or 0 for state in self.partitions())

    def preview(self, records: int = 10) -> list[ConsumedRecord]:
        """Read the newest records of all partitions, for at most ten seconds.

        Args:
            records: The largest number of records.

        Returns:
            The records in the order of their timestamps, the newest last.

        Raises:
            KafkaError: Some partition has not returned its newest records in time; the message
                names it and says why, as far as the client knows.
        """
        found, error = self._newest(self.partitions(), records, PREVIEW_SECONDS_MAX)
        if error is not None:
            raise error
        return found

    def __repr__(self) -> str:
        return f"<sparklog.Topic {self.name}>"

    def _repr_html_(self) -> str:
        name = f"<b>topic</b> {code(self.name)}"
        try:
            states = self.partitions(LOOK_SECONDS_MAX)
        except (SparklogError, TimeoutError) as error:
            return f"{name}: {message(_error_text(error))}"
        size = _total_text(", {}", (state.size_bytes for state in states))
        size += _total_text(", {} in the remote_dir", (state.remote_bytes for state in states))
        records = counted(sum(state.records for state in states), "record")
        partitions = counted(len(states), "partition")
        return (
            f"{name}: {records} in {partitions}{size}"
            f"{_partitions_html(states)}{self._newest_html(states)}"
        )

    def _newest(
        self, states: Sequence[TopicPartitionState], records: int, seconds: float
    ) -> tuple[list[ConsumedRecord], KafkaError | None]:
        """The newest records that were read in time, and why some of them were not."""
        wanted = {
            TopicPartition(self.name, state.partition): state for state in states if state.records
        }
        if not wanted:
            return [], None
        found: list[ConsumedRecord] = []
        end = time.monotonic() + seconds
        with self._open_client().consumer() as consumer:
            consumer.assign(
                {tp: max(at.earliest, at.latest - records) for tp, at in wanted.items()}
            )
            while time.monotonic() < end and any(
                consumer.position(tp) < at.latest for tp, at in wanted.items()
            ):
                found += consumer.poll(0.5, max_records=10_000)
            unread = [tp for tp, at in wanted.items() if consumer.position(tp) < at.latest]
            error = _unread_error(unread, consumer.unreadable, seconds) if unread else None
        found.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
        return found[-records:], error

    def _newest_html(self, states: Sequence[TopicPartitionState]) -> str:
        try:
            records, unread = self._newest(states, RECORDS_SHOWN, LOOK_SECONDS_MAX)
        except (SparklogError, TimeoutError) as error:
            return f"the newest records cannot be read: {message(_error_text(error))}"
        shown = _records_html(records)
        return shown if unread is None else f"{shown}{message(str(unread))}"

    def _log_dirs(
        self, client: BlockingClient, deadline: Deadline
    ) -> Mapping[int, Sequence[LogDirDescription]]:
        """The log directories by broker; empty when a broker does not answer."""
        admin = Admin(client.cluster, timeout_s=deadline.left_s)
        with suppress(SparklogError):
            return client.run(admin.describe_log_dirs(), deadline.left_s)
        return {}


def _unread_error(
    unread: Sequence[TopicPartition], reasons: Mapping[TopicPartition, KafkaError], seconds: float
) -> KafkaError:
    """The error of partitions whose newest records were not read in time."""
    named = f"the newest records of {listed(unread, UNREAD_SHOWN_MAX)} were not read"
    for tp in unread:
        if tp in reasons:
            return KafkaError(reasons[tp].code, f"{named} in {seconds:g} s: {reasons[tp].message}")
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{named} in {seconds:g} s; try again")


def _require_frame(frame: Any) -> None:
    """Raises ConfigError for everything but a Spark DataFrame, for instance one of pandas."""
    if not (hasattr(frame, "sparkSession") and hasattr(frame, "write")):
        kind = f"{type(frame).__module__}.{type(frame).__qualname__}".removeprefix("builtins.")
        raise ConfigError(
            f"write: expected a Spark DataFrame, not {kind}; spark.createDataFrame(...) makes one"
        )


def _partitions_html(states: Sequence[TopicPartitionState]) -> str:
    tiered = any(state.remote_bytes is not None for state in states)
    rows = [
        (
            str(state.partition),
            str(state.leader),
            _replicas_text(state),
            f"{state.earliest:,}",
            f"{state.latest:,}",
            _total_text("{}", [state.size_bytes]),
            *(_tier_texts(state) if tiered else ()),
        )
        for state in states[:PARTITIONS_SHOWN_MAX]
    ]
    more = len(states) - len(rows)
    columns = ("partition", "leader", "replicas", "from", "to", "size")
    shown = table((*columns, *(("remote size", "to be copied") if tiered else ())), rows)
    return f"{shown}... and {counted(more, 'partition')} more" if more else shown


def _tier_texts(state: TopicPartitionState) -> tuple[str, str]:
    return _total_text("{}", [state.remote_bytes]), _total_text("{}", [state.copy_lag_bytes])


def _total_text(text: str, sizes: Iterable[int | None]) -> str:
    """``text`` with the sum of the known sizes; empty if none is known."""
    known = [size for size in sizes if size is not None]
    return text.format(_size_text(sum(known))) if known else ""


def _replicas_text(state: TopicPartitionState) -> str:
    """Replica ids; the ids of replicas that are not in sync are in brackets."""
    return ", ".join(str(id) if id in state.isr else f"({id})" for id in state.replicas)


def _records_html(records: Sequence[ConsumedRecord]) -> str:
    if not records:
        return ""
    rows = [
        (
            str(record.partition),
            str(record.offset),
            _timestamp_text(record.timestamp),
            bytes_text(record.key),
            bytes_text(record.value),
        )
        for record in records
    ]
    return "newest records" + table(("partition", "offset", "timestamp", "key", "value"), rows)


def _error_text(error: Exception) -> str:
    """The text of an error; the name of its class when it has no text."""
    return str(error) or type(error).__name__


def _timestamp_text(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _size_text(size: int) -> str:
    number, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"
