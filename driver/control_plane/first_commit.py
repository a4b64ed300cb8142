"""The first commit of a controller, with which it takes the journal over.

Owns: the records of that commit.  Must not know how a commit is written, or when it collides.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from uuid import UUID

from sparklog.driver.control_plane.skipped_numbers import raised_controller_epoch, raised_numbers
from sparklog.metadata import ClusterCreated, ClusterImage, ControllerChanged, Record
from sparklog.runtime_environment import RuntimeEnvironment
from sparklog.types import Endpoint


def first_records(
    image: ClusterImage,
    endpoint: Endpoint,
    runtime: RuntimeEnvironment,
    *,
    journal_may_be_old: bool,
) -> tuple[int, tuple[Record, ...]]:
    """The controller epoch, which is above all former ones, and the records of the first commit.

    Args:
        image: the cluster that is taken over; an empty one is created.
        endpoint: where the controller is reached.
        runtime: clocks and ids.
        journal_may_be_old: whether the cluster may have had commits that are not in the journal.
    """
    records: list[Record] = []
    if image.version == 0:
        cluster_id = _new_cluster_id(runtime.new_id)
        records.append(ClusterCreated(cluster_id=cluster_id, created_ms=runtime.wall_ms()))
    epoch = image.controller_epoch + 1
    if journal_may_be_old:
        epoch = raised_controller_epoch(epoch)
        # Which replicas are complete is a matter of the disks that are left.  One that was not is
        # not elected by itself: the bucket may have more than its log.
        records += raised_numbers(image, any_replica_may_be_complete=False)
    changed = ControllerChanged(controller_epoch=epoch, host=endpoint.host, port=endpoint.port)
    return epoch, (*records, changed)


def _new_cluster_id(new_id: Callable[[], UUID]) -> str:
    """A random UUID in 22 characters, as in Kafka.  It never looks like a command-line option."""
    while True:
        text = urlsafe_b64encode(new_id().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
