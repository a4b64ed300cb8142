"""The replicas to fetch from: the leader, or the preferred read replica in the same rack (KIP-392).

Owns: the rack of this client, and the preferred read replica that each leader has named.  Must not
know how records are fetched.

A follower that returns nothing is not used for a while: it may lag or be down, and the leader may
not know that yet.
"""

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from sparklog.client.cluster_view import ClusterView
from sparklog.client.deadline import Deadline
from sparklog.types import NO_NODE, TopicPartition

#: Returns the rack of the client, once the cluster is known; empty: only leaders are read.
RackOf = Callable[[ClusterView], str]

#: Time for which a follower is read before the leader is asked again, as in Java's consumer.
PREFERRED_SECONDS_MAX: Final = 300.0
#: Time for which a partition is read from its leader after a follower returned nothing.
LEADER_ONLY_SECONDS: Final = 5.0


class PreferredReadReplicas:
    """The preferred read replicas of one client, by partition."""

    def __init__(self, rack_of: RackOf) -> None:
        self._rack_of = rack_of
        self._rack: str | None = None
        self._preferred: dict[TopicPartition, tuple[int, Deadline]] = {}
        self._leader_only: dict[TopicPartition, Deadline] = {}

    def rack(self, partitions: Iterable[TopicPartition], view: ClusterView) -> str:
        """The rack of a fetch request; empty where the leader must return records itself."""
        if self._rack is None:
            self._rack = self._rack_of(view)
        if not self._rack or any(self._is_leader_only(tp) for tp in partitions):
            return ""
        return self._rack

    def node_of(self, tp: TopicPartition, leader: int) -> int:
        """The node to fetch a partition from."""
        node, until = self._preferred.get(tp, (leader, None))
        if until is not None and until.expired:
            del self._preferred[tp]
            return leader
        return node

    def is_follower(self, tp: TopicPartition, node: int) -> bool:
        """Whether the node is the preferred read replica of the partition."""
        return self._preferred.get(tp, (NO_NODE, None))[0] == node

    def prefer(self, tp: TopicPartition, node: int) -> None:
        """Take the preferred read replica that the leader has named."""
        self._preferred[tp] = (node, Deadline(PREFERRED_SECONDS_MAX))

    def fall_back(self, tp: TopicPartition, node: int) -> None:
        """Ask the leader for a while, if ``node`` is a follower (which returned nothing)."""
        if self.is_follower(tp, node):
            del self._preferred[tp]
            self._leader_only[tp] = Deadline(LEADER_ONLY_SECONDS)

    def _is_leader_only(self, tp: TopicPartition) -> bool:
        until = self._leader_only.get(tp)
        if until is not None and until.expired:
            del self._leader_only[tp]
        return tp in self._leader_only


def given_rack(rack: str) -> RackOf:
    """A rack that does not depend on the cluster."""
    return lambda _view: rack


NO_RACK: Final = given_rack("")


def own_rack(view: ClusterView) -> str:
    """The rack of the brokers on this host, if all of them have the same rack."""
    racks = {rack for node, rack in view.racks.items() if _is_here(view.nodes[node].host)}
    return racks.pop() if len(racks) == 1 else ""


def _is_here(host: str) -> bool:
    """Whether an address belongs to this host: other addresses cannot be bound."""
    with suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, 0, type=socket.SOCK_DGRAM
        ):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
    return False
