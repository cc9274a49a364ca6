"""Check that the template contains the user data as rendered."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from bootstrap.config import NodeConfig
from stacks.nodes.node_config import NODE_READY_TIMEOUT_S
from stacks.nodes.user_data import SHEBANG, BundleSource, body
from tests.stacks.template_parts import Template, logical_id

Synthesize = Callable[..., Template]


@pytest.mark.parametrize(("name", "node_type"), [("Master", "master"), ("Workers", "worker")])
def test_user_data_is_byte_for_byte_the_rendered_script(template: Template, name: str, node_type: str) -> None:
    group = logical_id(template, "AWS::AutoScaling::AutoScalingGroup", name)
    launch_template = template["Resources"][logical_id(template, "AWS::EC2::LaunchTemplate", name)]
    [user_data] = launch_template["Properties"]["LaunchTemplateData"]["UserData"].values()
    address = logical_id(template, "AWS::EC2::EIP", "MasterAddress")
    url = _only(re.findall(r"s3://[^ \"]+\.zip", json.dumps(user_data)))
    expected = body(
        NodeConfig(
            cluster_name="deeplearning",
            region="<AWS::Region>",
            node_type="master" if node_type == "master" else "worker",
            group=f"deeplearning-{node_type}",
            stack_id="<AWS::StackId>",
            signal_resource=group,
            fails_deploy=True,
            min_nodes=None,
            master_trains=True,
            gpu_count=1,
            worker_gpu_count=1,
            efa_interfaces=0,
            address=f"<{address}>" if node_type == "master" else None,
            address_allocation=f"<{address}.AllocationId>" if node_type == "master" else None,
            table=f"<{logical_id(template, 'AWS::DynamoDB::Table', '')}>",
            networks="10.0.0.0/16",
            log_group=f"<{logical_id(template, 'AWS::Logs::LogGroup', '')}>",
            bucket=f"<{logical_id(template, 'AWS::S3::Bucket', '')}>",
            master_role_id=f"<{logical_id(template, 'AWS::IAM::Role', 'RolesMaster')}.RoleId>",
            worker_role_id=f"<{logical_id(template, 'AWS::IAM::Role', 'RolesWorker')}.RoleId>",
            mxnet_environment=None,
            shared_storage=None,
            shared_storage_resource=None,
            setup=None,
            setup_sha256=None,
            setup_timeout_s=None,
            default_user="ubuntu",
            bootstrap_timeout_s=NODE_READY_TIMEOUT_S,
        ),
        BundleSource(url=url, sha256=url.rpartition("/")[2].removesuffix(".zip")),
    )
    assert _resolve(user_data) == f"{SHEBANG}\n{expected}"


def _only(found: list[str]) -> str:
    [value] = set(found)
    return value


def _resolve(value: Any) -> str:
    if isinstance(value, str):
        return value
    [(function, argument)] = value.items()
    if function == "Fn::Join":
        return str(argument[0]).join(_resolve(part) for part in argument[1])
    if function == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    return f"<{argument}>" if function == "Ref" else str(argument)


@pytest.mark.parametrize(
    ("frameworks", "message"), [((), "null"), (("mxnet",), '"mxnet"'), (("mxnet", "horovod"), '"horovod"')]
)
def test_frameworks_setting_reaches_nodes_without_more_permissions(
    synthesize: Synthesize, frameworks: tuple[str, ...], message: str
) -> None:
    plain, template = synthesize(worker_count=1), synthesize(worker_count=1, frameworks=frameworks)
    assert json.dumps(f'"mxnet_environment": {message}')[1:-1] in json.dumps(template)
    policies = [
        [resource for resource in synthesized["Resources"].values() if resource["Type"] == "AWS::IAM::Policy"]
        for synthesized in (plain, template)
    ]
    assert policies[0] == policies[1]
