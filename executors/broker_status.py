"""The answer of a broker to NodeStatus.

Owns: the names in the answer, which tools and tests read, and the value of each of them.  Must not
know how the request arrives, or how the numbers are counted.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from sparklog.executors.cleaner import LogCleaner
from sparklog.executors.coordinator import CoordinatorRuntime
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.executors.replication import Replication
from sparklog.service.dispatch import Dispatcher
from sparklog.transport import Server


def broker_status(
    replica_manager: ReplicaManager,
    replication: Replication,
    log_cleaner: LogCleaner,
    server: Server,
    dispatcher: Dispatcher,
    *,
    incarnation: str,
    broker_epoch: int,
    started_ms: int,
    coordinators: Iterable[CoordinatorRuntime] = (),
    tiering: Mapping[str, Any],
) -> dict[str, Any]:
    """The status as JSON values.  ``started_ms`` is the time of day of the broker's start.

    ``tiering`` is the part about the remote_dir, empty without one.
    """
    log_dirs, delayed_operations = replica_manager.log_dirs, replica_manager.delayed_operations
    return {
        "role": "broker",
        "broker_id": replica_manager.node_id,
        "pid": os.getpid(),
        "incarnation": incarnation,
        "directory_id": str(log_dirs.directory_id),
        "broker_epoch": broker_epoch,
        "metadata_version": replica_manager.image.version,
        "started_ms": started_ms,
        "clean_start": log_dirs.clean,
        "partitions": len(replica_manager),
        "partitions_led": sum(partition.is_leader for partition in replica_manager),
        "data_dirs": {log_dir.location: "" for log_dir in log_dirs}
        | {failure.location: str(failure.error) for failure in log_dirs.failed},
        "data_dirs_missing": [str(directory) for directory in log_dirs.missing],
        "offline": {str(tp): str(error) for tp, error in replica_manager.offline.items()},
        "connections": len(server.connections),
        "connections_refused": server.connections_refused,
        "connections_idle": server.connections_idle,
        **server.memory.as_json(),
        "frames_refused": server.frames_refused,
        "wire_bytes_in": server.bytes_received,
        "wire_bytes_out": server.bytes_sent,
        "delayed_fetches": len(delayed_operations.consumer_fetches)
        + len(delayed_operations.follower_fetches),
        "delayed_produces": len(delayed_operations.produces),
        "delayed_deletes": len(delayed_operations.delete_records),
        **delayed_operations.sessions.as_json(),
        **replication.as_json(),
        "coordinators": {runtime.topic: runtime.as_json() for runtime in coordinators},
        **log_cleaner.as_json(),
        **tiering,
        "requests": {str(key): count for key, count in dispatcher.requests.items()},
        "undecodable": dispatcher.undecodable,
        "request_errors": dispatcher.errors,
        **replica_manager.counters.as_json(),
    }
