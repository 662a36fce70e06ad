"""Methods of the contract by the type of their request."""

import pytest
from google.protobuf.message_factory import GetMessageClass
from rametd.api.contract import SERVICES, method_of

METHODS = [method for service in SERVICES for method in service.methods]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_request_determines_its_method_and_answer_type(method: object) -> None:
    name, answer = method_of(GetMessageClass(method.input_type)())  # type: ignore[attr-defined]
    assert (name, answer.DESCRIPTOR) == (method.name, method.output_type)  # type: ignore[attr-defined]


def test_no_two_methods_have_one_request_type() -> None:
    assert len({method.input_type.full_name for method in METHODS}) == len(METHODS)
