// The list of groups, filters, search and keys. Groups are parsed when opened, columns drawn when they come near.

const SEARCH_SLICE_MS = 25;
const SEARCH_DELAY_MS = 180;
const MOST_HIGHLIGHTS = 3000;

const byId = (id) => document.getElementById(id);
const readData = (id) => JSON.parse(byId(id).textContent);
const index = readData("index");
const pane = byId("pane");
const items = [];
const searchTexts = [];

const state = { group: -1, rollout: 0, view: "turns", query: "", found: null, showAll: false, foldsOpen: false };
let opened = null;
let searchNumber = 0;

function optionCounts(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  return counts;
}

function fillSelect(id, label, options) {
  const select = byId(id);
  select.append(new Option(label, ""));
  for (const [value, text] of options) select.append(new Option(shown(text), value));
  select.addEventListener("change", refresh);
}

function fillFilters() {
  const all = index.groups.flatMap((group) => group.rollouts);
  const steps = optionCounts(index.groups.map(stepName));
  fillSelect("step", "all steps", [...steps].map(([name, count]) => [name, `${name} (${plural(count, "group")})`]));
  const successes = optionCounts(all.map((rollout) => String(rollout.success)));
  const names = { true: "● success", false: "○ no success", null: "· unscored" };
  fillSelect("success", "any success",
    Object.keys(names).filter((key) => successes.has(key)).map((key) => [key, `${names[key]} (${successes.get(key)})`]));
  const endings = [...optionCounts(all.map((rollout) => rollout.ended))].sort((a, b) => b[1] - a[1]);
  fillSelect("ended", "any ending", endings.map(([name, count]) => [name, `${name} (${count})`]));
  const tools = [...optionCounts(all.flatMap((rollout) => rollout.tools))].sort((a, b) => b[1] - a[1]);
  fillSelect("tool", "any tool", tools.map(([tool, count]) => [tool, `${index.tools[tool]} (${count})`]));
}

function stepName(group) {
  return `${group.validate ? "validation " : ""}step ${group.step}`;
}

function fillList() {
  index.groups.forEach((group, position) => {
    const marks = group.rollouts.map((rollout) => successMark(rollout.success)).join("");
    const scored = group.rollouts.filter((rollout) => rollout.success !== null);
    const successes = `${scored.filter((rollout) => rollout.success).length} of ${scored.length} succeed`;
    const button = make("button", "",
      make("span", "where", stepName(group), make("span", "", scored.length ? successes : "unscored")),
      make("span", "question", shown(group.question) || "(no question)"),
      make("span", "marks", marks));
    button.type = "button";
    button.addEventListener("click", () => openGroup(position));
    items.push(make("li", "", button));
  });
  byId("groups").append(...items);
}

// Positions of a group's rollouts that pass every filter.
function passing(position) {
  const success = byId("success").value, ended = byId("ended").value, tool = byId("tool").value, step = byId("step").value;
  const group = index.groups[position];
  if (step && stepName(group) !== step) return [];
  const found = state.found ? state.found[position] : null;
  return group.rollouts.map((rollout, number) => number).filter((number) => {
    const rollout = group.rollouts[number];
    return (!success || String(rollout.success) === success) && (!ended || rollout.ended === ended)
      && (!tool || rollout.tools.includes(Number(tool))) && (!found || found.includes(number));
  });
}

function isFiltered() {
  return Boolean(state.query || ["success", "ended", "tool", "step"].some((id) => byId(id).value));
}

