// The section that shows strategies side by side, from a file of `compare --json`.

const knownParts = ["compute", "halo", "redistribution", "collective", "gradients", "transfer", "bubble", "optimizer"];

/// The keys of all objects. Known keys come first, in their order.
function keysOf(objects, known = []) {
  const found = new Set(objects.flatMap((object) => Object.keys(object || {})));
  return [...known.filter((key) => found.has(key)), ...[...found].filter((key) => !known.includes(key))];
}

/// A dataset with a mark on the bar of each strategy that has the value.
function marks(label, strategies, value, pointStyle, markColor) {
  const data = strategies.map((strategy) => ({x: value(strategy), y: strategy.name})).filter(({x}) => given(x));
  return {type: "line", label, data, showLine: false, pointStyle, pointRadius: 8, pointHoverRadius: 8, pointBorderWidth: 2.5,
          borderColor: markColor, backgroundColor: "transparent", stack: label, order: -1};
}

function stackedBars(parent, title, what, strategies, keys, value, unit, more) {
  const bars = keys.map((key, i) => ({label: key, backgroundColor: key === "bubble" ? "#c8c8c8" : color(i), order: 1, stack: "parts",
                                      data: strategies.map((strategy) => (value(strategy)[key] || 0) / unit[0])}));
  figure(parent, title, what, 110 + 38 * strategies.length, {
    type: "bar", data: {labels: strategies.map(({name}) => name), datasets: [...bars, ...more]},
    options: {indexAxis: "y", scales: {x: axis(unit[1], {stacked: true, beginAtZero: true}), y: {stacked: true}},
              plugins: {legend: {position: "bottom", labels: {usePointStyle: true}},
                        tooltip: {callbacks: {label: (item) => `${item.dataset.label}: ${item.parsed.x.toPrecision(4)} ${unit[1]}`}}}},
  });
}

function timeBars(parent, strategies) {
  const measured = (strategy) => (strategy.measured || {}).seconds;
  const unit = unitOf(strategies.flatMap((s) => [s.seconds, measured(s) || 0]), timeUnits);
  const at = (s) => given(measured(s)) ? measured(s) / unit[0] : null;
  stackedBars(parent, "Time of a step", "predicted time by part; a diamond marks the measured time", strategies,
              keysOf(strategies.map((s) => s.parts), knownParts), (s) => s.parts || {}, unit,
              strategies.some((s) => given(measured(s))) ? [marks("measured", strategies, at, "rectRot", "#000000")] : []);
}

function memoryBars(parent, strategies) {
  const known = strategies.filter((s) => s.memory);
  if (known.length === 0) return;
  const measured = (s) => (s.measured || {}).memory || null;
  const unit = unitOf(known.flatMap((s) => [s.memory.predicted, measured(s) || 0]), byteUnits);
  const over = (value) => (s) => given(value(s)) ? value(s) / unit[0] : null;
  const extra = [];
  if (known.some(limitOf)) extra.push({...marks("limit", known, over(limitOf), "line", marked), pointRotation: 90, pointRadius: 16, pointBorderWidth: 4});
  if (known.some(measured)) extra.push(marks("measured", known, over(measured), "rectRot", "#000000"));
  stackedBars(parent, "Memory of a rank", "predicted peak by class of tensors; a red line marks the limit", known,
              keysOf(known.map((s) => s.memory.classes)), (s) => s.memory.classes || {total: s.memory.predicted}, unit, extra);
}

const mostLayers = 30;  // the most bars that are readable and fit on a page

/// The layers that send most under some strategy, in the model's order, and the number of all layers that send
/// anything.
function sendingLayers(strategies) {
  const most = new Map();
  for (const layer of strategies.flatMap((s) => s.layers))
    if (layer.bytes > 0) most.set(layer.name, Math.max(layer.bytes, most.get(layer.name) || 0));
  const chosen = new Set(sortedBy([...most], ([, bytes]) => bytes, true).slice(0, mostLayers).map(([name]) => name));
  return {names: [...most.keys()].filter((name) => chosen.has(name)), all: most.size};
}

