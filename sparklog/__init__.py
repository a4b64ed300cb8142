"""sparklog: a partitioned, replicated, transactional log inside a Spark application.

Owns: the names that applications import.  ``start`` runs a cluster inside a Spark application,
``connect`` reaches a cluster that runs elsewhere, and both return a ``Cluster``.  ``restore``
starts one again whose disks are gone.  ``to_records``
and ``from_records`` turn rows into records and back.  ``Consumer`` and ``AsyncConsumer`` read
topics, alone or in groups, with a ``RebalanceListener``.  ``Producer`` and ``AsyncProducer`` write
records, in transactions if wanted.  Must not know what is behind these names:
attributes load on first use (PEP 562), so that an import of one package never drags pyspark into
a broker.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sparklog.client.application_producers import AsyncProducer, Producer
    from sparklog.client.groups import AsyncConsumer, Consumer, RebalanceListener
    from sparklog.cluster import Cluster, connect, start
    from sparklog.dataframe.records import from_records, to_records
    from sparklog.restoring import restore

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Cluster",
    "Consumer",
    "Producer",
    "RebalanceListener",
    "__version__",
    "connect",
    "from_records",
    "restore",
    "start",
    "to_records",
]

_HOME = {
    **dict.fromkeys(("AsyncConsumer", "Consumer", "RebalanceListener"), "sparklog.client.groups"),
    **dict.fromkeys(("AsyncProducer", "Producer"), "sparklog.client.application_producers"),
    **dict.fromkeys(("Cluster", "connect", "start"), "sparklog.cluster"),
    **dict.fromkeys(("from_records", "to_records"), "sparklog.dataframe.records"),
    "restore": "sparklog.restoring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sparklog' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
