"""Test the SSH configuration of nodes: known hosts, sshd's settings, and the cluster key."""

from dataclasses import replace

import pytest

from bootstrap.cluster.membership import Member
from bootstrap.files import ssh
from tests.bootstrap.identities import MEMBERS


def test_known_hosts_know_every_name_and_the_address() -> None:
    assert ssh.known_hosts_lines(MEMBERS) == (
        "deeplearning-master,deeplearning-worker1,10.0.0.100 ssh-ed25519 AAAA\n"
        "deeplearning-worker2,10.0.1.20 ssh-ed25519 BBBB\n"
        "deeplearning-worker10,10.0.1.9 ssh-ed25519 CCCC\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ssh.SSH_CLIENT,
            "Host deeplearning-*\n    ForwardAgent no\n    StrictHostKeyChecking yes\n",
        ),
        (
            ssh.SSH_CLIENT_WITH_KEY,
            "Host deeplearning-*\n    ForwardAgent no\n    StrictHostKeyChecking yes\n"
            'Match host deeplearning-* exec "test -r /etc/deeplearning/cluster-key/id_ed25519"\n'
            "    IdentitiesOnly yes\n"
            "    IdentityFile /etc/deeplearning/cluster-key/id_ed25519\n"
            "    IdentityFile ~/.ssh/id_ed25519\n"
            "    IdentityFile ~/.ssh/id_rsa\n",
        ),
        (
            ssh.SSHD_MASTER,
            "AllowAgentForwarding yes\n"
            "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 /etc/deeplearning/authorized_keys/%u "
            "/etc/deeplearning/team_keys/%u\n"
            "ExposeAuthInfo yes\n",
        ),
        (
            ssh.SSHD_WORKER,
            "AllowAgentForwarding no\n"
            "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 /etc/deeplearning/authorized_keys/%u "
            "/etc/deeplearning/team_keys/%u\n"
            "ExposeAuthInfo yes\n",
        ),
    ],
)
def test_ssh_and_sshd_configuration_has_exactly_the_expected_lines(text: str, expected: str) -> None:
    assert text == expected


def test_cluster_key_opens_the_nodes_from_the_masters_address_only() -> None:
    master = replace(MEMBERS[1], ssh_key="ssh-ed25519 MMMM")
    assert ssh.authorized_keys(master) == 'from="10.0.0.100" ssh-ed25519 MMMM deeplearning-cdk\n'


@pytest.mark.parametrize("master", [None, MEMBERS[1]])
def test_no_login_without_a_master_or_its_key(master: Member | None) -> None:
    assert ssh.authorized_keys(master) == ""
