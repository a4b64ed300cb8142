"""``python -m benchmarks.record``: the results of ``make bench`` become the recorded results.

Writes ``ratios.json``, the plots, and the section of RESULTS.md from the results of a run.  With
``--check`` it only compares them with the recorded results, and exits with 1 when a ratio is worse.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.measurement import Run, load, save
from benchmarks.plots import FOLDER, RECORDED, PlotsUnavailableError, draw
from benchmarks.regression import ratios, verdict
from benchmarks.tables import section, with_section

#: The results of the last run; not kept in the repository.
RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parent / "RESULTS.md"


def check(run: Run) -> bool:
    """Whether a run is as good as the recorded results; prints worse ratios."""
    well, words = verdict(ratios(load(RECORDED)), ratios(run))
    print(words)
    return well


def record(run: Run) -> None:
    """Record a run.  Parts that the run did not measure stay as they were recorded."""
    whole = {**load(RECORDED), **run}
    save(whole, RECORDED)
    try:
        draw(whole, FOLDER)
    except PlotsUnavailableError as error:
        print(error)
    PAGE.write_text(with_section(PAGE.read_text(), section(whole, FOLDER)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record")
    parser.add_argument("--results", type=Path, default=RESULTS, help="of a run (JSON)")
    parser.add_argument("--check", action="store_true", help="compare only")
    given = parser.parse_args()
    run = load(given.results)
    if not run:
        print(f"{given.results} holds no run: make bench writes it")
        return 1
    if given.check:
        return 0 if check(run) else 1
    record(run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
