"""Mutations of the proxy's data plane."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PLANE = "proxy/planes/asyncio"
PLANES = "tests/conformance/planes"
HOMES = "tests/unit/proxy/test_response_homes.py"
STORED = ("tests/unit/proxy/test_stored_response.py",)
MEMO = ("tests/unit/proxy/test_head_memo.py",)
PLAYBOOKS = ("tests/unit/proxy/test_flow.py",)


def _tests(file: str, words: str) -> tuple[str, ...]:
    return f"{PLANES}/{file}.py", "-k", f"({words}) and not simple", "--timeout", "60"


MUTATIONS = (
    Mutation(
        "a request for which an engine has no room fails",
        "proxy/core/flow.py",
        "if is_error and not target.tls and tells_of_no_room(status, begin):",
        "if False:",
        ("tests/unit/proxy/test_engine_room.py",),
    ),
    Mutation(
        "a request that has no room anywhere is not held",
        "proxy/core/flow.py",
        "        attempts.try_all_again()\n        return self._hold(now)\n",
        "        return None\n",
        ("tests/unit/proxy/test_engine_room.py",),
    ),
    Mutation(
        "an engine that was full gets all that wait at once",
        "proxy/core/engine_room.py",
        "return bound is None or (in_flight < bound.most and now >= bound.paused_until)",
        "return bound is None or now >= bound.paused_until",
        ("tests/unit/proxy/test_engine_room.py",),
    ),
    Mutation(
        "what waits for room does not go on when a request ends",
        "proxy/core/flow.py",
        "if self._router.room.bounds and self._router.waiting:",
        "if False:",
        ("tests/unit/proxy/test_engine_room.py",),
    ),
    Mutation(
        "an engine that is full in the middle of an Anthropic stream gets as many requests as before",
        "proxy/core/engine_room.py",
        """(b'data: {"error"', b"event: error\\n")""",
        """(b'data: {"error"',)""",
        ("tests/unit/proxy/test_engine_room.py",),
    ),
    Mutation(
        "each of the requests that an engine drops at once halves its bound",
        "proxy/core/engine_room.py",
        "elif now - bound.since < ONCE_S:",
        "elif False:",
        ("tests/unit/proxy/test_engine_room.py",),
    ),
    Mutation(
        "a replica is told by the time at which it started",
        "proxy/core/headers.py",
        "return replica.session_id or replica.kernel_id",
        "return (replica.session_id or replica.kernel_id)[:12]",
        ("tests/unit/proxy/test_header_filter.py",),
    ),
    Mutation(
        "a client that leaves does not free its replica",
        f"{PLANE}/client.py",
        "        self._exchange.leave()\n        self._plane.disconnected(self)",
        "        self._plane.disconnected(self)",
        _tests("test_cancellation", "client_leaves"),
    ),
    Mutation(
        "a slow client does not slow its replica down",
        f"{PLANE}/upstream.py",
        "            self.transport.pause_reading()",
        "            pass",
        _tests("test_back_pressure", "slow"),
    ),
    Mutation(
        "a connection with a second answer is used again",
        f"{PLANE}/upstream.py",
        '        elif data[left:].strip(b"\\r\\n"):',
        "        elif False:",
        _tests("test_bad_replicas", "sends_more"),
    ),
    Mutation(
        "a second answer behind the end of chunks is not told to the client of the first",
        f"{PLANE}/upstream.py",
        "        if chunks.has_surplus:",
        "        if False:",
        _tests("test_bad_replicas", "sends_more"),
    ),
    Mutation(
        "a second answer of an app is not told to the client of the first",
        "common/http/exclusive.py",
        '(aiohttp.ClientPayloadError("a second response arrived"), is_ended=True)',
        '(aiohttp.ClientPayloadError("a second response arrived"))',
        _tests("test_hostile_responses", "hostile_app"),
    ),
    Mutation(
        "a large body is read at once",
        f"{PLANE}/client.py",
        "flow.large(body) if len(body) > WHOLE_BYTES else None",
        "None",
        _tests("test_loop_stalls", "no_body"),
    ),
    Mutation(
        "a large body is read at once by the other plane",
        "proxy/planes/simple/plane.py",
        "        if (large := flow.large(body)) is not None:",
        "        if (large := None) is not None:",
        (f"{PLANES}/test_loop_stalls.py", "-k", "no_body and simple"),
    ),
    Mutation(
        "a work has all of its turns at once",
        "proxy/planes/turns.py",
        "        has_more = work()\n",
        "        while has_more := work():\n            pass\n",
        ("tests/unit/proxy/test_turns.py",),
    ),
    Mutation(
        "a request goes on that was ended while its body was read",
        f"{PLANE}/client.py",
        "            if self._exchange.flow is flow:",
        "            if True:",
        ("tests/unit/proxy/test_turns.py",),
    ),
    Mutation(
        "all heads that came in one read are read at once",
        f"{PLANE}/client.py",
        "if heads == 0:",
        "if False:",
        ("tests/unit/proxy/test_turns.py",),
    ),
    Mutation(
        "a client that sent many heads is not read any more",
        f"{PLANE}/client.py",
        (
            "    def _read_body(self) -> None:\n"
            "        data = self._ahead\n"
            '        self._ahead = b""\n'
            "        if self._is_reading_paused:"
        ),
        (
            "    def _read_body(self) -> None:\n"
            "        data = self._ahead\n"
            '        self._ahead = b""\n'
            "        if False:"
        ),
        ("tests/unit/proxy/test_turns.py",),
    ),
    Mutation(
        "a body is read however intricate it is",
        "proxy/core/request_body.py",
        "BodyReader(_ASKED, _MOST_STEPS)",
        "BodyReader(_ASKED)",
        ("tests/unit/proxy/test_body_reader.py",),
    ),
    Mutation(
        "a second model hides in a large body",
        "proxy/core/body_reader.py",
        "            if name in self.members:",
        "            if False:",
        ("tests/unit/proxy/test_body_reader.py",),
    ),
    Mutation(
        "an escaped name hides from the reader of bodies",
        "proxy/core/body_reader.py",
        'if "\\\\" in name and self._name_chars <= _LONGEST_NAME:',
        "if False:",
        ("tests/unit/proxy/test_body_reader.py",),
    ),
    Mutation(
        "the head of a part of a form has no bound",
        "proxy/core/forms.py",
        "if begin - at > _MAX_HEAD:",
        "if False:",
        ("tests/unit/proxy/test_apis.py",),
    ),
    Mutation(
        "the parameters of a form have no bound",
        "proxy/core/forms.py",
        'if value.count(";") > _MAX_PARAMETERS:',
        "if False:",
        ("tests/unit/proxy/test_apis.py",),
    ),
    Mutation(
        "members of a compressed answer have no bound",
        "proxy/core/content_coding.py",
        " or members > _MOST_MEMBERS",
        "",
        ("tests/unit/proxy/test_content_coding.py",),
    ),
    Mutation(
        "usage in a piece of a session is sought without a bound",
        "proxy/core/token_meter.py",
        "looks -= _LOOKS_OF_NONE",
        "looks -= 0",
        ("tests/unit/proxy/test_token_meter.py",),
    ),
    Mutation(
        "the id in an answer is sought without a bound",
        "proxy/core/response_homes.py",
        "_MOST_STEPS = 8000\n_MOST_LINES = 1000",
        "_MOST_STEPS = 1 << 60\n_MOST_LINES = 1 << 60",
        (HOMES,),
    ),
    Mutation(
        "a connection is used again before the body was sent",
        f"{PLANE}/upstream.py",
        " or transport.get_write_buffer_size():",
        ":",
        _tests("test_bad_replicas", "before_the_body"),
    ),
    Mutation(
        "a reset looks like the end of a body",
        f"{PLANE}/upstream.py",
        "if self._mode == _UNTIL_CLOSE and exc is None:",
        "if self._mode == _UNTIL_CLOSE:",
        _tests("test_dying_replicas", "end_of_the_connection"),
    ),
    Mutation(
        "a stalled replica is waited for",
        f"{PLANE}/upstream.py",
        "elif self.silent_ticks > silent_ticks:",
        "elif False:",
        _tests("test_bad_replicas", "stalls"),
    ),
    Mutation(
        "interim responses never end",
        f"{PLANE}/upstream.py",
        "if self._interim > _MAX_INTERIM:",
        "if False:",
        _tests("test_bad_replicas", "informational"),
    ),
    Mutation(
        "idle connections outlive the plane",
        f"{PLANE}/plane.py",
        "            for client in [client for client in self.clients if not client.is_busy]:\n"
        "                client.close()\n",
        "",
        _tests("test_drain", "running"),
    ),
    Mutation(
        "a body is longer than the request says",
        f"{PLANE}/client.py",
        "                data, self._ahead = data[: self._left], data[self._left :]",
        "                self._ahead = data[self._left :]",
        _tests("test_request_framing", "split or whole"),
    ),
    Mutation(
        "a client of the plane that reads nothing keeps its connection",
        f"{PLANE}/client.py",
        "        limit_unread(connection, self._plane.timeouts.unread_s)\n",
        "",
        _tests("test_back_pressure", "nothing_is_cut"),
    ),
    Mutation(
        "the plane does not look at heads",
        f"{PLANE}/heads.py",
        "        if refusal is not None:\n",
        "        if False:\n",
        _tests("test_hostile_requests", "header"),
    ),
    Mutation(
        "a head may go on as it likes behind its length",
        f"{PLANE}/heads.py",
        "if at > begin and data[at:end] == self._after else",
        "if at > begin else",
        _tests("test_like_heads", "more_header"),
    ),
    Mutation(
        "a length of known heads is any number of Python's",
        f"{PLANE}/heads.py",
        "0x30 <= data[at] <= 0x39 and",
        "data[at] != 0x0D and",
        _tests("test_like_heads", "no_number"),
    ),
    Mutation(
        "a second model hides from a compiled proxy",
        "proxy/core/member_scan.py",
        "            if name in found:\n                return None\n",
        "",
        ("tests/unit/proxy/test_member_scan.py",),
    ),
    Mutation(
        "a compiled proxy closes an array with a brace",
        "proxy/core/member_scan.py",
        "if byte != (_CLOSE_OBJECT if objects & 1 else _CLOSE_ARRAY):",
        "if byte not in (_CLOSE_OBJECT, _CLOSE_ARRAY):",
        ("tests/unit/proxy/test_member_scan.py",),
    ),
    Mutation(
        "a permit outlives the route that it was given for",
        "proxy/core/admission.py",
        "permit is None or permit.version is not table.version",
        "permit is None",
        MEMO,
    ),
    Mutation(
        "a permit outlives a change within a generation",
        "proxy/core/routes.py",
        "        self.version = object()\n        self.generation = changes.generation",
        "        self.generation = changes.generation\n        self.version = self.generation",
        MEMO,
    ),
    Mutation(
        "a known head is sent as to the replica that was there before",
        f"{PLANE}/messages.py",
        "if known is None or known[0] is not target:",
        "if known is None:",
        MEMO,
    ),
    Mutation(
        "a known head outlives the time of its key",
        "proxy/core/request_router.py",
        "        is_expired = key is not None and 0 < key.expires_at <= unix_now",
        "        is_expired = False",
        MEMO,
    ),
    Mutation(
        "a known head that is refused is answered in another dialect",
        "proxy/core/flow.py",
        "        self.is_anthropic = admitted.is_anthropic\n        if outcome",
        "        if outcome",
        MEMO,
    ),
    Mutation(
        "a known head outlives its key on a connection",
        f"{PLANE}/client.py",
        "if last is not None and last[0] == plane.router.credentials_revision:",
        "if last is not None:",
        _tests("test_like_heads", "revoked"),
    ),
    Mutation(
        "a known head outlives its key in the plane",
        f"{PLANE}/messages.py",
        "        if revision != self._revision:\n",
        "        if False:\n",
        _tests("test_like_heads", "revoked"),
    ),
    Mutation(
        "a request whose client left stays in flight",
        "proxy/core/flow.py",
        "        self.state = ENDED\n        target = self.target\n",
        "        self.state = ENDED\n        if status == CLIENT_CLOSED_REQUEST:\n            return\n"
        "        target = self.target\n",
        _tests("test_churn", "nothing"),
    ),
    Mutation(
        "idle connections to replicas stay open",
        f"{PLANE}/upstream.py",
        "            if self.silent_ticks > idle_ticks:\n",
        "            if False:\n",
        _tests("test_churn", "nothing"),
    ),
    Mutation(
        "a stored response is everybody's",
        "proxy/core/response_homes.py",
        "        if whose != _digest(owner):\n",
        "        if False:\n",
        (HOMES,),
    ),
    Mutation(
        "an id that two owners have is the first one's",
        "proxy/core/response_homes.py",
        "                mine = _NOBODY\n",
        "                return\n",
        (HOMES,),
    ),
    Mutation(
        "whoever knows the id of a stored response may read it",
        "proxy/core/stored_response.py",
        (
            "    if not target.key or not hmac.compare_digest(\n"
            '        _sign(target, found["rest"], owner), found["signature"]\n'
            "    ):"
        ),
        "    if not target.key:",
        STORED,
    ),
    Mutation(
        "a client chooses the id of its response",
        "proxy/core/stored_response.py",
        """return b'%b,"request_id":"%b"%b' % (body[:end], name.encode(), body[end:])""",
        """return b'{"request_id":"%b",%b' % (name.encode(), body.lstrip()[1:])""",
        STORED,
    ),
    Mutation(
        "a request that crashes engines crashes one after the other",
        "proxy/core/retry.py",
        "    if failure in DEATHS and not DEATHS.isdisjoint(earlier):\n        return False\n",
        "",
        PLAYBOOKS,
    ),
    Mutation(
        "an error that an engine gives to its client is tried elsewhere",
        "proxy/core/retry.py",
        "    return any(note in begin for note in _DEATH_NOTES)",
        "    return True",
        PLAYBOOKS,
    ),
    Mutation(
        "a client that quotes a dead engine is answered twice",
        "proxy/core/retry.py",
        "    if status != 500 and not is_error_event(begin):",
        "    if status != 500 and not begin:",
        PLAYBOOKS,
    ),
    Mutation(
        "a replica with a dead engine gets more requests",
        "proxy/core/request_router.py",
        " or failure is Failure.ENGINE_DEAD",
        "",
        _tests("test_dying_replicas", "died_before"),
    ),
    Mutation(
        "an engine that reads no priority gets one",
        "proxy/core/flow.py",
        "and held.prioritizes and target.accepts_priority:",
        "and held.prioritizes:",
        PLAYBOOKS,
    ),
    Mutation(
        "a close frame of the proxy lands within a frame of the replica",
        "proxy/planes/simple/relay.py",
        '        if not frames.may_close:\n            return b""\n',
        "",
        (f"{PLANES}/test_realtime.py", "-k", "misread", "--timeout", "60"),
    ),
    Mutation(
        "a second previous_response_id hides",
        "proxy/core/request_body.py",
        '_ONCE: Final = frozenset({"model", "previous_response_id"})',
        '_ONCE: Final = frozenset({"model"})',
        (HOMES,),
    ),
    Mutation(
        "the key of a browser reaches the engine",
        "proxy/core/headers.py",
        "p for p in offered if not p.startswith(_KEY_PROTOCOL)",
        "offered",
        _tests("test_realtime", "browser"),
    ),
    Mutation(
        "the simple plane serves on for a revoked key",
        "proxy/planes/simple/plane.py",
        "            self.scope.reschedule(0)\n",
        "            pass\n",
        (f"{PLANES}/test_revoked_keys.py", "-k", "simple and stream_ends", "--timeout", "60"),
    ),
    Mutation(
        "a body that arrives late outlives its key",
        f"{PLANE}/client.py",
        "if flow is None or self._mode not in (_BODY, _READING, _RESPONSE):",
        "if flow is None or self._mode not in (_READING, _RESPONSE):",
        _tests("test_revoked_keys", "has_not_arrived"),
    ),
    Mutation(
        "a stream outlives the rights of its key",
        "proxy/core/flow.py",
        'return may_go_on(admitted, "" if request is None else request.route_name, table)',
        "return True",
        _tests("test_revoked_keys", "fewer"),
    ),
    Mutation(
        "answers of a revoked agent run to their end",
        f"{PLANE}/client.py",
        "                self._exchange.lose_agent()\n",
        "                pass\n",
        _tests("test_revoked_keys", "agent"),
    ),
    Mutation(
        "the simple plane lets answers of a revoked agent run to their end",
        "proxy/planes/simple/plane.py",
        "                    admission.end(loses_agent=True)\n",
        "                    pass\n",
        (f"{PLANES}/test_revoked_keys.py", "-k", "simple and agent", "--timeout", "60"),
    ),
    Mutation(
        "the simple plane says that a key was revoked where it was an agent",
        "proxy/planes/simple/plane.py",
        "self.loses_agent = loses_agent",
        "",
        (f"{PLANES}/test_revoked_keys.py", "-k", "simple and agent", "--timeout", "60"),
    ),
    Mutation(
        "routes that arrive late lead to a revoked agent",
        "proxy/core/routes.py",
        "            if self.revoked_agents and any(map(self._is_revoked, route.targets)):",
        "            if False:",
        ("tests/unit/manager/test_route_parts.py", "-k", "whatever_order"),
    ),
    Mutation(
        "routes that arrived early lead to a revoked agent",
        "proxy/core/routes.py",
        "        if changes.revoked_agents:",
        "        if False:",
        ("tests/unit/manager/test_route_parts.py", "-k", "whatever_order"),
    ),
    Mutation(
        "connections to an app outlive the role of their key",
        "proxy/apps/admission.py",
        "return key is not None and may_open(key, grant.route) is Verdict.ALLOWED",
        "return key is not None",
        ("tests/unit/proxy/test_app_admission.py",),
    ),
    Mutation(
        "connections to an app outlive their agent",
        "proxy/apps/admission.py",
        "if grant.route.peer_id in table.revoked_agents:",
        "if False:",
        ("tests/unit/proxy/test_app_admission.py",),
    ),
    Mutation(
        "what a revoked agent has dialed stays open",
        "proxy/dialout/listener.py",
        'connection.end("the agent was revoked")',
        "pass",
        ("tests/wire/test_dialout.py", "-k", "revoked"),
    ),
    Mutation(
        "a revoked agent dials out again",
        "proxy/dialout/listener.py",
        "if peer_id in self._revoked:",
        "if False:",
        ("tests/wire/test_dialout.py", "-k", "revoked"),
    ),
    Mutation(
        "a request that goes on when its time is over is sent twice",
        "proxy/planes/simple/holding.py",
        "return commands[0] if commands else flow.timer(",
        "return flow.timer(",
        ("tests/unit/proxy/test_simple_hold.py",),
    ),
    Mutation(
        "a response begins in a request that is not at a replica",
        "proxy/core/flow.py",
        '            raise IllegalEvent("upstream_head", self.state)\n',
        "            pass\n",
        ("tests/unit/proxy/test_flow_states.py",),
    ),
    Mutation(
        "a request that met a dead connection tries another idle one",
        "proxy/core/flow.py",
        "Send(target, attempts is not None and attempts.has_killed)",
        "Send(target)",
        _tests("test_stale_connections", "tries"),
    ),
)
