"""Replica assignments of new partitions, chosen by placement or given by the client.

Owns: the limits and the checks of both, and the warning when replicas share a failure domain.  Must
not know which request the assignments come from.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from sparklog.driver.control_plane.placement import (
    Candidate,
    Replicas,
    extend,
    place,
    substitute,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import BrokerImage, ClusterImage, PartitionImage, TopicImage
from sparklog.metadata.replica_index import second_replica

#: Most partitions of one topic.
TOPIC_PARTITIONS_MAX = 10_000
#: Most partitions of all topics together.
CLUSTER_PARTITIONS_MAX = 100_000
#: The levels of failure domains, outermost first.
DOMAINS = ("rack", "host", "executor", "job")
#: Most domains that a warning names, and most brokers that a refusal names.
_NAMED_MAX = 5


class PlacementDraft:
    """The load of all brokers during one request, including the request's earlier topics."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._partitions = image.partition_count
        self._replicas: Counter[int] = Counter()
        self._preferred: dict[int, Counter[int]] = {}
        for broker_id in image.brokers:
            self._replicas[broker_id] = len(image.partitions_of(broker_id))
            self._preferred[broker_id] = Counter(image.second_replica_counts(broker_id))

    def place(
        self, partitions: int, factor: int, topic: TopicImage | None = None
    ) -> tuple[Replicas, ...]:
        """Choose the replicas of new partitions.

        Args:
            factor: the replication factor.
            topic: the topic that gets the partitions; None for a new topic.

        Raises:
            KafkaError: there are too many partitions, or too few brokers.
        """
        present = _replicas_of(topic)
        self._check_limits(partitions, len(present))
        candidates = self._candidates(factor)
        return self._take(place(partitions, factor, candidates, present))

    def accept(
        self, assignments: Sequence[tuple[int, ...]], topic: TopicImage | None = None
    ) -> tuple[Replicas, ...]:
        """Check and take the replicas that a client has chosen.

        Args:
            assignments: the replicas of each new partition.
            topic: the topic that gets the partitions; None for a new topic.

        Raises:
            KafkaError: there are too many partitions, or the assignment is not possible.
        """
        present = _replicas_of(topic)
        self._check_limits(len(assignments), len(present))
        for partition, replicas in enumerate(assignments, start=len(present)):
            self._check_replicas(partition, replicas)
        factors = {len(replicas) for replicas in (*present[:1], *assignments)}
        if len(factors) > 1:
            raise _wrong_assignment("the partitions have different numbers of replicas")
        return self._take(tuple(assignments))

    def substitute(self, replicas: Replicas, leaving: Collection[int]) -> Replicas | None:
        """Replace the ``leaving`` brokers among the replicas; None if there are too few brokers."""
        brokers = [broker for broker in self._image.brokers.values() if broker.registered]
        chosen = substitute(replicas, leaving, map(self._candidate, brokers))
        if chosen is not None:
            self._count(replicas, -1)
            self._count(chosen)
        return chosen

    def extend(self, replicas: Replicas, factor: int, others: Sequence[Replicas]) -> Replicas:
        """Add replicas to a partition, on alive brokers, of which there must be enough.

        Args:
            factor: the number of replicas that the partition gets.
            others: the replicas of the topic's other partitions.
        """
        self._count(replicas, -1)
        brokers = [broker for broker in self._image.brokers.values() if broker.registered]
        chosen = extend(replicas, factor, map(self._candidate, brokers), others)
        self._count(chosen)
        return chosen

    def _candidates(self, factor: int) -> list[Candidate]:
        """The alive brokers, and also the fenced brokers if the alive ones are not enough."""
        usable = [b for b in self._image.brokers.values() if b.registered and not b.draining]
        alive = [broker for broker in usable if not broker.fenced]
        if not alive:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "no broker is alive to take a partition; start brokers, or wait for their return",
            )
        if factor > len(usable):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor} is larger than the number of brokers, "
                f"{len(usable)}: each replica needs a broker of its own",
            )
        return [self._candidate(broker) for broker in (alive if factor <= len(alive) else usable)]

    def _candidate(self, broker: BrokerImage) -> Candidate:
        return Candidate(
            broker_id=broker.broker_id,
            alive=not broker.fenced and not broker.draining,
            leads=self._preferred[broker.broker_id].total(),
            replicas=self._replicas[broker.broker_id],
            second_counts=self._preferred[broker.broker_id],
            domains=failure_domains(broker),
        )

    def _take(self, chosen: tuple[Replicas, ...]) -> tuple[Replicas, ...]:
        for replicas in chosen:
            self._count(replicas)
        self._partitions += len(chosen)
        return chosen

    def _count(self, replicas: Replicas, change: int = 1) -> None:
        for broker_id in replicas:
            self._replicas[broker_id] += change
        self._preferred[replicas[0]][second_replica(replicas)] += change

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
        check_replicas(self._image, partition, replicas)
        if not any(map(self._image.is_alive, replicas)):
            raise _wrong_assignment(
                f"no broker named for partition {partition} is alive: {_shown(replicas)}"
            )


