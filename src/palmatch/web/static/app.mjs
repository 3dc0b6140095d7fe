// The page: controls, maps, rounds and figures follow from one state, and the address of the page follows from it too.

import * as agent from "./agent.mjs";
import { chart, legendTable } from "./chart.mjs";
import { Game } from "./game.mjs";
import { MapCanvas } from "./map.mjs";
import * as server from "./server.mjs";
import { fromAddress, toAddress } from "./state.mjs";
import * as watch from "./watch.mjs";

const at = (id) => document.getElementById(id);
const percent = (value) => (value === null ? "not computed" : `${(100 * value).toFixed(1)} %`);
const whole = (value) => value.toLocaleString("en");

let state = fromAddress(location.hash);
let facts = { methods: [] };
let map = null;
let views = [];
let playing = null;
let asked = 0;
let told = null;
let computing = new AbortController();

// --- controls ---------------------------------------------------------------------------------------------------

const SLIDERS = {
  epsilon: { show: (value) => `${value}`, read: (value) => Number(Math.exp(value).toPrecision(2)), write: Math.log },
  edge: { show: (value) => `${whole(value)} m` },
  vehicles: {
    show: (value) => (facts.city ? `${Math.round(100 * value)} % of the usual number` : `${Math.round(100 * Math.min(value, 1))} % of those given`),
  },
  hour: { show: (value) => `${value}:00` },
};

function fillControls() {
  const option = (value, text) => new Option(text ?? value, value);
  at("method").replaceChildren(...facts.methods.map(({ name }) => option(name)));
  at("against").replaceChildren(option("", "nothing"), ...facts.methods.map(({ name }) => option(name)));
  // Hour and number are the city's; files have the agents that they have, and no more vehicles.
  for (const element of document.querySelectorAll(".city-only")) element.classList.toggle("hidden", !facts.city);
  if (!facts.city) at("vehicles").max = 1;
  showControls();
}

function showControls() {
  at("method").value = state.method;
  at("against").value = state.against;
  at("agents").value = String(state.agents);
  for (const [name, { show, write = Number }] of Object.entries(SLIDERS)) {
    at(name).value = write(state[name]);
    at(`${name}-out`).textContent = show(state[name]);
  }
  const fact = facts.methods.find(({ name }) => name === state.method);
  if (fact) {
    const who = fact.centre ? "A centre computes the matching." : "No centre: agents and vehicles alone.";
    at("method-note").textContent = `${fact.help}. An observer sees: ${fact.reveals}. ${who}`;
    at("epsilon").disabled = !fact.spends && !facts.methods.find(({ name, spends }) => name === state.against && spends);
  }
  const odds = Math.exp(state.epsilon);
  at("epsilon-note").textContent =
    `Posterior odds between two places of a square change by a factor of at most e^ε = ${odds.toPrecision(3)}: even odds ` +
    `become at most ${Math.ceil((100 * odds) / (1 + odds))} to ${Math.floor(100 / (1 + odds))}.`;
}

function listen() {
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const name of ["method", "against"]) at(name).addEventListener("change", () => change({ [name]: at(name).value }));
  at("agents").addEventListener("change", () => change({ agents: Number(at("agents").value) }));
  for (const [name, { show, read = Number }] of Object.entries(SLIDERS)) {
    at(name).addEventListener("input", () => {
      at(`${name}-out`).textContent = show(read(Number(at(name).value)));
    });
    at(name).addEventListener("change", () => change({ [name]: read(Number(at(name).value)) }));
  }
  at("again").addEventListener("click", () => change({ seed: state.seed + 1 }));
  at("play").addEventListener("click", () => (playing ? stop() : start()));
  at("step").addEventListener("click", () => show(nextChange(currentRound())));
  at("back").addEventListener("click", () => show(lastChange(currentRound())));
  at("scrub").addEventListener("input", () => show(Number(at("scrub").value)));
  at("zoom-in").addEventListener("click", () => refocus(views[0].canvas, (canvas) => canvas.zoom(1.6)));
  at("zoom-out").addEventListener("click", () => refocus(views[0].canvas, (canvas) => canvas.zoom(1 / 1.6)));
  at("save-png").addEventListener("click", savePicture);
  at("save-csv").addEventListener("click", saveData);
  at("copy-link").addEventListener("click", copyLink);
  window.addEventListener("resize", () => {
    for (const view of views) view.canvas.fit();
    draw();
  });
  window.addEventListener("hashchange", () => {
    if (location.hash !== toAddress(state)) {
      state = fromAddress(location.hash);
      load();
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const view of views) view.canvas.fit();
    draw();
  });
}

