"""Logs that are crashed: at any moment of a life, and at any operation on the disk of a cleaning.

``python -m tests.unit.executors.log.log_crashes --cases N --start S`` crashes N logs in each of the
two ways (``make crash``).  ``--only cleanings`` or ``--only lives`` chooses one.
"""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tests.unit.executors.log.log_life import DELETE_RETENTION_MS, Life, PowerLostError


def crash_once(seed: int) -> Counter[str]:
    """A short life, a crash with everything damaged that may be, and a life after it."""
    life = Life(seed, damaging=True)
    for _ in range(life.dice.randrange(4, 30)):
        life.step(checked=False)
    life.crash()
    life.check_closely()
    for _ in range(4):
        life.step(checked=False)
    life.check_closely()
    return life.counters


def crash_a_cleaning(seed: int) -> Counter[str]:
    """Cleanings of a log that grows, each of which may stop at any operation on the disk."""
    life = Life(seed)
    life.desk.config = replace(life.desk.config, cleanup_policy=("compact",))
    life.keeps_policy = True
    life.crash()
    for _ in range(life.dice.randrange(1, 5)):
        for _ in range(life.dice.randrange(3, 8)):
            life.append()
        life.roll()
        if life.dice.random() < 0.7:
            life.start_flush()
            life.finish_flush()
            life.checkpoint()
        life.now_ms += life.dice.randrange(DELETE_RETENTION_MS)
        try:
            life.clean()
        except PowerLostError:
            life.backend.faults.clear()
            life.counters["cleanings interrupted"] += 1
            life.crash()
        life.backend.faults.clear()
        life.check()
    life.check_closely()
    return life.counters


CRASHES: dict[str, Callable[[int], Counter[str]]] = {
    "lives": crash_once,
    "cleanings": crash_a_cleaning,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Crash logs and look what is left of them.")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--only", choices=list(CRASHES))
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(CRASHES)
    logging.disable(logging.WARNING)  # the log tells of every file that it makes anew
    began = time.monotonic()
    counters: Counter[str] = Counter()
    failed: list[int] = []
    for seed in range(options.start, options.start + options.cases):
        for kind in kinds:
            try:
                counters += CRASHES[kind](seed)
            except Exception as error:
                failed.append(seed)
                print(f"{kind}, seed {seed}: {type(error).__name__}: {str(error)[:300]}")
    for name, count in sorted(counters.items()):
        print(f"{count:9,} {name}")
    print(
        f"{options.cases} cases in {time.monotonic() - began:.0f} s, {len(failed)} failed {failed}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
