// The replay: which run, method and round are shown, how that moves by keys and in time, and what all panels show of it.

const data = JSON.parse(byId("data").textContent);
const SPEEDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10];
const LOOKS = 8, LONGEST_NAME = 32;
const CALM_MS = 1000;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const place = { run: 0, method: 0, round: 0 };
const film = { playing: false, speed: SPEEDS.indexOf(1), clock: 0, frame: 0, drawn: 0 };
const cursors = { curves: [], race: null, standing: [] };

const run = () => data.runs[place.run];
const lane = () => run().lanes[place.method];
const rounds = () => lane().t.length;
const look = (number) => `s${number % LOOKS}`;

const text = textPanel(byId("text"), data.texts, (round) => go(round));
const tree = treePanel(byId("tree"), byId("tree-note"), data.texts);

// Shows a round, told by its number, without moving the clock.
function show(round) {
  place.round = Math.max(0, Math.min(rounds() - 1, round));
  const end = lane().ends[place.round] ?? 0;
  text.show(place.round);
  tree.show(lane(), rounds() ? place.round : -1);
  for (const cursor of cursors.curves) cursor(end);
  showRace();
  const range = byId("round");
  range.value = place.round + 1;
  range.setAttribute("aria-valuetext", `round ${place.round + 1} of ${rounds()}`);
  byId("place").textContent = rounds() ? `round ${place.round + 1} of ${rounds()}` : "no round";
  byId("now").textContent = rounds() ? said() : `${lane().name} decoded nothing. ${lane().ended}`;
}

// What a round was, in a sentence.
function said() {
  const own = lane(), round = place.round, tokens = own.texts[round], kept = own.kept[round];
  const guesses = own.trees[round].parents.length - (own.root_is_drafted ? 0 : 1);
  const drafted = own.drafts ? `${guesses} drafted, ${own.trees[round].accepted.length} accepted, ` : "";
  const written = own.drafts ? tokens.length : own.ends[round] - (own.ends[round - 1] ?? 0);
  const bonus = own.drafts && kept < tokens.length ? " with the bonus" : "";
  const [draft, verify, commit] = own.ms[round].map((ms) => (ms === null ? "-" : ms.toPrecision(3)));
  const piece = shortened(visible(tokens.map((number) => data.texts[number]).join("")), 60);
  const last = round === rounds() - 1 && own.ended ? ` Ended by: ${own.ended}.` : "";
  return `${shortened(own.name, LONGEST_NAME)}, round ${round + 1}: ${drafted}${counted(written, "token")} written${bonus}: “${piece}”. ` +
    `Draft ${draft} ms, verification ${verify} ms, commit ${commit} ms.${last}`;
}

function showRace() {
  cursors.race(film.clock).forEach((tokens, number) => {
    cursors.standing[number].textContent = counted(tokens || 0, "token");
  });
}

// Goes to a round and sets the clock to its end.
function go(round) {
  const to = Math.max(0, Math.min(rounds() - 1, round));
  film.clock = lane().t[to] ?? 0;
  show(to);
}

// The curves of a method by the panel that shows them; a panel without any is not shown.
function curvesOf(own) {
  const curve = (key, name, number, steps) => {
    const line = own.curves[key];
    return line ? [{ name, look: look(number), at: line.at, values: line.values, steps }] : [];
  };
  return {
    acceptance: { label: "depth acceptance", series: curve("acceptance", "depth acceptance", 0) },
    tokens: { label: "tokens per round", series: curve("tokens", "tokens per round", 0) },
    depth: { label: "levels", series: [...curve("depth", "drafted levels", 0), ...curve("d0", "D0", 1, true)] },
    tau: { label: "τh", series: curve("tau_h", "τh", 0, true) },
  };
}

function drawCurves() {
  const own = lane(), curves = Object.entries(curvesOf(own));
  const across = { label: "tokens of the text", most: own.ends.at(-1) || 1 };
  for (const [host, { series }] of curves) byId(host).closest("section").hidden = series.length === 0;
  for (const each of document.querySelectorAll(".turned")) each.hidden = own.turns.length === 0;
  cursors.curves = curves.filter(([, { series }]) => series.length).map(([host, { label, series }]) => {
    const most = Math.max(1, ...series.map(({ values }) => Math.max(...values)));
    return chart(byId(host), { series, across, up: { label, most }, marks: own.turns });
  });
}

function drawRace() {
  const lanes = run().lanes;
  const across = { label: "seconds of own decoding", most: Math.max(...lanes.map(({ t }) => t.at(-1) ?? 0)) };
  const up = { label: "tokens", most: Math.max(1, ...lanes.map(({ ends }) => ends.at(-1) ?? 0)) };
  const series = lanes.map(({ t, ends }, number) => ({ name: "", look: look(number), at: [0, ...t], values: [0, ...ends] }));
  cursors.race = chart(byId("race"), { series, across, up });
  cursors.standing = lanes.map(() => html("b"));
  byId("standing").replaceChildren(...lanes.map(({ name }, number) =>
    html("li", {}, swatch(look(number)), ` ${shortened(name, LONGEST_NAME)} `, cursors.standing[number])));
}

function draw() {
  drawCurves();
  drawRace();
}

