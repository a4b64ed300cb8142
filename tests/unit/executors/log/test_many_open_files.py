"""Thousands of partitions in a process that may open few files."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from tests.unit.executors.log.log_fixtures import SMALL, batch, first_since, headers_of
from sparklog.config import BrokerConfig, TopicConfig
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log import Log
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.service.settings import open_files_max
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import TopicPartition

half = LocalBackend(sys.argv[1])
files = FileCache(open_files_max(BrokerConfig.resolve({}), 1024))

def open_log(number, clean):
    tp = TopicPartition("many", number)
    return Log.open(half, str(tp), topic_partition=tp, config=SMALL, files=files,
                    producers=ProducerStateManager(tp), now_ms=0, clean=clean)

logs = [open_log(number, False) for number in range(1100)]
most = 0
for turn in range(4):
    for log in logs:
        # Big enough for an entry in both indexes: log and two maps of each are used.
        data = batch(log.log_end_offset, (turn,), size=250)
        log.append([data], headers_of(data), 0)
    most = max(most, len(os.listdir("/proc/self/fd")))
for log in logs:
    assert first_since(log, 3).offset == 3
    found = log.read(2, 1000, end_offset=4)
    assert found.region.size == found.size > 0
    found.region.release()
    most = max(most, len(files))
for log in logs[:100]:
    log.close(0)
assert [open_log(number, True).log_end_offset for number in range(100)] == [4] * 100
print(most)
"""


def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).resolve().parents[4],
    )
    assert done.returncode == 0, done.stderr
    # Every one of the 1,100 logs and 2,200 indexes was open at some time.
    assert int(done.stdout) < 450
