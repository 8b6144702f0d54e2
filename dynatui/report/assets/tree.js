// The tree of a round, from left to right: a column a level. The accepted path and the bonus token are the first line.

const MOST_NODES = 256;
const COLUMN = 132, LINE = 30, INDENT = 12, LETTERS = 10;

const middle = (line) => line * LINE + 20;

const percent = (chance) => (chance < 100 ? "<1%" : `${Math.round(chance / 100)}%`);

// Nodes that are drawn: the accepted ones first, then in their order, which is level by level.
function drawnNodes(tree) {
  const drawn = new Set([0, ...tree.accepted]);
  for (let node = 1; node < tree.parents.length && drawn.size < MOST_NODES; node += 1)
    if (drawn.has(tree.parents[node])) drawn.add(node);
  return drawn;
}

// What is drawn of a round: each node with its parent and kind, parents before children, the bonus token last.
function nodesOf(lane, round, texts) {
  const tree = lane.trees[round], accepted = new Set(tree.accepted), lookedUp = new Set(tree.looked_up);
  const nodes = [...drawnNodes(tree)].sort((one, other) => one - other).map((id) => ({
    id,
    parent: tree.parents[id],
    piece: texts[tree.pieces[id]],
    chance: tree.chances[id],
    lookedUp: lookedUp.has(id),
    kind: accepted.has(id) ? "accepted" : id === 0 && !lane.root_is_drafted ? "root" : "rejected",
  }));
  const written = lane.texts[round], kept = lane.kept[round];
  if (kept < written.length)
    nodes.push({
      id: tree.parents.length,
      parent: tree.accepted.at(-1) ?? (lane.root_is_drafted ? -1 : 0),
      piece: texts[written[kept]],
      kind: "bonus",
    });
  return nodes;
}

// Gives each node its column and line.
function laidOut(nodes) {
  const byNumber = new Map(nodes.map((node) => [node.id, { ...node, children: [] }]));
  const tops = [];
  for (const node of byNumber.values()) {
    const parent = byNumber.get(node.parent);
    node.column = parent ? parent.column + 1 : 0;
    const siblings = parent ? parent.children : tops;
    if (node.kind === "accepted" || node.kind === "bonus") siblings.unshift(node);
    else siblings.push(node);
  }
  let line = -1;
  const waiting = tops.reverse();
  while (waiting.length) {
    const node = waiting.pop();
    const parent = byNumber.get(node.parent);
    node.line = parent && parent.children[0] === node ? parent.line : (line += 1);
    waiting.push(...[...node.children].reverse());
  }
  return { nodes: [...byNumber.values()], byNumber, lines: line + 1 };
}

function shapeOf({ kind, lookedUp }, x, y) {
  if (kind === "root") return svg("rect", { class: kind, x: x - 5, y: y - 5, width: 10, height: 10 });
  if (kind === "bonus") return svg("path", { class: kind, d: `M${x} ${y - 6}l6 6-6 6-6-6z` });
  if (lookedUp) return svg("polygon", { class: kind, points: `${x - 6},${y + 5} ${x},${y - 6} ${x + 6},${y + 5}` });
  return svg("circle", { class: kind, cx: x, cy: y, r: kind === "accepted" ? 5.5 : 4.5 });
}

function edge(from, to, kind) {
  const [x0, y0, x1, y1] = [from.column, from.line, to.column, to.line].map((value, place) =>
    place % 2 ? middle(value) : value * COLUMN + INDENT);
  const path = y0 === y1 ? `M${x0} ${y0}H${x1}` : `M${x0} ${y0}C${x0 + 4} ${y1} ${x0 + 4} ${y1} ${x0 + 24} ${y1}H${x1}`;
  return svg("path", { class: `edge ${kind}`, d: path });
}

function label(node, x, y) {
  const shown = svg("text", { class: `piece ${node.kind}`, x: x + 9, y: y - 6 }, shortened(visible(node.piece), LETTERS));
  if (node.chance !== undefined && node.kind !== "root")
    shown.append(svg("tspan", { class: "chance", dx: 6 }, percent(node.chance)));
  const drafted = node.chance === undefined ? "" : `${node.lookedUp ? ", looked up in the text" : ""}, ${(node.chance / 100).toFixed(2)} % after the token before it`;
  shown.append(svg("title", {}, `“${visible(node.piece)}”: ${node.kind}${node.kind === "root" ? ", the last token of the text" : drafted}`));
  return shown;
}

function treePanel(host, note, texts) {
  function show(lane, round) {
    const tree = lane.trees[round];
    host.replaceChildren();
    note.textContent = remark(lane, round);
    if (!tree || !lane.drafts) return;
    const { nodes, byNumber, lines } = laidOut(nodesOf(lane, round, texts));
    const columns = Math.max(...nodes.map((node) => node.column)) + 1;
    const size = { width: columns * COLUMN + INDENT, height: lines * LINE + 6 };
    const drawing = svg("svg", { ...size, role: "img", "aria-label": spoken(nodes) });
    const behind = ["rejected", "bonus", "accepted"];
    for (const kind of behind)
      for (const node of nodes.filter((each) => each.kind === kind && byNumber.has(each.parent)))
        drawing.append(edge(byNumber.get(node.parent), node, kind));
    for (const node of nodes) {
      const x = node.column * COLUMN + INDENT, y = middle(node.line);
      drawing.append(shapeOf(node, x, y), label(node, x, y));
    }
    host.append(drawing);
  }

  function remark(lane, round) {
    if (round < 0) return "No round was decoded.";
    if (!lane.drafts) return "This method does not tell what it drafted.";
    const guesses = lane.trees[round].parents.length - (lane.root_is_drafted ? 0 : 1);
    if (guesses === 0) return "Nothing was drafted in this round: the target wrote one token by itself.";
    const left = lane.trees[round].parents.length - drawnNodes(lane.trees[round]).size;
    const limit = lane.limits[round];
    const found = lane.trees[round].looked_up.length ? "Triangles were looked up in the text. " : "";
    return found + (left ? `${left} more rejected, not drawn. ` : "") +
      (limit ? `What kept the most probable path from growing: ${limit}.` : "");
  }

  function spoken(nodes) {
    const named = (kind) => nodes.filter((node) => node.kind === kind).map((node) => `“${node.piece}”`).join(", ");
    const rejected = nodes.filter((node) => node.kind === "rejected").length;
    return `Accepted: ${named("accepted") || "none"}. Bonus: ${named("bonus") || "none"}. Rejected: ${rejected}.`;
  }

  return { show };
}
