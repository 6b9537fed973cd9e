// The sections for scaling experiments and for training, and the page as a whole.

/// Adds charts of the speed and the efficiency by number of ranks, with a line for each strategy. Predicted speeds are
/// shown if the file has them.
function scaleLines(parent, content, runs, ranks) {
  const names = [...new Set(runs.map((run) => run.strategy))];
  const line = (name, value) => ranks.map((count) => {
    const run = runs.find((each) => each.strategy === name && each.ranks === count);
    return run ? value(run) : null;
  });
  const style = (i) => ({borderColor: color(i), backgroundColor: color(i), pointRadius: 4, tension: 0, spanGaps: true});
  const rates = names.map((name, i) => ({...style(i), label: name, data: line(name, (run) => run.images_per_second)}));
  const predicted = names.map((name, i) => ({...style(i), label: `${name}, predicted`, borderDash: [5, 4], pointStyle: "rectRot",
    data: line(name, (run) => given(run.predicted) ? run.batch / run.predicted : null)})).filter(({data}) => data.some(given));
  figure(parent, "Speed", "images per second by number of ranks, logarithmic", 320, {
    type: "line", data: {labels: ranks, datasets: [...rates, ...predicted]},
    options: {scales: {x: axis("ranks"), y: axis("images/s", {type: "logarithmic"})}, plugins: {legend: {position: "bottom"}}},
  });
  figure(parent, "Efficiency", "speed-up divided by the increase of the number of ranks; 100 % is ideal", 260, {
    type: "bar", data: {labels: ranks, datasets: names.map((name, i) =>
      ({label: name, backgroundColor: color(i), data: line(name, (run) => 100 * run.efficiency)}))},
    options: {scales: {x: axis("ranks"), y: axis("%", {beginAtZero: true, suggestedMax: 100})}, plugins: {legend: {position: "bottom"}}},
  });
}

function scaleSection(parent, content) {
  const runs = content.runs.filter((run) => given(run.seconds));
  const ranks = [...new Set(runs.map((run) => run.ranks))].sort((a, b) => a - b);
  parent.append(make("p", {}, content.scaling === "weak" ? `Weak scaling: batch ${content.batch} per rank.` :
                     `Strong scaling: batch ${content.batch} over all ranks.`));
  if (runs.length > 0) scaleLines(parent, content, runs, ranks);
  const error = (run) => given(run.predicted) && given(run.seconds) ? run.predicted / run.seconds - 1 : null;
  const columns = [
    {title: "strategy", value: (r) => r.strategy, show: show.text}, {title: "ranks", value: (r) => r.ranks, show: show.count},
    {title: "batch", value: (r) => r.batch, show: show.count}, {title: "step time", value: (r) => r.seconds, show: show.time},
    {title: "spread", value: (r) => r.spread, show: show.percent}, {title: "repeats", value: (r) => r.repeats.length, show: show.count},
    {title: "images/s", value: (r) => r.images_per_second, show: show.count},
    {title: "speed-up", value: (r) => r.speed_up, show: show.ratio},
    {title: "efficiency", value: (r) => r.efficiency, show: show.percent},
    {title: "predicted", value: (r) => r.predicted, show: show.time}, {title: "error", value: error, show: show.signed},
  ];
  const problem = (run) => run.status ? `status ${run.status}: ${run.message || ""}` : null;
  if (content.runs.some(problem)) columns.push({title: "problem", value: problem, show: show.text, bad: problem});
  table(parent, columns, content.runs);
}

function trainSection(parent, content) {
  const stepLine = (title, what, label, values) => figure(parent, title, what, 240, {
    type: "line", data: {labels: values.map((_, i) => i + 1),
                         datasets: [{data: values, borderColor: color(0), borderWidth: 1.5, pointRadius: values.length > 60 ? 0 : 2}]},
    options: {scales: {x: axis("step", {ticks: {maxTicksLimit: 12}}), y: axis(label, {beginAtZero: true})},
              plugins: {legend: {display: false}}}});
  facts(parent, "Run", ["strategy", "grid", "stages", "ranks", "batch", "dtype", "seed"].map((key) => [key, content[key]]));
  if ((content.losses || []).length > 0) stepLine("Loss", "loss of the batch of every step", "loss", content.losses);
  if ((content.step_seconds || []).length > 0) {
    const unit = unitOf(content.step_seconds, timeUnits);
    stepLine("Time", "time of every step", unit[1], content.step_seconds.map((seconds) => seconds / unit[0]));
  }
  table(parent, [
    {title: "quantity", value: (row) => row[0], show: show.text}, {title: "predicted", value: (row) => row[1], show: (text) => text},
    {title: "measured", value: (row) => row[2], show: (text) => text},
  ], [["messages", show.count], ["bytes", show.count], ["memory", show.bytes]].map(([what, print]) =>
    [what, print(content[`predicted_${what}`]), print(content[`measured_${what}`])]));
  const rounds = [...(content.epochs || []).map((each) => ({...each, name: `epoch ${each.epoch}`})),
                  ...(content.test ? [{...content.test, name: "test"}] : [])];
  table(parent, [
    {title: "pass", value: (e) => e.name, show: show.text}, {title: "steps", value: (e) => e.steps, show: show.count},
    {title: "samples", value: (e) => e.samples, show: show.count},
    {title: "loss", value: (e) => e.loss, show: (value) => given(value) ? value.toFixed(4) : missing},
    {title: "accuracy", value: (e) => e.accuracy, show: show.percent},
    {title: "time", value: (e) => e.seconds, show: show.time},
    {title: "images/s", value: (e) => e.images_per_second, show: show.count},
  ], rounds);
}

const sections = {compare: ["Strategies", compareSection], scale: ["Scaling", scaleSection], train: ["Training", trainSection],
                  evaluate: ["Evaluation", trainSection]};

function main() {
  const {files, made} = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  page.replaceChildren(make("h1", {}, "Partita report"), make("p", {className: "quiet"},
    `Made ${made} from ${files.map(({file}) => file).join(", ")}.`));
  Chart.defaults.color = "#333";
  Chart.defaults.font.family = "system-ui, 'DejaVu Sans', sans-serif";
  for (const {file, subject, content} of files) {
    const [title, fill] = sections[subject];
    const section = make("section", {}, make("h2", {}, `${title}: ${content.model || ""}`));
    page.append(section);
    section.append(make("p", {className: "quiet"}, [file, content.machine && `machine ${content.machine}`,
                        content.batch && `batch ${content.batch}`].filter(Boolean).join(" \u00b7 ")));
    fill(section, content);
    conditions(section, content);
  }
}

main();
