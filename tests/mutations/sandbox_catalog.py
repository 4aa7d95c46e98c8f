"""Mutations of the sandbox of process kernels: each guard removed. Their tests need what ``make
test-isolation`` needs."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PARTS = "tests/isolation/test_sandbox_parts.py"
KERNELS = "tests/isolation/test_hostile_process.py"
NETWORKS = "tests/isolation/test_kernel_networks.py"
NETWORKS6 = "tests/isolation/test_kernel_networks_ipv6.py"
PURE = ("tests/unit/agent/test_isolation.py",)
PRIVILEGES = (PARTS, "-k", "privileges")
MOUNTS = (PARTS, "-k", "mounts")
HOSTILE = (KERNELS, "-k", "hostile_kernel")
PROCESS = "agent/runtimes/process"
ISOLATION = f"{PROCESS}/isolation.py"
SANDBOX = f"{PROCESS}/sandbox.py"
RULES = f"{PROCESS}/network_rules.py"

MUTATIONS = (
    Mutation(
        "a supervisor of commands starts with their environment",
        f"{PROCESS}/execution.py",
        "supervisor_environment() | {name: env[name] for name in _IDENTIFYING if name in env},",
        "env | command.env,",
        (PARTS, "-k", "environment"),
    ),
    Mutation(
        "a shim starts with the environment of its kernel",
        f"{PROCESS}/shim_start.py",
        'return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}',
        "import inspect\n    for frame in inspect.stack():\n"
        '        if frame.function == "start_shim":\n            return dict(frame.frame.f_locals["env"])\n'
        "    return {}",
        (PARTS, "-k", "environment"),
    ),
    Mutation(
        "the node stays writable",
        SANDBOX,
        '_set_attributes("/", _ATTR_RDONLY | _ATTR_NOSUID, recursive=True)',
        '_set_attributes("/", _ATTR_NOSUID, recursive=True)',
        (PARTS, "-k", "read_only"),
    ),
    Mutation(
        "programs of the node keep their set-uid bits",
        SANDBOX,
        '_set_attributes("/", _ATTR_RDONLY | _ATTR_NOSUID, recursive=True)',
        '_set_attributes("/", _ATTR_RDONLY, recursive=True)',
        MOUNTS,
    ),
    Mutation(
        "devices and set-uid programs work in the home of a kernel",
        SANDBOX,
        "_set_attributes(target, _ATTR_NOSUID | _ATTR_NODEV, _ATTR_RDONLY)",
        "_set_attributes(target, 0, _ATTR_RDONLY)",
        MOUNTS,
    ),
    Mutation(
        "nothing replaces what is hidden",
        SANDBOX,
        (
            "            _mount(\n"
            '                "tmpfs", path, kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV, options=f"mode={mode}"\n'  # noqa: E501 - as in the source
            "            )\n"
        ),
        "            pass\n",
        HOSTILE,
    ),
    Mutation(
        "kernels see the processes of the node",
        SANDBOX,
        '        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)',
        "        pass",
        HOSTILE,
    ),
    Mutation(
        "kernels share the memory segments of the node",
        SANDBOX,
        "unshare(CLONE_NEWNS | CLONE_NEWIPC)",
        "unshare(CLONE_NEWNS)",
        (PARTS, "-k", "shared_memory"),
    ),
    Mutation(
        "commands share the memory segments of the node",
        f"{PROCESS}/command_shim.py",
        "join(self.kernel_main, CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET)",
        "join(self.kernel_main, CLONE_NEWNS | CLONE_NEWNET)",
        (PARTS, "-k", "shared_memory"),
    ),
    Mutation(
        "commands see the files of the node",
        f"{PROCESS}/command_shim.py",
        "join(self.kernel_main, CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET)",
        "join(self.kernel_main, CLONE_NEWIPC | CLONE_NEWNET)",
        (PARTS, "-k", "mounts"),
    ),
    Mutation(
        "commands are in the pid namespace of the node",
        f"{PROCESS}/command_shim.py",
        "            join(self.kernel_main, CLONE_NEWPID)",
        "            pass",
        (PARTS, "-k", "among_the_processes"),
    ),
    Mutation(
        "commands have no limits",
        f"{PROCESS}/command_shim.py",
        "        sandbox.join_groups()\n",
        "",
        HOSTILE,
    ),
    Mutation(
        "commands keep the privileges of the agent",
        f"{PROCESS}/command_shim.py",
        "        sandbox.drop_privileges()\n",
        "",
        HOSTILE,
    ),
    Mutation(
        "kernels have no limits",
        f"{PROCESS}/shim_init.py",
        "        sandbox.join_groups()\n",
        "",
        HOSTILE,
    ),
    Mutation(
        "the bounding set keeps its capabilities",
        SANDBOX,
        '                _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)',
        "                break",
        PRIVILEGES,
    ),
    Mutation("supplementary groups stay", SANDBOX, "        os.setgroups([])\n", "", PRIVILEGES),
    Mutation(
        "the gid stays",
        SANDBOX,
        "        os.setresgid(self.uid, self.uid, self.uid)\n",
        "",
        PRIVILEGES,
    ),
    Mutation(
        "the saved uid stays",
        SANDBOX,
        "os.setresuid(self.uid, self.uid, self.uid)",
        "os.setresuid(self.uid, self.uid, 0)",
        PRIVILEGES,
    ),
    Mutation(
        "inheritable capabilities stay",
        SANDBOX,
        '        _call("capset", header, bytes(24))\n',
        "",
        PRIVILEGES,
    ),
    Mutation(
        "set-uid programs give privileges",
        SANDBOX,
        '        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)\n',
        "",
        PRIVILEGES,
    ),
    Mutation(
        "no filter of system calls",
        SANDBOX,
        "        self._filter_system_calls()\n\n",
        "\n",
        HOSTILE,
    ),
    Mutation(
        "the supervisor inside can be traced",
        f"{PROCESS}/shim_init.py",
        "        sandbox.drop_privileges()\n        self._die_with_shim()  # ",
        "        sandbox.drop_privileges()\n        system.prctl_set(4, 1)\n"
        "        self._die_with_shim()  # ",
        (PARTS, "-k", "process_1"),
    ),
    Mutation(
        "a kernel outlives its supervisor",
        f"{PROCESS}/shim_init.py",
        "        self._die_with_shim()  # the change of the uid has reset it\n",
        "",
        (KERNELS, "-k", "ends_with_its_supervisor"),
    ),
    Mutation(
        "the state directory is not hidden",
        ISOLATION,
        "hidden = (*_PRIVATE, str(self._state), *self._rules.hidden)",
        "hidden = _PRIVATE[:3]",
        HOSTILE,
    ),
    Mutation(
        "members read what is mounted for administrators",
        ISOLATION,
        "needed = () if launch.isolated else launch.paths",
        "needed = launch.paths",
        (PARTS, "-k", "closed_files"),
    ),
    Mutation(
        "the owner of what a link leads to changes",
        ISOLATION,
        "os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)",
        "os.chown(name, uid, uid, dir_fd=folder)",
        (KERNELS, "-k", "kept_workspace"),
    ),
    Mutation(
        "the agent writes through links of a kernel",
        f"{PROCESS}/files.py",
        "_DIRECTORY | os.O_NOFOLLOW, dir_fd=at",
        "_DIRECTORY, dir_fd=at",
        (KERNELS, "-k", "kept_workspace"),
    ),
    Mutation(
        "members run unsandboxed where there is no sandbox",
        ISOLATION,
        'return bool(self.problem) and (isolated or self._rules.of == "all")',
        "return False",
        PURE,
    ),
    Mutation(
        "a sandbox that fails counts as one",
        ISOLATION,
        "            attempt(\n                self._sandbox(",
        "            (\n                self._sandbox(",
        (PARTS, "-k", "trial"),
    ),
    Mutation(
        "the trial of a sandbox ignores how it ended",
        f"{PROCESS}/runtime.py",
        'if not status.startswith("started") or outcome is None or outcome.exit_code != 0:',
        "if False:",
        (PARTS, "-k", "programs_fail"),
    ),
    Mutation(
        "a restarted agent forgets the uids of its kernels",
        ISOLATION,
        (
            "        self.uids.load(\n"
            "            {kernel_id: (found.session, found.uid) for kernel_id, found in existing.items()}\n"
            "        )"
        ),
        "        self.uids.load({})",
        (PARTS, "-k", "nobody_else"),
    ),
    Mutation(
        "two sessions share a uid",
        f"{PROCESS}/uids.py",
        "uid = next((uid for uid in candidates if uid not in owners), None)",
        "uid = next(candidates)",
        PURE,
    ),
    Mutation(
        "the uid of a kept workspace goes to another session",
        f"{PROCESS}/uids.py",
        "owners = self._kept_workspaces() | ",
        "owners = {} | ",
        PURE,
    ),
    Mutation(
        "kernels together take all memory",
        f"{PROCESS}/control_groups.py",
        'if "memory" in hierarchy.controllers and self._memory:',
        "if False:",
        (PARTS, "-k", "share_a_limit"),
    ),
    Mutation(
        "kernels run in the network of the node",
        f"{PROCESS}/shim_init.py",
        "        enter_network(network)\n",
        "",
        (NETWORKS, "-k", "squatter and kernel"),
    ),
    Mutation(
        "commands run in the network of the node",
        f"{PROCESS}/command_shim.py",
        "join(self.kernel_main, CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET)",
        "join(self.kernel_main, CLONE_NEWNS | CLONE_NEWIPC)",
        (NETWORKS, "-k", "squatter and exec"),
    ),
    Mutation(
        "kernels reach internal ports",
        RULES,
        "    iifname {kernels} reject\n",
        "",
        HOSTILE,
    ),
    Mutation(
        "kernels reach each other",
        RULES,
        '    oifname "{INTERFACES}*" reject\n',
        "",
        (NETWORKS, "-k", "other_kernels"),
    ),
    Mutation(
        "kernels reach the bridges of the node",
        RULES,
        '    meta oifkind "bridge" {to_others}reject\n',
        "",
        (NETWORKS, "-k", "bridges"),
    ),
    Mutation(
        "kernels reach the metadata of a cloud",
        RULES,
        "    ip daddr 169.254.0.0/16 th dport != {_DNS} reject\n",
        "",
        (NETWORKS, "-k", "metadata"),
    ),
    Mutation(
        "programs that listen on loopback are not reached",
        RULES,
        '    iifname "eth0" meta l4proto tcp dnat ip to 127.0.0.1\n',
        "",
        (NETWORKS, "-k", "published"),
    ),
    Mutation(
        "published ports are free for others",
        f"{PROCESS}/shim.py",
        "    holder.bind((address, port))\n",
        "",
        (NETWORKS, "-k", "published"),
    ),
    Mutation(
        "others may listen at a published port that may be used again",
        f"{PROCESS}/shim.py",
        "_socket.SO_REUSEADDR, 0)",
        "_socket.SO_REUSEADDR, 1)",
        (NETWORKS, "-k", "published"),
    ),
    Mutation(
        "rules that were removed stay away",
        f"{PROCESS}/networks.py",
        '"forward"):',
        '"forward") and False:',
        (NETWORKS, "-k", "rules_come_back"),
    ),
    Mutation(
        "a new agent forgets the published ports",
        f"{PROCESS}/networks.py",
        "self._attached = dict(attached)",
        "self._attached = {}",
        (NETWORKS, "-k", "keeps_the_networks"),
    ),
    Mutation(
        "namespaces of a killed agent stay",
        f"{PROCESS}/networks.py",
        "if path.name.startswith(self._names) and path.name not in used:",
        "if False:",
        (NETWORKS, "-k", "killed"),
    ),
    Mutation(
        "the rules of the previous release end before its kernels",
        ISOLATION,
        "if attachments.keys() >= existing.keys():",
        "if True:",
        (PARTS, "-k", "previous_release"),
    ),
    Mutation(
        "a cluster over several nodes runs without its network",
        ISOLATION,
        "if launch.overlay is None and any(",
        "if False and any(",
        (NETWORKS, "-k", "without_a_key"),
    ),
    Mutation(
        "a node takes members at an address at which nobody reaches them",
        ISOLATION,
        "        _check_address(self._rules.address)\n",
        "",
        (NETWORKS, "-k", "refuses_members"),
    ),
    Mutation(
        "kernels reach the metadata of a cloud by IPv6",
        RULES,
        "    {metadata6}\n",
        "",
        (NETWORKS6, "-k", "internal_address"),
    ),
    Mutation(
        "connections to published ports hang at the IPv6 loopback",
        RULES,
        'to_own6 = f"ip6 daddr != {_NOT_PUBLISHED6} fib daddr type local"',
        'to_own6 = "fib daddr type local"',
        (NETWORKS6, "-k", "published"),
    ),
    Mutation(
        "rules that come back leave out the ports of IPv6",
        RULES,
        '_map(PUBLISHED6, "ipv6_addr", (element6(*entry) for entry in published))',
        '_map(PUBLISHED6, "ipv6_addr", ())',
        ("tests/unit/agent/test_network_rules.py",),
    ),
    Mutation(
        "a node that begins to forward loses its IPv6 routes",
        f"{PROCESS}/networks.py",
        '                    path.write_text("2")\n',
        "                    pass\n",
        (NETWORKS6, "-k", "published"),
    ),
    Mutation(
        "engines of a node that is reached by IPv6 listen on IPv4",
        "agent/kernel/launch.py",
        '_ANY_ADDRESS6 if ":" in context.host else _ANY_ADDRESS',
        "_ANY_ADDRESS",
        ("tests/unit/agent/test_launch.py",),
    ),
    Mutation(
        "a session names another owner to its program",
        "agent/kernel/launch.py",
        "env=call.env\n        | _progress_environment(spec, context)\n"
        "        | run_variables(spec, context.started_at),",
        "env=run_variables(spec, context.started_at)\n        | call.env\n"
        "        | _progress_environment(spec, context)\n        | spec.env,",
        ("tests/unit/agent/test_run_variables.py",),
    ),
    Mutation(
        "a job that waits at its site is told when its run ends",
        "agent/kernel/run_variables.py",
        "if spec.time_limit_s and started_at is not None:",
        "if spec.time_limit_s and (started_at := started_at or datetime.now().astimezone()):",
        ("tests/unit/agent/test_run_variables.py",),
    ),
    Mutation(
        "the number of threads of an image is overridden",
        "agent/runtimes/docker/files.py",
        "if name not in given}",
        "if name}",
        ("tests/containers/test_limits.py", "-k", "overrides_the_defaults"),
    ),
    Mutation(
        "engines of sandboxed kernels listen on the address of the node",
        "agent/kernel/launch.py",
        "any_address if context.own_user else context.host",
        "context.host",
        ("tests/unit/agent/test_launch.py", "-k", "sandboxed"),
    ),
    Mutation(
        "kernels that an invented environment claims are adopted",
        f"{PROCESS}/directories.py",
        "if procfs.uid(pid) in self._uids:",
        "if False:",
        (KERNELS, "-k", "invented"),
    ),
    Mutation(
        "a filter of system calls lets other architectures pass",
        f"{PROCESS}/system_calls.py",
        "_op(_EQUAL, _AUDIT_ARCH[machine], 1, 0),",
        "_op(_EQUAL, _AUDIT_ARCH[machine], 1, 1),",
        PURE,
    ),
    Mutation(
        "the second table of system calls is open",
        f"{PROCESS}/system_calls.py",
        "_op(_AT_LEAST, _X32, 0, 1),",
        "_op(_AT_LEAST, _X32, 1, 1),",
        PURE,
    ),
    Mutation(
        "clone makes user namespaces",
        f"{PROCESS}/system_calls.py",
        "_op(_ANY_BIT, _NEW_NAMESPACES, 0, 1),",
        "_op(_ANY_BIT, _NEW_NAMESPACES, 1, 1),",
        PURE,
    ),
    Mutation(
        "clone3 makes user namespaces",
        f"{PROCESS}/system_calls.py",
        "_op(_EQUAL, _CLONE3, 0, 1),",
        "_op(_EQUAL, _CLONE3, 1, 1),",
        PURE,
    ),
    Mutation(
        "the agent follows a redirect of a tenant's program",
        "agent/kernel/program_client.py",
        "allow_redirects=False",
        "allow_redirects=True",
        ("tests/unit/agent/test_program_client.py",),
    ),
    Mutation(
        "the agent decompresses what a tenant's program answers",
        "agent/kernel/program_client.py",
        "auto_decompress=False",
        "auto_decompress=True",
        ("tests/unit/agent/test_program_client.py",),
    ),
)
