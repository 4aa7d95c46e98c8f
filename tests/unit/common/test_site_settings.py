"""Sites of one agent daemon: what each site takes from the shared section, and settings that are
refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.common.config.loader import LoadedSettings, load
from moorage.common.model.errors import ConfigError

TWO = """
[agent]
id = "login1"
runtimes = ["heappe"]
heappe_url = "https://heappe.example.org"
heappe_project = "EXA-00-1"
heappe_max_jobs = 4
[agent.sites.karolina]
resource_group = "karolina"
heappe_user = "one"
heappe_secret = "first-secret"
[agent.sites.lumi]
resource_group = "lumi"
heappe_user = "two"
heappe_secret_file = "lumi.secret"
heappe_max_jobs = 9
[agent.sites.near]
id = "near-cluster"
runtimes = ["slurm"]
slurm_partition = "gpu"
"""
SITE = "\n[agent.sites.second]\nheappe_user = 'u'\nheappe_secret = 'hidden-word'\nheappe_project = 'p'\n"


def loaded(folder: Path, text: str) -> LoadedSettings:
    (folder / "lumi.secret").write_text("second-secret\n")
    file = folder / "given.toml"
    file.write_text(text)
    return load(file, {"MOORAGE_HOME": str(folder)}, {})


def test_a_site_takes_what_it_does_not_say_from_the_section(tmp_path: Path) -> None:
    sites = loaded(tmp_path, TWO).sites
    assert {name: site.id for name, site in sites.items()} == {
        "karolina": "login1-karolina",
        "lumi": "login1-lumi",
        "near": "near-cluster",
    }
    karolina, lumi, near = sites.values()
    assert (karolina.heappe_max_jobs, lumi.heappe_max_jobs) == (4, 9)
    assert (karolina.heappe_secret, lumi.heappe_secret) == ("first-secret", "second-secret")
    assert (karolina.resource_group, near.resource_group) == ("karolina", "default")
    assert (karolina.runtimes, near.runtimes) == (("heappe",), ("slurm",))
    assert {site.heappe_url for site in sites.values()} == {"https://heappe.example.org"}
    assert not any(site.sites for site in sites.values())


def test_without_sites_there_is_one_agent(tmp_path: Path) -> None:
    assert loaded(tmp_path, "[agent]\nid = 'x'\n").sites == {}


def test_secrets_of_sites_are_redacted(tmp_path: Path) -> None:
    shown = json.dumps(loaded(tmp_path, TWO).redacted())
    assert "login1" in shown
    assert not [word for word in ("first-secret", "second-secret") if word in shown]
    assert "first-secret" not in repr(loaded(tmp_path, TWO).settings)


def test_the_file_of_a_secret_is_that_of_the_secret(tmp_path: Path) -> None:
    """It is reread later, so it must not belong to another site."""
    common = TWO.replace("[agent]", "[agent]\nheappe_secret_file = 'lumi.secret'", 1)
    found = loaded(tmp_path, common)
    assert found.settings.agent.heappe_secret_file == tmp_path / "lumi.secret"
    files = {name: site.heappe_secret_file for name, site in found.sites.items()}
    assert files == {
        "karolina": None,
        "lumi": tmp_path / "lumi.secret",
        "near": tmp_path / "lumi.secret",
    }
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_AGENT__HEAPPE_SECRET": "other"}
    agent = load(tmp_path / "given.toml", env, {}).settings.agent
    assert (agent.heappe_secret, agent.heappe_secret_file) == ("other", None)


def test_sites_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("third-secret")
    sites = {"a": {"heappe_user": "u", "heappe_secret_file": str(tmp_path / "word")}}
    env = {
        "MOORAGE_AGENT__RUNTIMES": '["heappe"]',
        "MOORAGE_AGENT__HEAPPE_URL": "https://h.example.org",
        "MOORAGE_AGENT__HEAPPE_PROJECT": "p",
        "MOORAGE_AGENT__SITES": json.dumps(sites),
        "MOORAGE_AGENT__ID": "n",
        "MOORAGE_HOME": str(tmp_path),
    }
    assert load(None, env, {}).sites["a"].heappe_secret == "third-secret"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[agent.sites.a]\nruntimes = ['docker']",
            r"agent\.sites\.a\.runtimes contains docker; a site supports only slurm or heappe",
        ),
        (
            "[agent.sites.a]\n",
            r"agent\.sites\.a\.runtimes contains process, docker, fake; .*\[agent\.sites\.a\]",
        ),
        (
            "[agent.sites.a]\nruntimes = ['heappe']\nheappe_user = 'u'",
            r"the runtime heappe needs agent\.sites\.a\.heappe_url, agent\.sites\.a\.heappe_secret",
        ),
        (
            "[agent.sites.a]\nruntimes = ['slurm']\nslurm_partion = 'x'",
            r"unknown setting 'agent\.sites\.a\.slurm_partion' \(did you mean slurm_partition\?\)",
        ),
        ("[agent.sites.a]\nmanager = 'x:1'", r"unknown setting 'agent\.sites\.a\.manager'"),
        ("[agent.sites.a]\nsites = {}", r"unknown setting 'agent\.sites\.a\.sites'"),
        (
            "[agent.sites.a]\nruntimes = ['slurm']\nslurm_max_jobs = 0",
            r"agent\.sites\.a\.slurm_max_jobs = 0: .*greater than or equal to 1",
        ),
        (
            "[agent.sites.a]\nruntimes = ['slurm']\nid = 'a/b'",
            r"agent\.sites\.a\.id = 'a/b' is not a valid",
        ),
        ("[agent.sites.'a b']\nruntimes = ['slurm']", r"'a b' is not a valid site name"),
        (
            "[agent.sites.a]\nruntimes=['slurm']\nid='x'\n[agent.sites.b]\nruntimes=['slurm']\nid='x'",
            r"agent\.sites\.a\.id and agent\.sites\.b\.id are both 'x'",
        ),
        (
            "[agent]\nslurm_work_dir='/shared'\nruntimes=['slurm']\n[agent.sites.a]\n[agent.sites.b]",
            r"agent\.sites\.b\.slurm_work_dir = '/shared' is also that of agent\.sites\.a",
        ),
        (
            TWO + SITE.replace("'u'", "'one'"),
            r"agent\.sites\.karolina and agent\.sites\.second use the same HEAppE account: heappe_user = "
            r"'one' at https://heappe\.example\.org .*heappe_shared_account = true in both",
        ),
        (
            TWO + SITE.replace("'u'", "'one'") + "heappe_url = 'https://HEAppE.example.org/'\n",
            r"use the same HEAppE account",
        ),
        (
            TWO + SITE + "heappe_shared_account = true\nheappe_user2 = 1\n",
            r"did you mean heappe_user\?",
        ),
        (
            TWO + SITE + "heappe_secret_file = 'lumi.secret'\n",
            r"agent\.sites\.second has both heappe_secret",
        ),
        (
            TWO.replace("lumi.secret", "absent"),
            r"cannot read agent\.sites\.lumi\.heappe_secret from ",
        ),
        ("[agent]\nsites = 5", r"agent\.sites = int from file .*valid dictionary"),
        (
            "[agent]\nsites = {a = 'hidden-word'}",
            r"agent\.sites\.a = str from file .*valid dictionary",
        ),
    ],
)
def test_problems_name_the_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        loaded(tmp_path, text)
    assert "hidden-word" not in str(refused.value)


def test_an_account_is_shared_where_both_say_so(tmp_path: Path) -> None:
    """Two clusters behind one HEAppE server, with one account."""
    text = (TWO + SITE.replace("'u'", "'one'")).replace(
        "[agent]\n", "[agent]\nheappe_shared_account = true\n"
    )
    assert len(loaded(tmp_path, text).sites) == 4


def test_one_user_name_at_two_servers_is_two_accounts(tmp_path: Path) -> None:
    text = TWO + SITE.replace("'u'", "'one'") + "heappe_url = 'https://other.example.org'\n"
    assert loaded(tmp_path, text).sites["second"].heappe_url == "https://other.example.org"


def test_secrets_of_sites_are_no_arguments() -> None:
    with pytest.raises(ConfigError, match="every user of this machine can read arguments"):
        load(None, {}, {"agent.sites": '{"a": {"heappe_secret": "hidden-word"}}'})
