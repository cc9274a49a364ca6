from benchmarks.figure1._links import burst


def test_a_burst_is_little_of_a_second_and_never_less_than_some_packets() -> None:
    # Both ends of the range: at 1 Gbit/s the kernel's 64 KiB packets pass unsplit, at 50 Mbit/s the nodes' packets do.
    assert burst(1000) == 250_000
    assert burst(50) == 32 * 1024
