"""Arguments of ``start`` and ``connect`` -> checked options of the launcher.

Owns: the rules of these arguments, and their error messages.  Must not know the launcher or Spark.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Final

from sparklog.client.cluster_client import parse_bootstrap
from sparklog.config import BrokerConfig
from sparklog.errors import ConfigError, StartError, StorageError
from sparklog.places import Place
from sparklog.process import local_folder
from sparklog.storage_backends.registry import require_conditional_create

Location = str | PathLike[str]

REMOTE_DIR: Final = "remote.dir"


def check_session(spark: Any) -> None:
    """Raises ConfigError for everything but a Spark session."""
    if not (hasattr(spark, "conf") and hasattr(spark, "read")):
        raise ConfigError(
            f"connect(spark, ...): expected a SparkSession, not {type(spark).__name__}"
        )


def check_bootstrap(bootstrap_servers: str) -> None:
    """Raises ConfigError unless the addresses have the form ``HOST:PORT,HOST:PORT``."""
    try:
        parse_bootstrap(bootstrap_servers)
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"bootstrap_servers={bootstrap_servers!r}: {error}; expected HOST:PORT,HOST:PORT"
        ) from None


def launch_options(
    brokers: int,
    spares: int,
    data_dir: Location | Sequence[Location],
    journal_dir: Location | None,
    remote_dir: Location | None,
    host: str,
    port: int,
    settings: Mapping[str, Any] | None,
    storage_options: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Check the arguments of ``start`` and turn them into the launcher's options.

    ``host`` is the address where node 0 and the brokers listen.

    Returns:
        Keyword arguments of ``LaunchOptions``.

    Raises:
        ConfigError: A setting, port or folder is unknown, malformed or out of range.
        StartError: The number of brokers or spares is out of range.
    """
    for name, number in (("brokers", brokers), ("spares", spares), ("port", port)):
        check_whole_number(name, number)
    if not isinstance(host, str):
        raise ConfigError(f"host={host!r}: expected a host name or an address, as a text")
    if brokers < 1:
        raise StartError(f"brokers={brokers}: a cluster has at least one broker")
    if spares < 0:
        raise StartError(f"spares={spares}: expected 0 or more")
    if not 0 <= port <= 65535:
        raise ConfigError(f"port={port}: expected 0 to 65535")
    locations = [absolute_location("data_dir", folder) for folder in _several(data_dir)]
    if not locations or len(locations) != len({Place.of(location) for location in locations}):
        raise ConfigError(f"data_dir={data_dir}: expected one folder, or several different ones")
    journal = None if journal_dir is None else absolute_location("journal_dir", journal_dir)
    if journal is not None:
        _check_store("journal_dir", journal)
    texts = _with_remote_dir(as_texts(settings), remote_dir)
    _check_apart(texts.get(REMOTE_DIR), journal or f"{locations[0]}/journal", locations)
    BrokerConfig.resolve(texts)
    return {
        "brokers": brokers,
        "spares": spares,
        "data_dir": locations[0],
        "more_data_dirs": tuple(locations[1:]),
        "journal_dir": journal,
        "host": host,
        "broker_host": host,
        "port": port,
        "settings": texts,
        "storage_options": checked_storage_options(storage_options),
    }


def _with_remote_dir(texts: dict[str, str], remote_dir: Location | None) -> dict[str, str]:
    """The settings with the remote_dir as an absolute path or URL, if the cluster has one.

    Raises:
        ConfigError: argument and setting differ, or no other process could read the remote_dir.
    """
    setting = texts.get(REMOTE_DIR, "").strip()
    if remote_dir is None and not setting:
        return texts
    given = setting if remote_dir is None else _location_text("remote_dir", remote_dir).strip()
    location = absolute_location("remote_dir", given)
    if REMOTE_DIR in texts and (not setting or absolute_location(REMOTE_DIR, setting) != location):
        raise ConfigError(
            f"remote_dir={location} and the setting {REMOTE_DIR}={setting} differ; give one of them"
        )
    _check_store("remote_dir", location)
    return {**texts, REMOTE_DIR: location}


