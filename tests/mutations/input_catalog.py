"""Faults in what people enter and what reaches their programs: commands, values, files. A part of
the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ENGINES = ("tests/unit/agent/test_engines.py",)
SLOTS = ("tests/unit/common/test_slots.py",)
VARIABLES = ("tests/unit/common/test_spec_env.py",)
OUTPUT = ("tests/unit/cli/test_cli_output_errors.py",)
CONTAINERS = ("tests/unit/agent/test_docker_container_config.py",)
COPIES = ("tests/unit/cli/test_cli_copy_script.py",)
HEALTH = ("tests/unit/agent/test_health.py",)
EVERYDAY = ("tests/unit/cli/test_cli_everyday.py",)
MANIFESTS = ("tests/unit/cli/test_cli_apply.py", "-k", "invalid_file or merged")
LISTINGS = ("tests/store/test_listings.py", "-k", "parts_of_names")
COMPRESSION = ("tests/store/api/test_api_reading.py", "-k", "compressed")
REFUSALS = ("tests/store/api/test_api_refusals.py", "-k", "malformed")

MUTATIONS = (
    Mutation(
        "braces in every command are replaced",
        "agent/engines/custom.py",
        "if has_placeholders(spec):",
        "if True:",
        ENGINES,
    ),
    Mutation(
        "an escaped placeholder is replaced",
        "agent/engines/base.py",
        'if found["name"] else found[0][1:-1]',
        'if found["name"] else found[0]',
        ENGINES,
    ),
    Mutation(
        "a batch kernel without clients gets a port for the text {port}",
        "agent/engines/base.py",
        "uses_port = has_placeholders(spec) and any(",
        "uses_port = any(",
        ENGINES,
    ),
    Mutation(
        "a memory of 16 means 16 bytes",
        "common/model/slots.py",
        "if not match[2] and (0 < size < _LEAST_WITHOUT_UNIT or size != int(size)):",
        "if not match[2] and size != int(size):",
        SLOTS,
    ),
    Mutation(
        "a fraction of a byte is dropped",
        "common/model/slots.py",
        "_LEAST_WITHOUT_UNIT or size != int(size)):",
        "_LEAST_WITHOUT_UNIT):",
        SLOTS,
    ),
    Mutation(
        "the last of two equal keys of a request counts",
        "manager/api/http/request.py",
        "        check_unique_keys(raw)\n",
        "",
        REFUSALS,
    ),
    Mutation(
        "the last of two equal keys of a manifest counts",
        "cli/yaml_input.py",
        "if (key.tag, key.value) in seen:",
        "if False:",
        MANIFESTS,
    ),
    Mutation(
        "a variable that no program can be given is accepted",
        "common/model/spec_fields.py",
        "if size > allowed:",
        "if False:",
        VARIABLES,
    ),
    Mutation(
        "the size of a variable is counted in characters",
        "common/model/spec_fields.py",
        "        size = byte_size(text)\n",
        "        size = len(text)\n",
        VARIABLES,
    ),
    Mutation(
        "variables of any total size are accepted",
        "common/model/spec_fields.py",
        "if total > _MAX_ENV_BYTES:",
        "if False:",
        VARIABLES,
    ),
    Mutation(
        "a separator of Unicode ends a line of variables",
        "cli/parse.py",
        'return [line.removesuffix("\\n").removesuffix("\\r") for line in file]',
        "return file.read().splitlines()",
        EVERYDAY,
    ),
    Mutation(
        "a user that the image knows is named again",
        "agent/runtimes/docker/files.py",
        "if any(len(row) > 2 and _is_id(row[2]) and int(row[2]) == int(uid) for row in rows):",
        "if False:",
        CONTAINERS,
    ),
    Mutation(
        "a file that grows cannot be copied",
        "common/copy_scripts.py",
        "in *GNU*) code=0;; esac; fi",
        "in *GNU*) ;; esac; fi",
        COPIES,
    ),
    Mutation(
        "any error of tar is taken for a file that grows",
        "common/copy_scripts.py",
        'if [ "$code" = 1 ]; then',
        'if [ "$code" != 0 ]; then',
        COPIES,
    ),
    Mutation(
        "a file that goes while it is listed gets the size of the next",
        "common/copy_scripts.py",
        'if line and lines.startswith(name + b"\\n", line.end()):',
        "if line:",
        ("tests/unit/cli/test_listing_script.py",),
    ),
    Mutation(
        "a sparse file is sent without its holes",
        "common/tar_head.py",
        "self._sparse = self._sparse or found.type == tarfile.GNUTYPE_SPARSE",
        "self._sparse = self._sparse or False",
        ("tests/unit/common/test_tar_head.py",),
    ),
    Mutation(
        "a page of a session runs in the console's origin",
        "manager/api/kernels/files.py",
        "attachment; filename*",
        "inline; filename*",
        ("tests/e2e/test_session_files.py", "-k", "listed_read_and_stored"),
    ),
    Mutation(
        "a sparse file fills the disk",
        "common/archive.py",
        "if piece == _ZEROS[: len(piece)]:",
        "if False:",
        COPIES,
    ),
    Mutation(
        "every health check of an idle engine generates",
        "agent/kernel/health.py",
        "            return await self._check.probe_quietly()\n",
        "            return await self._check.probe_once()\n",
        HEALTH,
    ),
    Mutation(
        "an engine that stands still with requests is asked for its health only",
        "agent/kernel/health.py",
        "is_doubtful = has_requests and metrics.progress <= self._progress",
        "is_doubtful = False",
        HEALTH,
    ),
    Mutation(
        "an engine that failed a check is asked for its health only",
        "agent/kernel/health.py",
        "if metrics is None or self._failures or is_due:",
        "if metrics is None or is_due:",
        HEALTH,
    ),
    Mutation(
        "an idle engine never generates again",
        "agent/kernel/health.py",
        "if metrics is None or self._failures or is_due:",
        "if metrics is None or self._failures:",
        HEALTH,
    ),
    Mutation(
        "a full disk ends a command with a traceback",
        "cli/standard_streams.py",
        "            raise OutputFailed(error) from None",
        "            raise",
        OUTPUT,
    ),
    Mutation(
        "a closed output is taken for one that was written",
        "cli/standard_streams.py",
        "os.O_WRONLY if number == STDERR else os.O_RDONLY",
        "os.O_RDWR",
        OUTPUT,
    ),
    Mutation(
        "what is buffered for a full disk fails at the exit of the interpreter",
        "cli/errors.py",
        "            sys.stdout.flush()  # here, because nobody reports what fails at the exit\n",
        "",
        OUTPUT,
    ),
    Mutation(
        "a character that the locale lacks ends a command",
        "cli/standard_streams.py",
        'errors = "backslashreplace" if raw.fileno() == STDERR else "replace"',
        "pass",
        OUTPUT,
    ),
    Mutation(
        "a user without a home gets a traceback",
        "__main__.py",
        'if os.path.expanduser("~") == "~":',
        "if False:",
        OUTPUT,
    ),
    Mutation(
        "a byte order mark belongs to the first variable",
        "cli/parse.py",
        'encoding="utf-8-sig"',
        'encoding="utf-8"',
        EVERYDAY,
    ),
    Mutation(
        "arguments are measured in characters",
        "common/model/spec_fields.py",
        "if (size := byte_size(word)) > allowed:",
        "if (size := len(word)) > allowed:",
        VARIABLES,
    ),
    Mutation(
        "paths and secrets are measured in characters",
        "common/model/spec_fields.py",
        "if (size := byte_size(text)) > limit:",
        "if (size := len(text)) > limit:",
        VARIABLES,
    ),
    Mutation(
        "a command that no message can hold is sent",
        "sdk/execution.py",
        "if (size := byte_size(text)) > MAX_MESSAGE_BYTES:",
        "if (size := byte_size(text)) > MAX_MESSAGE_BYTES * 4:",
        ("tests/unit/sdk/test_sdk_execution.py",),
    ),
    Mutation(
        "processes of an agent without a user name have none",
        "agent/engines/base.py",
        "    inherited |= missing_names(inherited | spec.env, own_name)\n",
        "",
        ENGINES,
    ),
    Mutation(
        "a session's LOGNAME is the agent's although it sets USER",
        "agent/engines/base.py",
        "if own_user or not spec.env.keys().isdisjoint(_USER_NAMES):",
        "if own_user:",
        ENGINES,
    ),
    Mutation(
        "the size of a file above 8 GiB stands in a header that BusyBox skips",
        "common/archive.py",
        "format=tarfile.GNU_FORMAT",
        "format=tarfile.PAX_FORMAT",
        ("tests/unit/cli/test_cli_archive.py", "-k", "8_gib"),
    ),
    Mutation(
        "an unknown tool of moorage mcp is left out silently",
        "cli/mcp/tools.py",
        "if unknown := sorted(set(names) - known):",
        "if unknown := sorted(set(names) & set[str]()):",
        ("tests/unit/cli/test_cli_mcp.py", "-k", "unknown_tools"),
    ),
    Mutation(
        "a next step names a tool that the agent does not have",
        "cli/mcp/next_steps.py",
        "if tool is None or tool.name not in offered or (values",
        "if tool is None or (values",
        ("tests/unit/cli/test_cli_mcp.py", "-k", "next_steps"),
    ),
    Mutation(
        "a next step that changes a group names the tool that lists groups",
        "cli/mcp/next_steps.py",
        "or (values and not tool.argument):",
        "or (values and False):",
        ("tests/unit/cli/test_cli_mcp.py", "-k", "next_steps"),
    ),
    Mutation(
        "a percent sign in a search matches everything",
        "manager/store/database/search.py",
        "autoescape=True",
        "autoescape=False",
        LISTINGS,
    ),
    Mutation(
        "a search distinguishes upper and lower case",
        "manager/store/database/search.py",
        "column.icontains(",
        "column.contains(",
        LISTINGS,
    ),
    Mutation(
        "answers to writes, which can contain secrets, are compressed",
        "manager/api/http/compression.py",
        'request.method != "GET"',
        'request.method == "HEAD"',
        COMPRESSION,
    ),
    Mutation(
        "a client that refuses gzip gets it",
        "common/http/codings.py",
        'return digits.strip("0.") != "" if digits else True',
        "return True",
        COMPRESSION,
    ),
    Mutation(
        "devices of nodes that take no new work count as free",
        "manager/store/platform/sql/overview_free.sql",
        "AND a.ready AND a.cordon = ''",
        "AND a.cordon = ''",
        ("tests/store/test_watching.py", "-k", "attention"),
    ),
)
