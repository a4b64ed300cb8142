"""Records deleted from the front of partitions.

Owns: up to where, and what an answer says.  Must not know how it is checked.
"""

import random

from sparklog.client.admin import Admin
from sparklog.errors import SparklogError
from sparklog.types import NO_OFFSET
from tests.simulation.events import DeleteRecordsInvoked, LogId, RecordsDeleted
from tests.simulation.workloads.consume import list_end, tp_of
from tests.simulation.workloads.scene import Scene

TIMEOUT_S = 5.0


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    async with await scene.world.cluster_client(name) as cluster:
        admin = Admin(cluster, timeout_s=TIMEOUT_S)
        while not scene.over:
            await scene.pause(chance, 2500)
            log = chance.choice(scene.logs)
            try:
                end = await list_end(scene, cluster, log)
                if end:
                    before = chance.choice((NO_OFFSET, chance.randint(0, end)))
                    await _delete(scene, admin, log, before)
            except SparklogError:
                cluster.expire_topics()


async def _delete(scene: Scene, admin: Admin, log: LogId, before: int) -> None:
    op = scene.history.new_op()
    scene.history.record(DeleteRecordsInvoked(op=op, log=log, before=before))
    answer = await admin.delete_records({tp_of(log): before})
    scene.count("records_deleted")
    scene.history.record(RecordsDeleted(op=op, low_watermark=answer[tp_of(log)]))
