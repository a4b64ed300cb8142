"""The whole scenario: some seeds, those that once found something, and deliberate bugs.

``SPARKLOG_WHOLE=1`` (``make test-whole``) takes more seeds and every deliberate bug.
"""

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.campaign import Campaign, not_caught, report, run_seeds
from tests.simulation.exercised import MANY_TAKEOVERS, TIERS_EXERCISED
from tests.simulation.scenario import TIERED_FROM, UNCLEAN_FROM, WIPED_FROM
from tests.support.sampling import WHOLE

ROOT = Path(__file__).resolve().parents[2]
PLAIN, TIERED, WIPED, TAKEN_OVER = (300, 60, 60, 60) if WHOLE else (32, 17, 7, 6)
SEEDS = (
    *range(1, PLAIN + 1),
    *range(TIERED_FROM, TIERED_FROM + TIERED),
    *range(WIPED_FROM, WIPED_FROM + WIPED),
    *range(UNCLEAN_FROM, UNCLEAN_FROM + TAKEN_OVER),
)
#: Every seventh one: neighbours in the list break the same part.
BUG_NAMES = list(BUGS) if WHOLE else list(BUGS)[::7]

#: Seeds that once failed, and what they found.  Their runs have changed with the scenario since;
#: what was wrong in the product has a unit test of its own.
PINNED = {
    3: "a batch that was refused was sent again as a new one",
    34: "a process was resumed that was not the one paused",
    38: "a consumer's prefetch from before a power loss was blamed",
    211: "a torn base offset was believed: the log leapt from 58 to 31,034",
    77: "a batch with a torn leader epoch, which no checksum covers, was led and elected",
    40070: "work that failed after its caller was cancelled left an error to nobody",
    20767: "a deletion whose checkpoint met a full disk was seen before it was durable",
    400123: "a drain that is always refused was asked for without end, by the simulation",
    101055: "the end of a topic was taken for that of the one deleted before it",
    101014: "a torn leader epoch amid older ones was kept, and copies differed",
    100285: "a log was looked at while it was being cut, file by file",
    2080: "the same prefetch, found by the check of equal records",
    5083: "a reassignment removed the last copy while the replicas that stayed were lost",
    1208: "a torn tail that was cut off without a flush came back below flushed records",
    1054: "brokers followed a replaced control plane that had nothing to commit for a minute",
    10484: "a topic was created on a broker that had lost its disk, which was to be waited for",
    10480: "the same of __consumer_offsets, which the operator took for held, and left leaderless",
    11437: "a broker that had been cut off heard of its leadership when it was over",
    10621: "an eligible replica that was away during a deletion led, and was to know of it",
    13138: "a log of a deleted topic was cut, and the loss written down for the next topic's log",
    13139: "a deletion did not wait for a replica whose return the leader had not heard of",
    1000050: "the first replica of a tiered log that was gone everywhere was blamed to lead",
    1000000: "a torn leader epoch below zero, of the only batch, was led",
    1002640: "garbage was as old as the call that removed it, which had waited for three seconds",
    1003019: "a process that stood still in the middle of a commit was blamed for young garbage",
    1002460: "a replica that lost power where its log began anew missed deleted records",
    1002978: "a partition that began to move while a plan was made was taken to have no replicas",
    1002999: "a leadership that was over took a manifest over in the epoch of the next leader",
    1040: "a broker died in the middle of a marker, which broke off the simulation",
    1003059: "a commit that was under way when its coordinator ended was taken for refused",
    1010029: "a transaction that was open where the bucket ends stayed open after the recovery",
    1010107: "a marker that a recovery had lost, and the leader repeated, was taken for undecided",
    1010109: "a commit was blamed whose abort was lost, and which the next transaction committed",
    1010159: "a lookup by time was to know of what was committed after it was asked for",
    1010235: "logs that began anew were lost before one led, and no replica ever led again",
    1010509: "files of a topic that had left the bucket went before the log start was noted",
    1016001: "a log that was found gone when there was no leader any more was never given up",
    1010464: "a reader began at offset 0 of a lost log, which began behind all used offsets",
    1010523: "a replica that was elected without its log was taken to have copied it",
    1011148: "a new leader that found out its high watermark during a search answered with the old",
    1012402: "records of a transaction whose marker was lost were read above the stable offset",
    1011575: "no replica of a topic without a bucket ever led again, not even on request",
    1013658: "records that a crash had brought back had no leader epochs, so none was copied",
    1013987: "a marker that the disk refused once was not repeated while the replica led",
    1020078: "a replica whose old log never had a record was blamed to lead",
    1020395: "a lost log was moved to its broker alone, and nobody accepted the loss",
    1031032: "directories vanished under brokers that had their files open and had not registered",
    1032553: "a broker that was elected after its power had failed counted as without its disk",
    1031507: "a broker that had not heard that its replica was removed was blamed for its files",
    1011017: "a partition that one replica led from the bucket was given up for ever, unasked",
    1011199: "a replica whose log was lost while a move went on was taken to have copied it",
    1011947: "a lookup by time was to find what a leader had deleted that died of it",
    1010187: "a lost log was blamed for its start, which was behind all used offsets",
}

PRINT_RUN = """
from tests.simulation.scenario import run
# With groups and compacted topics; with groups, transactions and tiered topics.
for seed in (18, 1_000_003):
    verdict = run(seed)
    print("\\n".join(verdict.trace))
    print(verdict.found, sorted(verdict.counters.items()))
"""


@pytest.mark.timeout(1200)
def test_no_seed_finds_anything_and_together_they_exercise_everything() -> None:
    *_, campaign = run_seeds(SEEDS)
    print(f"{campaign.seeds} seeds:", dict(sorted(campaign.counters.items())))
    assert not campaign.failures, "\n\n".join(map(report, campaign.failures[:3]))
    assert campaign.neglected == []


def test_what_few_takeovers_show_is_asked_of_campaigns_with_many() -> None:
    def neglected(runs: int, **exercised: int) -> set[str]:
        counters = Counter(exercised, tiered_runs=runs, unclean_takeover_runs=runs)
        return {*Campaign(seeds=runs, counters=counters).neglected} - {*TIERS_EXERCISED}

    assert neglected(1) == {"tier_truncations"}
    assert neglected(MANY_TAKEOVERS - 1, tier_truncations=1) == set()
    assert neglected(MANY_TAKEOVERS, tier_truncations=1) == {"tier_shortenings"}


@pytest.mark.timeout(1200)
def test_what_seeds_found_stays_mended() -> None:
    *_, campaign = run_seeds(list(PINNED)[:: 1 if WHOLE else 3])
    told = [f"{PINNED[each.seed]}: {report(each)}" for each in campaign.failures[:3]]
    assert not campaign.failures, "\n\n".join(told)


@pytest.mark.timeout(1200)
def test_deliberate_bugs_are_caught() -> None:
    assert not_caught(BUG_NAMES) == []


def test_a_run_depends_on_its_seed_alone() -> None:
    with ThreadPoolExecutor() as threads:
        runs = list(threads.map(_printed, ("1", "4711")))
    assert runs[0] == runs[1]


def _printed(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_RUN],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
