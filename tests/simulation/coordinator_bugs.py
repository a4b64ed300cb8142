"""Deliberate bugs of group coordinators and of members, each as a patch of the real code.

Owns: what the checkers of groups must catch.  Must not know how it is caught.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from sparklog.client.groups.start_positions import StartPositions
from sparklog.executors.coordinator import CoordinatorStateMachine
from sparklog.executors.coordinator.log_loader import LogLoader
from sparklog.executors.coordinator.shard import Shard
from sparklog.executors.coordinator.state_machine import Completion, CoordinatorRecord
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.offset_commit import OffsetCommits
from sparklog.executors.partition import Partition
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tests.simulation.planting import Patch, bug


@bug
def answer_a_commit_before_it_is_replicated() -> list[Patch]:
    """No response waits for the followers of a coordinator's partition."""
    real = Shard._complete

    def complete(self: Shard, completion: Completion) -> None:
        if isinstance(completion.response, OffsetCommitResponse):
            completion = replace(completion, at_once=True)
        real(self, completion)

    return [(Shard, "_complete", complete)]


class _OneBehind:
    """Hands on each record when the next one comes."""

    def __init__(self, machine: CoordinatorStateMachine) -> None:
        self._machine = machine
        self._last: Callable[[], None] = lambda: None

    def replay(self, record: CoordinatorRecord) -> None:
        self._hold(partial(self._machine.replay, record))

    def replay_in_transaction(self, record: CoordinatorRecord, producer_id: int) -> None:
        self._hold(partial(self._machine.replay_in_transaction, record, producer_id))

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        end = self._machine.replay_transaction_end
        self._hold(partial(end, producer_id, committed=committed))

    def _hold(self, replay: Callable[[], None]) -> None:
        self._last()
        self._last = replay


@bug
def stop_the_load_one_record_short() -> list[Patch]:
    """A new coordinator does not know the last record of its log."""
    real = LogLoader.load

    async def load(self: LogLoader, partition: Partition, machine: CoordinatorStateMachine) -> int:
        return await real(self, partition, _OneBehind(machine))  # type: ignore[arg-type]

    return [(LogLoader, "load", load)]


@bug
def take_commits_of_any_generation() -> list[Patch]:
    """A member whose partitions went to others commits them all the same."""

    def check_generation(
        self: OffsetCommits, group: ClassicGroup, body: OffsetCommitRequest, now_ms: int
    ) -> None:
        return

    return [(OffsetCommits, "_check_generation", check_generation)]


@bug
def rebalance_in_the_same_generation() -> list[Patch]:
    """The members of a rebalance get the number of the generation before it."""
    real = ClassicGroup.begin_generation

    def begin_generation(self: ClassicGroup, wall_ms: int) -> None:
        before = self.generation_id
        real(self, wall_ms)
        self.generation_id = max(before, 1)

    return [(ClassicGroup, "begin_generation", begin_generation)]


@bug
def begin_behind_the_next_record() -> list[Patch]:
    """A member that gets a partition takes the committed offset for that of the last record."""
    real = StartPositions._find

    async def find(
        self: StartPositions, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return {tp: offset + (offset > 0) for tp, offset in (await real(self, wanted)).items()}  # type: ignore[arg-type]

    return [(StartPositions, "_find", find)]
