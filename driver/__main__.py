"""``python -m sparklog.driver``: the control plane as a process.

The process reads one JSON line from stdin (the fields of ``ControlPlaneOptions``) and writes one
JSON line to stdout as soon as it serves or has failed to start.  It logs to stderr.  SIGTERM and
StopNode end it cleanly with exit code 0.  The exit code is 1 when the content of the journal has
become uncertain, or when another controller has taken the journal over.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from typing import Any

from sparklog.driver.control_plane import (
    ControlPlane,
    ControlPlaneOptions,
    ForeignClusterError,
    JournalError,
)
from sparklog.errors import ConfigError, SparklogError, StartError, StorageError
from sparklog.process import die_with_parent, raise_descriptor_limit

logger = logging.getLogger("sparklog.driver")

_EXPECTED = "stdin must be one JSON line with journal_dir, and as they are wanted listen_host, port"
#: Error types and the ``kind`` that the launcher is sent for each, most specific type first.
_KINDS: tuple[tuple[type[SparklogError], str], ...] = (
    (ForeignClusterError, "foreign_cluster"),
    (JournalError, "journal"),
    (StorageError, "storage"),
    (ConfigError, "config"),
    (StartError, "start"),
)


def main() -> int:
    die_with_parent()
    raise_descriptor_limit()
    os.umask(0o077)  # the journal holds the cluster's secret
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        options = _read_options(sys.stdin.readline())
        return asyncio.run(_serve(options))
    except SparklogError as error:
        kind = next((word for known, word in _KINDS if isinstance(error, known)), "other")
        return _refuse(str(error), kind)


def _read_options(line: str) -> ControlPlaneOptions:
    try:
        document = json.loads(line)
        settings: dict[str, Any] = document.get("settings") or {}
        options = ControlPlaneOptions(
            journal_dir=document["journal_dir"],
            listen_host=document.get("listen_host") or "127.0.0.1",
            port=document.get("port") or 0,
            advertised_host=document.get("advertised_host") or "",
            expected_cluster_id=document.get("expected_cluster_id"),
            settings={name: str(value) for name, value in settings.items()},
            storage_options=dict(document.get("storage_options") or {}),
            checks_remote_dir=bool(document.get("checks_remote_dir", True)),
            journal_may_be_old=bool(document.get("journal_may_be_old", False)),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{_EXPECTED}: {error!r}") from error
    texts = (options.journal_dir, options.listen_host, options.advertised_host)
    if not all(isinstance(text, str) for text in texts) or not isinstance(options.port, int):
        raise ConfigError(f"{_EXPECTED}, of the right types")  # the line may hold a secret
    return options


async def _serve(options: ControlPlaneOptions) -> int:
    control_plane = ControlPlane(options)
    gc.disable()  # collections would take half of the time of loading a large journal
    await control_plane.start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, control_plane.stop, signal.Signals(number).name)
    gc.freeze()  # the loaded objects stay alive, so later collections can skip them
    gc.enable()
    image = control_plane.image
    logger.info(
        "controller of epoch %d serves cluster %s at port %d, commit %d",
        image.controller_epoch,
        image.cluster_id,
        control_plane.port,
        image.version,
    )
    _say(
        {
            "ready": True,
            "port": control_plane.port,
            "pid": os.getpid(),
            "cluster_id": image.cluster_id,
            "secret": control_plane.secret.hex(),
            "controller_epoch": image.controller_epoch,
        }
    )
    try:
        await control_plane.run()
    except SparklogError as error:
        logger.critical("the control plane ends: %s", error)
        return 1
    logger.info("stopped cleanly")
    return 0


def _refuse(error: str, kind: str) -> int:
    logger.error("%s", error)
    _say({"ready": False, "error": error, "kind": kind})
    return 1


def _say(answer: dict[str, Any]) -> None:
    """Write one JSON line to stdout; the parent process may have ended already."""
    try:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        logger.warning("nobody reads the answer")


if __name__ == "__main__":
    sys.exit(main())
