"""Read what the validators found in a synthesized stack."""

import json
from pathlib import Path

IGNORED = {
    "W3005": "the CDK adds a dependency on the role to each launch template, needed or not",
    "W3010": "the zone is written out only where the user chose it",
}


def violations(outdir: Path) -> list[tuple[str, str]]:
    report = json.loads((outdir / "validation-report.json").read_text())
    return [
        (violation["ruleName"], place["constructPath"])
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        if not violation["ruleName"].startswith("Annotation::deeplearning:")
        for place in violation["violatingConstructs"]
    ]
