"""Workers end well, are stopped with everything saved, or die with a sentence a person understands."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from specs.errors import ModelError, OutOfMemory, Stopped, WorkerError
from specs.stages import Quiet
from tasks.interrupts import StopRequest, stop_on_signals
from tasks.out_of_memory import asked_bytes, is_out_of_memory, kernel_kills
from tasks.worker_ends import WorkerDied, died
from tasks.workers import run_worker, worker_environment

LIGHT = "tests.support.light_worker"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


class Heard(Quiet):
    """A progress that remembers."""

    def __init__(self) -> None:
        self.words: list[tuple] = []

    def start(self, what: str, total: int | None = None) -> None:
        self.words.append((what, total))

    def advance(self, units: int = 1, note: str = "") -> None:
        self.words.append((units, note))

    def say(self, text: str) -> None:
        self.words.append((text,))


def job_of(folder: Path, do: str, **more: object) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps({"do": do, **more}))
    return path


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_progress_events_and_result_arrive_and_prints_do_not_disturb(tmp_path):
    heard, events = Heard(), []
    result = run_worker(LIGHT, job_of(tmp_path, "well"), tmp_path / "log", heard, events.append, threads=3)
    assert heard.words == [("work", 2), (2, "note")]
    assert events == [{"seen": 1}]
    assert result["environment"]["OMP_NUM_THREADS"] == "3"
    assert result["environment"]["OMP_WAIT_POLICY"] == "passive"
    assert "a library prints" in (tmp_path / "log").read_text()


def test_no_secret_reaches_a_worker():
    ours = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "PREFECT_SERVER_API_AUTH_STRING": "admin:secret",
        "PREFECT_API_URL": "http://x",
        "OPENAI_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "DATABASE_URL": "postgresql://me:secret@host/db",
    }
    theirs = worker_environment(2, ours)
    assert "secret" not in " ".join(theirs.values())
    assert not any(name.startswith("PREFECT") for name in theirs)
    assert (theirs["PATH"], theirs["LC_ALL"], theirs["HF_HUB_OFFLINE"]) == ("/bin", "C", "1")


def _glibc() -> tuple[int, ...]:
    kind, found = platform.libc_ver()
    return tuple(int(part) for part in found.split(".")) if kind == "glibc" else (0,)


@pytest.mark.skipif(_glibc() < (2, 33), reason="asks glibc for the size of its heap")
def test_the_heap_of_a_worker_shrinks_when_the_tensors_of_a_step_are_freed():
    """Small blocks that glibc caches would hold it at its highest, and later steps would come on top."""

    def heap(environment: dict[str, str]) -> list[int]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.heap"], env=environment, capture_output=True, text=True, check=True
        )
        return [int(word) for word in done.stdout.split()]

    ours = worker_environment(1)
    grown, kept = heap(ours)
    assert grown > 100e6
    assert kept < 0.02 * grown
    assert heap({k: v for k, v in ours.items() if k != "GLIBC_TUNABLES"})[1] > 0.9 * grown


def test_an_error_for_the_user_arrives_as_its_own_class(tmp_path):
    with pytest.raises(ModelError) as caught:
        run_worker(LIGHT, job_of(tmp_path, "user_error"), tmp_path / "log", Quiet())
    assert (caught.value.message, caught.value.hint) == ("no weights", "download them")


@pytest.mark.parametrize(("do", "words"), [("bug", "KeyError: 'surprise'"), ("memory", "out of memory")])
def test_other_errors_are_a_sentence_and_their_traceback_is_in_the_log(do, words, tmp_path):
    with pytest.raises(WorkerError) as caught:
        run_worker(LIGHT, job_of(tmp_path, do), tmp_path / "log", Quiet())
    assert words in caught.value.message
    assert "Traceback" not in caught.value.message + caught.value.hint
    assert "Traceback" in (tmp_path / "log").read_text()


@pytest.mark.skipif(kernel_kills() is None, reason="this kernel does not count the processes it kills for memory")
def test_a_worker_killed_by_somebody_is_not_taken_for_one_without_memory(tmp_path):
    with pytest.raises(WorkerDied) as caught:
        run_worker(LIGHT, job_of(tmp_path, "killed"), tmp_path / "log", Quiet())
    assert caught.value.signal_number == signal.SIGKILL
    assert "killed (SIGKILL) by somebody" in caught.value.message
    assert "loading shard 3" in caught.value.hint


def test_where_the_kernel_does_not_count_a_killed_worker_is_most_likely_out_of_memory(tmp_path):
    error = died("the worker", -signal.SIGKILL, tmp_path / "log", kills=None)
    assert isinstance(error, WorkerDied)
    assert "killed by the system, most likely out of memory" in error.message


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("memory allocation of 8388608 bytes failed", OutOfMemory),
        ("terminate called after throwing an instance of 'std::bad_alloc'", OutOfMemory),
        ("assertion failed: index < len", WorkerDied),
    ],
)
def test_a_library_that_aborts_for_want_of_memory_is_told_from_one_that_aborts(tmp_path, words, kind):
    (tmp_path / "log").write_text(f"loading\n{words}\n")
    assert type(died("the worker", -signal.SIGABRT, tmp_path / "log", kills=0)) is kind


def test_a_worker_that_the_kernel_killed_for_memory_is_out_of_memory(tmp_path, memory_group):
    """A real kill: the worker joins a control group of 64 MiB and fills it."""
    job = job_of(tmp_path, "fill", group=str(memory_group), bytes=256 * 2**20)
    with pytest.raises(OutOfMemory) as caught:
        run_worker(LIGHT, job, tmp_path / "log", Quiet())
    assert "the kernel killed the worker of" in caught.value.message
    assert caught.value.facts["kernel_kills"] >= 1


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group of 64 MiB; only where this system lets us make one."""
    group = Path("/sys/fs/cgroup/memory") / f"gatewright-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 * 2**20))
        with contextlib.suppress(OSError):  # without swap accounting there is no such file
            (group / "memory.memsw.limit_in_bytes").write_text(str(64 * 2**20))
    except OSError:
        pytest.skip("no control group of memory can be made here")
    yield group
    group.rmdir()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_out_of_memory_is_known_in_the_words_of_every_library(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", [KeyError("memory"), RuntimeError("the model needs memory_efficient attention")])
def test_other_errors_are_not_taken_for_it(error):
    assert not is_out_of_memory(error)


def test_what_was_asked_for_is_read_in_bytes():
    assert asked_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has") == 2684354560
    assert asked_bytes("DefaultCPUAllocator: can't allocate memory: you tried to allocate 52428800 bytes.") == 52428800
    assert asked_bytes("out of memory") is None


def test_a_stop_request_lets_the_worker_save_and_raises_stopped(tmp_path):
    stop = StopRequest()
    with pytest.raises(Stopped, match="all saved"):
        run_worker(
            LIGHT, job_of(tmp_path, "wait"), tmp_path / "log", Quiet(), lambda _: stop.request("SIGTERM"), stop=stop
        )
    assert (tmp_path / "saved").read_text() == "stop requested"


def test_a_parent_that_fails_leaves_no_worker(tmp_path):
    def fail(event: dict) -> None:
        raise RuntimeError("the parent has a bug")

    with pytest.raises(RuntimeError, match="the parent has a bug"):
        run_worker(LIGHT, job_of(tmp_path, "hang"), tmp_path / "log", Quiet(), fail)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_worker_ends_when_its_parent_is_killed(tmp_path):
    job = job_of(tmp_path, "hang")
    program = (
        "from pathlib import Path; from specs.stages import Quiet; from tasks.workers import run_worker; "
        f"run_worker({LIGHT!r}, Path({str(job)!r}), Path({str(tmp_path / 'log')!r}), Quiet())"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], env=worker_environment(1))
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    worker = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    wait_for(lambda: gone(worker))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_signals_become_one_request_and_handlers_are_put_back(name, request):
    before = signal.SIG_DFL if name != "SIGINT" else signal.default_int_handler
    request.addfinalizer(functools.partial(signal.signal, signal.Signals[name], signal.getsignal(signal.Signals[name])))
    signal.signal(signal.Signals[name], before)  # the suite itself may run under nohup
    stop, said = StopRequest(), []
    with stop_on_signals(stop, said.append):
        signal.raise_signal(signal.Signals[name])
        signal.raise_signal(signal.SIGINT)  # a second Ctrl-C raises nothing
    assert (stop.requested(), stop.reason, stop.repeats) == (True, name, 1)
    assert "everything is saved" in said[0]
    assert "nothing is cut short" in said[1]
    assert signal.getsignal(signal.Signals[name]) == before


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopRequest()
        with stop_on_signals(stop):
            signal.raise_signal(signal.SIGHUP)
        assert not stop.requested()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