function layerBars(parent, strategies) {
  const told = strategies.filter((s) => (s.layers || []).some((layer) => layer.bytes > 0));
  const {names, all} = sendingLayers(told);
  if (names.length === 0) return;
  const unit = unitOf(told.flatMap((s) => s.layers.map((layer) => layer.bytes)), byteUnits);
  const datasets = told.map((s, i) => {
    const bytes = new Map(s.layers.map((layer) => [layer.name, layer.bytes]));
    return {label: s.name, backgroundColor: color(i), data: names.map((name) => (bytes.get(name) || 0) / unit[0])};
  });
  figure(parent, "Bytes of a layer", "bytes that all ranks send for it in a step" +
         (all > names.length ? `; the ${names.length} of ${all} layers that send most` : "; layers that send nothing are left out"),
         90 + names.length * (8 + 11 * told.length), {
    type: "bar", data: {labels: names, datasets},
    options: {indexAxis: "y", scales: {x: axis(unit[1], {beginAtZero: true}), y: {ticks: {autoSkip: false}}},
              plugins: {legend: {position: "bottom"}}},
  });
}

const actionKinds = [["F", "forward"], ["B", "backward"], ["I", "backward of inputs"], ["W", "backward of weights"],
                     ["R", "recompute"], ["", "other"]];

/// The kind and the microbatch of an action such as "2F0".
function actionOf(text) {
  const found = /^\d*([FBIWR])(\d+)/.exec(text);
  return found ? {kind: found[1], microbatch: found[2]} : {kind: "", microbatch: ""};
}

// A plugin that writes the microbatch in each bar, since Chart.js itself writes no text in bars.
const microbatchLabels = {
  id: "microbatchLabels",
  afterDatasetsDraw(chart) {
    const context = chart.ctx;
    context.save();
    Object.assign(context, {font: "10px sans-serif", textAlign: "center", textBaseline: "middle"});
    chart.getSortedVisibleDatasetMetas().forEach((meta) => meta.data.forEach((bar, i) => {
      const text = chart.data.datasets[meta.index].data[i].microbatch;
      context.fillStyle = chart.data.datasets[meta.index].data[i].kind === "F" ? "#fff" : "#000";
      if (bar.width > 7 * text.length + 4) context.fillText(text, bar.x - bar.width / 2, bar.y);
    }));
    context.restore();
  },
};

function timeline(parent, strategy) {
  const stages = strategy.timeline || [];
  if (stages.length < 2 || stages.every((actions) => actions.length === 0)) return;
  const unit = unitOf(stages.flatMap((actions) => actions.map((action) => action.end)), timeUnits);
  const rows = stages.map((_, i) => `stage ${i}`);
  const actions = stages.flatMap((list, i) => list.map(({action, start, end}) =>
    ({...actionOf(action), action, x: [start / unit[0], end / unit[0]], y: rows[i]})));
  const datasets = actionKinds.map(([kind, label], i) => ({
    label, backgroundColor: color(i), borderColor: "#fff", borderWidth: 0.5, borderSkipped: false, grouped: false,
    barPercentage: 1, categoryPercentage: 0.86, data: actions.filter((action) => action.kind === kind)})).filter(({data}) => data.length > 0);
  const last = Math.max(...actions.map(({x}) => x[1]));
  figure(parent, `Pipeline of ${strategy.name}`, "the actions of each stage over time, with the number of the microbatch; white is idle time (bubble)",
         90 + 30 * stages.length, {
    type: "bar", data: {labels: rows, datasets}, plugins: [microbatchLabels],
    options: {indexAxis: "y", scales: {x: axis(unit[1], {min: 0, max: last}), y: {grid: {display: false}}},
              plugins: {legend: {position: "bottom"}, tooltip: {callbacks: {label: ({raw}) =>
                `${raw.action}: ${raw.x[0].toPrecision(4)} to ${raw.x[1].toPrecision(4)} ${unit[1]}`}}}},
  });
}