def _check_store(name: str, location: str) -> None:
    """Raises ConfigError for a scheme that cannot hold a journal or remote logs."""
    if location.lower().startswith("memory://"):
        raise ConfigError(
            f"{name}={location}: every process has a memory of its own; give a bucket, or a folder "
            "that all nodes see"
        )
    try:
        require_conditional_create(location)
    except StorageError as error:
        raise ConfigError(f"{name} cannot be used: {error}") from error


def _check_apart(remote_dir: str | None, journal: str, data_dirs: Sequence[str]) -> None:
    """Raises ConfigError if the remote_dir and another folder of the cluster overlap.

    Whoever deletes a data_dir, or a remote_dir that is not needed any more, deletes all that is
    inside.  And a remote_dir on the disk of a broker is lost together with it.  A journal may be
    inside the remote_dir, or the other way round: ``sparklog restore`` needs both anyway.
    """
    if not remote_dir:
        return
    remote = Place.of(remote_dir)
    for name, location in [("journal_dir", journal), *(("data_dir", each) for each in data_dirs)]:
        other = Place.of(location)
        if remote == other:
            overlap = "is the same place as"
        elif name == "journal_dir":
            continue
        elif other.holds(remote):
            overlap = "is inside"
        elif remote.holds(other):
            overlap = "has in it"
        else:
            continue
        raise ConfigError(
            f"remote_dir={remote_dir} {overlap} {name}={location}; give the remote_dir a place "
            "outside, so that neither is lost or deleted with the other (if it is in use, stop the "
            "cluster, move all of it with cluster.json, and start with the new place)"
        )


def absolute_location(name: str, location: Location) -> str:
    """The absolute path or URL that the argument ``name`` gives.  Raises ConfigError.

    Executors have working folders of their own, so a relative path is resolved here.
    """
    text = _location_text(name, location)
    scheme, rest = text.partition(":/")[::2]
    if scheme.isalnum() and len(scheme) > 1 and rest and not rest.startswith("/"):
        url = f"{scheme}:///{rest}" if scheme == "file" else f"{scheme}://{rest}"
        raise ConfigError(f"{name}={text!r} is a URL that lost a slash; write {url}, as text")
    return text if "://" in text else str(local_folder(text))


def _location_text(name: str, location: Location) -> str:
    text: object = location
    if isinstance(location, PathLike):
        text = fspath(location)
    if not isinstance(text, str):
        raise ConfigError(
            f"{name}={location!r}: expected a folder or a URL, as a text or a path, not "
            f"{type(location).__name__}"
        )
    if not text.strip():
        raise ConfigError(f"{name} is empty; give a folder, or a URL such as s3://BUCKET/FOLDER")
    if "\0" in text:
        raise ConfigError(f"{name}={text!r}: names of folders have no NUL characters")
    return text


def _several(data_dir: Location | Iterable[Location]) -> list[Location]:
    if isinstance(data_dir, str | bytes | PathLike):
        return [data_dir]
    try:
        return list(data_dir)
    except TypeError:
        return [data_dir]  # type: ignore[list-item]  # it is refused with the right words


def check_whole_number(name: str, value: object) -> None:
    """Raises ConfigError for everything but an int."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}={value!r}: expected a whole number, not {type(value).__name__}")


def checked_storage_options(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of the options.  They must be JSON, because they travel to another process.

    No error shows a value, which may be a secret.

    Raises:
        ConfigError: they are no mapping of names to values that JSON has.
    """
    options = _mapping("storage_options", storage_options)
    try:
        json.dumps(options)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"storage_options: {error}; give texts, numbers, lists and mappings"
        ) from error
    return options


def as_texts(values: Mapping[str, Any] | None, argument: str = "settings") -> dict[str, str]:
    """Return setting values as Kafka writes them: a boolean in lower case.

    Raises:
        ConfigError: the argument, which is called so, is no mapping of names.
    """
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in _mapping(argument, values).items()
    }


def _mapping(argument: str, values: Mapping[str, Any] | None) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{argument}: expected a mapping of names to values, not {type(values).__name__}"
        )
    for name in values:
        if not isinstance(name, str):
            raise ConfigError(f"{argument}: expected names as texts, not {type(name).__name__}")
    return dict(values)
