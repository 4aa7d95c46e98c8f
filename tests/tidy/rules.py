"""Tidiness rules: each is a function from a file's path and text to a list of complaints."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache

from moorage.common.model.runtimes import RUNTIMES, isolated_name

Rule = Callable[[str, str], list[str]]

# The rules check one file after the other.
_tree = lru_cache(1)(ast.parse)


@lru_cache(1)
def _nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(text)))


# Twice a screen. Many lines of a function are arguments, one per line.
FUNCTION_LINES = 80
EXPORTS = 10
# Longer functions that were reviewed: they name the parts of a component, one after the other.
LONG_FUNCTIONS = {
    ("src/moorage/manager/service.py", "_start"),
    ("src/moorage/manager/store/store.py", "__init__"),
}
# A call shows the meaning of a value by its name. With positions, a reader has to count.
POSITIONAL = 4
# Signatures that were reviewed, and why each is right as it is.
LONG_SIGNATURES = {
    ("src/moorage/cli/errors.py", "main"): "overrides a method of Typer",
    ("src/moorage/manager/store/database/notifier.py", "_on_notify"): "asyncpg calls it",
}
# Library functions that take any number of values: statement parameters, struct fields, and
# arguments of a system call or of the function that they call.
OPEN_CALLS = {
    "fetch",
    "fetchrow",
    "min",
    "mount",
    "pack",
    "pack_into",
    "prctl",
    "syscall",
    "to_thread",
    "zip",
}
# Longer files are worth a look, because a file should hold one concept.
FILE_LINES = 500
# Longer files that were reviewed, and why each is right as it is.
LONG_FILES: dict[str, str] = {
    "src/moorage/agent/kernel/task.py": "one task is one life of a kernel",
    "src/moorage/agent/runtimes/process/networks.py": "one network of a session, IPv4 and IPv6",
    "src/moorage/agent/service.py": "composes one agent",
    "src/moorage/manager/service.py": "composes one manager",
    "src/moorage/common/model/spec.py": "the fields of one specification",
    "src/moorage/proxy/core/flow.py": "one machine: the events of a request and their commands",
    "tests/gpu/kit/platform_parts.py": "the parts of one kit, one after the other",
    "tests/mutations/proxy_catalog.py": "a list",
    "tests/mutations/scheduler_catalog.py": "a list",
    "tests/store/test_loads.py": "one subject",
    "tests/store/test_newer_rows.py": "one case for each reader",
    "tests/tidy/rules.py": "a list of rules",
    "tests/wire/test_heappe_runtime.py": "one runtime",
    "tests/wire/test_manager_link.py": "one link",
}
BANNED_NAMES = {"utils", "util", "helpers", "helper", "misc", "v2", "legacy"}
CANONICAL_HOSTS = {"pypi.org", "files.pythonhosted.org"}

# (file, function) that may catch every exception, and why.
CATCH_ALL = {
    (
        "src/moorage/common/aio/supervisor.py",
        "_supervise",
    ): "a failure is logged, and the task is restarted",
    (
        "src/moorage/manager/store/database/batch_writer.py",
        "_flush",
    ): "every caller gets a result or an exception",
    (
        "src/moorage/manager/scheduling/placement/selector_plugin.py",
        "select_agent",
    ): "a third-party selector: its failure is a refusal",
    (
        "src/moorage/manager/selector_plugins.py",
        "load",
    ): "a third-party module: one that cannot be imported refuses with a reason",
    (
        "src/moorage/agent/runtimes/plugins.py",
        "load",
    ): "a third-party module: one that cannot be imported is named, with its package",
    (
        "src/moorage/agent/devices/nvidia/calls.py",
        "_run",
    ): "raised again in the thread of the caller",
    **{
        (
            "src/moorage/agent/devices/plugins.py",
            name,
        ): "a vendor's failure affects only its own devices"
        for name in ("_call", "installed_vendors")
    },
    **{
        (
            f"src/moorage/agent/runtimes/celery/{file}.py",
            name,
        ): "parts of Celery raise what they like"
        for file, name in (
            ("task_runner", "check"),
            ("task_runner", "_submit"),
            ("task_runner", "_seen"),
        )
    },
    (
        "src/moorage/manager/api/app.py",
        "middleware",
    ): "the manager's HTTP middleware: a bug is a 500",
    (
        "src/moorage/proxy/planes/simple/plane.py",
        "_handle",
    ): "the proxy's HTTP middleware: a bug is a 500",
}
# Files that may read the system clock.
OWN_CLOCK = {
    "src/moorage/agent/runtimes/celery/task_runner.py",  # it runs without Moorage
    "src/moorage/common/aio/clock.py",
    # a separate program, which imports none of our code
    "src/moorage/agent/runtimes/batch/launcher.py",
}

# Files that may start tasks by themselves.
OWN_TASKS = {
    "src/moorage/common/aio/tasks.py",
    # a separate program, which imports none of our code
    "src/moorage/agent/execution/code/speaker.py",
}

# Files that name runtimes: the runtimes themselves, their table, the setting that chooses them, and
# checks of their parts.
NAMES_RUNTIMES = (
    "src/moorage/agent/runtimes/",
    "src/moorage/common/model/runtimes.py",
    "src/moorage/common/config/settings.py",
    "src/moorage/server/doctor/",
)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _generated(path: str) -> bool:
    return "_pb2" in path


def _ours(path: str) -> bool:
    return path.startswith("src/moorage/") and path.endswith(".py") and not _generated(path)


def _python(path: str) -> bool:
    return path.endswith(".py") and not _generated(path)


def function_length(path: str, text: str) -> list[str]:
    """A function of many lines does more than one thing. Blank lines are not counted."""
    if not _python(path):
        return []
    lines = text.splitlines()
    found = []
    for node in _nodes(text):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        size = sum(1 for line in lines[node.lineno - 1 : node.end_lineno] if line.strip())
        if size > FUNCTION_LINES and (path, node.name) not in LONG_FUNCTIONS:
            found.append(
                f"line {node.lineno}: {node.name} has {size} lines, more than {FUNCTION_LINES}"
            )
    return found


PARAGRAPH_LINES = 10
PARAGRAPH_STATEMENTS = 4


def paragraphs(path: str, text: str) -> list[str]:
    """A blank line divides the body of a long function. Constructors and lists of assignments need
    none, nor do two or three statements."""
    if not _ours(path) or "/migrations/versions/" in path:
        return []
    lines = text.splitlines()
    return [
        f"line {node.lineno}: part the body of {node.name} by a blank line"
        for node in _nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name != "__init__"
        and _needs_paragraphs(node)
        and all(map(str.strip, lines[_body(node)[0].lineno - 1 : node.end_lineno]))
    ]


def _needs_paragraphs(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = _body(node)
    is_long = len(body) > 0 and (node.end_lineno or 0) - body[0].lineno >= PARAGRAPH_LINES
    is_list = all(isinstance(statement, ast.Assign | ast.AnnAssign) for statement in body)
    return is_long and len(body) >= PARAGRAPH_STATEMENTS and not is_list


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """The statements without the docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def signatures(path: str, text: str) -> list[str]:
    """A function takes at most four positional arguments besides its object. Tests, fixtures and
    commands are called by name. Cached functions keep their positional arguments, because a named
    argument makes a different key, and is slower."""
    if not _python(path) or "/migrations/versions/" in path:
        return []
    found = []
    for node in _nodes(text):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count <= POSITIONAL or (path, node.name) in LONG_SIGNATURES:
            continue
        if node.name.startswith("test_") or _is_cached(node) or _is_called_by_name(node):
            continue
        found.append(
            f"line {node.lineno}: {node.name} takes {count} arguments by position, more than "
            f"{POSITIONAL}"
        )
    return found


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    calls = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return {ast.unparse(call).rpartition(".")[2] for call in calls}


