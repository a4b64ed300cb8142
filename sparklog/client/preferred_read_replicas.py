"""Where fetches go: to a partition's leader, or to the follower in the same rack (KIP-392).

Owns: where this client stands, and which follower each leader has named.  Must not know how records
are fetched.

A follower that gives nothing is left alone for a while: it may be behind, or gone, and the leader
may not know it yet.
"""

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from sparklog.client.cluster_view import ClusterView
from sparklog.client.deadline import Deadline
from sparklog.types import NO_NODE, TopicPartition

#: Says where the client stands, once the cluster is known; empty: nowhere, so leaders are read.
RackOf = Callable[[ClusterView], str]

#: For how long a follower is read from before its leader is asked again, as Java's consumers do.
PREFERRED_SECONDS_MAX: Final = 300.0
#: For how long a partition is read from its leader after a follower gave nothing.
LEADER_ONLY_SECONDS: Final = 5.0


class PreferredReadReplicas:
    """The followers that one client reads from."""

    def __init__(self, rack_of: RackOf) -> None:
        self._rack_of = rack_of
        self._rack: str | None = None
        self._preferred: dict[TopicPartition, tuple[int, Deadline]] = {}
        self._leader_only: dict[TopicPartition, Deadline] = {}

    def rack(self, partitions: Iterable[TopicPartition], view: ClusterView) -> str:
        """What a leader is told, so that it may name a follower; empty where it shall not."""
        if self._rack is None:
            self._rack = self._rack_of(view)
        if not self._rack or any(self._is_leader_only(tp) for tp in partitions):
            return ""
        return self._rack

    def node_of(self, tp: TopicPartition, leader: int) -> int:
        """Who is asked for a partition."""
        node, until = self._preferred.get(tp, (leader, None))
        if until is not None and until.expired:
            del self._preferred[tp]
            return leader
        return node

    def is_follower(self, tp: TopicPartition, node: int) -> bool:
        """Whether that node is asked because it was named."""
        return self._preferred.get(tp, (NO_NODE, None))[0] == node

    def prefer(self, tp: TopicPartition, node: int) -> None:
        """The leader has sent us to that follower."""
        self._preferred[tp] = (node, Deadline(PREFERRED_SECONDS_MAX))

    def fall_back(self, tp: TopicPartition, node: int) -> None:
        """That node gave nothing; a leader is asked again all the same."""
        if self.is_follower(tp, node):
            del self._preferred[tp]
            self._leader_only[tp] = Deadline(LEADER_ONLY_SECONDS)

    def _is_leader_only(self, tp: TopicPartition) -> bool:
        until = self._leader_only.get(tp)
        if until is not None and until.expired:
            del self._leader_only[tp]
        return tp in self._leader_only


def given_rack(rack: str) -> RackOf:
    """That rack, whatever the cluster has."""
    return lambda _view: rack


NO_RACK: Final = given_rack("")


def own_rack(view: ClusterView) -> str:
    """The rack of the brokers on this host, if they have one and the same."""
    racks = {rack for node, rack in view.racks.items() if _is_here(view.nodes[node].host)}
    return racks.pop() if len(racks) == 1 else ""


def _is_here(host: str) -> bool:
    """Whether an address is one of this host's: no other can be bound to."""
    with suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, 0, type=socket.SOCK_DGRAM
        ):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
    return False
