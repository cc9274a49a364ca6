"""Test the user's own environment in the template: one object for nodes to read, with its hash in their user data."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.software import SetupSettings
from tests.stacks.template_parts import Template, actions, resources, statements

Synthesize = Callable[..., Template]
SCRIPT = "#!/bin/bash\napt-get install -y ffmpeg\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the directory of cdk.json, like the CDK."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.sh").write_text(SCRIPT)
    (tmp_path / "needs.txt").write_text("# for the model\neinops==0.8.1\nhttps://example.com/x.whl\n")
    return tmp_path


def node_configurations(template: Template) -> list[dict[str, Any]]:
    """Return the configurations in the user data, by node type."""
    found = []
    for group in resources(template, "AWS::EC2::LaunchTemplate"):
        parts = group["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]["Fn::Join"][1]
        text = "".join(part if isinstance(part, str) else str(part.get("Fn::Sub", "TOKEN")) for part in parts)
        found.append(json.loads(text.partition("<<'EOF'\n")[2].partition("\nEOF\n")[0]))
    return found


def archives(template: Template, role: str) -> list[str]:
    """Return the objects that a role may read, except those of the cluster's bucket."""
    [statement] = [statement for statement in statements(template, role) if actions(statement) == ["s3:GetObject"]]
    on = statement["Resource"]
    return [arn["Fn::Join"][1][-1].strip("/") for arn in (on if isinstance(on, list) else [on])]


@pytest.mark.usefixtures("project")
def test_nodes_receive_the_hash_and_may_read_one_object(synthesize: Synthesize) -> None:
    template = synthesize(worker_count=1, setup="setup.sh", requirements="needs.txt", setup_timeout="20m")
    for config, role in zip(node_configurations(template), ("RolesMaster", "RolesWorker"), strict=True):
        assert (config["setup_timeout_s"], config["bootstrap_timeout_s"]) == (1200, 1200 + 1200)
        assert re.fullmatch(
            r"s3://cdk-hnb659fds-assets-\$\{AWS::AccountId\}-\$\{AWS::Region\}/[0-9a-f]{64}\.zip", config["setup"]
        )
        assert config["setup"].endswith(f"/{config['setup_sha256']}.zip")
        assert len(archives(template, role)) == 2
        assert f"{config['setup_sha256']}.zip" in archives(template, role)
    for group in resources(template, "AWS::AutoScaling::AutoScalingGroup"):
        assert group["CreationPolicy"]["ResourceSignal"]["Timeout"] == "PT50M"


def test_same_files_change_nothing_and_others_only_what_new_nodes_get(synthesize: Synthesize, project: Path) -> None:
    first, again = (synthesize(worker_count=1, setup="setup.sh") for _ in range(2))
    assert first == again
    (project / "setup.sh").write_text(f"{SCRIPT}pip --version\n")
    changed = synthesize(worker_count=1, setup="setup.sh")
    kinds = {
        resource["Type"] for name, resource in changed["Resources"].items() if resource != first["Resources"].get(name)
    }
    assert kinds == {"AWS::EC2::LaunchTemplate", "AWS::IAM::Policy"}
    assert changed["Resources"].keys() == first["Resources"].keys()


def test_nodes_have_no_setup_without_the_setting(template: Template) -> None:
    for config in node_configurations(template):
        assert (config["setup"], config["setup_sha256"], config["setup_timeout_s"]) == (None, None, None)
        assert config["bootstrap_timeout_s"] == 1200


@pytest.mark.parametrize(
    ("settings", "files", "message"),
    [
        ({"setup": "lost.sh"}, {}, "setup must be a file, as a path relative to cdk.json, got 'lost.sh'"),
        ({"requirements": "."}, {}, "requirements must be a file, as a path relative to cdk.json, got '.'"),
        ({"setup": "a.sh"}, {"a.sh": b"echo\n"}, "first line of a.sh must be like #!/bin/bash, got 'echo'"),
        ({"setup": "a.sh"}, {"a.sh": b"#!/bin/sh\r\n"}, "first line of a.sh must be without a carriage return"),
        ({"setup": "a.sh"}, {"a.sh": b"#!/bin/sh\n" + bytes(1 << 20)}, "size of a.sh must be at most 1048576 bytes"),
        (
            {"requirements": "r"},
            {"r": b"a\n-e .\n"},
            "line of r must be a requirement, not another file: .*'-e .'",
        ),
        ({"requirements": "r"}, {"r": b"./wheels/a.whl\n"}, "line of r must be a requirement, not another file"),
        *(
            ({"requirements": "r"}, {"r": line}, "line of r must be a requirement, not another file")
            for line in (b"-rother.txt", b"wheels/a.whl", b"a.whl", b"x @ file:///a", b"-f wheels", b"--find-links=w")
        ),
        ({"setup_timeout": "15"}, {}, "setup_timeout must be a time like 15m or 2h, at most 6h, got '15'"),
        ({"setup_timeout": "7h"}, {}, "setup_timeout must be a time like 15m or 2h, at most 6h, got '7h'"),
    ],
)
def test_unusable_setup_is_refused_in_one_line(
    project: Path, settings: dict[str, str], files: dict[str, bytes], message: str
) -> None:
    for name, content in files.items():
        (project / name).write_bytes(content)
    with pytest.raises(SettingsError, match=message) as raised:
        SetupSettings(**settings).check()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "line",
    [
        b"timm[a]==1.0 ; sys_platform == 'a/b'  # see docs/x",
        b"# see docs/file: x.whl",
        b"x @ https://host/x-1.0.whl",
        b"git+https://host/x.git",
        b"https://host/x.whl",
        b"--extra-index-url https://host/simple",
        b"--index-url=https://host/simple",
        b"-f https://host/wheels",
        b"--find-links=https://host/wheels",
        b"x==1 --hash=sha256:0a",
    ],
)
def test_requirements_outside_the_app_directory_are_accepted(project: Path, line: bytes) -> None:
    (project / "r").write_bytes(line)
    SetupSettings(requirements="r").check()