function refresh() {
  let groups = 0, rollouts = 0, first = -1;
  items.forEach((item, position) => {
    const count = passing(position).length;
    item.hidden = count === 0;
    if (!count) return;
    if (first < 0) first = position;
    groups += 1;
    rollouts += count;
  });
  const all = index.groups.reduce((sum, group) => sum + group.rollouts.length, 0);
  const shownRollouts = isFiltered() ? `${rollouts.toLocaleString("en")} of ${plural(all, "rollout")}` : plural(all, "rollout");
  byId("counts").textContent = `${shownRollouts}, ${plural(groups, "group")}`;
  byId("clear").hidden = !isFiltered();
  state.showAll = false;
  if (first < 0) {
    state.group = -1;
    opened = null;
    pane.replaceChildren(make("p", "nothing", "No rollout passes the filters."));
  } else if (state.group < 0 || items[state.group].hidden) {
    openGroup(first);
  } else {
    drawGroup();
  }
}

function openGroup(position) {
  if (state.group >= 0) items[state.group].firstChild.removeAttribute("aria-current");
  if (state.group !== position) state.rollout = 0;
  state.group = position;
  state.showAll = false;
  opened = readData(`group-${position}`);
  items[position].firstChild.setAttribute("aria-current", "true");
  items[position].scrollIntoView({ block: "nearest" });
  history.replaceState(null, "", `#group=${position}`);
  drawGroup();
  pane.scrollTo(0, 0);
}

const drawNearColumns = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    drawNearColumns.unobserve(entry.target);
    drawColumn(entry.target);
  }
}, { root: pane, rootMargin: "0px 800px" });

function drawColumn(column) {
  const rollout = opened.rollouts[column.dataset.position];
  column.append(columnBody(rollout, state.view));
  if (state.foldsOpen) for (const details of column.querySelectorAll("details")) details.open = true;
  highlight();
}

function drawGroup() {
  drawNearColumns.disconnect();
  const kept = passing(state.group);
  const positions = state.showAll ? opened.rollouts.map((_, position) => position) : kept;
  const columns = make("section", "columns");
  for (const position of positions) {
    const column = make("article", kept.includes(position) ? "rollout" : "rollout other", columnHead(opened.rollouts[position]));
    column.dataset.position = position;
    columns.append(column);
  }
  const head = groupHead(opened, index.groups[state.group]);
  for (const bars of head.querySelectorAll(".bars")) {
    bars.disabled = !positions.includes(Number(bars.dataset.position));
    bars.addEventListener("click", () => selectRollout(Number(bars.dataset.position)));
  }
  pane.replaceChildren(head, columns);
  const others = opened.rollouts.length - positions.length;
  if (others) {
    const more = make("button", "more", `Show the ${plural(others, "other rollout")} of this group`);
    more.type = "button";
    more.addEventListener("click", () => { state.showAll = true; drawGroup(); });
    columns.append(more);
  }
  for (const column of columns.querySelectorAll("article")) drawNearColumns.observe(column);
  if (!positions.includes(state.rollout)) state.rollout = positions[0];
  markSelected();
}

function markSelected() {
  for (const element of pane.querySelectorAll("[data-position]")) {
    element.classList.toggle("selected", Number(element.dataset.position) === state.rollout);
  }
}

function selectRollout(position) {
  state.rollout = position;
  markSelected();
  const column = pane.querySelector(`article[data-position="${position}"]`);
  if (column) pane.scrollTo({ left: column.offsetLeft - pane.clientWidth / 2 + column.offsetWidth / 2 });
}

function moveGroup(direction) {
  for (let position = state.group + direction; position >= 0 && position < items.length; position += direction) {
    if (!items[position].hidden) return openGroup(position);
  }
}

function moveRollout(direction) {
  const columns = [...pane.querySelectorAll("article")].map((column) => Number(column.dataset.position));
  const next = columns[columns.indexOf(state.rollout) + direction];
  if (next !== undefined) selectRollout(next);
}

function setView(view) {
  state.view = view;
  for (const button of byId("view").children) button.setAttribute("aria-pressed", String(button.dataset.view === view));
  if (opened) drawGroup();
}

function toggleFolds() {
  state.foldsOpen = !state.foldsOpen;
  for (const details of pane.querySelectorAll("article details")) details.open = state.foldsOpen;
}