const limitOf = (s) => (s.memory || {}).limit || null;
const passesLimit = (s) => given(limitOf(s)) && s.memory.predicted > limitOf(s);

function strategyTable(parent, strategies) {
  const measured = (s) => s.measured || {};
  const columns = [
    {title: "strategy", value: (s) => s.name, show: show.text}, {title: "ranks", value: (s) => s.ranks, show: show.count},
    {title: "predicted", value: (s) => s.seconds, show: show.time},
    {title: "measured", value: (s) => measured(s).seconds, show: show.time},
    {title: "spread", value: (s) => measured(s).spread, show: show.percent},
    {title: "repeats", value: (s) => Array.isArray(measured(s).repeats) ? measured(s).repeats.length : measured(s).repeats, show: show.count},
    {title: "error", value: (s) => given(measured(s).seconds) && given(s.seconds) ? s.seconds / measured(s).seconds - 1 : null,
     show: show.signed},
    {title: "images/s", value: (s) => s.images_per_second, show: show.count},
    {title: "efficiency", value: (s) => s.efficiency, show: show.percent},
    {title: "bubble", value: (s) => s.bubble_rate, show: show.percent},
    {title: "messages", value: (s) => s.messages, show: show.count}, {title: "bytes", value: (s) => s.bytes, show: show.bytes},
    {title: "memory", value: (s) => (s.memory || {}).predicted, show: show.bytes, bad: passesLimit},
    {title: "memory limit", value: limitOf, show: show.bytes},
  ];
  table(parent, columns, strategies);
}

function layerTable(parent, strategy) {
  if (!(strategy.layers || []).length) return;
  const times = ["forward", "backward_data", "backward_filter", "compute", "communication"];
  parent.append(make("h3", {}, `Layers of ${strategy.name}`));
  table(parent, [
    {title: "layer", value: (l) => l.name, show: show.text}, {title: "kind", value: (l) => l.kind, show: show.text},
    {title: "stage", value: (l) => l.stage, show: show.count},
    ...times.map((key) => ({title: key.replace("_", " "), value: (l) => l[key], show: show.time})),
    {title: "messages", value: (l) => l.messages, show: show.count}, {title: "bytes", value: (l) => l.bytes, show: show.bytes},
    {title: "memory", value: (l) => l.memory, show: show.bytes},
  ], strategy.layers);
}

// Says that a strategy exceeds its limit, and which changes would make it fit, cheapest first.
function remediesOf(s) {
  const fit = (s.remedies || []).filter((r) => r.missing === 0);
  if (fit.length === 0) return " does not fit in its memory limit.";
  return ` does not fit in its memory limit; it would fit with ${fit.map((r) => `${r.change} (${show.bytes(r.memory)})`).join(", or ")}.`;
}

function compareSection(parent, content) {
  const strategies = content.strategies, sound = strategies.filter((s) => !s.message && given(s.seconds));
  const [best, ...others] = sortedBy(sound.filter((s) => !passesLimit(s)), (s) => s.seconds, false);
  if (!best) {
    parent.append(make("p", {className: "bad"}, "No strategy fits in its memory limit."));
  } else {
    const times = others.length > 0 ? `, ${(others[0].seconds / best.seconds).toFixed(2)} times as fast as the next, ${others[0].name}` : "";
    parent.append(make("p", {}, make("strong", {}, best.name), ` is predicted to take ${show.time(best.seconds)} per step${times}.`));
  }
  strategies.filter((s) => s.message).forEach((s) =>
    parent.append(make("p", {}, make("strong", {}, s.name), " cannot run: ", make("span", {className: "bad"}, s.message))));
  strategies.filter(passesLimit).forEach((s) => parent.append(make("p", {}, make("strong", {}, s.name), remediesOf(s))));
  strategyTable(parent, strategies);
  if (sound.length > 0) timeBars(parent, sound);
  memoryBars(parent, strategies);
  layerBars(parent, sound);
  sound.forEach((strategy) => timeline(parent, strategy));
  strategies.forEach((strategy) => layerTable(parent, strategy));
}
