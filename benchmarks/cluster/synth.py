"""Compare our synth with a bare CDK app with the same resource types.

Both run in turn as the CDK command line runs an app, with the same Python, Node, feature flags and validator.
``synth_default`` is the ratio of the shortest times, because other load can only lengthen a time. Run by ``make bench
B=synth`` or ``python -m benchmarks.cluster.synth [--rounds N]``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3

REPOSITORY: Final = Path(__file__).resolve().parents[2]
OURS: Final = [sys.executable, "app.py"]
BARE: Final = [sys.executable, "-c", "from benchmarks.cluster.synth import bare; bare()"]
AMI: Final = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


def main() -> int:
    """Measure both in turn and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        outputs = Path(directory, "ours"), Path(directory, "bare")
        for command, out in zip((OURS, BARE), outputs, strict=True):
            synthesize(command, out)
        require_same_resource_types(*outputs)
        times = [
            [synthesize(command, out) for command, out in zip((OURS, BARE), outputs, strict=True)]
            for _ in range(rounds)
        ]
    ours, bare = (min(column) for column in zip(*times, strict=True))
    print(f"ours {ours:.2f} s, bare {bare:.2f} s, best of {rounds} rounds", file=sys.stderr)
    print(f"synth_default {ours / bare:.2f} ratio")
    return 0


def synthesize(command: list[str], out: Path) -> float:
    """Run one synth and return its seconds."""
    context = json.loads((REPOSITORY / "cdk.json").read_text())["context"]
    environment = {**os.environ, "CDK_CONTEXT_JSON": json.dumps(context), "CDK_OUTDIR": str(out)}
    start = time.perf_counter()
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, timeout=300, capture_output=True)
    return time.perf_counter() - start


def require_same_resource_types(ours: Path, bare: Path) -> None:
    """Refuse to compare apps that create different resources."""
    difference = _resource_types(ours).items() ^ _resource_types(bare).items()
    if difference:
        raise SystemExit(f"the two apps differ in resource types: {sorted(difference)}")


def _resource_types(out: Path) -> Counter[str]:
    [path] = out.glob("*.template.json")
    return Counter(r["Type"] for r in json.loads(path.read_text())["Resources"].values())


def bare() -> None:
    """Create the same resources with the CDK's own constructs."""
    app = cdk.App()
    stack = cdk.Stack(app, "Bare")
    vpc = ec2.Vpc(
        stack,
        "Vpc",
        availability_zones=[cdk.Fn.select(0, cdk.Fn.get_azs())],
        nat_gateways=1,
        restrict_default_security_group=False,
        gateway_endpoints={
            "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
            "DynamoDb": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB),
        },
    )
    table = dynamodb.Table(
        stack,
        "Table",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
    )
    s3.Bucket(stack, "Bucket", enforce_ssl=True)
    ec2.CfnEIP(stack, "Address")
    logs.LogGroup(stack, "Logs")
    ec2.SecurityGroup(stack, "Admin", vpc=vpc)
    groups = [ec2.SecurityGroup(stack, f"Group{i}", vpc=vpc, allow_all_outbound=False) for i in (0, 1)]
    for group in groups:
        for peer in groups:
            group.add_ingress_rule(peer, ec2.Port.all_traffic())
            group.add_egress_rule(peer, ec2.Port.all_traffic())
    for name, group in zip(("Master", "Workers"), groups, strict=True):
        _bare_nodes(stack, name, vpc, group, table)
    app.synth()


def _bare_nodes(stack: cdk.Stack, name: str, vpc: ec2.Vpc, group: ec2.SecurityGroup, table: dynamodb.Table) -> None:
    role = iam.Role(stack, f"{name}Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    table.grant_read_write_data(role)
    template = ec2.LaunchTemplate(
        stack,
        f"{name}Template",
        instance_type=ec2.InstanceType("g6.xlarge"),
        machine_image=ec2.MachineImage.from_ssm_parameter(AMI),
        user_data=ec2.UserData.for_linux(),
        role=role,
        security_group=group,
        require_imdsv2=True,
    )
    autoscaling.AutoScalingGroup(stack, f"{name}Group", vpc=vpc, launch_template=template)


if __name__ == "__main__":
    sys.exit(main())
