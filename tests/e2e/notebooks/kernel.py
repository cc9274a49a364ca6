"""Run code in a kernel of a Jupyter server, by the messages that its page sends."""

import importlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

TIMEOUT_S: Final = 120
PROTOCOL: Final = "5.4"
"""Version of https://jupyter-client.readthedocs.io/en/stable/messaging.html that the messages follow."""


def call(address: str, path: str, *, token: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return the answer of the server's REST API. Raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{address}{path}", data=data, headers={"Authorization": f"token {token}"})
    with urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def run_cell(address: str, code: str, *, token: str, wheels: Path, patch: pytest.MonkeyPatch) -> str:
    """Start a kernel, run a cell in it, and return what the cell printed."""
    kernel = call(address, "api/kernels", token=token, body={})["id"]
    # A dependency of Jupyter's server, in pure Python, so it can be imported from its wheel.
    [wheel] = wheels.glob("websocket_client-*.whl")
    patch.syspath_prepend(str(wheel))
    websocket = importlib.import_module("websocket")
    url = f"{address.replace('http', 'ws', 1)}api/kernels/{kernel}/channels?token={token}"
    connection = websocket.create_connection(url, timeout=TIMEOUT_S, suppress_origin=True)
    try:
        request = _execute_request(code)
        connection.send(json.dumps(request))
        return _output(connection, request["header"]["msg_id"])
    finally:
        connection.close()


def _execute_request(code: str) -> dict[str, Any]:
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "version": PROTOCOL,
        "username": "",
        "session": uuid.uuid4().hex,
    }
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }


def _output(connection: Any, request_id: str) -> str:
    """Collect what the request prints until the kernel is idle again."""
    printed = ""
    while True:
        message = json.loads(connection.recv())
        kind, content = message["header"]["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != request_id:
            continue
        if kind == "stream":
            printed += content["text"]
        elif kind == "error":
            printed += "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            return printed
