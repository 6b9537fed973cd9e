"""Tests the verb report. Loads a page with results of train, scale and compare in headless Chromium and checks that the
console has no messages, every canvas has a drawing, tables can be sorted, and nothing is loaded from elsewhere. Checks
also which files are refused. Arguments: the launcher build/mpiexec, the program build/partita, and Chromium."""

import base64
import json
import pathlib
import re
import sys

import checks
from checks import MACHINES, Program, check, read, read_json, refuses, run, run_parts

partita = Program(sys.argv[2], sys.argv[1], timeout=100)
CHROMIUM = sys.argv[3]
HEADLESS = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--virtual-time-budget=5000"]
PARTS = ["compute", "halo", "redistribution", "collective", "gradients", "transfer", "bubble", "optimizer"]
# A script that collects what the test checks in the drawn page, and writes it where --dump-dom shows it.
PROBE = """<script>
window.addEventListener("load", () => {
  const drawn = [...document.querySelectorAll("canvas")].map((canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colors = new Set();
    for (let i = 0; i < pixels.length; i += 4)
      if (pixels[i + 3] === 255) colors.add((pixels[i] << 16) + (pixels[i + 1] << 8) + pixels[i + 2]);
    return {title: canvas.getAttribute("aria-label"), colors: [...colors].map((c) => c.toString(16).padStart(6, "0"))};
  });
  const sort = (table, column) => {
    table.querySelectorAll("th button")[column].click();
    return [...table.querySelectorAll("tbody tr")].map((row) => row.cells[column].textContent);
  };
  const sorted = [...document.querySelectorAll("table")].map((table) => {
    const names = [...table.querySelectorAll("th")].map((head) => head.textContent);
    const column = names.indexOf("bytes");
    return {names, down: column < 0 ? [] : sort(table, column), up: column < 0 ? [] : sort(table, column)};
  });
  const shown = charts.map(([chart]) => ({labels: chart.data.labels, end: chart.scales.x.max,
                                          legend: chart.data.datasets.map(({label}) => label)}));
  const page = getComputedStyle(document.documentElement).backgroundColor;
  const wide = document.documentElement.scrollWidth;
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = btoa(unescape(encodeURIComponent(JSON.stringify({drawn, sorted, shown, page, wide}))));
  document.body.append(probe);
});
</script></body>"""


def timeline(stages, microbatches):
    """A GPipe schedule in which forwards take 2 ms and backwards 4 ms."""
    rows = []
    for stage in range(stages):
        forward = [{"action": f"{stage}F{m}", "start": (stage + m) * 2e-3, "end": (stage + m + 1) * 2e-3}
                   for m in range(microbatches)]
        begin = (stages + microbatches - 1) * 2e-3
        backward = [{"action": f"{stage}B{m}", "start": begin + (stages - 1 - stage + m) * 4e-3,
                     "end": begin + (stages - stage + m) * 4e-3} for m in range(microbatches)]
        rows.append(forward + backward)
    return rows


def strategy(name, ranks, times, **more):
    """Returns a strategy with 12 layers, as compare writes it."""
    layers = [{"name": f"conv{i}" if i % 3 else f"pool{i}", "kind": "conv" if i % 3 else "max_pool", "stage": i // 6,
               "forward": 1e-4 * i, "backward_data": 1.1e-4 * i, "backward_filter": 0.9e-4 * i, "compute": 3e-4 * i,
               "communication": 2e-5 * (i % 4), "messages": 2 * (i % 4), "bytes": (i * 7919 % 13) * 40000,
               "memory": i << 18} for i in range(1, 13)]
    memory = {"weights": 30 << 20, "gradients": 30 << 20, "optimizer": 30 << 20, "activations": 400 << 20,
              "halos": 5 << 20}
    return {"name": name, "file": f"{name}.toml", "ranks": ranks, "seconds": sum(times),
            "parts": dict(zip(PARTS, times)), "images_per_second": 128 / sum(times), "efficiency": 0.8,
            "bubble_rate": 0.1, "messages": 1224, "bytes": 38550912,
            "memory": {"predicted": sum(memory.values()), "limit": 500 << 20, "classes": memory}, "layers": layers,
            "timeline": [[], []], **more}


