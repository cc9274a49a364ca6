"""Measure and draw Figure 1 of "Distributed Learning with Apache MXNet and Horovod"."""
