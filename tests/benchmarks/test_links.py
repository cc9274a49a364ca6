"""Test the shape of the simulated links of figure 1."""

from benchmarks.figure1._links import burst


def test_burst_is_a_fraction_of_a_second_and_at_least_a_few_packets() -> None:
    # Both ends of the range: at 1 Gbit/s the kernel's 64 KiB packets pass unsplit, at 50 Mbit/s the nodes' packets do.
    assert burst(1000) == 250_000
    assert burst(50) == 32 * 1024
