"""Test the server of the control plane: its errors at startup, the order of its extensions, its lock."""

import concurrent.futures
import importlib
import inspect
import io
import pkgutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from local import control_plane
from local.control_plane import server
from tests.local.control_plane.harness import REPOSITORY


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "local.control_plane", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=180, check=False)


def wrapped_functions(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return the names of the extensions that wrap each function of moto, innermost first; wrap nothing."""
    names: dict[str, list[str]] = {}
    for extension in server._moto_extensions():
        extension_name = extension.__name__.rpartition(".")[2]

        def note(owner: Any, name: str, _function: object, extension_name: str = extension_name) -> None:
            names.setdefault(f"{owner.__name__}.{name}", []).append(extension_name)

        for function in ("wrap", "add"):
            monkeypatch.setattr(extension, function, note, raising=False)
        extension.install()
    return names


def test_of_two_extensions_that_wrap_a_function_the_right_one_is_called_first(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = {name: extensions for name, extensions in wrapped_functions(monkeypatch).items() if len(extensions) > 1}
    assert wrapped == {
        "CloudFormationBackend.create_stack": ["stacks", "template_rules"],
        "CloudFormationBackend.update_stack": ["stack_updates", "template_rules"],
        "CloudFormationBackend.create_change_set": ["change_sets", "template_rules"],
        "FakeAutoScalingGroup._set_launch_configuration": ["template_launches", "group_checks"],
        "FakeAutoScalingGroup.create_from_cloudformation_json": ["lifecycle_hooks", "group_checks"],
        "FakeAutoScalingGroup.replace_autoscaling_group_instances": ["template_launches", "activities"],
        "Instance.terminate": ["template_launches", "elastic_ips"],
        "EC2Backend.run_instances": [
            "capacity",
            "network_interfaces",
            "placement",
            "checks",
            "capacity_reservations",
        ],
    }
    assert wrapped == {
        name: [extension.__name__.rpartition(".")[2] for extension in extensions]
        for name, extensions in server._WRAPPED_IN_ORDER.items()
    }


def installable_modules() -> list[str]:
    """Return the names of the modules of the local AWS that define an ``install``."""
    names = (info.name for info in pkgutil.walk_packages(control_plane.__path__, "local.control_plane."))
    installs = (getattr(importlib.import_module(name), "install", None) for name in names)
    return sorted(install.__module__ for install in installs if inspect.isfunction(install))


def test_every_extension_is_installed_by_exactly_one_list() -> None:
    wrapped = {extension for extensions in server._WRAPPED_IN_ORDER.values() for extension in extensions}
    assert sorted(extension.__name__ for extension in (*wrapped, *server._INDEPENDENT)) == installable_modules()


def test_taken_port_is_one_line_and_exit_code_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--port", str(port))
    assert result.returncode == 1
    assert result.stderr == f"error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_unwritable_request_log_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    result = run("--port", "0", "--request-log", str(tmp_path / "nowhere" / "log"))
    assert result.returncode == 1
    assert result.stderr.startswith("error: cannot write ")


def test_unknown_option_is_exit_code_2() -> None:
    assert run("--prot", "1").returncode == 2


def test_another_version_of_moto_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "version", lambda _name: "5.0.0")
    with pytest.raises(server.ServerStartError, match=r"unsupported moto version 5\.0\.0, must be 5\.2\.5"):
        server.create_server(host="127.0.0.1", port=0, region="us-east-1")


def test_only_one_request_at_a_time_reaches_moto(monkeypatch: pytest.MonkeyPatch) -> None:
    both_inside = threading.Barrier(2)

    def moto(_environ: object, _start_response: object) -> list[bytes]:
        try:
            both_inside.wait(timeout=0.3)
        except threading.BrokenBarrierError:
            return [b"alone"]
        return [b"together"]

    monkeypatch.setattr(server, "DomainDispatcherApplication", lambda _create: moto)
    application = server.Application(None)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = pool.map(
            lambda _: application({"wsgi.input": io.BytesIO(), "REQUEST_METHOD": "POST"}, None), range(2)
        )
    assert [*answers] == [[b"alone"], [b"alone"]]
