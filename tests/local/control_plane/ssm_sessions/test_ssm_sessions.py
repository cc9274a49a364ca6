"""Test sessions: who may start one, whose agent is asked, and that bytes arrive; over the API and real connections."""

import itertools
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.ssm_sessions.gateway import Gateway, Session
from tests.local.control_plane.harness import REGION, Aws, Role, policy, user_with_policy
from tests.waiting import wait_until

ACCOUNT = "123456789012"
PLUGIN = Path(__file__).parents[4] / "local/bin/session-manager-plugin"
DOCUMENT = "AWS-StartSSHSession"
AGENT = policy(
    {"Action": "ssm:UpdateInstanceInformation", "Resource": f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/*"},
    {
        "Action": [f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")],
        "Resource": "*",
    },
)
CHECKED = {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}


def user_policy(cluster: str) -> dict[str, Any]:
    return policy(
        {
            "Action": "ssm:StartSession",
            "Resource": f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/*",
            "Condition": {"StringEquals": {"ssm:resourceTag/deeplearning:cluster": cluster}, **CHECKED},
        },
        {
            "Action": "ssm:StartSession",
            "Resource": f"arn:aws:ssm:{REGION}::document/{DOCUMENT}",
            "Condition": CHECKED,
        },
        {
            "Action": ["ssm:TerminateSession", "ssmmessages:OpenDataChannel"],
            "Resource": f"arn:aws:ssm:{REGION}:{ACCOUNT}:session/${{aws:userid}}-*",
        },
    )


@pytest.fixture
def instance_id(aws: Aws) -> Iterator[str]:
    ec2 = aws.client("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "deeplearning:cluster", "Value": "demo"}]}]
    made = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, InstanceType="c5.large", TagSpecifications=tags)
    yield str(made["Instances"][0]["InstanceId"])
    ec2.terminate_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])


@pytest.fixture
def user(aws: Aws) -> Iterator[Callable[[dict[str, Any]], dict[str, str]]]:
    """Return a function that creates a user with a policy and returns the keys."""
    numbers = itertools.count()
    with ExitStack() as users:
        yield lambda document: users.enter_context(user_with_policy(aws, f"user-{next(numbers)}", document))


def call_channel(aws: Aws, key: str, path: str, *, method: str = "GET", token: str = "") -> tuple[int, dict[str, Any]]:
    """Call the message gateway like the agent and the plugin."""
    authorization = f"AWS4-HMAC-SHA256 Credential={key}/20260101/{REGION}/ssmmessages/aws4_request, Signature=none"
    headers = {"Authorization": authorization, "X-Session-Token": token}
    request = urllib.request.Request(f"{aws.url}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        body = error.read()
        return error.code, json.loads(body) if body.startswith(b"{") else {"text": body.decode()}


@pytest.fixture
def control(aws: Aws, instance_id: str) -> Iterator[tuple[str, socket.socket]]:
    """Connect an instance's agent; return its key and its control channel."""
    role = Role.make(aws, "of-agents", AGENT)
    key = role.session(instance_id)["aws_access_key_id"]
    status, opened = call_channel(aws, key, f"/v1/control-channel/{instance_id}")
    assert status == 200
    with closing(socket.create_connection(("127.0.0.1", opened["Port"]), timeout=60)) as connection:
        connection.sendall(opened["Ticket"].encode() + b"\n")
        yield key, connection
    role.end()


def start(aws: Aws, keys: dict[str, str], instance_id: str, **other: Any) -> dict[str, Any]:
    asked = {"DocumentName": DOCUMENT, "Parameters": {"portNumber": ["22"]}, **other}
    given = {name: value for name, value in asked.items() if value is not None}
    return dict(aws.client("ssm", **keys).start_session(Target=instance_id, **given))


def start_when_connected(aws: Aws, keys: dict[str, str], instance_id: str) -> dict[str, Any]:
    sessions: list[dict[str, Any]] = []

    def starts() -> bool:
        with suppress(aws.client("ssm", **keys).exceptions.TargetNotConnected):
            sessions.append(start(aws, keys, instance_id))
        return bool(sessions)

    wait_until(starts, "the agent to be connected", timeout_s=60)
    return sessions[0]


def test_instance_without_agent_is_not_connected(aws: Aws, instance_id: str) -> None:
    with pytest.raises(ClientError, match=f"TargetNotConnected.*{instance_id} is not connected"):
        start(aws, {}, instance_id)


@pytest.mark.parametrize(
    ("cluster", "other", "named"),
    [
        ("another", {}, r":instance/i-"),
        ("demo", {"DocumentName": "AWS-StartPortForwardingSession"}, "::document/AWS-StartPortForwardingSession"),
        ("demo", {"DocumentName": None, "Parameters": None}, r":instance/i-"),
    ],
    ids=["tag", "document", "root shell"],
)
def test_session_that_the_users_policy_does_not_allow_is_refused(
    aws: Aws, instance_id: str, user: Any, cluster: str, other: dict[str, Any], named: str
) -> None:
    with pytest.raises(ClientError, match=f"not authorized to perform: ssm:StartSession on resource: arn:.*{named}"):
        start(aws, user(user_policy(cluster)), instance_id, **other)


def test_session_carries_bytes_both_ways(
    aws: Aws, instance_id: str, user: Any, control: tuple[str, socket.socket]
) -> None:
    agent_key, channel = control
    keys = user(user_policy("demo"))
    session = start_when_connected(aws, keys, instance_id)
    plugin = subprocess.Popen(
        [PLUGIN, "AWS_SSM_START_SESSION_RESPONSE", REGION, "StartSession", "", "{}", aws.url],
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "AWS_ACCESS_KEY_ID": keys["aws_access_key_id"],
            "AWS_SSM_START_SESSION_RESPONSE": json.dumps(session, default=str),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with plugin:
        assert plugin.stdin
        assert plugin.stdout
        session_id, port = channel.makefile().readline().split()
        assert (session_id, port) == (session["SessionId"], "22")
        announced = [plugin.stdout.readline() for _ in range(2)]
        assert announced == [b"\n", f"Starting session with SessionId: {session_id}\n".encode()]
        _, opened = call_channel(aws, agent_key, f"/v1/data-channel/{session_id}")
        with closing(socket.create_connection(("127.0.0.1", opened["Port"]), timeout=60)) as data:
            data.sendall(opened["Ticket"].encode() + b"\nSSH-2.0-node\r\n")
            assert plugin.stdout.readline() == b"SSH-2.0-node\r\n"
            plugin.stdin.write(b"SSH-2.0-user\r\n")
            plugin.stdin.flush()
            assert data.makefile("rb").readline() == b"SSH-2.0-user\r\n"
        plugin.stdin.close()
        assert plugin.wait(60) == 0


def test_session_of_another_client_is_refused(
    aws: Aws, instance_id: str, user: Any, control: tuple[str, socket.socket]
) -> None:
    keys, stranger = user(user_policy("demo")), user(user_policy("demo"))
    session = start_when_connected(aws, keys, instance_id)
    path = f"/v1/data-channel/{session['SessionId']}"
    status, output = call_channel(aws, stranger["aws_access_key_id"], path, token=session["TokenValue"])
    assert (status, "ssmmessages:OpenDataChannel" in output["message"]) == (403, True)
    status, output = call_channel(aws, keys["aws_access_key_id"], path, token="made up")
    assert (status, "not the token" in output["message"]) == (403, True)
    with pytest.raises(ClientError, match="not authorized to perform: ssm:TerminateSession"):
        aws.client("ssm", **stranger).terminate_session(SessionId=session["SessionId"])
    aws.client("ssm", **keys).terminate_session(SessionId=session["SessionId"])
    assert call_channel(aws, keys["aws_access_key_id"], path, token=session["TokenValue"])[0] == 403
    assert control


def test_channel_of_another_instance_is_refused_to_an_agent(aws: Aws, instance_id: str) -> None:
    role = Role.make(aws, "of-thieves", AGENT)
    key = role.session("i-0000000000000000f")["aws_access_key_id"]
    status, output = call_channel(aws, key, f"/v1/control-channel/{instance_id}")
    assert (status, output["message"]) == (403, f"the channel of {instance_id} is not i-0000000000000000f's")
    role.allow(policy({"Action": "s3:GetObject", "Resource": "*"}))
    status, output = call_channel(aws, key, "/v1/control-channel/i-0000000000000000f", method="POST")
    assert (status, "ssmmessages:CreateControlChannel" in output["message"]) == (403, True)
    role.end()


def test_disconnected_agent_is_no_longer_listed() -> None:
    gateway = Gateway()
    gateway.listen("127.0.0.1")
    with closing(socket.create_connection(("127.0.0.1", gateway.port), timeout=60)) as agent:
        agent.sendall(gateway.ticket("control", "i-1").encode() + b"\n")
        wait_until(lambda: gateway.is_connected("i-1"), "the agent to be connected", timeout_s=60)
    wait_until(lambda: not gateway.is_connected("i-1"), "the agent to be gone", timeout_s=60)
    gateway.sessions["s"] = Session(session_id="s", instance_id="i-1", port=22)
    with closing(socket.create_connection(("127.0.0.1", gateway.port), timeout=60)) as client:
        client.sendall(gateway.ticket("client", "s").encode() + b"\n")
        assert client.recv(1) == b""
