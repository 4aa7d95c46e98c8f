"""Mutations of what an etcd writer can decide, of what tenants can write that others read, and of
how much they can write. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

SHARING = ("tests/unit/common/test_sharing.py",)
MODELS = ("tests/wire/test_shared_models.py",)
CONTAINER = ("tests/unit/agent/test_docker_node_settings.py", "-k", "own_model")
DISKS = ("tests/isolation/test_disks.py",)
LIMITS = ("tests/unit/agent/test_disk_limits.py",)
PROCESS = "agent/runtimes/process"
FETCHING = "agent/models/fetching.py"
CREATE = "agent/kernel/create.py"

MUTATIONS = (
    Mutation(
        "etcd sets everything but secrets",
        "common/config/loader.py",
        "    if reason := why_local(name):",
        "    if (reason := why_local(name)) and name in SECRETS:",
        (*SHARING, "-k", "local_setting"),
    ),
    Mutation(
        "a setting that nobody has classified is taken from etcd",
        "common/config/sharing.py",
        'LOCAL.get(name, "is not in the list of settings that may be in etcd")',
        'LOCAL.get(name, "")',
        (*SHARING, "-k", "not_classified"),
    ),
    Mutation(
        "a command of a host is taken from etcd",
        "common/config/sharing.py",
        '        "agent.stop_kernels_on_exit",\n',
        '        "agent.stop_kernels_on_exit",\n        "agent.vllm_command",\n',
        (*SHARING, "-k", "either or choice"),
    ),
    Mutation(
        "a running daemon announces settings of etcd that it will not take",
        "server/shared_settings.py",
        "[name for name in changed if not why_local(name)]",
        "changed",
        (*SHARING, "-k", "running_daemon"),
    ),
    Mutation(
        "a container can change its model in the cache of all",
        "agent/runtimes/docker/container_config.py",
        'config["mounts"].append(mount | {"ReadOnly": True})',
        'config["mounts"].append(mount | {"ReadOnly": False})',
        CONTAINER,
    ),
    Mutation(
        "a member chooses hub and directory of the download step",
        FETCHING,
        "{} if spec.isolated else spec.env",
        "spec.env",
        (*MODELS, "-k", "variables_of_a_member"),
    ),
    Mutation(
        "an administrator's variables choose the directory of the download step",
        FETCHING,
        (
            "    env = _environment(agent_env, {} if spec.isolated else spec.env) | {\n"
            '        "HF_HUB_CACHE": str(hub_cache)\n'
            "    }"
        ),
        (
            '    env = {"HF_HUB_CACHE": str(hub_cache)} | _environment(\n'
            "        agent_env, {} if spec.isolated else spec.env\n"
            "    )"
        ),
        (*MODELS, "-k", "no_directory"),
    ),
    Mutation(
        "a member's own token fills the cache of all",
        FETCHING,
        "return _loads_from_hub(spec) and not own_hub",
        "return _loads_from_hub(spec)",
        (*MODELS, "-k", "hub_of_its_own"),
    ),
    Mutation(
        "models of the cache have the mode of the agent's own files",
        FETCHING,
        "on_progress, umask=_READABLE_UMASK)",
        "on_progress)",
        (*MODELS, "-k", "gets_its_model"),
    ),
    Mutation(
        "a container whose image declares ports loads its model by itself",
        "agent/kernel/task.py",
        "                launch = create.prepare_launch(context, self.record, engine, model)",
        "                launch = create.prepare_launch(context, self.record, engine)",
        (*MODELS, "-k", "declares_ports"),
    ),
    Mutation(
        "a kernel has the disk of the agent",
        f"{PROCESS}/disks.py",
        "        if not self._limit or self._by_quota:\n            return\n        # Kernels",
        "        if True:\n            return\n        # Kernels",
        (*DISKS, "-k", "cannot_store"),
    ),
    Mutation(
        "members' processes run without a limit where none can be kept",
        f"{PROCESS}/disks.py",
        "                raise self._impossible(error) from None",
        "                log.error(str(error))",
        (*DISKS, "-k", "without_a_way"),
    ),
    Mutation(
        "the disk of an ended kernel stays mounted",
        f"{PROCESS}/disks.py",
        "    _unmount(folder)\n    image.unlink",
        "    image.unlink",
        (*DISKS, "-k", "younger"),
    ),
    Mutation(
        "disks of a killed agent stay",
        f"{PROCESS}/disks.py",
        "                remove_disk(self._images / image.stem, image)",
        "                continue",
        (*DISKS, "-k", "killed_agent"),
    ),
    Mutation(
        "kept workspaces are empty after a boot",
        f"{PROCESS}/disks.py",
        "                self._mount_again(image, kept)",
        "                continue",
        (*DISKS, "-k", "kept_workspace"),
    ),
    Mutation(
        "a quota limits files only",
        f"{PROCESS}/quotas.py",
        (
            "    return struct.pack(\n"
            '        "=8QI4x", size // _BLOCK, 0, 0, files, 0, 0, 0, 0, _BLOCK_LIMITS | _FILE_LIMITS\n'
            "    )"
        ),
        '    return struct.pack("=8QI4x", size // _BLOCK, 0, 0, files, 0, 0, 0, 0, _FILE_LIMITS)',
        LIMITS,
    ),
    Mutation(
        "the limit of the disk is not that of the settings",
        f"{PROCESS}/isolation.py",
        "parse_size(settings.process_disk)",
        "0",
        LIMITS,
    ),
    Mutation(
        "a disk that Postgres shares is no warning",
        "server/doctor/shared_disk.py",
        "if _disk(path) == _disk(database)}",
        "if False}",
        ("tests/unit/server/test_shared_disk.py",),
    ),
    Mutation(
        "a revision may be a path",
        FETCHING,
        "    if not _REVISION.fullmatch(revision):",
        "    if not revision:",
        (*MODELS, "-k", "no_path"),
    ),
    Mutation(
        "a download runs as the agent's user for a process that is refused",
        CREATE,
        "    elif spec.isolated:\n        return None",
        "    elif False:\n        return None",
        (*MODELS, "-k", "will_be_refused"),
    ),
)
