"""Figures of two sides, round by round: their ratio, and the file that keeps them."""

from itertools import count
from pathlib import Path

import pytest

from benchmarks.measurement import Figure, Measured, Part, load, save, take_turns
from benchmarks.tables import BEGIN, END, cells, section, with_section

SPEED = Figure(key="one-broker/consume", what="consume", unit="MB/s", reach=1.0, aim=1.5)
STALL = Figure(
    key="failover/stall", what="stall", unit="s", less_is_better=True, reach=5.0, digits=2
)
CPU = Figure(key="one-broker/consume/cpu", what="CPU", unit="s/GB", less_is_better=True)


def measured(figure: Figure, ours: float, kafka: float) -> Measured:
    return Measured(figure=figure, ours=(ours,), kafka=(kafka,))


def part(*found: Measured) -> Part:
    return Part(
        machine="2 cores", command="make bench", scale="5 rounds", seconds=61, measured=found
    )


@pytest.mark.parametrize(
    ("figure", "ours", "kafka", "ratio", "met"),
    [
        (SPEED, 30.0, 20.0, 1.5, True),
        (SPEED, 15.0, 20.0, 0.75, False),
        (STALL, 2.0, 16.0, 8.0, True),
        (STALL, 4.0, 16.0, 4.0, False),
        (CPU, 4.0, 2.0, 0.5, None),
        (CPU, 0.0, 2.0, float("inf"), None),
    ],
)
def test_a_ratio_above_one_is_in_our_favour(
    figure: Figure, ours: float, kafka: float, ratio: float, met: bool | None
) -> None:
    found = measured(figure, ours, kafka)
    assert (found.ratio, found.met) == (ratio, met)


def test_sides_take_turns_after_a_warm_up_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.sync", lambda: synced.append(1))
    times = count()
    runs = take_turns([SPEED, CPU], lambda: (next(times), 0), lambda: (next(times), 1), 2)
    assert runs == [
        Measured(figure=SPEED, ours=(2, 4), kafka=(3, 5)),
        Measured(figure=CPU, ours=(0, 0), kafka=(1, 1)),
    ]
    assert len(synced) == 6


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    run = {"one-broker": part(measured(SPEED, 30, 20), measured(CPU, 0, 2)), "brokers": part()}
    assert load(path) == {}
    save(run, path)
    assert load(path) == run


def test_a_row_says_what_is_asked_and_whether_it_is_met() -> None:
    assert cells(measured(STALL, 0.5, 16)) == (
        *("stall", "0.50 s", "16.00 s", "32.00"),
        *("5", "", "yes"),
    )
    assert cells(measured(CPU, 4, 2)) == ("CPU", "4.0 s/GB", "2.0 s/GB", "0.50", "", "", "")


def test_a_section_has_a_table_for_each_part_and_the_plots_that_there_are(tmp_path: Path) -> None:
    plots = tmp_path / "plots"
    plots.mkdir()
    (plots / "ratios.png").touch()
    run = {"failover": part(measured(STALL, 4, 16)), "one-broker": part(measured(SPEED, 30, 20))}
    assert section(run, plots).splitlines() == [
        "2 cores.",
        "",
        "1 of 2 rows of which something is asked reach it.",
        "",
        "![Ratios in our favour, and what is asked](plots/ratios.png)",
        "",
        "### Clients, one broker",
        "",
        "`make bench`; 5 rounds; 61 s.",
        "",
        "| what | sparklog | Kafka | ratio in our favour | reach | aim | met |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| consume | 30.0 MB/s | 20.0 MB/s | 1.50 | 1 | 1.5 | yes |",
        "",
        "### Failover",
        "",
        "`make bench`; 5 rounds; 61 s.",
        "",
        "| what | sparklog | Kafka | ratio in our favour | reach | aim | met |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| stall | 4.00 s | 16.00 s | 4.00 | 5 |  | no |",
    ]


def test_a_section_is_replaced_where_it_stands() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_section(page, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    with pytest.raises(AssertionError, match="marks"):
        with_section("without any", "new")
