"""Commits, written into the history when they come into the journal.

Owns: the moment.  Must not know what a commit says.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sparklog.metadata import (
    BrokerFenced,
    BrokerRegistered,
    PartitionChanged,
    Record,
    TopicCreated,
    TopicDeleted,
)
from sparklog.metadata.records import from_json
from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition
from tests.simulation.events import Committed
from tests.simulation.workloads import observe
from tests.simulation.workloads.scene import Scene

_COMMIT = re.compile(r"(\d{20})\.json")


def _told(record: Record) -> str:
    """What is worth a place in the trace."""
    match record:
        case PartitionChanged(topic=topic, partition=number, state=state):
            moving = f" +{state.adding} -{state.removing}" if state.adding or state.removing else ""
            return (
                f"{topic}-{number} {state.replicas}{moving} led by {state.leader} in epoch "
                f"{state.leader_epoch}, in sync {state.isr}, eligible {state.eligible}, last known "
                f"{state.last_known}"
            )
        case BrokerRegistered(broker=broker):
            stopped = "cleanly" if record.clean else "uncleanly"
            return f"broker {broker.broker_id} is back, it had stopped {stopped}"
        case BrokerFenced():
            return f"broker {record.broker_id} is fenced: {record.reason}"
        case TopicCreated() | TopicDeleted():
            return f"{type(record).__name__} {record.topic}"
    return ""


@contextmanager
def noted(scene: Scene) -> Iterator[None]:
    """Meanwhile every new file of the journal is an event, one whose answer is lost too."""
    real = MemoryBackend.put_if_absent
    known: set[int] = set()

    def put_if_absent(self: MemoryBackend, path: str, data: Buffer) -> bool:
        try:
            return real(self, path, data)
        finally:
            found = _COMMIT.fullmatch(path)
            if found and int(found[1]) not in known and path in self.disk.root.live:
                known.add(int(found[1]))
                records = tuple(map(from_json, json.loads(bytes(data))["records"]))
                scene.history.record(Committed(number=int(found[1]), records=records))
                for record in records:
                    if isinstance(record, PartitionChanged):
                        tp = TopicPartition(record.topic, record.partition)
                        observe.high_watermark(scene, tp, record.state.leader)
                told = "; ".join(filter(None, map(_told, records)))
                scene.world.note(f"commit {int(found[1])}: {told}")

    with patch.object(MemoryBackend, "put_if_absent", put_if_absent):
        yield