def _is_called_by_name(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(_decorators(node) & {"command", "list_command", "callback", "fixture"})


def _is_cached(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(_decorators(node) & {"lru_cache", "cache"})


def _assigned(node: ast.Assign) -> list[ast.expr]:
    found: list[ast.expr] = []
    for target in node.targets:
        found += target.elts if isinstance(target, ast.Tuple) else [target]
    return found


def one_attribute(path: str, text: str) -> list[str]:
    """A statement that only lists values sets one attribute: a reader looks for its name at the
    beginning of a line. Unpacking the result of a call is another matter, and so is swapping two
    attributes."""
    if not _python(path):
        return []
    found = []
    for node in _nodes(text):
        if not isinstance(node, ast.Assign):
            continue
        targets = _assigned(node)
        if len(targets) == 1 or not any(isinstance(target, ast.Attribute) for target in targets):
            continue
        is_chain = len(node.targets) > 1
        if not is_chain and not isinstance(node.value, ast.Tuple):
            continue
        names = {ast.unparse(target) for target in targets}
        if any(ast.unparse(part) in names for part in ast.walk(node.value) if _is_place(part)):
            continue
        found.append(f"line {node.lineno}: sets {' and '.join(sorted(names))} in one statement")
    return found


# Packages whose components are complete once they are constructed.
_COMPLETE = tuple(
    f"src/moorage/{name}/" for name in ("agent", "common", "manager", "proxy", "server")
)
# (file, object): where attributes of objects from other files are assigned, and why.
OUTSIDE = {
    **{
        ("src/moorage/agent/engines/llamacpp_server.py", name): "parameters of llama.cpp"
        for name in ("found", "params", "params.model", "params.cpuparams", "adapter")
    },
    ("src/moorage/agent/engines/llamacpp_server.py", "params.cpuparams_batch"): "the same",
    ("src/moorage/agent/metrics.py", "merged"): "a metric of the Prometheus client",
    ("src/moorage/agent/runtimes/batch/copying.py", "info"): "an entry of a tar archive",
    ("src/moorage/agent/runtimes/docker/files.py", "entry"): "an entry of a tar archive",
    ("src/moorage/agent/runtimes/heappe/book.py", "job"): "the book alone keeps its jobs",
    ("src/moorage/agent/runtimes/heappe/files.py", "info"): "an entry of a tar archive",
    ("src/moorage/common/archive.py", "entry"): "an entry of a tar archive",
    ("src/moorage/common/http/tls.py", "self.context"): "a context of ssl",
    ("src/moorage/common/link/codec.py", "wire"): "a message of protobuf",
    ("src/moorage/common/link/sync.py", "wire"): "a message of protobuf",
    ("src/moorage/common/link/tls.py", "context"): "a context of ssl",
    ("src/moorage/common/model/reasons.py", "unknown"): "a member that enum does not make",
    ("src/moorage/common/tar_head.py", "entry"): "an entry of a tar archive",
    ("src/moorage/manager/api/app.py", "request.writer"): "a writer of aiohttp",
    ("src/moorage/manager/console/chat.py", "response"): "a response of aiohttp",
    ("src/moorage/manager/rpc/agent_link.py", "wire"): "a message of protobuf",
    (
        "src/moorage/manager/scheduling/incremental/changed_queue.py",
        "cursor.owner",
    ): "a record of the planner's index, for each session that is examined",
    (
        "src/moorage/manager/scheduling/incremental/planner.py",
        "owner",
    ): "a record of the planner's index",
    (
        "src/moorage/manager/scheduling/placement/node_pool.py",
        "node",
    ): "the pool owns its nodes, and places thousands of sessions in a pass",
    ("src/moorage/manager/workloads/pipeline_picture.py", "child"): "an element of XML",
    ("src/moorage/proxy/apps/request_context.py", "self.request.writer"): "a writer of aiohttp",
    ("src/moorage/proxy/control/feed.py", "request"): "a message of protobuf",
    ("src/moorage/proxy/ssh/server.py", "key"): "a key of asyncssh",
}


def assigned_outside(path: str, text: str) -> list[str]:
    """A component is complete once it is constructed, and changes its own state: a reader who looks
    for the writers of an attribute finds them in its file."""
    if not path.startswith(_COMPLETE) or not _python(path):
        return []
    own = {name for node in _nodes(text) for name in _attributes_of_class(node)}
    return [
        f"line {node.lineno}: sets {ast.unparse(node)} of another file's object: pass it to the "
        "constructor, or call a method"
        for node in _nodes(text)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) not in ("self", "cls")
        and node.attr not in own
        and (path, ast.unparse(node.value)) not in OUTSIDE
    ]


def _attributes_of_class(node: ast.AST) -> Iterator[str]:
    """The fields of a class, or the attributes that a method assigns on ``self``."""
    if isinstance(node, ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                yield statement.target.id
    elif isinstance(node, ast.Attribute) and _is_own(node):
        yield node.attr


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"


def _is_place(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Name)


CODE_COLUMNS = 100


_MARK = re.compile(r"  # (?:type: ignore|noqa).*")


def width(path: str, text: str) -> list[str]:
    """Released files keep their width, because migrations are never edited. Multi-line strings have
    their own width, and tool marks and URLs have none."""
    if path.startswith("src/moorage/") and path.endswith(".sql"):
        return [
            f"line {number}: {len(line)} columns, more than {CODE_COLUMNS}"
            for number, line in enumerate(text.splitlines(), 1)
            if len(line) > CODE_COLUMNS
        ]
    if not _ours(path) or "/migrations/versions/" in path:
        return []
    texts = _lines_of_texts(text)
    return [
        f"line {number}: {len(line)} columns, more than {CODE_COLUMNS}"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > CODE_COLUMNS
        and len(_MARK.sub("", line)) > CODE_COLUMNS
        and number not in texts
        and "# https://" not in line
    ]


def _lines_of_texts(text: str) -> set[int]:
    """The lines of multi-line strings that are not documentation."""
    documentation = {
        id(node.value)
        for node in _nodes(text)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found: set[int] = set()
    for node in _nodes(text):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in documentation:
            found.update(
                range(node.lineno, (node.end_lineno or node.lineno) + 1) if _spans(node) else ()
            )
    return found


def _spans(node: ast.expr) -> bool:
    return (node.end_lineno or node.lineno) > node.lineno


# A longer statement has a file of its own.
STATEMENT_LINES = 16


def statement_files(path: str, text: str) -> list[str]:
    """Several statements in one file are short, so that a reader sees where each ends."""
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    if not path.endswith(".sql") or not parts:
        return []
    return [
        f"{name} has {lines} lines, more than {STATEMENT_LINES}: give it a file of its own"
        for name, statement in zip(parts[::2], parts[1::2], strict=True)
        if (lines := len(statement.strip().splitlines())) > STATEMENT_LINES
    ]


def layout_by_hand(path: str, text: str) -> list[str]:
    """Only tables of test cases may switch off the formatter."""
    if not _ours(path):
        return []
    return [
        f"line {number}: let the formatter lay it out"
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"# fmt: ?(skip|off)", line)
    ]


def exports(path: str, text: str) -> list[str]:
    if not (_ours(path) and path.endswith("__init__.py")):
        return []

    names: set[str] = set()
    for node in _tree(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "__all__":
                names = set(ast.literal_eval(node.value))
                break

            names.add(node.targets[0].id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)

    exported = {name for name in names if not name.startswith("_") and name != "annotations"}
    return (
        [f"exports {len(exported)} names, more than {EXPORTS}"] if len(exported) > EXPORTS else []
    )


def file_name(path: str, text: str) -> list[str]:
    if not path.endswith((".py", ".sql", ".proto")):
        return []
    parts = {part.partition(".")[0] for part in path.split("/")}
    return [f"the name {name!r} describes nothing" for name in sorted(parts & BANNED_NAMES)]


def vague_names(path: str, text: str) -> list[str]:
    """A variable, a parameter or a function called ``one`` does not say what it holds."""
    if not _ours(path) or not re.search(r"\bone\b", text):
        return []
    return [
        f"line {node.lineno}: name `one` by what it holds"
        for node in _nodes(text)
        if (isinstance(node, ast.Name) and node.id == "one" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "one")
        or (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.MatchAs | ast.MatchStar)
            and node.name == "one"
        )
    ]


def catch_all(path: str, text: str) -> list[str]:
    """Catching every exception hides bugs, unless the handler ends with a bare ``raise``."""
    if not _ours(path) or "except" not in text:
        return []
    return [
        f"line {handler.lineno}: {function} catches everything"
        for function, handler in _handlers(_tree(text), "")
        if _too_wide(handler) and not _raises_again(handler) and (path, function) not in CATCH_ALL
    ]


def _handlers(node: ast.AST, function: str) -> Iterator[tuple[str, ast.ExceptHandler]]:
    for child in ast.iter_child_nodes(node):
        inside = (
            child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        )
        if isinstance(child, ast.ExceptHandler):
            yield inside, child
        yield from _handlers(child, inside)


def _too_wide(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in caught
    )


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def tasks(path: str, text: str) -> list[str]:
    if not _ours(path) or path in OWN_TASKS:
        return []
    return [
        f"line {node.lineno}: {node.attr}: use moorage.common.aio.tasks.spawn"
        for node in _nodes(text)
        if isinstance(node, ast.Attribute)
        and node.attr in ("create_task", "ensure_future", "TaskGroup")
    ]


def detached(path: str, text: str) -> list[str]:
    """A spawned task without an owner would end unnoticed."""
    if not _ours(path) or "spawn" not in text:
        return []

    return [
        f"line {node.lineno}: nobody waits for this task: keep it and await it, or use SupervisedTask"
        for node in _nodes(text)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).rpartition(".")[2] == "spawn"
    ]


_CLOCKS = re.compile(
    r"^(time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep)"
    r"|(datetime\.)?(datetime|date)\.(now|utcnow|today)"
    r"|uuid\.uuid[1-7]|random\.(?!Random$)\w+|secrets\.(?!compare_digest$)\w+|os\.urandom)$"
)


def clock(path: str, text: str) -> list[str]:
    """Time and randomness come from a Clock. A seeded generator (``random.Random(seed)``) is
    allowed."""
    if not _ours(path) or path in OWN_CLOCK:
        return []

    complaints = []
    for node in _nodes(text):
        used: list[str] = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            used = [ast.unparse(node)]
        elif isinstance(node, ast.ImportFrom):
            used = [f"{node.module}.{alias.name}" for alias in node.names]

        complaints += [
            f"line {_line(node)}: {name}: take a Clock" for name in used if _CLOCKS.match(name)
        ]

    return complaints


def mocks(path: str, text: str) -> list[str]:
    if not (_python(path) and path.startswith(("tests/", "benchmarks/"))):
        return []

    found = []
    for node in _nodes(text):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue

        if any(name == "mock" or name.startswith("unittest.mock") for name in names):
            found.append(f"line {node.lineno}: use a real component, or a fake that ships")

    return found


_REMINDERS = ("TODO", "FIXME", "XXX", "HACK")
_UNRESOLVED = re.compile(rf"\b({'|'.join(_REMINDERS)})\b")
# Every match of the pattern contains one of these; most files have none, and a plain search is much
# faster.
_OF_MACHINES = (
    "/root/", "/work/", "/home/", "10.", "192.168.", "172.", ".internal", ".corp", ".lan", "index-url",
)  # fmt: skip
_MACHINE = re.compile(
    r"(?<![\w.])/(?:root|work)/\w|/home/(?!user\b)\w+/"
    r"|\b(?:10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+|172\.(?:1[6-9]|2\d|3[01])\.\d+\.\d+)\b"
    r"|(?://|@)[\w.-]+\.(?:internal|corp|lan)\b"
    r"|\b(?:extra-)?index-url\s*=\s*\S*//"
)


def unresolved(path: str, text: str) -> list[str]:
    if not any(word in text for word in _REMINDERS):
        return []
    return [
        f"line {number}: resolve it, or open an issue"
        for number, line in enumerate(text.splitlines(), 1)
        if _UNRESOLVED.search(line)
    ]


def machine(path: str, text: str) -> list[str]:
    """No paths from one machine and no hosts from a private network."""
    if not any(part in text for part in _OF_MACHINES):
        return []
    return [
        f"line {number}: {found[0]!r} is specific to one machine or network"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _MACHINE.search(line))
    ]


