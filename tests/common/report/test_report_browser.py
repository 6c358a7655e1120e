"""report.html in a real browser: no error, nothing wider than the window at 1280 and 390 pixels."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from common.report.render.page import page
from common.report.views import Report

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")

# A page in an iframe of a given width (a window has a smallest one), asked for what sticks out of it.
PROBE = """<!DOCTYPE html><meta charset="utf-8"/><body>
<iframe id="f" src="report.html" width="{width}" height="900"></iframe>
<script>
document.getElementById("f").onload = function () {{
  var page = this.contentDocument, root = page.documentElement, out = [];
  page.querySelectorAll("details").forEach(function (d) {{ d.open = true; }});
  page.querySelectorAll("body *").forEach(function (e) {{
    if (e.closest(".scroll") && !e.matches(".scroll")) return;
    var box = e.getBoundingClientRect();
    if (box.right > root.clientWidth + 0.5 && box.width > 0) out.push(e.tagName + e.className);
  }});
  document.title = "probe " + root.scrollWidth + " " + root.clientWidth + " [" + out.join(" ") + "]";
}};
</script></body>"""


def chromium(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    return subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            f"--user-data-dir={folder / 'profile'}",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out(report: Report, tmp_path: Path, width: int):
    (tmp_path / "report.html").write_text(page(report), encoding="utf-8")
    (tmp_path / "probe.html").write_text(PROBE.format(width=width), encoding="utf-8")
    ran = chromium(tmp_path, "--dump-dom", "--window-size=1400,1000", f"file://{tmp_path}/probe.html")
    found = re.search(r"probe (\d+) (\d+) \[(.*?)\]", ran.stdout)
    assert found, ran.stderr
    scroll_width, client_width, outside = found.groups()
    assert (int(client_width), outside) == (pytest.approx(width, abs=20), "")
    assert int(scroll_width) <= int(client_width)
    assert "CONSOLE" not in ran.stderr, ran.stderr
