// The text of a method: a token an element, shown by the round that wrote it.

function textPanel(host, texts, choose) {
  let rounds = [];
  let shown = -1;

  function token(number, place, kept, drafts, round) {
    const text = texts[number];
    const origin = place < kept ? "accepted" : drafts ? "bonus" : "plain";
    const said = { accepted: "an accepted guess", bonus: "the target's own token", plain: "tokens of this round" }[origin];
    const ends = /^\n+$/.test(text) ? " line-end" : "";
    const made = html("span", { class: `token ${origin}${ends}`, title: `round ${round + 1}: ${said}` }, text);
    made.addEventListener("click", () => choose(round));
    made.hidden = true;
    return made;
  }

  function open(run, lane) {
    rounds = lane.texts.map((numbers, round) =>
      numbers.map((number, place) => token(number, place, lane.kept[round], lane.drafts, round)));
    shown = -1;
    host.replaceChildren(html("span", { class: "prompt" }, texts[run.prompt]), ...rounds.flat());
  }

  function show(round) {
    for (let each = Math.max(0, Math.min(shown, round)); each < rounds.length && each <= Math.max(shown, round); each += 1)
      for (const span of rounds[each]) {
        span.hidden = each > round;
        span.classList.toggle("now-of", each === round);
      }
    shown = round;
    follow(rounds[round]?.at(-1));
  }

  function follow(span) {
    if (!span) return;
    const own = span.getBoundingClientRect(), around = host.getBoundingClientRect();
    if (own.top < around.top || own.bottom > around.bottom) host.scrollTop += own.bottom - around.bottom + around.height / 3;
  }

  return { open, show };
}