_OPEN_END = re.compile(r"""re\.compile\(r?["'].*\$["']""")


def full_match(path: str, text: str) -> list[str]:
    """`$` also matches before a newline at the end, so a value with one would be valid."""
    return [
        f"line {number}: leave out the $, and use fullmatch"
        for number, line in enumerate(text.splitlines(), 1)
        if path.startswith("src/") and _OPEN_END.search(line)
    ]


def lock_hosts(path: str, text: str) -> list[str]:
    if path != "uv.lock":
        return []
    hosts = set(re.findall(r"\w+://([^/\"\s]+)", text))
    return [f"unknown host {host}: make lock" for host in sorted(hosts - CANONICAL_HOSTS)]


def requirements(path: str, text: str) -> list[str]:
    """Only names, versions, markers and file hashes: no URLs, options or paths."""
    if not re.search(r"(^|/)requirements[^/]*\.(txt|lock)$", path):
        return []

    pin = re.compile(
        r"^[A-Za-z0-9._-]+(\[[a-z,]+\])?==[^\s/@]+( ; [^/]+)?( +--hash=sha256:[0-9a-f]{64})+$"
    )
    joined = re.sub(r" \\\n", " ", re.sub(r"(?m)^#.*\n", "", text))
    return [
        f"{line[:60]!r} is not a pin with hashes: make lock, or uv pip compile --generate-hashes"
        for line in joined.splitlines()
        if not pin.match(line)
    ]


