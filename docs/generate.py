"""Write the reference pages of the documentation from the code that they describe.

python -m docs.generate            write docs/reference/*.md
python -m docs.generate --check    exit with 1 if a page differs from the code, and name it
"""

import ast
import dataclasses
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bootstrap.files.environment import VARIABLES
from cli.command_group import COMMANDS
from docs.template import ALWAYS, WHEN, permission_rows, resource_types, synthesize
from stacks.settings.props import ClusterProps

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PAGES: Final = REPOSITORY / "docs/reference"
NOTICE: Final = "<!-- Written by python -m docs.generate: edit the code, not this page. -->"
WIDTH: Final = 100
"""Width of the programs' help, in columns."""
LAUNCH_COMMANDS: Final = ("list", "status", "logs", "stop", "close")


def settings_page() -> str:
    """Return the table of the settings: default and the docstring of each field."""
    described = dict(_field_docstrings())
    rows = [
        f"| `{field.name}` | {_default(field)} | {_cell(described[field.name])} |"
        for field in dataclasses.fields(ClusterProps)
    ]
    return _page(
        "Settings",
        'Settings stand in the `"cluster"` object of `cdk.json`; `-c name=value` overrides one for one command.\n'
        "How they behave, and what a change does to a running cluster: [Change a cluster](../settings.md).\n",
        "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n",
    )


def dlcluster_page() -> str:
    """Return the help of ``dlcluster`` and of each command."""
    return _page(
        "dlcluster",
        "`dlcluster` runs on your own machine. It finds the cluster by its name in the account and region of your "
        "credentials.\n",
        _help("dlcluster", "cli"),
        *(f"## {command}\n\n{_help('dlcluster', 'cli', command)}" for command in sorted(COMMANDS)),
    )


def launch_page() -> str:
    """Return the help of ``launch`` and of each of its commands."""
    return _page(
        "launch",
        "`launch` runs on the master. What its options do together: [launch in depth](../launch.md).\n",
        _help("launch", "launcher"),
        *(f"## launch {command}\n\n{_help('launch', 'launcher', command)}" for command in LAUNCH_COMMANDS),
    )


def trainer_page() -> str:
    """Return the help of the bundled trainer."""
    return _page(
        "Trainer",
        "The options of `launch python /opt/deeplearning/trainer`. What they mean together: "
        "[the bundled trainer](../trainer.md).\n",
        _help("trainer", "trainer"),
    )


def variables_page() -> str:
    """Return the names that scripts can use on every node."""
    rows = [f"| `{variable.name}` | {variable.meaning} |" for variable in VARIABLES]
    return _page(
        "Names and variables",
        "What every node has, in login shells, in `ssh host command` and in systemd units. `launch` adds torchrun's "
        "variables ([which](../launch.md#frameworks)).\n",
        "| variable | meaning |\n|---|---|\n" + "\n".join(rows) + "\n",
        "| name | meaning |\n|---|---|\n"
        "| `deeplearning-master` | host name of the master |\n"
        "| `deeplearning-worker1` ... `deeplearning-workerN` | host names of all nodes; worker1 is the master |\n"
        "| `/opt/deeplearning/workers` | the workers file |\n"
        "| `/opt/deeplearning/trainer` | the bundled trainer |\n"
        "| `/opt/pytorch` | the image's PyTorch environment; under `launch`, `python` is its Python |\n",
    )


def template_page() -> str:
    """Return what the nodes' roles may do, and the types of the stack's resources."""
    templates = {when: synthesize(settings) for when, settings in WHEN.items()}
    types = {when: resource_types(template) for when, template in templates.items()}
    every = sorted(set().union(*types.values()))
    rows = [
        f"| {row.effect} | {row.roles} | {_code(*row.actions)} | {_code(row.resource)} | {_code(row.condition)} | "
        f"{row.when} |"
        for row in permission_rows(templates)
    ]
    return _page(
        "Permissions of nodes, and resources",
        "From the template, for the default settings and for [`private`](../settings.md#a-private-cluster). `<TYPE>` "
        "is the stack's resource of\nthis type, `STACK` the stack itself; `HASH` is that of the bundle, which new "
        "nodes fetch. Secrets, file systems, and your own buckets, keys\nand policies add permissions: `cdk synth` "
        "prints the template of your settings.\n",
        "## What nodes may do\n\nWhy: [decision 006](../decisions/006-what-a-node-may-do.md).\n",
        "| effect | role | actions | resource | condition | when |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n",
        "## Resource types\n\nOther settings add types, such as `AWS::Scheduler::Schedule` for `expires`.\n",
        "| type | when |\n|---|---|\n" + "\n".join(f"| `{name}` | {_when(name, types)} |" for name in every) + "\n",
    )


BUILDERS: Final = {
    "settings.md": settings_page,
    "dlcluster.md": dlcluster_page,
    "launch.md": launch_page,
    "trainer.md": trainer_page,
    "variables.md": variables_page,
    "template.md": template_page,
}


def stale_pages(directory: Path = PAGES) -> Iterator[str]:
    """Yield the names of pages that differ from the code."""
    for name, build in BUILDERS.items():
        page = directory / name
        if not page.exists() or page.read_text() != build():
            yield name


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them; return the exit code."""
    if "--check" in arguments:
        stale = list(stale_pages())
        for name in stale:
            sys.stderr.write(f"docs/reference/{name} differs from the code: python -m docs.generate\n")
        return 1 if stale else 0
    PAGES.mkdir(exist_ok=True)
    for name, build in BUILDERS.items():
        (PAGES / name).write_text(build())
    return 0


def _page(title: str, *parts: str) -> str:
    return "\n".join((f"# {title}\n", f"{NOTICE}\n", *parts))


def _help(program: str, module: str, *words: str) -> str:
    """Return a command's help as a block of text."""
    environment = {
        **os.environ,
        "COLUMNS": str(WIDTH),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "AWS_EC2_METADATA_DISABLED": "1",
    }
    command = [sys.executable, "-m", module, *words, "--help"]
    found = subprocess.run(command, env=environment, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return f"```text\n$ {' '.join((program, *words))} --help\n{found.rstrip()}\n```\n"


def _field_docstrings() -> Iterator[tuple[str, str]]:
    """Yield each setting's name and the docstring below its field."""
    for cls in ClusterProps.__mro__:
        if cls.__module__.startswith("stacks."):
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in zip(definition.body, definition.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    yield ast.unparse(field.target), str(ast.literal_eval(text.value))


def _default(field: "dataclasses.Field[object]") -> str:
    if field.default is dataclasses.MISSING or field.default in (None, ()):
        return "none"
    if isinstance(field.default, tuple):
        return f"`{','.join(field.default)}`"
    return f"`{field.default}`"


def _when(name: str, types: Mapping[str, Sequence[str]]) -> str:
    whens = [when for when, names in types.items() if name in names]
    return ALWAYS if len(whens) == len(types) else " and ".join(whens)


def _code(*values: str) -> str:
    return ", ".join(f"`{value}`" for value in values if value)


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
