"""A broker that is added in the middle of a run, and gets its share of the replicas.

Owns: adding the broker and moving replicas until that has succeeded.  Must not know what is done to
the cluster meanwhile.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sparklog.cluster import Cluster
from sparklog.errors import SparklogError
from sparklog.metadata import ClusterImage

#: When the broker is added, as a share of the run.
BEGIN = (0.15, 0.4)
PAUSE_S = 1.0
#: After the troubles; an executor that was lost may take its time to come back.
ATTEMPTS_AFTER = 5


@dataclass(slots=True, kw_only=True)
class AddedBroker:
    """``failures``: why attempts failed while the cluster was in trouble; ``grown``: it worked."""

    cluster: Cluster
    brokers: int
    over: threading.Event
    say: Callable[[str], None]
    failures: list[str] = field(default_factory=list)
    grown: threading.Event = field(default_factory=threading.Event)

    def run(self, chance: random.Random, run_s: float) -> None:
        """For a thread of its own: wait for the time, add the broker and move replicas to it."""
        self.over.wait(run_s * chance.uniform(*BEGIN))
        attempts_left = ATTEMPTS_AFTER
        while attempts_left and not self.grown.is_set():
            attempts_left -= self.over.is_set()
            try:
                self.cluster.scale(self.brokers, rebalance=False, progress=False)
                self.say(f"the cluster has {self.brokers} brokers")
                moved = self.cluster.rebalance(progress=False)
                self.say(f"{moved} partitions have moved")
                self.grown.set()
            except SparklogError as error:
                self.failures.append(str(error))
                self.say(f"the cluster has not grown yet: {error}")
                time.sleep(PAUSE_S)


def missing_replicas(image: ClusterImage, brokers: int) -> list[str]:
    """Which of the brokers are not there at the end, or have nothing to do."""
    found = []
    for broker_id in range(1, brokers + 1):
        if broker_id not in image.brokers:
            found.append(f"there is no broker {broker_id}")
        elif not image.partitions_of(broker_id):
            found.append(f"broker {broker_id} has no replicas")
    return found
