"""Check the documentation: generated pages match the code, files that pages name exist, lists render.

``make lint`` compares all reference pages with the code and checks links and anchors.
"""

import html
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bootstrap import contract
from docs import generate, pictures
from docs.template import permission_rows
from stacks.catalog.gpu_types import GPU_TYPES
from stacks.nodes.network_interfaces import network_interfaces
from stacks.settings.props import SETTINGS
from tests.e2e.support.console_blocks import OMITTED, general, steps
from tests.tree import files_below

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = files_below(REPOSITORY / "docs", "*.md")
NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]
ROOMS = "stacks|bootstrap|launcher|trainer|cli|local|tests|benchmarks|examples|docs"


def text_lines(page: Path) -> Iterator[str]:
    """Yield the lines outside of fenced blocks."""
    fenced = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A page about a package may name files relative to it."""
    named = re.findall(rf"`((?:{ROOMS})/[\w./-]+\.(?:py|md|sh|json|svg))`", page.read_text())
    roots = (REPOSITORY, REPOSITORY / page.stem)
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_symbols_that_a_page_names_are_in_their_file(page: Path) -> None:
    """A page writes `file` (`symbol`, `symbol`)."""
    pairs = re.findall(rf"`((?:{ROOMS})/[\w./-]+\.py)`\s+\((`[^)]*`)\)", page.read_text())
    missing = [
        f"{file} {symbol}"
        for file, symbols in pairs
        for symbol in re.findall(r"`([A-Za-z_][\w.]*)`", symbols)
        if not re.search(rf"\b{symbol.rpartition('.')[2]}\b", (REPOSITORY / file).read_text())
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_list_follows_an_empty_line(page: Path) -> None:
    """GitHub shows a list without one, but the built pages do not."""
    lines = list(text_lines(page))
    starts = [now for before, now in pairwise(lines) if is_item(now) and is_text(before)]
    assert starts == []


def is_item(line: str) -> bool:
    return re.match(r"(-|\d+\.) ", line) is not None


def is_text(line: str) -> bool:
    return bool(line.strip()) and not is_item(line) and not line.startswith(" ")


def test_page_that_differs_from_the_code_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "BUILDERS", {"settings.md": generate.settings_page})
    page = tmp_path / "settings.md"
    assert list(generate.stale_pages(tmp_path)) == ["settings.md"]
    page.write_text(generate.settings_page())
    assert list(generate.stale_pages(tmp_path)) == []
    page.write_text(page.read_text().replace("g6.xlarge", "g5.xlarge"))
    assert list(generate.stale_pages(tmp_path)) == ["settings.md"]


def test_permissions_of_two_templates_are_merged_into_rows() -> None:
    arn = {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":s3:::", {"Fn::Sub": "b-${AWS::AccountId}"}]]}

    def template(*statements: dict[str, Any]) -> dict[str, Any]:
        policies = {
            f"Policy{role}": {
                "Type": "AWS::IAM::Policy",
                "Properties": {"PolicyDocument": {"Statement": statements}, "Roles": [{"Ref": f"Roles{role}0A1B"}]},
            }
            for role in ("Master", "Worker")
        }
        return {"Resources": {"Table0A1B": {"Type": "AWS::DynamoDB::Table"}, **policies}}

    always = {"Effect": "Allow", "Action": ["b", "a"], "Resource": [arn, {"Fn::GetAtt": ["Table0A1B", "Arn"]}]}
    private = {"Effect": "Deny", "Action": "c", "Resource": "*", "Condition": {"Bool": {"x": "true"}}}
    rows = permission_rows({"public": template(always), "private": template(private, always)})
    assert rows == [
        ("Allow", "master and worker", ("a", "b"), "<AWS::DynamoDB::Table>", "", "always"),
        ("Allow", "master and worker", ("a", "b"), "arn:PARTITION:s3:::b-ACCOUNT", "", "always"),
        ("Deny", "master and worker", ("c",), "*", '{"Bool": {"x": "true"}}', "private"),
    ]


def test_settings_page_has_every_setting() -> None:
    assert re.findall(r"^\| `(\w+)` ", generate.settings_page(), re.MULTILINE) == list(SETTINGS)


def test_variables_page_has_every_variable_of_the_contract() -> None:
    shown = re.findall(r"^\| `((?:DEEPLEARNING|EFS)_\w+)` ", generate.variables_page(), re.MULTILINE)
    names = {value for name, value in vars(contract).items() if name.endswith("_VARIABLE")}
    assert sorted(names - {*shown}) == []


def types_in(cell: str) -> Iterator[str]:
    """Yield the types that a cell of a table names, such as ``g6.8xlarge to 24xlarge, p5.4xlarge``."""
    for first, last in re.findall(r"([\w-]+\.\w+)(?: to (\w+))?", cell):
        family = first.partition(".")[0]
        types = [known.name for known in GPU_TYPES.values() if known.family == family]
        end = f"{family}.{last}" if last else first
        yield from types[types.index(first) : types.index(end) + 1]


def test_page_about_capacity_has_every_type_with_efa() -> None:
    page = (REPOSITORY / "docs/use/capacity.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| one(?: for addresses, (\d+)|,) with EFA \| ([^|]+) \|$", page, re.MULTILINE)
    described = {name: (int(count or 1), master) for types, count, master in rows for name in types_in(types)}
    assert described == {
        known.name: (
            known.efa_interfaces,
            "public or private" if len(network_interfaces(known, [])) == 1 else "private",
        )
        for known in GPU_TYPES.values()
        if known.efa_interfaces
    }


@pytest.mark.parametrize("name", pictures.PAGES)
def test_picture_shows_what_its_page_shows(name: str) -> None:
    """After a change of the page or of the output, ``make docs-pictures`` draws it again."""
    svg = (pictures.PICTURES / f"{name}.svg").read_text()
    drawn = {general(html.unescape(text).replace("\xa0", " ")) for text in re.findall(r"<text[^>]*>(.*?)</text>", svg)}
    shown = [line for step in steps(pictures.PAGES[name]) for line in step.shown if line != OMITTED]
    assert shown
    assert [line for line in shown if general(line) not in drawn] == []


def test_pictures_fetch_nothing() -> None:
    for path in pictures.PICTURES.glob("*.svg"):
        assert re.findall(r"(?:src|href|url)\W+(?:https?:)?//", path.read_text()) == []
