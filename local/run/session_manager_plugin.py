"""Carry a session from standard input and output to the local AWS's gateway, in place of AWS's session-manager-plugin.

It takes the arguments of the real one (response or the variable that contains it, region, StartSession, profile,
request, endpoint) and opens the session's channel as the caller, whose key is in the environment, so that the local AWS
checks the caller's policy again. Standard library only, because each ssh starts it.
"""

import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from typing import Any, NoReturn

VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
ARGUMENTS = 7
CONNECT_TIMEOUT_S = 10
CHUNK = 1 << 16


def fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(1)


def open_channel(response: dict[str, str], region: str) -> socket.socket:
    """Open the data channel of a session."""
    url = urllib.parse.urlsplit(response["StreamUrl"])
    scope = f"{os.environ.get('AWS_ACCESS_KEY_ID', '')}/{time.strftime('%Y%m%d', time.gmtime())}/{region}/ssmmessages"
    headers = {
        # The local AWS reads only the name of the key.
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}/aws4_request, SignedHeaders=host, Signature=none",
        "X-Session-Token": response["TokenValue"],
    }
    request = urllib.request.Request(f"http://{url.netloc}{url.path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=CONNECT_TIMEOUT_S) as answer:  # noqa: S310  (of our own server)
            opened: dict[str, Any] = json.load(answer)
        connection = socket.create_connection((url.hostname or "", opened["Port"]), timeout=CONNECT_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        fail(f"Cannot perform start session: {error.read().decode(errors='replace')[:500]}")
    except OSError as error:
        fail(f"Cannot perform start session: {error}")
    connection.settimeout(None)
    connection.sendall(opened["Ticket"].encode() + b"\n")
    return connection


def send_input(connection: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, CHUNK):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def main(arguments: list[str]) -> int:
    if len(arguments) != ARGUMENTS or arguments[3] != "StartSession":
        fail(f"unexpected arguments: {arguments[1:]}")
    argument = arguments[1]
    response = json.loads(os.environ[argument] if argument == VARIABLE else argument)
    # Like the real one, before it has connected.
    os.write(1, f"\nStarting session with SessionId: {response['SessionId']}\n".encode())
    with open_channel(response, arguments[2]) as connection:
        threading.Thread(target=send_input, args=(connection,), daemon=True).start()
        with suppress(OSError):
            while data := connection.recv(CHUNK):
                view = memoryview(data)
                while view:
                    view = view[os.write(1, view) :]
    return 0


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stdout.flush()
    os._exit(code)  # the thread may still be waiting for input