def compared():
    """Returns what compare writes of four strategies."""
    content = {"subject": "compare", "machine": "two cores", "model": "resnet18", "batch": 128,
               "conditions": {"processor": "a processor", "cores": 2, "date": "2026-11-22T05:40:00Z"},
               "strategies": [strategy("samples", 4, [0.04, 0, 0, 0, 0.006, 0, 0, 0.002],
                                       measured={"seconds": 0.049, "spread": 0.02, "repeats": 5, "memory": 500 << 20}),
                              strategy("space", 4, [0.03, 0.008, 0.001, 0, 0.004, 0, 0, 0.002]),
                              strategy("pipeline", 4, [0.03, 0, 0, 0, 0, 0.003, 0.018, 0.001], timeline=timeline(4, 8),
                                       bubble_rate=0.27), {"name": "</script><b>too large", "file": "l.toml",
                                                           "ranks": 4, "message": "it needs 9 GiB and may use 4"}]}
    content["strategies"][1]["memory"]["limit"] = 450 << 20
    return content


def write(name, content):
    """Writes a text, or anything else as JSON."""
    checks.write(name, content if isinstance(content, str) else json.dumps(content))


def browse(*flags):
    """Loads a page in Chromium."""
    return run(*HEADLESS, f"--user-data-dir={pathlib.Path.cwd()}/profile", *flags, timeout=100)


def look(page, *flags, width=1200):
    """Loads the page in Chromium and returns its console messages, what the probe found, and the DOM."""
    text = read(page)
    assert text.count("</body>") == 1, "the end of the page"
    write("probed.html", text.replace("</body>", PROBE))
    here = pathlib.Path.cwd()
    ran = browse("--enable-logging=stderr", f"--window-size={width},2400", *flags, f"--screenshot={here}/page.png",
                 "--dump-dom", f"file://{here}/probed.html")
    console = [line for line in ran.err.splitlines() if "CONSOLE" in line]
    found = re.search(r'<pre id="probe">([^<]*)</pre>', ran.out)
    assert found, f"the page did not finish\n{console}\n{ran.err[-2000:]}"
    return console, json.loads(base64.b64decode(found.group(1))), ran.out


