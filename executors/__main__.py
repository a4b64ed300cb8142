"""``python -m sparklog.executors``: one broker as a process.

The process reads one JSON line (``BrokerOptions``) from stdin, and writes one JSON line to stdout
as soon as it serves or has failed to start.  It logs to stderr.  SIGTERM and StopNode stop it
cleanly.  It dies with its parent.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sparklog.errors import ConfigError, LockedError, SparklogError, StorageError
from sparklog.executors.broker import Broker
from sparklog.executors.broker_options import BrokerOptions
from sparklog.executors.log_dirs import BrokerStartError
from sparklog.process import die_with_parent, raise_descriptor_limit

logger = logging.getLogger("sparklog.executors")


def main() -> int:
    die_with_parent()
    raise_descriptor_limit()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        options = BrokerOptions(**json.loads(sys.stdin.readline()))
    except (ValueError, TypeError) as error:
        _say(ready=False, error=f"the options cannot be read: {error}", kind="config")
        return 2
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(options))


async def _serve(options: BrokerOptions) -> int:
    try:
        broker = Broker(options)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, broker.ask_to_stop, f"signal {number}")
        await broker.start()
    except SparklogError as error:
        logger.error("cannot start: %s", error)
        _say(ready=False, error=str(error), kind=_kind(error))
        return 1
    except Exception as error:
        logger.exception("cannot start")
        _say(ready=False, error=f"{type(error).__name__}: {error}", kind="other")
        return 1
    gc.freeze()  # the loaded objects stay alive, so later collections can skip them
    _say(
        ready=True,
        port=broker.port,
        pid=os.getpid(),
        directory_id=str(broker.directory_id),
        incarnation=str(broker.incarnation),
    )
    try:
        await broker.run()
    except Exception:
        logger.exception("broker %d ends", options.broker_id)
        return 1
    logger.info("broker %d stopped cleanly", options.broker_id)
    return 0


def _kind(error: SparklogError) -> str:
    if isinstance(error, BrokerStartError):
        return error.kind
    if isinstance(error, LockedError):
        return "locked"
    if isinstance(error, StorageError):
        return "storage"
    return "config" if isinstance(error, ConfigError) else "other"


def _say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop if that is installed; None for asyncio's own."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


if __name__ == "__main__":
    sys.exit(main())
