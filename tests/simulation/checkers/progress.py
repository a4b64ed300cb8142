"""After the healing the cluster goes on: every partition takes a record and gives it back, and all
its replicas are in sync again.  What is drained has left, where there is room for it.
"""

from tests.simulation.events import Drained, GroupDrained, Healed, InSync, Probed
from tests.simulation.final_state import FinalState
from tests.simulation.history import History

#: Virtual time within which a write and its reading succeed after the healing.
PROGRESS_MS = 60_000


def check(history: History, final: FinalState) -> list[str]:
    probes = [probe for _, probe in history.each(Probed)]
    found = [
        f"{probe.log} does not work after healing: {probe.error}" for probe in probes if probe.error
    ]
    found += [
        f"{probe.log} took {probe.took_ms} ms to work after healing, {PROGRESS_MS} are allowed"
        for probe in probes
        if not probe.error and probe.took_ms > PROGRESS_MS
    ]
    for _, seen in history.each(InSync):
        if seen.missing:
            found.append(
                f"{seen.log} lacks {list(seen.missing)} in its ISR {seen.took_ms} ms after healing"
            )
    for _, drained in history.each(Drained):
        if drained.left > drained.stuck:
            found.append(
                f"broker {drained.broker} has {drained.left} partitions {drained.took_ms} ms after "
                f"healing, and is to lose all but {drained.stuck}"
            )
    for _, drain in history.each(GroupDrained):
        if drain.error:
            found.append(
                f"group {drain.group} has not drained {drain.took_ms} ms after healing: "
                f"{drain.error}"
            )
    healed = any(True for _ in history.each(Healed))
    probed = {probe.log for probe in probes}
    found += [f"{log} was not probed" for log in final.logs if healed and log not in probed]
    return found
