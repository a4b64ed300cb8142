"""Whether a broker's disk may be damaged now without acknowledged records being lost legally.

Owns: the fault bound of a run.  Must not know how a disk is damaged, nor when.

The bound: at most ``min.insync.replicas - 1`` members of any ISR plus eligible set are damaged
before the ISR is back at that size.  What is asked for is stricter, because what is known is a
moment old when the damage is done: every partition of the victim has, besides it,
``min.insync.replicas`` sound members in its ISR.  A member that was damaged is sound again once it
has registered anew: that takes it out of every ISR, so whoever is in one after it has caught up.
"""

from collections.abc import Collection

from sparklog.metadata import ClusterImage

MIN_ISR = "min.insync.replicas"


class FaultBound:
    """Remembers what was damaged; asked with the committed state of the cluster.

    ``min_isr`` is the ``min.insync.replicas`` of topics that do not set it.
    """

    def __init__(self, min_isr: int) -> None:
        self._min_isr = min_isr
        self._epoch_when_damaged: dict[int, int] = {}

    def reason_against(self, image: ClusterImage, victim: int, dying: Collection[int] = ()) -> str:
        """Why the victim's disk must stay as it is; empty when it may be damaged.

        Those who die with it do not count: when nobody is left who stopped cleanly, a partition
        waits for the last that was eligible (KIP-966), and if its disk never comes back for an
        operator.
        """
        away = {victim, *dying}
        sound = {id_ for id_ in image.brokers if id_ not in away and self._is_sound(image, id_)}
        for tp, state in image.partitions_of(victim).items():
            others = sorted(sound.intersection(state.isr))
            wanted = int(image.topic_overrides(tp.topic).get(MIN_ISR, self._min_isr))
            if len(others) < wanted:
                return f"{tp} has only {others} besides broker {victim} in its ISR"
        return ""

    def note_damage(self, image: ClusterImage, victim: int) -> None:
        """Its disk was damaged; ``image`` is from before."""
        self._epoch_when_damaged[victim] = image.brokers[victim].broker_epoch

    def _is_sound(self, image: ClusterImage, broker_id: int) -> bool:
        epoch = self._epoch_when_damaged.get(broker_id)
        return epoch is None or image.brokers[broker_id].broker_epoch > epoch
