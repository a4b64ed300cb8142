"""The S3 server of tests is there for as long as the process that has started it."""

import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.s3_server import S3Missing, S3Server, require_binary


@pytest.mark.s3
def test_it_outlives_the_thread_that_has_started_it(tmp_path: Path) -> None:
    """Troubles start it again from a thread of their own, and what follows needs it."""
    try:
        server = S3Server(require_binary(), tmp_path)
    except S3Missing as error:
        pytest.skip(f"needs versitygw, which needs Go or its Python package: {error}")
    server.stop()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.5)
    finally:
        server.stop()
