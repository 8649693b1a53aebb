"""Tell Prefect that a decision was made, so that a worker picks a suspended run up. Never decides anything.

Plain HTTP instead of the prefect client, whose import alone takes longer than a decision should.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from base64 import b64encode
from typing import Any

from flows import server
from flows.state import RunState
from specs.errors import GatewrightError


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
        run = _call(running.api_url, "GET", f"/flow_runs/{state.flow_run}")
        if not run.get("deployment_id") or (run.get("state") or {}).get("type") != "PAUSED":
            return False
        answer = _call(running.api_url, "POST", f"/flow_runs/{state.flow_run}/resume", {})
        return bool(answer.get("status") == "ACCEPT")
    except (urllib.error.URLError, OSError, ValueError, GatewrightError):
        return False


def _call(api_url: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    client = str(uuid.uuid4())
    headers = {
        "Authorization": "Basic " + b64encode(server.password().encode()).decode(),
        "Content-Type": "application/json",
    }
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
