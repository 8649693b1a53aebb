"""The Prefect server on this machine: loopback only, with a password, CSRF on, CORS closed, analytics off.

Imports no prefect, so that `gatewright up`, `down` and the gate commands stay quick.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from flows.tokens import VARIABLE
from specs.base import Strict
from specs.errors import GatewrightError, StorageError
from specs.files import write_bytes, write_json
from specs.places import prefect_home

START_TIMEOUT_S = 180.0
STARTS = 3
"""How many ports are tried: another program may take a free one before the server binds it."""


class Server(Strict):
    """A running server: where it answers and which process it is."""

    port: int
    pid: int
    process_start: float

    @property
    def api_url(self) -> str:
        """Base of the REST API."""
        return f"http://127.0.0.1:{self.port}/api"


def _record() -> Path:
    return prefect_home() / "gatewright-server.json"


def password() -> str:
    """`user:secret` for the API, made once and kept in a file that only the user can read."""
    path = prefect_home() / "auth"
    with _home_errors():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"auth.{os.getpid()}")
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write("gatewright:" + secrets.token_urlsafe(24))
            with contextlib.suppress(FileExistsError):  # another process made it first: its password counts
                os.link(part, path)
            part.unlink()
        return path.read_text().strip()


@contextlib.contextmanager
def _home_errors() -> Iterator[None]:
    """Turn a home that cannot be used into a `StorageError` that says how to choose another."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot use {prefect_home()}, where the Prefect server keeps its data: {error.strerror}",
            "free its disk, check its owner, or set GATEWRIGHT_HOME to a folder that you can write",
        ) from error


def settings(port: int) -> dict[str, str]:
    """Environment of the server and of its clients. See the design, gates 12 and 13, for the reasons."""
    return {
        "PREFECT_HOME": str(prefect_home()),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": password(),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_CLIENT_MAX_RETRIES": "2",  # 6 s a call: a server that is gone costs its pictures, not the run
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
        "DO_NOT_TRACK": "1",
    }


def _server_settings(port: int) -> dict[str, str]:
    return {
        **settings(port),
        "PREFECT_SERVER_API_AUTH_STRING": password(),
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port}",
        "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }


def healthy(api_url: str, timeout_s: float = 2.0) -> bool:
    """Whether a Prefect API answers there."""
    return _answers(api_url + "/health", {}, timeout_s)


def admits(api_url: str, timeout_s: float = 2.0) -> bool:
    """Whether the server there takes this home's password; one of another home answers, and refuses it."""
    return _answers(api_url + "/admin/version", credentials(), timeout_s)


def credentials() -> dict[str, str]:
    """The header that carries this home's password."""
    return {"Authorization": "Basic " + base64.b64encode(password().encode()).decode()}


def _answers(url: str, headers: dict[str, str], timeout_s: float) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def running() -> Server | None:
    """The server that `up` started, if its process lives, it answers and it takes the password."""
    try:
        server = Server.model_validate_json(_record().read_bytes())
        if abs(psutil.Process(server.pid).create_time() - server.process_start) > 1:
            return None
    except (OSError, ValueError, psutil.Error):
        return None
    return server if admits(server.api_url, 10.0) else None


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise GatewrightError("no free port on 127.0.0.1", "close a program that listens, or give --port")


def up(port: int = 4200, tick: Callable[[float], None] = lambda seconds: None) -> Server:
    """Start the server in the background unless it runs; returns when it answers.

    Of several that start it for one home at the same time, one does and the others wait for it. `tick` is called with
    the seconds waited. Raises `GatewrightError` when it does not answer in time.
    """
    if server := running():
        return server
    home = prefect_home()
    with _home_errors():
        home.mkdir(parents=True, exist_ok=True)
    with _starting_alone(home, tick):
        if server := running():
            return server
        for _ in range(STARTS):
            if server := _start(_free_port(port), tick):
                return server
            port = 0  # somebody else has it by now
    raise GatewrightError("the Prefect server ended while it started", f"its last words are in {home / 'server.log'}")


