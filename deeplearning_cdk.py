"""Import the constructs into a CDK app of your own: ``from deeplearning_cdk import ClusterProps, ClusterStack``.

The constructs are packages named stacks and bootstrap at the top level. An app with a package of such a name hides
ours: this import then names the conflict, instead of failing with a missing module.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("bootstrap", "stacks")


def _check_not_hidden() -> None:
    """Raise ImportError if Python finds another package under the name of one of ours."""
    here = Path(__file__).resolve().parent
    for name in PACKAGES:
        spec = find_spec(name)
        places = [] if spec is None else [Path(place).resolve() for place in spec.submodule_search_locations or ()]
        if here / name not in places:
            found = ", ".join(map(str, places)) or (spec and spec.origin) or "nothing"
            raise ImportError(
                f"package {name} must be deeplearning-cdk's {here / name}, Python finds {found}: rename it"
            )


_check_not_hidden()

from stacks.cluster import DeepLearningCluster  # noqa: E402  (after the check)
from stacks.settings.props import ClusterProps  # noqa: E402  (after the check)
from stacks.stack import ClusterStack  # noqa: E402  (after the check)

__all__ = ["ClusterProps", "ClusterStack", "DeepLearningCluster"]
