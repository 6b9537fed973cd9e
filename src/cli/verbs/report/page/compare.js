// The section that shows strategies side by side, from a file of `compare --json`.

const knownParts = ["compute", "halo", "redistribution", "collective", "gradients", "transfer", "product", "optimizer", "bubble"];

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

/// Bars of the values by key, one bar for each strategy. Keys whose values are all 0 are left out, in the legend too.
function stackedBars(parent, title, what, strategies, known, value, unit, more, options = {}, plugins = []) {
  const keys = keysOf(strategies.map(value), known);
  const shown = keys.filter((key) => strategies.some((strategy) => (value(strategy)[key] || 0) > 0));
  const bars = shown.map((key) => ({
    label: key, backgroundColor: key === "bubble" ? () => theme.idle : color((known.includes(key) ? known : keys).indexOf(key)),
    order: 1, stack: "parts", data: strategies.map((strategy) => (value(strategy)[key] || 0) / unit[0])}));
  figure(parent, title, what, 130 + 38 * strategies.length, {
    type: "bar", data: {labels: strategies.map(({name}) => name), datasets: [...bars, ...more]}, plugins,
    options: {indexAxis: "y", scales: {x: axis(unit[1], {stacked: true, beginAtZero: true}), y: {stacked: true, ticks: {callback: rowName}}},
              plugins: {legend: {position: "bottom", labels: {usePointStyle: true}},
                        tooltip: {callbacks: {label: (item) => `${item.dataset.label}: ${item.parsed.x.toPrecision(4)} ${unit[1]}`}}},
              ...options},
  });
}

const measuredOf = (s) => (s.measured || {}).seconds;

function timeBars(parent, strategies) {
  const unit = unitOf(strategies.flatMap((s) => [s.seconds, measuredOf(s) || 0]), timeUnits);
  const at = (s) => given(measuredOf(s)) ? measuredOf(s) / unit[0] : null;
  const known = strategies.some((s) => given(measuredOf(s)));
  const bubble = strategies.some((s) => (s.parts || {}).bubble > 0) ? `; bubble: ${bubbleText}` : "";
  stackedBars(parent, "Time of a step", `predicted time by part${bubble}${known ? "; a diamond marks the measured time" : ""}`, strategies,
              knownParts, (s) => s.parts || {}, unit, known ? [marks("measured", strategies, at, "rectRot", () => theme.text)] : []);
}

// A plugin that writes beside each bar how much of the limit it takes.
const sharesOfLimit = {
  id: "sharesOfLimit",
  afterDatasetsDraw(chart, args, options) {
    const context = chart.ctx;
    context.save();
    Object.assign(context, {font: "12px sans-serif", textAlign: "left", textBaseline: "middle"});
    options.shares.forEach(({text, end, over}, i) => {
      context.fillStyle = over ? theme.limit : theme.quiet;
      context.fillText(text, chart.scales.x.getPixelForValue(end) + 14, chart.scales.y.getPixelForValue(i));
    });
    context.restore();
  },
};

/// The limits as text: one for all, or one for each strategy.
function limitText(strategies) {
  const limits = [...new Set(strategies.map(limitOf))];
  if (limits.length === 1) return `the limit is ${show.bytes(limits[0])}`;
  return `limits: ${strategies.map((s) => `${s.name} ${given(limitOf(s)) ? show.bytes(limitOf(s)) : "none"}`).join(", ")}`;
}

