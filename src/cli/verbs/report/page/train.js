// The section for a training or an evaluation.

const exact = (value) => given(value) ? value.toFixed(4) : missing;

/// A line through the values of the steps, without those that are missing.
function stepLine(label, values, first, i, more = {}) {
  const data = (values || []).map((y, at) => ({x: first + at, y})).filter(({y}) => given(y));
  return {label, data, borderColor: color(i), backgroundColor: color(i), borderWidth: 1.5, pointRadius: data.length > 60 ? 0 : 2, ...more};
}

/// Marks at the ends of the epochs; `ends` maps an epoch to its last step.
function epochMarks(label, passes, value, ends, i) {
  const data = passes.map((pass) => ({x: ends.get(pass.epoch), y: value(pass)})).filter(({x, y}) => given(x) && given(y));
  return {label, data, borderColor: color(i), backgroundColor: color(i), borderWidth: 2, pointRadius: 4, pointStyle: "rectRot"};
}

/// Adds a chart of lines over the steps, unless all are empty. The legend has the lines that are there.
function curves(parent, title, what, label, lines, scale = {beginAtZero: true}) {
  const datasets = lines.filter(({data}) => data.length > 0);
  if (datasets.length === 0) return;
  figure(parent, title, what, 260, {
    type: "line", data: {datasets},
    options: {parsing: false, normalized: true, interaction: {mode: "nearest", axis: "x", intersect: false},
              scales: {x: axis("step", {type: "linear", ticks: {maxTicksLimit: 10, precision: 0}}), y: axis(label, scale)},
              plugins: {legend: {display: datasets.length > 1, position: "bottom", labels: {usePointStyle: true}},
                        decimation: {enabled: true, algorithm: "lttb", samples: 1000, threshold: 4000}}}});
}

/// The last step of each epoch, counted from the start of the training.
function epochEnds(content, first) {
  let step = first - 1;
  return new Map((content.epochs || []).map((epoch) => [epoch.epoch, step = epoch.step ?? step + epoch.steps]));
}

function trainCurves(parent, content) {
  const first = content.first_step || 1, ends = epochEnds(content, first), validation = content.validation || [];
  const test = content.test ? [content.test] : [];
  const percent = (value) => given(value) ? 100 * value : null;
  curves(parent, "Loss", `loss of the batch of every step${validation.length ? ", and of the validation after each epoch" : ""}`, "loss",
         [stepLine("training", content.losses, first, 0), epochMarks("validation", validation, (e) => e.loss, ends, 1),
          epochMarks("test", test, (e) => e.loss, ends, 2)]);
  curves(parent, "Accuracy", `share of right predictions in the batch of every step${validation.length ? ", and in the validation" : ""}`, "%",
         [stepLine("training", (content.accuracies || []).map(percent), first, 0, {borderWidth: 1}),
          epochMarks("validation", validation, (e) => percent(e.accuracy), ends, 1),
          epochMarks("validation, top 5", validation, (e) => percent(e.top5), ends, 3),
          epochMarks("validation, mean IoU", validation, (e) => percent(e.mean_iou), ends, 4),
          epochMarks("test", test, (e) => percent(e.accuracy), ends, 2)], {min: 0, max: 100});
  curves(parent, "Learning rate", "of every step", "rate", [stepLine("rate", content.rates, first, 0)]);
  const times = content.step_seconds || [], unit = unitOf(times, timeUnits);
  curves(parent, "Time", "time of every step", unit[1], [stepLine("time", times.map((seconds) => seconds / unit[0]), first, 0)]);
}

