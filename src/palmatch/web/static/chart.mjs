// Loss against ε, as an SVG with a table of the same numbers for readers of tables.

const NS = "http://www.w3.org/2000/svg";
const COLOURS = ["var(--agent)", "var(--holds)", "var(--contest)", "var(--waits)"];
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

function element(name, attributes, text = "") {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

export function chart(found, limit = null) {
  const [width, height, left, bottom, top, right] = [320, 260, 44, 40, 12, 8];
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Welfare lost against ε" });
  const epsilons = found.lines[0].epsilon;
  const most = Math.max(...found.lines.flatMap((line) => line.loss)) * 1.1;
  const [first, last] = [Math.log(epsilons[0]), Math.log(epsilons.at(-1))];
  const x = (epsilon) => left + ((Math.log(epsilon) - first) / (last - first)) * (width - left - right);
  const y = (loss) => height - bottom - (loss / most) * (height - bottom - top);
  for (let part = 0; part <= 4; part++) {
    const loss = (most * part) / 4;
    svg.append(element("line", { x1: left, x2: width - right, y1: y(loss), y2: y(loss), stroke: "var(--line)" }));
    svg.append(element("text", { x: left - 6, y: y(loss) + 4, "text-anchor": "end", fill: "var(--soft)" }, `${(100 * loss).toFixed(0)} %`));
  }
  for (const epsilon of epsilons) {
    svg.append(element("text", { x: x(epsilon), y: height - bottom + 16, "text-anchor": "middle", fill: "var(--soft)" }, `${epsilon}`));
  }
  svg.append(element("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle", fill: "var(--soft)" }, "privacy budget ε"));
  if (limit) {
    const points = limit.epsilon.map((epsilon, number) => `${x(epsilon)},${y(limit.loss[number])}`);
    const area = `${x(epsilons[0])},${y(0)} ${points.join(" ")} ${x(epsilons.at(-1))},${y(0)}`;
    svg.append(element("polygon", { points: area, fill: "var(--square)", opacity: 0.5 }));
  }
  found.lines.forEach((line, number) => {
    const points = line.epsilon.map((epsilon, place) => `${x(epsilon)},${y(line.loss[place])}`).join(" ");
    svg.append(element("polyline", {
      points, fill: "none", stroke: COLOURS[number % 4], "stroke-width": 2, "stroke-dasharray": DASHES[number % 4],
    }));
  });
  return svg;
}

export function legendTable(found) {
  const table = document.createElement("table");
  table.innerHTML = "<caption>Welfare lost, in % of the optimum</caption>";
  const head = table.createTHead().insertRow();
  head.innerHTML = `<th scope="col">line, method</th>${found.lines[0].epsilon.map((e) => `<th scope="col">${e}</th>`).join("")}`;
  found.lines.forEach((line, number) => {
    const row = table.insertRow();
    const name = document.createElement("th");
    name.scope = "row";
    const sample = element("svg", { width: 26, height: 8, "aria-hidden": "true" });
    sample.append(element("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: COLOURS[number % 4], "stroke-width": 2, "stroke-dasharray": DASHES[number % 4] }));
    name.append(sample, ` ${line.method}`);
    name.title = line.help;
    row.append(name);
    for (const loss of line.loss) row.insertCell().textContent = (100 * loss).toFixed(1);
  });
  return table;
}
