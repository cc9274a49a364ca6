"""Test the setting ``ssh_keys``: how keys are given, what is refused, and where they are in the template."""

from pathlib import Path
from typing import Any

import pytest

from bootstrap.team_keys.keys import TAG, from_tags
from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.bootstrap.identities import public_key
from tests.bootstrap.team_keys.team_public_keys import ECDSA, ED25519, RSA, WEAK_RSA
from tests.stacks.replacements import compare
from tests.stacks.synthesis import Synthesize

PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture
def _key_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "anna.pub": f"{ED25519} anna@laptop\n",
        "team.keys": f"# the team\n{RSA} bob\n\n{ECDSA} carol\n",
        "nameless": f"{RSA}\n",
        "long.pub": f"{RSA} Bob of the team\n",
        "limited": f'command="date" {RSA} bob\n',
        "id": PRIVATE,
        "empty": "\n",
    }.items():
        Path(name).write_text(text)


@pytest.mark.usefixtures("_key_files")
@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["anna.pub", "team.keys"], ["anna@laptop", "bob", "carol"]),
        ("anna.pub,bob=nameless", ["anna@laptop", "bob"]),
        ([f"{ED25519} anna", f"bob={RSA}", f"carol={ECDSA} old name"], ["anna", "bob", "carol"]),
        (["bob=long.pub"], ["bob"]),
    ],
)
def test_keys_are_files_or_text(given: Any, names: list[str]) -> None:
    props = ClusterProps.from_context({"ssh_keys": given})
    assert [key.name for key in props.team_keys] == names
    assert "no-key" not in props.warnings()


@pytest.mark.usefixtures("_key_files")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["id"], r"^ssh_keys must be public keys, got a private key in 'id'$"),
        ([PRIVATE], r"^ssh_keys must be public keys, got a private key$"),
        (["keys/anna.pub"], "^ssh_keys: there is no file 'keys/anna.pub' in /.*, where cdk.json is$"),
        (["x=none.pub"], "^ssh_keys: there is no file 'none.pub' in /.*, where cdk.json is$"),
        (["/none/anna"], "^ssh_keys: there is no file '/none/anna'$"),
        (["none"], "^ssh_keys must be a file with public keys or a public key, got 'none'$"),
        (["limited"], "'limited' must have keys without options, got 'command="),
        (["nameless"], "'nameless' must have a name, as a comment after the key or as NAME= before"),
        (["long.pub"], "name of a key must be 1 to 64 letters.*, got 'Bob of the team'; write NAME= before it"),
        (["x=team.keys"], "'team.keys' must have exactly one key, got 2"),
        (["empty"], "'empty' must have at least one key, got 0"),
        (["anna.pub", f"bob={ED25519}"], "ssh_keys: key must be unique"),
        (["anna.pub", f"{RSA} anna@laptop"], "ssh_keys: name of a key must be unique"),
        ([f"weak={WEAK_RSA}"], "key weak must be a valid ssh-rsa key of at least 2048 bits"),
        ([f"{public_key(number)} k{number}" for number in range(60)], "must take at most 4096 characters"),
        (7, "ssh_keys must be a list, or text like a,b, got 7"),
    ],
)
def test_unusable_key_is_refused_with_the_reason(given: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ClusterProps.from_context({"ssh_keys": given})


def test_keys_without_room_in_the_tags_are_refused() -> None:
    tags, keys = {f"t{number}": "x" for number in range(40)}, tuple(f"{public_key(n)} k{n}" for n in range(20))
    with pytest.raises(SettingsError, match=r"tags and ssh_keys must take at most 44 tags of the master's .*, got 48"):
        ClusterProps(tags=tags, ssh_keys=keys)


def test_changed_list_changes_the_masters_group_alone_and_replaces_nothing(synthesize: Synthesize) -> None:
    # Neither the nodes' launch templates nor a role contains the keys, so nothing that runs is affected.
    before = synthesize(worker_count=1, key_name="k")
    after = synthesize(worker_count=1, key_name="k", ssh_keys=(f"a={RSA}",))
    update = compare(before, after)
    assert (update.added, update.removed, update.replaced) == (set(), set(), set())
    [changed] = update.changed
    tags = after["Resources"][changed]["Properties"]["Tags"]
    assert {"Key": "Name", "PropagateAtLaunch": True, "Value": "deeplearning-master"} in tags
    ours = [tag for tag in tags if tag["Key"].startswith(TAG)]
    assert from_tags({tag["Key"]: tag["Value"] for tag in ours}) == f"{RSA} a"
    assert not any(tag["PropagateAtLaunch"] for tag in ours)