/// The confusion matrix: a row for each label, a column for each prediction, darker for a larger share of the row. Of
/// many classes the counts are only in the tooltips.
function confusionMatrix(parent, {pass, counts}) {
  const classes = counts.length, small = classes > 20;
  const cell = (count, label, prediction, sum) => {
    const share = sum > 0 ? count / sum : 0, text = small || count === 0 ? "" : show.count(count);
    const td = make("td", {title: `label ${label}, predicted ${prediction}: ${show.count(count)} (${show.percent(share)} of the label)`,
                           className: share > 0.55 ? "full" : ""}, text);
    td.style.background = count === 0 ? "" : `rgba(0, 114, 178, ${(0.08 + 0.92 * share).toFixed(3)})`;
    return td;
  };
  const rows = counts.map((row, label) => {
    const sum = row.reduce((a, b) => a + b, 0);
    return make("tr", {}, make("th", {scope: "row"}, small && label % 10 ? "" : String(label)),
                ...row.map((count, prediction) => cell(count, label, prediction, sum)));
  });
  const head = make("tr", {}, make("th"), ...counts.map((_, i) => make("th", {scope: "col"}, small && i % 10 ? "" : String(i))));
  parent.append(make("h3", {}, "Confusion matrix"), make("p", {className: "quiet"},
    `Counts of the ${pass} pass: rows are labels, columns are predictions; darker is a larger share of the row.`),
    make("div", {className: "wide"}, make("table", {className: `confusion${small ? " small" : ""}`}, make("thead", {}, head),
                                          make("tbody", {}, ...rows))));
}

/// How the learning rate changes, in words.
function rateOf(optimizer) {
  if (!optimizer) return null;
  const warm = optimizer.warm_up > 0 ? `, rising over the first ${optimizer.warm_up} steps` : "";
  return `${optimizer.rate}${warm}${optimizer.decay && optimizer.decay !== "none" ? `, ${optimizer.decay} decay to 0` : ", then constant"}`;
}

function runFacts(parent, content) {
  const plain = (key) => [key.replaceAll("_", " "), content[key]];
  const cut = content.microbatches > 1 ? `${content.schedule}, ${content.microbatches} microbatches` : null;
  const best = content.best ? `epoch ${content.best.epoch}, validation loss ${exact(content.best.loss)}${content.best.file ? ` (${content.best.file})` : ""}` : null;
  facts(parent, "Run", [
    ["strategy", content.strategy === "" ? "from the command line" : content.strategy], plain("grid"), plain("stages"),
    ["schedule", cut], plain("ranks"), plain("batch"), plain("dtype"), ["optimizer", (content.optimizer || {}).text],
    ["learning rate", rateOf(content.optimizer)], plain("seed"), ["backend", content.backend], ["version", content.version],
    ["first step", content.first_step > 1 ? content.first_step : null], ["best", best],
    ["state", content.finished === false ? "not finished: this file was written during the training" : null]]);
}

function trainSection(parent, content) {
  runFacts(parent, content);
  trainCurves(parent, content);
  table(parent, [
    {title: "quantity", value: (row) => row[0], show: show.text}, {title: "predicted", value: (row) => row[1], show: (text) => text},
    {title: "measured", value: (row) => row[2], show: (text) => text},
  ], [["messages", show.count], ["bytes", show.count], ["memory", show.bytes]].map(([what, print]) =>
    [what, print(content[`predicted_${what}`]), print(content[`measured_${what}`])]));
  const named = (passes, name) => (passes || []).map((each) => ({...each, name: name(each)}));
  const rounds = [...named(content.epochs, (e) => `epoch ${e.epoch}`), ...named(content.validation, (e) => `validation ${e.epoch}`),
                  ...named(content.test ? [content.test] : [], () => "test")];
  table(parent, [
    {title: "pass", value: (e) => e.name, show: show.text}, {title: "steps", value: (e) => e.steps, show: show.count},
    {title: "samples", value: (e) => e.samples, show: show.count}, {title: "loss", value: (e) => e.loss, show: exact},
    {title: "accuracy", value: (e) => e.accuracy, show: show.percent}, {title: "top 5", value: (e) => e.top5, show: show.percent},
    {title: "mean IoU", value: (e) => e.mean_iou, show: exact}, {title: "perplexity", value: (e) => e.perplexity, show: exact},
    {title: "time", value: (e) => e.seconds, show: show.time},
    {title: "images/s", value: (e) => e.images_per_second, show: show.count},
  ], rounds);
  if (content.confusion) confusionMatrix(parent, content.confusion);
}
