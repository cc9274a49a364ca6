"""Check where settings come from, and the messages for bad ones."""

from pathlib import Path
from typing import Any

import pytest

from stacks.catalog import deep_learning_ami
from stacks.settings.base import SettingsError
from stacks.settings.props import SETTINGS, ClusterProps


def test_defaults_make_a_cluster() -> None:
    assert ClusterProps.from_context({}) == ClusterProps()


def test_cluster_that_is_null_makes_the_default_one() -> None:
    assert ClusterProps.from_context({"cluster": None}) == ClusterProps()


def test_single_keys_override_the_cluster_object() -> None:
    context = {
        "cluster": {"worker_count": 2, "instance_type": "g5.xlarge", "tags": {"team": "vision"}},
        "worker_count": "7",
    }
    props = ClusterProps.from_context(context)
    assert (props.worker_count, props.instance_type, props.tags) == (7, "g5.xlarge", {"team": "vision"})


def test_cdks_own_keys_are_not_settings() -> None:
    context = {
        "@aws-cdk/core:checkSecretUsage": True,
        "aws:cdk:bundling-stacks": ["**"],
        "aws-cdk:enableDiffNoFail": "true",
        "@aws-cdk-containers/ecs-service-extensions:enableDefaultLogDriver": True,
        "ssm:account=123456789012:parameterName=/a:region=us-east-1": "ami-0123456789abcdef0",
        "acknowledged-issue-numbers": [1],
    }
    assert ClusterProps.from_context(context) == ClusterProps()


