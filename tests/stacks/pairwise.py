"""Create rows of settings in which every two values of two settings occur together, as far as they can.

Most faults that depend on settings depend on two of them (NIST SP 800-142, "Practical Combinatorial Testing").
"""

import random
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.bootstrap.identities import public_key
from tests.stacks import existing_vpc, pinned_block

_KEY: Final = "arn:aws:kms:us-west-2:111111111111:key/12345678-1234-1234-1234-123456789012"
_OWN_VPC: Final = {"vpc_id": existing_vpc.VPC, "subnet_id": existing_vpc.WORKERS}
_SETUP: Final = {"setup": str(Path(__file__).with_name("setup.sh")), "setup_timeout": "20m"}
_REQUIREMENTS: Final = {"requirements": str(Path(__file__).parents[2] / "examples/requirements.txt")}
PARAMETERS: Final[dict[str, list[dict[str, Any]]]] = {
    "name": [{}, {"cluster_name": "v2", "role_name_prefix": "team-"}],
    "tags": [{}, {"tags": {"team": "vision", "cost center": "a:b/c"}}],
    "workers": [{}, {"worker_count": 0}, {"worker_count": 4, "min_workers": 1}, {"worker_count": 4, "min_workers": 0}],
    "type": [
        {},
        {"instance_type": "c5.large", "gpu_count": 0},
        {"instance_type": "g5.8xlarge"},
        {"instance_type": "p5.48xlarge"},
        {"instance_type": "m7g.large", "ami": "ami-0123456789abcdef0"},
    ],
    "master": [{}, {"master_instance_type": "m7i.xlarge"}, {"master_trains": False}],
    "fabric": [{}, {"efa": "off"}, {"placement_group": "off"}],
    "purchase": [
        {},
        {"purchase": "spot"},
        {"purchase": "reservation", "capacity_reservation": "cr-0123456789abcdef0"},
        {"purchase": "capacity-block", "capacity_reservation": pinned_block.BLOCK},
    ],
    "image": [{}, {"ami": "/team/ami"}],
    "disk": [{}, {"root_volume_gib": 500}],
    "log in": [{}, {"key_name": "mine", "ssh_location": ("203.0.113.0/24", "198.51.100.7/32")}],
    "team": [{}, {"ssh_keys": (f"ann={public_key(1)}", f"{public_key(2)} bob@laptop")}],
    "network": [
        {},
        {"vpc_cidr": "10.7.0.0/20", "availability_zone": "us-west-2c"},
        {**_OWN_VPC, "master_subnet_id": existing_vpc.MASTER},
        {"private": True},
        {**_OWN_VPC, "private": True},
    ],
    "zones": [{}, {"zones": ("us-west-2b", "us-west-2c")}],
    "hardened": [{}, {"hardened": True, "kms_key": _KEY}],
    "key": [{}, {"kms_key": _KEY}],
    "egress": [{}, {"egress": ("10.0.0.0/8", "pl-63a5400a")}],
    "flow logs": [{}, {"flow_logs": True}],
    "boundary": [{}, {"permissions_boundary": "team-limit"}],
    "bucket": [{}, {"bucket": "kept-by-an-earlier.cluster"}],
    "shared storage": [
        {},
        {"shared_storage": "efs"},
        {"shared_storage": "efs:fs-01234567"},
        {"shared_storage": "lustre:fs-0123456789abcdef0"},
    ],
    "data": [{}, {"data_buckets": ("images", "team/results:rw"), "data_keys": (_KEY,)}],
    "policies": [{}, {"policy_arns": ("arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",)}],
    "secrets": [{}, {"secrets": ("ssm:/team/wandb", "secretsmanager:team/hub"), "secret_keys": (_KEY,)}],
    "frameworks": [{}, {"frameworks": ("mxnet", "horovod")}],
    "setup": [{}, _SETUP, _REQUIREMENTS, _SETUP | _REQUIREMENTS],
    "end": [{}, {"expires": "2999-12-01T18:00:00Z"}, {"expires": "2999-12-01T18:00:00Z", "expiry_action": "delete"}],
    "idle": [{}, {"idle_stop": "30m"}],
}
"""Values of each parameter, a group of settings that belong together."""
_TRIES: Final = 10
"""Number of orders of the parameters tried for a row; the one that adds most pairs is used."""

Choice = tuple[str, int]
Pair = frozenset[Choice]


def settings_of(row: dict[str, int]) -> dict[str, Any]:
    """Return the settings of a row; of repeated settings, the last one counts."""
    return {name: value for parameter, chosen in row.items() for name, value in PARAMETERS[parameter][chosen].items()}


def props_of(row: dict[str, int]) -> ClusterProps:
    """Return the row's settings as cdk.json gives them. Raises SettingsError if they exclude each other."""
    lists = {name: [*value] if isinstance(value, tuple) else value for name, value in settings_of(row).items()}
    return ClusterProps.from_context({"cluster": lists})


def possible_pairs() -> dict[Pair, dict[str, int]]:
    """Return the pairs of values that a cluster can have, each in a row that defaults can complete."""
    choices = [(parameter, number) for parameter, values in PARAMETERS.items() for number in range(len(values))]
    found = {}
    for pair in combinations(choices, 2):
        if pair[0][0] != pair[1][0]:
            # Some values require a third one: Lustre, for example, requires an existing VPC.
            wider = ({**dict(pair), third[0]: third[1]} for third in choices if third[0] not in dict(pair))
            if (row := next(filter(_agrees, (dict(pair), *wider)), None)) is not None:
                found[frozenset(pair)] = row
    return found


def rows(seed: int) -> Iterator[dict[str, int]]:
    """Yield an endless sequence of rows; the first ones contain every possible pair, and later ones random pairs."""
    shuffle = random.Random(seed)
    missing = possible_pairs()
    while True:
        best = max((_row(shuffle, missing) for _ in range(_TRIES)), key=lambda row: len(missing.keys() & pairs(row)))
        for pair in missing.keys() & pairs(best):
            del missing[pair]
        yield best


def _row(shuffle: random.Random, missing: dict[Pair, dict[str, int]]) -> dict[str, int]:
    """Return a row that starts with a missing pair, if there is one; each further value adds the most pairs."""
    row = dict(shuffle.choice([*missing.values()])) if missing else {}
    for parameter in shuffle.sample(list(PARAMETERS), len(PARAMETERS)):
        if parameter not in row:
            numbers = shuffle.sample(range(len(PARAMETERS[parameter])), len(PARAMETERS[parameter]))
            numbers.sort(key=lambda number: -_gain(row, (parameter, number), missing))
            row[parameter] = next(number for number in numbers if _agrees({**row, parameter: number}))
    return row


def _gain(row: dict[str, int], choice: Choice, missing: dict[Pair, dict[str, int]]) -> int:
    return sum(frozenset([choice, item]) in missing for item in row.items())


def pairs(row: dict[str, int]) -> set[Pair]:
    """Return the pairs of a row."""
    return {frozenset(pair) for pair in combinations(row.items(), 2)}


def _agrees(row: dict[str, int]) -> bool:
    """Return True if the values are compatible, and none replaces another's setting."""
    named = [name for parameter, chosen in row.items() for name in PARAMETERS[parameter][chosen]]
    try:
        props = props_of(row)
    except SettingsError:
        return False
    if props.unreachable_master_reason is not None:
        return False
    # Only the lookup reveals that a subnet is public, which a private cluster cannot use.
    return len(named) == len(set(named)) and not (props.private and props.master_subnet == existing_vpc.MASTER)
