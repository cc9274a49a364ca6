"""Check that commands and paths in the README and the contributor's guide exist."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from stacks.prices.price_list import price_list
from stacks.settings.props import ClusterProps
from tests.layout import FOLDERS

REPOSITORY = Path(__file__).parents[1]
GUIDE = (REPOSITORY / "CONTRIBUTING.md").read_text()
TEXT = (REPOSITORY / "README.md").read_text() + GUIDE


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"\bmake ([a-z]+)\b +[#|]", TEXT)) | {"demo", "test", "clean"})
)
def test_make_targets_in_the_readme_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([\w/.-]+)(?:#[\w-]+)?\)", TEXT))))
def test_files_linked_in_the_readme_exist(path: str) -> None:
    assert (REPOSITORY / path).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(\w+/[\w/.-]*)`", GUIDE))))
def test_paths_in_the_contributors_guide_exist(path: str) -> None:
    assert (REPOSITORY / path).exists()


def test_contributors_guide_has_a_row_for_every_folder() -> None:
    assert set(re.findall(r"^\| `(\w+)/` ", GUIDE, re.MULTILINE)) == FOLDERS - {"bin"}


def test_settings_on_the_command_line() -> None:
    settings = set(re.findall(r"-c (\w+)=", TEXT))
    assert settings
    assert settings <= {field.name for field in fields(ClusterProps)}


def test_readme_is_short_and_names_its_limits_first() -> None:
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    assert len(lines) <= 130
    first_screen = "\n".join(lines[:40])
    for needed in ("docs/aws-truth.md", "make demo", "make test", "cdk destroy", "launch"):
        assert needed in first_screen


def test_readme_names_the_date_of_the_prices() -> None:
    section = (REPOSITORY / "README.md").read_text().partition("## What it costs")[2]
    assert price_list("us-east-1").date in section.partition("\n## ")[0]


def test_readmes_session_has_seven_lines() -> None:
    session = (REPOSITORY / "README.md").read_text().partition("```console\n")[2].partition("```")[0]
    assert len(session.splitlines()) == 7


def test_readme_compares_ten_properties_whose_sources_are_on_their_page() -> None:
    compared = (REPOSITORY / "docs/compared.md").read_text().partition("## Row by row")[2].partition("\n## ")[0]
    shown = (REPOSITORY / "README.md").read_text().partition("## Why not another tool")[2].partition("\n## ")[0]
    # The first one is the table's head.
    sources, rows = (re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[1:] for table in (compared, shown))
    assert rows == sources
    assert len(rows) == 10
