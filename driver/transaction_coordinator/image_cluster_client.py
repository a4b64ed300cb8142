"""A cluster client whose metadata is the cluster image of this process.

Owns: the view of brokers and topics as the committed image has them.  Must not know what is sent
to the brokers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.cluster_view import ClusterView, PartitionView, TopicView
from sparklog.client.deadline import Deadline
from sparklog.metadata import ClusterImage, TopicImage
from sparklog.metadata.topic_names import INTERNAL_TOPICS, TRANSACTION_STATE
from sparklog.runtime_environment import RuntimeEnvironment
from sparklog.types import CONTROLLER_NODE_ID


class ImageClusterClient(ClusterClient):
    """Asks no node for metadata: a refresh reads the brokers and the given topics in the image.

    ``__transaction_state`` is always read.  Topics of earlier refreshes stay in the view.

    Args:
        image: returns the committed image.
        secret: the secret of the cluster, because coordinators are members of it.
    """

    def __init__(
        self, image: Callable[[], ClusterImage], secret: bytes, runtime: RuntimeEnvironment
    ) -> None:
        super().__init__(
            (image().controller.endpoint,),
            client_id="transaction-coordinator",
            secret=secret,
            runtime=runtime,
        )
        self._image = image

    async def _refresh(
        self,
        deadline: Deadline,
        topics: Sequence[str] | None = (),
        *,
        create: bool = False,
    ) -> None:
        del deadline, create
        names = (TRANSACTION_STATE, *(topics or ()))
        self.view = _view_of(self._image(), names, self.view.topics)


def _view_of(
    image: ClusterImage, names: Iterable[str], known: Mapping[str, TopicView]
) -> ClusterView:
    """The alive brokers, and those of the topics that exist; the named topics are read anew."""
    topics = {name: view for name, view in known.items() if image.topic(name) is not None}
    for name in names:
        topic = image.topic(name)
        if topic is not None:
            topics[name] = _topic_view(topic)
    return ClusterView(
        cluster_id=image.cluster_id,
        controller_id=CONTROLLER_NODE_ID,
        nodes={broker.broker_id: broker.endpoint for broker in image.alive_brokers()},
        topics=topics,
    )


def _topic_view(topic: TopicImage) -> TopicView:
    return TopicView(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions={
            number: PartitionView(
                partition=number,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                replicas=state.replicas,
                isr=state.isr,
                offline_replicas=(),
            )
            for number, state in topic.partitions.items()
        },
    )
