"""Faults of the local AWS: break its nodes, their disks and network, and its control plane.

These are real faults of real nodes, caused from outside as a failing host, switch or service would cause them:

    faults = Faults(run_dir)
    faults.freeze("worker2")
    faults.partition("worker3", "master")
    faults.undo_all()

By hand: ``local-aws fault freeze worker2``. ``local.chaos.plan`` draws a sequence of faults; ``local.chaos.observer``
checks whether the cluster has recovered.
"""

from local.faults.faults import Faults

__all__ = ["Faults"]
