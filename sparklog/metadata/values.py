"""The values of a cluster image: the state of a partition and of a broker, as frozen values.

Owns: the fields of a partition and of a broker.  Must not know how they change or are stored.
"""

from dataclasses import dataclass
from uuid import UUID

from sparklog.types import NO_NODE, Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """The state of one partition, as the controller has last decided it.

    ``eligible`` are the replicas outside the ISR that are known to hold every acknowledged record
    (KIP-966).  ``last_known`` are the replicas that were in the ISR or eligible since the ISR last
    had its size, while a leader was alive.  Unclean registrations do not shrink ``last_known``, so
    it names the replicas to wait for when the other two sets are empty.

    During a reassignment ``replicas`` are the old and the new replicas together, the new ones first
    and in their order.  ``adding`` are the replicas that have to join the ISR; ``removing`` are
    those that are dropped at the end.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader: int = NO_NODE
    leader_epoch: int = 0
    partition_epoch: int = 0

    @property
    def offline(self) -> bool:
        return self.leader == NO_NODE

    def required_isr(self, min_insync_replicas: int) -> int:
        """The size that the ISR must have for the high watermark to advance.

        The size is limited by the number of replicas.  Replicas that a reassignment adds do not
        count, so that a reassignment does not block the partition until they are in sync.
        """
        return min(min_insync_replicas, len(self.replicas) - len(self.adding))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One broker id: the process that holds it, its address, and whether it may lead.

    An id that was assigned but never registered has no ``directory_id`` and epoch -1.  A
    ``draining`` broker is being removed: it gets no replicas, and its replicas move to others.
    """

    broker_id: int
    directory_id: UUID | None = None
    incarnation: UUID | None = None
    broker_epoch: int = -1
    host: str = ""
    port: int = 0
    executor_host: str = ""
    executor_id: str = ""
    job: str = ""
    rack: str = ""
    fenced: bool = True
    draining: bool = False

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)

    @property
    def registered(self) -> bool:
        return self.directory_id is not None

    @property
    def machine(self) -> str:
        """The host of the broker's executor; without an executor the host that it listens on."""
        return self.executor_host or self.host

    @property
    def place(self) -> str:
        """The outermost failure domain of the broker: its rack, or without a rack its machine."""
        return self.rack or self.machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    """The present controller: its epoch and its address (Kafka node 0)."""

    controller_epoch: int = 0
    host: str = ""
    port: int = 0

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)
