"""The control plane: the controller, its journal and its server, as one process on one loop.

Owns: the journal and its repair, group commit, the metadata feed, replica placement, the
controller and the request handlers of node 0.  Must not know Spark or the launcher.
"""

from sparklog.driver.control_plane.control_plane import (
    ControlPlane,
    ForeignClusterError,
)
from sparklog.driver.control_plane.controller.assignments import (
    CLUSTER_PARTITIONS_MAX,
    TOPIC_PARTITIONS_MAX,
)
from sparklog.driver.control_plane.controller.brokers import BROKERS_MAX
from sparklog.driver.control_plane.handlers.create_topics import REQUEST_PARTITIONS_MAX
from sparklog.driver.control_plane.journal import FILE_BYTES_MAX, JournalError
from sparklog.driver.control_plane.options import ControlPlaneOptions

__all__ = [
    "BROKERS_MAX",
    "CLUSTER_PARTITIONS_MAX",
    "FILE_BYTES_MAX",
    "REQUEST_PARTITIONS_MAX",
    "TOPIC_PARTITIONS_MAX",
    "ControlPlane",
    "ControlPlaneOptions",
    "ForeignClusterError",
    "JournalError",
]
