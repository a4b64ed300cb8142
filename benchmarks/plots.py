"""``python -m benchmarks.plots``: pictures of a run beside Kafka, as small PNG files.

Owns: the pictures.  Must not know how a value is measured.  Needs matplotlib (extra ``bench``) and
nothing else; without matplotlib a run has no pictures.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import Measured, Run, all_measured, load

FOLDER = Path(__file__).parent / "plots"
RECORDED = Path(__file__).parent / "ratios.json"
_OURS, _KAFKA, _REACH = "#1f6f8b", "#c9772b", "#8b1f3f"
_DOTS_PER_INCH = 90
_PERCENTILES = ("p50", "p99", "p99.9")
#: Figures of the cost: the middle of their keys, and the label of the axis.
_COSTS = (("produce", "produced, MB/s"), ("consume", "consumed, MB/s"), ("cpu", "CPU, s/GB"))
_COST_PARTS = ("partitions", "brokers")


class PlotsUnavailableError(Exception):
    """matplotlib is not installed."""


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw every picture for which there are figures.  Raises PlotsUnavailableError."""
    pyplot = _pyplot()
    folder.mkdir(exist_ok=True)
    measured = all_measured(run)
    drawings: dict[str, Callable[[Any, Sequence[Measured]], Any]] = {
        "ratios.png": _ratios,
        "latency.png": _latencies,
        "cost.png": _costs,
    }
    drawn = []
    for name, drawing in drawings.items():
        picture = drawing(pyplot, measured)
        if picture is not None:
            picture.savefig(folder / name, dpi=_DOTS_PER_INCH, metadata={"Software": None})
            pyplot.close(picture)
            drawn.append(folder / name)
    return drawn


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise PlotsUnavailableError("no plots: matplotlib is missing (extra bench)") from None
    matplotlib.use("Agg")  # works without a screen
    from matplotlib import pyplot

    return pyplot


def _ratios(pyplot: Any, measured: Sequence[Measured]) -> Any:
    rows = [each for each in measured if each.figure.reach is not None][::-1]
    if not rows:
        return None
    picture, axes = pyplot.subplots(figsize=(9, 0.8 + 0.3 * len(rows)), layout="constrained")
    places = range(len(rows))
    axes.barh(places, [each.ratio for each in rows], color=_OURS, height=0.6)
    reach = [each.figure.reach for each in rows]
    axes.scatter(reach, places, marker="|", s=220, linewidths=2.5, color=_REACH, label="reach")
    axes.axvline(1, color="black", linewidth=0.8)
    for place, each in zip(places, rows, strict=True):
        axes.annotate(
            f" {each.ratio:.2f}", (max(each.ratio, each.figure.reach or 0), place), va="center"
        )
    axes.set_yticks(places, [each.figure.what for each in rows], fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(pyplot.matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.margins(x=0.15, y=0.01)
    axes.set_xlabel("ratio in our favour (Kafka = 1)")
    axes.legend(loc="upper right")
    return picture


def _latencies(pyplot: Any, measured: Sequence[Measured]) -> Any:
    found = {each.figure.key: each for each in measured}
    parts = [part for part in ("one-broker", "three-brokers") if f"{part}/latency/p50" in found]
    if not parts:
        return None
    picture, all_axes = pyplot.subplots(
        1, len(parts), figsize=(4 * len(parts), 3.2), squeeze=False, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for axes, part in zip(all_axes[0], parts, strict=True):
        rows = [found[f"{part}/latency/{name}"] for name in _PERCENTILES]
        for side, color, shift, name in ((0, _OURS, -0.2, "sparklog"), (1, _KAFKA, 0.2, "Kafka")):
            places = [place + shift for place in range(len(rows))]
            values = [each.medians[side] for each in rows]
            bars = axes.bar(places, values, 0.4, color=color, label=name)
            axes.bar_label(bars, fmt="%.1f", fontsize=8)
        axes.set_xticks(range(len(rows)), _PERCENTILES)
        axes.set_yscale("log")
        axes.set_title(part.replace("-", " "), fontsize=10)
    all_axes[0][0].set_ylabel("end-to-end latency, ms")
    all_axes[0][0].legend()
    return picture


def _costs(pyplot: Any, measured: Sequence[Measured]) -> Any:
    found = {each.figure.key: each for each in measured}
    parts = [part for part in _COST_PARTS if any(key.startswith(f"{part}/") for key in found)]
    if not parts:
        return None
    picture, all_axes = pyplot.subplots(
        len(parts), len(_COSTS), figsize=(10, 2.8 * len(parts)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for row, part in zip(all_axes, parts, strict=True):
        for axes, (name, words) in zip(row, _COSTS, strict=True):
            _cost(axes, f"{part}/{name}/", found)
            axes.set_xlabel(part)
            axes.set_ylabel(words)
    all_axes[0][0].legend()
    return picture


def _cost(axes: Any, prefix: str, found: dict[str, Measured]) -> None:
    """Draw figures against the number at the end of their keys."""
    points = sorted((int(key.removeprefix(prefix)), key) for key in found if key.startswith(prefix))
    places = range(len(points))
    for side, color, name in ((0, _OURS, "sparklog"), (1, _KAFKA, "Kafka")):
        values = [found[key].medians[side] for _, key in points]
        axes.plot(places, values, marker="o", color=color, label=name)
    axes.set_xticks(places, [f"{number:,}" for number, _ in points])
    axes.set_ylim(bottom=0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots")
    parser.add_argument("--results", type=Path, default=RECORDED)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    for path in draw(load(given.results), given.folder):
        print(path)


if __name__ == "__main__":
    main()