function chooseMethod(number) {
  if (number >= run().lanes.length) return;
  place.method = number;
  [...byId("methods").children].forEach((button, each) => button.setAttribute("aria-pressed", each === number));
  for (const each of document.querySelectorAll(".averaged")) each.textContent = `Mean of the last ${run().window} rounds.`;
  byId("round").max = Math.max(1, rounds());
  text.open(run(), lane());
  draw();
  show(lastAt(lane().t, film.clock));
}

function chooseRun(number) {
  pause();
  place.run = Math.max(0, Math.min(data.runs.length - 1, number));
  byId("run").selectedIndex = place.run;
  byId("methods").replaceChildren(...run().lanes.map(({ name, about }, each) => {
    const digit = each < 9 ? `${each + 1} ` : "";
    const button = html("button", { type: "button", title: about }, digit, swatch(look(each)), ` ${shortened(name, LONGEST_NAME)}`);
    if (digit) button.setAttribute("aria-keyshortcuts", digit.trim());
    button.addEventListener("click", () => chooseMethod(each));
    return button;
  }));
  [...document.querySelectorAll(".run")].forEach((each, other) => each.classList.toggle("other", other !== place.run));
  film.clock = Infinity;
  chooseMethod(0);
  go(rounds() - 1);
}

function pause() {
  film.playing = false;
  cancelAnimationFrame(film.frame);
  byId("play").textContent = "Play";
  byId("now").setAttribute("aria-live", "polite");
}

function play() {
  if (place.round >= rounds() - 1) go(0);
  film.playing = true;
  film.drawn = performance.now();
  byId("play").textContent = "Pause";
  byId("now").setAttribute("aria-live", "off");
  film.frame = requestAnimationFrame(advance);
}

function advance(now) {
  if (!calm.matches || now - film.drawn >= CALM_MS) {
    film.clock += (Math.max(0, now - film.drawn) / 1000) * SPEEDS[film.speed];
    film.drawn = now;
    const round = lastAt(lane().t, film.clock);
    if (round >= rounds() - 1) {
      pause();
      return go(rounds() - 1);
    }
    if (round !== place.round) show(round);
    else showRace();
  }
  film.frame = requestAnimationFrame(advance);
}

function chooseSpeed(number) {
  film.speed = Math.max(0, Math.min(SPEEDS.length - 1, number));
  byId("speed").selectedIndex = film.speed;
}

function toggleKeys() {
  const dialog = byId("keys");
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

const stepped = (by) => () => {
  pause();
  go(place.round + by);
};

const ACTIONS = {
  back: stepped(-1),
  on: stepped(1),
  back_ten: stepped(-10),
  on_ten: stepped(10),
  first: stepped(-Infinity),
  last: stepped(Infinity),
  play: () => (film.playing ? pause() : play()),
  slower: () => chooseSpeed(film.speed - 1),
  faster: () => chooseSpeed(film.speed + 1),
  method: (key) => chooseMethod(Number(key) - 1),
  next_method: () => chooseMethod((place.method + 1) % run().lanes.length),
  next_run: () => place.run < data.runs.length - 1 && chooseRun(place.run + 1),
  previous_run: () => place.run > 0 && chooseRun(place.run - 1),
  help: toggleKeys,
};

const actionOf = new Map(data.keys.flatMap(({ names, action }) => names.map((name) => [name, action])));

// Keys that a control needs for itself, while it has the focus; arrows move what is wider than its place.
const own = (target, key) =>
  (key === " " && target.closest("button, select, summary")) ||
  (key !== "?" && target.closest("select")) ||
  (key.startsWith("Arrow") && target.matches(".scrolls, .tree") && target.scrollWidth > target.clientWidth);

function pressed(event) {
  const key = `${event.shiftKey && event.key.length > 1 ? "Shift+" : ""}${event.key}`;
  const action = actionOf.get(key);
  if (!action || event.ctrlKey || event.altKey || event.metaKey || own(event.target, event.key)) return;
  if (byId("keys").open && action !== "help") return;
  event.preventDefault();
  ACTIONS[action](event.key);
}

function open() {
  byId("run").append(...data.runs.map(({ label }) => html("option", {}, label)));
  byId("runs").hidden = data.runs.length < 2;
  byId("speed").append(...SPEEDS.map((speed) => html("option", {}, speed === 1 ? "as recorded" : `× ${speed}`)));
  byId("key-list").append(...data.keys.map(({ caps, help }) => html("tr", {}, html("th", { scope: "row" }, caps), html("td", {}, help))));
  chooseSpeed(film.speed);
  byId("run").addEventListener("change", (event) => chooseRun(event.target.selectedIndex));
  byId("speed").addEventListener("change", (event) => chooseSpeed(event.target.selectedIndex));
  byId("round").addEventListener("input", (event) => stepped(Number(event.target.value) - 1 - place.round)());
  byId("play").addEventListener("click", ACTIONS.play);
  byId("help").addEventListener("click", toggleKeys);
  byId("close").addEventListener("click", toggleKeys);
  document.addEventListener("keydown", pressed);
  byId("player").hidden = false;
  chooseRun(0);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    draw();
    show(place.round);
  });
}

open();
