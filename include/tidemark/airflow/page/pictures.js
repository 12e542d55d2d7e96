// uPlot draws columns of tables: each whose head has a data-unit, from the data-value of its cells. The table beside the
// picture has the same numbers in words, newest first, and is all there is without this script.
const HEIGHT = 130;
const DECIMAL = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const BINARY = Array.from({ length: 54 }, (_, power) => 2 ** power);
const TIMES = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, ...DECIMAL.map((days) => 86400 * days)];
const UNITS = {
  number: { steps: DECIMAL, written: (value) => value.toLocaleString("en") },
  seconds: { steps: TIMES, written: (value) => scaled(value, [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) },
  bytes: { steps: BINARY, written: (value) => scaled(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]) },
};

function scaled(value, units) {
  const [size, name] = units.find(([size]) => value >= size) ?? units.at(-1);
  return `${+(value / size).toFixed(1)} ${name}`;
}

function moment(seconds, from, to) {
  const text = new Date(1000 * seconds).toISOString();
  return text.slice(11, 16) === "00:00" || 3 * 86400 < to - from ? text.slice(5, 10) : text.slice(11, 16);
}

function draw(place, rows, head) {
  const cells = rows.map((row) => row.cells[head.cellIndex]);
  const values = cells.map((cell) => ("value" in cell.dataset ? Number(cell.dataset.value) : null));
  const bars = !place.dataset.seconds;
  if (!values.some((value) => (bars ? value > 0 : value !== null))) return;
  const largest = cells[values.indexOf(Math.max(...values))];
  const limit = "limit" in head.dataset ? Number(head.dataset.limit) : null;
  const { steps, written } = UNITS[head.dataset.unit];
  const times = rows.map((row) => Number(row.dataset.at));
  const first = bars ? times[0] : times.at(-1) - Number(place.dataset.seconds);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const text = (cell) => cell.textContent.trim();
  // The newest run may have no number: it works, or its plan failed.
  const known = cells.findLast((cell) => "value" in cell.dataset);
  const newest = rows.at(-1).querySelector("[data-name=state]") ?? cells.at(-1);
  const words = `${head.textContent}: at most ${text(largest)}, last ${text(known)}` +
    (known === cells.at(-1) ? "" : `, then ${text(newest)}`) + (limit === null ? "" : `, allowed ${written(limit)}`);

  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const picture = document.createElement("div");
  caption.textContent = words;
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", words);
  figure.append(caption, picture);
  place.append(figure);

  const axis = {
    stroke: colour("--text"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const drawn = bars
    ? { fill: colour("--planned"), paths: uPlot.paths.bars({ size: [0.8, 40] }), points: { show: false } }
    : { stroke: colour("--link"), width: 2, points: { show: rows.length < 30 } };
  const allowed = { stroke: colour("--failed"), width: 2, dash: [8, 6], points: { show: false } };
  const label = (mark) => (bars && !(mark in times) ? "" : moment(bars ? times[mark] : mark, first, times.at(-1)));
  const options = {
    width: figure.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    // What stands below the mouse is told in the caption, as the table has it.
    cursor: { y: false, drag: { x: false, y: false } },
    hooks: {
      setCursor: [({ cursor: { idx } }) => {
        caption.textContent = idx == null ? words : `${rows[idx].cells[0].textContent}: ${text(cells[idx]) || "none"}`;
      }],
    },
    tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
    scales: {
      x: { time: !bars, range: () => (bars ? [-0.7, rows.length - 0.3] : [first, times.at(-1)]) },
      y: { range: (_, low, high) => [0, 1.1 * Math.max(1, high)] },
    },
    axes: [
      { ...axis, size: 28, values: (_, marks) => marks.map(label), ...(bars && { incrs: DECIMAL, grid: { show: false } }) },
      { ...axis, size: 70, space: 22, incrs: steps, values: (_, marks) => marks.map(written) },
    ],
    series: [{}, drawn, ...(limit === null ? [] : [allowed])],
  };
  const data = [bars ? [...rows.keys()] : times, values, ...(limit === null ? [] : [rows.map(() => limit)])];
  const plot = new uPlot(options, data, picture);
  new ResizeObserver(() => plot.setSize({ width: figure.clientWidth, height: HEIGHT })).observe(figure);
}

// How high the cells of each state are, and in which colour: what is lost, or taken by retention, is a gap.
const CELLS = {
  done: [0.7, "--done"], unknown: [0.7, "--lost"], running: [0.5, "--running"], planned: [0.5, "--planned"], abandoned: [1, "--failed"],
  failed: [1, "--failed"], damaged: [1, "--failed"], blocked: [1, "--failed"], "not planned": [0.2, "--lost"], lost: [0, "--failed"],
  "taken by retention": [0, "--failed"],
};
const WORDS = { done: "ok", running: "working", planned: "waiting", abandoned: "failed" };

function drawCoverage(place) {
  const cells = JSON.parse(place.dataset.cells).flatMap(([state, count]) => Array(count).fill(state));
  if (!cells.length) return;
  const letters = new Map(JSON.parse(place.dataset.letters));
  const [start, end] = [Number(place.dataset.start), Number(place.dataset.end)];
  const offset = (cell) => Math.round(start + (cell * (end - start)) / cells.length);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const picture = document.createElement("div");
  const caption = document.createElement("figcaption");
  const figure = document.createElement("figure");
  caption.textContent = place.dataset.words;
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", place.dataset.words);
  figure.append(picture, caption);
  place.replaceChildren(figure);
  const bars = (tops, fills) => ({
    points: { show: false },
    fill: colour("--done"),
    width: 0,
    paths: uPlot.paths.bars({
      size: [1, Infinity],
      disp: {
        x0: { unit: 1, values: () => cells.map((_, cell) => cell) },
        size: { unit: 1, values: () => [1] },
        y0: { unit: 1, values: () => cells.map(() => 0) },
        y1: { unit: 1, values: () => tops },
        fill: { unit: 3, values: () => fills },
      },
    }),
  });
  const tops = cells.map((state) => CELLS[state][0]);
  const below = cells.map((_, cell) => (letters.has(cell) ? Math.max(0.1, 0.7 * letters.get(cell)) : 0));
  const dead = colour("--dead");
  const options = {
    width: figure.clientWidth,
    height: 56,
    padding: [0, 0, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    hooks: {
      setCursor: [({ cursor: { left } }) => {
        const cell = Math.min(cells.length - 1, Math.floor((left / plot.over.clientWidth) * cells.length));
        caption.textContent = left < 0 ? place.dataset.words : `${WORDS[cells[cell]] ?? cells[cell]} ` +
          `${letters.has(cell) ? "and dead letters " : ""}in [${offset(cell)}, ${offset(cell + 1)})`;
      }],
    },
    scales: { x: { time: false, range: () => [0, cells.length] }, y: { range: () => [0, 1] } },
    axes: [
      {
        stroke: colour("--text"), font: "12px system-ui, sans-serif", size: 24, space: 110, grid: { show: false },
        ticks: { show: false }, incrs: [20, 40, 60], values: (_, marks) =>
          marks.map((mark) => (mark % cells.length ? String(offset(mark)) : "")),
      },
      { show: false },
    ],
    series: [{}, bars(tops, cells.map((state) => colour(CELLS[state][1]))), bars(below, cells.map(() => dead))],
  };
  const plot = new uPlot(options, [cells.map((_, cell) => cell), tops, below], picture);
  new ResizeObserver(() => plot.setSize({ width: figure.clientWidth, height: 56 })).observe(figure);
}

function drawAll() {
  for (const place of document.querySelectorAll(".coverage")) drawCoverage(place);
  for (const place of document.querySelectorAll(".plots")) {
    const table = document.querySelector(`#${place.dataset.of} table`);
    const rows = [...table.tBodies[0].rows].reverse();
    place.replaceChildren();
    for (const head of table.tHead.rows[0].cells) if (head.dataset.unit) draw(place, rows, head);
  }
}

drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
