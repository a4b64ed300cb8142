"""The cluster that a store of remote logs belongs to."""

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.remote_log.service import RemoteLogService
from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.registry import open_file_half


class ReadOnlyStore(MemoryBackend):
    def put(self, path: str, data: Buffer) -> None:
        raise StorageError(f"cannot write {path}: access denied")


def service(store: MemoryBackend) -> RemoteLogService:
    return RemoteLogService(store, open_file_half)


def test_the_first_cluster_becomes_the_owner() -> None:
    store = MemoryBackend()
    assert service(store).owner() is None
    service(store).check("ours")
    service(store).check("ours")
    assert service(store).owner() == "ours"
    with pytest.raises(StorageError, match="holds the remote logs of cluster ours, not of theirs"):
        service(store).check("theirs")
    assert service(store).owner() == "ours"


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b"null", b"\xff"])
def test_a_damaged_owner_is_nobody_s(document: bytes) -> None:
    store = MemoryBackend()
    store.put(names.CLUSTER_FILE, document)
    assert service(store).owner() == "unknown"
    with pytest.raises(StorageError, match="of cluster unknown"):
        service(store).check("ours")


def test_a_store_that_its_owner_cannot_write_is_refused() -> None:
    store = ReadOnlyStore()
    store.put_if_absent(names.CLUSTER_FILE, b'{"cluster_id": "ours"}')
    with pytest.raises(StorageError, match=r"cannot write cluster\.json: access denied"):
        service(store).check("ours")


def test_a_store_without_a_condition_is_refused() -> None:
    store = MemoryBackend()
    store.atomic_put_if_absent = False
    with pytest.raises(StorageError, match="conditional writes, or on a shared disk"):
        service(store).check("ours")
    assert store.list("") == []
