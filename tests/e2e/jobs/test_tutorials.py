"""Test that the lines of the tutorials work, from ``cdk deploy`` on, and print what the pages show."""

from collections.abc import Sequence

from tests.e2e.support.console_blocks import Step
from tests.e2e.support.deployed_cluster import DeployedCluster
from tests.e2e.support.laptop import Laptop
from tests.e2e.support.tutorial import OWN_SCRIPT, run_page, ssh_configured


def check(printed: Sequence[tuple[Step, list[str]]], *, ran: str) -> None:
    """Check that a page was run up to this command, and that each command printed what the page shows."""
    assert ran in [step.command for step, _ in printed]
    for step, lines in printed:
        # Earlier tests have deployed other releases.
        own = [line for line in lines if not line.startswith("releases differ: ")]
        assert step.differences(own) == [], f"{step.command}\n" + "\n".join(lines)


def test_first_cluster_is_deployed_and_trains(first_cluster: Sequence[tuple[Step, list[str]]]) -> None:
    check(first_cluster, ran="cdk deploy")


def test_own_script_runs_from_the_laptop_and_by_hand(cluster: DeployedCluster, laptop: Laptop) -> None:
    with ssh_configured(cluster.user):
        check(run_page(laptop, OWN_SCRIPT), ran="dlcluster run -- train.py")
