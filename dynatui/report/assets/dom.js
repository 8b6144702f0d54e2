// The only ways in which scripts add to the page: elements and attributes of names that stand here in the scripts, and
// text as text. Nothing of the data is ever a name or markup.

const byId = (id) => document.getElementById(id);

function furnished(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const html = (name, attributes = {}, ...children) => furnished(document.createElement(name), attributes, children);

const svg = (name, attributes = {}, ...children) =>
  furnished(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const shortened = (text, most) => {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
};

const visible = (text) => text.replace(/^ | $/g, "␣");

const counted = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;