@pytest.mark.parametrize("nothing", ["", None])
def test_empty_value_means_the_default(nothing: str | None) -> None:
    context = {"cluster": {"ssh_location": "203.0.113.0/24"}, "ssh_location": nothing}
    assert ClusterProps.from_context(context).ssh_location is None


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("team=vision", {"team": "vision"}),
        ("team=vision,cost center=a=b", {"team": "vision", "cost center": "a=b"}),
        ('{"team": "vision"}', {"team": "vision"}),
    ],
)
def test_tags_on_the_command_line(text: str, tags: dict[str, str]) -> None:
    assert ClusterProps.from_context({"tags": text}).tags == tags


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"workers": 2}, "unknown setting 'workers', did you mean worker_count?"),
        ({"gpus": 8}, "unknown setting 'gpus', did you mean gpu_count?"),
        ({"worker_cout": 2}, "unknown setting 'worker_cout', did you mean worker_count?"),
        ({"cluster": {"worker-count": 2}}, "unknown setting 'worker-count', did you mean worker_count?"),
        ({"cluster": {"KeyName": "k"}}, "unknown setting 'KeyName', did you mean key_name?"),
        (
            {"region": "eu-west-1"},
            "unknown setting 'region': the region is that of AWS_REGION or of the profile, as in",
        ),
        ({"profile": "me"}, "unknown setting 'profile': the profile is AWS_PROFILE, as in"),
        ({"zzz": 1}, "unknown setting 'zzz': docs/reference/settings.md lists all "),
        ({"cluster": 3}, "cluster must be an object of settings, got 3"),
        ({"cluster": []}, r"cluster must be an object of settings, got \[\]"),
        ({"cluster": 0}, "cluster must be an object of settings, got 0"),
        ({"cluster": False}, "cluster must be an object of settings, got False"),
        ({"cluster": ""}, "cluster must be an object of settings, got ''"),
        ({"0": "x"}, "unknown setting '0': the \"context\" of cdk.json must be an object"),
        ({"cluster_name": "1st"}, "cluster_name must be a letter, then .*, got '1st'"),
        ({"cluster_name": "a" * 64}, "cluster_name must be .* at most 63"),
        ({"cluster_name": "ends\n"}, "cluster_name must be"),
        ({"cluster_name": 5}, "cluster_name must be text, got 5"),
        ({"worker_count": "x"}, "worker_count must be a whole number, got 'x'"),
        ({"worker_count": 1.5}, "worker_count must be a whole number, got 1.5"),
        ({"worker_count": True}, "worker_count must be a whole number, got True"),
        ({"worker_count": -1}, "worker_count must be 0 to 500, got -1"),
        ({"worker_count": "-1"}, "worker_count must be 0 to 500, got -1"),
        ({"worker_count": "٣x"}, "worker_count must be a whole number"),
        ({"root_volume_gib": 4}, "root_volume_gib must be 8 to 16384, got 4"),
        ({"root_volume_gib": "\x1f5"}, "root_volume_gib must be 8 to 16384, got 5"),
        (
            {"key_name": "~/.ssh/id_rsa.pub"},
            r"key_name must be the name of an EC2 key pair, not a file, got '~/.ssh/id_rsa.pub'; "
            r"to make a pair of a key: aws ec2 import-key-pair --key-name NAME --public-key-material 'fileb://~/.ssh/id_rsa.pub'",
        ),
        (
            {"key_name": "../me.pem"},
            "key_name must be the name of an EC2 key pair, not a file, got '../me.pem'; to make",
        ),
        ({"key_name": " k"}, "key_name must be the name of an EC2 key pair"),
        ({"ssh_location": "203.0.113.9"}, "got '203.0.113.9', did you mean 203.0.113.9/32?"),
        ({"ssh_location": "203.0.113.9/24"}, "got '203.0.113.9/24', did you mean 203.0.113.0/24?"),
        ({"ssh_location": "home"}, "ssh_location must be an IPv4 block like 203.0.113.0/24, got 'home'"),
        ({"ssh_location": "::/0"}, "ssh_location must be an IPv4 block .*, got the IPv6 block '::/0'"),
        ({"vpc_cidr": "10.0.0.0/8"}, "vpc_cidr must be between /16 and /27, got '10.0.0.0/8'"),
        ({"vpc_cidr": "10.0.0.0/28"}, "vpc_cidr must be between /16 and /27"),
        ({"vpc_cidr": "10.0.0.0/27", "worker_count": 12}, "worker_count must be at most 11 in vpc_cidr"),
        ({"availability_zone": "us-east-1"}, "availability_zone must be like us-east-1a, got 'us-east-1'"),
        ({"ssh_location": "203.0.113.0/24,home"}, "ssh_location must be an IPv4 block like .*, got 'home'"),
        ({"ssh_location": ["203.0.113.0/24", 7]}, "ssh_location must be text, got 7"),
        (
            {"ssh_location": [f"203.0.113.{n}/32" for n in range(21)]},
            "ssh_location must name at most 20 blocks, got 21",
        ),
        ({"vpc_cidr": "fd00::/16"}, "vpc_cidr must be an IPv4 block .*, got the IPv6 block 'fd00::/16'"),
        ({"vpc_cidr": "172.17.0.0/16"}, "vpc_cidr must not overlap 172.17.0.0/16, .*: Docker's bridge has it"),
        ({"vpc_cidr": "169.254.8.0/24"}, "vpc_cidr must not overlap 169.254.0.0/16, .*: EC2 refuses it"),
        ({"ami": "ubuntu"}, "ami must be ami- and 8 or 17 hex digits, or the name of an SSM parameter"),
        ({"ami": "ami-0123456789"}, "ami must be ami- and 8 or 17 hex digits"),
        ({"key_name": "${Token[TOKEN.1]}"}, "key_name must be the name of an EC2 key pair"),
        ({"root_volume_gib": 20}, "root_volume_gib must be at least 30, the size of the AMI oss-nvidia.*, got 20"),
        ({"gpu_count": 2}, "gpu_count must be 1 or left out for g6.xlarge, got 2"),
        ({"gpu_count": 1, "instance_type": "c5.large"}, "gpu_count must be 0 or left out for c5.large, got 1"),
        ({"gpu_count": -1}, "gpu_count must be 0 to 16, got -1"),
        ({"gpu_count": "two"}, "gpu_count must be a whole number, got 'two'"),
        ({"gpu_count": 1, "instance_type": "m7g.large"}, "instance_type 'm7g.large' is ARM"),
        ({"gpu_count": 16, "instance_type": "p2.16xlarge"}, "instance_type p2.16xlarge needs ami"),
        ({"gpu_count": 1, "instance_type": "G6"}, "instance_type must be FAMILY.SIZE such as g6.xlarge"),
        (
            {"instance_type": "z9.huge"},
            "unknown instance_type 'z9.huge' (any type goes with gpu_count or ami",
        ),
        ({"setup": "x" * 300}, "setup must be a file, as a path relative to cdk.json, got 'xxx"),
        ({"worker:count": 3}, "unknown setting 'worker:count', did you mean worker_count?"),
        ({"worker-count": "3"}, "unknown setting 'worker-count', did you mean worker_count?"),
        ({"key/name": "k"}, "unknown setting 'key/name', did you mean key_name?"),
        ({"x" * 5000: 1}, "unknown setting 'xxx.*xxx': docs/reference/settings.md lists"),
        ({"cluster_name": ["a"] * 5000}, "cluster_name must be text, got"),
        ({"instance_type": "g6.xlrge"}, "unknown instance_type 'g6.xlrge', did you mean g6.xlarge?"),
        ({"instance_type": "p2.xlarge"}, "instance_type p2.xlarge needs ami: .*K80.* g6.xlarge"),
        ({"instance_type": "p3.2xlarge"}, "instance_type p3.2xlarge needs ami: .*V100.* g6.2xlarge"),
        ({"instance_type": "p3dn.24xlarge", "gpu_count": 8}, "instance_type p3dn.24xlarge needs ami: .*V100"),
        ({"instance_type": "trn1.2xlarge"}, "instance_type 'trn1.2xlarge' has Trainium chips and no GPU: .*Neuron"),
        ({"instance_type": "trn2.48xlarge", "gpu_count": 16}, "instance_type 'trn2.48xlarge' has Trainium chips"),
        ({"instance_type": "inf2.xlarge", "ami": "ami-01234567"}, "instance_type 'inf2.xlarge' has Inferentia chips"),
        ({"instance_type": "g6f.xlarge"}, "instance_type 'g6f.xlarge' has a part of a GPU, .*GRID driver"),
        ({"instance_type": "gr6f.4xlarge", "gpu_count": 1}, "instance_type 'gr6f.4xlarge' has a part of a GPU"),
        ({"instance_type": "m7g.large"}, "instance_type 'm7g.large' is ARM and the default AMI is x86_64"),
        ({"instance_type": "big", "ami": "/a"}, "instance_type must be FAMILY.SIZE such as g6.xlarge, got 'big'"),
        (
            {"instance_type": "c5.1٢xlarge"},
            "instance_type must be FAMILY.SIZE such as g6.xlarge, got 'c5.1٢xlarge', did you mean c5.16xlarge?",
        ),
        ({"instance_type": f"c5.{'9' * 5000}xlarge"}, "must be FAMILY.SIZE such as g6.xlarge, got 'c5.999"),
        ({"worker_count": 501}, "worker_count must be 0 to 500, got 501"),
        ({"bucket": "cdk-hnb659fds-assets-123456789012-us-east-1"}, "bucket must be a bucket of your own, not"),
        ({"bucket": "cdktoolkit-stagingbucket-1a2b3c4d5e6f"}, "bucket must be a bucket of your own, not"),
        ({"bucket": "s3://mine"}, "bucket must be the name of a general purpose S3 bucket: 3 to 63 lowercase"),
        ({"bucket": "Mine"}, "bucket must be the name of a general purpose S3 bucket"),
        ({"bucket": "ab"}, "bucket must be the name of a general purpose S3 bucket"),
        ({"bucket": "a..b"}, "bucket must be the name of a general purpose S3 bucket"),
        ({"bucket": "192.0.2.1"}, "bucket must be the name of a general purpose S3 bucket"),
        ({"bucket": "mine--use1-az4--x-s3"}, "bucket must be the name of a general purpose S3 bucket"),
        ({"tags": {"team": ""}}, "tag 'team' must be 1 to 256 characters, got ''"),
        ({"tags": "team="}, "tag 'team' must be 1 to 256 characters, got ''"),
        ({"tags": "team"}, "tags must be JSON or k=v,k2=v2, got 'team'"),
        ({"tags": "{"}, "tags must be valid JSON or k=v,k2=v2, got '{'"),
        ({"tags": ["a"]}, "tags must be an object of names and values"),
        ({"tags": {"n": 1}}, "tag 'n' must be text, got 1"),
        ({"tags": {"a#b": "c"}}, "tag 'a#b' must be letters, digits, spaces"),
        ({"tags": {"aws:x": "c"}}, "tag 'aws:x' has a reserved prefix: aws: or deeplearning:"),
        ({"tags": {"deeplearning:cluster": "c"}}, "tag 'deeplearning:cluster' has a reserved prefix"),
        ({"tags": {"": "c"}}, "the name of a tag must be 1 to 128 characters, got ''"),
        ({"tags": {"line": "a\nb"}}, "tag 'line' must be letters, digits, spaces"),
        ({"tags": {"Team": "a", "team": "b"}}, "tags 'Team' and 'team' differ only in case: use one of them"),
        ({"tags": "team=a,team=b"}, "tag 'team' must have one value, got 'a' and 'b'"),
        ({"tags": '{"team": "a", "team": "b"}'}, "tag 'team' must have one value, got 'a' and 'b'"),
        ({"tags": '{"a":' * 9999}, "tags must be valid JSON or k=v,k2=v2"),
        ({"tags": {str(i): "v" for i in range(41)}}, "tags must be at most 40, got 41"),
    ],
)
def test_unusable_setting_is_refused_in_one_short_line(context: dict[str, Any], message: str) -> None:
    pattern = message.replace("?", r"\?").replace(" (", r" \(").replace("${", r"\${")
    with pytest.raises(SettingsError, match=pattern) as caught:
        ClusterProps.from_context(context)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["p2.xlarge", "p3.2xlarge", "g6f.xlarge", "m7g.large", "z9.huge"])