_ROOT_FILES = {"__init__.py", "__main__.py", "py.typed"}


def package_root(path: str, text: str) -> list[str]:
    """Only packages are directly under the package."""
    folder, _, name = path.rpartition("/")
    if folder != "src/moorage" or name in _ROOT_FILES:
        return []
    return ["a module directly under moorage: move it into the package of its concept"]


_OPENERS = re.compile(r"^(What|How|Who|Whom|Whose|Where|When|Whether|Which|Why|That|Of)\b")


def docstring(path: str, text: str) -> list[str]:
    """Every module has a docstring that opens with a noun phrase naming the component."""
    if not _python(path) or "/migrations/versions/" in path or "/link/pb/" in path:
        return []
    found = ast.get_docstring(_tree(text))
    if not found:
        return [] if not text.strip() else ["no module docstring"]
    return ["the module docstring does not name the component"] if _OPENERS.match(found) else []


def runtime_names(path: str, text: str) -> list[str]:
    """Everything else checks a runtime's trait, never its name."""
    if not _ours(path) or path.startswith(NAMES_RUNTIMES):
        return []
    names = RUNTIMES.keys() | set(filter(None, map(isolated_name, RUNTIMES)))
    return [
        f"line {_line(node)}: names the runtime {node.value!r}; ask for a trait in common/model/runtimes.py"
        for node in _nodes(text)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]


