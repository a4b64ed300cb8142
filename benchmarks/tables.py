"""The section of RESULTS.md for a run beside Kafka.

Owns: the section's words.  Must not know how a value is measured.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measurement import Measured, Part, Run

BEGIN = "<!-- written by `make bench-record` from ratios.json -->"
END = "<!-- end of what `make bench-record` writes -->"
HEADINGS = ("what", "sparklog", "Kafka", "ratio in our favour", "reach", "aim", "met")
TITLES = {
    "one-broker": "Clients, one broker",
    "three-brokers": "Clients, three brokers",
    "failover": "Failover",
    "partitions": "Cost against partitions",
    "brokers": "Cost against brokers",
    "compaction": "Compaction",
    "tiering-folder": "Tiered topics, both in a folder",
    "tiering-bucket": "Tiered topics, ours in a bucket",
    "reads": "DataFrames, reads",
    "writes": "DataFrames, writes",
}
_PLOTS = {
    "ratios.png": "Ratios in our favour, and what is asked",
    "latency.png": "End-to-end latency",
    "cost.png": "Cost against partitions and brokers",
}


def section(run: Run, plots: Path) -> str:
    """Return the section as Markdown, with links to the plots in ``plots`` beside RESULTS.md."""
    parts = [(name, run[name]) for name in TITLES if name in run]
    if not parts:
        return "No run is recorded."
    machines = list(dict.fromkeys(part.machine for _, part in parts))
    links = [
        f"![{words}]({plots.name}/{name})"
        for name, words in _PLOTS.items()
        if (plots / name).exists()
    ]
    met = [each.met for _, part in parts for each in part.measured if each.met is not None]
    count = f"{sum(met)} of {len(met)} rows of which something is asked reach it."
    tables = [_part(TITLES[name], part) for name, part in parts]
    return "\n\n".join([*(f"{each}." for each in machines), count, *links, *tables])


def table(measured: Sequence[Measured]) -> list[str]:
    rows = [HEADINGS, ("---",) * len(HEADINGS), *map(cells, measured)]
    return [f"| {' | '.join(row)} |" for row in rows]


def cells(measured: Measured) -> tuple[str, ...]:
    figure = measured.figure
    ours, kafka = (f"{value:,.{figure.digits}f} {figure.unit}" for value in measured.medians)
    met = {None: "", True: "yes", False: "no"}[measured.met]
    asked = ("" if each is None else f"{each:g}" for each in (figure.reach, figure.aim))
    return (figure.what, ours, kafka, f"{measured.ratio:.2f}", *asked, met)


def with_section(text: str, written: str) -> str:
    """Return ``text`` with ``written`` between the two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, "RESULTS.md has lost the marks of its section"
    return f"{before}{BEGIN}\n\n{written}\n\n{END}{after}"


def _part(title: str, part: Part) -> str:
    said = f"`{part.command}`; {part.scale}; {part.seconds:.0f} s."
    return "\n".join([f"### {title}", "", said, "", *table(part.measured)])
