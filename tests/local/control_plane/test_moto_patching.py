"""Test how functions of moto are wrapped."""

from typing import Any

import pytest

from local.control_plane.moto_patching import add, wrap


class Service:
    def method(self, number: int) -> int:
        return number

    @classmethod
    def of_class(cls, number: int) -> int:
        return number

    @staticmethod
    def static(number: int) -> int:
        return number

    @property
    def getter(self) -> int:
        return 1


def doubled(original: Any, *arguments: Any) -> Any:
    return 2 * original(*arguments)


@pytest.fixture
def service() -> type[Service]:
    return type("Copy", (Service,), dict(vars(Service)))


def test_every_kind_of_attribute_is_wrapped(service: type[Service]) -> None:
    for name in ("method", "of_class", "static", "getter"):
        wrap(service, name, doubled)
    assert service().method(1) == 2
    assert service.of_class(1) == 2
    assert service().of_class(1) == 2
    assert service().static(1) == 2
    assert service().getter == 2


def test_replacing_a_name_that_moto_lacks_is_an_error(service: type[Service]) -> None:
    with pytest.raises(AttributeError, match="gone"):
        wrap(service, "gone", doubled)


def test_adding_a_name_that_moto_has_is_an_error(service: type[Service]) -> None:
    with pytest.raises(AttributeError, match=r"has a Copy\.method of its own"):
        add(service, "method", doubled)
