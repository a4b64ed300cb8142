"""What the cluster image is made of: a partition's state and a broker's, as frozen values.

Owns: the shape of one partition and one broker.  Must not know how they change or who stores them.
"""

from dataclasses import dataclass
from uuid import UUID

from sparklog.types import NO_NODE, Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition as the controller last decided it.

    ``eligible`` are the replicas outside the ISR that are known to hold every acknowledged record
    (KIP-966).  ``last_known`` are those that were in either since the ISR last had its size, while
    a leader lived; unclean registrations do not shrink it, so it tells whom to wait for when both
    sets are empty.
    During a reassignment ``replicas`` are the old and the new ones together, those to come first in
    their order; ``adding`` are not yet in the ISR that it waits for, ``removing`` go with its end.
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
        """How large the ISR must be for the high watermark to advance.

        Never more than there are replicas; those that a reassignment still adds do not count, so
        that it does not stop the partition until they are in sync.
        """
        return min(min_insync_replicas, len(self.replicas) - len(self.adding))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One broker id: who holds it, where it listens, and whether it may lead.

    An id that was assigned but never registered has no ``directory_id`` and epoch -1.  A broker
    that is ``draining`` is on its way out: it gets no replicas, and loses its own to others.
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
        """Its executor's host; where no executor is known, the host that it listens on."""
        return self.executor_host or self.host

    @property
    def place(self) -> str:
        """The outermost of what fails with it: its rack; without one, its machine."""
        return self.rack or self.machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    """The controller that wrote last: its epoch and where it listens (Kafka node 0)."""

    controller_epoch: int = 0
    host: str = ""
    port: int = 0

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)
