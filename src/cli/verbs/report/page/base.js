"use strict";
// Functions for all sections: numbers as text, HTML elements, sortable tables, charts that can be printed.

const missing = "\u2013";
const given = (value) => value !== undefined && value !== null;

/// The value in the largest unit that is not larger. units: [factor, name], largest first.
function scaled(value, units, digits) {
  const [factor, name] = units.find(([factor]) => Math.abs(value) >= factor) || units[units.length - 1];
  return `${(value / factor).toPrecision(digits)} ${name}`;
}
const timeUnits = [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"]];
const byteUnits = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const show = {
  text: (value) => given(value) ? String(value) : missing,
  time: (value) => !given(value) ? missing : value === 0 ? "0" : scaled(value, timeUnits, 4),
  bytes: (value) => !given(value) ? missing : value === 0 ? "0" : value < 1024 ? `${value} B` : scaled(value, byteUnits, 4),
  count: (value) => given(value) ? Math.round(value).toLocaleString("en") : missing,
  ratio: (value) => given(value) ? value.toFixed(2) : missing,
  share: (value) => value < 0.01 ? "< 1 %" : `${Math.round(100 * value)} %`,
  percent: (value) => given(value) ? `${(100 * value).toFixed(1)} %` : missing,
  signed: (value) => given(value) ? `${value > 0 ? "+" : ""}${(100 * value).toFixed(1)} %` : missing,
};
/// The unit that suits the largest of the values: [factor, name].
const unitOf = (values, units) => units.find(([factor]) => Math.max(0, ...values) >= factor) || units[units.length - 1];

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/// Adds a table. columns: {title, value: row => number or text, show: value => text}. Numbers are aligned to the right.
/// A click on a title sorts the rows. Columns without any value are left out.
function table(parent, all, rows) {
  const columns = all.filter((column) => rows.some((row) => given(column.value(row))));
  const body = make("tbody");
  const fill = (sorted) => body.replaceChildren(...sorted.map((row) => make("tr", {}, ...columns.map((column) => {
    const value = column.value(row);
    return make("td", {className: `${column.show === show.text ? "" : "number"} ${column.bad && column.bad(row) ? "bad" : ""}`},
                column.show(value));
  }))));
  const heads = columns.map((column) => make("th", {className: column.show === show.text ? "" : "number", scope: "col"},
                                             make("button", {type: "button"}, column.title)));
  heads.forEach((head, at) => head.firstChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending" && columns[at].show !== show.text ||
                 head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    fill(sortedBy(rows, columns[at].value, down));
  }));
  fill(rows);
  parent.append(make("div", {className: "wide"}, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)));
}

/// The rows sorted by value. Rows without a value come last in both directions.
function sortedBy(rows, value, down) {
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (!given(x) || !given(y)) return given(y) - given(x);
    return down ? compare(y, x) : compare(x, y);
  });
}

/// Adds a list of names with values. pairs: [name, value]; pairs without a value are left out.
function facts(parent, title, pairs) {
  const known = pairs.filter(([, value]) => given(value) && value !== "");
  if (known.length === 0) return;
  parent.append(make("h3", {}, title));
  parent.append(make("dl", {}, ...known.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))])));
}

function conditions(parent, content) {
  const all = Object.entries(content.conditions || {}).map(([name, value]) =>
    [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : value]);
  if (all.length === 0) parent.append(make("p", {className: "quiet"}, "The file does not state the conditions of the run."));
  facts(parent, "Conditions", all);
}

// Colors of Okabe and Ito, which color-blind readers can distinguish; on a dark page, lighter where they would be too dark.
// Charts read colors whenever they are drawn.
const themes = {
  light: {text: "#1a1a1a", quiet: "#444", line: "#ddd", page: "#fff", idle: "#c8c8c8", limit: "#c00000",
          palette: ["#0072b2", "#e69f00", "#009e73", "#56b4e9", "#cc79a7", "#f0e442", "#8c564b", "#7a7a7a"]},
  dark: {text: "#e8e8e8", quiet: "#bbb", line: "#3a3a3a", page: "#16181c", idle: "#5c5c5c", limit: "#ff6b6b",
         palette: ["#2f8fdb", "#e69f00", "#1fb58a", "#8fd0f5", "#d98fb8", "#f0e442", "#b98074", "#a0a0a0"]},
};
const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
let theme = themes.light;
const color = (i) => () => theme.palette[i % theme.palette.length];

const charts = [];

/// Uses the colors of a theme in all charts, those to come too.
function setTheme(next) {
  theme = next;
  Chart.defaults.color = next.quiet;
  Chart.defaults.borderColor = next.line;
  charts.forEach(([chart]) => chart.update("none"));
}

/// Adds a figure with one chart. `what` describes the chart in words; screen readers read it.
function figure(parent, title, what, height, config) {
  const canvas = make("canvas", {ariaLabel: `${title}: ${what}`, role: "img"});
  const box = make("div", {className: "chart"}, canvas);
  box.style.height = `${height}px`;
  parent.append(make("figure", {}, make("figcaption", {}, title, make("span", {className: "quiet"}, ` \u2013 ${what}`)), box));
  const options = {animation: false, responsive: true, maintainAspectRatio: false, ...config.options};
  charts.push([new Chart(canvas, {...config, options}), height]);
}
const axis = (text, more = {}) => ({title: {display: true, text}, ...more});

/// Shortens the name of a row, from its left, to what fits beside the bars of a chart.
function rowName(value) {
  const name = this.getLabelForValue(value), most = this.chart.width < 600 ? 14 : 48;
  return name.length > most ? `\u2026${name.slice(1 - most)}` : name;
}

// Paper is white and narrower than a screen, so charts are drawn in light colors and resized for printing.
window.addEventListener("beforeprint", () => {
  setTheme(themes.light);
  charts.forEach(([chart, height]) => chart.resize(680, height));
});
window.addEventListener("afterprint", () => {
  setTheme(darkScreen.matches ? themes.dark : themes.light);
  charts.forEach(([chart]) => chart.resize());
});
darkScreen.addEventListener("change", () => setTheme(darkScreen.matches ? themes.dark : themes.light));