# Attributes that begin with an underscore but are public: named tuples, os._exit.
_PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit"}
# (test file, private name): why the test may use it.
PRIVATE: dict[tuple[str, str], str] = {}


def private_access(path: str, text: str) -> list[str]:
    """Tests use public interfaces: no ``thing._name``, no import of ``_name``, no patching of
    ``_name``."""
    if not (_python(path) and path.startswith("tests/")) or path.startswith("tests/tidy/"):
        return []
    return [
        f"line {line}: {name} is private"
        for line, name in _private_names(text)
        if (path, name) not in PRIVATE
    ]


def _private_names(text: str) -> Iterator[tuple[int, str]]:
    for node in _nodes(text):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        ):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("moorage"):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node).endswith(("setattr", "getattr")):
            names = [
                a.value
                for a in node.args
                if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]

        for name in names:
            if name.startswith("_") and not name.startswith("__") and name not in _PUBLIC:
                yield _line(node), name


# Refusals of what is no field of a body or query.
NO_FIELD = {
    "src/moorage/manager/api/http/request.py": "headers",
    "src/moorage/manager/api/kernels/commands.py": "messages of a WebSocket",
    "src/moorage/manager/console/chat.py": "the size of the body",
    "src/moorage/manager/crypto/authority.py": "gRPC of agents and proxies",
    "src/moorage/manager/postgres/backup.py": "a file of the command line",
    "src/moorage/manager/rpc/ssh.py": "gRPC of proxies",
    "src/moorage/manager/store/schema/compatibility.py": "an option of the command line",
}


