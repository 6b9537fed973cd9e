// The section for predicted curves over numbers of ranks.

/// Adds lines of the predicted speed and efficiency by number of ranks. Points that do not fit in memory are crosses.
/// `measured` are runs of `scale` of the same model; they are drawn as points without a line.
function curveLines(parent, content, measured) {
  const runs = measured.filter((run) => given(run.seconds));
  const ranks = [...new Set([...content.points, ...runs].map((point) => point.ranks))].sort((a, b) => a - b);
  const names = [...new Set(content.points.map((point) => point.strategy))];
  const values = (points, name, value) => ranks.map((count) => {
    const point = points.find((each) => each.strategy === name && each.ranks === count);
    return point ? value(point) : null;
  });
  const lines = (value) => names.map((name, i) => ({label: name, borderColor: color(i), backgroundColor: color(i), tension: 0, spanGaps: true,
    data: values(content.points, name, value), pointRadius: 4,
    pointStyle: values(content.points, name, (point) => point.fits ? "circle" : "crossRot")}));
  const dots = (value) => [...new Set(runs.map((run) => run.strategy))].map((name, i) => {
    const at = names.indexOf(name), shade = color(at < 0 ? names.length + i : at);
    return {label: `${name}, measured`, showLine: false, pointStyle: "rectRot", pointRadius: 7, borderColor: shade, backgroundColor: shade,
            data: values(runs, name, value)};
  });
  const draw = (title, what, unit, value, scale) => figure(parent, title, what, 320, {
    type: "line", data: {labels: ranks, datasets: [...lines(value), ...dots(value)]},
    options: {scales: {x: axis("ranks"), y: axis(unit, scale)}, plugins: {legend: {position: "bottom", labels: {usePointStyle: true}}}},
  });
  const marks = `a cross does not fit in memory${runs.length > 0 ? "; a diamond was measured" : ""}`;
  draw("Speed", `predicted images per second by number of ranks, logarithmic; ${marks}`, "images/s",
       (point) => point.images_per_second, {type: "logarithmic"});
  draw("Efficiency", `predicted speed-up over one rank, divided by the ranks; ${marks}`, "%",
       (point) => given(point.efficiency) ? 100 * point.efficiency : null, {beginAtZero: true, suggestedMax: 100});
}

function curvesSection(parent, content, files) {
  parent.append(make("p", {}, content.scaling === "weak" ? `Weak scaling: batch ${content.batch} per rank.` :
                     `Strong scaling: batch ${content.batch} over all ranks.`));
  (content.notes || []).forEach((note) => parent.append(make("p", {className: "quiet"}, `${note}.`)));
  const measured = files.filter((file) => file.subject === "scale" && file.content.model === content.model);
  if (content.points.length > 0) curveLines(parent, content, measured.flatMap((file) => file.content.runs));
  const spans = [];
  (content.fastest || []).forEach(({ranks, strategy}) => {
    const last = spans[spans.length - 1];
    last && last.strategy === strategy ? last.end = ranks : spans.push({strategy, first: ranks, end: ranks});
  });
  const print = ({strategy, first, end}) => `${strategy} on ${first === end ? first : `${first} to ${end}`} ranks`;
  parent.append(make("p", {}, spans.length > 0 ? `Fastest: ${spans.map(print).join(", ")}.` : "No point fits in memory."));
  const parts = Object.keys((content.points[0] || {}).parts || {});
  table(parent, [
    {title: "strategy", value: (p) => p.strategy, show: show.text}, {title: "ranks", value: (p) => p.ranks, show: show.count},
    {title: "batch", value: (p) => p.batch, show: show.count}, {title: "step time", value: (p) => p.seconds, show: show.time},
    {title: "images/s", value: (p) => p.images_per_second, show: show.count},
    {title: "efficiency", value: (p) => p.efficiency, show: show.percent},
    ...parts.map((part) => ({title: part, value: (p) => (p.parts || {})[part], show: show.time})),
    {title: "hidden", value: (p) => p.hidden, show: show.time},
    {title: "memory", value: (p) => p.memory, show: show.bytes, bad: (p) => p.fits === false},
  ], content.points);
}
