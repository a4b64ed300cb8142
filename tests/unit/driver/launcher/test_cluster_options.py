import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.cluster import Cluster, connect, start, start_processes
from sparklog.driver.launcher.racks import Racks
from sparklog.errors import ConfigError, StartError
from sparklog.session import default_master, session_settings
from sparklog.start_options import launch_options


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"brokers": 0}, StartError, "at least one broker"),
        ({"spares": -1}, StartError, "spares=-1: expected 0 or more"),
        ({"port": 70000}, ConfigError, "expected 0 to 65535"),
        ({"settings": {"num.partition": 3}}, ConfigError, "did you mean num.partitions"),
        ({"settings": {"num.partitions": "x"}}, ConfigError, "expected int"),
        ({"data_dir": "memory://x"}, StartError, "local folders"),
        ({"data_dir": "s3://x"}, StartError, "only journal_dir may be in an object store"),
        ({"journal_dir": Path("s3://bucket/x")}, ConfigError, "lost a slash; write s3://bucket/x"),
        ({"journal_dir": "file:/x"}, ConfigError, "lost a slash; write file:///x"),
        ({"remote_dir": Path("s3://bucket/x")}, ConfigError, "lost a slash; write s3://bucket/x"),
        ({"remote_dir": " "}, ConfigError, "remote_dir is empty; give a folder, or a URL such as"),
        ({"remote_dir": Path("file:/x")}, ConfigError, "remote_dir='file:/x' is a URL that lost a"),
        ({"remote_dir": "memory://x"}, ConfigError, "every process has a memory of its own"),
        ({"journal_dir": "Memory://x"}, ConfigError, "every process has a memory of its own"),
        (
            {"remote_dir": "gs://bkt/x"},
            ConfigError,
            "remote_dir cannot be used: gs://bkt/x: no store of gs:// is known to create a file "
            "only if it is absent, which is needed here; choose a folder or file://, s3://, s3a://",
        ),
        ({"journal_dir": "gs://bkt/x"}, ConfigError, "journal_dir cannot be used: gs://bkt/x: no "),
        ({"remote_dir": "s3n://bkt/x"}, ConfigError, r"s3a://; did you mean s3://\?$"),
        ({"remote_dir": "fsspec+s3://bkt/x"}, ConfigError, r"s3a://; did you mean s3://\?$"),
        ({"settings": {"remote.dir": "abfs://c/x"}}, ConfigError, "no store of abfs:// is known"),
        (
            {"remote_dir": "/a", "settings": {"remote.dir": "/b"}},
            ConfigError,
            "remote_dir=/a and the setting remote.dir=/b differ; give one of them",
        ),
        ({"remote_dir": "/a", "settings": {"remote.dir": ""}}, ConfigError, "give one of them"),
        ({"storage_options": {"key": b"x"}}, ConfigError, "give texts, numbers, lists"),
        ({"data_dir": ["/a", "memory://x"]}, StartError, "local folders"),
        ({"data_dir": []}, ConfigError, "one folder, or several"),
        ({"data_dir": ["/a", "/a/"]}, ConfigError, "one folder, or several"),
        ({"data_dir": ["/a", "file:///a"]}, ConfigError, "one folder, or several"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        start_processes(**{"data_dir": tmp_path / "data", **options})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("remote_dir", "settings", "resolved"),
    [
        (None, {}, {}),
        (None, {"remote.dir": ""}, {"remote.dir": ""}),
        ("s3://bucket/log", {}, {"remote.dir": "s3://bucket/log"}),
        (Path("x/y"), {}, {"remote.dir": f"{os.getcwd()}/x/y"}),
        (None, {"remote.dir": "~/x"}, {"remote.dir": f"{Path.home()}/x"}),
        (f"{os.getcwd()}/x", {"remote.dir": "x"}, {"remote.dir": f"{os.getcwd()}/x"}),
    ],
)
def test_the_remote_dir_becomes_a_setting_of_all_nodes(
    remote_dir: Any, settings: dict[str, str], resolved: dict[str, str]
) -> None:
    options = launch_options(1, 0, "/a", None, remote_dir, "127.0.0.1", 0, settings, None)
    assert options["settings"] == resolved


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage_options": "hunter2"}, "^storage_options: expected a mapping of .*, not str$"),
        ({"storage_options": ["hunter2"]}, "^storage_options: expected a mapping of .*, not list$"),
        ({"storage_options": {5: "x"}}, "^storage_options: expected names as texts, not int$"),
        ({"settings": "num.partitions=3"}, "^settings: expected a mapping of names .*, not str$"),
        ({"settings": {3: "num.partitions"}}, "^settings: expected names as texts, not int$"),
        ({"remote_dir": 5}, "^remote_dir=5: expected a folder or a URL, as a text or .*, not int$"),
        ({"remote_dir": b"/a"}, "^remote_dir=b'/a': expected a folder or a URL, .*, not bytes$"),
        (
            {"journal_dir": 5},
            "^journal_dir=5: expected a folder or a URL, as a text or a path, not",
        ),
        (
            {"journal_dir": ["/a"]},
            r"^journal_dir=\['/a'\]: expected a folder or a URL, .*, not list$",
        ),
        ({"journal_dir": ""}, "^journal_dir is empty; give a folder, or a URL such as s3://BUCKET"),
        ({"data_dir": 5}, "^data_dir=5: expected a folder or a URL, as a text or a path, not int$"),
        ({"data_dir": None}, "^data_dir=None: expected a folder or a URL, .*, not NoneType$"),
        ({"data_dir": b"/a"}, "^data_dir=b'/a': expected a folder or a URL, .*, not bytes$"),
        ({"data_dir": ["/a", 5]}, "^data_dir=5: expected a folder or a URL, as a text or a path"),
        ({"data_dir": ""}, "^data_dir is empty; give a folder"),
        ({"data_dir": "/a\0b"}, "^data_dir='/a.x00b': names of folders have no NUL characters$"),
        ({"brokers": "3"}, "^brokers='3': expected a whole number, not str$"),
        ({"brokers": True}, "^brokers=True: expected a whole number, not bool$"),
        ({"spares": None}, "^spares=None: expected a whole number, not NoneType$"),
        ({"port": 9092.0}, "^port=9092.0: expected a whole number, not float$"),
        ({"host": 5}, "^host=5: expected a host name or an address, as a text$"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named_with_what_it_takes(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        start_processes(**{"data_dir": tmp_path / "data", **options})
    assert "hunter2" not in str(refused.value)
    assert os.listdir(tmp_path) == []


def options_with(data_dir: Any, journal_dir: str | None, remote_dir: str | None) -> dict[str, Any]:
    return launch_options(1, 0, data_dir, journal_dir, remote_dir, "127.0.0.1", 0, None, None)


@pytest.mark.parametrize(
    ("remote_dir", "places", "overlap"),
    [
        ("s3://bkt/x/", {"journal_dir": "s3://bkt/x"}, "the same place as journal_dir=s3://bkt/x"),
        ("s3a://bkt/x", {"journal_dir": "s3://bkt/x"}, "is the same place as journal_dir="),
        ("S3://bkt/x", {"journal_dir": "s3://bkt/x"}, "is the same place as journal_dir="),
        ("s3://bkt//x", {"journal_dir": "s3://bkt/x"}, "is the same place as journal_dir="),
        ("file:///a/journal", {}, "is the same place as journal_dir=/a/journal"),
        ("/a/journal/sub", {}, "is inside data_dir=/a"),
        ("/a", {"data_dir": ["/b", "file:///a"]}, "is the same place as data_dir=file:///a"),
        ("/a/broker-1", {}, "is inside data_dir=/a"),
        ("/a/logs", {}, "is inside data_dir=/a"),
        ("/a/../a/remote", {}, "is inside data_dir=/a"),
        ("FILE:///shared", {"data_dir": "/shared/data"}, "has in it data_dir=/shared/data"),
        ("/shared", {"data_dir": "/shared/data", "journal_dir": "/j"}, "has in it data_dir="),
    ],
)
def test_a_remote_dir_and_the_other_folders_do_not_overlap(
    remote_dir: str, places: dict[str, Any], overlap: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        options_with(remote_dir=remote_dir, **{"data_dir": "/a", "journal_dir": None, **places})
    assert overlap in str(refused.value)
    assert str(refused.value).startswith("remote_dir=")
    assert "so that neither is lost or deleted with the other" in str(refused.value)
    assert "move all of it with cluster.json" in str(refused.value)


def test_links_to_a_data_dir_name_the_data_dir(tmp_path: Path) -> None:
    data, link = tmp_path / "data", tmp_path / "link"
    data.mkdir()
    link.symlink_to(data)
    for remote_dir in (link, link / "remote"):
        with pytest.raises(ConfigError, match=f"data_dir={data}; give the remote_dir a place"):
            options_with(data, str(tmp_path / "journal"), str(remote_dir))
    with pytest.raises(ConfigError, match="one folder, or several different ones"):
        options_with([data, link], None, None)


@pytest.mark.parametrize(
    ("data_dir", "journal_dir", "remote_dir"),
    [
        ("/a", None, "/a-remote"),
        ("/a", "/a/journal", "/b"),
        ("/a", "/a", "/b"),
        (["/a", "/a/disk2"], None, "/b"),
        ("/a", "s3://bkt/cluster/journal", "s3://bkt/cluster/log"),
        ("/a", "s3://bkt/log", "s3://bkt/log2"),
        ("/a", "/bkt/x", "s3://bkt/x"),
        ("/a", "s3://bkt/x/journal", "s3://bkt/x"),
        ("/a", "s3://bkt/x", "s3a://bkt/x/log"),
    ],
)
def test_places_that_are_apart_are_taken(
    data_dir: Any, journal_dir: str | None, remote_dir: str
) -> None:
    options = options_with(data_dir, journal_dir, remote_dir)
    assert options["settings"] == {"remote.dir": remote_dir}


@pytest.mark.parametrize(
    ("racks", "settings", "message"),
    [
        (2, {}, "racks=2: expected the rack of every host, as in "),
        ({"h1": ""}, {}, "expected the rack of every host"),
        ({"h1": 1}, {}, "expected the rack of every host"),
        ({"h1": "a"}, {"broker.rack": "a"}, "give one of them"),
    ],
)
def test_wrong_racks_are_refused(racks: Any, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Racks.checked(racks, settings)


def test_a_cluster_without_racks_may_stand_in_one() -> None:
    assert Racks.checked(None, {"broker.rack": "a"}) == Racks()
    assert Racks.checked({"h1": "a"}, {}) == Racks(by_host={"h1": "a"})


def test_start_needs_a_classic_session(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="needs a classic Spark session"):
        start(object(), data_dir=tmp_path)


@pytest.mark.parametrize(
    ("spark", "servers", "message"),
    [
        (None, "127.0.0.1:1", "expected a SparkSession, not NoneType"),
        ("127.0.0.1:1", None, "expected a SparkSession, not str"),
        (SimpleNamespace(conf=1, read=1), "nowhere", "'nowhere': .* expected HOST:PORT,HOST:PORT"),
        (SimpleNamespace(conf=1, read=1), "", "bootstrap_servers='': .* expected HOST:PORT"),
        (SimpleNamespace(conf=1, read=1), None, "bootstrap_servers=None: .* expected HOST:PORT"),
        (SimpleNamespace(conf=1, read=1), 9092, "bootstrap_servers=9092: .* expected HOST:PORT"),
    ],
)
def test_a_connection_needs_a_session_and_an_address(
    spark: Any, servers: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        connect(spark, servers)


class _Session:
    """A classic session that has been stopped."""

    class sparkContext:  # noqa: N801
        master = "local[4]"

        class _jsc:  # noqa: N801
            @staticmethod
            def sc() -> Any:
                return SimpleNamespace(isStopped=lambda: False)

    class conf:  # noqa: N801
        @staticmethod
        def set(*_: str) -> None:
            raise RuntimeError("the session has ended")


def test_a_cluster_that_the_session_cannot_use_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    launcher: Any = SimpleNamespace(stop=lambda: stopped.append("launcher"), is_stopped=False)
    monkeypatch.setattr(
        "sparklog.cluster._launch", lambda *_: Cluster("127.0.0.1:1", launcher=launcher)
    )
    with pytest.raises(RuntimeError, match="the session has ended"):
        start(_Session(), data_dir=tmp_path)
    assert stopped == ["launcher"]


def test_sessions_of_our_own_have_room_for_queries_and_stay_on_this_machine() -> None:
    settings = session_settings(default_master(3), "test")
    assert settings == {
        "spark.master": "local[5]",
        "spark.app.name": "test",
        "spark.dynamicAllocation.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    assert "spark.driver.host" not in session_settings("spark://host:7077")