def test_with_an_ami_any_type_is_taken(name: str) -> None:
    assert ClusterProps(instance_type=name, ami="ami-0123456789abcdef0").instance_type == name


def test_with_a_gpu_count_an_unknown_type_gets_the_default_ami() -> None:
    props = ClusterProps.from_context({"instance_type": "z9.huge", "gpu_count": "8"})
    assert (props.gpu_count, props.instance_type_info) == (8, None)
    assert props.ami_family == deep_learning_ami.DEFAULT_AMI_FAMILY


def test_gpu_count_that_agrees_with_the_catalog_is_taken() -> None:
    assert ClusterProps(instance_type="g6.12xlarge", gpu_count=4).gpu_count == 4


@pytest.mark.parametrize("zone", [None, "eu-west-1b", "eu-west-1-lhr-1a"])
def test_zone_of_the_region_is_taken(zone: str | None) -> None:
    ClusterProps(availability_zone=zone).check_region("eu-west-1")


def test_zone_of_another_region_is_refused() -> None:
    with pytest.raises(SettingsError, match="availability_zone must be a zone of eu-west-1, got 'us-east-1a'"):
        ClusterProps(availability_zone="us-east-1a").check_region("eu-west-1")


@pytest.mark.parametrize("given", ["203.0.113.0/24, 10.1.0.0/16", ["203.0.113.0/24", "10.1.0.0/16", "10.1.0.0/16"]])
def test_ssh_location_is_a_list_too(given: Any) -> None:
    assert ClusterProps.from_context({"ssh_location": given}).ssh_locations == ("203.0.113.0/24", "10.1.0.0/16")
    assert ClusterProps(ssh_location="10.1.0.0/16").ssh_locations == ("10.1.0.0/16",)


