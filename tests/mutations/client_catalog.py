"""Mutations in the command line's reading of session data, and in the API's handling of input from
any client."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ARCHIVE = "common/archive.py"
OUTPUT = "cli/output.py"
PRINTABLE = "common/model/printable.py"
HOSTILE = ("tests/unit/cli/test_cli_hostile_archive.py",)
ESCAPES = ("tests/unit/cli/test_cli_escapes.py",)
FUZZ = ("tests/wire/test_api_fuzz.py", "-k", "every_answer")

MUTATIONS = (
    Mutation(
        "tools of agents without the null that resets a field",
        "cli/mcp/tools.py",
        'resets = self.method == "patch"',
        "resets = False",
        ("tests/unit/cli/test_cli_mcp.py", "-k", "short"),
    ),
    Mutation(
        "a command that no group of the help has",
        "cli/command_groups.py",
        '"contexts", "mcp"',
        '"contexts"',
        ("tests/unit/cli/test_cli_grammar.py", "-k", "group"),
    ),
    Mutation(
        "global options in the help of every command",
        "cli/help_pages.py",
        "if not is_global(parameter)]",
        "]",
        ("tests/unit/cli/test_cli_grammar.py", "-k", "global"),
    ),
    Mutation(
        "a default that its own option refuses",
        "cli/commands/audit.py",
        "    ] = None,\n    limit:",
        "    ] = 0.0,\n    limit:",
        ("tests/unit/cli/test_cli_grammar.py",),
    ),
    Mutation(
        "options of groups take no JSON",
        "cli/parse.py",
        "        elif _is_json(text):\n",
        "        elif False:\n",
        ("tests/tidy/test_documents.py", "-k", "options_of_groups"),
    ),
    Mutation(
        "entries outside of the copy", ARCHIVE, 'or ".." in parts or first != (top,)', "", HOSTILE
    ),
    Mutation(
        "links to absolute paths",
        ARCHIVE,
        'if target.startswith("/") or "\\0" in target',
        "if False",
        HOSTILE,
    ),
    Mutation(
        "links above the copy",
        ARCHIVE,
        "            if after_name or not depth:\n",
        "            if after_name:\n",
        HOSTILE,
    ),
    Mutation(
        "links up after a name",
        ARCHIVE,
        "            if after_name or not depth:\n",
        "            if not depth:\n",
        HOSTILE,
    ),
    Mutation(
        "headers without end",
        ARCHIVE,
        "        if self._left < 0:\n",
        "        if False:\n",
        (*HOSTILE, "--timeout", "20"),
    ),
    Mutation(
        "files without end",
        ARCHIVE,
        "if not 0 <= entry.size <= self._limits.size - self.copied.size:",
        "if False:",
        (*HOSTILE, "--timeout", "20"),
    ),
    Mutation(
        "each file may be as large as all",
        ARCHIVE,
        "self._limits.size - self.copied.size:",
        "self._limits.size:",
        HOSTILE,
    ),
    Mutation(
        "entries without end",
        ARCHIVE,
        "if self._entries > self._limits.entries or self._characters > _NAMES_CHARACTERS:",
        "if False:",
        HOSTILE,
    ),
    Mutation(
        "directories without end",
        ARCHIVE,
        'or entry.name.count("/") > _DEPTH',
        "",
        HOSTILE,
    ),
    Mutation(
        "paths without end",
        ARCHIVE,
        (
            "\n"
            "        if (\n"
            "            max(len(os.fsencode(entry.name)), len(os.fsencode(entry.linkname)))"
            " > _PATH_BYTES\n"
            '            or entry.name.count("/") > _DEPTH\n'
            "        ):"
        ),
        '        if entry.name.count("/") > _DEPTH:',
        HOSTILE,
    ),
    Mutation(
        "hard links to files outside",
        ARCHIVE,
        "self._into.joinpath(*parts_of(entry.linkname, self._top))",
        "self._into.parent.joinpath(entry.linkname)",
        HOSTILE,
    ),
    Mutation(
        "links before the files below them",
        ARCHIVE,
        "            self._links.append((parts, entry.linkname))",
        "            os.symlink(entry.linkname, path)",
        HOSTILE,
    ),
    Mutation(
        "files are written through links",
        ARCHIVE,
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)",
        "os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)",
        HOSTILE,
    ),
    Mutation(
        "members of the archive stay in memory",
        ARCHIVE,
        "                tar.members.clear()  # type: ignore[attr-defined]\n",
        "",
        (*HOSTILE, "-k", "memory_does_not"),
    ),
    Mutation(
        "set-uid programs are copied",
        ARCHIVE,
        "os.fchmod(fd, entry.mode & 0o777)",
        "os.fchmod(fd, entry.mode)",
        ("tests/unit/cli/test_cli_archive.py", *HOSTILE),
    ),
    Mutation(
        "a later copy follows a link to a directory",
        ARCHIVE,
        "if stat.S_ISDIR(arriving) and stat.S_ISDIR(present):\n        with",
        "if stat.S_ISDIR(arriving) and stat.S_ISDIR(os.stat(new, dir_fd=into).st_mode if present else 0):\n"
        "        with",
        HOSTILE,
    ),
    Mutation(
        "directories are opened through links",
        ARCHIVE,
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        ("tests/unit/cli/test_cli_archive.py", *HOSTILE),
    ),
    Mutation("C1 controls pass", PRINTABLE, "\\\\x7f-\\\\x9f", "\\\\x7f", ESCAPES),
    Mutation(
        "text may be reversed", PRINTABLE, "\\\\u2028-\\\\u202e\\\\u2066-\\\\u2069", "", ESCAPES
    ),
    Mutation(
        "names have many lines",
        PRINTABLE,
        '        text = " ".join(text.split())\n',
        "        pass\n",
        ESCAPES,
    ),
    Mutation(
        "JSON writes to the terminal",
        OUTPUT,
        '    return CONTROL.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)',
        "    return text",
        ESCAPES,
    ),
    Mutation(
        "a log writes to the terminal",
        OUTPUT,
        "self._plain = PlainLog() if stream.isatty() and not raw else None",
        "self._plain = None",
        ESCAPES,
    ),
    Mutation(
        "an escape in two pieces of a log passes",
        OUTPUT,
        "unfinished = None if final else self._UNFINISHED.search(text)",
        "unfinished = None",
        ESCAPES,
    ),
    Mutation(
        "a table writes to the terminal",
        OUTPUT,
        "cells = [[printable(cell, one_line=True) for cell in row] for row in rows]",
        "cells = [list(row) for row in rows]",
        ESCAPES,
    ),
    Mutation(
        "a NUL in a path is a fault of the API",
        "manager/api/app.py",
        'if "\\0" in "".join(request.match_info.values()):',
        "if False:",
        ("tests/wire/test_api_fuzz.py", "-k", "nul_in_a_path"),
    ),
    Mutation(
        "times outside of what a clock shows are faults of the API",
        "common/model/timestamps.py",
        "    except OverflowError:\n        utc = None\n"
        "    if utc is None or not _FIRST_YEAR <= utc.year <= _LAST_YEAR:",
        "    except ZeroDivisionError:\n        utc = None\n    if utc is None:",
        ("tests/unit/common/test_timestamps.py",),
    ),
    Mutation(
        "the name of a log counts as its beginning",
        "manager/rpc/logs.py",
        "self.has_data = self.has_data or bool(chunk.data)",
        "self.has_data = True",
        ("tests/wire/test_manager_link.py", "-k", "fails_to_start"),
    ),
    Mutation(
        "the answer with a log begins before its agent answers",
        "manager/rpc/logs.py",
        "        if kernel is None:\n            yield",
        "        if True:\n            yield",
        ("tests/wire/test_manager_link.py", "-k", "answers_late"),
    ),
    Mutation(
        "a kernel that failed before it ran has an empty log",
        "manager/rpc/logs.py",
        (
            "            if not answer.has_data and (\n"
            "                failed := await self._failed(scope, session, kernel, follow)\n"
            "            ):"
        ),
        "            if False and (failed := await self._failed(scope, session, kernel, follow)):",
        ("tests/wire/test_manager_link.py", "-k", "without_a_byte or fails_to_start"),
    ),
    Mutation(
        "the end of a followed log does not wait for the end of its kernel",
        "manager/rpc/logs.py",
        "while kernel.status not in TERMINAL and follow and",
        "while False and",
        ("tests/wire/test_manager_link.py", "-k", "fails_to_start"),
    ),
    Mutation(
        "a session that failed is refused without the cause",
        "manager/rpc/causes.py",
        'return f"{found.status}: {why}" if why else found.status',
        "return found.status",
        ("tests/wire/test_manager_exec.py", "-k", "every_door"),
    ),
    Mutation(
        "a list of what failed has all that has ended",
        "manager/store/sessions/repository.py",
        "and_(s.status == Status.TERMINATED, s.result.in_(sorted(results)))",
        "s.status == Status.TERMINATED",
        ("tests/store/test_session_lifecycle.py", "-k", "status_and_result"),
    ),
    Mutation(
        "a list of what succeeded has sessions of another status",
        "manager/store/sessions/repository.py",
        "and_(s.status == Status.TERMINATED, s.result.in_(sorted(results)))",
        "s.result.in_(sorted(results))",
        ("tests/store/test_session_lifecycle.py", "-k", "status_and_result"),
    ),
    Mutation(
        "a gap in a log takes with it what is in front of it",
        "agent/link/answers.py",
        "            pass\n        except (MoorageError, OSError)",
        "            return\n        except (MoorageError, OSError)",
        ("tests/wire/test_log_offsets.py", "-k", "does_not_follow"),
    ),
    Mutation(
        "a gap is told to followers only",
        "agent/state/log_times.py",
        "return self.follow or self.offset is not None",
        "return self.follow",
        ("tests/unit/agent/test_kernel_logs.py", "-k", "full_disk"),
    ),
    Mutation(
        "a reader stays in front of a gap",
        "agent/state/logs.py",
        "offset >= files[at].size",
        "offset > files[at].size",
        ("tests/unit/agent/test_kernel_logs.py", "-k", "full_disk"),
    ),
    Mutation(
        "what was rotated away before a log was first opened is not told",
        "agent/state/logs.py",
        "lost = file is not None and (file.start or 0) > (place.number or 0)",
        "lost = False",
        ("tests/unit/agent/test_kernel_logs.py",),
    ),
    Mutation(
        "the number of a log's first shown line is that of its file",
        "agent/state/logs.py",
        "piece.number + lines.first",
        "piece.number",
        ("tests/unit/agent/test_log_times.py",),
    ),
    Mutation(
        "a loss that the numbers of bytes show is not told",
        "sdk/log_positions.py",
        "return offset <= first",
        "return True",
        ("tests/unit/sdk/test_sdk_log_following.py", "-k", "loss_is_told"),
    ),
    Mutation(
        "a log is read on from a byte of another attempt",
        "sdk/log_following.py",
        "since=None, attempt=seen.attempt)",
        "since=None)",
        ("tests/unit/sdk/test_sdk_log_following.py", "-k", "makes_progress"),
    ),
    Mutation(
        "a reading that does not follow is repeated without progress",
        "sdk/log_following.py",
        "return self._has_progressed and self._seen.place is not None",
        "return self._seen.place is not None",
        ("tests/unit/sdk/test_sdk_log_following.py", "-k", "makes_progress"),
    ),
    Mutation(
        "what is stored of a log stands for its rest",
        "manager/rpc/logs.py",
        "self.is_final = request.is_timed or bool(request.offset)",
        "self.is_final = request.is_timed",
        ("tests/wire/test_manager_link.py", "-k", "is_no_rest"),
    ),
    Mutation(
        "seconds without a byte of a log count as progress",
        "sdk/log_following.py",
        "if now - self._began_at > OUTAGE_S:",
        "if now - self._began_at > _LONGEST_PAUSE_S:",
        ("tests/unit/sdk/test_sdk_log_following.py", "-k", "only_ever_begins"),
    ),
    Mutation(
        "a log that only ever begins is followed for ever",
        "sdk/log_following.py",
        "self._began_at = self._clock.monotonic()\n                    self._place_at",
        "self._progress()\n                    self._place_at",
        ("tests/unit/sdk/test_sdk_log_following.py", "-k", "only_ever_begins"),
    ),
    Mutation(
        "a platform is up before its agent is connected",
        "server/all_in_one.py",
        "        await self._until_connected(connected, proxy)\n",
        "",
        ("tests/wire/test_all_in_one.py", "-k", "once_it_is_up"),
    ),
    Mutation(
        "a table cuts names",
        OUTPUT,
        'names = [i for i in filled if i == 0 or columns[i] == "NAME"]',
        "names = []",
        ("tests/unit/cli/test_cli_tables.py",),
    ),
    Mutation(
        "a caller's own sessions are those of all",
        "cli/commands/ps.py",
        "return replace(self, user=user, mine=False)",
        "return replace(self, mine=False)",
        ("tests/unit/cli/test_cli_list_filters.py",),
    ),
    Mutation(
        "describe advises to restart a degraded cluster",
        "cli/summary.py",
        "return view.status == Status.RUNNING and view.detail.startswith(WITHOUT)",
        "return False",
        ("tests/unit/cli/test_cli_clusters.py",),
    ),
    Mutation(
        "the agents of earlier attempts are silent",
        "cli/summary.py",
        "since is not None and kernel.attempt == view.attempt",
        "since is not None",
        ("tests/unit/cli/test_cli_clusters.py",),
    ),
    Mutation(
        "a suspect agent reports",
        "manager/store/sessions/sql/session_kernels.sql",
        "a.status IN ('SUSPECT', 'LOST')",
        "a.status = 'LOST'",
        ("tests/store/test_one_live_attempt.py", "-k", "silent"),
    ),
    Mutation(
        "a slot given twice has its second amount",
        "cli/parse.py",
        "        if slot in requested:\n",
        "        if False:\n",
        ("tests/unit/cli/test_cli_session_options.py",),
    ),
    Mutation(
        "a session's file overrides options",
        "cli/session_file.py",
        "return fields | options | both",
        "return options | fields | both",
        ("tests/unit/cli/test_cli_session_options.py",),
    ),
)
