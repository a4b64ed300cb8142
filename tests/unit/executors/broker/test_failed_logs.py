"""When a lost log may be replaced, as the cluster image says."""

from dataclasses import replace
from uuid import UUID

from sparklog.errors import GoneLogError, LostLogError, SparklogError
from sparklog.executors.replica_manager.failed_logs import FailedLogs
from sparklog.metadata import ClusterImage, PartitionImage, TopicCreated
from sparklog.types import NO_NODE, TopicPartition

TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=1)
#: Of broker 1 nothing is counted on, broker 2 may be back with its log.
OFFLINE = PartitionImage(replicas=(1, 2), isr=(), last_known=(2,), leader=NO_NODE, leader_epoch=7)


def is_tiered(topic: str) -> bool:
    return True


def is_not_tiered(topic: str) -> bool:
    return False


def failed(error: SparklogError, *, leader_epoch: int = 7) -> FailedLogs:
    """Of broker 1, which knew this leader epoch."""
    failed_logs = FailedLogs(1)
    failed_logs.add(TP, TOPIC_ID, error, replace(OFFLINE, leader_epoch=leader_epoch))
    return failed_logs


def image_of(state: PartitionImage) -> ClusterImage:
    image = ClusterImage()
    image.replay_commit(1, [TopicCreated(topic="t", topic_id=TOPIC_ID, partitions=(state,))])
    return image


def test_a_gone_log_is_given_up_that_nobody_counts_on() -> None:
    gone = failed(GoneLogError("gone"))
    assert gone.given_up(image_of(OFFLINE), is_tiered) == [TP]
    assert gone.given_up(image_of(replace(OFFLINE, last_known=())), is_tiered) == [TP]
    for counted in (
        replace(OFFLINE, last_known=(1, 2)),
        replace(OFFLINE, last_known=(1, 2), eligible=(1,)),
        replace(OFFLINE, leader=2, isr=(2,)),
    ):
        assert gone.given_up(image_of(counted), is_tiered) == []
    assert failed(LostLogError("cut")).given_up(image_of(OFFLINE), is_tiered) == []


def test_a_gone_log_that_is_in_no_bucket_is_given_up_if_nobody_counts_on_any_replica() -> None:
    """An election on request needs a replica that works."""
    gone = failed(GoneLogError("gone"))
    unknown = replace(OFFLINE, last_known=())
    assert gone.given_up(image_of(unknown), is_not_tiered) == [TP]
    assert gone.given_up(image_of(OFFLINE), is_not_tiered) == []
    assert gone.given_up(image_of(replace(unknown, replicas=(1,))), is_not_tiered) == []


def test_a_lost_log_is_copied_from_a_leader_that_began_after_the_loss() -> None:
    led = image_of(replace(OFFLINE, leader=2, isr=(2,)))
    assert failed(LostLogError("cut"), leader_epoch=6).replaceable(led) == [TP]
    assert failed(LostLogError("cut")).replaceable(led) == []
