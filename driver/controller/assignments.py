"""Replicas of new partitions, chosen by placement or given by the client.

Owns: the limits and the checks on both.  Must not know which request they come from.
"""

from collections.abc import Sequence

from sparklog.driver.placement import Replicas, place
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage

#: Partitions of one topic.
TOPIC_PARTITIONS_MAX = 10_000
#: Partitions of all topics.
CLUSTER_PARTITIONS_MAX = 100_000
#: Replicas of a partition, until brokers replicate.
REPLICATION_FACTOR_MAX = 1


class PlacementDraft:
    """The load of the brokers while one request is decided, its earlier topics included."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        alive = [broker.broker_id for broker in image.alive_brokers()]
        self._load = {broker_id: len(image.partitions_led_by(broker_id)) for broker_id in alive}
        self._partitions = image.partition_count

    def place(self, partitions: int, present: int = 0) -> tuple[Replicas, ...]:
        """Choose brokers for partitions of a topic that has ``present`` ones already."""
        self._check_limits(partitions, present)
        if not self._load:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "no broker is alive to take a partition; start brokers, or wait for their return",
            )
        return self._take(place(partitions, self._load))

    def accept(
        self, assignments: Sequence[tuple[int, ...]], present: int = 0
    ) -> tuple[Replicas, ...]:
        """Take the client's choice.  Raises KafkaError for one that cannot be."""
        self._check_limits(len(assignments), present)
        for partition, replicas in enumerate(assignments, start=present):
            self._check_replicas(partition, replicas)
        if len({len(replicas) for replicas in assignments}) > 1:
            raise _wrong_assignment("the partitions have different numbers of replicas")
        check_replication_factor(len(assignments[0]) if assignments else 1)
        return self._take(tuple(assignments))

    def _take(self, chosen: tuple[Replicas, ...]) -> tuple[Replicas, ...]:
        for replicas in chosen:
            self._load[replicas[0]] += 1
        self._partitions += len(chosen)
        return chosen

    def _check_limits(self, added: int, present: int) -> None:
        if added + present > TOPIC_PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"{added + present} partitions are too many; a topic has at most "
                f"{TOPIC_PARTITIONS_MAX}",
            )
        if self._partitions + added > CLUSTER_PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"the cluster has {self._partitions} partitions and takes at most "
                f"{CLUSTER_PARTITIONS_MAX}; {added} more are too many",
            )

    def _check_replicas(self, partition: int, replicas: tuple[int, ...]) -> None:
        if not replicas:
            raise _wrong_assignment(f"partition {partition} has an empty list of replicas")
        if len(set(replicas)) < len(replicas):
            raise _wrong_assignment(f"partition {partition} names a broker twice: {replicas}")
        for broker_id in replicas:
            broker = self._image.broker(broker_id)
            if broker is None or not broker.registered:
                raise _wrong_assignment(
                    f"partition {partition} names broker {broker_id}, which is not registered"
                )
        if not any(map(self._image.is_alive, replicas)):
            raise _wrong_assignment(
                f"no broker named for partition {partition} is alive: {list(replicas)}"
            )


def check_replication_factor(factor: int) -> None:
    """Raises KafkaError(INVALID_REPLICATION_FACTOR)."""
    if factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is not positive; use -1 for the default",
        )
    if factor > REPLICATION_FACTOR_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is larger than {REPLICATION_FACTOR_MAX}: replication is "
            f"not available yet; use {REPLICATION_FACTOR_MAX}, or -1 for the default",
        )


def _wrong_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
