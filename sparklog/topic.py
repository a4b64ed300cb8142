"""A topic in a notebook: what is in it, how large it is, its newest records, and DataFrames of it.

Owns: ``Topic`` and its HTML, and how options given as values reach ``format("sparklog")``.  Must
not know how a cluster is started.
"""

import html
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sparklog.client.admin import Admin
from sparklog.client.blocking import BlockingClient
from sparklog.client.cluster_view import TopicView
from sparklog.client.consumer import ConsumedRecord
from sparklog.dataframe.option_texts import option_texts
from sparklog.dataframe.thread_sessions import activate
from sparklog.errors import SparklogError, StartError
from sparklog.types import OffsetSpec, TopicPartition

#: What a repr may take.
LOOK_SECONDS_MAX: Final = 2.0
#: What a preview may take.
PREVIEW_SECONDS_MAX: Final = 10.0
#: Characters of a key or value in HTML.
SHOWN_MAX: Final = 120
#: Rows of the table of partitions in HTML.
PARTITIONS_SHOWN_MAX: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionState:
    """Offsets are ``[earliest, latest)``; ``size_bytes`` is the leader's log, None: not known."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest: int
    latest: int
    size_bytes: int | None = None

    @property
    def records(self) -> int:
        """Offsets; gaps that compaction or transactions left count too."""
        return self.latest - self.earliest


class TopicFrames:
    """DataFrames of one cluster's topics, in one Spark session (None: there is no Spark)."""

    def __init__(self, spark: Any, bootstrap_servers: str) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": bootstrap_servers}

    def read(self, topic: str | Sequence[str], *, schema: Any = None, **options: Any) -> Any:
        """See ``Cluster.read``."""
        if self._spark is None:
            raise StartError("this cluster runs without Spark; use sparklog.connect(spark, ...)")
        names = topic if isinstance(topic, str) else ",".join(topic)
        texts = self._servers | option_texts(options)
        reader = self._spark.read.format("sparklog").options(**texts).option("subscribe", names)
        return (reader if schema is None else reader.schema(schema)).load()

    def write(self, frame: Any, topic: str | None = None, **options: Any) -> None:
        """See ``Cluster.write``."""
        texts = self._servers | option_texts(options)
        activate(frame.sparkSession)
        writer = frame.write.format("sparklog").mode("append").options(**texts)
        (writer if topic is None else writer.option("topic", topic)).save()


