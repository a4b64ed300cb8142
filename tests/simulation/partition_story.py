"""A story of one partition, commit by commit, for the tests of checkers.

Owns: the partition and how its states are told.  Must not know a checker.
"""

from dataclasses import replace
from uuid import UUID

from sparklog.metadata import (
    BrokerImage,
    BrokerRegistered,
    ConfigChanged,
    PartitionChanged,
    PartitionImage,
    Record,
    TopicCreated,
)
from sparklog.types import ResourceType
from tests.simulation.events import BrokerDied, Committed, LogId

TOPIC_ID = UUID(int=1)
LOG = LogId("t", TOPIC_ID, 0)
NAME = str(LOG)
STATE = PartitionImage(replicas=(1, 2, 3), isr=(1, 2, 3), last_known=(1, 2, 3), leader=1)


def committed(*records: Record) -> Committed:
    return Committed(number=0, records=records)


def created(min_isr: int = 1, state: PartitionImage = STATE, **configs: str) -> Committed:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    overrides = {"min.insync.replicas": str(min_isr), **named}
    return committed(
        TopicCreated(topic="t", topic_id=TOPIC_ID, partitions=(state,)),
        *(
            ConfigChanged(
                resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value
            )
            for name, value in overrides.items()
        ),
    )


class Told:
    """Successive states of the partition, as commits."""

    def __init__(self, state: PartitionImage = STATE) -> None:
        self.state = state

    def now(
        self, leader: int, isr: tuple[int, ...], eligible: tuple[int, ...] = ()
    ) -> PartitionChanged:
        before = self.state
        self.state = replace(
            before,
            leader=leader,
            isr=isr,
            eligible=eligible,
            leader_epoch=before.leader_epoch + (leader != before.leader),
            partition_epoch=before.partition_epoch + 1,
        )
        return PartitionChanged(topic="t", partition=0, state=self.state)


def registered(broker_id: int, *, clean: bool = False, disk: int = 1, life: int = 2) -> Record:
    broker = BrokerImage(
        broker_id=broker_id, directory_id=UUID(int=disk), incarnation=UUID(int=life)
    )
    return BrokerRegistered(broker=broker, clean=clean)


def lost_power(broker: int, life: int = 1) -> BrokerDied:
    return BrokerDied(broker=broker, power_lost=True, incarnation=UUID(int=life))
