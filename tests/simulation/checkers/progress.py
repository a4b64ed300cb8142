"""After the healing the cluster goes on: every partition takes a record and gives it back, and all
its replicas are in sync again.
"""

from final_state import FinalState
from history import Healed, History, InSync, Probed

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
    healed = any(True for _ in history.each(Healed))
    probed = {probe.log for probe in probes}
    found += [f"{log} was not probed" for log in final.logs if healed and log not in probed]
    return found
