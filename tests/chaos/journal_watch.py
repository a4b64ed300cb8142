"""The journal as it grows on the disk: what was committed, and what of it is worth counting.

Owns: the committed state of the cluster, with the control plane alive or not.  Must not know what
is done to the cluster.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sparklog.driver.control_plane.journal import commit_name
from sparklog.metadata import ClusterImage, ControllerChanged, PartitionChanged
from sparklog.metadata.records import from_json
from sparklog.types import NO_NODE, TopicPartition
from tests.simulation.final_state import JournalCommit


class JournalWatch:
    """Reads on from where it was; ``told`` hears of every commit once, in their order."""

    def __init__(
        self, folder: Path, told: Callable[[JournalCommit], None] = lambda _: None
    ) -> None:
        self.image = ClusterImage()
        self.counters: Counter[str] = Counter()
        self.commits: list[JournalCommit] = []
        self._folder = folder
        self._told = told
        self._lock = threading.Lock()

    def catch_up(self) -> ClusterImage:
        """The state as of the last commit.  It is another one after the next call."""
        with self._lock:
            while (path := self._folder / commit_name(self.image.version + 1)).exists():
                document = json.loads(path.read_bytes())
                commit = JournalCommit(
                    number=document["version"],
                    controller_epoch=document["controller_epoch"],
                    nonce=document["nonce"],
                    records=tuple(map(from_json, document["records"])),
                )
                self._count(commit)
                self.image.replay_commit(commit.number, commit.records)
                self.commits.append(commit)
                self._told(commit)
            return self.image

    def is_whole(self) -> bool:
        """Whether every broker lives and every replica is in sync."""
        image = self.catch_up()
        return all(image.is_alive(id_) for id_ in image.brokers) and all(
            sorted(state.isr) == sorted(state.replicas) and state.leader != NO_NODE
            for _, state in image.partitions()
        )

    def _count(self, commit: JournalCommit) -> None:
        """Against the state before it."""
        for record in commit.records:
            if isinstance(record, ControllerChanged):
                self.counters["controllers"] += 1
            if not isinstance(record, PartitionChanged):
                continue
            before = self.image.partition(TopicPartition(record.topic, record.partition))
            if before is None:
                continue
            after = record.state
            moved = after.leader not in (before.leader, NO_NODE)
            self.counters["leader_changes"] += moved
            self.counters["leader_losses"] += after.leader == NO_NODE != before.leader
            self.counters["isr_shrinks"] += bool(set(before.isr) - set(after.isr))
            self.counters["isr_expansions"] += bool(set(after.isr) - set(before.isr))
            complete = {*before.isr, *before.eligible}
            self.counters["unclean_recoveries"] += moved and after.leader not in complete
