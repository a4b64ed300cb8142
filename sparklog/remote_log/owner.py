"""The cluster that a store of remote logs belongs to.

Owns: the file that names the cluster, and the check of a store before its first use.  Must not know
what else is in the store.
"""

import json

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.storage_backends.base import StorageBackend


def check_store(store: StorageBackend, cluster_id: str) -> None:
    """See ``RemoteLogService.check``."""
    if not store.proves_put_if_absent():
        raise StorageError(
            f"{store.url} cannot create a file only if it is absent; choose a remote_dir in a "
            "bucket that has conditional writes, or on a shared disk"
        )
    document = json.dumps({"cluster_id": cluster_id}).encode()
    if store.put_if_absent(names.CLUSTER_FILE, document):
        return
    owner = owner_of(store)
    if owner != cluster_id:
        raise StorageError(
            f"{store.url} holds the remote logs of cluster {owner}, not of {cluster_id}; choose "
            "another remote_dir"
        )
    store.put(names.CLUSTER_FILE, document)  # shows that the store can be written


def owner_of(store: StorageBackend) -> str | None:
    """See ``RemoteLogService.owner``."""
    document = store.read_if_there(names.CLUSTER_FILE)
    if document is None:
        return None
    try:
        return str(json.loads(document)["cluster_id"])
    except (ValueError, LookupError, TypeError):
        return "unknown"
