"""Classification of a HEAppE server's answers: every case of both profiles."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.runtimes.heappe.circuit import FAILURES, FIRST_PAUSE_S, LONGEST_PAUSE_S, Circuit
from moorage.agent.runtimes.heappe.errors import (
    HeappeFailed,
    classify,
    stream_failure,
    upstream_body,
)
from moorage.agent.runtimes.heappe.errors import SiteFault as P

_JSON = "application/json; charset=utf-8"
_EXPIRED = "Session code '0b9c' already expired at '11/22/2026 10:00:00'."
_STATE = "Cannot cancel job '1', this job is in state 'Finished'."
_NOT_RUNNING = "TaskId '7' is not a currently running task."
_ONLY_RUNNING = "Allocated nodes IP addresses are provided only for running task."
_NO_PORT = "There is no free local port available."

# Status, title, detail, meaning. First 6.3, then 6.5.
CASES = [
    (404, "Validation Problem", "Job with ID 9 does not exist.", P.INVALID),
    (400, "Validation Problem", "Job with ID 9 does not exist.", P.INVALID),
    (404, "Validation Problem", "ProjectNotFound", P.NOT_FOUND),
    (404, "Resource Not Found", "Task 9", P.NOT_FOUND),
    (401, "Unauthorized Access", "Unauthorized", P.SESSION),
    (403, "Access Forbidden", "Unauthorized", P.SESSION),
    (403, "Access Forbidden", "Unauthorized (Request ID: 1a)", P.SESSION),
    (401, "Session Code Authentication Problem", _EXPIRED, P.SESSION),
    # Another user's job, in 6.3 and 6.5.
    (401, "Session Code Authentication Problem", "Logged user is not allowed", P.FORBIDDEN),
    (403, "Access Forbidden", "Job 9 is not yours", P.FORBIDDEN),
    (401, "Authentication Failed", "", P.CREDENTIALS),
    (403, "Not Allowed", "Cluster account is not initialized", P.ACCOUNT),
    (400, "Invalid Request", "NoActiveConnectionForUser", P.NO_TUNNEL),
    (502, "Connection Problem", "NoActiveConnectionForUser (Request ID: 1a)", P.NO_TUNNEL),
    (400, "Invalid Request", _NOT_RUNNING, P.NOT_RUNNING),
    (502, "Connection Problem", _NOT_RUNNING, P.NOT_RUNNING),
    (404, "Validation Problem", _ONLY_RUNNING, P.NOT_RUNNING),
    (400, "Invalid Request", '\'{"error": "too long"}\'', P.UPSTREAM),
    (502, "Connection Problem", "'not found' (Request ID: 1a)", P.UPSTREAM),
    (400, "Invalid Request", "''", P.UPSTREAM),  # a dead tunnel, or a timeout
    (400, "Invalid Request", _STATE, P.STATE),
    (400, "Invalid Request", "CannotDeleteJob", P.STATE),
    (404, "Validation Problem", "SubmittingJobNotInConfiguringState", P.STATE),
    (502, "Slurm Problem", "sbatch: error: QOSMaxSubmitJobPerUserLimit", P.SCHEDULER),
    (502, "Pbs Problem", "qsub", P.SCHEDULER),
    (502, "SSH Problem", "", P.SSH),
    (502, "SSH Command Problem", "exit 1", P.SSH),
    (500, "Problem", "Ssh command failed with 1", P.SSH),
    (500, "Problem", "Object reference not set", P.INTERNAL),
    (502, "Tunnel Exception", _NO_PORT, P.NO_TUNNELS_LEFT),
    (502, "Tunnel Exception", "cannot stop it", P.TUNNEL),
    (429, "Connection Pool Exhausted", "", P.BUSY),
    (500, "Problem", "NotSupportedEndpoint", P.UNSUPPORTED),
    (400, "Scheduler Configuration Error", "", P.UNSUPPORTED),
]


@pytest.mark.parametrize(("status", "title", "detail", "problem"), CASES)
def test_problem_json(status: int, title: str, detail: str, problem: P) -> None:
    body = json.dumps({"title": title, "status": status, "detail": detail}).encode()
    found = classify(status, _JSON, body, call="CancelJob")
    assert found.problem is problem
    assert "Request ID" not in found.detail
    assert "CancelJob" in found.message


@pytest.mark.parametrize(
    ("status", "media_type", "body", "problem"),
    [
        (413, "", b"", P.TOO_LARGE),
        (500, "", b"", P.INTERNAL),  # closing a tunnel that is already gone
        (404, "text/plain", b"Status Code: 404; Not Found", P.NO_ROUTE),
        (405, "text/plain", b"Status Code: 405; Method Not Allowed", P.NO_ROUTE),
        (401, "text/plain", b"Unauthorized", P.CREDENTIALS),
        (401, "text/plain", b"Token exchange failed", P.CREDENTIALS),
        (502, "text/html", b"<html><h1>502 Bad Gateway</h1></html>", P.GATEWAY),
        (200, "text/html", b"<html>maintenance</html>", P.GATEWAY),
        (404, "application/octet-stream", b"<!doctype html>", P.GATEWAY),
        (504, "", b"", P.GATEWAY),
        (429, "text/plain", b"API calls quota exceeded!", P.BUSY),
        (415, "application/problem+json", b"{}", P.INVALID),
    ],
)
def test_other_bodies(status: int, media_type: str, body: bytes, problem: P) -> None:
    assert classify(status, media_type, body).problem is problem


def test_binding_errors_name_the_field() -> None:
    body = {"title": "One or more validation errors occurred.", "status": 400,
            "errors": {"HttpHeaders[0].Value": ["too long"]}}  # fmt: skip
    found = classify(400, "application/problem+json", json.dumps(body).encode())
    assert (found.problem, found.detail) == (P.INVALID, "HttpHeaders[0].Value: too long")


@pytest.mark.parametrize(
    ("status", "title"), [(502, "External Service Error"), (401, "Authentication Failed")]
)
def test_wrong_password(status: int, title: str) -> None:
    body = json.dumps({"title": title, "status": status, "detail": "x"}).encode()
    assert classify(status, _JSON, body, login=True).problem is P.CREDENTIALS
    assert classify(502, "text/html", b"<html>", login=True).problem is P.GATEWAY


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ResponseNotOk", P.UPSTREAM),
        ("NoActiveConnectionForUser", P.NO_TUNNEL),
        ("Expired", P.SESSION),
        ("Unauthorized", P.SESSION),
        ("NotExistingTaskInfo", P.NOT_FOUND),
        ("MissingRole:Submitter", P.FORBIDDEN),
        ("Connection refused (localhost:4001)", P.NO_TUNNEL),
        ("An error occurred while sending the request.", P.UPSTREAM),
    ],
)
def test_errors_within_a_stream(text: str, problem: P) -> None:
    assert stream_failure(f"{text}\n\n").problem is problem


def test_body_of_an_engine() -> None:
    assert upstream_body('\'{"error":"it\'s long"}\'') == '{"error":"it\'s long"}'
    assert upstream_body("''") == upstream_body("no quotes") == ""


@examples(200)
@given(
    st.integers(100, 599),
    st.sampled_from(["", "text/plain", "text/html", _JSON]),
    st.binary(max_size=80),
)
def test_any_answer_has_a_meaning(status: int, media_type: str, body: bytes) -> None:
    found = classify(status, media_type, body)
    assert isinstance(found, HeappeFailed)
    assert found.status == status


@examples(200)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)
       | st.dictionaries(st.sampled_from(["title", "Detail", "errors"]), inner)))  # fmt: skip
def test_any_json_has_a_meaning(value: object) -> None:
    assert classify(500, _JSON, json.dumps(value).encode()).problem in P


def test_a_circuit_opens_lets_one_through_and_closes() -> None:
    circuit = Circuit("gpu")
    for _ in range(FAILURES):
        circuit.check(0)
        circuit.failed(0, "502 Slurm Problem")

    assert "Slurm" in circuit.problem(1)
    with pytest.raises(HeappeFailed) as refused:
        circuit.check(1)

    assert not refused.value.in_doubt
    circuit.check(FIRST_PAUSE_S)  # one attempt
    with pytest.raises(HeappeFailed):
        circuit.check(FIRST_PAUSE_S)

    circuit.succeeded()
    assert circuit.problem(FIRST_PAUSE_S) == ""


def test_the_pauses_of_a_circuit_double_up_to_a_limit() -> None:
    circuit = Circuit("gpu")
    pauses = []
    for _ in range(20):
        circuit.failed(0, "down")
        pauses.append(circuit.opens_again_at)

    assert pauses[FAILURES - 1 : FAILURES + 2] == [
        FIRST_PAUSE_S,
        2 * FIRST_PAUSE_S,
        4 * FIRST_PAUSE_S,
    ]
    assert max(pauses) == LONGEST_PAUSE_S
