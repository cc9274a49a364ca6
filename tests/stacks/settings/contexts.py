"""Generate contexts of settings: valid ones, nearly valid ones, and garbage of every JSON type, always the same."""

import ipaddress
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from bootstrap import contract
from stacks.catalog import instance_types
from stacks.catalog.gpu_types import GPU_TYPES
from stacks.settings.props import SETTINGS

# Otherwise its cache of character tables would be in the checkout.
set_hypothesis_home_dir(Path(tempfile.gettempdir(), "hypothesis"))

Context = dict[str, Any]

AMIS = st.sampled_from(["ami-0123456789abcdef0", "ami-01234567", "/team/ami", "/aws/service/a_b.c-d/latest"])
TAG_TEXT = st.text("abzABZ019 +-=.:/@_éß漢", max_size=60)
_RESERVATION = {"capacity_reservation": "cr-0123456789abcdef0"}
RESERVED = [{"purchase": purchase} | _RESERVATION for purchase in ("reservation", "capacity-block")]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=8,
)
ODD_TEXT = st.sampled_from(
    [
        "\n",
        "\u2028x",
        "${Token[TOKEN.1]}",
        "x" * 5000,
        "{" * 3000,
        '{"a":' * 3000,
        "-1",
        "1e3",
        "0x10",
        "None",
        "☃",
        "::1/0",
    ]
)


def run(strategy: st.SearchStrategy[Context], count: int, check: Callable[[Context], None]) -> None:
    """Check ``count`` contexts; on a failure, Hypothesis reports the simplest one."""

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(strategy)
    def checked(context: Context) -> None:
        check(context)

    checked()


@st.composite
def valid(draw: st.DrawFn) -> Context:
    """Draw settings that make a cluster, some in the ``cluster`` object and some as ``-c`` gives them."""
    chosen = draw(_machine()) | draw(_network())
    optional: dict[str, st.SearchStrategy[Any]] = {
        "cluster_name": st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,62}", fullmatch=True),
        "key_name": st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="$~/"), min_size=1),
        "ssh_location": st.ip_addresses(v=4).map(lambda address: f"{address}/32") | st.just("0.0.0.0/0"),
        "availability_zone": st.sampled_from(["us-east-1a", "us-east-1f", "us-west-2-lax-1a"]),
        "expires": st.sampled_from(["2999-12-01T18:00:00+01:00", "2999-12-01T18:00Z"]),
        "bucket": st.sampled_from(["kept", "kept-by.an-earlier-1", "deeplearning-clustercheckpointsbucket-1a2b"]),
        "root_volume_gib": st.integers(75, 16384),
        "tags": st.dictionaries(TAG_TEXT.filter(_usable_as_name), TAG_TEXT.filter(bool), max_size=5).filter(_differ),
    }
    chosen |= draw(st.fixed_dictionaries({}, optional=optional))
    chosen |= {} if "ssh_location" in chosen else draw(st.sampled_from([{}, {"private": True}, {"private": False}]))
    # A larger block, because each zone takes a part of it.
    zones = {"zones": "us-east-1a, us-east-1f, us-west-2-lax-1a", "vpc_cidr": "10.0.0.0/16"}
    # A reservation is in one zone, and so is a block.
    chosen |= draw(st.sampled_from([{}, zones, {"purchase": "spot"}, zones | {"purchase": "spot"}, *RESERVED]))
    chosen |= draw(_master(chosen))
    chosen |= _fabric(chosen, draw(st.sampled_from(["auto", "off"])))
    return _divided(chosen, on_command_line=draw(st.sets(st.sampled_from(SETTINGS))))


