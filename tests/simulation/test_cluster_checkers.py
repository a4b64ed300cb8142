"""The checkers of journal, metadata and progress: histories that break them, and that do not."""

from dataclasses import replace

from sparklog.metadata import (
    ClusterImage,
    ConfigChanged,
    ControllerChanged,
    PartitionImage,
    Record,
)
from sparklog.metadata import TopicCreated as TopicCreatedRecord
from sparklog.metadata import TopicDeleted as TopicDeletedRecord
from sparklog.types import ResourceType
from tests.simulation.checkers import CHECKERS, journal, metadata, progress, violations
from tests.simulation.events import (
    ConfigChangeEnded,
    ConfigChangeInvoked,
    Drained,
    Healed,
    InSync,
    Probed,
    TopicCreated,
    TopicDeleted,
    TopicDeleteInvoked,
    TopicSeen,
)
from tests.simulation.final_state import FinalLog, FinalState, JournalCommit, NodeImage
from tests.simulation.history import History
from tests.simulation.partition_story import LOG, TOPIC_ID

STATE = PartitionImage(
    replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0, last_known=(1,)
)
CREATED = TopicCreatedRecord(topic="t", topic_id=TOPIC_ID, partitions=(STATE,))
DELETED = TopicDeletedRecord(topic="t", topic_id=TOPIC_ID)


def commit(number: int, epoch: int, *records: Record, nonce: str = "") -> JournalCommit:
    return JournalCommit(
        number=number, controller_epoch=epoch, nonce=nonce or str(number), records=records
    )


def takes_over(number: int, epoch: int) -> JournalCommit:
    changed = ControllerChanged(controller_epoch=epoch, host="h", port=1)
    return commit(number, epoch, changed)


def of(*commits: JournalCommit, **more: object) -> FinalState:
    return FinalState(journal=commits, **more)  # type: ignore[arg-type]


def test_the_journal_is_one_history() -> None:
    first, second = takes_over(1, 1), takes_over(3, 2)
    assert journal.check(History(), of(first, commit(2, 1, CREATED), second)) == []
    assert journal.check(History(), of(first, second)) == ["commit 3 where 2 follows"]
    assert journal.check(History(), of(first, commit(2, 1), second, commit(4, 1))) == [
        "commit 4 is of controller epoch 1 in epoch 2"
    ]
    assert journal.check(History(), of(first, takes_over(2, 1))) == [
        "commit 2 begins epoch 1 again"
    ]
    assert journal.check(History(), of(first, commit(2, 1, nonce="1"))) == [
        "commits 1 and 2 have the same nonce"
    ]


def test_nobody_believes_in_another_journal() -> None:
    commits = (takes_over(1, 1), commit(2, 1, CREATED))
    true, false = ClusterImage(), ClusterImage()
    true.replay_commit(1, commits[0].records)
    false.replay_commit(2, commits[0].records)
    assert journal.check(History(), of(*commits, images=(NodeImage(node="b", image=true),))) == []
    assert journal.check(History(), of(*commits, images=(NodeImage(node="b", image=false),))) == [
        "b knows another history than the journal up to commit 2"
    ]
    assert journal.check(
        History(), of(*commits[:1], images=(NodeImage(node="b", image=false),))
    ) == ["b knows commit 2, the journal ends at 1"]


def test_topics_are_there_as_answered() -> None:
    created = TopicCreated(op=1, topic="t", topic_id=TOPIC_ID, leaders=(1,))
    deleting = TopicDeleteInvoked(op=2, topic="t", topic_id=TOPIC_ID)
    there = of(takes_over(1, 1), commit(2, 1, CREATED))
    gone = of(takes_over(1, 1), commit(2, 1, CREATED), commit(3, 1, DELETED))
    assert metadata.check(History.of(created), there) == []
    assert metadata.check(History.of(created), gone) == [
        f"topic t ({TOPIC_ID}) was created and is gone"
    ]
    assert metadata.check(History.of(created, deleting), gone) == []
    assert metadata.check(History.of(created, deleting), there) == []
    assert metadata.check(History.of(created, deleting, TopicDeleted(op=2)), there) == [
        f"topic t ({TOPIC_ID}) was deleted and is there"
    ]


def test_clients_see_only_topics_of_the_journal() -> None:
    seen = TopicSeen(topic="t", topic_id=TOPIC_ID, partitions=1)
    assert metadata.check(History.of(seen), of(takes_over(1, 1), commit(2, 1, CREATED))) == []
    assert metadata.check(History.of(seen), of(takes_over(1, 1))) == [
        f"a client saw topic {seen}, which the journal never had"
    ]


def test_settings_are_those_that_were_acknowledged() -> None:
    def change(op: int, value: str) -> ConfigChangeInvoked:
        return ConfigChangeInvoked(op=op, topic="t", topic_id=TOPIC_ID, name="n", value=value)

    def done(op: int, changed: bool = True) -> ConfigChangeEnded:
        return ConfigChangeEnded(op=op, changed=changed)

    def held(value: str) -> FinalState:
        record = ConfigChanged(
            resource_type=ResourceType.TOPIC, resource_name="t", name="n", value=value
        )
        return of(takes_over(1, 1), commit(2, 1, CREATED, record))

    two = History.of(change(1, "a"), done(1), change(2, "b"), done(2))
    assert metadata.check(two, held("b")) == []
    assert metadata.check(two, held("a")) == ["n of topic t is a, it was set to ['b']"]
    unknown = History.of(change(1, "a"), done(1), change(2, "b"))
    assert [metadata.check(unknown, held(value)) for value in "ab"] == [[], []]
    refused = History.of(change(1, "a"), done(1), change(2, "b"), done(2, False))
    assert metadata.check(refused, held("b")) == ["n of topic t is b, it was set to ['a']"]


def test_every_partition_works_after_healing() -> None:
    state = FinalState(logs={LOG: FinalLog(start=0, end=0, batches=())})
    assert progress.check(History.of(Healed(), Probed(log=LOG, took_ms=100)), state) == []
    assert progress.check(History.of(Healed()), state) == [f"{LOG} was not probed"]
    assert progress.check(History.of(Healed(), Probed(log=LOG, took_ms=1, error="x")), state) == [
        f"{LOG} does not work after healing: x"
    ]
    assert progress.check(History.of(Healed(), Probed(log=LOG, took_ms=60_001)), state) == [
        f"{LOG} took 60001 ms to work after healing, 60000 are allowed"
    ]


def test_every_replica_is_in_sync_after_healing() -> None:
    assert progress.check(History.of(Healed(), InSync(log=LOG, took_ms=5)), FinalState()) == []
    lacking = InSync(log=LOG, took_ms=60_000, missing=(3,))
    assert progress.check(History.of(Healed(), lacking), FinalState()) == [
        f"{LOG} lacks [3] in its ISR 60000 ms after healing"
    ]


def test_a_draining_broker_leaves_what_it_can_after_healing() -> None:
    left = Drained(broker=2, took_ms=90, left=3, stuck=3)
    assert progress.check(History.of(Healed(), left), FinalState()) == []
    assert progress.check(History.of(Healed(), replace(left, stuck=1)), FinalState()) == [
        "broker 2 has 3 partitions 90 ms after healing, and is to lose all but 1"
    ]


def test_violations_name_their_checker() -> None:
    state = FinalState(logs={LOG: FinalLog(start=0, end=0, batches=())})
    assert violations(History.of(Healed()), state) == [f"progress: {LOG} was not probed"]
    assert len(CHECKERS) == 36