@pytest.mark.parametrize(
    ("settings", "ids"),
    [
        ({}, {"no-ssh", "no-key"}),
        ({"ssh_location": "0.0.0.0/0", "key_name": "k"}, {"open-ssh"}),
        ({"ssh_location": "128.0.0.0/1", "key_name": "k"}, {"open-ssh"}),
        ({"ssh_location": "203.0.113.0/24", "key_name": "k"}, set()),
        ({"ssh_location": ["203.0.113.0/24", "0.0.0.0/0"], "key_name": "k"}, {"open-ssh"}),
        ({"ssh_location": ("203.0.113.0/24", "198.51.100.9/32"), "key_name": "k"}, set()),
        ({"instance_type": "z9.huge", "gpu_count": 1}, {"no-ssh", "no-key", "unknown-type"}),
        ({"instance_type": "m7g.large", "ami": "/a"}, {"no-ssh", "no-key"}),
        (
            {"ssh_location": "203.0.113.0/24", "key_name": "k", "instance_type": "p3.2xlarge", "ami": "/a"},
            {"not-sold"},
        ),
        ({"instance_type": "g7.2xlarge"}, {"no-ssh", "no-key", "not-listed"}),
        ({"instance_type": "g7e.2xlarge"}, {"no-ssh", "no-key", "not-listed"}),
        ({"instance_type": "p6-b300.48xlarge", "efa": "off"}, {"no-ssh", "no-key", "not-listed"}),
        ({"instance_type": "p6-b300.48xlarge", "efa": "off", "ami": "/a"}, {"no-ssh", "no-key"}),
        ({"instance_type": "g5.8xlarge", "ami": "/a"}, {"no-ssh", "no-key", "efa-image"}),
        ({"instance_type": "gr6.4xlarge"}, {"no-ssh", "no-key"}),
        ({"instance_type": "c7i.large"}, {"no-ssh", "no-key"}),
        ({"min_workers": 0, "master_trains": False}, {"no-ssh", "no-key", "no-trainer"}),
        ({"min_workers": 0}, {"no-ssh", "no-key"}),
        ({"min_workers": 1, "master_trains": False}, {"no-ssh", "no-key"}),
    ],
)
def test_each_questionable_setting_has_a_warning(settings: dict[str, Any], ids: set[str]) -> None:
    assert set(ClusterProps(**settings).warnings()) == ids


