#!/usr/bin/python3
"""Stand in for the SSM agent of the Deep Learning AMIs: hold a channel to AWS, and carry sessions to local ports.

It connects to AWS only, never listens, and reaches sshd from inside the node: a session needs no open port. Denied, it
waits longer and longer, as AWS's does. Requests are not really signed: the local AWS reads the key's name alone.
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
from typing import Any

METADATA = "http://169.254.169.254/latest"
LONGEST_DELAY_S = 300.0
PING_S = 5.0


def read(url: str, *, headers: dict[str, str], method: str = "GET", data: bytes | None = None) -> str:
    request = urllib.request.Request(url, headers=headers, method=method, data=data)  # noqa: S310  (of the local AWS)
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  (see above)
        return str(answer.read().decode())


class Agent:
    """Act for this instance, with the credentials of its role."""

    def __init__(self) -> None:
        self.endpoint = os.environ["AWS_ENDPOINT_URL"]
        self.instance_id, self.region = self.metadata("instance-id"), self.metadata("placement/region")
        self.role = self.metadata("iam/security-credentials/").strip()

    def metadata(self, path: str) -> str:
        """Read with a token of its own, because the agent outlives each token."""
        token = read(f"{METADATA}/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
        return read(f"{METADATA}/meta-data/{path}", headers={"X-aws-ec2-metadata-token": token})

    def call(self, service: str, path: str, *, method: str, data: bytes | None = None, target: str = "") -> Any:
        keys = json.loads(self.metadata(f"iam/security-credentials/{self.role}"))
        scope = f"{keys['AccessKeyId']}/{time.strftime('%Y%m%d', time.gmtime())}/{self.region}/{service}/aws4_request"
        headers = {
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=none",
            "X-Amz-Security-Token": keys["Token"],
            "User-Agent": "amazon-ssm-agent app/ssm-agent",
        }
        if target:
            headers |= {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
        return json.loads(read(f"{self.endpoint}{path}", headers=headers, method=method, data=data))

    def open_channel(self, path: str) -> socket.socket:
        self.call("ssmmessages", path, method="POST", data=b"{}")
        opened = self.call("ssmmessages", path, method="GET")
        host = urllib.parse.urlsplit(self.endpoint).hostname
        connection = socket.create_connection((host, opened["Port"]), timeout=10)
        connection.sendall(opened["Ticket"].encode() + b"\n")
        return connection

    def serve(self) -> None:
        """Hold the control channel; return when it ends."""
        information = {"InstanceId": self.instance_id, "AgentVersion": "3.3.4793.0", "PlatformType": "Linux"}
        body = json.dumps(information).encode()
        self.call("ssm", "/", method="POST", data=body, target="AmazonSSM.UpdateInstanceInformation")
        with self.open_channel(f"/v1/control-channel/{self.instance_id}") as control:
            control.settimeout(None)
            threading.Thread(target=ping, args=(control,), daemon=True).start()
            for line in control.makefile():
                session_id, port = line.split()
                threading.Thread(target=self.carry, args=(session_id, int(port)), daemon=True).start()

    def carry(self, session_id: str, port: int) -> None:
        with suppress(OSError), self.open_channel(f"/v1/data-channel/{session_id}") as channel:
            channel.settimeout(None)
            with socket.create_connection(("127.0.0.1", port), timeout=10) as local:
                local.settimeout(None)
                back = threading.Thread(target=copy, args=(local, channel), daemon=True)
                back.start()
                copy(channel, local)
                back.join()


def ping(control: socket.socket) -> None:
    with suppress(OSError):
        while True:
            time.sleep(PING_S)
            control.sendall(b".")


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def main() -> None:
    delay = 2.0
    while True:
        try:
            Agent().serve()
            delay = 2.0
        except (OSError, ValueError, KeyError) as error:  # no role yet, no permission, no network
            print(f"{error}; again in {delay:.0f} s", file=sys.stderr, flush=True)
            time.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY_S)


if __name__ == "__main__":
    main()
