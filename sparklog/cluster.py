"""Starting a cluster and connecting to one: the composition root of the Python API.

Owns: ``start``, ``start_processes`` and ``connect``, what ``restoring`` needs of them, and how
engine, launcher and ``Cluster`` fit together.  Must not know how any of them works.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.cluster_handle import Cluster
from sparklog.driver.launcher import (
    ClusterMemberCalls,
    Engine,
    Launcher,
    LaunchOptions,
    ProcessEngine,
    Racks,
    SigintGuard,
)
from sparklog.process import local_folder
from sparklog.session_setup import set_up_session
from sparklog.start_options import Location, check_bootstrap, check_session, launch_options

__all__ = ["SUPERVISOR_MODULE", "Cluster", "connect", "start", "start_processes"]

log = logging.getLogger(__name__)

SUPERVISOR_MODULE = "sparklog.executors.supervisor"
LOOPBACK = "127.0.0.1"


def start(
    spark: Any,
    brokers: int = 3,
    *,
    spares: int = 0,
    data_dir: Location | Sequence[Location],
    journal_dir: Location | None = None,
    remote_dir: Location | None = None,
    port: int = 0,
    host: str | None = None,
    racks: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Cluster:
    """Start brokers inside a Spark application and return when all of them serve.

    In this session ``format("sparklog")`` then finds the cluster by itself, and filters are pushed
    down.

    Args:
        spark: A classic Spark session with a free task slot per broker and spare, and at least
            one more for queries.  Dynamic allocation must be off.
        brokers: Number of brokers, at least 1.  A cluster that has more brokers keeps them.
        spares: Number of further task slots to hold idle.  A broker that loses its executor starts
            again in a spare slot, without queueing behind queries.
        data_dir: The folder for the brokers' logs; every executor must be able to use it under
            this name.  A start on the folder of an earlier cluster finds all its records.  Several
            folders, on several disks, share the partitions: when one disk fails, the partitions on
            the others go on.
        journal_dir: Where the cluster's state is kept: a folder, or a place in a bucket
            (``s3://bucket/folder``).  Default: ``journal`` inside the first ``data_dir``, on the
            driver's host.
        remote_dir: Where the sealed segments of tiered topics are copied to (docs/tiering.md): a
            place in a bucket (``s3://bucket/folder``), or a folder that all executors share.
            Without one, no topic can be tiered.
        port: TCP port of node 0, the bootstrap address; 0 takes any free port.
        host: The address where all nodes listen.  Default: loopback for local masters, else the
            driver's host for node 0 and the executor's host for each broker.
        racks: The rack of every host that executors run on, by Spark's name of the host.  Brokers,
            and the replicas of a partition, are spread over racks first; a consumer with
            ``client.rack`` reads from a replica in its rack (KIP-392).
        settings: Broker settings by Kafka's names (docs/settings.md).
        storage_options: How to open the buckets of ``journal_dir`` and ``remote_dir``, by fsspec's
            names (``endpoint_url``, ``key``, ``secret``, ...).  Default: what the environment of
            each process says.

    Returns:
        The running cluster.  ``Cluster.stop``, or the end of a ``with`` block, stops it.

    Raises:
        ConfigError: A setting or argument is unknown, malformed or out of range.
        StartError: The cluster cannot start here; the message names the remedy.
    """
    return start_in_spark(
        spark,
        brokers,
        spares=spares,
        data_dir=data_dir,
        journal_dir=journal_dir,
        remote_dir=remote_dir,
        port=port,
        host=host,
        racks=racks,
        settings=settings,
        storage_options=storage_options,
    )


def start_in_spark(
    spark: Any,
    brokers: int,
    *,
    data_dir: Location | Sequence[Location],
    spares: int = 0,
    journal_dir: Location | None = None,
    remote_dir: Location | None = None,
    port: int = 0,
    host: str | None = None,
    racks: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    disks_are_lost: bool = False,
) -> Cluster:
    """``start``; with ``disks_are_lost``, brokers whose directories are not here get new ones."""
    from sparklog.driver.launcher import SparkEngine, require_worker_python, spark_context

    context = spark_context(spark)
    require_worker_python(spark)
    engine = SparkEngine(spark, SUPERVISOR_MODULE)
    local = str(context.master).startswith("local")
    default_host = LOOPBACK if local else str(context.getConf().get("spark.driver.host", LOOPBACK))
    if not local and journal_dir is None:
        log.warning(
            "the journal is kept on the driver's host, in %s; give a journal_dir that the next "
            "driver can reach if it may run on another host",
            data_dir,
        )
    options = launch_options(
        *(brokers, spares, data_dir, journal_dir, remote_dir, host or default_host, port),
        *(settings, storage_options),
    )
    if host is None and not local:
        options["broker_host"] = None  # each broker listens at its executor's host
    options["racks"] = Racks.checked(racks, options["settings"])
    options["disks_are_lost"] = disks_are_lost
    cluster = _launch(LaunchOptions(**options), engine, spark)
    try:
        set_up_session(spark, cluster.bootstrap_servers)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def start_processes(
    brokers: int = 3,
    *,
    spares: int = 0,
    data_dir: Location | Sequence[Location],
    journal_dir: Location | None = None,
    remote_dir: Location | None = None,
    port: int = 0,
    host: str = LOOPBACK,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Cluster:
    """Start the same cluster as plain processes on this machine, without Spark.

    This is for tests and tools.  The arguments are those of ``start``.

    Raises:
        ConfigError: A setting or argument is unknown, malformed or out of range.
        StartError: The cluster cannot start here; the message names the remedy.
    """
    return start_on_this_machine(
        brokers,
        spares=spares,
        data_dir=data_dir,
        journal_dir=journal_dir,
        remote_dir=remote_dir,
        port=port,
        host=host,
        settings=settings,
        storage_options=storage_options,
    )


def start_on_this_machine(
    brokers: int,
    *,
    data_dir: Location | Sequence[Location],
    spares: int = 0,
    journal_dir: Location | None = None,
    remote_dir: Location | None = None,
    port: int = 0,
    host: str = LOOPBACK,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    disks_are_lost: bool = False,
) -> Cluster:
    """``start_processes``; for ``disks_are_lost`` see ``start_in_spark``."""
    options = LaunchOptions(
        **launch_options(
            *(brokers, spares, data_dir, journal_dir, remote_dir, host, port),
            *(settings, storage_options),
        ),
        disks_are_lost=disks_are_lost,
    )
    folder = local_folder(options.data_dir)
    engine = ProcessEngine(SUPERVISOR_MODULE, host, folder and folder / "logs")
    return _launch(options, engine, None)


def connect(spark: Any, bootstrap_servers: str) -> Cluster:
    """Use a cluster that runs elsewhere, from any Spark session, Spark Connect included.

    In this session ``format("sparklog")`` then finds the cluster by itself.

    Args:
        spark: A Spark session, classic or Spark Connect.
        bootstrap_servers: Addresses of one or more nodes: ``HOST:PORT,HOST:PORT``.

    Returns:
        The cluster.  Its ``stop`` only closes this connection.

    Raises:
        ConfigError: ``spark`` is no Spark session, or an address is malformed.
        ConnectError: No node answered.
        StartError: Spark's Python cannot run the data source; the message names the remedy.
    """
    from sparklog.driver.launcher import require_worker_python

    check_session(spark)
    check_bootstrap(bootstrap_servers)
    require_worker_python(spark)
    cluster = Cluster(bootstrap_servers, spark=spark)
    try:
        cluster.brokers()
        set_up_session(spark, bootstrap_servers)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _launch(options: LaunchOptions, engine: Engine, spark: Any) -> Cluster:
    launcher = Launcher(options, engine, ClusterMemberCalls)
    # Before the start: a Ctrl-C must not cancel the first brokers either.
    guard = SigintGuard(engine.cancel_queries) if spark is not None else None
    if guard is not None:
        guard.install()
    try:
        launcher.start()
        return Cluster(
            str(launcher.control_plane.endpoint), spark=spark, launcher=launcher, guard=guard
        )
    except BaseException:
        launcher.stop("the start failed")
        if guard is not None:
            guard.restore()
        raise