def drawn():
    """The page of a training, an experiment, a comparison and curves."""
    small = ["--model", "lenet5", "--width", "0.25", "--batch", "8"]
    partita("train", *small, "--data", "synthetic", "--samples", "64", "--json", "train.json",
            "--epochs", "2", "--validate", "0.2", "--best", "best.h5", "--decay", "linear", ranks=2)
    partita("scale", *small, "--steps", "3", "--repeats", "2", "--ranks", "1", "2", "--out", "scale.json")
    write("compare.json", compared())
    partita("compare", *small, "--ranks", "1", "2", "4", "--grid", "data={}", "data={} y=2", "--json", "curves.json")
    partita("report", "compare.json", "curves.json", "scale.json", "train.json", "--out", "page.html")
    console, probe, dom = look("page.html")
    check("the console is empty", console == [], console)
    titles = [canvas["title"].split(":")[0] for canvas in probe["drawn"]]
    check(f"one canvas per subject: {titles}", titles == ["Time of a step", "Memory of a rank", "Bytes of a layer",
                                                          "Pipeline of pipeline", "Speed", "Efficiency", "Speed",
                                                          "Efficiency", "Loss", "Accuracy", "Learning rate", "Time"])
    check("every canvas has a drawing", all("0072b2" in canvas["colors"] for canvas in probe["drawn"]), probe["drawn"])
    check("each part of a step has its own color", {"0072b2", "e69f00", "cc79a7",
                                                    "c8c8c8"} <= set(probe["drawn"][0]["colors"]))
    check("what was measured fastest is named", "<strong>samples</strong> was measured to take 49.00 ms per step." in
          dom, dom[:2000])
    check("curves name the fastest and what was left out", "Fastest: data={} on 1" in dom and
          "data={} y=2 does not divide 1 ranks" in dom)
    check("curves have measured points over them", "a diamond was measured" in "".join(canvas["title"]
                                                                                       for canvas in probe["drawn"]))
    trained(probe, dom)
    check("memory above the limit is marked", dom.count('class="number bad">495.0 MiB') == 1)
    check("the memory limit is drawn", "c00000" in probe["drawn"][1]["colors"], probe["drawn"][1])
    by_layer = [table for table in probe["sorted"] if table["names"][0] == "layer"]
    bytes_of = lambda text: float(text.split()[0]) * {"B": 1, "KiB": 1024,
                                                      "MiB": 1 << 20}.get((text.split() + ["B"])[1], 0)
    check("a table of layers for each strategy that has layers", len(by_layer) == 3)
    for table in by_layer:
        down, up = ([bytes_of(text) for text in table[way]] for way in ("down", "up"))
        check("sorted by bytes in both directions", len(down) == 12 and down == sorted(down, reverse=True) and
              up == sorted(up), (down, up))
    check("conditions of every file", dom.count("<h3>Conditions</h3>") == 3 and "a processor" in dom)
    check("names are text, not markup", "&lt;/script&gt;&lt;b&gt;too large" in dom and "it needs 9 GiB" in dom)
    page = re.sub(r"<script>.*?</script>", "", read("page.html"), flags=re.S)
    check("nothing is loaded from elsewhere", not re.search(r'(src|href)\s*=\s*["\']|@import|url\(', page))
    check("the screenshot is not empty", pathlib.Path("page.png").stat().st_size > 50000)


def as_written():
    """Files that compare and scale wrote themselves, with predicted and measured times and a strategy that does not
    fit."""
    small = ["--model", "lenet5", "--width", "0.25", "--batch", "8"]
    samples = 'grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n'
    write("samples.toml", samples)
    write("stages.toml", 'stages = 2\n[schedule]\nmicrobatches = 4\n')
    write("four.toml", samples.replace('"data=2"', '"data=2"\nstages = 2\n[schedule]\nmicrobatches = 4'))
    partita("compare", *small, "--kernels", "", "--strategies", "samples.toml", "stages.toml", "four.toml",
            "--measure", "--memory-limit", "100KiB", "--json", "c.json", ranks=2)
    partita("scale", *small, "--steps", "3", "--repeats", "1", "--ranks", "2", "--machine", MACHINES / "two-cores.toml",
            "--out", "s.json")
    rows = {row["name"]: row for row in read_json("c.json")["strategies"]}
    check("one was measured, one had too many ranks, one did not fit", "measured" in rows["stages.toml"] and
          "measured" not in rows["four.toml"] and rows["samples.toml"]["memory"]["missing"] > 0 and
          "measured" not in rows["samples.toml"], rows.keys())
    partita("report", "c.json", "s.json", "--out", "page.html")
    console, probe, dom = look("page.html")
    check("the console is empty", console == [], console)
    titles = [canvas["title"].split(":")[0] for canvas in probe["drawn"]]
    check(f"one canvas per subject: {titles}", titles == ["Time of a step", "Memory of a rank", "Bytes of a layer",
                                                          "Pipeline of stages.toml", "Pipeline of four.toml", "Speed",
                                                          "Efficiency"], titles)
    check("every canvas has a drawing", all("0072b2" in canvas["colors"] for canvas in probe["drawn"]), probe["drawn"])
    check("measured and predicted times", {"predicted", "measured", "spread", "repeats",
                                           "error"} <= set(probe["sorted"][0]["names"]))
    tables = [table["down"] for table in probe["sorted"] if table["names"][0] == "layer"]
    check("every layer of every strategy", [len(rows) for rows in tables] == [13] * 3, tables)
    fits = next(r for r in rows["samples.toml"]["remedies"] if r["missing"] == 0)
    check("changes that would make it fit", "<strong>samples.toml</strong> does not fit in its memory limit; it "
          f"would fit with {fits['change']} (" in dom, dom[:3000])