@contextlib.contextmanager
def _starting_alone(home: Path, tick: Callable[[float], None]) -> Iterator[None]:
    """Hold the home's start for this process; the system lets go of it when the process ends, however it ends."""
    lock = FileLock(home / "gatewright-server.lock")
    begun = time.monotonic()
    with _home_errors():
        while True:
            try:
                lock.acquire(timeout=0.3)
                break
            except Timeout:
                waited = time.monotonic() - begun
                if waited > START_TIMEOUT_S:
                    raise GatewrightError(
                        f"another process has been starting the Prefect server of {home} for {waited:.0f} s",
                        "end that process, then try again",
                    ) from None
                tick(waited)
    try:
        yield
    finally:
        lock.release()


def _start(port: int, tick: Callable[[float], None]) -> Server | None:
    """A server that answers and takes the password; None when its process ended instead.

    Raises `GatewrightError` when it neither answers nor ends in time.
    """
    home = prefect_home()
    with _home_errors():
        log_file = (home / "server.log").open("ab")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with log_file as log:
        process = _start_in_background(command, _server_settings(port), log.fileno())
    server = Server(port=port, pid=process.pid, process_start=psutil.Process(process.pid).create_time())
    write_json(_record(), server)
    begun = time.monotonic()
    while not admits(server.api_url):
        waited = time.monotonic() - begun
        if process.poll() is not None:
            return None
        if waited > START_TIMEOUT_S:
            raise GatewrightError(
                f"the Prefect server did not start on port {port}", f"its last words are in {home / 'server.log'}"
            )
        tick(waited)
        time.sleep(0.3)
    return server


def _start_in_background(command: list[str], more: dict[str, str], log: int) -> subprocess.Popen[bytes]:
    """A process that outlives this one and that no Ctrl-C of this terminal reaches.

    It has this process's environment and `more`, without what proves a person: nothing that runs on its own may decide.
    """
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | more
    flags: dict[str, object] = {"start_new_session": True}
    if os.name == "nt":
        flags = {"creationflags": 0x00000008 | 0x00000200}  # detached, in a process group of its own
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **flags
    )


def _worker_record() -> Path:
    return prefect_home() / "gatewright-worker.json"


def start_worker(pool: str) -> int:
    """Start a process worker for deployed runs unless one runs; returns its process id."""
    server = up()
    try:
        known = json.loads(_worker_record().read_bytes())
        if abs(psutil.Process(known["pid"]).create_time() - known["process_start"]) < 1:
            return int(known["pid"])
    except (OSError, ValueError, KeyError, psutil.Error):
        pass
    # The launcher restores SIGINT: a worker turns SIGTERM into SIGINT, which a background job inherits as ignored.
    launcher = "import signal,runpy,sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    launcher += "sys.argv=['prefect']+sys.argv[1:]; runpy.run_module('prefect', run_name='__main__')"
    command = [sys.executable, "-c", launcher, "worker", "start", "--pool", pool, "--type", "process"]
    with (prefect_home() / "worker.log").open("ab") as log:
        process = _start_in_background(command, settings(server.port), log.fileno())
    started = psutil.Process(process.pid).create_time()
    write_bytes(_worker_record(), json.dumps({"pid": process.pid, "process_start": started}).encode())
    return process.pid


def down() -> list[str]:
    """Stop the worker and the server that were started here; returns what was stopped."""
    stopped = []
    for name, record in (("worker", _worker_record()), ("server", _record())):
        try:
            known = json.loads(record.read_bytes())
            process = psutil.Process(known["pid"])
            if abs(process.create_time() - known["process_start"]) < 1:
                family = [*process.children(recursive=True), process]
                process.terminate()
                _, alive = psutil.wait_procs(family, timeout=15)
                for straggler in alive:
                    straggler.kill()
                stopped.append(name)
        except (OSError, ValueError, KeyError, psutil.Error):
            pass
        record.unlink(missing_ok=True)
    return stopped
