"""Measure the cluster: synth, calls of AWS, replacement of a node."""