/// The axis ends shortly behind the longest bar. A limit beyond its end is only written, so that it does not make the
/// bars too short to read.
function memoryBars(parent, strategies) {
  const known = strategies.filter((s) => s.memory);
  if (known.length === 0) return;
  const measured = (s) => (s.measured || {}).memory || null;
  const most = Math.max(...known.flatMap((s) => [s.memory.predicted, measured(s) || 0]));
  const unit = unitOf([most], byteUnits), end = 1.2 * most;
  const over = (value) => (s) => given(value(s)) ? value(s) / unit[0] : null;
  const near = known.filter((s) => given(limitOf(s)) && limitOf(s) <= end);
  const extra = [];
  if (near.length > 0)
    extra.push({...marks("limit", near, over(limitOf), "line", () => theme.limit), pointRotation: 90, pointRadius: 16, pointBorderWidth: 4});
  if (known.some(measured)) extra.push(marks("measured", known, over(measured), "rectRot", () => theme.text));
  const limited = known.some(limitOf);
  const what = !limited ? "" : `; ${limitText(known)}; beside each bar: its share of the limit${near.length > 0 ? ", which a red line marks" : ""}`;
  const shares = known.map((s) => given(limitOf(s)) ? {text: show.share(s.memory.predicted / limitOf(s)), over: passesLimit(s),
    end: Math.max(s.memory.predicted, measured(s) || 0, near.includes(s) ? limitOf(s) : 0) / unit[0]} : {text: "", end: 0});
  const options = limited ? {layout: {padding: {right: 44}}} : {};
  stackedBars(parent, "Memory of a rank", `predicted peak by class of tensors${what}`, known, [],
              (s) => s.memory.classes || {total: s.memory.predicted}, unit, extra,
              {...options, plugins: {legend: {position: "bottom", labels: {usePointStyle: true}}, sharesOfLimit: {shares}},
               scales: {x: axis(unit[1], {stacked: true, beginAtZero: true, max: end / unit[0], ticks: {callback: roundTick}}),
                        y: {stacked: true, ticks: {callback: rowName}}}}, [sharesOfLimit]);
}
/// The label of a tick; none at the end of an axis that does not end with a round number.
const roundTick = (value) => Number.parseFloat(value.toPrecision(2)) === value ? String(value) : "";

const mostLayers = 12;  // the bars, or the first rows, that show which layers matter

/// The layers that send most under some strategy, in the model's order, and the number of all layers that send
/// anything.
function sendingLayers(strategies) {
  const most = new Map(strategies.flatMap((s) => s.layers).map(({name}) => [name, 0]));  // in the model's order
  for (const layer of strategies.flatMap((s) => s.layers)) most.set(layer.name, Math.max(layer.bytes || 0, most.get(layer.name)));
  const sending = [...most].filter(([, bytes]) => bytes > 0);
  const chosen = new Set(sortedBy(sending, ([, bytes]) => bytes, true).slice(0, mostLayers).map(([name]) => name));
  return {names: [...most.keys()].filter((name) => chosen.has(name)), all: sending.length};
}

function layerBars(parent, strategies) {
  const told = strategies.filter((s) => (s.layers || []).some((layer) => layer.bytes > 0));
  const {names, all} = sendingLayers(told);
  if (names.length === 0) return;
  const unit = unitOf(told.flatMap((s) => s.layers.map((layer) => layer.bytes || 0)), byteUnits);
  const datasets = told.map((s, i) => {
    const bytes = new Map(s.layers.map((layer) => [layer.name, layer.bytes]));
    return {label: s.name, backgroundColor: color(i), data: names.map((name) => (bytes.get(name) || 0) / unit[0])};
  });
  figure(parent, "Bytes of a layer", "bytes a step of the first rank of the layer's stage, in the model's order" +
         (all > names.length ? `; the ${names.length} of ${all} layers that send most` : "; layers that send nothing are left out"),
         90 + names.length * (8 + 11 * told.length), {
    type: "bar", data: {labels: names, datasets},
    options: {indexAxis: "y", scales: {x: axis(unit[1], {beginAtZero: true}), y: {ticks: {autoSkip: false}}},
              plugins: {legend: {position: "bottom"}}},
  });
}

// What a bubble is, in the table, in the bars and below the pipelines.
const bubbleText = "the stage that works longest waits for other stages";
const bubbleShare = (s) => s.parts && given(s.parts.bubble) && s.seconds > 0 ? s.parts.bubble / s.seconds : null;

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
    label, backgroundColor: color(i), borderColor: () => theme.page, borderWidth: 0.5, borderSkipped: false, grouped: false,
    barPercentage: 1, categoryPercentage: 0.86, data: actions.filter((action) => action.kind === kind)})).filter(({data}) => data.length > 0);
  const last = Math.max(...actions.map(({x}) => x[1]));
  figure(parent, `Pipeline of ${strategy.name}`, "the actions of each stage over time, with the number of the microbatch; gaps are idle time" +
         (strategy.parts && strategy.parts.bubble > 0 ? `; bubble (${bubbleText}): ${show.time(strategy.parts.bubble)}, ${show.percent(bubbleShare(strategy))} of the step` : ""),
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
    {title: "spread", value: (s) => measured(s).spread, show: show.percent, bad: (s) => measured(s).spread > 0.1},
    {title: "repeats", value: (s) => Array.isArray(measured(s).repeats) ? measured(s).repeats.length : measured(s).repeats, show: show.count},
    {title: "error", value: (s) => given(measured(s).seconds) && given(s.seconds) ? s.seconds / measured(s).seconds - 1 : null,
     show: show.signed},
    {title: "images/s", value: (s) => s.images_per_second, show: show.count},
    {title: "efficiency", value: (s) => s.efficiency, show: show.percent, bad: (s) => s.measured && s.efficiency > 1.05},
    {title: "bubble", value: bubbleShare, show: show.percent},
    {title: "messages", value: (s) => s.messages, show: show.count}, {title: "bytes", value: (s) => s.bytes, show: show.bytes},
    {title: "memory", value: (s) => (s.memory || {}).predicted, show: show.bytes, bad: passesLimit},
    {title: "memory limit", value: limitOf, show: show.bytes},
  ];
  table(parent, columns, strategies);
}

