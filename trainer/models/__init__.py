"""Networks of ``--network``: each has a file here, and an entry in NETWORKS of registry.py."""

from trainer.models.registry import NETWORKS, ImageShape, build, call, check_logits, check_network

__all__ = ["NETWORKS", "ImageShape", "build", "call", "check_logits", "check_network"]
