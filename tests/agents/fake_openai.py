"""An OpenAI-compatible server on loopback that answers from a list; the last answer repeats."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeOpenAI:
    """What was asked, and what is answered next."""

    def __init__(self, answers: Sequence[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.authorization: list[str] = []
        self.url = ""

    def next(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        return self.answers[min(len(self.requests), len(self.answers)) - 1]


def call(arguments: Any, finish: str = "tool_calls") -> dict[str, Any]:
    """An answer by tool call; a text is sent as it is, anything else as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": "Suggestion", "arguments": text}
    message = {"role": "assistant", "content": None}
    message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]  # type: ignore[assignment]
    return {"status": 200, "message": message, "finish_reason": finish}


def prose(text: str) -> dict[str, Any]:
    """An answer in words, without the call."""
    return {"status": 200, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}


def failure(status: int, text: str = "overloaded") -> dict[str, Any]:
    """An HTTP error."""
    return {"status": status, "error": text}


@contextmanager
def fake_openai(*answers: dict[str, Any]) -> Iterator[FakeOpenAI]:
    """Serve until the block ends."""
    state = FakeOpenAI(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.authorization.append(self.headers.get("Authorization", ""))
            answer = state.next(json.loads(body))
            if answer["status"] != 200:
                self._send(answer["status"], {"error": {"message": answer["error"], "type": "server_error"}})
                return
            choice = {"index": 0, "message": answer["message"], "finish_reason": answer["finish_reason"]}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            self._send(
                200,
                {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "fake",
                    "choices": [choice],
                    "usage": usage,
                },
            )

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
