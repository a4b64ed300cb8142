"""Many seeds: ``make sim SEEDS=N START=S``; one again: ``python -m tests.simulation.campaign S``.

Owns: worker processes, the sum of what was exercised, and how a failure is reported.  Must not
know what a run does.  ``--bug NAME`` plants a deliberate bug and stops at the first seed that
catches it.
"""

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

from tests.simulation.bugs import BUGS
from tests.simulation.caught_at import CAUGHT_AT, CAUGHT_BY
from tests.simulation.checkers import CHECKERS
from tests.simulation.cleaner_bugs import CLEANER_BUGS
from tests.simulation.exercised import (
    EXERCISED,
    MANY_TAKEOVERS,
    MANY_TAKEOVERS_EXERCISED,
    TAKEOVERS_EXERCISED,
    TIERS_EXERCISED,
    WIPES_EXERCISED,
)
from tests.simulation.planting import UNHUNTED
from tests.simulation.scenario import (
    TIERED_FROM,
    Verdict,
    has_compacted_topics,
    has_transactions,
    run,
)
from tests.simulation.tier_bugs import TIER_BUGS
from tests.simulation.transaction_bugs import TRANSACTION_BUGS

#: Lines of the trace that a report shows.
TAIL = 40
#: Seeds within which a deliberate bug must be caught.
BUG_SEEDS_MAX = 100
#: Bugs that few seeds show: where the hunt begins.  From seed 1 on they took that many.
HUNTED_FROM = {
    "clean_past_the_recovery_point": 1_001,
    "commit_all_transactions_whose_markers_are_lost": 1_010_000,
    "copy_a_lost_log_under_the_same_leader_epoch": 401,
    "cut_at_the_log_end_of_a_new_leader": 1_100_000,
    "cut_the_beginning_of_a_segment_too": 1_100_000,
    "delete_the_replaced_segments_first": 101,
    "drop_markers_early": 101,
    "drop_tombstones_early": 101,
    "initialize_in_the_same_epoch": 101,
    "keep_the_segment_in_which_the_logs_diverge": 1_100_000,
    "leave_the_bucket_without_asking_the_other_replicas": 1_010_000,
    "look_up_times_on_the_disk_only": 1_010_000,
    "recover_from_the_worst_log": 61,
    "recover_without_waiting": 65,
    "take_a_cut_without_a_hold": 101,
    "take_an_end_from_an_earlier_connection": 201,
    "take_batches_of_old_clients_without_verification": 201,
    "take_over_without_a_cut": 1_100_000,
    "take_the_age_of_garbage_from_the_call": 1_002_601,
}
WORKERS = min(2, os.cpu_count() or 1)


@dataclass(slots=True)
class Campaign:
    """What came of a range of seeds."""

    seeds: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[Verdict] = field(default_factory=list)

    @property
    def neglected(self) -> list[str]:
        """What should have been exercised by seeds of these kinds, and was not."""
        with_tiers = self.counters["tiered_runs"]
        expected = EXERCISED if self.seeds > with_tiers else ()
        expected += TIERS_EXERCISED if with_tiers else ()
        expected += WIPES_EXERCISED if self.counters["wiped_runs"] else ()
        with_takeovers = self.counters["unclean_takeover_runs"]
        expected += TAKEOVERS_EXERCISED if with_takeovers else ()
        expected += MANY_TAKEOVERS_EXERCISED if with_takeovers >= MANY_TAKEOVERS else ()
        return [name for name in expected if not self.counters[name]]


def run_seeds(seeds: Iterable[int], workers: int = WORKERS) -> Iterator[Campaign]:
    """The campaign as it grows, after every seed."""
    campaign = Campaign()
    for verdict in _verdicts(seeds, workers):
        campaign.seeds += 1
        campaign.counters += verdict.counters
        if verdict.found:
            campaign.failures.append(verdict)
        yield campaign


def seeds_to_catch(name: str) -> tuple[int, str]:
    """How many seeds a deliberate bug takes, and what was found; -1 when it is not caught.

    Only a checker catches: a run that breaks off would show a bug that cannot even run.  Seeds that
    cannot show the bug are counted without a run.
    """
    first = HUNTED_FROM.get(name, TIERED_FROM if name in TIER_BUGS else 1)
    for tried, seed in enumerate(range(first, first + BUG_SEEDS_MAX), start=1):
        if name in CLEANER_BUGS and not has_compacted_topics(seed):
            continue
        if name in TRANSACTION_BUGS and not has_transactions(seed):
            continue
        if found := _caught(name, seed):
            return tried, found
    return -1, ""


