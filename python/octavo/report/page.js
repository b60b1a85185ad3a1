// Draws the charts, redraws them when the reader chooses other data, and sorts tables.
const charts = JSON.parse(document.getElementById("charts").textContent);
const selects = new Map([...document.querySelectorAll("select")].map((s) => [s.name, s]));

// The chosen data of a chart, which is in nested objects with one level for each select.
function chosen(chart) {
  return chart.selects.reduce((data, name) => data[selects.get(name).value], chart.data);
}

// Fills the selects of a chart: the options of one depend on the choices before it.
function offer(chart) {
  let data = chart.data;
  for (const name of chart.selects) {
    const select = selects.get(name), before = select.value, options = Object.keys(data);
    select.replaceChildren(...options.map((text) => new Option(text, text)));
    select.value = options.includes(before) ? before : chart.first[name] in data ? chart.first[name] : options[0];
    data = data[select.value];
  }
}

function download(name, href) {
  Object.assign(document.createElement("a"), { download: name, href }).click();
}

// Adds buttons that save a figure in its present state.
function offerToSave(id, place, view) {
  const box = document.createElement("span");
  box.className = "save";
  for (const [format, scale] of [["svg", 1], ["png", 3]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = format.toUpperCase();
    button.setAttribute("aria-label", `Save ${id} as ${format.toUpperCase()}`);
    button.onclick = async () => download(`${id}.${format}`, await view.toImageURL(format, scale));
    box.append(button);
  }
  place.closest("figure").append(box);
}

async function draw(id, chart) {
  const place = document.getElementById(id);
  const options = { actions: false, renderer: "svg" };
  let spec = chart.spec;
  if (chart.selects) {
    offer(chart);
    spec = { ...spec, data: { name: "values", values: chosen(chart) } };
  }
  const { view } = await vegaEmbed(place, spec, options);
  for (const name of chart.selects ?? []) {
    selects.get(name).addEventListener("change", () => {
      offer(chart);
      view.data("values", chosen(chart)).runAsync();
    });
  }
  offerToSave(id, place, view);
}

// The number of a cell for sorting; null for text without a number.
const UNITS = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
function numberIn(text) {
  const found = /^([<+−-]?)([\d.,]+) ?([kMGT]i?B?)?/.exec(text);
  if (!found) return null;
  const size = parseFloat(found[2].replaceAll(",", "")) * (UNITS[found[3]] ?? 1);
  return found[1] === "<" ? size / 2 : /[−-]/.test(found[1]) ? -size : size;
}

function sortBy(button) {
  const head = button.closest("th"), heads = [...head.parentNode.children], at = heads.indexOf(head);
  const body = head.closest("table").tBodies[0], text = (row) => row.cells[at].textContent.trim();
  // Columns of numbers are first sorted in descending order.
  const rows = [...body.rows], isNumeric = rows.every((row) => !text(row) || numberIn(text(row)) !== null);
  const before = head.getAttribute("aria-sort");
  const falls = before ? before === "ascending" : isNumeric;
  const compare = (a, b) => {
    if (!isNumeric) return text(a).localeCompare(text(b));
    return (numberIn(text(a)) ?? -Infinity) - (numberIn(text(b)) ?? -Infinity);
  };
  rows.sort((a, b) => (falls ? compare(b, a) : compare(a, b)));
  for (const one of heads) one.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falls ? "descending" : "ascending");
  body.append(...rows);
}

for (const button of document.querySelectorAll("th button")) button.onclick = () => sortBy(button);
for (const [id, chart] of Object.entries(charts)) draw(id, chart);
