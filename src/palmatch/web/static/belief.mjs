// What can be believed about a device from what it sent and from public tables, and from nothing else.

/** The posterior over the grid points of a square, from a prior and the reports that were sent, with their tables. */
export function posterior(prior, sent) {
  const weights = prior.map((weight, spot) =>
    sent.reduce((product, { table, report }) => product * table.chances[table.cell_of[spot]][report], weight));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

export const even = (spots) => new Array(spots).fill(1 / spots);

/** By how much the odds between two grid points have changed. */
export const oddsFactor = (before, after, one, two) => after[one] / after[two] / (before[one] / before[two]);

/** The two grid points between which the odds have changed most. */
export function farthest(before, after) {
  const ratio = after.map((weight, spot) => weight / before[spot]);
  const most = ratio.indexOf(Math.max(...ratio)), least = ratio.indexOf(Math.min(...ratio));
  return [most, least];
}

/** Draw a square's belief: darker is likelier. `marks` are grid points with a letter each. */
export function drawBelief(canvas, belief, { points, centreExtra }, marks = []) {
  const context = canvas.getContext("2d");
  const size = canvas.width / points;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const most = Math.max(...belief);
  context.fillStyle = colour("panel");
  context.fillRect(0, 0, canvas.width, canvas.height);
  const place = (spot) => (centreExtra && spot === points * points
    ? [(points - 1) / 2, (points - 1) / 2] : [Math.floor(spot / points), spot % points]);
  belief.forEach((weight, spot) => {
    const [east, north] = place(spot);
    context.globalAlpha = 0.08 + 0.92 * (weight / most);
    context.fillStyle = colour("agent");
    context.fillRect(east * size, canvas.height - (north + 1) * size, size - 1, size - 1);
  });
  context.globalAlpha = 1;
  context.font = `bold ${Math.max(12, size * 0.7)}px system-ui`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const [spot, letter] of marks) {
    const [east, north] = place(spot);
    context.fillStyle = colour("paper");
    context.strokeStyle = colour("ink");
    context.lineWidth = 3;
    const [x, y] = [(east + 0.5) * size, canvas.height - (north + 0.5) * size];
    context.strokeText(letter, x, y);
    context.fillText(letter, x, y);
  }
}
