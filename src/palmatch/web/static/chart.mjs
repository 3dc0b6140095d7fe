// Loss against ε, as an SVG with a table of the same numbers for readers of tables.

const NS = "http://www.w3.org/2000/svg";
const COLOURS = ["var(--ink)", "var(--agent)", "var(--holds)", "var(--contest)", "var(--waits)"];
const DASHES = ["1 4", "", "6 3", "2 3", "8 3 2 3"];

function element(name, attributes, text = "") {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

/** Where a line's points are: the budgets for which its loss is known. */
const known = (epsilons, loss) => epsilons.filter((epsilon) => loss[epsilon] !== undefined && loss[epsilon] !== null);

function axes(svg, epsilons, most, { x, y, left, right, bottom, width, height }) {
  for (let part = 0; part <= 4; part++) {
    const loss = (most * part) / 4;
    svg.append(element("line", { x1: left, x2: width - right, y1: y(loss), y2: y(loss), stroke: "var(--line)" }));
    svg.append(element("text", { x: left - 6, y: y(loss) + 4, "text-anchor": "end", fill: "var(--soft)" }, `${(100 * loss).toFixed(0)} %`));
  }
  for (const epsilon of epsilons) {
    svg.append(element("text", { x: x(epsilon), y: height - bottom + 16, "text-anchor": "middle", fill: "var(--soft)" }, `${epsilon}`));
  }
  svg.append(element("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle", fill: "var(--soft)" }, "privacy budget ε"));
}

/** Lines of loss by ε (`loss` has the budgets as keys); what the limit proves to be out of reach is shaded. */
export function chart(epsilons, lines) {
  const [width, height, left, bottom, top, right] = [320, 260, 44, 40, 12, 8];
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Welfare lost against ε" });
  const most = Math.max(...lines.flatMap(({ loss }) => Object.values(loss))) * 1.1;
  const [first, last] = [Math.log(epsilons[0]), Math.log(epsilons.at(-1))];
  const x = (epsilon) => left + ((Math.log(epsilon) - first) / (last - first)) * (width - left - right);
  const y = (loss) => height - bottom - (loss / most) * (height - bottom - top);
  axes(svg, epsilons, most, { x, y, left, right, bottom, width, height });
  lines.forEach(({ method, loss }, number) => {
    const there = known(epsilons, loss);
    if (!there.length) return;
    const points = there.map((epsilon) => `${x(epsilon)},${y(loss[epsilon])}`).join(" ");
    if (method === "limit") {
      // Between two budgets the limit of the larger one is proved, and no more.
      const steps = there.map((epsilon, place) => `${x(there[Math.max(place - 1, 0)])},${y(loss[epsilon])} ${x(epsilon)},${y(loss[epsilon])}`);
      const area = `${x(there[0])},${y(0)} ${steps.join(" ")} ${x(there.at(-1))},${y(0)}`;
      svg.append(element("polygon", { points: area, fill: "var(--square)", opacity: 0.5 }));
    }
    const pen = { stroke: COLOURS[number % 5], "stroke-width": 2, "stroke-dasharray": DASHES[number % 5] };
    svg.append(element("polyline", { points, fill: "none", ...pen }));
    for (const epsilon of there) svg.append(element("circle", { cx: x(epsilon), cy: y(loss[epsilon]), r: 2.5, fill: COLOURS[number % 5] }));
  });
  return svg;
}

export function legendTable(epsilons, lines) {
  const table = document.createElement("table");
  table.innerHTML = "<caption>Welfare lost, in % of the optimum</caption>";
  const head = table.createTHead().insertRow();
  head.innerHTML = `<th scope="col">line, method</th>${epsilons.map((epsilon) => `<th scope="col">${epsilon}</th>`).join("")}`;
  lines.forEach(({ method, help, loss }, number) => {
    const row = table.insertRow();
    const name = document.createElement("th");
    name.scope = "row";
    const sample = element("svg", { width: 26, height: 8, "aria-hidden": "true" });
    sample.append(element("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: COLOURS[number % 5], "stroke-width": 2, "stroke-dasharray": DASHES[number % 5] }));
    name.append(sample, ` ${method}`);
    name.title = help;
    row.append(name);
    for (const epsilon of epsilons) row.insertCell().textContent = known([epsilon], loss).length ? (100 * loss[epsilon]).toFixed(1) : "…";
  });
  return table;
}