def _caught(name: str, seed: int) -> str:
    """The first finding of a checker that counts in a run with this bug; empty without one."""
    counting = {CAUGHT_BY[name]} if name in CAUGHT_BY else CHECKERS.keys()
    for line in run(seed, bug=name).found:
        if line.partition(":")[0] in counting:
            return line
    return ""


def is_caught(name: str) -> bool:
    """Whether a deliberate bug is caught: by the seed that caught it last time, or by any other."""
    seed = CAUGHT_AT.get(name)
    return (seed is not None and bool(_caught(name, seed))) or seeds_to_catch(name)[0] > 0


def hunt(names: Sequence[str], workers: int = WORKERS) -> dict[str, tuple[int, str]]:
    """``seeds_to_catch`` for each bug."""
    with _pool(workers) as pool:
        return dict(zip(names, pool.map(seeds_to_catch, names), strict=True))


def not_caught(names: Sequence[str], workers: int = WORKERS) -> list[str]:
    """The bugs that are not caught."""
    with _pool(workers) as pool:
        caught = pool.map(is_caught, names)
        return [name for name, is_so in zip(names, caught, strict=True) if not is_so]


def report(verdict: Verdict) -> str:
    """A failing seed: what is wrong, how it ended, and how to see it again."""
    lines = [
        f"seed {verdict.seed} failed:",
        *(f"  {line}" for line in verdict.found[:10]),
        f"the last {TAIL} events:",
        *(f"  {line}" for line in verdict.trace[-TAIL:]),
        f"again: python -m tests.simulation.campaign {verdict.seed}",
    ]
    return "\n".join(lines)


def _verdicts(seeds: Iterable[int], workers: int) -> Iterator[Verdict]:
    if workers <= 1:
        yield from map(run_small, seeds)
        return
    with _pool(workers) as pool:
        yield from pool.map(run_small, seeds, chunksize=4)


def run_small(seed: int, bug: str | None = None) -> Verdict:
    """A run, without the trace when all is well."""
    try:
        verdict = run(seed, bug=bug)
    except BaseException as error:
        error.add_note(f"the run of seed {seed} broke off")
        raise
    return verdict if verdict.found else replace(verdict, trace=())


def _pool(workers: int) -> ProcessPoolExecutor:
    # Fresh interpreters: a fork would take over threads and loops of the test session.
    return ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on until its seeds are done."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="campaign.py", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this seed, with its whole trace")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--start", type=int, default=1, help="the first one")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--bug", choices=[*BUGS, *UNHUNTED, "all"], help="plant a deliberate bug")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.bug)
    if options.bug is not None:
        names = list(BUGS) if options.bug == "all" else [options.bug]
        return _show_hunt(hunt(names, options.workers))
    return _show_campaign(range(options.start, options.start + options.seeds), options.workers)


def _replay(seed: int, bug: str | None) -> int:
    verdict = run(seed, bug=bug)
    print("\n".join(verdict.trace))
    print("\n".join(verdict.found) or f"seed {seed}: all is well")
    return 1 if verdict.found else 0


def _show_hunt(caught: dict[str, tuple[int, str]]) -> int:
    for name, (tried, found) in caught.items():
        print(f"{name}: {f'{tried} seeds: {found[:120]}' if tried > 0 else 'not caught'}")
    return 1 if any(tried < 0 for tried, _ in caught.values()) else 0


def _show_campaign(seeds: range, workers: int) -> int:
    began, reported, campaign = time.monotonic(), 0, Campaign()
    for campaign in run_seeds(seeds, workers):
        for failure in campaign.failures[reported:]:
            print(report(failure), flush=True)
        reported = len(campaign.failures)
        if campaign.seeds % 100 == 0:
            print(f"{campaign.seeds} seeds, {reported} failed", flush=True)
    for name, number in sorted(campaign.counters.items()):
        print(f"{number:12,} {name}")
    print(f"{campaign.seeds} seeds in {time.monotonic() - began:.0f} s, {reported} failed")
    if campaign.neglected:
        print(f"never exercised: {', '.join(campaign.neglected)}")
    return 1 if campaign.failures or campaign.neglected else 0


if __name__ == "__main__":
    sys.exit(main())
