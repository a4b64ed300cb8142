"""The check of a cluster's remote_dir, before the control plane serves.

Owns: which remote_dir a cluster may use, and the errors that say so.  Must not know the journal, or
what is in the store.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparklog.driver.control_plane.controller import is_tiered
from sparklog.errors import StartError, StorageError
from sparklog.metadata import ClusterImage
from sparklog.plurals import listed
from sparklog.storage_backends.registry import open_backend, open_file_half

if TYPE_CHECKING:
    from sparklog.remote_log.service import RemoteLogService

logger = logging.getLogger(__name__)

#: Topics that a message names; it counts the others.
NAMED_MAX = 3


def check_remote_dir(
    remote_dir: str, storage_options: Mapping[str, Any], image: ClusterImage
) -> None:
    """Check that this cluster may use the remote_dir.  A store without an owner becomes its own.

    Tiered topics have records that are nowhere else.  So a cluster with tiered topics may only use
    a store that belongs to it already; without any remote_dir it starts with a warning.

    Args:
        remote_dir: folder or URL of the store; empty for a cluster without one.
        storage_options: options of the store; they may hold a secret.
        image: the cluster.

    Raises:
        StartError: names the remote_dir, the reason and the remedy.
    """
    tiered = _tiered_topics(image)
    if not remote_dir:
        if tiered:
            logger.warning(
                "%s: tiered, and the cluster is started without a remote_dir; records that are "
                "only there cannot be read, none are copied there, and no retention deletes "
                "records of these topics: their disks fill up until the cluster is started with "
                "its remote_dir",
                listed(tiered, NAMED_MAX),
            )
        return
    try:
        service = open_remote_logs(remote_dir, storage_options)
        if tiered and service.owner.name() is None:
            raise StartError(
                f"remote_dir={remote_dir} belongs to no cluster, and this cluster has records of "
                f"{listed(tiered, NAMED_MAX)} in another one; start it with the remote_dir that it "
                "had, or with a complete copy"
            )
        service.owner.claim(image.cluster_id)
    except StorageError as error:
        raise StartError(f"remote_dir={remote_dir} cannot be used: {error}") from error


def open_remote_logs(remote_dir: str, storage_options: Mapping[str, Any]) -> "RemoteLogService":
    """The remote logs in a store.  Raises StorageError."""
    from sparklog.remote_log.service import RemoteLogService  # most clusters do not need it

    return RemoteLogService(open_backend(remote_dir, storage_options), open_file_half)


def _tiered_topics(image: ClusterImage) -> list[str]:
    return sorted(name for name in image.topics if is_tiered(image, name))
