"""Check that the name of the login's key is found, in files of sshd's form."""

from pathlib import Path

import pytest

from launcher.job_records.key_name import key_name

ANNA, BOB, PAIR = ("ssh-ed25519 AAAAanna", "ssh-rsa AAAAbob", "ssh-ed25519 AAAApair")


@pytest.mark.parametrize(
    ("login", "name"),
    [
        (f"publickey {BOB}\n", "bob"),
        (f"keyboard-interactive\npublickey {ANNA}\n", "anna@laptop"),
        (f"publickey {PAIR}\n", "mine"),
        ("publickey ssh-ed25519 AAAAother\n", None),
        (f"hostbased {ANNA}\n", None),
        (None, None),
    ],
)
def test_key_of_the_login_is_named_by_its_comment(tmp_path: Path, login: str | None, name: str | None) -> None:
    team, own, exposed = tmp_path / "etc/deeplearning/team_keys/u", tmp_path / ".ssh/authorized_keys", tmp_path / "auth"
    for file, text in ((team, f"{ANNA} anna@laptop\n{BOB} bob\n"), (own, f"\n# mine\n{PAIR} mine\n{BOB} other\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    if login is not None:
        exposed.write_text(login)
    assert key_name({"SSH_USER_AUTH": str(exposed)}, user="u", root=tmp_path, home=tmp_path) == name


def test_key_has_no_name_without_a_login(tmp_path: Path) -> None:
    assert key_name({}, user="u", root=tmp_path, home=tmp_path) is None
