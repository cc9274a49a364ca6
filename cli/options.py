"""The command line of ``dlcluster``."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from bootstrap.contract import MASTER
from cli.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the user asked for."""

    verb: str
    cluster: str | None
    """Left out: the only cluster of the account and region."""
    region: str | None
    """Left out: as the environment or the profile says."""
    identity: str | None
    """Private key file; left out, the SSH agent and the usual files."""
    node: str
    host: str | None
    """Whose known hosts lines to print; left out, everybody's."""
    table: str | None
    """The cluster's table, where the caller knows it."""
    networks: str | None
    """The cluster's networks, where the caller knows them."""
    context: tuple[str, ...]
    """``name=value`` settings, as ``cdk deploy -c`` takes them."""
    command: tuple[str, ...]
    """What stands after ``--``."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}{_advice(message)}")


VERSION: Final = "0.1.0"
"""As pyproject.toml has it."""
ELSEWHERE: Final = {
    **dict.fromkeys(("up", "deploy", "create"), "cdk deploy makes or changes a cluster"),
    **dict.fromkeys(("down", "destroy", "delete"), "cdk destroy removes a cluster"),
    "stop": "cdk destroy removes a cluster, dlcluster run -- launch stop ends a job",
    "logs": "dlcluster run -- launch logs shows a job's, dlcluster why what a node says of itself",
    "launch": "dlcluster run -- launch python train.py runs it on the master",
    "list": "dlcluster status lists the nodes, dlcluster run -- launch list the jobs",
}
"""Words that one tries as verbs, and what does it."""


def _advice(message: str) -> str:
    """What to do about arguments that argparse does not know."""
    found, _, unknown = message.partition("unrecognized arguments: ")
    if found or not unknown:
        return ""
    return "; dlcluster VERB --help lists the options" if unknown.startswith("-") else "; a command goes after --"


def _parser() -> _Parser:
    # Accepted before and after the verb; SUPPRESS keeps the verb's default from undoing the first.
    shared = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--cluster", metavar="NAME", help="which cluster, where there is more than one")
    shared.add_argument("--region", help="AWS region (AWS_REGION, or the profile's)")
    shared.add_argument("-i", "--identity", metavar="FILE", help="private key to log in with")
    parser = _Parser(
        prog="dlcluster",
        description="Log in to a cluster, run something on it, look at it.",
        allow_abbrev=False,
        parents=[shared],
    )
    parser.add_argument("--version", action="version", version=f"dlcluster {VERSION}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, text: str, usage: str | None = None) -> argparse.ArgumentParser:
        usage = usage and f"dlcluster {name} [-h] [--cluster NAME] [--region REGION] [-i FILE] {usage}"
        return verbs.add_parser(name, help=text, description=text, usage=usage, allow_abbrev=False, parents=[shared])

    node = "master, worker2, 2, deeplearning-worker2 or an instance id"
    ssh = verb("ssh", "log in, or run what follows --", usage="[NODE] [-- COMMAND ...]")
    ssh.add_argument("node", metavar="NODE", nargs="?", default=MASTER, help=f"{node} ({MASTER})")
    verb("ssh-config", "print a block for ~/.ssh/config")
    known_hosts = verb("known-hosts", "print verified host keys")
    known_hosts.add_argument("--table", metavar="NAME", help="the cluster's table, to save looking it up")
    known_hosts.add_argument("--networks", metavar="CIDR,...", help="its networks, which goes with --table")
    known_hosts.add_argument("host", nargs="?")
    verb("run", "run what follows -- on the master, with your SSH agent", usage="-- COMMAND ...")
    verb("status", "list the nodes")
    preflight = verb("preflight", "check, before a deploy, that the account can hold the cluster of ./cdk.json")
    preflight.add_argument(
        "-c", "--context", metavar="NAME=VALUE", action="append", help="a setting, as in cdk deploy -c"
    )
    verb("why", "tell why a deploy failed or a node is missing")
    return parser


def parse_options(arguments: Sequence[str]) -> Options:
    """The options that `arguments` give."""
    words = list(arguments)
    if words[:1] and words[0] in ELSEWHERE:
        raise UsageError(f"no verb {words[0]!r}: {ELSEWHERE[words[0]]}")
    split = words.index("--") if "--" in words else len(words)
    found = vars(_parser().parse_args(words[:split]))
    options = Options(
        verb=found["verb"],
        cluster=found.get("cluster"),
        region=found.get("region"),
        identity=found.get("identity"),
        node=found.get("node", MASTER),
        host=found.get("host"),
        table=found.get("table"),
        networks=found.get("networks"),
        context=tuple(found.get("context") or ()),
        command=tuple(words[split + 1 :]),
    )
    if options.verb == "run" and not options.command:
        raise UsageError("no command given, as in: dlcluster run -- launch python train.py")
    if options.verb not in ("run", "ssh") and split < len(words):
        raise UsageError(f"{options.verb} takes no command, got {' '.join(words[split:])!r}")
    return options
