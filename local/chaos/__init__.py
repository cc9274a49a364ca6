"""Break a running cluster at random, and judge from outside whether it recovers."""