function change(part) {
  stop();
  state = { ...state, ...part, round: 0 };
  load();
}

// --- scenes and games ---------------------------------------------------------------------------------------------

async function load() {
  const number = ++asked;
  computing.abort();
  computing = new AbortController();
  showControls();
  clearTimeout(told);
  history.replaceState(null, "", toAddress(state));
  at("status").className = "";
  at("status").textContent = "Computing the game…";
  // Where a reader looks first; on a phone the line above is far below.
  if (views.length === 0) at("round").textContent = "Computing the game…";
  try {
    const shown = [state.method, ...(state.against ? [state.against] : [])];
    const [found, ...games] = await Promise.all([server.map(state), ...shown.map((name) => server.play(state, name))]);
    if (number !== asked) return;
    if (map === null || JSON.stringify(map.squares[0]) !== JSON.stringify(found.squares[0])) focus = { zoom: 1, middle: null };
    map = found;
    showMaps(games);
    at("status").textContent = `${whole(map.agents.length)} agents, ${whole(map.vehicles.length)} vehicles, ${whole(map.squares.length)} squares.`;
    computeLosses(number);
    focus = views[0].canvas.focus;
    // A game begins at its beginning; what a centre computes has no rounds, and is shown at once.
    show(state.round >= 0 && longest() > 0 ? state.round : longest() + 1);
  } catch (error) {
    if (number !== asked) return;
    at("status").className = "error";
    at("status").textContent = error.message;
    if (views.length === 0) at("round").textContent = error.message;
  }
}

function showMaps(games) {
  at("maps").replaceChildren();
  views = games.map((played) => {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = played.figures.method;
    const element = document.createElement("canvas");
    element.setAttribute("role", "img");
    element.tabIndex = 0;
    figure.append(caption, element);
    at("maps").append(figure);
    const canvas = new MapCanvas(element);
    canvas.focus = focus;
    canvas.show(map);
    followPointer(canvas, element);
    return { canvas, element, game: new Game(played, map.vehicles.length) };
  });
  showFigures();
}

// All maps show the same part: what is done to one is done to all.
let focus = { zoom: 1, middle: null };

function refocus(canvas, work) {
  work(canvas);
  focus = canvas.focus;
  for (const view of views) {
    view.canvas.focus = focus;
    view.canvas.fit();
  }
  draw();
}

// The visitor's own place is drawn on all maps; it is not part of the state, so that no link tells it.
let own = null;

function chooseAt(canvas, x, y) {
  if (!facts.games) return;
  agent.choose(...canvas.view.place(x, y));
}

const KEYS = { ArrowLeft: [-40, 0], ArrowRight: [40, 0], ArrowUp: [0, -40], ArrowDown: [0, 40] };

function followPointer(canvas, element) {
  let from = null, still = false;
  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    refocus(canvas, () => canvas.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY));
  }, { passive: false });
  element.addEventListener("pointerdown", (event) => {
    from = [event.offsetX, event.offsetY];
    still = true;
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const [x, y] = from;
    if (Math.hypot(x - event.offsetX, y - event.offsetY) < 5 && still) return;
    still = false;
    if (focus.zoom === 1) return;
    from = [event.offsetX, event.offsetY];
    refocus(canvas, () => canvas.move(x - event.offsetX, y - event.offsetY));
  });
  element.addEventListener("pointerup", (event) => {
    if (from !== null && still) chooseAt(canvas, event.offsetX, event.offsetY);
    from = null;
  });
  element.addEventListener("keydown", (event) => {
    if (event.key in KEYS) refocus(canvas, () => canvas.move(...KEYS[event.key]));
    else if (event.key === "Enter") chooseAt(canvas, canvas.width / 2, canvas.height / 2);
    else if (event.key === "+" || event.key === "-") refocus(canvas, () => canvas.zoom(event.key === "+" ? 1.5 : 1 / 1.5));
    else return;
    event.preventDefault();
  });
}

