"""Chaos tests in the local AWS: break a running cluster at random, and judge from outside whether it recovers."""
