"""Stand in for an account whose answers the test defines."""

from collections.abc import Callable
from typing import Any

from botocore.session import Session
from botocore.stub import Stubber

from cli.aws.clients import Clients
from cli.preflight.finding import Finding
from cli.preflight.target import Check, PreflightTarget
from stacks.settings.props import ClusterProps
from tests.cli.moto_cluster import REGION

ACCOUNT = "123456789012"
CALLER = f"arn:aws:iam::{ACCOUNT}:user/ann"
NEW_STACK: dict[str, Any] = {
    "service_error_code": "ValidationError",
    "service_message": "Stack with id demo does not exist",
    "expected_params": {"StackName": "demo"},
}


class Account:
    """An account that gives the test's answers, in that order, and answers nothing else."""

    def __init__(self) -> None:
        session = Session()
        session.set_credentials("test", "test")
        session.set_config_variable("region", REGION)
        self.clients = Clients(session, REGION)
        self._stubs: dict[str, Stubber] = {}
        self.caller = CALLER
        self.cdk_context: dict[str, Any] = {}
        self.settings: dict[str, Any] = {"cluster_name": "demo", "availability_zone": "eu-west-1b"}

    def __getitem__(self, service: str) -> Stubber:
        if service not in self._stubs:
            self._stubs[service] = Stubber(getattr(self.clients, service))
            self._stubs[service].activate()
        return self._stubs[service]

    def answers(self, service: str, operation: str, response: dict[str, Any], expected: Any = None) -> None:
        self[service].add_response(operation, response, expected)

    def refuses(self, service: str, operation: str, code: str, expected: Any = None) -> None:
        self[service].add_client_error(operation, code, "no", expected_params=expected)

    def target(self) -> PreflightTarget:
        props = ClusterProps(**self.settings)
        return PreflightTarget(
            clients=self.clients, props=props, cdk_context=self.cdk_context, account=ACCOUNT, caller=self.caller
        )

    def check(self, check: Check) -> list[Finding]:
        """Return what a check finds; every answer of the test must have been requested."""
        found = list(check(self.target()))
        for stub in self._stubs.values():
            stub.assert_no_pending_responses()
        return found

    def finds(self, check: Check) -> Finding:
        (found,) = self.check(check)
        assert "\n" not in str(found)
        return found

    def close(self) -> None:
        for stub in self._stubs.values():
            stub.deactivate()


Quota = Callable[[str, str, float], None]