function showFigures() {
  const rows = [
    ["matched", (f) => `${whole(f.matched)} of ${whole(f.agents)}`, "agents that hold a vehicle"],
    ["welfare lost", (f) => percent(f.loss), "of what a centre that knows every position would reach"],
    ["rounds", (f) => (f.rounds ? whole(f.rounds) : "none"), "steps until no agent had anything left to do"],
    ["ε", (f) => f.guarantee.epsilon ?? "no privacy", "the privacy loss that is guaranteed not to be exceeded"],
  ];
  at("tables").replaceChildren(...views.map(({ game }) => {
    const table = document.createElement("table");
    table.createCaption().textContent = game.figures.method;
    for (const [name, value, words] of rows) {
      const row = table.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = `${name}: ${words}`;
      row.append(head);
      row.insertCell().textContent = value(game.figures);
    }
    const said = table.insertRow().insertCell();
    said.colSpan = 2;
    said.className = "words";
    said.textContent = game.figures.guarantee.statement;
    return table;
  }));
}

// --- rounds -------------------------------------------------------------------------------------------------------

const longest = () => Math.max(0, ...views.map(({ game }) => game.last));
const currentRound = () => (state.round < 0 ? longest() + 1 : state.round);
// Rounds in which nothing changes are not worth a look: the next one of any map in which something does.
const nextChange = (round) => Math.min(longest() + 1, ...views.map(({ game }) => game.changes.find((one) => one > round) ?? longest() + 1));
const lastChange = (round) => Math.max(0, ...views.map(({ game }) => game.changes.findLast((one) => one < round) ?? 0));

function show(round) {
  const end = longest() + 1;
  const now = Math.max(0, Math.min(round, end));
  state.round = now;
  for (const { game } of views) game.go(now >= end ? game.last + 1 : Math.min(now, game.last + 1));
  at("scrub").max = end;
  at("scrub").value = now;
  at("round").textContent = views.map(({ game }) => `${game.figures.method}: ${words(game, now, end)}`).join(" · ");
  at("scrub").setAttribute("aria-valuetext", at("round").textContent);
  // Browsers refuse an address that changes in every frame.
  clearTimeout(told);
  told = setTimeout(tell, 150);
  draw();
}

/** Put the state into the address; the result is no round, so that a link to it stays one if there are more rounds. */
function tell() {
  clearTimeout(told);
  history.replaceState(null, "", toAddress({ ...state, round: state.round > longest() ? -1 : state.round }));
}

function words(game, round, end) {
  const { has, tries, looks, waits, contested } = game.counts();
  if (round >= end) return `the result: ${whole(has)} hold a vehicle, ${whole(waits)} go without`;
  if (!game.last) return "no rounds: a centre computes the matching";
  return `round ${Math.min(round, game.last)} of ${game.last}: ${whole(has)} hold a vehicle, ${whole(tries)} try, ${whole(looks)} look, ${whole(waits)} wait, ${whole(contested)} vehicles contested`;
}

function draw() {
  for (const { canvas, element, game } of views) {
    canvas.draw(game);
    if (own) canvas.mark(own);
    const { has, waits, contested } = game.counts();
    element.setAttribute("aria-label", `Map for ${game.figures.method}: ${has} agents hold a vehicle, ${waits} wait, ${contested} vehicles are contested.`);
  }
}

function start() {
  if (currentRound() > longest()) show(0);
  at("play").textContent = "Pause";
  at("play").setAttribute("aria-pressed", "true");
  // A game takes some twelve seconds: where there are very many rounds, several at a time.
  const frames = new Set(views.flatMap(({ game }) => game.changes)).size + 1;
  const pause = Math.max(50, Math.min(400, 12000 / frames));
  const stride = Math.max(1, Math.ceil(frames / 240));
  let last = performance.now();
  const frame = (now) => {
    if (!playing) return;
    if (now - last >= pause) {
      last = now;
      let round = currentRound();
      for (let step = 0; step < stride; step++) round = nextChange(round);
      show(round);
      if (currentRound() > longest()) return stop();
    }
    playing = requestAnimationFrame(frame);
  };
  playing = requestAnimationFrame(frame);
}

function stop() {
  if (playing) cancelAnimationFrame(playing);
  playing = null;
  at("play").textContent = "Play";
  at("play").setAttribute("aria-pressed", "false");
}

