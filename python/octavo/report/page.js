// Draws the charts, and draws them anew when the reader chooses other data.
const charts = JSON.parse(document.getElementById("charts").textContent);
const selects = new Map([...document.querySelectorAll("select")].map((s) => [s.name, s]));

// A chart's data lies in objects, one level for each of its selects.
function chosen(chart) {
  return chart.selects.reduce((data, name) => data[selects.get(name).value], chart.data);
}

// What can be chosen at a level depends on what was chosen above it.
function offer(chart) {
  let data = chart.data;
  for (const name of chart.selects) {
    const select = selects.get(name), before = select.value, options = Object.keys(data);
    select.replaceChildren(...options.map((text) => new Option(text, text)));
    select.value = options.includes(before) ? before : chart.first[name] in data ? chart.first[name] : options[0];
    data = data[select.value];
  }
}

async function draw(id, chart) {
  const place = document.getElementById(id);
  const options = { actions: false, renderer: "svg" };
  if (!chart.selects) {
    await vegaEmbed(place, chart.spec, options);
    return;
  }
  offer(chart);
  const spec = { ...chart.spec, data: { name: "values", values: chosen(chart) } };
  const { view } = await vegaEmbed(place, spec, options);
  for (const name of chart.selects) {
    selects.get(name).addEventListener("change", () => {
      offer(chart);
      view.data("values", chosen(chart)).runAsync();
    });
  }
}

for (const [id, chart] of Object.entries(charts)) draw(id, chart);
