"""The cluster that a store of remote logs belongs to.

Owns: the file that names the cluster, who writes it, and the check of a store before its first use.
Must not know what else is in the store.

Only the control plane claims a store, at the first start of the cluster.  A store without an owner
that a broker finds later is not the cluster's: a shared folder that is not mounted on the broker's
host, or a store that was emptied.
"""

import json

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.storage_backends.base import StorageBackend


def claim_store(store: StorageBackend, cluster_id: str) -> None:
    """See ``RemoteLogService.claim``."""
    _check_conditions(store)
    document = json.dumps({"cluster_id": cluster_id}).encode()
    if store.put_if_absent(names.CLUSTER_FILE, document):
        return
    check_owner(store, cluster_id)
    store.put(names.CLUSTER_FILE, document)  # shows that the store can be written


def check_store(store: StorageBackend, cluster_id: str) -> None:
    """See ``RemoteLogService.check``."""
    check_owner(store, cluster_id)
    _check_conditions(store)


def check_owner(store: StorageBackend, cluster_id: str) -> None:
    """Check that the store belongs to the cluster.  Raises StorageError."""
    owner = owner_of(store)
    if owner is None:
        raise StorageError(
            f"{store.url} belongs to no cluster, so it is not the remote_dir of cluster "
            f"{cluster_id}; is it mounted on this host?  If it was emptied, bring a copy back with "
            f"its {names.CLUSTER_FILE}"
        )
    if owner != cluster_id:
        raise StorageError(
            f"{store.url} holds the remote logs of cluster {owner}, not of {cluster_id}; choose "
            "another remote_dir"
        )


def owner_of(store: StorageBackend) -> str | None:
    """See ``RemoteLogService.owner``."""
    document = store.read_if_there(names.CLUSTER_FILE)
    if document is None:
        return None
    try:
        return str(json.loads(document)["cluster_id"])
    except (ValueError, LookupError, TypeError):
        return "unknown"


def _check_conditions(store: StorageBackend) -> None:
    if not store.proves_put_if_absent():
        raise StorageError(
            f"{store.url} cannot create a file only if it is absent; choose a remote_dir in a "
            "bucket that has conditional writes, or on a shared disk"
        )
