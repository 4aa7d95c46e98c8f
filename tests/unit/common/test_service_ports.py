"""Service ports: written form, validation, merging with image labels, encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from moorage.common.model import service_ports
from moorage.common.model.errors import InvalidInput
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.spec import SessionSpec

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?", fullmatch=True)
GIVEN = st.builds(
    AppPort,
    name=NAMES,
    port=st.integers(1, 65535),
    protocol=st.sampled_from(["http", "tcp"]),
    base_path=st.booleans(),
    inner=st.integers(0, 65535),
    guarded=st.booleans(),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jupyter", ServicePort("jupyter")),
        ("jupyter:8888", ServicePort("jupyter", 8888)),
        (" ssh:22/tcp ", ServicePort("ssh", 22, "tcp")),
        ("tensor-board/http", ServicePort("tensor-board")),
        ("lab+path", ServicePort("lab", base_path=True)),
        ("lab:80/http+path+key", ServicePort("lab", 80, "http", True, True)),
        ("lab+key", ServicePort("lab", guarded=True)),
    ],
)
def test_parse_port(text: str, expected: ServicePort) -> None:
    assert service_ports.parse_port(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a service port"),
        ("a:b", "is not a service port"),
        ("a:0", "port 0 is not 1 to 65535"),
        ("a:70000", "port 70000 of 'a' is not 1 to 65535"),
        ("a:1/udp", "is not a service port"),
        ("A", "lowercase letters"),
        ("1a", "lowercase letters"),
        ("a--b", "single dashes"),
        ("a-", "lowercase letters"),
        ("a" * 25, "1 to 24"),
        ("a/tcp+path", "only http ports"),
        ("a+other", "is not a service port"),
    ],
)
def test_parse_port_refuses_invalid_forms(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace("(", r"\(")):
        service_ports.parse_port(text)


def test_image_label_declares_several_ports() -> None:
    assert service_ports.parse_label("jupyter:8888,ssh:22/tcp,") == (
        ServicePort("jupyter", 8888),
        ServicePort("ssh", 22, "tcp"),
    )
    assert service_ports.parse_label("") == ()
    with pytest.raises(InvalidInput, match="'a' occurs twice"):
        service_ports.parse_label("a:1,a:2")
    with pytest.raises(InvalidInput, match="maximum of 16"):
        service_ports.parse_label(",".join(f"a{n}" for n in range(17)))


def test_requested_ports_take_precedence_over_the_image() -> None:
    asked = (ServicePort("lab", 9000), ServicePort("db", 5432, "tcp"))
    image = (ServicePort("lab", 8888), ServicePort("other", 5432), ServicePort("ssh", 22, "tcp"))
    assert service_ports.merge_ports(asked, image) == (*asked, ServicePort("ssh", 22, "tcp"))


def test_environment_and_placeholders() -> None:
    ports = (AppPort("tensor-board", 21001, inner=6006), AppPort("db", 21002, "tcp", inner=21002))
    assert service_ports.environment("s1", ports) == {
        "MOORAGE_PORT_TENSOR_BOARD": "6006",
        "MOORAGE_PATH_TENSOR_BOARD": "/apps/s1/tensor-board",
        "MOORAGE_PORT_DB": "21002",
    }
    assert service_ports.placeholders("s1", ports)["port:tensor-board"] == "6006"
    assert service_ports.placeholders("s1", ports)["path:tensor-board"] == "/apps/s1/tensor-board"


@given(st.lists(GIVEN, max_size=5).map(tuple))
def test_decode_inverts_encode(ports: tuple[AppPort, ...]) -> None:
    assert service_ports.decode_ports(service_ports.encode_ports(ports)) == ports


@given(st.text(max_size=40))
def test_decoding_arbitrary_text_raises_only_value_error(text: str) -> None:
    try:
        service_ports.decode_ports(text)
    except ValueError:
        pass


def test_session_ports_are_unique() -> None:
    spec = SessionSpec.model_validate(
        {"command": ["x"], "ports": [{"name": "lab", "base_path": True}]}
    )
    assert spec.ports[0].declared() == ServicePort("lab", base_path=True)
    with pytest.raises(ValidationError, match="'lab' occurs twice"):
        SessionSpec.model_validate({"command": ["x"], "ports": [{"name": "lab"}, {"name": "lab"}]})
    with pytest.raises(ValidationError, match="omit the port"):
        SessionSpec.model_validate({"command": ["x"], "ports": [{"name": "lab", "port": 8888}]})

    for name in ("Lab", "a--b", "", "x" * 25):
        with pytest.raises(ValidationError):
            SessionSpec.model_validate({"command": ["x"], "ports": [{"name": name}]})

    contained = {"command": ["x"], "runtime": "docker", "image": "a"}
    two = [{"name": "a", "port": 80}, {"name": "b", "port": 80}]
    with pytest.raises(ValidationError, match="port 80 occurs twice"):
        SessionSpec.model_validate(contained | {"ports": two})

    SessionSpec.model_validate(contained | {"ports": two[:1]})
