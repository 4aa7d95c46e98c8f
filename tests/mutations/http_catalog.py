"""Mutations of the HTTP guards: each bound, check and pin removed."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

SERVER = "common/http/server.py"
HEAD = "common/http/head.py"
CORS = "common/http/cors.py"
EXCLUSIVE = "common/http/exclusive.py"
URLS = "common/model/destinations.py"
SESSION = "common/http/guarded_session.py"
HEADS = ("tests/unit/common/test_http_head.py",)
DESTINATIONS = ("tests/unit/common/test_destinations.py",)
DESCRIPTION = ("tests/unit/manager/api/test_lazy_description.py",)
READING = "tests/store/api/test_api_reading.py"
CONSOLE = "tests/store/api/test_console.py"
REPLICAS = ("tests/conformance/planes/test_hostile_responses.py", "-k", "hostile_replica")


def _api(*cases: str) -> tuple[str, ...]:
    return tuple(
        f"tests/store/api/test_api_hostile.py::test_hostile_request[{case}]" for case in cases
    )


MUTATIONS = (
    Mutation(
        "every origin may use cookies",
        CORS,
        """(("Access-Control-Allow-Origin", ANY),) if self._allows_any""",
        """(("Access-Control-Allow-Origin", origin), ("Access-Control-Allow-Credentials", "true"))\
 if self._allows_any""",
        (READING, "-k", "cookies"),
    ),
    Mutation(
        "a page may send every header",
        CORS,
        "if _is_allowed(name)]",
        "if name]",
        (READING, "-k", "allowed_origins"),
    ),
    Mutation(
        "a cache may give an answer for one origin to another",
        CORS,
        """("Access-Control-Expose-Headers", _EXPOSED)) if granted else (_VARY,)""",
        """("Access-Control-Expose-Headers", _EXPOSED)) if granted else ()""",
        (READING, "-k", "allowed_origins"),
    ),
    Mutation(
        "the console looks for its files at the root of the web server in front",
        "manager/console/files.py",
        'console = f"{to_root(request.rel_url.raw_path)}{PREFIX[1:]}/"',
        'console = f"{PREFIX}/"',
        (CONSOLE, "-k", "below_a_path"),
    ),
    Mutation(
        "an encoded slash in a path counts as one of its levels",
        "manager/console/files.py",
        "to_root(request.rel_url.raw_path)",
        "to_root(request.path)",
        (CONSOLE, "-k", "below_a_path"),
    ),
    Mutation(
        "single sign-on returns to the root of the web server in front",
        "manager/api/identity/oidc.py",
        'return f"{to_root(call.request.rel_url.raw_path)}console/"',
        'return "/console/"',
        ("tests/store/test_oidc.py", "-k", "did_not_ask"),
    ),
    Mutation(
        "no page may read the refusal of a head at the REST API",
        "manager/api/app.py",
        "    response.headers.extend(cors.unread)\n",
        "",
        (READING, "-k", "cannot_be_read"),
    ),
    Mutation(
        "pages of other origins may read the console",
        "manager/api/app.py",
        "if cors and not _is_of_console(request):",
        "if cors:",
        (READING, "-k", "console_is_for"),
    ),
    Mutation(
        "an answer counts as unchanged while nobody edits the resource",
        "manager/api/http/conditional.py",
        """tag = f"{version}.{digest}" if version else digest""",
        """tag = version or digest""",
        (READING, "-k", "without_an_edit"),
    ),
    Mutation(
        "HEAD of a stream lasts as long as the stream",
        "manager/api/app.py",
        """if row.method == "GET" and not row.streams:""",
        """if row.method == "GET":""",
        (READING, "-k", "streams", "--timeout", "60"),
    ),
    Mutation(
        "an EventSource returns for ever to a run that has ended",
        "manager/api/kernels/code.py",
        "        return web.Response(status=204)\n",
        "        return web.Response(status=200, content_type='text/event-stream')\n",
        ("tests/store/api/test_api_code.py", "-k", "event_source"),
    ),
    Mutation(
        "a connection may stay silent",
        SERVER,
        "        limit_unread(connection, self._limits.unread_s)\n        self._await_head()\n",
        "        limit_unread(connection, self._limits.unread_s)\n",
        _api("slow: no byte"),
    ),
    Mutation(
        "half a head may wait",
        SERVER,
        "        if self._request_count == 0 or self._is_idle():\n            self.force_close()",
        "        pass",
        _api("slow: half a head"),
    ),
    Mutation(
        "half of a later head may wait",
        SERVER,
        "elif self._head_timer is None and data and self._is_idle():",
        "elif False:",
        _api("slow: half a second head"),
    ),
    Mutation(
        "drips of a head postpone its end",
        SERVER,
        "        count = self._request_count\n        super().data_received(data)",
        "        count = self._request_count\n        self._head_arrived()\n        self._await_head()\n"
        "        super().data_received(data)",
        _api("slow: head by drips"),
    ),
    Mutation(
        "a connection stays open for ever after a response",
        SERVER,
        "keepalive_timeout=limits.idle_s,",
        "keepalive_timeout=3600,",
        _api("slow: nothing after a response"),
    ),
    Mutation(
        "drips of a body postpone its end",
        SERVER,
        "asyncio.timeout(limits.body_s + received / limits.body_bytes_per_s - spent_s)",
        "asyncio.timeout(limits.body_s)",
        _api("slow: body by drips"),
    ),
    Mutation(
        "a body has no end",
        SERVER,
        "asyncio.timeout(limits.body_s + received / limits.body_bytes_per_s - spent_s)",
        "asyncio.timeout(None)",
        _api("slow: half a body"),
    ),
    Mutation(
        "chunk extensions are endless",
        SERVER,
        "if self._framed_bytes > _FRAMING_BYTES + _FRAMING_PER_BYTE * content.total_bytes:",
        "if False:",
        _api("chunk: many long extensions", "chunk: endless trailers"),
    ),
    Mutation(
        "a client that reads nothing keeps its connection",
        SERVER,
        "        limit_unread(connection, self._limits.unread_s)\n",
        "",
        ("tests/conformance/planes/test_back_pressure.py", "-k", "nothing_is_cut"),
    ),
    Mutation(
        "a TLS handshake may wait",
        SERVER,
        "ssl_handshake_timeout=listener.limits.head_s if listener.tls else None,",
        "ssl_handshake_timeout=3600 if listener.tls else None,",
        ("tests/wire/test_tls.py", "-k", "slow_handshake"),
    ),
    Mutation(
        "a refused head does not close the connection",
        "manager/api/app.py",
        "response.force_close()  # the bytes that follow may also be misread",
        "pass",
        _api("host 'evil.example'", "header: second host"),
    ),
    Mutation(
        "the API reads what follows an unread body as a request",
        "manager/api/app.py",
        '        response.headers["Connection"] = "close"\n        response.force_close()\n',
        "        pass\n",
        ("tests/store/api/test_api_refusals.py",),
    ),
    Mutation(
        "the API does not look at heads",
        "manager/api/app.py",
        "if refusal := find_problem(guard, request):",
        "if refusal := None:",
        _api("host 'evil.example'", "header: second host"),
    ),
    Mutation(
        "the handlers of a subject are left out of the table of routes",
        "manager/api/routes.py",
        'if subject.ispkg and subject.name != "http":',
        'if subject.ispkg and subject.name not in ("http", "kernels"):',
        ("tests/unit/manager/api/test_api_openapi.py", "-k", "declares_its_route"),
    ),
    Mutation(
        "paths are compared in the order in which handlers declare them",
        "manager/api/http/route.py",
        'return sorted(rows, key=lambda row: (row.path.endswith("}"), -row.path.count("/")))',
        "return list(rows)",
        ("tests/unit/manager/api/test_api_openapi.py", "-k", "own_handler"),
    ),
    Mutation("any version of HTTP", HEAD, "if version not in _VERSIONS:", "if False:", HEADS),
    Mutation(
        "repeated headers pass", HEAD, "if name in seen and name in _SINGLE:", "if False:", HEADS
    ),
    Mutation(
        "spellings of a header differ in case",
        HEAD,
        "lower = [name.lower() for name in names]",
        "lower = list(names)",
        HEADS,
    ),
    Mutation(
        "headers with underscores pass",
        HEAD,
        'if b"_" in name and name.replace(b"_", b"-") in _WITHOUT_TWIN:',
        "if False:",
        HEADS,
    ),
    Mutation(
        "loopback answers to any name",
        HEAD,
        "self._checks_host = is_loopback(host)",
        "self._checks_host = False",
        HEADS,
    ),
    Mutation(
        "a name that ends like an allowed one is allowed",
        HEAD,
        'known.startswith(".") and name.endswith(known)',
        'name.endswith(known.lstrip("."))',
        HEADS,
    ),
    Mutation(
        "a refused name is remembered as allowed",
        HEAD,
        "        name = _without_port(host).lower()",
        "        self._known.add(host)\n        name = _without_port(host).lower()",
        HEADS,
    ),
    Mutation(
        "names are remembered without end",
        HEAD,
        "if len(self._known) < _REMEMBERED_HOSTS:",
        "if True:",
        HEADS,
    ),
    Mutation(
        "a connection always awaits an answer",
        EXCLUSIVE,
        "self._is_awaited = 100 <= status < 200 and status != 101",
        "self._is_awaited = True",
        REPLICAS,
    ),
    Mutation(
        "a status may be anything",
        EXCLUSIVE,
        "(is_http1 and 100 <= status <= 999)",
        "is_http1",
        REPLICAS,
    ),
    Mutation(
        "an answer may have any version",
        EXCLUSIVE,
        "(is_http1 and 100 <= status <= 999)",
        "True",
        REPLICAS,
    ),
    Mutation(
        "an unasked 101 passes",
        EXCLUSIVE,
        "or (status == 101 and not self._allow_upgrade)",
        "",
        REPLICAS,
    ),
    Mutation(
        "addresses of a host are not looked at",
        SESSION,
        "return Destination(parsed, decide(host, addresses, self._policy))",
        "return Destination(parsed, tuple(addresses))",
        DESTINATIONS,
    ),
    Mutation(
        "a session reaches other hosts",
        SESSION,
        "if (req.url.scheme, req.url.raw_host, req.url.port) != (url.scheme, url.raw_host, url.port):",
        "if False:",
        DESTINATIONS,
    ),
    Mutation(
        "a host is resolved again",
        SESSION,
        (
            "        connector = _PinnedConnector(\n"
            "            destination, resolver=_Pinned(destination), use_dns_cache=False\n"
            "        )"
        ),
        "        connector = _PinnedConnector(destination, use_dns_cache=False)",
        DESTINATIONS,
    ),
    Mutation(
        "a proxy of the environment connects elsewhere",
        SESSION,
        "trust_env=False",
        "trust_env=True",
        DESTINATIONS,
    ),
    Mutation(
        "one public address is enough",
        URLS,
        "    for text in found:\n        address",
        "    for text in found[:1]:\n        address",
        DESTINATIONS,
    ),
    Mutation(
        "multicast is public",
        URLS,
        "return _embedded(address).is_global and not _embedded(address).is_multicast",
        "return _embedded(address).is_global",
        DESTINATIONS,
    ),
    Mutation(
        "mapped addresses hide where they lead",
        URLS,
        "    if address.ipv4_mapped is not None:\n        return address.ipv4_mapped\n",
        "",
        DESTINATIONS,
    ),
    Mutation(
        "6to4 addresses hide where they lead",
        URLS,
        "    if address.sixtofour is not None:\n        return address.sixtofour\n",
        "",
        DESTINATIONS,
    ),
    Mutation(
        "translated addresses hide where they lead",
        URLS,
        "if any(address in network for network in _NAT64) or (",
        "if (",
        DESTINATIONS,
    ),
    Mutation(
        "compatible addresses hide where they lead",
        URLS,
        "or (int(address) >> 32 == 0 and low > 0xFFFF)",
        "",
        DESTINATIONS,
    ),
    Mutation("any scheme", URLS, "parsed.scheme not in _SCHEMES or ", "", DESTINATIONS),
    Mutation(
        "http instead of https",
        URLS,
        'if parsed.scheme == "http" and not policy.plain_http:',
        "if False:",
        DESTINATIONS,
    ),
    Mutation(
        "passwords in URLs",
        URLS,
        "if parsed.raw_user is not None or parsed.raw_password is not None:",
        "if False:",
        DESTINATIONS,
    ),
    Mutation(
        "a name that ends like one that an administrator allowed",
        URLS,
        '(entry.startswith(".") and name.endswith(entry))',
        "name.endswith(entry)",
        DESTINATIONS,
    ),
    Mutation(
        "members have images pulled from registries within the network",
        "agent/runtimes/docker/registries.py",
        "decide(host, await resolve(host), DestinationPolicy())",
        "await resolve(host)",
        ("tests/unit/agent/test_docker_registries.py",),
    ),
    Mutation(
        "large bodies are validated in the event loop",
        "manager/api/http/request.py",
        "_INLINE_BYTES = 32 * 1024",
        "_INLINE_BYTES = 32 << 20",
        ("tests/store/api/test_loop_stalls.py",),
    ),
    Mutation(
        "all of a hundred thousand errors are listed",
        "manager/api/http/problems.py",
        "_LISTED_ERRORS = 1_000",
        "_LISTED_ERRORS = 1_000_000",
        ("tests/store/api/test_loop_stalls.py",),
    ),
    Mutation(
        "every unknown field is compared with the known ones",
        "manager/api/http/problems.py",
        "error.errors(include_url=False)[:_SHOWN_ERRORS]",
        "error.errors(include_url=False)",
        ("tests/store/api/test_loop_stalls.py",),
    ),
    Mutation(
        "who has no key may send as much as others",
        "manager/api/app.py",
        'if row.access == "open":\n        return min(',
        "if False:\n        return min(",
        ("tests/store/api/test_loop_stalls.py",),
    ),
    Mutation(
        "a body may have any number of values",
        "manager/api/http/request.py",
        "if count_values(raw, max_values) > max_values:",
        "if False:",
        ("tests/store/api/test_loop_stalls.py",),
    ),
    Mutation(
        "each request for the description of the API makes another one",
        "manager/api/http/description.py",
        "if self._made is None:",
        "if True:",
        DESCRIPTION,
    ),
    Mutation(
        "a client that leaves takes the description of the API from others",
        "manager/api/http/description.py",
        "await asyncio.shield(self._made)",
        "await self._made",
        DESCRIPTION,
    ),
    Mutation(
        "a client gets a coding that it does not accept",
        "manager/console/files.py",
        "(name for name in found.packed if accepts(given, name))",
        "found.packed",
        (CONSOLE,),
    ),
    Mutation(
        "bodies of generated clients have the defaults of the manager",
        "manager/api/http/openapi.py",
        'default = field.pop("default", None)',
        'default = field.get("default")',
        ("tests/unit/manager/api/test_api_openapi.py",),
    ),
    Mutation(
        "examples of answers are composed after the defaults are gone",
        "manager/api/http/openapi.py",
        "Examples(deepcopy(definitions), _objects())",
        "Examples(definitions, _objects())",
        ("tests/unit/manager/api/test_api_openapi.py",),
    ),
)