def check_replicas(
    image: ClusterImage,
    partition: int,
    replicas: tuple[int, ...],
    present: Collection[int] = (),
) -> None:
    """Check the replicas of one partition.

    Args:
        present: the replicas that the partition has now; they may be on draining brokers.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        raise _wrong_assignment(f"partition {partition} has an empty list of replicas")
    if len(set(replicas)) < len(replicas):
        raise _wrong_assignment(f"partition {partition} names a broker twice: {_shown(replicas)}")
    for broker_id in replicas:
        broker = image.broker(broker_id)
        if broker is None or not broker.registered:
            raise _wrong_assignment(
                f"partition {partition} names broker {broker_id}, which is not registered"
            )
        if broker.draining and broker_id not in present:
            raise _wrong_assignment(
                f"partition {partition} names broker {broker_id}, which is being drained and takes "
                "no replicas"
            )


def _shown(replicas: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, replicas[:_NAMED_MAX]))
    return f"[{shown}, ...]" if len(replicas) > _NAMED_MAX else f"[{shown}]"


def check_replication_factor(factor: int) -> None:
    """Raises KafkaError(INVALID_REPLICATION_FACTOR) unless the factor is positive."""
    if factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is not positive; use -1 for the default",
        )


def failure_domains(broker: BrokerImage) -> tuple[str, ...]:
    """The broker's failure domains, one name per level of ``DOMAINS``.

    A broker is a domain of its own at levels for which it has given no name.
    """
    alone = f"broker {broker.broker_id}"
    executor = f"{broker.machine}/{broker.executor_id}" if broker.executor_id else alone
    return (broker.place, broker.machine, executor, broker.job or alone)


def shared_domains(
    image: ClusterImage, assignments: Sequence[Replicas]
) -> tuple[str, tuple[str, ...]] | None:
    """The outermost level at which a partition has several replicas in one failure domain.

    Returns:
        The level, and the names of these domains; None if there is no such level.
    """
    worst = len(DOMAINS)
    where: set[str] = set()
    for replicas in set(map(frozenset, assignments)):
        brokers = [image.brokers[broker_id] for broker_id in replicas]
        levels = zip(*map(failure_domains, brokers), strict=True)
        for level, names in enumerate(levels):
            if level == 0 and not any(broker.rack for broker in brokers):
                continue  # without racks, the next level (host) has the same domains
            twice = {name for name, times in Counter(names).items() if times > 1}
            if twice and level < worst:
                worst, where = level, set()
            if twice and level == worst:
                where |= twice
    return (DOMAINS[worst], tuple(sorted(where))) if where else None


def shared_warning(image: ClusterImage, topic: str, assignments: Sequence[Replicas]) -> str | None:
    """The warning that the loss of one domain takes several replicas of a partition, if so."""
    shared = shared_domains(image, assignments)
    if shared is None:
        return None
    level, names = shared
    shown = ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")
    return (
        f"topic {topic!r}: replicas of a partition stand on the same {level} ({shown}); its loss "
        "takes them together"
    )


def _replicas_of(topic: TopicImage | None) -> list[Replicas]:
    return [targets(state) for state in topic.partitions.values()] if topic else []


def targets(state: PartitionImage) -> Replicas:
    """The replicas that a partition has, or will have once its reassignment is complete."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def _wrong_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
