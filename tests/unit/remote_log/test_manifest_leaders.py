"""Any number of leaders in any order, on a store that loses answers and writes late."""

import json
from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.errors import StorageError
from sparklog.remote_log.manifest import Manifest, MisfitError, Records
from sparklog.remote_log.manifest_log import DeposedLeaderError, ManifestLog
from tests.unit.remote_log.manifest_stores import (
    FOLDER,
    TOPIC,
    ScriptedStore,
    next_segment,
)

LEADERS = 3
Failures = st.lists(st.sampled_from(["before", "after", "late"]), max_size=3)


class Leaders(RuleBasedStateMachine):
    """What was acknowledged is in the manifest once; what was refused is not in it."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ScriptedStore()
        self.logs = [ManifestLog(self.store, TOPIC, 0, checkpoint_every=4) for _ in range(LEADERS)]
        self.begun: dict[int, int] = {}
        #: What a leader tries again until it knows the outcome.
        self.unknown: dict[int, tuple[str, Records]] = {}
        self.epoch = 0
        self.copies = 0
        self.acknowledged: list[str] = []
        self.refused: set[str] = set()

    @rule(index=st.integers(0, LEADERS - 1), new=st.booleans(), failures=Failures)
    def begin(self, index: int, new: bool, failures: list[str]) -> None:
        if new or index not in self.begun:
            self.epoch += 1
            self.begun[index] = self.epoch
            self.unknown.pop(index, None)
        self.store.fail(*failures)  # type: ignore[arg-type]
        with suppress(StorageError, DeposedLeaderError):
            self.logs[index].begin_leadership(self.begun[index], f"{index}", 0)
        self.store.script.clear()

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), failures=Failures)
    def commit(self, data: st.DataObject, failures: list[str]) -> None:
        index = data.draw(st.sampled_from(sorted(self.begun)))
        log = self.logs[index]
        if log._manifest is None:
            return
        if index not in self.unknown:
            self.copies += 1
            epoch = max(self.begun[index], log.manifest.epoch_at_end)
            added = next_segment(log, self.copies, epoch)
            self.unknown[index] = added.segment_id, log.manifest.add_segment(added)
        self.store.fail(*failures)  # type: ignore[arg-type]
        self.attempt(index)
        self.store.script.clear()

    def attempt(self, index: int) -> None:
        segment_id, records = self.unknown[index]
        try:
            self.logs[index].commit(records, 0)
        except StorageError:
            return
        except (DeposedLeaderError, MisfitError):
            self.refused.add(segment_id)
        else:
            self.acknowledged.append(segment_id)
        del self.unknown[index]

    @rule(index=st.integers(0, LEADERS - 1))
    def refresh(self, index: int) -> None:
        self.logs[index].refresh()

    @rule()
    def land(self) -> None:
        self.store.land()

    @invariant()
    def holds(self) -> None:
        manifest = ManifestLog(self.store, TOPIC, 0).load()
        manifest.check_invariants()
        written, epochs = self.history()
        assert epochs == sorted(epochs)
        assert len(written) == len(set(written))
        assert [
            each for each in written if each in self.acknowledged
        ] == self.acknowledged_in_order(written)
        assert set(self.acknowledged) <= set(written)
        assert not self.refused & set(written)
        for log in self.logs:
            if log._manifest is not None:
                self.is_a_prefix(log.manifest, written)

    def acknowledged_in_order(self, written: list[str]) -> list[str]:
        return sorted(self.acknowledged, key=written.index)

    def history(self) -> tuple[list[str], list[int]]:
        """The ids that commits have added, and the leader epochs of all commits."""
        names = [each for each in self.store.list(FOLDER) if not each.startswith("checkpoint")]
        documents = [json.loads(self.store.read(f"{FOLDER}/{each}")) for each in names]
        records = [each for document in documents for each in document["records"]]
        added = [each["segment"]["id"] for each in records if each["type"] == "SegmentAdded"]
        return added, [document["leader_epoch"] for document in documents]

    @staticmethod
    def is_a_prefix(manifest: Manifest, written: list[str]) -> None:
        manifest.check_invariants()
        found = [each.segment_id for each in manifest.segments()]
        assert found == written[: len(found)]


TestLeaders = Leaders.TestCase
