"""The processes of a campaign: none goes on when the campaign itself was killed."""

import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]

#: A pool as campaigns have it, whose one worker tells its process id.
POOL = """
import os, time
from tests.simulation.campaign import _pool
pool = _pool(1)
print(pool.submit(os.getpid).result(), flush=True)
time.sleep(600)
"""


def test_workers_end_with_a_campaign_that_was_killed() -> None:
    campaign = subprocess.Popen(
        [sys.executable, "-c", POOL], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    children: list[psutil.Process] = []
    try:
        assert campaign.stdout is not None
        worker = int(campaign.stdout.readline())
        children = psutil.Process(campaign.pid).children(recursive=True)
        assert worker in [child.pid for child in children]
        campaign.kill()
        gone, alive = psutil.wait_procs(children, timeout=30)
        assert (len(gone), alive) == (len(children), [])
    finally:
        campaign.kill()
        for child in children:
            if child.is_running():
                child.kill()
        campaign.communicate(timeout=30)
