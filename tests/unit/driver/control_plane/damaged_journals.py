"""A journal with a history, parts of which tests damage."""

from typing import Any
from uuid import UUID

from sparklog.driver.control_plane.journal import (
    CommitHeader,
    Journal,
)
from sparklog.driver.control_plane.journal_repair.repair import Repaired, repair_journal
from sparklog.driver.control_plane.journal_repair.repair_plan import (
    RepairPlan,
    plan_repair,
)
from sparklog.driver.control_plane.journal_repair.survey import Survey, survey_journal
from sparklog.metadata import (
    BrokerIdAssigned,
    BrokerImage,
    BrokerRegistered,
    ClusterCreated,
    ClusterImage,
    ConfigChanged,
    ControllerChanged,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    encode_records,
)
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import ResourceType
from tests.unit.driver.control_plane.driver_fakes import directory, incarnation

NOW_MS = 1_795_000_000_000
FOLDER = "damaged-20261118T110640Z"


def registered(broker_id: int, epoch: int = 0) -> BrokerRegistered:
    return BrokerRegistered(
        broker=BrokerImage(
            broker_id=broker_id,
            directory_id=directory(broker_id),
            incarnation=incarnation(broker_id),
            broker_epoch=epoch,
            host="h",
            port=1,
        ),
        clean=True,
    )


def state(*replicas: int, epoch: int = 0, **more: Any) -> PartitionImage:
    values: dict[str, Any] = {
        "isr": replicas,
        "last_known": tuple(sorted(replicas)),
        "leader": replicas[0],
        **more,
    }
    return PartitionImage(replicas=replicas, leader_epoch=epoch, partition_epoch=epoch, **values)


def topic(name: str, number: int, *states: PartitionImage) -> TopicCreated:
    return TopicCreated(topic=name, topic_id=UUID(int=number), partitions=states)


def setting(name: str, value: str | None, topic_name: str = "t") -> ConfigChanged:
    return ConfigChanged(
        resource_type=ResourceType.TOPIC, resource_name=topic_name, name=name, value=value
    )


#: The history of a cluster with controllers of epochs 1 and 2; item n-1 is commit n.
HISTORY: list[tuple[int, tuple[Record, ...]]] = [
    (1, (ClusterCreated(cluster_id="c", created_ms=1), controller := ControllerChanged(
        controller_epoch=1, host="127.0.0.1", port=9))),
    (1, (registered(1), registered(2), registered(3))),
    (1, (topic("t", 1, state(1, 2), state(2, 1)),)),
    (1, (ProducerIdsAllocated(broker_id=1, first_producer_id=0, count=1000),)),
    (1, (PartitionChanged(topic="t", partition=0, state=state(1, 2, epoch=3, isr=(2,),
        leader=2)),)),
    (2, (ControllerChanged(controller_epoch=2, host="127.0.0.1", port=9),)),
    (2, (topic("late", 2, state(3, 1, epoch=1)), setting("retention.ms", "-1", "late"))),
    (2, (ProducerIdsAllocated(broker_id=2, first_producer_id=1000, count=1000),)),
    (2, (PartitionChanged(topic="t", partition=1, state=state(3, 1, epoch=7)),
         BrokerIdAssigned(broker_id=4))),
    (2, (PartitionsAdded(topic="late", partitions=(state(1, 3),)), registered(1, 5))),
]  # fmt: skip


def journal_of(
    history: list[tuple[int, tuple[Record, ...]]] = HISTORY,
    *,
    checkpoints: tuple[int, ...] = (),
    backend: Any = None,
) -> Any:
    backend = backend if backend is not None else MemoryBackend()
    journal, image = Journal(backend), ClusterImage()
    for version, (epoch, records) in enumerate(history, start=1):
        head = CommitHeader(version=version, controller_epoch=epoch, nonce="n", time_ms=version)
        journal.commit(head, encode_records(records))
        image.replay_commit(version, records)
        if version in checkpoints:
            journal.write_checkpoint(head, image.snapshot_records())
    return backend


def image_at(version: int) -> ClusterImage:
    image = ClusterImage()
    for number, (_, records) in enumerate(HISTORY[:version], start=1):
        image.replay_commit(number, records)
    return image


def repair(
    backend: Any, *, keep_readable: bool = False, nonce: str = "repair"
) -> tuple[Survey, RepairPlan | None, Repaired]:
    survey = survey_journal(backend)
    plan = plan_repair(survey, keep_readable=keep_readable) if survey.lost else None
    done = repair_journal(backend, survey, plan, now_ms=NOW_MS, nonce=nonce, report={"a": 1})
    return survey, plan, done