def refused_field(path: str, text: str) -> list[str]:
    """Forms and programs show an error at its field, so a refusal by REST names it."""
    if not path.startswith("src/moorage/manager/") or not _ours(path) or path in NO_FIELD:
        return []
    return [
        f"line {_line(node)}: InvalidInput without `field`"
        for node in _nodes(text)
        if isinstance(node, ast.Call)
        and _called(node) == "InvalidInput"
        and "field" not in {keyword.arg for keyword in node.keywords}
    ]


# Functions that fail for JSON of another type unless as_array or as_object reads it.
_OPENS_JSON = re.compile(
    r"\b(jsonb_(?:each|each_text|array_elements|array_elements_text|array_length|object_keys"
    r"|to_record|to_recordset|populate_record|populate_recordset))\((?!as_array\(|as_object\(|\$\d)"
)
_VALUE_CAST = re.compile(r"\bvalue::(?!text\b|jsonb\b)\w+")
_CAST = re.compile(r"\)::(?!text\b)\w+")
_CAST_CALL = re.compile(
    r"\b(?:cast|float[48]|int[248]|numeric|bool|boolean|uuid|timestamptz|date) ?\(", re.I
)
_INTO_JSON = re.compile(r"->|#>")


def json_casts(path: str, text: str) -> list[str]:
    """One row with a value of the wrong type fails the statement for all rows."""
    folder, _, name = path.rpartition("/")
    if not folder.startswith("src/moorage/manager/store") or not name.endswith((".sql", ".py")):
        return []
    if folder.endswith("/functions") and name.startswith("as_"):
        return []

    found = [
        (m.start(), f"{m[1]} of what may be something else") for m in _OPENS_JSON.finditer(text)
    ]
    found += [(m.start(), f"the cast {m[0]}") for m in _VALUE_CAST.finditer(text)]
    for match in _CAST.finditer(text):
        begins = _opening(text, match.start())
        is_call = begins > 0 and (text[begins - 1].isalnum() or text[begins - 1] == "_")
        if not is_call and _INTO_JSON.search(text, begins, match.start()):
            found.append((begins, f"the cast {text[begins : match.end()]}"))

    for match in _CAST_CALL.finditer(text) if name.endswith(".sql") else ():
        ends = _closing(text, match.end() - 1)
        if _INTO_JSON.search(text, match.end(), ends):
            found.append((match.start(), f"the cast {text[match.start() : ends + 1]}"))

    return [
        f"{text.count(chr(10), 0, at) + 1}: {what}: read it with as_number, as_array or another of "
        "manager/store/schema/functions/as_*.sql"
        for at, what in sorted(found)
    ]


