"""Check how the tutorials' console blocks are read and compared."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.support.console_blocks import Step, outputs, script, sessions, steps

PAGE = """\
# A page

```text
laptop$ not run
```

```console
laptop$ echo one   # a remark
one
master$ cd /tmp
master$ cat <<'END'
> first
>
> second
> END
first
second
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    return page


def test_page_is_parsed_into_commands_and_outputs(page: Path) -> None:
    assert [(step.machine, step.command, step.shown) for step in steps(page)] == [
        ("laptop", "echo one", ["one"]),
        ("master", "cd /tmp", []),
        ("master", "cat <<'END'\nfirst\n\nsecond\nEND", ["first", "second"]),
    ]


def test_session_shares_a_shell(page: Path) -> None:
    for _, session in sessions(page):
        printed = subprocess.run(["bash", "-c", script(session)], capture_output=True, text=True, check=True).stdout
        for step, found in zip(session, outputs(printed), strict=True):
            assert step.differences(found) == []


def test_command_that_fails_is_a_difference() -> None:
    step = Step(machine="laptop", command="false")
    printed = subprocess.run(["bash", "-c", script([step])], capture_output=True, text=True, check=True).stdout
    assert step.differences(outputs(printed)[0]) == ["not shown: exit code 1"]


@pytest.mark.parametrize(
    ("shown", "printed", "differences"),
    [
        (["a 1", "b"], ["b", "a 22"], []),
        (["a"], ["a", "b"], ["not shown: b"]),
        (["a", "b"], ["a"], ["not printed: b"]),
        (["...", "b"], ["a", "b"], []),
        (["...", "b"], ["a"], ["not printed: b"]),
        (["i-0123456789abcdef0 10.0.0.1"], ["i-0123456789abcdef1  10.0.1.1"], []),
        (["job 20261124-195324-42877a0 runs"], ["job 20261125-080000-003beef runs"], []),
    ],
)
def test_lines_that_differ_are_listed(shown: list[str], printed: list[str], differences: list[str]) -> None:
    assert Step(machine="laptop", command="", shown=shown).differences(printed) == differences
