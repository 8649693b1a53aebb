"""The driver of NVIDIA's cards is asked where it is there, and let go of whatever it answers."""

import sys
from types import SimpleNamespace

import pytest

from tasks.nvml import ask_driver, first_visible


class Driver(SimpleNamespace):
    """A management library that answers as the real one does: its errors are of one class."""

    NVMLError = type("NVMLError", (Exception,), {})

    def __init__(self, there=True):
        super().__init__(there=there, opened=0)

    def nvmlInit(self):
        if not self.there:
            raise self.NVMLError("driver not loaded")
        self.opened += 1

    def nvmlShutdown(self):
        self.opened -= 1

    def nvmlDeviceGetHandleByIndex(self, number):
        return f"number {number}"

    def nvmlDeviceGetHandleByUUID(self, name):
        return f"identity {name}"


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def test_the_driver_is_let_go_of_after_an_answer_and_after_a_fault(driver):
    assert ask_driver(lambda nvml: nvml.opened) == 1

    def refuses(nvml):
        raise nvml.NVMLError("no permission")

    assert ask_driver(refuses) is None
    with pytest.raises(ZeroDivisionError):
        ask_driver(lambda nvml: 1 / 0)
    assert driver.opened == 0


def test_where_there_is_no_driver_or_no_library_nothing_is_known(driver, monkeypatch):
    driver.there = False
    assert ask_driver(lambda nvml: "asked") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert ask_driver(lambda nvml: "asked") is None


@pytest.mark.parametrize(
    ("visible", "handle"),
    [(None, "number 0"), ("2,3", "number 2"), ("GPU-5f1c, 1", "identity GPU-5f1c"), ("", "number 0")],
)
def test_the_card_that_is_looked_at_is_the_one_that_cuda_calls_the_first(driver, monkeypatch, visible, handle):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert ask_driver(first_visible) == handle