class Topic:
    """A topic by name.  Looking at it asks the cluster; raises KafkaError where there is none."""

    def __init__(self, name: str, client: BlockingClient, frames: TopicFrames) -> None:
        self.name = name
        self._client = client
        self._frames = frames

    def read(self, **options: Any) -> Any:
        """A DataFrame of its records; see ``Cluster.read``."""
        return self._frames.read(self.name, **options)

    def write(self, frame: Any, **options: Any) -> None:
        """Append a DataFrame; see ``Cluster.write``."""
        self._frames.write(frame, self.name, **options)

    @property
    def configs(self) -> dict[str, str | None]:
        """Its settings, the defaults included."""
        found = self._client.admin.describe_topic_configs(self.name)
        return {name: entry.value for name, entry in found.items()}

    def partitions(self, timeout_s: float | None = None) -> tuple[TopicPartitionState, ...]:
        """Leaders, replicas, offsets and sizes, by number."""
        view = self._view(timeout_s)
        tps = {number: TopicPartition(self.name, number) for number in sorted(view.partitions)}
        held = {
            spec: self._client.list_offsets(
                dict.fromkeys(tps.values(), int(spec)), timeout_s=timeout_s
            )
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        }
        sizes = self._sizes(timeout_s)
        return tuple(
            TopicPartitionState(
                partition=number,
                leader=view.partitions[number].leader,
                replicas=view.partitions[number].replicas,
                isr=view.partitions[number].isr,
                earliest=held[OffsetSpec.EARLIEST][tp].offset,
                latest=held[OffsetSpec.LATEST][tp].offset,
                size_bytes=sizes.get((view.partitions[number].leader, tp)),
            )
            for number, tp in tps.items()
        )

    @property
    def offsets(self) -> dict[int, tuple[int, int]]:
        """``(earliest, latest)`` by partition."""
        return {state.partition: (state.earliest, state.latest) for state in self.partitions()}

    @property
    def records(self) -> int:
        """How many offsets it holds."""
        return sum(state.records for state in self.partitions())

    @property
    def size_bytes(self) -> int:
        """Of the leaders' logs, as far as they are known: without replicas."""
        return sum(state.size_bytes or 0 for state in self.partitions())

    def preview(self, records: int = 10) -> list[ConsumedRecord]:
        """The newest records of all partitions, by their timestamps, newest last."""
        wanted = {
            TopicPartition(self.name, state.partition): state
            for state in self.partitions()
            if state.records
        }
        if not wanted:
            return []
        found: list[ConsumedRecord] = []
        end = time.monotonic() + PREVIEW_SECONDS_MAX
        with self._client.consumer() as consumer:
            consumer.assign(
                {tp: max(at.earliest, at.latest - records) for tp, at in wanted.items()}
            )
            while time.monotonic() < end and any(
                consumer.position(tp) < at.latest for tp, at in wanted.items()
            ):
                found += consumer.poll(0.5, max_records=10_000)
        found.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
        return found[-records:]

    def __repr__(self) -> str:
        return f"<sparklog.Topic {self.name}>"

    def _repr_html_(self) -> str:
        name = f"<b>topic</b> <code>{html.escape(self.name)}</code>"
        try:
            states = self.partitions(LOOK_SECONDS_MAX)
            newest = self.preview(5)
        except SparklogError as error:
            return f"{name}: {html.escape(str(error))}"
        known = [state.size_bytes for state in states if state.size_bytes is not None]
        size = f", {_bytes(sum(known))}" if known else ""
        records = sum(state.records for state in states)
        return (
            f"{name}: {records:,} records in {len(states)} partitions{size}"
            f"{_partitions_html(states)}{_records_html(newest)}"
        )

    def _view(self, timeout_s: float | None) -> TopicView:
        return self._client.metadata([self.name], timeout_s=timeout_s).topic(self.name)

    def _sizes(self, timeout_s: float | None) -> Mapping[tuple[int, TopicPartition], int]:
        """By broker and partition; of none when a broker does not answer."""
        limit = self._client.timeout_s if timeout_s is None else timeout_s
        admin = Admin(self._client.cluster, timeout_s=limit)
        with suppress(SparklogError):
            return {
                (broker, tp): size
                for broker, directories in self._client.run(
                    admin.describe_log_dirs(), limit
                ).items()
                for directory in directories
                for tp, size in directory.sizes.items()
                if tp.topic == self.name
            }
        return {}


def _partitions_html(states: Sequence[TopicPartitionState]) -> str:
    rows = [
        (
            str(state.partition),
            str(state.leader),
            _replicas_text(state),
            f"{state.earliest:,}",
            f"{state.latest:,}",
            "" if state.size_bytes is None else _bytes(state.size_bytes),
        )
        for state in states[:PARTITIONS_SHOWN_MAX]
    ]
    more = len(states) - len(rows)
    table = _table(("partition", "leader", "replicas", "from", "to", "size"), rows)
    return f"{table}... and {more} more" if more else table


def _replicas_text(state: TopicPartitionState) -> str:
    """Those that are not in sync in brackets."""
    return ", ".join(str(id) if id in state.isr else f"({id})" for id in state.replicas)


def _records_html(records: Sequence[ConsumedRecord]) -> str:
    if not records:
        return ""
    rows = [
        (
            str(record.partition),
            str(record.offset),
            _moment(record.timestamp),
            _text(record.key),
            _text(record.value),
        )
        for record in records
    ]
    return "newest records" + _table(("partition", "offset", "timestamp", "key", "value"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{text}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _text(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = value[: 4 * SHOWN_MAX].decode("utf-8", errors="replace")
    shown = "".join(c if c.isprintable() else "�" for c in text[:SHOWN_MAX])
    return shown if shown == text and len(value) <= 4 * SHOWN_MAX else f"{shown} ..."


def _bytes(size: int) -> str:
    number, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"
