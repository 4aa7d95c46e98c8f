"""Mutations of agents' reports about kernels, and of what these reports free. A part of the
catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

KERNEL_REPORTS = ("tests/unit/manager/test_kernel_reports.py",)
RELEASES = ("tests/store/test_allocation_release.py",)
SITE_LIFECYCLE = ("tests/unit/manager/test_site_lifecycle.py",)

MUTATIONS = (
    Mutation(
        "the end of one kernel frees what another one of its agent held",
        "manager/store/platform/sql/allocation_release.sql",
        "AND a.kernel_id = i.kernel_id AND a.agent_id",
        "AND a.agent_id",
        RELEASES,
    ),
    Mutation(
        "the end of one kernel frees what another one holds that runs",
        "manager/store/platform/sql/allocation_release.sql",
        "AND k.id = a.kernel_id AND k.status",
        "AND k.status",
        RELEASES,
    ),
    Mutation(
        "what is freed for one agent is freed for those that are reported with it",
        "manager/store/platform/sql/allocation_release.sql",
        "WHERE p.id = i.agent_id AND a.kernel_id",
        "WHERE a.kernel_id",
        RELEASES,
    ),
    Mutation(
        "the newest stream of an agent is told by the streams of others",
        "manager/store/platform/sql/allocation_release.sql",
        "ON a.id = i.agent_id",
        "ON true",
        RELEASES,
    ),
    Mutation(
        "a kernel that was cancelled holds its allocations for ever",
        "manager/store/platform/sql/allocation_release.sql",
        "k.status IN (:TERMINAL)",
        "k.status IN ('TERMINATED', 'ERROR')",
        RELEASES,
    ),
    Mutation(
        "a kernel that is being stopped is gone without a reason",
        "manager/lifecycle/kernels.py",
        "Reason.USER_REQUESTED if status is Status.TERMINATING else Reason.KERNEL_GONE",
        "Reason.KERNEL_GONE",
        KERNEL_REPORTS,
    ),
    Mutation(
        "a report without its kernels is a heartbeat",
        "manager/lifecycle/kernels.py",
        "or self.observed or self.absent or self.contact",
        "or self.observed or self.contact",
        KERNEL_REPORTS,
    ),
    Mutation(
        "a kernel that may live is absent",
        "manager/lifecycle/kernels.py",
        "self.absent - unknown.keys()",
        "self.absent",
        KERNEL_REPORTS,
    ),
    Mutation(
        "what lives is freed once its agent lacks it",
        "manager/lifecycle/kernels.py",
        "given_up = [k.kernel_id for k in stored if k.status in TERMINAL]",
        "given_up = [k.kernel_id for k in stored]",
        KERNEL_REPORTS,
    ),
    Mutation(
        "what starts is freed",
        "manager/lifecycle/kernels.py",
        "[c.kernel_id for c in changes if c.new in TERMINAL]",
        "[c.kernel_id for c in changes]",
        KERNEL_REPORTS,
    ),
    Mutation(
        "how long a kernel is kept is stored at its first report only",
        "manager/lifecycle/kernels.py",
        "return abs(observation.kept_until - kernel.kept_until) >= 1",
        "return False",
        KERNEL_REPORTS,
    ),
    Mutation(
        "an address that is not known for a moment is a new one",
        "manager/lifecycle/kernels.py",
        "observation.port > 0 and ",
        "",
        SITE_LIFECYCLE,
    ),
    Mutation(
        "silence about a job takes its expected start away",
        "manager/lifecycle/kernels.py",
        "timed = _OBSERVED_STATUS.get(observation.state) is status and ",
        "timed = ",
        SITE_LIFECYCLE,
    ),
)
