"""Test how long an instance may hang before its group replaces it."""

from local.node.status_checks import IMPAIRED_S, StatusChecks


def test_instance_that_hangs_too_long_fails_once_each_time() -> None:
    now = [100.0]
    checks = StatusChecks(lambda: now[0])

    def after(seconds: float, *, hangs: bool = True) -> bool:
        now[0] += seconds
        return checks.newly_failed("i-1", hangs=hangs)

    assert not after(0.0)
    assert not after(IMPAIRED_S - 1.0)
    assert not after(0.5, hangs=False)
    assert not after(IMPAIRED_S)
    assert not after(IMPAIRED_S - 1.0)
    assert after(1.0)
    assert not after(IMPAIRED_S)
    assert not checks.newly_failed("i-2", hangs=True)
    assert not after(1.0, hangs=False)
    assert not after(1.0)
    assert after(IMPAIRED_S)
