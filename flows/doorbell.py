"""Tell Prefect that a decision was made, so that a worker picks a suspended run up. Never decides anything.

Plain HTTP instead of the prefect client, whose import alone takes longer than a decision should.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from functools import partial
from typing import Any

from flows import server
from flows.retrying import persistently
from flows.state import RunState
from specs.errors import GatewrightError

AGAIN_AFTER_S = (0.5, 2.0)
"""How long after one try the next follows."""


def ring(state: RunState) -> bool:
    """Resume the suspended flow run of a deployed run. False when there is nothing to ring or nobody answers.

    The ledger holds the decision either way: `gatewright resume` and the worker's next look both find it.
    """
    if state.flow_run is None:
        return False
    running = server.running()
    if running is None:
        return False
    try:
        return persistently(partial(_rung, running.api_url, state.flow_run), is_busy, AGAIN_AFTER_S)
    except (OSError, ValueError, GatewrightError):
        return False


def _rung(api_url: str, flow_run: str) -> bool:
    """One try: whether Prefect took the suspended run up again. Raises what the connection raises."""
    run = _call(api_url, "GET", f"/flow_runs/{flow_run}")
    if not run.get("deployment_id") or (run.get("state") or {}).get("type") != "PAUSED":
        return False
    answer = _call(api_url, "POST", f"/flow_runs/{flow_run}/resume", {})
    return bool(answer.get("status") == "ACCEPT")


def is_busy(error: Exception) -> bool:
    """Whether a server is there and could not answer now: its database is locked, or it took too long."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500
    return isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)


def _call(api_url: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    client = str(uuid.uuid4())
    headers = {**server.credentials(), "Content-Type": "application/json"}
    if method != "GET":
        token = _request(f"{api_url}/csrf-token?client={client}", "GET", headers, None)["token"]
        headers |= {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": client}
    return _request(api_url + path, method, headers, body)


def _request(url: str, method: str, headers: dict[str, str], body: dict[str, Any] | None) -> dict[str, Any]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        parsed: dict[str, Any] = json.loads(answer.read() or b"{}")
        return parsed
