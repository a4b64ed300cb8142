from sparklog.driver.launcher.racks import Racks
from sparklog.driver.launcher.slot_allocator import SlotAllocator, choose_executor
from sparklog.driver.launcher.spark_internals import ExecutorSlots
from tests.unit.driver.launcher.launcher_fakes import executor

A1, A2, B1, C1 = (executor("1", "a"), executor("2", "a"), executor("3", "b"), executor("4", "c"))


def choose(
    used: dict[str, int], host: str | None = None, excluded: frozenset[str] = frozenset()
) -> ExecutorSlots | None:
    return choose_executor([A1, A2, B1], used, host, excluded)


def test_the_last_host_comes_first() -> None:
    assert choose({}, host="b") == B1


def test_on_one_host_the_emptiest_executor_comes_first() -> None:
    assert choose({"1": 1}, host="a") == A2


def test_without_a_host_brokers_spread_over_hosts_and_there_over_executors() -> None:
    assert [choose({}), choose({"1": 1}), choose({"1": 1, "3": 1})] == [A1, B1, A2]


def test_a_full_host_does_not_stop_the_others_from_filling() -> None:
    assert choose({"1": 1, "2": 1, "3": 2}) == A1


def test_of_equally_used_executors_the_larger_one_comes_first() -> None:
    large = executor("9", "c", slots=8)
    assert choose_executor([A1, large], {}, None) == large


def test_a_full_host_gives_way_to_another() -> None:
    assert choose({"3": 2}, host="b") == A1


def test_refusing_executors_are_left_out() -> None:
    assert choose({}, host="b", excluded=frozenset({"3", "1"})) == A2


def test_without_a_free_slot_there_is_no_choice() -> None:
    assert choose({"1": 2, "2": 2, "3": 2}) is None


def test_racks_fill_alike_however_many_hosts_they_have() -> None:
    racks = Racks(by_host={"a": "left", "b": "left", "c": "right"})
    slot_allocator, executors = SlotAllocator(racks), [A1, A2, B1, C1]
    taken = [slot_allocator.take(executors, None, frozenset()) for _ in range(6)]
    assert taken == [A1, C1, B1, C1, A2, B1]  # the right one is full then


def test_who_loses_its_host_stays_in_its_rack() -> None:
    racks = Racks(by_host={"a": "left", "b": "left", "c": "right"})
    assert choose_executor([B1, C1], {"3": 1}, "a", racks=racks) == B1


def test_the_placer_counts_what_was_taken_and_given_back() -> None:
    slot_allocator = SlotAllocator()
    taken = [slot_allocator.take([A1, B1], None, frozenset()) for _ in range(5)]
    assert taken == [A1, B1, A1, B1, None]
    slot_allocator.release(B1)
    assert slot_allocator.take([A1, B1], None, frozenset()) == B1
