"""Breaking things in a local AWS, on purpose: nodes, their disks and network, the control plane.

Real faults of real nodes, made from outside as a failing host, switch or service would make them:

    faults = Faults(run_dir)
    faults.freeze("worker2")
    faults.partition("worker3", "master")
    faults.heal()

By hand: ``local-aws fault freeze worker2``. A sequence of them: ``local.chaos.plan``; whether the cluster is right
again: ``local.chaos.observer``.
"""

from local.faults.harness import Faults

__all__ = ["Faults"]
