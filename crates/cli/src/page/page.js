// The live page. The server sends items as JSON over server-sent events: first everything, then what changes.
// Each way has one element that lives as long as the way does; only what changed in it is touched.
"use strict";

const byId = (id) => document.getElementById(id);
const ABSENT = { claim: "no claim", volume: "no volume", attachment: "not attached", node: "no node", pod: "no pod" };

const FIRST = `kubectl apply -f - <<END
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
END`;

const rows = new Map();      // id of a way -> its row
const events = new Map();    // id -> event
const state = { order: [], visible: [], current: null, dirty: new Set(), swept: null, live: false, read: false, shown: null, tone: "", eventsDirty: true, unseen: [] };

// --- Small things -------------------------------------------------------------------------------------------------

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function sign(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", "#" + name);
  svg.append(use);
  return svg;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

/** Puts exactly these children into an element, and touches nothing if they are there already. */
function place(parent, children) {
  const same = parent.children.length === children.length && children.every((child, at) => parent.children[at] === child);
  if (!same) parent.replaceChildren(...children);
}

function span(millis) {
  if (millis < 0) return "0 ms";
  if (millis < 1000) return Math.round(millis) + " ms";
  if (millis < 60000) return (millis / 1000).toFixed(millis < 10000 ? 1 : 0) + " s";
  if (millis < 3600000) return Math.floor(millis / 60000) + " min " + Math.round((millis % 60000) / 1000) + " s";
  if (millis < 172800000) return (millis / 3600000).toFixed(1) + " h";
  return Math.round(millis / 86400000) + " days";
}

function age(millis) {
  const seconds = Math.max(0, Math.round((Date.now() - millis) / 1000));
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " days";
}

function bytes(count) {
  const units = ["B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return (count >= 100 || at === 0 || Number.isInteger(count) ? Math.round(count) : count.toFixed(1)) + " " + units[at];
}

function clock(millis, exact) {
  const time = new Date(millis);
  const today = time.toDateString() === new Date().toDateString();
  const text = time.toLocaleTimeString([], { hour12: false }) + (exact ? "." + String(time.getMilliseconds()).padStart(3, "0") : "");
  return today ? text : time.toLocaleDateString() + " " + text;
}

// --- The time line ------------------------------------------------------------------------------------------------

/** The stages with how long each took: from the one before it that is known. The API's times are whole seconds. */
function timed(stages) {
  let before = null;
  return stages.map((stage) => {
    const at = stage.when.at === undefined ? null : stage.when.at;
    let took = null;
    if (at !== null && before !== null) {
      const rough = stage.when.by === "told" || before.by === "told";
      took = { millis: Math.max(0, at - before.at), rough, from: before.at };
    }
    if (at !== null) before = { at, by: stage.when.by };
    return { stage, at, took };
  });
}

/** How long it took to get as far as it is, in words. */
function summary(way) {
  // Of what waits one wants to know since when, not how quickly it came so far.
  if (way.tone === "stuck" || way.tone === "waiting") return way.created ? age(way.created) + " old" : "";
  const known = timed(way.stages).filter((entry) => entry.at !== null);
  if (known.length < 2) return way.created ? age(way.created) + " old" : "";
  const [first, last] = [known[0], known[known.length - 1]];
  const rough = first.stage.when.by === "told" || last.stage.when.by === "told";
  // A pod that came later says nothing about how long its claim took.
  if (last.stage.of !== first.stage.of && known.some((entry) => entry.stage.name === "created" && entry !== first && entry.at - first.at > 60000)) {
    return age(way.created) + " old";
  }
  const took = Math.max(0, last.at - first.at);
  return last.stage.name + (rough ? " in about " : " in ") + span(rough ? Math.max(1000, took) : took);
}

function timeline(way) {
  const entries = timed(way.stages);
  const known = entries.filter((entry) => entry.at !== null);
  const begin = known.length ? Math.min(...known.map((entry) => entry.at)) : 0;
  const whole = Math.max(1, known.length ? Math.max(...known.map((entry) => entry.at)) - begin : 1);
  return make("ol", { class: "timeline", role: "list" }, ...entries.map((entry) => moment(entry, begin, whole)));
}

function moment({ stage, at, took }, begin, whole) {
  const ahead = stage.when.by === "ahead";
  const sources = { seen: "seen by this page", told: "from the API, to the second", unknown: "before this page looked", ahead: "not yet" };
  const item = make("li", { class: ahead ? "ahead" : "" },
    make("span", { class: "stage" }, make("b", { text: stage.name }), " " + stage.of),
    make("span", { class: "after", text: took ? (took.rough ? "≈ " : "+ ") + span(took.millis) : "" }),
    make("span", { class: "at" }, make("span", { text: at === null ? "" : clock(at, stage.when.by === "seen") }), make("span", { text: sources[stage.when.by] })));
  if (took && took.millis > 0) {
    const bar = make("i");
    bar.style.marginLeft = (100 * (took.from - begin)) / whole + "%";
    bar.style.width = (100 * took.millis) / whole + "%";
    item.append(make("div", { class: "span", "aria-hidden": "true" }, bar));
  }
  return item;
}

// --- A way as a picture -------------------------------------------------------------------------------------------

function newRow(id) {
  const headline = make("div", { class: "headline" }, sign("tone-moving"), make("span", { class: "name" }), make("span", { class: "asks" }), make("span", { class: "took" }));
  const branches = make("div", { class: "branches" });
  const picture = make("div", { class: "picture", "aria-hidden": "true" });
  const why = make("div", { class: "why" }, make("p"), make("p", { class: "fix" }));
  const box = make("div", { class: "way", role: "button", tabindex: "-1", "aria-haspopup": "dialog" }, headline, picture, why);
  const element = make("li", {}, box);
  element.dataset.id = id;
  return { id, element, box, headline, picture, branches, why, stations: new Map(), way: null, text: "", words: "" };
}

function station(row, key, kind, data) {
  const tone = data ? data.tone : "absent";
  const said = data ? data.state : ABSENT[kind];
  const called = data ? line(kind, data) : "";
  let held = row.stations.get(key);
  if (!held) {
    held = make("div", { class: "station " + kind }, sign("kind-" + kind), make("div", { "data-kind": kind === "attachment" ? "attach" : kind }, make("span", { class: "is" }), make("span", { class: "called" })));
    row.stations.set(key, held);
    if (state.live && data) animate(held, "came");
  } else if (state.live && (held.dataset.tone !== tone || held.querySelector(".is").textContent !== said)) {
    animate(held, held.dataset.tone === "absent" ? "came" : "turned");
  }
  set(held, "data-tone", tone);
  write(held.querySelector(".is"), said);
  write(held.querySelector(".called"), called);
  return held;
}

/** The second line of a station: its name, where that says something. */
function line(kind, data) {
  if (kind === "claim") return ["claim", fact(data, "asks for")].filter(Boolean).join(", ");
  return kind === "attachment" ? "attachment" : data.name;
}

function animate(element, name) {
  element.classList.remove("came", "turned");
  element.classList.add(name);
  // Not at the animation's own end: what is out of sight does not move, and would begin when it is scrolled to.
  setTimeout(() => element.classList.remove(name), 1200);
}

function draw(row) {
  const way = row.way;
  const branches = way.branches.length ? way.branches : [{ attachment: null, node: null, pods: [], more: 0 }];
  const used = new Set(["claim", "volume"]);
  const keyed = (key, kind, data) => { used.add(key); return station(row, key, kind, data); };
  const claim = station(row, "claim", "claim", way.claim);
  const volume = station(row, "volume", "volume", way.volume);
  const drawn = branches.map((branch, at) => drawBranch(row, branch, at, keyed));
  volume.classList.toggle("forks", drawn.length > 1);
  row.branches.classList.toggle("many", drawn.length > 1);
  place(row.branches, drawn);
  place(row.picture, [claim, volume, row.branches]);
  for (const key of row.stations.keys()) if (!used.has(key)) row.stations.delete(key);
  drawWords(row);
}

function drawBranch(row, branch, at, keyed) {
  // A branch keeps its place while it has no node, so that what comes appears in it.
  const key = "branch " + at;
  let element = row.branches.querySelector(`:scope > [data-key="${key}"]`);
  if (!element) {
    element = make("div", { class: "branch", "data-key": key });
  }
  let pods = element.querySelector(":scope > .pods");
  if (!pods) pods = make("div", { class: "pods" });
  const list = branch.pods.length ? branch.pods.map((pod, number) => keyed(key + " pod " + number, "pod", pod)) : [keyed(key + " pod 0", "pod", null)];
  const node = keyed(key + " node", "node", branch.node);
  const many = list.length > 1;
  pods.classList.toggle("many", many);
  node.classList.toggle("forks", many);
  if (branch.more) list.push(make("p", { class: "more", text: "and " + branch.more + " more" }));
  place(pods, list);
  place(element, [keyed(key + " attachment", "attachment", branch.attachment), node, pods]);
  return element;
}

function drawWords(row) {
  const { way, headline, why } = row;
  const [tone, name, asks, took] = headline.children;
  set(row.box, "data-tone", way.tone);
  set(tone.firstChild, "href", "#tone-" + way.tone);
  const title = (way.namespace ? way.namespace + "/" : "") + way.name;
  if (name.textContent !== title) {
    name.replaceChildren(way.namespace ? make("i", { text: way.namespace + "/" }) : "", way.name);
  }
  const kind = fact(way.claim, "class") || fact(way.volume, "class");
  write(asks, kind ? "class " + kind : "");
  write(took, summary(way));
  const waits = way.tone !== "settled" && way.why;
  show(why, Boolean(waits));
  if (waits) {
    const key = JSON.stringify([way.tone, way.why.sentence, way.why.fix[0]]);
    if (row.said !== key) {
      row.said = key;
      why.children[0].replaceChildren(...sentence(way.why.sentence));
      const fix = way.why.fix[0] || "";
      why.children[1].replaceChildren(make("b", { text: label(way.tone) + ": " }), ...rich(fix));
      show(why.children[1], Boolean(fix));
    }
  }
  set(row.box, "aria-label", spoken(way));
}

/** What waits for its time needs no repair. */
const label = (tone) => (tone === "stuck" ? "Fix" : "Next");

/** The sentence, with the reason before the eyes rather than what the row says anyway. */
function sentence(text) {
  const parts = /^(\S+ \S+ is \S+:) (.+)$/s.exec(text);
  return parts ? [make("span", { class: "whose", text: parts[1] }), " " + parts[2]] : [text];
}

/** Commands look like commands. */
function rich(text) {
  const parts = text.split(/(`[^`]+`|kubectl .+?(?=$|, |; |: |\.$))/);
  return parts.map((part, at) => (at % 2 ? make("code", { text: part.replaceAll("`", "") }) : part)).filter((part) => part !== "");
}

function fact(data, name) {
  const found = data && data.facts.find((pair) => pair[0] === name);
  return found ? found[1] : "";
}

/** The picture in words. */
function spoken(way) {
  const parts = [];
  if (way.claim) parts.push("claim " + way.name + (way.namespace ? " in " + way.namespace : "") + " " + way.claim.state);
  parts.push(way.volume ? "volume " + way.volume.name + " " + way.volume.state : "no volume");
  for (const branch of way.branches) {
    if (branch.attachment) parts.push("attachment " + branch.attachment.state);
    if (branch.node) parts.push("node " + branch.node.name + " " + branch.node.state);
    for (const pod of branch.pods) parts.push("pod " + pod.name + " " + pod.state);
  }
  if (way.tone !== "settled" && way.why) parts.push(way.why.sentence);
  return parts.join(", ");
}

// --- Order, filters, counts ---------------------------------------------------------------------------------------

/** What needs somebody comes first, then what is new. */
function before(a, b) {
  const needs = (row) => ({ stuck: 0, waiting: 1 })[row.way.tone] ?? 2;
  return needs(a) - needs(b) || b.way.created - a.way.created || (a.id < b.id ? -1 : 1);
}

function arrange() {
  state.order = [...rows.values()].sort(before);
  filter();
}

/** Only rows that fit the filter are in the document: hiding hundreds of them costs a browser seconds. */
function filter() {
  const words = byId("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const namespace = byId("namespace").value;
  state.visible = state.order.filter((row) => (!state.tone || row.way.tone === state.tone)
    && (!namespace || row.way.namespace === namespace) && words.every((word) => row.words.includes(word)));
  hang(byId("ways"), state.visible.map((row) => row.element));
  const empty = byId("empty");
  show(empty, state.visible.length === 0);
  if (!state.visible.length && state.live) {
    if (rows.size) empty.replaceChildren("Nothing fits the filter.");
    else if (state.unseen.includes("persistentvolumeclaims")) empty.replaceChildren("The claims cannot be looked at. Those of one namespace are shown by ", make("code", { text: "orlop tree -n NAMESPACE" }));
    else if (state.read) empty.replaceChildren("There are no claims yet. Make one, and watch it here:", make("pre", { text: FIRST }));
  }
  rove();
}

/** Brings a list into this order with few moves, and keeps the focus where it was: what is moved loses it. */
function hang(list, elements) {
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  if (Math.abs(list.children.length - elements.length) > 20) {
    list.replaceChildren(...elements);
  } else {
    let next = list.firstElementChild;
    for (const element of elements) {
      if (element === next) next = next.nextElementSibling;
      else list.insertBefore(element, next);
    }
    while (next) { const gone = next; next = next.nextElementSibling; gone.remove(); }
  }
  if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/** One row can be reached with Tab, the others with the arrow keys. */
function rove(wanted) {
  const { visible } = state;
  const current = visible.find((row) => row === wanted) || visible.find((row) => row === state.current) || visible[0];
  if (current === state.current) return;
  if (state.current) state.current.box.tabIndex = -1;
  if (current) current.box.tabIndex = 0;
  state.current = current || null;
}

function count() {
  const counts = { stuck: 0, waiting: 0, moving: 0, settled: 0 };
  const namespaces = new Set();
  for (const { way } of rows.values()) {
    counts[way.tone] += 1;
    if (way.namespace) namespaces.add(way.namespace);
  }
  for (const chip of document.querySelectorAll(".chip")) write(chip.querySelector("b"), String(counts[chip.dataset.tone]));
  write(byId("total"), rows.size ? String(rows.size) : "");
  const select = byId("namespace");
  const names = [...namespaces].sort();
  if (names.join() !== [...select.options].slice(1).map((option) => option.value).join()) {
    const chosen = select.value;
    if (chosen && !namespaces.has(chosen)) names.push(chosen);
    select.replaceChildren(select.options[0], ...names.map((name) => make("option", { value: name, text: name })));
    select.value = chosen;
  }
  const needs = counts.stuck + counts.waiting;
  document.title = (needs ? "(" + needs + ") " : "") + "Orlop";
}

// --- The side -----------------------------------------------------------------------------------------------------

/** What cannot be looked at is not called absent. */
function absent(kind, text) {
  return state.unseen.includes(kind) ? "The " + kind + " cannot be looked at." : text;
}

/** Classes that give out the same room are one pool. */
function grouped(list) {
  const groups = new Map();
  for (const pool of list) {
    const key = JSON.stringify([pool.driver, pool.rooms]);
    if (!groups.has(key)) groups.set(key, { driver: pool.driver, rooms: pool.rooms, classes: [], given: 0 });
    const group = groups.get(key);
    group.classes.push(pool);
    group.given += pool.given;
  }
  // The fullest first: what has given out nothing seldom matters.
  return [...groups.values()].sort((a, b) => b.given - a.given || (a.driver < b.driver ? -1 : 1));
}

function drawPools(pools) {
  const counted = (pool) => pool.volumes + (pool.volumes === 1 ? " volume, " : " volumes, ") + bytes(pool.given) + " given out";
  const items = grouped(pools.list).map(({ driver, rooms, classes, given }) => {
    const drawn = rooms.map((room) => {
      const bar = make("i");
      bar.style.width = Math.min(100, (100 * given) / Math.max(1, given + room.free)) + "%";
      const free = bytes(room.free) + " free" + (room.largest ? ", largest " + bytes(room.largest) : "");
      return make("div", { class: "room" }, make("div", { class: "meter", "aria-hidden": "true" }, bar), make("p", {}, make("span", { text: room.place }), make("span", { text: free })));
    });
    if (!drawn.length) drawn.push(make("p", { class: "room", text: "what is left is not published" }));
    if (classes.length === 1) {
      return make("li", { class: "pool" }, make("header", {}, make("b", { text: classes[0].class }), make("span", { text: driver })), make("p", { class: "room", text: counted(classes[0]) }), ...drawn);
    }
    const lines = classes.map((pool) => make("li", {}, make("b", { text: pool.class }), make("span", { text: counted(pool) })));
    return make("li", { class: "pool" }, make("header", {}, make("b", { text: driver })), make("ul", { class: "classes", role: "list" }, ...lines), ...drawn);
  });
  byId("pools").replaceChildren(...(items.length ? items : [make("li", { class: "pool", text: absent("storageclasses", "There are no storage classes.") })]));
}

function drawMachines(machines) {
  const items = machines.list.map((machine) => {
    const slots = machine.attached + (machine.slots === null ? "" : " of " + machine.slots) + " attached";
    const item = make("li", { class: "machine", "data-tone": machine.tone }, sign("tone-" + machine.tone), make("b", { text: machine.name }), make("span", { text: machine.state }), make("span", { class: "slots", text: slots }));
    return item;
  });
  byId("machines").replaceChildren(...(items.length ? items : [make("li", { class: "machine", text: absent("nodes", "There are no nodes.") })]));
}

function drawEvent(event) {
  const about = event.kind.replace("PersistentVolumeClaim", "claim").replace("PersistentVolume", "volume").replace("Pod", "pod") + " " + event.name;
  const times = event.count > 1 ? " × " + event.count : "";
  return make("li", { class: event.warning ? "event warning" : "event" },
    make("header", {}, make("b", { text: event.reason + times }), make("time", { text: clock(event.last), datetime: new Date(event.last).toISOString() })),
    make("p", { class: "about", text: about }), make("p", { text: event.message }));
}

function newest(list, most) {
  return list.sort((a, b) => b.last - a.last || (a.id < b.id ? 1 : -1)).slice(0, most);
}

function drawEvents() {
  const list = newest([...events.values()], 60).map(drawEvent);
  byId("events").replaceChildren(...(list.length ? list : [make("li", { class: "event", text: absent("events", "Nothing was said in the last hour.") })]));
}

function drawCluster(cluster) {
  write(byId("cluster"), cluster.name);
  const trouble = byId("trouble");
  trouble.hidden = cluster.troubles.length === 0;
  write(trouble, cluster.troubles.length ? "What you see may be old or incomplete. Could not look at " + cluster.troubles.join("; ") + "." : "");
  state.read = cluster.read;
  if (state.unseen.join() !== cluster.unseen.join()) {
    state.unseen = cluster.unseen;
    state.eventsDirty = true;
    if (state.pools) drawPools(state.pools);
    if (state.machines) drawMachines(state.machines);
  }
  if (state.live) filter();
}

// --- Details ------------------------------------------------------------------------------------------------------

function open(row) {
  state.shown = row.id;
  drawDetails(row);
  byId("details").showModal();
  byId("details-body").scrollTop = 0;
}

function drawDetails(row) {
  const way = row.way;
  write(byId("details-kind"), way.claim ? "claim" : "volume without a claim");
  write(byId("details-title"), (way.namespace ? way.namespace + "/" : "") + way.name);
  const body = byId("details-body");
  const open = body.querySelector("details") && body.querySelector("details").open;
  body.replaceChildren(...reasons(way, open), make("h3", { text: "Time line" }), timeline(way), make("h3", { text: "Objects" }), ...objects(way), ...said(way));
}

function reasons(way, open) {
  if (!way.why) return [make("h3", { text: "Why" }), make("p", { text: "It is being looked at." })];
  const why = make("div", { class: "why", "data-tone": way.tone }, make("p", {}, ...sentence(way.why.sentence)));
  if (way.why.fix.length) why.append(make("p", { class: "fix" }, make("b", { text: label(way.tone) })), make("ul", { class: "fixes" }, ...way.why.fix.map((fix) => make("li", {}, ...rich(fix)))));
  const chain = make("ul", { class: "chain", role: "list" }, ...way.why.chain.map((link) => {
    const item = make("li", { "data-tone": link.tone }, make("p", { class: "of", text: link.subject }), make("p", { text: link.sentence }),
      make("ul", { role: "list" }, ...link.evidence.map((line) => make("li", { text: line }))));
    item.style.marginLeft = Math.min(4, link.depth) * 14 + "px";
    return item;
  }));
  const evidence = make("details", {}, make("summary", { text: "Who waits for whom, and what shows it" }), chain);
  evidence.open = Boolean(open);
  const unseen = way.why.unseen.length ? make("p", { class: "same", text: "Could not look at " + way.why.unseen.join("; ") }) : null;
  const same = make("p", { class: "same" }, "The same in a terminal: ", make("code", { text: way.why.command }));
  return [make("h3", { text: "Why" }), why, evidence, same, unseen].filter(Boolean);
}

function objects(way) {
  const all = [["claim", way.claim], ["volume", way.volume]];
  for (const branch of way.branches) {
    all.push(["attachment", branch.attachment], ["node", branch.node], ...branch.pods.map((pod) => ["pod", pod]));
  }
  return all.filter(([, data]) => data).map(([kind, data]) => {
    const facts = data.facts.flatMap(([name, value]) => [make("dt", { text: name }), make("dd", { text: value })]);
    return make("section", { class: "facts", "data-tone": data.tone },
      make("header", {}, sign("kind-" + kind), make("b", { text: data.name || kind }), make("span", { text: data.state })), make("dl", {}, ...facts));
  });
}

function said(way) {
  const names = new Set([way.claim && "PersistentVolumeClaim/" + way.name, way.volume && "PersistentVolume/" + way.volume.name]);
  for (const branch of way.branches) {
    if (branch.attachment) names.add("VolumeAttachment/" + branch.attachment.name);
    for (const pod of branch.pods) names.add("Pod/" + pod.name);
  }
  const own = [...events.values()].filter((event) => names.has(event.kind + "/" + event.name) && (!event.namespace || !way.namespace || event.namespace === way.namespace || event.kind === "PersistentVolume"));
  if (!own.length) return [];
  return [make("h3", { text: "Events" }), make("ol", { role: "list" }, ...newest(own, 20).map(drawEvent))];
}

// --- What the server says -----------------------------------------------------------------------------------------

function put(items) {
  for (const item of items) {
    if (state.swept) state.swept.delete(item.id);
    if (item.type === "way") putWay(item);
    else if (item.type === "event") { events.set(item.id, item); state.eventsDirty = true; }
    else if (item.type === "pools") { state.pools = item; drawPools(item); }
    else if (item.type === "machines") { state.machines = item; drawMachines(item); }
    else if (item.type === "cluster") drawCluster(item);
  }
  schedule();
}

function putWay(way) {
  const text = JSON.stringify(way);
  let row = rows.get(way.id);
  if (row && row.text === text) return;
  if (!row) {
    row = newRow(way.id);
    rows.set(way.id, row);
  } else if (state.live) {
    announce(row.way, way);
  }
  row.text = text;
  row.way = way;
  row.words = (way.id + " " + way.tone + " " + spoken(way)).toLowerCase();
  state.dirty.add(way.id);
}

function remove(ids) {
  for (const id of ids) {
    if (events.delete(id)) state.eventsDirty = true;
    const row = rows.get(id);
    if (!row) continue;
    rows.delete(id);
    if (state.live && row.way.claim) say(title(row.way) + " is gone");
    state.dirty.add(id);
  }
  schedule();
}

let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  // A page in the background is not drawn, and must not collect work either.
  (document.hidden ? (work) => setTimeout(work, 250) : requestAnimationFrame)(render);
}

function render() {
  scheduled = false;
  if (state.dirty.size) {
    for (const id of state.dirty) if (rows.has(id)) draw(rows.get(id));
    count();
    arrange();
  }
  const dialog = byId("details");
  if (dialog.open && (state.dirty.has(state.shown) || state.eventsDirty)) {
    if (rows.has(state.shown)) drawDetails(rows.get(state.shown));
    else dialog.close();
  }
  state.dirty.clear();
  if (state.eventsDirty) { state.eventsDirty = false; drawEvents(); }
}

// --- For those who listen -----------------------------------------------------------------------------------------

const title = (way) => (way.namespace ? way.namespace + "/" : "") + way.name;
const words = [];
let speaking = 0;

function announce(old, now) {
  const states = (way) => [way.claim && "claim " + way.claim.state, way.volume && "volume " + way.volume.state,
    ...way.branches.flatMap((branch) => [branch.attachment && branch.attachment.state, ...branch.pods.map((pod) => "pod " + pod.name + " " + pod.state)])].filter(Boolean);
  const was = new Set(states(old));
  const changed = states(now).filter((text) => !was.has(text));
  if (changed.length) say(title(now) + ": " + changed.join(", "));
}

/** Changes are told together, so that a busy cluster does not talk without end. */
function say(text) {
  words.push(text);
  if (speaking) return;
  speaking = setTimeout(() => {
    speaking = 0;
    const told = words.splice(0);
    write(byId("said"), told.slice(0, 3).join(". ") + (told.length > 3 ? ". And " + (told.length - 3) + " other changes." : ""));
  }, 700);
}

// --- Staying live -------------------------------------------------------------------------------------------------

let source = null;
let heard = Date.now();

function connect() {
  if (source) source.close();
  source = new EventSource("/events");
  const on = (name, work) => source.addEventListener(name, (event) => { heard = Date.now(); work(JSON.parse(event.data)); });
  on("begin", () => { state.swept = new Set([...rows.keys(), ...events.keys()]); });
  on("put", put);
  on("gone", remove);
  on("tick", () => {});
  on("live", () => {
    if (state.swept) remove(state.swept);
    state.swept = null;
    render();
    state.live = true;
    alive();
    filter();
  });
  source.onerror = () => {
    lost("reconnecting");
    if (source.readyState === EventSource.CLOSED) setTimeout(ask, 2000);
  };
}

function alive() {
  byId("live").dataset.state = "live";
  document.body.dataset.live = "live";
  write(byId("live-text"), "live");
}

function lost(why) {
  const live = byId("live");
  if (live.dataset.state !== "lost") live.dataset.since = clock(Date.now());
  live.dataset.state = "lost";
  document.body.dataset.live = "lost";
  write(byId("live-text"), "not live since " + live.dataset.since + ": " + why);
}

/** A stream that was refused is not tried again by the browser: why it was refused decides. */
async function ask() {
  try {
    const answer = await fetch("/", { method: "HEAD" });
    if (answer.ok) return connect();
    if (answer.status === 401) return lost("the token has changed; open the new address");
    lost("the server answers " + answer.status);
  } catch {
    lost("the server cannot be reached");
  }
  setTimeout(ask, 3000);
}

/** A connection may be dead without saying so: the server says something every ten seconds. */
setInterval(() => {
  if (Date.now() - heard > 25000) { heard = Date.now(); lost("nothing was heard"); ask(); }
  for (const row of state.visible) write(row.headline.children[3], summary(row.way));
}, 5000);

// --- Keys and clicks ----------------------------------------------------------------------------------------------

function rowOf(target) {
  const element = target.closest ? target.closest("#ways > li") : null;
  return element ? rows.get(element.dataset.id) : null;
}

byId("ways").addEventListener("click", (event) => {
  const row = rowOf(event.target);
  if (row && !String(window.getSelection())) { rove(row); open(row); }
});

byId("ways").addEventListener("keydown", (event) => {
  const row = rowOf(event.target);
  if (!row) return;
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return open(row); }
  const { visible } = state;
  const at = visible.indexOf(row);
  const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: visible.length - 1, PageDown: at + 8, PageUp: at - 8 };
  if (!(event.key in steps)) return;
  event.preventDefault();
  const next = visible[Math.min(visible.length - 1, Math.max(0, steps[event.key]))];
  rove(next);
  next.box.focus();
});

byId("details").addEventListener("close", () => {
  const row = rows.get(state.shown);
  state.shown = null;
  if (row && row.element.isConnected) { rove(row); row.box.focus({ preventScroll: true }); }
});
byId("details").addEventListener("click", (event) => { if (event.target === byId("details")) byId("details").close(); });
byId("close").addEventListener("click", () => byId("details").close());
byId("filter").addEventListener("input", filter);
byId("namespace").addEventListener("change", filter);
document.querySelector(".chips").addEventListener("click", (event) => {
  const chip = event.target.closest(".chip");
  if (!chip) return;
  state.tone = state.tone === chip.dataset.tone ? "" : chip.dataset.tone;
  for (const other of document.querySelectorAll(".chip")) other.setAttribute("aria-pressed", String(other.dataset.tone === state.tone));
  filter();
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !typing && !byId("details").open) { event.preventDefault(); byId("filter").focus(); }
  if (event.key === "Escape" && event.target === byId("filter")) { byId("filter").value = ""; filter(); }
  if (event.key === "ArrowDown" && event.target === byId("filter")) {
    const first = state.visible[0];
    if (first) { event.preventDefault(); rove(first); first.box.focus(); }
  }
});

connect();
