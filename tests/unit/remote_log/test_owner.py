"""The cluster that a store of remote logs belongs to."""

from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.remote_log.owner import StoreOwner
from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.remote_log.manifest_stores import ScriptedStore


class ReadOnlyStore(MemoryBackend):
    def put(self, path: str, data: Buffer) -> None:
        raise StorageError(f"cannot write {path}: access denied")


def owner(store: MemoryBackend) -> StoreOwner:
    return StoreOwner(store)


def test_the_first_cluster_becomes_the_owner() -> None:
    store = MemoryBackend()
    assert StoreOwner(store).name() is None
    StoreOwner(store).claim("ours")
    StoreOwner(store).claim("ours")
    StoreOwner(store).check("ours")
    assert StoreOwner(store).name() == "ours"
    for refusing in (StoreOwner(store).claim, StoreOwner(store).check):
        with pytest.raises(StorageError) as refusal:
            refusing("theirs")
        assert str(refusal.value) == (
            f"{store.url} holds the remote logs of cluster ours, not of theirs; choose another "
            "remote_dir"
        )
    assert StoreOwner(store).name() == "ours"


def test_a_check_takes_no_store_without_an_owner(tmp_path: Path) -> None:
    missing = LocalBackend(tmp_path / "not-mounted")
    with pytest.raises(StorageError) as refusal:
        StoreOwner(missing).check("ours")
    assert str(refusal.value) == (
        f"{missing.url} belongs to no cluster, so it is not the remote_dir of cluster ours; is it "
        "mounted on this host?  If it was emptied, bring a copy back with its cluster.json"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b"null", b"\xff"])
def test_a_damaged_owner_is_nobody_s(document: bytes) -> None:
    store = MemoryBackend()
    store.put(names.CLUSTER_FILE, document)
    assert StoreOwner(store).name() == "unknown"
    for refusing in (StoreOwner(store).claim, StoreOwner(store).check):
        with pytest.raises(StorageError, match="of cluster unknown, not of ours"):
            refusing("ours")


def test_a_store_that_its_owner_cannot_write_is_refused() -> None:
    store = ReadOnlyStore()
    store.put_if_absent(names.CLUSTER_FILE, b'{"cluster_id": "ours"}')
    with pytest.raises(StorageError, match=r"cannot write cluster\.json: access denied"):
        StoreOwner(store).claim("ours")


def test_a_store_without_a_condition_is_refused() -> None:
    store = MemoryBackend()
    store.atomic_put_if_absent = False
    with pytest.raises(StorageError, match="cannot create a file only if it is absent; choose a"):
        StoreOwner(store).claim("ours")
    assert store.list("") == []
    store.put(names.CLUSTER_FILE, b'{"cluster_id": "ours"}')
    with pytest.raises(StorageError, match="conditional writes, or on a shared disk"):
        StoreOwner(store).check("ours")


def test_a_lost_answer_of_the_claim_is_made_good_by_another_one() -> None:
    store = ScriptedStore()
    store.fail("after")
    with pytest.raises(StorageError):
        StoreOwner(store).claim("ours")
    StoreOwner(store).claim("ours")
