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


class StoreOwner:
    """The owner of one store.  All methods block, and raise StorageError."""

    def __init__(self, store: StorageBackend) -> None:
        self._store = store
        #: The cluster that the store was found to belong to.
        self._cluster_id: str | None = None

    def name(self, cluster_id: str) -> str | None:
        """The id of the cluster that the store belongs to; None for a store without an owner.

        Args:
            cluster_id: the cluster that asks.  The error tells it how the store becomes its own.

        Raises:
            StorageError: the store does not answer, or the file that names the owner is damaged.
        """
        document = self._store.read_if_there(names.CLUSTER_FILE)
        if document is None:
            return None
        owner = _owner_in(document)
        if owner is None:
            raise StorageError(
                f"{self._store.url}: {names.CLUSTER_FILE}, which names the cluster of this "
                f"remote_dir, is damaged; if it is the remote_dir of cluster {cluster_id}, bring a "
                f"copy of the file back, or write {_document(cluster_id).decode()} into it; if "
                "not, choose another remote_dir"
            )
        return owner

    def claim(self, cluster_id: str) -> None:
        """Check that the store can hold manifests, can be written, and belongs to this cluster.

        A store without an owner gets this cluster as its owner.  Only the control plane calls this.
        """
        self._check_conditions()
        document = _document(cluster_id)
        if not self._store.put_if_absent(names.CLUSTER_FILE, document):
            self._check_name(cluster_id)
            self._store.put(names.CLUSTER_FILE, document)  # shows that the store can be written

    def check(self, cluster_id: str) -> None:
        """Check that the store belongs to this cluster, and can hold manifests.

        A store without an owner is refused.  Nothing is written to a store of others.
        """
        self._check_name(cluster_id)
        self._check_conditions()
        self._cluster_id = cluster_id

    def check_again(self) -> None:
        """Check that the store still belongs to the cluster of ``check``, if it was called.

        It is for whoever finds nothing in the store, or is to write what is not elsewhere: the
        folder may not be mounted any more.
        """
        if self._cluster_id is not None:
            self._check_name(self._cluster_id)

    def _check_name(self, cluster_id: str) -> None:
        url, owner = self._store.url, self.name(cluster_id)
        if owner is None:
            raise StorageError(
                f"{url} belongs to no cluster, so it is not the remote_dir of cluster "
                f"{cluster_id}; is it mounted on this host?  If it was emptied, bring a copy back "
                f"with its {names.CLUSTER_FILE}"
            )
        if owner != cluster_id:
            raise StorageError(
                f"{url} holds the remote logs of cluster {owner}, not of {cluster_id}; choose "
                f"another remote_dir: the one that cluster {cluster_id} had, or an empty place for "
                f"a new cluster.  If the journal of cluster {owner} is left, `sparklog restore` "
                f"brings that cluster back; if it is not needed any more, delete all of {url}"
            )

    def _check_conditions(self) -> None:
        if not self._store.proves_put_if_absent():
            raise StorageError(
                f"{self._store.url} cannot create a file only if it is absent; choose a remote_dir "
                "in a bucket that has conditional writes, or on a shared disk"
            )


def _document(cluster_id: str) -> bytes:
    return json.dumps({"cluster_id": cluster_id}).encode()


def _owner_in(document: bytes) -> str | None:
    """The cluster that the file names; None for a damaged file."""
    try:
        owner = json.loads(document)["cluster_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return owner if isinstance(owner, str) and owner else None