def test_every_setting_is_documented() -> None:
    text = Path(__file__).resolve().parents[3].joinpath("docs/reference/settings.md").read_text()
    assert [name for name in SETTINGS if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("value", "frameworks"),
    [
        ("mxnet", ("mxnet",)),
        ("horovod, mxnet", ("mxnet", "horovod")),
        (["horovod"], ("horovod",)),
        ("", ()),
        ([], ()),
    ],
)
def test_frameworks_are_a_list_or_text(value: object, frameworks: tuple[str, ...]) -> None:
    assert ClusterProps.from_context({"frameworks": value}).frameworks == frameworks


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"frameworks": "tensorflow"}, "frameworks must be mxnet or horovod, got 'tensorflow'"),
        ({"frameworks": ["mxnet", 3]}, "frameworks must be mxnet or horovod, got 3"),
        ({"frameworks": 3}, "frameworks must be a list of mxnet, horovod, or text like a,b, got 3"),
        (
            {"frameworks": "mxnet", "instance_type": "g5g.xlarge", "ami": "ami-01234567"},
            "frameworks need an x86_64 instance_type, got 'g5g.xlarge', which is ARM",
        ),
    ],
)
def test_frameworks_that_cannot_be_had_are_refused(context: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as failure:
        ClusterProps.from_context(context)
    assert str(failure.value) == message


def test_gpu_nodes_with_only_mxnet_get_a_warning() -> None:
    assert "frameworks-on-cpu" in ClusterProps(frameworks=("mxnet",), instance_type="g6.xlarge").warnings()
    assert "frameworks-on-cpu" not in ClusterProps(frameworks=("mxnet",), instance_type="c5.large").warnings()


def test_requirements_of_the_cdk_app_get_a_warning(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("aws-cdk-lib==2.1\n")
    (tmp_path / "nodes.txt").write_text("einops==0.8.1\n")
    found = [ClusterProps(requirements=str(tmp_path / name)).warnings() for name in ("own.txt", "nodes.txt")]
    assert ["requirements-of-the-cdk" in warnings for warnings in found] == [True, False]