PAUSED = """
import sys, time
from tasks.interrupts import stop_on_signals
def say(text):
    print(text, flush=True)
with stop_on_signals(say=say) as stop:
    print("ready", flush=True)
    while not stop.requested():
        time.sleep(0.01)
print("stopped", stop.reason, flush=True)
"""


def test_ctrl_z_warns_that_the_device_stays_occupied_and_pauses_when_it_is_pressed_again():
    # a group of its own, as a shell gives it: the system does not pause a group that no shell looks after
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSED],
        stdout=subprocess.PIPE,
        text=True,
        env=worker_environment(1),
        process_group=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTSTP)
    said = process.stdout.readline()
    assert "keeps the memory of its device" in said
    assert "Ctrl-C saves and stops" in said
    assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED
    process.send_signal(signal.SIGTSTP)
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0].endswith("stopped SIGTERM\n")


def test_a_stop_while_loading_ends_the_worker_inside_the_call_that_loads(tmp_path):
    stop = StopRequest()
    with pytest.raises(Stopped, match="nothing is lost"):
        run_worker(
            LIGHT, job_of(tmp_path, "load"), tmp_path / "log", Quiet(), lambda _: stop.request("SIGUSR1"), stop=stop
        )
    assert not (tmp_path / "loaded").exists()
    assert gone(int((tmp_path / "pid").read_text()))


def test_outside_the_main_thread_the_block_runs_without_handlers():
    ran = []

    def body() -> None:
        with stop_on_signals(StopRequest()):
            ran.append(True)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert ran == [True]