/// All layers in the model's order. Of many layers, the largest few come first, and all of them wait behind a
/// disclosure.
function layerTable(parent, strategy) {
  const layers = strategy.layers || [];
  if (layers.length === 0) return;
  const times = ["forward", "backward_data", "backward_filter", "compute", "communication"];
  const columns = [
    {title: "layer", value: (l) => l.name, show: show.text}, {title: "kind", value: (l) => l.kind, show: show.text},
    {title: "stage", value: (l) => l.stage, show: show.count},
    ...times.map((key) => ({title: key.replace("_", " "), value: (l) => l[key], show: show.time})),
    {title: "messages", value: (l) => l.messages, show: show.count}, {title: "bytes", value: (l) => l.bytes, show: show.bytes},
    {title: "memory", value: (l) => l.memory, show: show.bytes},
  ];
  parent.append(make("h3", {}, `Layers of ${strategy.name}`));
  if (layers.length <= 2 * mostLayers) return table(parent, columns, layers);
  const timed = layers.some((l) => given(l.compute));
  const size = (l) => timed ? (l.compute || 0) + (l.communication || 0) : l.bytes || 0;
  const chosen = new Set(sortedBy(layers, size, true).slice(0, mostLayers));
  parent.append(make("p", {className: "quiet"}, `The ${mostLayers} layers that ${timed ? "take longest" : "send most"}, in the model's order.`));
  table(parent, columns, layers.filter((layer) => chosen.has(layer)));
  const rest = make("details", {}, make("summary", {}, `All ${layers.length} layers`));
  parent.append(rest);
  table(rest, columns, layers);
}

// Says that a strategy exceeds its limit, and which changes would make it fit, cheapest first.
function remediesOf(s) {
  const fit = (s.remedies || []).filter((r) => r.missing === 0);
  if (fit.length === 0) return " does not fit in its memory limit.";
  return ` does not fit in its memory limit; it would fit with ${fit.map((r) => `${r.change} (${show.bytes(r.memory)})`).join(", or ")}.`;
}

/// Names the fastest of those that fit: by measured times if there are any, else by predicted ones.
function verdict(parent, sound) {
  const fitting = sound.filter((s) => !passesLimit(s)), measured = fitting.filter((s) => given(measuredOf(s)));
  const compared = measured.length > 0 ? measured : fitting, seconds = measured.length > 0 ? measuredOf : (s) => s.seconds;
  const [best, ...others] = sortedBy(compared, seconds, false);
  if (!best) return parent.append(make("p", {className: "bad"}, "No strategy fits in its memory limit."));
  const times = others.length > 0 ? `, ${(seconds(others[0]) / seconds(best)).toFixed(2)} times as fast as the next, ${others[0].name}` : "";
  parent.append(make("p", {}, make("strong", {}, best.name),
                     ` ${measured.length > 0 ? "was measured to take" : "is predicted to take"} ${show.time(seconds(best))} per step${times}.`));
  const promised = sortedBy(compared, (s) => s.seconds, false)[0];
  if (promised !== best)
    parent.append(make("p", {}, `The prediction disagrees: it puts `, make("strong", {}, promised.name),
                       ` first, with ${show.time(promised.seconds)} against ${show.time(best.seconds)}.`));
}

/// The strategies without the folder that all their names begin with.
function withShortNames(strategies) {
  const folders = strategies.map(({name}) => name.slice(0, name.lastIndexOf("/") + 1));
  const common = folders.every((folder) => folder === folders[0]) ? folders[0].length : 0;
  return strategies.map((strategy) => ({...strategy, name: strategy.name.slice(common)}));
}

function compareSection(parent, content) {
  const strategies = withShortNames(content.strategies), sound = strategies.filter((s) => !s.message && given(s.seconds));
  verdict(parent, sound);
  (content.warnings || []).forEach((text) => parent.append(make("p", {className: "bad"}, `Warning: ${text}.`)));
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
