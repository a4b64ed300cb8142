import signal
import threading

import pytest

from sparklog.driver.sigint import SigintGuard


def test_ctrl_c_cancels_queries_on_another_thread_and_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    threads: list[threading.Thread] = []
    guard = SigintGuard(lambda: threads.append(threading.current_thread()))
    guard.install()
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        guard.restore()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert signal.getsignal(signal.SIGINT) == before


def test_a_handler_that_somebody_set_later_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    guard = SigintGuard(lambda: None)
    guard.install()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        guard.restore()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_of_the_main_thread_nothing_is_touched() -> None:
    before = signal.getsignal(signal.SIGINT)
    guard = SigintGuard(lambda: None)
    thread = threading.Thread(target=guard.install)
    thread.start()
    thread.join()
    guard.restore()
    assert signal.getsignal(signal.SIGINT) == before
