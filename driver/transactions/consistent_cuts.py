"""Consistent cuts: moments at which the last stable offsets of partitions tear no transaction.

Owns: the cuts that are being taken, what each of them holds back, and for how long.  Must not know
offsets, shards or sockets.

A cut waits for its turn, *drains* its partitions until all of them are settled (see
``partition_transactions``), and is then *ready*: the last stable offsets are collected.

* While a cut drains, transactions with none of its partitions cannot join them, and those that
  have joined go on and end.
* While the offsets are collected, no commit of a transaction with one of its partitions is decided.
  Aborts are decided always, because no reader sees their records.

A client's request that is held back waits, and is decided when the cut ends.  A broker's request is
refused after a moment with CONCURRENT_TRANSACTIONS, upon which the broker asks again.  Nothing is
held back for long, whoever asks for cuts:

* A cut ends after its maximum wait, which is at most ``CUT_WAIT_MS_MAX``.
* A partition is part of one cut at a time, and afterwards it rests for as long as it was held.  So
  it is held for at most half of the time, and what was held back is decided between two cuts.
* A cut that would have to wait for a transaction that is older than the cut may become is refused
  at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from sparklog.driver.transactions.decision import Now
from sparklog.driver.transactions.partition_transactions import Blocker, PartitionTransactions
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

#: The longest time that one cut may take, in milliseconds.
CUT_WAIT_MS_MAX: Final = 10_000
#: Cuts that are taken or wait for their turn at the same time.
CUTS_MAX: Final = 100


class _Phase(Enum):
    WAITING = "waiting"
    DRAINING = "draining"
    READY = "ready"
    REFUSED = "refused"


@dataclass(slots=True)
class _Cut:
    """``began`` is the time at which its turn began; None while it waits for its turn."""

    partitions: frozenset[TopicPartition]
    max_wait_ms: int
    phase: _Phase = _Phase.WAITING
    began: Now | None = None
    blocker: Blocker | None = None


@dataclass(frozen=True, slots=True)
class _Rest:
    partitions: frozenset[TopicPartition]
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutProgress:
    """The cuts, by their ids, whose offsets are to be collected now, and those that are refused."""

    ready: tuple[int, ...] = ()
    refused: dict[int, KafkaError] = field(default_factory=dict)


class ConsistentCuts:
    """The cuts over all shards of a coordinator.  Pure.

    ``transactions`` are the open transactions of all shards, which the shards keep up to date.
    """

    def __init__(self) -> None:
        self.transactions = PartitionTransactions()
        self._cuts: dict[int, _Cut] = {}
        self._rests: list[_Rest] = []

    # -- the life of a cut

    def begin(self, cut_id: int, partitions: frozenset[TopicPartition], max_wait_ms: int) -> None:
        """Let a cut wait for its turn; ``advance`` says when it is ready.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED when too many cuts wait.
        """
        if len(self._cuts) >= CUTS_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{CUTS_MAX} consistent cuts are being taken"
            )
        self._cuts[cut_id] = _Cut(partitions, max_wait_ms)

    def advance(self, now: Now) -> CutProgress:
        """Begin the turns that may begin, and find the cuts that are drained or refused."""
        ready: list[int] = []
        refused: dict[int, KafkaError] = {}
        self._rests = [rest for rest in self._rests if rest.until_ms > now.monotonic_ms]
        for cut_id, cut in list(self._cuts.items()):
            if cut.phase == _Phase.WAITING and self._may_begin(cut):
                cut.phase, cut.began = _Phase.DRAINING, now
            if cut.phase != _Phase.DRAINING:
                continue
            cut.blocker = self._blocker(cut)
            if cut.blocker is None:
                cut.phase = _Phase.READY
                ready.append(cut_id)
            elif _is_too_old(cut.blocker, cut):
                cut.phase = _Phase.REFUSED
                refused[cut_id] = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, self.reason(cut_id))
        return CutProgress(ready=tuple(ready), refused=refused)

    def end(self, cut_id: int, now: Now) -> None:
        """Hold nothing back for this cut any more; it may have ended before."""
        cut = self._cuts.pop(cut_id, None)
        if cut is not None and cut.began is not None:
            held_ms = now.monotonic_ms - cut.began.monotonic_ms
            self._rests.append(_Rest(cut.partitions, now.monotonic_ms + held_ms + 1))

    def next_turn_ms(self) -> int | None:
        """When ``advance`` may begin a turn that has to wait for a rest, in monotonic milliseconds;
        None if there is none."""
        if all(cut.phase != _Phase.WAITING for cut in self._cuts.values()):
            return None
        return min((rest.until_ms for rest in self._rests), default=None)

    def reason(self, cut_id: int) -> str:
        """Why the cut has not been taken yet."""
        cut = self._cuts[cut_id]
        if cut.phase == _Phase.WAITING:
            return "other consistent cuts of these partitions come first"
        if cut.blocker is None:
            return "the leaders have not told their last stable offsets in time"
        return (
            f"transaction {cut.blocker.transactional_id!r} was open in "
            f"{cut.blocker.topic_partition} when another one was committed there, and is not over "
            "yet"
        )

    # -- what is held back

    def holds_join(
        self, joined: frozenset[TopicPartition], partitions: frozenset[TopicPartition]
    ) -> bool:
        """Whether a transaction has to wait before it joins partitions.

        Args:
            joined: the partitions that the transaction has joined.
            partitions: those that it has joined and is about to join.
        """
        if all(cut.partitions.isdisjoint(partitions) for cut in self._in(_Phase.DRAINING)):
            return False
        # A cut may have to wait for this transaction, so no cut makes it wait.
        return all(cut.partitions.isdisjoint(joined) for cut in self._in(_Phase.DRAINING))

    def holds_commit(self, partitions: frozenset[TopicPartition]) -> bool:
        """Whether the commit of a transaction with these partitions has to wait."""
        return any(not cut.partitions.isdisjoint(partitions) for cut in self._in(_Phase.READY))

    # -- inside

    def _in(self, phase: _Phase) -> Iterator[_Cut]:
        return (cut for cut in self._cuts.values() if cut.phase == phase)

    def _may_begin(self, waiting: _Cut) -> bool:
        """Whether no rest and no earlier cut has one of the partitions."""
        if any(not rest.partitions.isdisjoint(waiting.partitions) for rest in self._rests):
            return False
        for cut in self._cuts.values():
            if cut is waiting:
                return True
            if not cut.partitions.isdisjoint(waiting.partitions):
                return False
        raise AssertionError("the cut is not among those that wait")

    def _blocker(self, cut: _Cut) -> Blocker | None:
        """The blocker that joined first; None when every partition is settled."""
        if cut.blocker is not None:  # most events change nothing for this one
            same = self.transactions.blocker(cut.blocker.topic_partition)
            if same == cut.blocker:
                return same
        blockers = self.transactions.blockers(cut.partitions)
        return min(blockers, key=lambda found: found.joined_ms, default=None)


def _is_too_old(blocker: Blocker, cut: _Cut) -> bool:
    """Whether a transaction has been open for longer than the cut may wait for it."""
    return cut.began is not None and cut.began.wall_ms - blocker.joined_ms > cut.max_wait_ms
