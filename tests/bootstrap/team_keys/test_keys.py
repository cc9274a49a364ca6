"""Check which lists of keys are accepted, and that tags contain them completely."""

import pytest

from bootstrap.team_keys.keys import MAX_TEXT, TAG, TAG_LENGTH, KeyListError, from_tags, parse, to_tags
from tests.bootstrap.identities import public_key
from tests.bootstrap.team_keys.team_public_keys import ED25519, ED25519_FINGERPRINT, EVERY_TYPE, RSA, WEAK_RSA

ALL = " ".join(f"{key} key-{number}" for number, key in enumerate(EVERY_TYPE))


def test_tags_hold_keys_of_every_type() -> None:
    tags = to_tags(parse(ALL))
    assert from_tags(tags) == ALL
    assert max(map(len, tags.values())) <= TAG_LENGTH
    # AWS need not preserve a space at either end.
    assert not any(" " in value for value in tags.values())
    assert parse(f"{ED25519} anna")[0].fingerprint == ED25519_FINGERPRINT


def test_missing_tags_mean_an_empty_key_list() -> None:
    assert to_tags(()) == {}
    assert from_tags({"Name": "demo-master"}) == ""


def test_tags_mixed_from_two_key_lists_are_refused() -> None:
    # CloudFormation may change one tag before another.
    old, new = to_tags(parse(ALL)), to_tags(parse(f"{RSA} bob {ED25519} anna"))
    unhashed = {name: part for name, part in old.items() if name != TAG}
    for tags in (old | {TAG: new[TAG]}, old | {f"{TAG}:01": new[f"{TAG}:01"]}, {TAG: old[TAG]}, unhashed):
        with pytest.raises(KeyListError, match="must hold one list of keys"):
            from_tags(tags)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ED25519}", "must be types, keys and names"),
        (f"{ED25519} anna {ED25519} bob", "key must be unique"),
        (f"{ED25519} anna {RSA} anna", "name of a key must be unique, got 'anna' more than once"),
        (f"{WEAK_RSA} bob", "key bob must be a valid ssh-rsa key of at least 2048 bits, got 'AAAA"),
        (f"{ED25519[:-4]} anna", "key anna must be a whole ssh-ed25519 key"),
        (f"{RSA.replace('ssh-rsa', 'ssh-ed25519')} anna", "key anna must be a whole ssh-ed25519 key"),
        ("ssh-dss AAAA anna", "type of key anna must be one of ssh-ed25519, ssh-rsa"),
        (f"{ED25519} anna\nssh-rsa", "name of a key must be 1 to 64 letters"),
        (f'command="x" {ED25519}', "name of a key must be"),
        (" ".join(f"{public_key(number)} k{number}" for number in range(60)), f"must take at most {MAX_TEXT}"),
    ],
)
def test_hostile_list_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(KeyListError, match=message):
        parse(text)