function textsOf(position) {
  if (searchTexts[position]) return searchTexts[position];
  const group = readData(`group-${position}`);
  searchTexts[position] = group.rollouts.map((rollout) => [
    group.question,
    ...rollout.runs.map((run) => run.text),
    ...rollout.turns.flatMap((turn) => [turn.reasoning, turn.content,
      ...turn.calls.flatMap((call) => [call.name, call.status, call.arguments, call.written, call.observation])]),
    ...rollout.gold.flat().map((call) => call.name),
  ].filter(Boolean).join("\n").toLowerCase());
  return searchTexts[position];
}

// Reads groups in slices of time, so that typing stays smooth; a newer search ends an older one.
async function search() {
  const own = ++searchNumber;
  const query = byId("query").value.toLowerCase();
  if (query === state.query) return;
  let found = null;
  if (query) {
    found = [];
    let pause = performance.now() + SEARCH_SLICE_MS;
    for (let position = 0; position < index.groups.length; position += 1) {
      const texts = textsOf(position);
      found.push(texts.map((_, number) => number).filter((number) => texts[number].includes(query)));
      if (performance.now() < pause) continue;
      byId("counts").textContent = `searching, ${Math.round(100 * position / index.groups.length)} %`;
      await new Promise((resolve) => setTimeout(resolve));
      if (own !== searchNumber) return;
      pause = performance.now() + SEARCH_SLICE_MS;
    }
  }
  state.query = query;
  state.found = found;
  refresh();
  highlight();
}

function highlight() {
  if (!window.Highlight) return;
  CSS.highlights.delete("found");
  if (!state.query) return;
  const ranges = [];
  const walker = document.createTreeWalker(pane, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && ranges.length < MOST_HIGHLIGHTS) {
    const text = walker.currentNode.data.toLowerCase();
    for (let at = text.indexOf(state.query); at >= 0; at = text.indexOf(state.query, at + state.query.length)) {
      if (at + state.query.length > walker.currentNode.length) break;
      const range = new Range();
      range.setStart(walker.currentNode, at);
      range.setEnd(walker.currentNode, at + state.query.length);
      ranges.push(range);
      const details = walker.currentNode.parentElement.closest("article details");
      if (details) details.open = true;
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

function clearFilters() {
  for (const id of ["step", "success", "ended", "tool"]) byId(id).value = "";
  byId("query").value = "";
  searchNumber += 1;
  state.query = "";
  state.found = null;
  refresh();
  highlight();
}

const KEYS = {
  ArrowDown: () => moveGroup(1),
  ArrowUp: () => moveGroup(-1),
  ArrowRight: () => moveRollout(1),
  ArrowLeft: () => moveRollout(-1),
  "/": () => byId("query").focus(),
  t: () => setView(state.view === "turns" ? "tokens" : "turns"),
  o: toggleFolds,
  Escape: clearFilters,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inField = event.target.matches("input, select");
  if (inField && event.key === "Escape") event.target.blur();
  else if (!inField && Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  else return;
  event.preventDefault();
});

let searchTimer = 0;
byId("query").addEventListener("input", () => {
  clearTimeout(searchTimer);
  searchTimer = setTimeout(search, SEARCH_DELAY_MS);
});
byId("clear").addEventListener("click", clearFilters);
byId("view").addEventListener("click", (event) => {
  if (event.target.dataset.view) setView(event.target.dataset.view);
});

for (const note of index.notes) byId("notes").append(make("li", "", shown(note)));
byId("notes").hidden = !index.notes.length;
byId("lowest").textContent = signed(-index.largestAdvantage);
byId("highest").textContent = signed(index.largestAdvantage);
fillFilters();
fillList();
const linked = Number((location.hash.match(/^#group=(\d+)$/) || [])[1] || 0);
state.group = linked < items.length ? linked : 0;
opened = readData(`group-${state.group}`);
refresh();
openGroup(state.group);
