// Lines over an axis, with a cursor at the present place. A series has values at places; `steps` holds each until the next.

const LEFT = 44, RIGHT = 10, TOP = 8, BOTTOM = 34, PLOT = 128, LETTER = 6.5, LABEL_LINE = 13, MOST_LABEL_LINES = 3;

function ticks(most, count) {
  const rough = most / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, place) => place * step);
}

const plainNumber = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3))));

// The number of the last place that is at most `limit`, -1 where there is none.
function lastAt(places, limit) {
  let low = 0, high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// Where labels of places go: on the first of a few lines where none is covered; one that finds no room has no line.
function inLines(marks, right) {
  const ends = Array(MOST_LABEL_LINES).fill(-Infinity);
  return marks.map(({ x, label }) => {
    const wide = label.length * LETTER, left = Math.min(x + 3, right - wide);
    const line = ends.findIndex((end) => end < left);
    if (line >= 0) ends[line] = left + wide + LETTER;
    return { x, label, left, line };
  });
}

// chart(host, {series: [{name, look, at, values, steps}], across: {label, most}, up: {label, most}, marks: [{at, label}]})
function chart(host, { series, across, up, marks = [] }) {
  const width = Math.max(240, host.clientWidth), right = width - RIGHT;
  const x = (value) => LEFT + (value / (across.most || 1)) * (right - LEFT);
  const labels = inLines(marks.map(({ at, label }) => ({ x: x(at), label: shortened(label, 24) })), right);
  const top = TOP + LABEL_LINE * (1 + Math.max(-1, ...labels.map(({ line }) => line))), low = top + PLOT, height = low + BOTTOM;
  const y = (value) => low - (Math.min(value, up.most) / (up.most || 1)) * (low - top);
  const drawing = svg("svg", { width, height, role: "img", "aria-label": `${up.label} over ${across.label}` });

  for (const value of ticks(up.most, 4))
    drawing.append(
      svg("path", { class: "grid", d: `M${LEFT} ${y(value)}H${right}` }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, plainNumber(value)));
  for (const value of ticks(across.most, Math.max(2, Math.floor(width / 110))))
    drawing.append(svg("text", { class: "tick", x: x(value), y: low + 15, "text-anchor": "middle" }, plainNumber(value)));
  drawing.append(svg("text", { class: "tick", x: right, y: height - 4, "text-anchor": "end" }, across.label));

  for (const { x: at, label, left, line } of labels) {
    const above = top - LABEL_LINE * Math.max(0, line);
    drawing.append(svg("path", { class: "turn", d: `M${at} ${above}V${low}` }, svg("title", {}, label)));
    if (line >= 0) drawing.append(svg("text", { class: "tick", x: left, y: above - 2 }, label));
  }
  for (const { look, at, values, steps } of series) {
    const path = values.map((value, place) => {
      const to = `${x(at[place]).toFixed(1)} ${y(value).toFixed(1)}`;
      return place === 0 ? `M${to}` : steps ? `H${x(at[place]).toFixed(1)}V${y(value).toFixed(1)}` : `L${to}`;
    });
    drawing.append(svg("path", { class: `line ${look}`, d: path.join("") }));
  }
  const cursor = svg("path", { class: "cursor", d: `M0 ${top}V${low}` });
  const dots = series.map(({ look }) => svg("circle", { class: `dot ${look}`, r: 4 }));
  drawing.append(cursor, ...dots);

  const readings = series.map(() => html("b"));
  const legend = html("ul", { class: "legend" }, ...series.map(({ name, look }, place) =>
    html("li", {}, swatch(look), ` ${name} `, readings[place])));
  host.replaceChildren(drawing, ...(series.some(({ name }) => name) ? [legend] : []));

  // Moves the cursor; tells the value of each series there.
  return (place) => {
    cursor.setAttribute("transform", `translate(${x(Math.min(place, across.most))} 0)`);
    return series.map(({ at, values }, number) => {
      const found = lastAt(at, place);
      dots[number].setAttribute("visibility", found < 0 ? "hidden" : "visible");
      if (found < 0) return (readings[number].textContent = "");
      dots[number].setAttribute("cx", x(at[found]));
      dots[number].setAttribute("cy", y(values[found]));
      readings[number].textContent = plainNumber(values[found]);
      return values[found];
    });
  };
}

const swatch = (look) =>
  svg("svg", { class: "swatch", width: 26, height: 10, "aria-hidden": "true" }, svg("path", { class: `line ${look}`, d: "M1 5H25" }));
