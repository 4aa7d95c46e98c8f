"""Engine invocations: arguments, environment, readiness probes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import xllamacpp

from moorage.agent.engines import ENGINES, NodeInfo, environment, needs_port
from moorage.agent.engines import llamacpp_server as server
from moorage.agent.engines.base import is_path, substitute
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import SessionType

NODE = NodeInfo(
    python="/py",
    vllm_command="/opt/py -m vllm.main",
    cores=8,
    home="/agent-home",
    user="ann",
    user_base="/ub",
)
BASE = KernelSpec(
    KernelId("k1"),
    SessionId("s1"),
    session_name="chat",
    session_type=SessionType.INFERENCE,
    runtime="process",
    engine="vllm",
    served_name="my-model",
    model="org/weights",
    secret="hush",
    stop_grace_s=10,
)


def invoke(spec: KernelSpec, port: int = 21000):  # type: ignore[no-untyped-def]
    return ENGINES[spec.engine].invocation(spec, host="127.0.0.1", port=port, node=NODE)


def test_vllm_invocation_stops_before_the_grace_period_ends() -> None:
    invocation = invoke(replace(BASE, args=("--max-model-len", "512", "--port", "1")))
    assert invocation.argv == (
        *(
            "/opt/py",
            "-m",
            "vllm.main",
            "serve",
            "org/weights",
            "--max-model-len",
            "512",
            "--port",
            "1",
        ),
        *("--shutdown-timeout", "7", "--disable-access-log-for-endpoints", "/health,/metrics"),
        *("--served-model-name", "my-model", "--host", "127.0.0.1"),
        *("--port", "21000"),
    )
    assert invocation.env == {"VLLM_API_KEY": "hush"}
    assert invocation.defaults["VLLM_NO_USAGE_STATS"] == "1"


@pytest.mark.parametrize(
    ("grace_s", "args", "shutdown"),
    [(0, (), "1"), (4, (), "1"), (60, (), "57"), (60, ("--shutdown-timeout", "5"), "5")],
)
def test_vllm_shutdown_timeout(grace_s: float, args: tuple[str, ...], shutdown: str) -> None:
    argv = invoke(replace(BASE, stop_grace_s=grace_s, args=args)).argv
    assert argv.count("--shutdown-timeout") == 1
    assert argv[argv.index("--shutdown-timeout") + 1] == shutdown


def gpus(*amounts: int) -> tuple[DeviceGrant, ...]:
    """One grant per amount, in 1/1000 of a GPU."""
    slot = {1000: "cuda.device"}
    return tuple(
        DeviceGrant(slot.get(amount, "cuda.shares"), DeviceId(f"GPU-{number}"), amount)
        for number, amount in enumerate(amounts)
    )


@pytest.mark.parametrize(
    ("granted", "args", "options"),
    [
        ((), (), ()),
        (gpus(1000), (), ()),
        (gpus(500), (), ("--gpu-memory-utilization", "0.450")),
        (gpus(333), (), ("--gpu-memory-utilization", "0.299")),
        (gpus(1000, 1000), (), ("--tensor-parallel-size", "2")),
        (gpus(500, 250), (), ("--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.225")),
        (gpus(250) + gpus(250), (), ("--gpu-memory-utilization", "0.450")),  # two shares of one GPU
        ((DeviceGrant("cuda-1g10gb.device", DeviceId("MIG-1"), 1000),), (), ()),
        (
            tuple(DeviceGrant("cuda-1g10gb.device", DeviceId(f"MIG-{n}"), 1000) for n in range(2)),
            (),
            (),
        ),
        (
            (DeviceGrant("rocm.shares", DeviceId("r"), 500), DeviceGrant("cpu", DeviceId(""), 500)),
            (),
            (),
        ),
        # Options that the user sets are not added.
        (gpus(500), ("--gpu_memory_utilization=0.3",), ()),
        (gpus(500), ("--kv-cache-memory-bytes", "1000000000"), ()),
        (gpus(1000, 1000), ("-dp", "2"), ()),
        (gpus(1000, 1000), ("--pipeline-parallel-size=2",), ()),
    ],
)
def test_vllm_uses_all_granted_gpus_and_its_memory_share(
    granted: tuple[DeviceGrant, ...], args: tuple[str, ...], options: tuple[str, ...]
) -> None:
    spec = replace(BASE, devices=granted, args=args)
    plain = invoke(replace(BASE, args=args)).argv
    argv = invoke(spec).argv
    at = plain.index("--served-model-name")
    assert argv == (*plain[:at], *options, *plain[at:])


@pytest.mark.parametrize(
    ("engine", "args", "paths"),
    [
        ("vllm", (), ["/v1/completions", "/v1/embeddings"]),
        ("vllm", ("--runner", "pooling"), ["/v1/embeddings", "/v1/completions"]),
        ("vllm", ("--task=embed",), ["/v1/embeddings", "/v1/completions"]),
        ("llamacpp", (), ["/v1/completions"]),
        ("llamacpp", ("--embedding",), ["/v1/embeddings"]),
    ],
)
def test_readiness_needs_generated_output(
    engine: str, args: tuple[str, ...], paths: list[str]
) -> None:
    probes = invoke(replace(BASE, engine=engine, args=args, model="/m.gguf")).probes
    assert [probe.path for probe in probes] == paths
    for probe in probes:
        body = json.loads(probe.body or b"")
        assert (probe.method, body["model"]) == ("POST", "my-model")
        assert probe.headers["Authorization"] == "Bearer hush"

    assert [ENGINES[engine].ready(status, b"") for status in (200, 401, 404, 503)] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("slots", "args", "threads"),
    [
        ({}, (), "4"),
        ({"cpu": 500}, (), "4"),
        ({"cpu": 2000}, (), "2"),
        ({"cpu": 64_000}, (), "8"),
        ({"cpu": 2000}, ("--threads=6",), None),
    ],
)
def test_llamacpp_threads(
    slots: dict[str, int], args: tuple[str, ...], threads: str | None
) -> None:
    argv = invoke(replace(BASE, engine="llamacpp", model="/m.gguf", slots=slots, args=args)).argv
    assert argv[:3] == ("/py", "-P", server.__file__)
    assert argv[-8:] == (
        *("--model", "/m.gguf", "--alias", "my-model", "--host", "127.0.0.1", "--port", "21000"),
    )
    assert (argv[argv.index("--threads") + 1] if "--threads" in argv else None) == threads
    assert "hush" not in argv


def test_custom_engine_replaces_its_placeholders_only() -> None:
    spec = replace(
        BASE,
        engine="custom",
        command=("run", "{model}:{port}", "{host}", "{other}", "{{}}", "{{port}}:{{{model}}}"),
        probe_path="/up",
    )
    invocation = invoke(spec)
    assert invocation.argv == (
        *("run", "org/weights:21000", "127.0.0.1", "{other}", "{{}}", "{port}:{{model}}"),
    )
    assert invocation.env == {"HOST": "127.0.0.1", "PORT": "21000", "MOORAGE_SECRET": "hush"}
    assert [(probe.method, probe.path) for probe in invocation.probes] == [("GET", "/up")]
    assert invoke(replace(spec, command=())).argv == ("sleep", "infinity"), (
        "an interactive session idles"
    )
    assert invoke(replace(spec, probe_path=""), port=0).probes == ()
    assert "PORT" not in invoke(spec, port=0).env
    assert [ENGINES["custom"].ready(status, b"") for status in (200, 204, 301, 503)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("kind", "probe", "ports", "replaced"),
    [
        (SessionType.BATCH, "", (), False),
        (SessionType.INTERACTIVE, "", (), False),
        (SessionType.BATCH, "/up", (), True),
        (SessionType.BATCH, "", (ServicePort("web"),), True),
        (SessionType.INTERACTIVE, "", (ServicePort("web"),), True),
        (SessionType.INFERENCE, "", (), True),
    ],
)
def test_commands_keep_their_braces_unless_something_connects_to_the_program(
    kind: SessionType, probe: str, ports: tuple[ServicePort, ...], replaced: bool
) -> None:
    command = ('f"{host}:{port}/{model}"', '{"port": {{port}}}')
    spec = replace(
        BASE, engine="custom", session_type=kind, command=command, probe_path=probe, ports=ports
    )
    expected = ('f"127.0.0.1:21000/org/weights"', '{"port": {port}}')
    assert invoke(spec).argv == (expected if replaced else command)


def test_values_of_placeholders_are_not_searched() -> None:
    values = {"model": "{port}", "port": "1", "port:web": "2"}
    assert substitute("{model} {port} {port:web} {{port:web}}", values) == "{port} 1 2 {port:web}"


def test_environment_withholds_agent_secrets() -> None:
    agent = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HF_TOKEN": "hf",
        "NCCL_DEBUG": "INFO",
        "AWS_SECRET_ACCESS_KEY": "a",
        "MOORAGE_COMMON__LINK_TOKEN": "t",
        "PGPASSWORD": "p",
        "NOTIFY_SOCKET": "/run/n",
        "CUDA_VISIBLE_DEVICES": "0,1,2",
    }
    mine = {
        "VLLM_API_KEY": "x",
        "VLLM_NO_USAGE_STATS": "0",
        "MINE": "1",
        "HOME": "/",
    }
    spec = replace(BASE, env=mine)
    node = replace(NODE, inherited=("NCCL_*", "MOORAGE_*"))
    env = environment(agent, spec, invoke(spec), work_dir="/work", node=node)
    assert env == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "NCCL_DEBUG": "INFO",
        "HF_HOME": "/agent-home/.cache/huggingface",
        "XDG_CACHE_HOME": "/agent-home/.cache",
        "PYTHONUSERBASE": "/ub",
        "USER": "ann",
        "LOGNAME": "ann",
        "VLLM_NO_USAGE_STATS": "0",
        "DO_NOT_TRACK": "1",
        "MINE": "1",
        "VLLM_API_KEY": "hush",
        "HOME": "/work",
        "PWD": "/work",
        "MOORAGE_PYTHON": "/py",
        "MOORAGE_KERNEL_ID": "k1",
        "MOORAGE_SESSION_ID": "s1",
        "MOORAGE_SESSION_NAME": "chat",
        "MOORAGE_SESSION_TYPE": "inference",
    }
    own = environment(agent, spec, invoke(spec), work_dir="/work", node=node, own_user=True)
    caches = {"HF_HOME", "XDG_CACHE_HOME", "PYTHONUSERBASE"}
    assert env.keys() ^ own.keys() == caches
    assert own["USER"] == own["LOGNAME"] == "moorage"


@pytest.mark.parametrize(
    ("agent", "spec_env", "shown"),
    [
        ({}, {}, ("ann", "ann")),
        ({"USER": ""}, {}, ("ann", "ann")),
        ({"USER": "bob"}, {}, ("bob", "bob")),
        ({"LOGNAME": "bob"}, {}, ("bob", "bob")),
        ({"USER": "bob", "LOGNAME": "bob"}, {"USER": "eve"}, ("eve", "eve")),
    ],
)  # fmt: skip
def test_processes_have_a_user_name(
    agent: dict[str, str], spec_env: dict[str, str], shown: tuple[str, str]
) -> None:
    """An agent in a container has none of these variables, and its uid often has no name."""
    spec = replace(BASE, env=spec_env)
    env = environment(agent, spec, invoke(spec), work_dir="/work", node=NODE)
    assert (env["USER"], env["LOGNAME"]) == shown


@pytest.mark.parametrize(
    "args",
    [
        ("--disable_access_log_for_endpoints=/ping",),
        ("--disable-access-log-for-endpoints", "/ping"),
        ("--log-config-file", "mine.json"),
    ],
)
def test_log_of_vllm_is_as_the_user_says(args: tuple[str, ...]) -> None:
    assert "/health,/metrics" not in invoke(replace(BASE, args=args)).argv


@pytest.mark.parametrize(
    ("kind", "command", "probe", "ports", "needed"),
    [
        (SessionType.BATCH, ("x",), "", (), False),
        (SessionType.BATCH, ("x", "--port={port}"), "", (), False),
        (SessionType.BATCH, ("x", "--port={port}"), "", (ServicePort("web"),), True),
        (SessionType.BATCH, ("x", "--port={{port}}"), "", (ServicePort("web"),), False),
        (SessionType.BATCH, ("x",), "/", (), True),
        (SessionType.INTERACTIVE, ("x",), "", (), True),
        (SessionType.INFERENCE, (), "", (), True),
    ],
)
def test_kernels_that_need_a_port(
    kind: SessionType,
    command: tuple[str, ...],
    probe: str,
    ports: tuple[ServicePort, ...],
    needed: bool,
) -> None:
    spec = replace(BASE, session_type=kind, command=command, probe_path=probe, ports=ports)
    assert needs_port(spec) is needed


@pytest.mark.parametrize(
    ("model", "path"),
    [("/m", True), ("./m", True), ("m.GGUF", True), ("org/name", False), ("name", False)],
)
def test_is_path(model: str, path: bool) -> None:
    assert is_path(model) is path


@pytest.mark.parametrize(
    "wrong", [("--parallel", "0"), ("--ctx-size", "x"), ("--thread", "1"), ("stray",)]
)
def test_llamacpp_server_rejects_invalid_arguments(
    wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        server.parse(("--model", "m", "--alias", "a", "--port", "1", *wrong), 4)
    assert exit_info.value.code == 2
    assert wrong[0] in capsys.readouterr().err


NEEDED = ("--model", "m", "--alias", "a", "--port", "1")


@pytest.mark.parametrize("option", server.OPTIONS, ids=lambda option: str(option.names))
def test_llamacpp_server_passes_every_option_on(option: server.Option) -> None:
    samples = {
        int: "7",
        float: "0.25",
        str: "text",
        server.floats: "1,2",
        server.template_values: '{"a": 1}',
    }
    word = {"-fa": "on", "--rope-scaling": "yarn", "-ctk": "q8_0", "-ctv": "q4_0", "--numa": "isolate",
            "-sm": "row", "--pooling": "mean", "--reasoning-format": "none"}  # fmt: skip
    for name in option.names.split():
        if option.type is server.whole_file:
            given = [name, __file__]
        elif option.value is not None:
            given = [name]
        else:
            given = [name, samples[option.type] if option.type else word[option.names.split()[0]]]

        params = server.parameters(xllamacpp, server.parse((*given, *NEEDED), 4), "", 4)
        found = params
        for part in option.parameter.split("."):
            found = getattr(found, part)

        default = xllamacpp.CommonParams()
        for part in option.parameter.split("."):
            default = getattr(default, part)

        if option.value is None:
            assert found != default, name
        elif isinstance(option.value, bool):
            assert found is option.value, name
        else:
            assert found.name == option.value, name


def test_llamacpp_server_names_an_unknown_word() -> None:
    options = server.parse(("-ctk", "q9", *NEEDED), 4)
    with pytest.raises(ValueError, match=r"--cache-type-k: 'q9' is none of .*q8_0"):
        server.parameters(xllamacpp, options, "", 4)


def test_llamacpp_server_keeps_its_address() -> None:
    options = server.parse(
        ("--embeddings", "-c", "512", "-np", "2", "-ngl", "0", "--lora", "x", *NEEDED), 4
    )
    params = server.parameters(xllamacpp, options, "key", 4)
    assert (params.port, params.n_ctx, params.n_parallel, params.n_gpu_layers) == (1, 512, 2, 0)
    assert (params.embedding, [one.path for one in params.lora_adapters]) == (True, ["x"])
    with pytest.raises(SystemExit):
        server.parse(("--api-prefix", "/x", *NEEDED), 4)


def test_llamacpp_server_defaults() -> None:
    options = server.parse(("--model", "m", "--alias", "a", "--port", "1"), 8)
    assert (options.threads, options.parallel, options.ctx_size, options.embedding) == (
        4,
        4,
        0,
        False,
    )
    assert server.parse(("--model", "m", "--alias", "a", "--port", "1"), 1).threads == 1