def large():
    """Many layers: the chart shows the layers that send most, the table shows all."""
    layers = [{"name": f"layer{i}", "bytes": i * 1000} for i in range(200)]
    write("compare.json", {**compared(), "strategies": [{"name": "s", "seconds": 1, "parts": {"compute": 1},
                                                         "layers": layers}]})
    partita("report", "compare.json", "--out", "page.html")
    console, probe, dom = look("page.html")
    check("the 12 layers that send most", console == [] and "the 12 of 199 layers that send most" in dom, console)
    check("in the model's order", probe["shown"][1]["labels"] == [f"layer{i}" for i in range(188, 200)], probe["shown"])
    check("12 rows first, and a row for every layer behind a disclosure",
          [len(table["down"]) for table in probe["sorted"]] == [0, 12, 200] and
          "<summary>All 200 layers</summary>" in dom, probe["sorted"])
    check("only columns with values", probe["sorted"][0]["names"] == ["strategy", "predicted"], probe["sorted"])


def trained(probe, dom):
    """The page of a training: its settings, its curves and the confusion matrix."""
    report = read_json("train.json")
    for name, value in (("optimizer", report["optimizer"]["text"]), ("backend", report["backend"]),
                        ("version", report["version"]), ("learning rate", "0.05, linear decay to 0"),
                        ("best", f"epoch {report['best']['epoch']}, validation loss")):
        check(f"the page has the {name}: {value}", f"<dt>{name}</dt><dd>{value}" in dom and value != "auto", dom)
    legends = [chart["legend"] for chart in probe["shown"][-4:]]
    check("curves of training, validation and test", legends == [["training", "validation", "test"],
                                                                 ["training", "validation", "validation, top 5",
                                                                  "test"], ["rate"], ["time"]], legends)
    check("every validation has a row", dom.count("<td class=\" \">validation ") == 2)
    cells = len(re.findall(r"label \d+, predicted \d+: \d+ \([^)$]* of the label\)", dom))
    check("a confusion matrix of 10 classes", 'class="confusion"' in dom and "Counts of the test pass" in dom and
          cells == 100, cells)


def readable():
    """A distant limit does not shorten the bars; the bubble means the same everywhere; legends have what is there;
    layers are in the model's order; the prediction is contradicted where the measurement says so. All on a narrow and a
    wide page, light and dark."""
    first = strategy("a/first.toml", 2, [0.04, 0, 0, 0, 0.006, 0, 0, 0.002], measured={"seconds": 0.05, "spread": 0.12})
    second = strategy("a/second.toml", 2, [0.03, 0, 0, 0, 0, 0, 0.018, 0.001], timeline=timeline(2, 4),
                      measured={"seconds": 0.045, "spread": 0.01})
    first["layers"][1]["bytes"], second["layers"][1]["bytes"] = 0, 1 << 20
    for each in (first, second):
        each["memory"]["limit"] = 16 << 30
    write("c.json", {"subject": "compare", "strategies": [first, second], "warnings": ["the spread is <wide>"]})
    partita("report", "c.json", "--out", "page.html")
    for width, dark in ((420, False), (420, True), (1280, False), (1280, True)):
        flags = ["--blink-settings=preferredColorScheme=0"] if dark else []
        console, probe, dom = look("page.html", *flags, width=width)
        name = f"{width} wide, {'dark' if dark else 'light'}"
        time, memory, layers = probe["shown"][:3]
        check(f"{name}: the page", console == [] and probe["page"] == ("rgb(22, 24, 28)" if dark
                                                                       else "rgb(255, 255, 255)") and
              all(("2f8fdb" if dark else "0072b2") in canvas["colors"] for canvas in probe["drawn"]),
              (console, probe["page"]))
        check(f"{name}: nothing is wider than the window", probe["wide"] <= max(width, 500), probe["wide"])
    check("the axis of memory follows the bars", memory["end"] < 1.3 * 495 and "the limit is 16.00 GiB" in dom, memory)
    check("the legend has the parts that are there", time["legend"] == ["compute", "gradients", "optimizer", "bubble",
                                                                        "measured"] and
          memory["legend"] == ["weights", "gradients", "optimizer", "activations", "halos"], (time, memory))
    check("layers in the model's order", layers["labels"] == [each["name"] for each in second["layers"] if
                                                              each["bytes"] or each["name"] == "conv2"], layers)
    check("one bubble", "36.7 %" in dom and "18.00 ms, 36.7 % of the step" in dom and "10.0 %" not in dom, dom)
    check("the measurement decides", "<strong>second.toml</strong> was measured to take 45.00 ms per step" in dom and
          "The prediction disagrees: it puts <strong>first.toml</strong> first" in dom, dom)
    check("warnings", "Warning: the spread is &lt;wide&gt;." in dom and 'class="number bad">12.0 %' in dom)


