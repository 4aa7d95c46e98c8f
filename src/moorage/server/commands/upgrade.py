"""``moorage upgrade``: commands for upgrades."""

from __future__ import annotations

from dataclasses import asdict

import typer

import moorage
from moorage.cli.app import VerbGroup, app
from moorage.common.etcd.access import etcd_access
from moorage.server.bootstrap import Bootstrap, bootstrap
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    OutputFormat,
    Overrides,
    check_output_format,
    load_settings,
    print_data,
    run_and_exit,
)
from moorage.server.process import needs_extra

upgrade = typer.Typer(
    cls=VerbGroup, help="Upgrade an installation, one part after another.", no_args_is_help=True
)
app.add_typer(upgrade, name="upgrade")


@upgrade.command("plan")
def upgrade_plan(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    output: OutputFormat = "table",
) -> None:
    """Show the steps of a rolling upgrade to this release, their order and their risks.

    Run it from the new release on a manager's host: it reads the database of manager.dsn and
    changes nothing. Managers come first, with the leader last among them, then proxies, then
    agents. Migrations are listed with the tables that they lock. Versions of proxies are known only
    if etcd.address is set. The exit code is 1 if something must be resolved first.

    \b
    Examples:
      moorage upgrade plan
      moorage upgrade plan -o json
    """
    check_output_format(output)
    run_and_exit(_plan(bootstrap(load_settings(config, home, sets)), output))


async def _plan(boot: Bootstrap, output: str) -> int:
    with needs_extra("manager"):
        from moorage.manager.store.platform.upgrade_facts import upgrade_facts
        from moorage.manager.store.schema.baseline import OLDEST_SCHEMA
        from moorage.manager.store.schema.compatibility import declared
        from moorage.manager.store.schema.migrate import newest_revision
        from moorage.manager.store.schema.pending_migrations import (
            migration_scripts,
            pending_migrations,
        )
        from moorage.server.commands.database import database_of
        from moorage.server.upgrade_plan import plan_lines, plan_upgrade

    async with database_of(boot) as url:
        facts = await upgrade_facts(url)

    revision = facts["revision"]
    plan = plan_upgrade(
        facts,
        pending_migrations(revision) if revision and revision.isdigit() else [],
        version=moorage.__version__,
        oldest_schema=OLDEST_SCHEMA,
        newest_revision=newest_revision(),
        compatible_since=declared(migration_scripts(), newest_revision()),
        proxy_versions=await _proxy_versions(boot),
    )
    if output != "table":
        print_data(asdict(plan), output)
    else:
        print("\n".join(plan_lines(plan)))

    return 1 if any(problem.status == "fail" for problem in plan.problems) else 0


async def _proxy_versions(boot: Bootstrap) -> dict[str, str]:
    """Versions of the proxies registered in etcd, by name; empty without etcd."""
    access = etcd_access(boot.loaded.settings.etcd)
    if access is None:
        return {}
    from moorage.common.etcd.discovery import member_versions

    return await member_versions(access, "proxies")
