// The section for scaling experiments, and the page as a whole.

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
    {title: "vs best serial", value: (r) => r.against_serial, show: show.percent},
    {title: "predicted", value: (r) => r.predicted, show: show.time}, {title: "error", value: error, show: show.signed},
  ];
  const problem = (run) => run.status ? `status ${run.status}: ${run.message || ""}` : null;
  if (content.runs.some(problem)) columns.push({title: "problem", value: problem, show: show.text, bad: problem});
  table(parent, columns, content.runs);
}

const sections = {compare: ["Strategies", compareSection], curves: ["Predicted scaling", curvesSection], scale: ["Scaling", scaleSection], train: ["Training", trainSection],
                  evaluate: ["Evaluation", trainSection]};

function main() {
  const {files, made} = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  page.replaceChildren(make("h1", {}, "Partita report"), make("p", {className: "quiet"},
    `Made ${made} from ${files.map(({file}) => file).join(", ")}.`));
  setTheme(darkScreen.matches ? themes.dark : themes.light);
  Chart.defaults.font.family = "system-ui, 'DejaVu Sans', sans-serif";
  for (const {file, subject, content} of files) {
    const [title, fill] = sections[subject];
    const section = make("section", {}, make("h2", {}, `${title}: ${content.model || ""}`));
    page.append(section);
    section.append(make("p", {className: "quiet"}, [file, content.machine && `machine ${content.machine}`,
                        content.batch && `batch ${content.batch}`].filter(Boolean).join(" \u00b7 ")));
    fill(section, content, files);
    conditions(section, content);
  }
}

main();
