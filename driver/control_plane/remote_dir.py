"""The checks of a cluster's remote_dir and of its tiered topics, before the control plane serves.

Owns: which remote_dir and which default of cleanup.policy a cluster may be started with, and the
errors that say so.  Must not know the journal, or what is in the store.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller import (
    NAMED_MAX,
    POLICY_DEFAULT,
    compacts_by_default,
    inherited_policy_topics,
    is_tiered,
)
from sparklog.errors import StartError, StorageError
from sparklog.metadata import ClusterImage
from sparklog.plurals import listed
from sparklog.storage_backends.registry import (
    open_backend,
    open_file_half,
    require_conditional_create,
)
from sparklog.types import ResourceType

if TYPE_CHECKING:
    from sparklog.remote_log.service import RemoteLogService

logger = logging.getLogger(__name__)


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
        require_conditional_create(remote_dir)
        service = open_remote_logs(remote_dir, storage_options)
        if tiered and service.owner.name(image.cluster_id) is None:
            raise StartError(
                f"remote_dir={remote_dir} belongs to no cluster, and this cluster has records of "
                f"{listed(tiered, NAMED_MAX)} in another one; start it with the remote_dir that it "
                "had, or with a complete copy"
            )
        service.owner.claim(image.cluster_id)
    except StorageError as error:
        raise StartError(f"remote_dir={remote_dir} cannot be used: {error}") from error


def check_policy_of_tiered(config: BrokerConfig, image: ClusterImage) -> None:
    """Check that no tiered topic inherits ``cleanup.policy=compact``.

    What was set at run time is only logged: it can be changed in a cluster that runs only.  Brokers
    never compact such a topic.

    Args:
        config: the settings that the cluster is started with.
        image: the cluster.

    Raises:
        StartError: names the topics and the remedy.
    """
    topics = inherited_policy_topics(image)
    if not topics:
        return
    names = listed(topics, NAMED_MAX)
    if compacts_by_default(config) and POLICY_DEFAULT not in image.broker_overrides(None):
        raise StartError(
            f"{POLICY_DEFAULT}=compact does not go with tiered topics that have no cleanup.policy "
            f"of their own ({names}): compacted topics stay on the brokers' disks; start the "
            "cluster without it, and set cleanup.policy=delete for each of these topics first"
        )
    changes = [values for (kind, _), values in image.configs.items() if kind == ResourceType.BROKER]
    if any("compact" in values.get(POLICY_DEFAULT, "") for values in changes):
        logger.error(
            "%s=compact was set at run time and does not go with tiered topics that have no "
            "cleanup.policy of their own (%s): they are not compacted, and retention deletes their "
            "old segments; set cleanup.policy=delete for each of these topics, or delete %s",
            POLICY_DEFAULT,
            names,
            POLICY_DEFAULT,
        )


def open_remote_logs(remote_dir: str, storage_options: Mapping[str, Any]) -> "RemoteLogService":
    """The remote logs in a store.  Raises StorageError."""
    from sparklog.remote_log.service import RemoteLogService  # most clusters do not need it

    return RemoteLogService(open_backend(remote_dir, storage_options), open_file_half)


def _tiered_topics(image: ClusterImage) -> list[str]:
    return sorted(name for name in image.topics if is_tiered(image, name))