// --- the frontier ---------------------------------------------------------------------------------------------------

// The point of today's ε first, then those around it; computed in the background, and kept by the server.
async function computeLosses(number) {
  const { methods, epsilons } = facts.chart;
  const lines = methods.map((line) => ({ ...line, loss: {} }));
  const order = [...epsilons].sort((one, two) => Math.abs(Math.log(one / state.epsilon)) - Math.abs(Math.log(two / state.epsilon)));
  at("chart").replaceChildren();
  if (map.agents.length * map.vehicles.length > facts.chart.pairs) {
    at("frontier-note").textContent = `Computed for scenes of at most ${whole(facts.chart.pairs)} pairs of agents and vehicles.`;
    return;
  }
  for (const [place, epsilon] of order.entries()) {
    at("frontier-note").textContent = `Being computed: ${place} of ${order.length} budgets are there.`;
    try {
      const found = await server.losses({ ...state, epsilon }, computing.signal);
      if (number !== asked) return;
      for (const line of lines) line.loss[epsilon] = found.loss[line.method];
      at("chart").replaceChildren(chart(epsilons, lines), legendTable(epsilons, lines));
    } catch (error) {
      if (number === asked) at("frontier-note").textContent = error.message;
      return;
    }
  }
  at("frontier-note").textContent = "Mean of four simulated games at each ε, with agents drawn anew in their squares (the public prior). The shaded area is proved to be out of reach of every method with this guarantee, in expectation over such agents: a single game, as on the map, or the mean of four, can lose less than the limit. The chart does not follow from the true places, and may be published.";
}

// --- what leaves the page -------------------------------------------------------------------------------------------

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savePicture() {
  const wide = views.reduce((sum, { element }) => sum + element.width, 0);
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [wide, Math.max(...views.map(({ element }) => element.height))];
  const context = picture.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--paper");
  context.fillRect(0, 0, picture.width, picture.height);
  let x = 0;
  for (const { element } of views) {
    context.drawImage(element, x, 0);
    x += element.width;
  }
  picture.toBlob((blob) => save("palmatch.png", blob));
}

const quoted = (value) => (/[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);

function saveData() {
  const lines = ["method,agent,latitude,longitude,square,vehicle"];
  for (const { game } of views) {
    game.holder.forEach((vehicle, agent) => {
      const [latitude, longitude] = map.agents[agent];
      const square = map.squares[map.region[agent]].name;
      const names = [map.agent_ids[agent] ?? agent, vehicle < 0 ? "" : map.vehicle_ids[vehicle] ?? vehicle].map(quoted);
      lines.push([game.figures.method, names[0], latitude, longitude, quoted(square), names[1]].join(","));
    });
  }
  save("palmatch.csv", new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
}

async function copyLink() {
  tell();
  const link = location.href;
  try {
    await navigator.clipboard.writeText(link);
    at("status").textContent = "The link is in the clipboard.";
  } catch {
    at("status").textContent = link;
  }
}

// --- the beginning ---------------------------------------------------------------------------------------------------

const LEGEND = [
  ["agent that looks", "--agent", ""], ["agent that tries", "--contest", ""], ["agent that holds a vehicle", "--holds", ""],
  ["agent that waits (a ring)", "--waits", "ring"], ["vehicle (larger: a higher price)", "--vehicle", "square"],
];

function legend() {
  at("legend").replaceChildren(...LEGEND.map(([text, colour, kind]) => {
    const item = document.createElement("li");
    const sample = document.createElement("span");
    sample.className = kind;
    sample.style.setProperty(kind === "ring" ? "border" : "background", kind === "ring" ? `2px solid var(${colour})` : `var(${colour})`);
    item.append(sample, text);
    return item;
  }));
}

async function begin() {
  legend();
  facts = await server.about();
  at("source").textContent = `Shown: ${facts.source}. Everything here is a simulation: all positions are known to it.`;
  fillControls();
  listen();
  await load();
  if (facts.hub) watch.begin(facts.hub);
  if (facts.games) await agent.begin(() => state, (place) => {
    own = place;
    draw();
  });
}

begin().catch((error) => {
  at("status").className = "error";
  at("status").textContent = error.message;
});