@st.composite
def nearly_valid(draw: st.DrawFn) -> Context:
    """Draw a valid context, mostly with one or two things wrong."""
    context = draw(valid())
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from([context, context["cluster"]]))
        name = draw(st.sampled_from(SETTINGS))
        value = place.get(name, "")
        if draw(st.booleans()):
            place[name] = draw(JSON | ODD_TEXT | st.integers(-2, 20000))
        elif isinstance(value, str):
            place[name] = draw(_misspelled(value))
        else:
            place[draw(_misspelled(name))] = place.pop(name)
    return context


def garbage() -> st.SearchStrategy[Context]:
    """Draw anything that JSON can express, under the settings' names and others."""
    names = st.sampled_from([*SETTINGS, "cluster"]) | st.text(max_size=20)
    anything = JSON | ODD_TEXT
    mostly_settings = st.dictionaries(st.sampled_from(SETTINGS), anything, max_size=4)
    return st.dictionaries(names, anything, max_size=4) | st.fixed_dictionaries({"cluster": mostly_settings})


@st.composite
def _machine(draw: st.DrawFn) -> Context:
    driven = [name for name, known in GPU_TYPES.items() if not known.needs_ami]
    kind = draw(st.sampled_from(["default", "catalog", "own image", "own figure"]))
    if kind == "default":
        return {}
    if kind == "catalog":
        name = draw(st.sampled_from([*driven, "c5.large", "m7i.4xlarge", "t3.medium"]))
        known = instance_types.find(name)
        assert known is not None
        return {"instance_type": name} | draw(st.sampled_from([{}, {"gpu_count": known.gpus}]))
    if kind == "own image":
        return {"instance_type": draw(st.sampled_from(["p2.xlarge", "m7g.large", "z9.huge"])), "ami": draw(AMIS)}
    return {"instance_type": "z9.4xlarge", "gpu_count": draw(st.integers(0, 16))}


@st.composite
def _master(draw: st.DrawFn, chosen: Context) -> Context:
    """Draw a master's own type; such a master does not train, so it needs a worker, and both boot one image."""
    if chosen.get("worker_count") == 0 or chosen.get("frameworks") or chosen.get("instance_type") == "m7g.large":
        return {}
    return draw(st.sampled_from([{}, {"master_instance_type": "m7i.xlarge"}, {"master_trains": False}]))


def _fabric(chosen: Context, efa: str) -> Context:
    """Turn EFA off for a public node with several EFA interfaces, which could have no public address."""
    known = instance_types.find(chosen.get("instance_type", ""))
    needs_private = known is not None and known.efa_interfaces > 1 and not chosen.get("private")
    return {"efa": "off" if needs_private else efa}


@st.composite
def _network(draw: st.DrawFn) -> Context:
    length = draw(st.integers(16, 27))
    address = ipaddress.ip_address(f"10.{draw(st.integers(0, 255))}.{draw(st.integers(0, 255))}.0")
    block = ipaddress.ip_network(f"{address}/{length}", strict=False)
    maximum = min(contract.MAX_WORKERS, block.num_addresses // 2 - 5)
    return {"vpc_cidr": str(block), "worker_count": draw(st.integers(0, maximum))}


def _misspelled(word: str) -> st.SearchStrategy[str]:
    place = st.integers(0, max(len(word) - 1, 0))
    character = st.characters() | st.sampled_from("-_ ./0")
    return st.tuples(place, character).map(lambda change: word[: change[0]] + change[1] + word[change[0] + 1 :])


def _usable_as_name(text: str) -> bool:
    return bool(text.strip()) and text == text.strip() and not text.lower().startswith(("aws:", "deeplearning:"))


def _differ(tags: dict[str, str]) -> bool:
    return len({name.lower() for name in tags}) == len(tags)


def _divided(chosen: Context, *, on_command_line: set[str]) -> Context:
    """Move settings to the command line, which gives only text: ``-c worker_count=3``."""
    single = {name: value for name, value in chosen.items() if name in on_command_line and name != "tags"}
    rest = {name: value for name, value in chosen.items() if name not in single}
    return {"cluster": rest, **{name: str(value) for name, value in single.items()}}