def _opening(text: str, closing: int) -> int:
    """The position where the parenthesis that ends at ``closing`` begins."""
    depth = 0
    for at in range(closing, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return at
    return 0


def _closing(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    return len(text)


def _called(call: ast.Call) -> str:
    """The last part of the called function's name."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


RULES: list[Rule] = [
    function_length, exports, file_name, catch_all, tasks, detached, clock, mocks,
    unresolved, machine, lock_hosts, requirements, package_root, docstring, private_access,
    full_match, runtime_names, json_casts, one_attribute, width, layout_by_hand, signatures,
    paragraphs, statement_files,
    assigned_outside, vague_names, refused_field,
]  # fmt: skip


def lock_differences(uv_lock: str, requirements_lock: str) -> list[str]:
    """Both locks pin the same packages at the same versions, except this project."""
    resolved = {
        (p["name"], p["version"])
        for p in tomllib.loads(uv_lock)["package"]
        if p["name"] != "moorage"
    }
    pinned = {
        (name.partition("[")[0], version)
        for name, _, version in (
            re.split(r" [;\\]", line)[0].partition("==")
            for line in requirements_lock.splitlines()
            if not line.startswith(" ")
        )
    }
    return [
        f"{name}=={version} is in only one of the two locks"
        for name, version in sorted(resolved ^ pinned)
    ]


def long_files(texts: Mapping[str, str], reviewed: Collection[str]) -> list[str]:
    """Long files that are not among the ``reviewed``."""
    sizes = {path: len(text.splitlines()) for path, text in texts.items() if _python(path)}
    return [
        f"{path} has {lines} lines: split it by concept, or name it in LONG_FILES with the reason"
        for path, lines in sizes.items()
        if lines > FILE_LINES and path not in reviewed
    ]


def long_calls(texts: Mapping[str, str]) -> list[str]:
    """Calls in src that pass more than four positional values, unless the called function takes any
    number, is cached, or the values are a row that the call spreads."""
    ours = {path: text for path, text in texts.items() if _ours(path)}
    functions = [
        node
        for text in ours.values()
        for node in _nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    is_open = {node.name for node in functions if node.args.vararg or _is_cached(node)}
    return [
        f"{path}: line {node.lineno}: name the arguments of {_called(node)} from the fifth on"
        for path, text in ours.items()
        for node in _nodes(text)
        if isinstance(node, ast.Call)
        and len(node.args) > POSITIONAL
        and _called(node) not in is_open | OPEN_CALLS
        and not any(isinstance(argument, ast.Starred) for argument in node.args)
    ]


def duplicate_names(paths: Collection[str]) -> list[str]:
    """Test files that pytest cannot distinguish: outside packages it imports them by file name
    alone."""
    found: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if (
            name.startswith("test_")
            and name.endswith(".py")
            and f"{folder}/__init__.py" not in paths
        ):
            found.setdefault(name, []).append(path)

    return [
        f"{' and '.join(sorted(same))} have the same name"
        for same in found.values()
        if len(same) > 1
    ]
