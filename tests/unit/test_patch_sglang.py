"""scripts/patch_sglang.py against a site-packages made here, with a file for every fact and RECORD as pip writes it."""

import base64
import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/patch_sglang.py"


@pytest.fixture(scope="module")
def patch_sglang():
    spec = importlib.util.spec_from_file_location("patch_sglang", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["patch_sglang"] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["patch_sglang"]


def distribution(site: Path, name: str, version: str, *, requires: tuple[str, ...] = (), files=()):
    """Install ``files``, pairs of path and content, as a wheel of that name and version."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
    info.joinpath("METADATA").write_text("\n".join(["Metadata-Version: 2.1", *metadata]) + "\n")
    record = []
    for file, content in files:
        site.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
        site.joinpath(file).write_text(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{file},sha256={digest},{len(content)}")
    info.joinpath("RECORD").write_text("\n".join(record) + "\n")


@pytest.fixture
def site(tmp_path, patch_sglang):
    """A site-packages with all that the recipe relies on, wrapped as a formatter could wrap it."""
    files: dict[str, str] = {}
    for fact in patch_sglang.FACTS:
        for code in fact.code:
            files[fact.file] = files.get(fact.file, "") + code.replace(" ", "\n    ") + "\n"
    pins = ("torch==2.11.0", "transformers==5.8.1", 'transformers==9; extra == "other"', "torchao==0.17.0")
    distribution(tmp_path, "sglang", patch_sglang.SUPPORTED, requires=pins, files=files.items())
    distribution(tmp_path, "torch", "2.11.0+cu130")
    distribution(tmp_path, "transformers", "5.8.1")
    return tmp_path


def check(patch_sglang, site: Path) -> list[str]:
    path = [str(site)]
    sglang = patch_sglang.supported_sglang(path)
    return [*patch_sglang.check_pins(sglang, path), *patch_sglang.check_facts(sglang)]


def contents(site: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in site.rglob("*") if file.is_file()}


def test_the_supported_version_is_read_and_left_as_it_is(patch_sglang, site):
    before = contents(site)
    lines = check(patch_sglang, site)
    assert lines[:2] == ["torch 2.11.0", "transformers 5.8.1"]
    assert len(lines) == 2 + len(patch_sglang.FACTS)
    assert check(patch_sglang, site) == lines
    assert contents(site) == before


def test_a_missing_package(patch_sglang, tmp_path):
    with pytest.raises(patch_sglang.Unusable, match=r"not installed.*requirements-training\.txt"):
        check(patch_sglang, tmp_path)


@pytest.mark.parametrize("version", ["0.5.12", "0.5.13", "0.5.13.post2", "0.5.23"])
def test_another_version(patch_sglang, tmp_path, version):
    distribution(tmp_path, "sglang", version)
    with pytest.raises(patch_sglang.Unusable, match=rf"SGLang {version} .*0\.5\.13\.post1 is supported"):
        check(patch_sglang, tmp_path)


def test_every_fact_is_looked_up(patch_sglang, tmp_path, site):
    for number, fact in enumerate(patch_sglang.FACTS):
        for code in fact.code:
            files = [(fact.file, "\n".join(other for other in fact.code if other != code))]
            other = tmp_path / f"{number}-{fact.code.index(code)}"
            distribution(other, "sglang", patch_sglang.SUPPORTED, files=files)
            with pytest.raises(patch_sglang.Unusable) as failure:
                patch_sglang.check_fact(fact, patch_sglang.supported_sglang([str(other)]))
            assert fact.file in str(failure.value)
            assert str(failure.value).endswith(code)


def test_a_changed_file_is_named(patch_sglang, site):
    file = "sglang/srt/managers/scheduler.py"
    site.joinpath(file).write_text(site.joinpath(file).read_text() + "# by hand\n")
    with pytest.raises(patch_sglang.Unusable, match=rf"{file} was changed.*force-reinstall"):
        check(patch_sglang, site)


def test_a_missing_file_is_named(patch_sglang, site):
    file = "sglang/srt/models/qwen3_5.py"
    site.joinpath(file).unlink()
    with pytest.raises(patch_sglang.Unusable, match=rf"{file} is missing.*force-reinstall"):
        check(patch_sglang, site)


@pytest.mark.parametrize(("name", "found"), [("torch", "2.11.0+cu130"), ("transformers", "5.8.1")])
def test_another_torch_or_transformers(patch_sglang, site, name, found):
    site.joinpath(f"{name}-{found}.dist-info").rename(site / "away")
    with pytest.raises(patch_sglang.Unusable, match=f"{name} none is installed"):
        check(patch_sglang, site)
    distribution(site, name, "9.0.0")
    with pytest.raises(patch_sglang.Unusable, match=rf"{name} 9\.0\.0 is installed, and SGLang .* needs "):
        check(patch_sglang, site)


def test_a_build_without_pins_is_no_published_wheel(patch_sglang, tmp_path):
    distribution(tmp_path, "sglang", patch_sglang.SUPPORTED)
    with pytest.raises(patch_sglang.Unusable, match="pins no torch"):
        check(patch_sglang, tmp_path)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (("Darwin", "arm64", (3, 12)), "Darwin on arm64"),
        (("Linux", "aarch64", (3, 12)), "Linux on aarch64"),
        (("Linux", "x86_64", (3, 11)), "Python 3.11"),
        (("Linux", "x86_64", (3, 13)), "Python 3.13"),
    ],
)
def test_another_machine(patch_sglang, machine, words):
    with pytest.raises(patch_sglang.Unusable, match=words):
        patch_sglang.check_machine(*machine)
    patch_sglang.check_machine("Linux", "x86_64", (3, 12))


def test_the_command_ends_with_2_and_one_line(tmp_path):
    # -S: no packages, whatever this environment has
    run = subprocess.run([sys.executable, "-I", "-S", SCRIPT], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("error: ")
    assert run.stderr.count("\n") == 1


def test_the_command_ends_with_0(patch_sglang, site, monkeypatch, capsys):
    monkeypatch.setattr(patch_sglang, "check_machine", lambda *machine: None)  # this may be Python 3.11
    assert patch_sglang.main([str(site)]) == 0
    assert "needs no change" in capsys.readouterr().out.splitlines()[-1]
