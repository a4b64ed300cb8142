"""Start a cluster, connect to one, and hold it: the composition root of the Python API.

Owns: ``start``, ``connect`` and ``Cluster``, and how launcher, engines and clients fit together.
Must not know how any of them works.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, Self

from sparklog.client.admin import Admin, NodeDescription
from sparklog.client.blocking import BlockingClient
from sparklog.client.replica_moves import ShowMoves, await_moves, plan_even, present_replicas
from sparklog.dataframe import thread_sessions
from sparklog.dataframe.discovery import ANNOUNCED_PROPERTY, announce, withdraw
from sparklog.dataframe.jvm import install_own_scans, install_packed_reads, install_packed_writes
from sparklog.driver.launcher import (
    ClusterMemberCalls,
    Engine,
    Launcher,
    LaunchOptions,
    ProcessEngine,
    Racks,
    SigintGuard,
)
from sparklog.errors import ClosedError, SparklogError, StartError
from sparklog.html_text import code, message, table
from sparklog.plurals import counted
from sparklog.process import at_exit, local_folder
from sparklog.progress import ShowProgress, progress_bar, show_moves
from sparklog.start_options import (
    Location,
    as_texts,
    check_bootstrap,
    check_session,
    launch_options,
)
from sparklog.topic import Topic, TopicFrames
from sparklog.types import CONTROLLER_NODE_ID
from sparklog.wire.protocol.private import DrainedBroker

log = logging.getLogger(__name__)

SUPERVISOR_MODULE = "sparklog.executors.supervisor"
BOOTSTRAP_CONF = "spark.sparklog.bootstrap.servers"
PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
LOOPBACK = "127.0.0.1"
#: The longest time that a repr waits for the cluster, in seconds.
LOOK_SECONDS_MAX = 2.0
#: Moving all replicas of a cluster may take long.
REBALANCE_SECONDS_MAX = 7 * 24 * 3600.0


def start(
    spark: Any,
    brokers: int = 3,
    *,
    spares: int = 0,
    data_dir: Location | Sequence[Location],
    journal_dir: Location | None = None,
    port: int = 0,
    host: str | None = None,
    racks: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> "Cluster":
    """Start brokers inside a Spark application; returns when all of them serve.

    ``data_dir`` is a folder that every executor can use under that name; started again on the same
    one, the cluster has all its records.  Several folders, of several disks, share the partitions;
    when one disk fails, the partitions on the others go on.  ``journal_dir`` (default: inside the
    first ``data_dir``) keeps the cluster's state; it may be in a bucket (``s3://bucket/folder``),
    opened with ``storage_options`` (fsspec's: ``endpoint_url``, ``key``, ``secret``, ...) or as the
    environment says.  ``spares`` slots are held idle, so that a broker that loses its executor runs
    again without queueing behind queries.  ``port`` is node 0's (0: any free one).  ``host`` is
    where all nodes listen (default: loopback for local masters, else the driver's and the
    executors' own hosts).  ``racks`` gives the rack of every host that executors run on, by Spark's
    name of the host: brokers and the replicas of partitions are spread over racks first, and
    consumers with a ``client.rack`` read from theirs.  ``settings`` are broker settings by Kafka's
    names.

    The data source finds the cluster by itself in this session.  Raises StartError, which names
    the remedy, and ConfigError.
    """
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
        *(brokers, spares, data_dir, journal_dir, host or default_host, port),
        *(settings, storage_options),
    )
    if host is None and not local:
        options["broker_host"] = None  # each its executor's
    options["racks"] = Racks.checked(racks, options["settings"])
    cluster = _launch(LaunchOptions(**options), engine, spark)
    try:
        _use(spark, cluster.bootstrap_servers)
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
    port: int = 0,
    host: str = LOOPBACK,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> "Cluster":
    """The same cluster as plain processes on this machine, without Spark: for tests and tools."""
    options = LaunchOptions(
        **launch_options(
            brokers, spares, data_dir, journal_dir, host, port, settings, storage_options
        )
    )
    folder = local_folder(options.data_dir)
    engine = ProcessEngine(SUPERVISOR_MODULE, host, folder and folder / "logs")
    return _launch(options, engine, None)


def connect(spark: Any, bootstrap_servers: str) -> "Cluster":
    """Use a cluster that runs elsewhere, from any Spark session, Spark Connect included.

    The data source finds it by itself in this session.  Raises ConfigError, ConnectError, and
    StartError, which names the remedy, where Spark's Python cannot run the data source.
    """
    from sparklog.driver.launcher import require_worker_python

    check_session(spark)
    check_bootstrap(bootstrap_servers)
    require_worker_python(spark)
    cluster = Cluster(bootstrap_servers, spark=spark)
    try:
        cluster.brokers()
        _use(spark, bootstrap_servers)
    except BaseException:
        cluster.stop()
        raise
    return cluster


class Cluster:
    """A running cluster.  As a context manager it stops the cluster at the end.

    ``stop`` of a cluster that was reached by ``connect`` only closes this connection.  After
    ``stop``, and after the end of the Spark application, every method raises ClosedError at once.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        spark: Any = None,
        launcher: Launcher | None = None,
        guard: SigintGuard | None = None,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._spark = spark
        self._launcher = launcher
        self._guard = guard
        self._unchecked_client = BlockingClient(bootstrap_servers)
        self._frames = TopicFrames(spark, bootstrap_servers, self._check_open)
        self._stopped = False
        self._forget_exit = at_exit(self.stop)

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` of the control plane, for any Kafka client."""
        return self._bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The cluster's id, which its directories carry."""
        found: str = self._client.admin.describe_cluster().cluster_id
        return found

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped, or ended with its Spark application."""
        return self._stopped or (self._launcher is not None and self._launcher.is_stopped)

    def brokers(self) -> tuple[NodeDescription, ...]:
        """The brokers that are known: node id, endpoint, and whether they are fenced."""
        nodes: Iterable[NodeDescription] = self._client.admin.describe_cluster().nodes
        return tuple(node for node in nodes if node.node_id != CONTROLLER_NODE_ID)

    def topics(self) -> list[str]:
        """The names of all topics, internal ones left out."""
        return sorted(self._client.admin.list_topics())

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a topic and wait until it can be used; what is not given is the cluster's default.

        Raises KafkaError, for one TOPIC_ALREADY_EXISTS.
        """
        self._client.admin.create_topic(
            name,
            -1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            configs=as_texts(configs),
        )
        self._client.admin.await_serving(name)

    def topic(self, name: str) -> Topic:
        """A topic to look at: offsets, sizes, a preview; in a notebook, a table of all that."""
        self._check_open()
        return Topic(name, lambda: self._client, self._frames)

    def read(self, topic: str | Sequence[str], *, schema: Any = None, **options: Any) -> Any:
        """A DataFrame of a topic, or of several.

        ``options`` are those of ``format("sparklog")`` (docs/dataframes.md); times may be
        datetimes, and what is JSON there may be a mapping.  ``schema`` chooses columns.
        """
        return self._frames.read(topic, schema=schema, **options)

    def write(self, frame: Any, topic: str | None = None, **options: Any) -> None:
        """Append a DataFrame of records to a topic, or to those that its column ``topic`` names.

        ``sparklog.to_records`` makes records of any DataFrame.
        """
        self._frames.write(frame, topic, **options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.  Raises KafkaError."""
        self._client.admin.delete_topics([name])

    def scale(self, brokers: int, *, rebalance: bool = True, progress: bool = True) -> None:
        """Have so many brokers, while all of them serve; returns when it is done.

        More: new brokers start, and unless ``rebalance`` is False replicas move to them until all
        carry the same.  Fewer: those whose removal was interrupted, then those with the highest ids
        give their replicas to the others and are stopped; interrupted, they stay.  An interrupted
        removal of a broker that is to stay is taken back.  ``progress`` shows bars on stderr.

        Raises StartError (slots), and KafkaError when fewer brokers could not hold the replicas.
        """
        launcher = self._own_launcher()
        if brokers < 1:
            raise StartError(f"brokers={brokers}: a cluster has at least one broker")
        draining = launcher.draining_brokers()
        ids = sorted({*launcher.broker_ids, *draining}, key=lambda each: (each in draining, each))
        kept = launcher.keep_brokers(ids[:brokers])
        if ids[brokers:]:
            self.remove_brokers(ids[brokers:], progress=progress)
        added = launcher.add_brokers(brokers) if kept or len(ids) < brokers else ()
        if (kept or added) and rebalance:
            self.rebalance(progress=progress)

    def remove_brokers(self, broker_ids: Iterable[int], *, progress: bool = True) -> None:
        """As ``scale`` to fewer brokers: these ones, which may have died, too.

        Called again after it was interrupted, or by the next driver, it goes on.
        """
        launcher, wanted = self._own_launcher(), sorted(set(broker_ids))
        known = {*launcher.broker_ids, *launcher.draining_brokers()}
        unknown = [broker_id for broker_id in wanted if broker_id not in known]
        if unknown:
            raise StartError(f"there is no broker {', '.join(map(str, unknown))}")
        total = 0

        def show(drained: Sequence[DrainedBroker]) -> None:
            nonlocal total
            left = sum(broker.partitions_left for broker in drained)
            stuck = sum(broker.partitions_stuck for broker in drained)
            total = max(total, left)
            words = f"{total - left}/{counted(total, 'replica')}"
            tell(total - left, total, f"{words}, {stuck} cannot move now" if stuck else words)

        with self._bar(f"draining broker {', '.join(map(str, wanted))}", progress) as tell:
            launcher.remove_brokers(wanted, show)

    def rebalance(self, *, progress: bool = True) -> int:
        """Spread replicas and leaders evenly over all living brokers, moving as little as possible;
        the number of partitions that changed."""
        with self._bar("moving replicas", progress) as tell:
            return self._client.run(
                _rebalance(self._client.async_admin, show_moves(tell)), REBALANCE_SECONDS_MAX
            )

    @property
    def _client(self) -> BlockingClient:
        """The client of a cluster that was not stopped.  Raises ClosedError."""
        self._check_open()
        return self._unchecked_client

    def _check_open(self) -> None:
        if self.is_stopped:
            raise ClosedError(self._end())

    def _end(self) -> str:
        """What ended a stopped cluster, and the remedy."""
        if self._launcher is None:
            return (
                f"this connection to {self._bootstrap_servers} was closed by stop(); "
                f"sparklog.connect(spark, {self._bootstrap_servers!r}) opens another"
            )
        what = "was stopped" if self._stopped else "ended with its Spark application"
        return (
            f"this cluster {what}; start it again on its data_dir "
            f"({self._launcher.data_folder}), and it has all its records"
        )

    def _own_launcher(self) -> Launcher:
        self._check_open()
        if self._launcher is None:
            raise StartError("this cluster was started elsewhere; scale it there")
        return self._launcher

    def _bar(self, title: str, progress: bool) -> AbstractContextManager[ShowProgress]:
        return progress_bar(title) if progress else nullcontext(lambda _done, _total, _words: None)

    def stop(self) -> None:
        """Stop every broker cleanly, then the rest.  May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        self._forget_exit()
        try:
            if self._launcher is not None:
                self._launcher.stop()
        finally:
            if self._guard is not None:
                self._guard.restore()
            _stop_using(self._spark, self._bootstrap_servers)
            with suppress(SparklogError):
                self._unchecked_client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<sparklog.Cluster {self._bootstrap_servers}: {self._state()[0]}>"

    def _repr_html_(self) -> str:
        state, brokers = self._state()
        name = f"<b>sparklog cluster</b> {code(self._bootstrap_servers)}"
        if self.is_stopped:
            return f"{name}: {message(self._end())}"
        rows = [
            (str(node.node_id), str(node.endpoint), "fenced" if node.fenced else "alive")
            for node in brokers
        ]
        shown = table(("broker", "listens at", "state"), rows) if rows else "<br>"
        example = "spark.read.format('sparklog').option('subscribe', 'TOPIC').load()"
        return f"{name}: {message(state)}{shown}{code(example)}"

    def _state(self) -> tuple[str, tuple[NodeDescription, ...]]:
        """In words, and its brokers; never raises."""
        if self.is_stopped:
            return "stopped", ()
        try:
            client = self._unchecked_client
            admin = Admin(client.cluster, timeout_s=LOOK_SECONDS_MAX)
            description = client.run(admin.describe_cluster(), LOOK_SECONDS_MAX)
        except SparklogError as error:
            return f"it does not answer ({error})", ()
        brokers = tuple(n for n in description.nodes if n.node_id != CONTROLLER_NODE_ID)
        alive = sum(not node.fenced for node in brokers)
        where = f", data in {self._launcher.data_folder}" if self._launcher else ""
        return f"{alive} of {counted(len(brokers), 'broker')} alive{where}", brokers


async def _rebalance(admin: Admin, show: ShowMoves) -> int:
    plan = await plan_even(admin, await present_replicas(admin))
    refusals = await admin.replicas.reassign(dict(plan)) if plan else {}
    await await_moves(admin, plan.keys(), show)
    for refusal in refusals.values():
        if refusal is not None:
            raise refusal
    await admin.replicas.elect_leaders()
    return len(plan)


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


def _use(spark: Any, bootstrap_servers: str) -> None:
    """Let the data source of this session find the cluster, push its filters down, and be written
    to from every thread."""
    spark.conf.set(BOOTSTRAP_CONF, bootstrap_servers)
    spark.conf.set(PUSHDOWN_CONF, "true")
    install_own_scans(spark)
    install_packed_reads(spark)
    install_packed_writes(spark)
    thread_sessions.install(spark)
    pid = _jvm_pid(spark)
    if pid is not None:
        try:
            announce(pid, bootstrap_servers)
            _properties(spark).setProperty(ANNOUNCED_PROPERTY, bootstrap_servers)
        except OSError as error:
            log.warning(
                "format('sparklog') needs the option kafka.bootstrap.servers=%s here: %s",
                bootstrap_servers,
                error,
            )


def _jvm_pid(spark: Any) -> int | None:
    """The process that plans this session's queries; None over Spark Connect."""
    try:
        return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    except Exception:
        return None


def _properties(spark: Any) -> Any:
    return spark.sparkContext._jvm.java.lang.System.getProperties()


def _stop_using(spark: Any, bootstrap_servers: str) -> None:
    if spark is None:
        return
    with suppress(Exception):  # the session may be gone
        pid = _jvm_pid(spark)
        if pid is not None:
            withdraw(pid, bootstrap_servers)
            _properties(spark).remove(ANNOUNCED_PROPERTY, bootstrap_servers)
        if spark.conf.get(BOOTSTRAP_CONF, None) == bootstrap_servers:
            spark.conf.unset(BOOTSTRAP_CONF)
