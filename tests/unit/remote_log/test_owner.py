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
    assert StoreOwner(store).name("ours") is None
    StoreOwner(store).claim("ours")
    StoreOwner(store).claim("ours")
    StoreOwner(store).check("ours")
    assert StoreOwner(store).name("ours") == "ours"
    for refusing in (StoreOwner(store).claim, StoreOwner(store).check):
        with pytest.raises(StorageError) as refusal:
            refusing("theirs")
        assert str(refusal.value) == (
            f"{store.url} holds the remote logs of cluster ours, not of theirs; choose another "
            "remote_dir: the one that cluster theirs had, or an empty place for a new cluster.  If "
            "the journal of cluster ours is left, `sparklog restore` brings that cluster back; if "
            f"it is not needed any more, delete all of {store.url}"
        )
    assert StoreOwner(store).name("ours") == "ours"


def test_a_check_takes_no_store_without_an_owner(tmp_path: Path) -> None:
    missing = LocalBackend(tmp_path / "not-mounted")
    with pytest.raises(StorageError) as refusal:
        StoreOwner(missing).check("ours")
    assert str(refusal.value) == (
        f"{missing.url} belongs to no cluster, so it is not the remote_dir of cluster ours; is it "
        "mounted on this host?  If it was emptied, bring a copy back with its cluster.json"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "document",
    [
        *(b"", b"[]", b"{}", b"null", b"\xff", b'{"cluster_id": null}', b'{"cluster_id": ""}'),
        b"[" * 100_000,
    ],
)
def test_a_damaged_owner_is_named_with_what_to_write_there(document: bytes) -> None:
    store = MemoryBackend()
    store.put(names.CLUSTER_FILE, document)
    owner = StoreOwner(store)
    for refusing in (owner.name, owner.claim, owner.check):
        with pytest.raises(StorageError) as refusal:
            refusing("ours")
        assert str(refusal.value) == (
            f"{store.url}: cluster.json, which names the cluster of this remote_dir, is damaged; "
            "if it is the remote_dir of cluster ours, bring a copy of the file back, or write "
            '{"cluster_id": "ours"} into it; if not, choose another remote_dir'
        )
    assert store.read(names.CLUSTER_FILE) == document
    store.put(names.CLUSTER_FILE, b'{"cluster_id": "ours"}')
    owner.claim("ours")
    owner.check("ours")


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
