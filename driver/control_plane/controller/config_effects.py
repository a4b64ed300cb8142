"""The effects of changed settings on partitions, in the same commit as the change.

Owns: which settings have such effects.  Must not know how settings are changed or checked.

A smaller min.insync.replicas has two effects.  A leader may now acknowledge records that eligible
replicas lack, so these replicas must lose their eligibility in the same commit.  And a reassignment
may be complete.
"""

from collections.abc import Iterable

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.partition_transitions import complete_transition
from sparklog.driver.control_plane.controller.sessions import Sessions
from sparklog.metadata import ClusterImage, ConfigChanged, Record
from sparklog.types import ResourceType, TopicPartition

_MIN_ISR = "min.insync.replicas"


def apply_config_effects(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig, records: Iterable[Record]
) -> Decision:
    """The changes of partitions that follow from ``records``.

    ``image`` and ``config`` must include these records already.
    """
    changed = [r for r in records if isinstance(r, ConfigChanged) and r.name == _MIN_ISR]
    if not changed:
        return Decision()
    changes = PartitionChanges(
        image,
        config,
        in_controlled_shutdown=sessions.in_controlled_shutdown,
        failed_on=sessions.failed_on,
    )
    for tp in list(_partitions_of(image, changed)):
        changes.change(tp, complete_transition)
    return Decision(records=changes.records(), effects=changes.effects())


def _partitions_of(
    image: ClusterImage, changed: Iterable[ConfigChanged]
) -> Iterable[TopicPartition]:
    topics = {r.resource_name for r in changed if r.resource_type == ResourceType.TOPIC}
    if any(r.resource_type == ResourceType.BROKER for r in changed):
        topics |= image.topics.keys()
    for name in sorted(topics):
        yield from (TopicPartition(name, number) for number in image.topics[name].partitions)
