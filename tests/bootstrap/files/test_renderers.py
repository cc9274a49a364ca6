from dataclasses import replace

import pytest

from bootstrap.cluster.membership import Member
from bootstrap.files import renderers as hosts

MEMBERS = (
    Member(node_index=10, instance_id="i-c", address="10.0.1.9", node_type="worker", host_key="ssh-ed25519 CCCC"),
    Member(node_index=1, instance_id="i-a", address="10.0.0.100", node_type="master", host_key="ssh-ed25519 AAAA"),
    Member(node_index=2, instance_id="i-b", address="10.0.1.20", node_type="worker", host_key="ssh-ed25519 BBBB"),
)
VALUES = hosts.variables(workers_count=3, gpu_count=8, bucket="bucket", instance_id="i-a")


def test_hosts_lines_are_in_index_order_and_the_master_has_both_names() -> None:
    assert hosts.hosts_lines(MEMBERS) == (
        "10.0.0.100 deeplearning-master deeplearning-worker1\n"
        "10.0.1.20 deeplearning-worker2\n"
        "10.0.1.9 deeplearning-worker10\n"
    )


def test_workers_file_has_one_alias_a_line() -> None:
    assert hosts.workers_file(MEMBERS) == ("deeplearning-worker1\ndeeplearning-worker2\ndeeplearning-worker10\n")


def test_known_hosts_know_every_name_and_the_address() -> None:
    assert hosts.known_hosts_lines(MEMBERS) == (
        "deeplearning-master,deeplearning-worker1,10.0.0.100 ssh-ed25519 AAAA\n"
        "deeplearning-worker2,10.0.1.20 ssh-ed25519 BBBB\n"
        "deeplearning-worker10,10.0.1.9 ssh-ed25519 CCCC\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            hosts.profile_script(VALUES),
            "export DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers\n"
            "export DEEPLEARNING_WORKERS_COUNT=3\n"
            "export DEEPLEARNING_WORKER_GPU_COUNT=8\n"
            "export DEEPLEARNING_BUCKET=bucket\n"
            "export DEEPLEARNING_INSTANCE_ID=i-a\n",
        ),
        (
            hosts.environment_lines(VALUES),
            "DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers\n"
            "DEEPLEARNING_WORKERS_COUNT=3\n"
            "DEEPLEARNING_WORKER_GPU_COUNT=8\n"
            "DEEPLEARNING_BUCKET=bucket\n"
            "DEEPLEARNING_INSTANCE_ID=i-a\n",
        ),
        (
            hosts.systemd_environment(VALUES),
            "[Manager]\n"
            'DefaultEnvironment="DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers" '
            '"DEEPLEARNING_WORKERS_COUNT=3" "DEEPLEARNING_WORKER_GPU_COUNT=8" '
            '"DEEPLEARNING_BUCKET=bucket" "DEEPLEARNING_INSTANCE_ID=i-a"\n',
        ),
        (
            hosts.SSH_CLIENT,
            "Host deeplearning-*\n    ForwardAgent no\n    StrictHostKeyChecking yes\n",
        ),
        (
            hosts.SSH_CLIENT_WITH_KEY,
            "Host deeplearning-*\n    ForwardAgent no\n    StrictHostKeyChecking yes\n"
            'Match host deeplearning-* exec "test -r /etc/deeplearning/cluster-key/id_ed25519"\n'
            "    IdentitiesOnly yes\n"
            "    IdentityFile /etc/deeplearning/cluster-key/id_ed25519\n"
            "    IdentityFile ~/.ssh/id_ed25519\n"
            "    IdentityFile ~/.ssh/id_rsa\n",
        ),
        (
            hosts.SSHD_MASTER,
            "AllowAgentForwarding yes\n"
            "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 /etc/deeplearning/authorized_keys/%u\n",
        ),
        (
            hosts.SSHD_WORKER,
            "AllowAgentForwarding no\n"
            "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 /etc/deeplearning/authorized_keys/%u\n",
        ),
    ],
)
def test_text_is_exactly(text: str, expected: str) -> None:
    assert text == expected


def test_cluster_key_opens_the_nodes_from_the_masters_address_only() -> None:
    master = replace(MEMBERS[1], ssh_key="ssh-ed25519 MMMM")
    assert hosts.authorized_keys(master) == 'from="10.0.0.100" ssh-ed25519 MMMM deeplearning-cdk\n'


@pytest.mark.parametrize("master", [None, MEMBERS[1]])
def test_without_a_master_or_its_key_nobody_is_let_in(master: Member | None) -> None:
    assert hosts.authorized_keys(master) == ""


def test_a_node_may_have_a_further_name() -> None:
    lines = hosts.hosts_lines(MEMBERS, also={MEMBERS[0].node_index: "ip-10-0-0-4"}).splitlines()
    assert [line.endswith(" ip-10-0-0-4") for line in lines].count(True) == 1
    assert next(line for line in lines if line.endswith("ip-10-0-0-4")).startswith(f"{MEMBERS[0].address} ")
