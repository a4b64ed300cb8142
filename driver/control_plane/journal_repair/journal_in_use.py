"""The check whether a cluster uses a journal.

Owns: taking the locks that a cluster holds in local folders, and asking the last controllers
whether they are alive.  Must not know what is wrong with the journal.

A journal in an object store has no lock.  Then the only sign of a running cluster is its
controller, at the address that the controller has written into the journal.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sparklog.client.blocking import BlockingClient
from sparklog.driver.cluster_lock import CLUSTER_LOCK_FILE
from sparklog.driver.control_plane.journal_repair.repair import RepairError
from sparklog.driver.control_plane.journal_repair.survey import Survey
from sparklog.errors import LockedError, SparklogError
from sparklog.metadata import ControllerChanged
from sparklog.process import local_folder
from sparklog.storage_backends.base import FileHalf, Lock, StorageBackend
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import Endpoint

CONTROLLER_SECONDS = 3.0
#: Addresses of former controllers that are tried, the latest first.
CONTROLLERS_MAX = 3


@contextmanager
def locked_journal(backend: StorageBackend) -> Iterator[None]:
    """Hold the locks that a cluster which uses the journal would hold.

    Raises:
        RepairError: a cluster holds one of them.
    """
    with ExitStack() as locks:
        try:
            if isinstance(backend, FileHalf):
                locks.callback(backend.lock(CLUSTER_LOCK_FILE).release)
            folder = local_folder(backend.url)
            parent = folder.parent if folder is not None else None
            if parent is not None and (parent / CLUSTER_LOCK_FILE).exists():
                locks.callback(_lock(parent).release)
        except LockedError as error:
            raise RepairError(f"a cluster uses {backend.url}: {error}") from error
        yield


def _lock(folder: Path) -> Lock:
    return open_file_half(folder).lock(CLUSTER_LOCK_FILE)


def require_no_controller(survey: Survey) -> None:
    """Check that no controller of this journal is alive.

    Raises:
        RepairError: a controller that wrote to the journal still answers.
    """
    cluster_id = survey.image.cluster_id if survey.image is not None else ""
    for endpoint in _controllers(survey):
        if _cluster_at(endpoint) == cluster_id:
            raise RepairError(
                f"the cluster {cluster_id} of {survey.url} runs: its controller answers at "
                f"{endpoint}; stop the cluster first"
            )


def _controllers(survey: Survey) -> Iterable[Endpoint]:
    image = survey.image
    known = [] if image is None else [(image.controller_epoch, image.controller.endpoint)]
    known += [
        (record.controller_epoch, Endpoint(record.host, record.port))
        for lost in survey.lost
        for record in lost.records
        if isinstance(record, ControllerChanged)
    ]
    known.sort(key=lambda each: each[0], reverse=True)
    endpoints = dict.fromkeys(endpoint for _, endpoint in known if endpoint.host)
    return list(endpoints)[:CONTROLLERS_MAX]


def _cluster_at(endpoint: Endpoint) -> str | None:
    """The id of the cluster that answers at this address; None without an answer.

    The caller may be on an event loop, as in a notebook.
    """
    with (
        suppress(SparklogError, OSError),
        BlockingClient((endpoint,), timeout_s=CONTROLLER_SECONDS) as client,
    ):
        return client.admin.describe_cluster().cluster_id
    return None