def printed():
    """The page can be printed."""
    write("compare.json", compared())
    partita("report", "compare.json", "--out", "page.html")
    browse("--print-to-pdf=page.pdf", f"file://{pathlib.Path.cwd()}/page.html")
    pdf = pathlib.Path("page.pdf").read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    check(f"printed on {pages} pages", pdf.startswith(b"%PDF") and 2 <= pages <= 4)


def changed(change):
    """Returns what compare writes, with a change."""
    content = compared()
    change(content)
    return content


def bad(name, content, *patterns, out=("--out", "page.html"), file="r.json"):
    """Checks that the verb refuses a file with this content."""
    refuses(name, lambda: partita("report", *([file] if file else []), *out, status=2), *patterns,
            prepare=lambda: content is None or write("r.json", content))


def refusals():
    """Files that the verb cannot draw."""
    bad("no file", None, "needs the files", file=None)
    bad("no page", compared(), "--out page.html", out=())
    bad("a file that is not there", None, "r.json", "No such file")
    bad("not JSON", json.dumps(compared())[:1000], "r.json: it is not JSON")
    bad("another subject", {"subject": "weather"}, "its subject is 'weather'")
    bad("no subject", {"model": "m"}, "the field subject is missing")
    bad("a list", [1], "is not a JSON object")
    bad("no strategies", changed(lambda c: c.pop("strategies")), "the field strategies is missing")
    bad("a part that is not a number", changed(lambda c: c["strategies"][1]["parts"].update(halo="x")),
        r"strategies\[1\]\.parts\.halo is not a number")
    bad("an action without end", changed(lambda c: c["strategies"][2]["timeline"][3][1].pop("end")),
        r"strategies\[2\]\.timeline\[3\]\[1\]\.end")
    bad("a run without ranks", {"subject": "scale", "runs": [{"strategy": "s"}]}, r"runs\[0\]\.ranks")
    train = {"subject": "train", "losses": [1.0]}
    bad("a curve with a text", {**train, "rates": ["x"]}, r"rates\[0\] is not a number")
    bad("a validation without numbers", {**train, "validation": [{"loss": "x"}]},
        r"validation\[0\]\.loss is not a number")
    bad("a matrix that is not square", {**train, "confusion": {"pass": "test", "counts": [[1, 2], [3]]}},
        r"confusion\.counts\[1\]")
    bad("a warning that is not a text", changed(lambda c: c.update(warnings=[1])), r"warnings\[0\] is not a text")
    bad("an unwritable page", compared(), "--out nowhere/p.html", out=("--out", "nowhere/p.html"))


run_parts(drawn, as_written, readable, large, printed, refusals, apart=True)
