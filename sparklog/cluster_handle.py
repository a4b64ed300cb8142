"""The handle of a running cluster: its topics, its brokers, and its end.

Owns: ``Cluster``, its errors after the end, and how it looks in a notebook.  Must not know how a
cluster is started, nor how replicas are placed and moved.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from sparklog.client.admin import Admin, NodeDescription
from sparklog.client.blocking import BlockingClient
from sparklog.client.replica_moves import ShowMoves, await_moves, plan_even, present_replicas
from sparklog.consumer_groups import ConsumerGroups, consumer_groups
from sparklog.driver.launcher import Launcher, SigintGuard
from sparklog.errors import ClosedError, SparklogError, StartError
from sparklog.html_text import code, message, table
from sparklog.plurals import counted
from sparklog.process import at_exit
from sparklog.progress import optional_progress_bar, show_drains, show_moves
from sparklog.session_setup import reset_session
from sparklog.start_options import as_texts
from sparklog.topic import Topic, TopicFrames
from sparklog.types import CONTROLLER_NODE_ID

#: The longest time that a repr waits for the cluster, in seconds.
LOOK_SECONDS_MAX = 2.0
#: The longest time that ``rebalance`` takes, in seconds: a week, for all replicas of a cluster.
REBALANCE_SECONDS_MAX = 7 * 24 * 3600.0


class Cluster:
    """A running cluster.  As a context manager it stops the cluster at the end of the block.

    ``stop`` of a cluster that was reached by ``connect`` only closes this connection.

    After ``stop``, and after the end of the Spark application, every method raises ClosedError at
    once.  Methods that ask the cluster raise ConnectError when no node answers, and KafkaError
    when the cluster refuses a request.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        spark: Any = None,
        launcher: Launcher | None = None,
        guard: SigintGuard | None = None,
    ) -> None:
        """``start`` and ``connect`` make clusters; this constructor starts nothing.

        Args:
            bootstrap_servers: Addresses of one or more nodes: ``HOST:PORT,HOST:PORT``.
            spark: The session of ``read`` and ``write``; None when the cluster has no Spark.
            launcher: What runs the cluster's processes; None for a cluster that runs elsewhere.
            guard: The handler of Ctrl-C, to be restored by ``stop``.
        """
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
        """The addresses for any Kafka client: ``HOST:PORT`` of the control plane, or the addresses
        that ``connect`` was given."""
        return self._bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The cluster's id, which its data directories carry."""
        found: str = self._client.admin.describe_cluster().cluster_id
        return found

    @property
    def is_stopped(self) -> bool:
        """Whether the cluster was stopped, or ended with its Spark application."""
        return self._stopped or (self._launcher is not None and self._launcher.is_stopped)

    def brokers(self) -> tuple[NodeDescription, ...]:
        """Describe the registered brokers: node id, endpoint, rack, and whether they are fenced.

        Returns:
            The brokers by node id, without the control plane (node 0).
        """
        nodes: Iterable[NodeDescription] = self._client.admin.describe_cluster().nodes
        return tuple(node for node in nodes if node.node_id != CONTROLLER_NODE_ID)

    def status(self) -> dict[int, Mapping[str, int]]:
        """Ask every node what it has counted since its start, and how much it has of what now.

        docs/tiering.md and docs/replication.md say which counters to watch.

        Returns:
            The counters by node id and name, as ``sparklog status`` shows them; empty for a node
            that does not answer.  Node 0 is the control plane.
        """
        found: dict[int, Mapping[str, int]] = self._client.admin.status()
        return found

    def topics(self) -> list[str]:
        """List the names of all topics in alphabetical order, without internal topics."""
        return sorted(self._client.admin.list_topics())

    def groups(self) -> ConsumerGroups:
        """Describe the consumer groups: state, members, and the lag of each partition.

        Returns:
            The groups by name, as they are now; in a notebook, a table.

        Raises:
            KafkaError: A group's coordinator does not answer (COORDINATOR_NOT_AVAILABLE).
        """
        client = self._client
        return client.run(consumer_groups(client.async_admin), client.timeout_s)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, Any] | None = None,
        *,
        tiered: bool | None = None,
    ) -> None:
        """Create a topic and wait until the leaders of its partitions serve it.

        Args:
            name: The topic's name, by Kafka's rules for names.
            partitions: Number of partitions.  Default: the setting ``num.partitions``.
            replication_factor: Replicas of each partition.  Default: the setting
                ``default.replication.factor``.
            configs: Topic settings by Kafka's names (docs/settings.md).
            tiered: Whether sealed segments are copied to the cluster's ``remote_dir``
                (docs/tiering.md).  Default: the setting ``remote.storage.enable``.

        Raises:
            ConfigError: ``tiered`` and ``configs`` differ, or ``configs`` is no mapping.
            KafkaError: The topic cannot be created, with the reason as error code, for example
                TOPIC_ALREADY_EXISTS.
        """
        self._client.admin.create_topic(
            name,
            -1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            configs=as_texts(configs, "configs"),
            tiered=tiered,
        )
        self._client.admin.await_serving(name)

    def topic(self, name: str) -> Topic:
        """Return a handle of a topic: offsets, sizes, a preview; in a notebook, a table of these.

        The topic is looked up when the handle is used, not here.
        """
        self._check_open()
        return Topic(name, lambda: self._client, self._frames)

    def read(self, topic: str | Sequence[str], *, schema: Any = None, **options: Any) -> Any:
        """Return a Spark DataFrame of the records of one topic or several.

        Args:
            topic: The topic's name, or several names.
            schema: The columns to read, as a StructType or DDL (``"value binary"``).  Default: all
                columns, ``headers`` only with the option ``includeHeaders``.
            options: Options of ``format("sparklog")`` (docs/dataframes.md).  Times may be
                datetimes, and options in JSON may be mappings.

        Raises:
            ConfigError: An option is unknown or malformed.
            StartError: The cluster has no Spark session, or the session has been stopped.
        """
        return self._frames.read(topic, schema=schema, **options)

    def write(self, frame: Any, topic: str | None = None, **options: Any) -> None:
        """Append a Spark DataFrame of records to a topic, and return when they are acknowledged.

        ``sparklog.to_records`` makes records of any DataFrame.

        Args:
            frame: A DataFrame with a column ``value``, and optionally ``key``, ``topic``,
                ``partition``, ``timestamp`` and ``headers``.
            topic: The topic's name.  Default: the column ``topic`` names each row's topic.
            options: Options of ``format("sparklog")`` (docs/dataframes.md).

        Raises:
            ConfigError: ``frame`` is no Spark DataFrame, or an option is unknown or malformed.
            StartError: The cluster has no Spark session, or the session has been stopped.
        """
        self._frames.write(frame, topic, **options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            KafkaError: The topic cannot be deleted, for example UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._client.admin.delete_topics([name])

    def scale(self, brokers: int, *, rebalance: bool = True, progress: bool = True) -> None:
        """Scale the cluster to ``brokers`` brokers while it serves, and return when that is done.

        To more brokers: new brokers start.  To fewer: brokers give their replicas to the others
        and stop.  Brokers whose removal was interrupted go first, then those with the highest ids.
        An interruption leaves the brokers where they are.  If a broker is to stay whose removal was
        interrupted before, its removal is taken back.

        Args:
            brokers: The number of brokers to have, at least 1.
            rebalance: Whether ``rebalance`` follows when brokers were added or taken back.
            progress: Whether progress bars are shown, on stderr or in the notebook.

        Raises:
            KafkaError: Fewer brokers could not hold the replicas.
            StartError: Task slots are missing, or the cluster was started elsewhere.
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
        """Drain and stop these brokers while the cluster serves, and return when that is done.

        A broker may have died.  Called again after an interruption, or by the next driver, a
        removal goes on.

        Args:
            broker_ids: Node ids of the brokers to remove.
            progress: Whether a progress bar is shown, on stderr or in the notebook.

        Raises:
            KafkaError: The other brokers could not hold the replicas.
            StartError: There is no such broker, or the cluster was started elsewhere.
        """
        launcher, wanted = self._own_launcher(), sorted(set(broker_ids))
        known = {*launcher.broker_ids, *launcher.draining_brokers()}
        unknown = [broker_id for broker_id in wanted if broker_id not in known]
        if unknown:
            raise StartError(f"there is no broker {', '.join(map(str, unknown))}")
        title = f"draining broker {', '.join(map(str, wanted))}"
        with optional_progress_bar(title, progress) as show:
            launcher.remove_brokers(wanted, show_drains(show))

    def rebalance(self, *, progress: bool = True) -> int:
        """Spread replicas and leaders evenly over the living brokers, with few moves.

        Args:
            progress: Whether a progress bar is shown, on stderr or in the notebook.

        Returns:
            The number of partitions whose replicas changed.

        Raises:
            KafkaError: A move was refused.
        """
        with optional_progress_bar("moving replicas", progress) as show:
            return self._client.run(
                _rebalance(self._client.async_admin, show_moves(show)), REBALANCE_SECONDS_MAX
            )

    def stop(self) -> None:
        """Stop every broker cleanly, then supervisors and control plane.  May be called twice.

        A cluster that was reached by ``connect`` goes on; only this connection is closed.
        """
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
            reset_session(self._spark, self._bootstrap_servers)
            with suppress(SparklogError):
                self._unchecked_client.close()

    @property
    def _client(self) -> BlockingClient:
        """The client of a cluster that was not stopped.  Raises ClosedError."""
        self._check_open()
        return self._unchecked_client

    def _check_open(self) -> None:
        if self.is_stopped:
            raise ClosedError(self._end_reason())

    def _end_reason(self) -> str:
        """The reason why a stopped cluster is stopped, and the remedy."""
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
            return f"{name}: {message(self._end_reason())}"
        rows = [
            (str(node.node_id), str(node.endpoint), "fenced" if node.fenced else "alive")
            for node in brokers
        ]
        shown = table(("broker", "listens at", "state"), rows) if rows else "<br>"
        example = "spark.read.format('sparklog').option('subscribe', 'TOPIC').load()"
        return f"{name}: {message(state)}{shown}{code(example)}"

    def _state(self) -> tuple[str, tuple[NodeDescription, ...]]:
        """The cluster's state in words, and its brokers; never raises."""
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
