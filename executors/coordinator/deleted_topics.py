"""Topics that were deleted while nobody, or another broker, coordinated a partition.

Owns: the comparison of what is stored with the cluster image.  Must not know what is stored about a
topic.
"""

from collections.abc import Iterable

from sparklog.executors.coordinator.state_machine import DeletedTopic, StoredTopic
from sparklog.metadata import ClusterImage


def missing_topics(image: ClusterImage, stored: Iterable[StoredTopic]) -> list[DeletedTopic]:
    """The stored topics that the image has not, or has under another id."""
    missing: list[DeletedTopic] = []
    for name, topic_id in stored:
        topic = image.topic(name)
        if topic is None or topic_id not in (None, topic.topic_id):
            missing.append(DeletedTopic(name, topic_id))
    return missing
