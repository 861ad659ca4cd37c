"use strict";
// One group's head and one rollout's column. Every text of a rollout becomes a text node, never markup.

const SEGMENT_NAMES = { tool: "tool segment", summary: "summary segment", observation: "observation" };
const STATUS_NAMES = {
  ok: ["good", "✓ valid"],
  malformed_call: ["bad", "✗ malformed"],
  service_unavailable: ["bad", "✗ no answer, the simulator failed"],
  not_executed: ["dull", "not executed"],
};
const FITS = {
  equal: ["good", "✓"],
  different: ["bad", "✗"],
  missing: ["bad", "✗ missing"],
  extra: ["dull", "+ not in gold"],
};
const LONG_JSON = 5000;
const JSON_PARTS = /("(?:[^"\\\n]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f]|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]|\p{Surrogate}/gu;

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

// Control characters, direction marks and lone surrogates would hide or reorder text: show them by code.
function shown(text) {
  return text.replace(INVISIBLE, (character) =>
    `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

function textBox(text, className) {
  return make("div", `text ${className || ""}`, shown(text));
}

function jsonBox(text) {
  const box = make("pre", "json");
  if (text.length > LONG_JSON) {
    box.append(shown(text));
    return box;
  }
  let position = 0;
  for (const match of text.matchAll(JSON_PARTS)) {
    if (match.index > position) box.append(shown(text.slice(position, match.index)));
    const kind = match[1] ? (match[2] ? "key" : "string") : "number";
    box.append(make("span", kind, shown(match[1] || match[0])));
    if (match[2]) box.append(match[2]);
    position = match.index + match[0].length;
  }
  if (position < text.length) box.append(shown(text.slice(position)));
  return box;
}

function fold(label, content, isOpen) {
  const details = make("details", "", make("summary", "", label), content);
  details.open = Boolean(isOpen);
  return details;
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function decimal(value, absent) {
  if (value === null || value === undefined) return absent || "none";
  return typeof value === "string" ? value : value.toFixed(2).replace("-", "−");
}

function signed(value) {
  if (typeof value !== "number") return decimal(value);
  return (value > 0 ? "+" : "") + decimal(value);
}

// Sign gives the hue, size the strength; the square root keeps small advantages visible.
function tint(element, advantage) {
  if (typeof advantage === "string") element.classList.add("alarm");
  if (typeof advantage !== "number" || advantage === 0) return element;
  element.classList.add(advantage > 0 ? "positive" : "negative");
  element.style.setProperty("--strength", Math.sqrt(Math.abs(advantage) / index.largestAdvantage).toFixed(3));
  return element;
}

// The advantage of a segment: one value, or the range where turns have their own. Null when it has none.
function segmentAdvantage(rollout, kind) {
  const values = rollout.runs.filter((run) => run.kind === kind && run.advantage !== null).map((run) => run.advantage);
  if (!values.length) return null;
  const odd = values.find((value) => typeof value === "string");
  if (odd) return { text: odd, mean: odd };
  const low = Math.min(...values), high = Math.max(...values);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { text: low === high ? signed(low) : `${signed(low)} to ${signed(high)}`, mean };
}

function groupHead(group, entry) {
  const kind = entry.validate ? "validation step" : "step";
  const meta = make("p", "meta", `${kind} ${entry.step}`, make("span", "id", shown(entry.name)));
  for (const [name, value] of Object.entries(group.task)) meta.append(make("span", "fact", shown(`${name}: ${value}`)));
  const question = make("h2", "text", shown(group.question));
  const prompt = make("div", "prompt");
  for (const message of group.prompt) {
    prompt.append(make("div", "message", make("b", "", shown(message.role)), textBox(message.text)));
  }
  const characters = group.prompt.reduce((sum, message) => sum + message.text.length, 0);
  const label = `Prompt: ${plural(group.prompt.length, "message")}, ${plural(characters, "character")}`;
  const left = make("div", "task", meta, question, fold(label, prompt), cutNote(group.cut, "its line in the dump"));
  return make("section", "head", left, glance(group.rollouts));
}

// Bars of both segments' advantages, one place a rollout: what each segment was told, side by side.
function glance(rollouts) {
  const advantages = rollouts.map((rollout) => [segmentAdvantage(rollout, "tool"), segmentAdvantage(rollout, "summary")]);
  if (!advantages.some((pair) => pair[0] || pair[1])) return null;
  const means = advantages.flat().map((advantage) => advantage && Math.abs(advantage.mean)).filter(Number.isFinite);
  const largest = Math.max(...means, 0);
  const chart = make("div", "glance");
  const labels = make("div", "labels", make("span", "", "success"), make("span", "", "tool"), make("span", "", "summary"));
  chart.append(labels);
  rollouts.forEach((rollout, position) => {
    const bars = make("button", "bars", make("span", "mark", successMark(rollout.success)));
    bars.type = "button";
    bars.dataset.position = position;
    const parts = [`rollout ${rollout.number}`];
    advantages[position].forEach((advantage, row) => {
      const bar = make("i", "bar");
      if (advantage && typeof advantage.mean === "number") {
        bar.classList.add(advantage.mean < 0 ? "negative" : "positive");
        bar.style.setProperty("--height", `${(50 * Math.abs(advantage.mean) / (largest || 1)).toFixed(1)}%`);
      }
      parts.push(`${row ? "summary" : "tool"} ${advantage ? advantage.text : "none"}`);
      bars.append(make("span", "track", bar));
    });
    bars.append(make("span", "number", String(rollout.number)));
    bars.title = parts.join(", ");
    chart.append(bars);
  });
  return make("figure", "", make("figcaption", "", `Advantages in this group, up to ${decimal(largest)}`), chart);
}

function successMark(success) {
  return success === null ? "·" : success ? "●" : "○";
}

function columnHead(rollout) {
  const success = rollout.success === null ? "unscored" : rollout.success ? "success" : "no success";
  const line = make("div", "title",
    make("b", "", `Rollout ${rollout.number}`),
    make("span", "chip", `${successMark(rollout.success)} ${success}`),
    make("span", rollout.ended === "replied" ? "chip" : "chip warn", `ended: ${shown(rollout.ended)}`),
    make("span", "chip", plural(rollout.calls, "call")));
  const tool = rewardBox(rollout, "tool", rollout.toolReward, "none");
  const summary = rewardBox(rollout, "summary", rollout.summaryReward, "ungraded");
  return make("div", "column-head", line, make("div", "rewards", tool, summary), maskBar(rollout.runs));
}

function rewardBox(rollout, kind, reward, absent) {
  const advantage = segmentAdvantage(rollout, kind);
  const box = make("div", `reward ${kind}`,
    make("span", "", kind), make("b", "", decimal(reward, absent)),
    make("span", "advantage", advantage ? `A ${advantage.text}` : "no advantage"));
  return advantage ? tint(box, advantage.mean) : box;
}

function maskBar(runs) {
  const bar = make("div", "mask");
  runs.forEach((run) => {
    const part = tint(make("i", run.kind), run.advantage);
    part.style.flexGrow = run.tokens;
    part.title = runLabel(run);
    bar.append(part);
  });
  return bar;
}

function runLabel(run) {
  const advantage = run.kind === "observation" ? "" : run.advantage === null ? ", no advantage" : `, A ${signed(run.advantage)}`;
  return `${SEGMENT_NAMES[run.kind] || run.kind}, ${plural(run.tokens, "token")}${advantage}`;
}

function columnBody(rollout, view) {
  const body = make("div", "body", processTerms(rollout), goldCalls(rollout));
  body.append(...(view === "tokens" ? tokens(rollout) : turns(rollout)));
  const metrics = make("dl", "metrics");
  for (const [name, value] of Object.entries(rollout.metrics)) {
    metrics.append(make("dt", "", shown(name)), make("dd", "", decimal(value)));
  }
  if (metrics.children.length) body.append(fold("Other metrics", metrics));
  body.append(cutNote(rollout.cut, rollout.place) || "", make("p", "place", shown(rollout.place)));
  return body;
}

function cutNote(cut, place) {
  const parts = [];
  if (cut.characters) parts.push(plural(cut.characters, "character"));
  if (cut.items) parts.push(plural(cut.items, "item"));
  return parts.length ? make("p", "note", shown(`${parts.join(" and ")} cut here; all of it: ${place}`)) : null;
}

function processTerms(rollout) {
  const row = make("div", "terms");
  for (const [name, value] of [["process", rollout.process], ...Object.entries(rollout.terms)]) {
    const fill = make("i", "");
    if (typeof value === "number") fill.style.width = `${Math.max(0, Math.min(100, 100 * value))}%`;
    row.append(make("div", name, make("span", "", name), make("b", "", decimal(value, "·")), make("span", "meter", fill)));
  }
  return row;
}

function goldCalls(rollout) {
  const calls = rollout.gold.flat();
  if (!calls.length) return make("p", "no-gold", "The gold answer makes no call.");
  const matched = calls.filter((call) => call.match).length;
  const list = make("div", "gold");
  let number = 0;
  rollout.gold.forEach((step, position) => {
    if (rollout.gold.length > 1) list.append(make("p", "step", `step ${position + 1}${step.length > 1 ? ", parallel" : ""}`));
    for (const call of step) list.append(goldCall(call, ++number));
  });
  if (!rollout.goldAsScored) {
    list.prepend(make("p", "note", "The rollout's key and value terms say that its reward matched or compared these calls "
      + "in another way, such as slca.process.schema_aware_values or execution_match."));
  }
  return fold(`Gold calls: ${matched} of ${calls.length} matched`, list, true);
}

function goldCall(call, number) {
  const match = call.match;
  const place = match
    ? make("span", "good", `✓ turn ${match.turn + 1}, key ${decimal(match.key)}, value ${decimal(match.value)}`)
    : make("span", "bad", "✗ not called");
  const rows = make("div", "arguments");
  for (const argument of call.arguments) {
    const [tone, mark] = FITS[argument.fits];
    const value = argument.gold === null ? argument.called : argument.gold;
    const row = make("div", "argument", make("span", "key", shown(argument.name)), make("span", "value", shown(value)));
    if (match) row.append(make("span", tone, mark));
    if (match && argument.fits === "different") row.append(make("span", "called", `called: ${shown(argument.called)}`));
    rows.append(row);
  }
  return make("div", "gold-call", make("div", "gold-head", make("b", "", `G${number}`), make("code", "", shown(call.name)), place), rows);
}

function turns(rollout) {
  const goldOf = new Map();
  rollout.gold.flat().forEach((call, position) => {
    if (call.match) goldOf.set(`${call.match.turn}/${call.match.call}`, position + 1);
  });
  const nodes = rollout.turns.map((turn, position) => {
    const run = rollout.runs[rollout.turnRuns[position]] || null;
    return turnBox(turn, position, run, rollout.turnRewards[position], goldOf);
  });
  if (rollout.turns.length && !rollout.turnRuns.length) {
    nodes.unshift(make("p", "note", "Turns and runs of the response mask differ in number, so turns are not tinted: see Tokens."));
  }
  return nodes;
}

function turnBox(turn, position, run, reward, goldOf) {
  const box = make("section", `turn ${run ? run.kind : ""}`);
  const head = make("div", "turn-head", make("b", "", `Turn ${position + 1}`));
  if (run) head.append(make("span", "", runLabel(run)));
  if (typeof reward === "number" && (!run || run.kind === "tool")) head.append(make("span", "", `turn reward ${decimal(reward)}`));
  const written = tint(make("div", "written"), run ? run.advantage : null);
  box.append(head, written);
  if (turn.reasoning) written.append(fold("reasoning", textBox(turn.reasoning, "reasoning"), true));
  const reply = turn.content ? textBox(turn.content, "reply") : null;
  if (!turn.calls.length) {
    written.append(reply || make("p", "empty", "(nothing written)"));
    return box;
  }
  if (reply) written.append(reply);
  let readable = 0;
  for (const call of turn.calls) {
    const gold = call.name === "" ? null : goldOf.get(`${position}/${readable++}`);
    written.append(callBox(call, gold));
  }
  return box;
}

function callBox(call, gold) {
  const [tone, label] = STATUS_NAMES[call.status] || ["bad", `✗ invalid: ${shown(call.status)}`];
  const head = make("div", "call-head", make("code", "", shown(call.name || "(no name)")), make("span", `chip ${tone}`, label));
  if (gold) head.append(make("span", "chip gold-mark", `G${gold}`));
  const box = make("div", "call", head);
  if (call.reason) box.append(make("p", "bad", call.reason));
  box.append(call.written === undefined ? jsonBox(call.arguments || "{}") : textBox(call.written, "json"));
  if (call.observation !== undefined) {
    const from = call.source ? ` from ${shown(call.source)}` : "";
    const observation = call.observationIsJson ? jsonBox(call.observation) : textBox(call.observation);
    const details = fold(`observation${from}, ${plural(call.observation.length, "character")}`, observation);
    details.classList.add("observation");
    box.append(details);
  }
  return box;
}

function tokens(rollout) {
  return rollout.runs.map((run) =>
    make("section", `run ${run.kind}`, make("div", "turn-head", make("span", "", runLabel(run))),
      tint(make("div", "written", textBox(run.text)), run.advantage)));
}
