"""Everything that touches Prefect, its private parts included, in one module (Prefect 3.9).

Our ledger decides; Prefect mirrors. A flow run is entered again by its id from any process; where Prefect has
forgotten it (deleted database, another server), a new flow run takes its place and nothing else changes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from flows import retrying, server
from specs.errors import GatewrightError

WORK_POOL = "gatewright"
DEPLOYMENT = "gatewright-run/project-run"
_TEN_YEARS_S = 10 * 365 * 24 * 3600


class PrefectLost(Exception):
    """The server went away while a run was mirrored there."""


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the server cannot be reached, or is going down; itself or what caused it."""
    import httpx

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PrefectLost | httpx.TransportError):
            return True
        if isinstance(seen, httpx.HTTPStatusError) and seen.response.status_code >= 500:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


AGAIN_AFTER_S = (0.5, 1, 2, 4, 8, 16)
"""How long after one try the next follows, of a call that nobody else will make."""


def persistently(call: Callable[[], None], waits_s: Sequence[float] = AGAIN_AFTER_S) -> None:
    """Make a call again while the server cannot answer it: a busy one, whose database is locked, answers with an error.

    What the last try raises is raised.
    """
    retrying.persistently(call, is_lost, waits_s)


def stop_retrying() -> None:
    """From here on, calls of this process to a server that is gone fail at once, and events for it are dropped.

    Otherwise every event still queued would hold the end of the process for seconds.
    """
    import logging

    from prefect.events.clients import NullEventsClient
    from prefect.events.worker import EventsWorker
    from prefect.settings import get_current_settings

    get_current_settings().client.max_retries = 0
    logging.getLogger("EventsWorker").setLevel(logging.CRITICAL)
    workers: Any = EventsWorker
    for worker in list(workers._instances.values()):
        with contextlib.suppress(queue.Empty):
            while True:
                worker._queue.get_nowait()
                worker._queue.task_done()
    EventsWorker.set_client_override(NullEventsClient)


def connect(tick: Callable[[float], None] = lambda seconds: None) -> str:
    """Make this process a client of a server that answers, and start ours when none does. Returns the API address.

    Must come before the first import of prefect: its settings are read from the environment once.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given and server.healthy(given, 10.0):
        return given
    running = server.up(tick=tick)
    os.environ.update(server.settings(running.port))
    return running.api_url


def attach(flow: Any, parameters: dict[str, Any], known: str | None, name: str) -> tuple[str, bool]:
    """The id of the flow run that mirrors a run: `known` when this server has it, else a new one (True)."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Pending

    with get_client(sync_client=True) as client:
        if known:
            try:
                client.read_flow_run(uuid.UUID(known))
                return known, False
            except ObjectNotFound:
                pass
        run = client.create_flow_run(flow, parameters=parameters, state=Pending(), name=name)
        return str(run.id), True


def execute(flow: Any, flow_run: str, parameters: dict[str, Any]) -> None:
    """Enter a flow run and run its body from the top. Returns also when the body left at a gate."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import Abort, Pause
    from prefect.flow_engine import run_flow
    from prefect.states import Pending

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(uuid.UUID(flow_run))
        if run.state is not None and run.state.is_final():
            client.set_flow_run_state(run.id, Pending(), force=True)
            run = client.read_flow_run(run.id)
    try:
        run_flow(flow, flow_run=run, parameters=parameters, return_type="state")
    except Pause:
        return
    except Abort as error:
        raise GatewrightError(f"Prefect does not let this flow run go on: {error}", "try `gatewright resume`") from None


def current_flow_run() -> tuple[str, bool]:
    """(id of the flow run this code runs in, whether it belongs to a deployment)."""
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise GatewrightError("not inside a flow run")
    return str(context.flow_run.id), context.flow_run.deployment_id is not None


def leave(key: str, message: str, decided: Callable[[], bool] = lambda: False) -> None:
    """Mark the flow run as paused and leave the body: nothing is held while a person thinks. Does not return.

    A deployed run is suspended, so that a worker picks it up after the decision; a foreground one is marked
    paused and entered again by `gatewright resume`. A decision that came before the run was suspended found nobody
    to tell: `decided` is asked once more afterwards, and the run then resumes itself.
    """
    from prefect import suspend_flow_run
    from prefect.client.orchestration import get_client
    from prefect.exceptions import Abort, Pause
    from prefect.states import Paused
    from prefect.utilities.engine import propose_state_sync

    flow_run, deployed = current_flow_run()
    unique = f"{key}-{uuid.uuid4().hex[:12]}"
    if deployed:
        try:  # asked twice, a server that had suspended it already answers with the state it has
            persistently(lambda: suspend_flow_run(timeout=None, key=unique))
        except Pause:
            if decided():

                def resume() -> None:
                    with get_client(sync_client=True) as client:
                        client.resume_flow_run(uuid.UUID(flow_run))

                persistently(resume)
            raise
    state: Any = Paused(timeout_seconds=_TEN_YEARS_S, reschedule=False, pause_key=unique, message=message)

    def pause() -> None:
        nonlocal state
        with get_client(sync_client=True) as client:
            state = propose_state_sync(client, state, flow_run_id=uuid.UUID(flow_run))

    with contextlib.suppress(Abort):
        persistently(pause)
    raise Pause(state=state)


def publish_markdown(key: str, markdown: str, description: str) -> None:
    """A Markdown artifact on the flow run's page; keys are lower-case letters, digits and dashes."""
    from prefect.artifacts import create_markdown_artifact

    create_markdown_artifact(markdown=markdown, key=key.replace("_", "-"), description=description)


def failed(message: str) -> Any:
    """A Failed state to return from a flow or task: marks it without a traceback in anybody's log."""
    from prefect.states import Failed

    return Failed(message=message)


def cancelled(message: str) -> Any:
    """A Cancelled state to return from a flow."""
    from prefect.states import Cancelled

    return Cancelled(message=message)


def deploy(entrypoint: str, source: str) -> str:
    """Register the flow with a process work pool (made when missing). Returns the deployment's name."""
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client, contextlib.suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))
    with contextlib.redirect_stdout(sys.stderr):  # Prefect draws a table, and stdout is for our answer alone
        remote: Any = flow.from_source(source=source, entrypoint=entrypoint)
        remote.deploy(
            name=DEPLOYMENT.split("/")[1],
            work_pool_name=WORK_POOL,
            build=False,
            push=False,
            print_next_steps=False,
            ignore_warnings=True,
        )
    return DEPLOYMENT


def submit(parameters: dict[str, Any], name: str) -> str:
    """Start a deployed flow run without waiting for it; returns its id."""
    from prefect.deployments import run_deployment

    run: Any = run_deployment(DEPLOYMENT, parameters=parameters, timeout=0, flow_run_name=name)
    return str(run.id)
