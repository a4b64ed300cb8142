"""docs/protocol.md says what handlers and tests say, and leaves no API and no feature out."""

import pytest
from kio.schema.index import api_key_map

from tests.lint import protocol_page
from tests.support.proven import CLIENTS, FEATURES, proves


def test_the_page_of_the_protocol_is_up_to_date() -> None:
    assert protocol_page.DOCUMENT.read_text() == protocol_page.due(), (
        "run python -m tests.lint.protocol_page"
    )


def test_every_api_of_kafka_is_served_or_said_not_to_be() -> None:
    served = {api.api_key for api in protocol_page.all_apis() if not api.is_private}
    assert served & protocol_page.not_served() == set()
    assert served | protocol_page.not_served() == set(api_key_map)


def test_every_api_says_in_its_module_what_it_does() -> None:
    page = protocol_page.due()
    for api in protocol_page.all_apis():
        assert page.count(f"{api.name} ({api.api_key})**") == (not api.is_private)


def test_every_feature_and_every_client_is_shown_by_a_test() -> None:
    found = protocol_page.proofs()
    assert {proof.feature for proof in found} == set(FEATURES)
    assert {client for proof in found for client in proof.clients} == set(CLIENTS)


def test_a_proof_names_a_known_feature_and_known_clients() -> None:
    for names in (("a feature", "java"), ("group", "a client"), ("group",)):
        with pytest.raises(ValueError, match=r"tests/support/proven\.py"):
            proves(*names)
