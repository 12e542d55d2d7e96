// Airflow shows this page in a frame that may not open other pages of Airflow around it. A link of the outer page may.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (!link || window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const outer = window.parent.document.createElement("a");
  outer.href = link.href;
  window.parent.document.body.append(outer);
  outer.click();
  outer.remove();
});

// The list of pipelines, and a run that was started here: look again, but not while somebody writes or selects.
const waiting = document.querySelector("[data-reload]");
if (waiting) {
  let touched = false;
  document.addEventListener("input", () => (touched = true));
  setInterval(() => touched || document.hidden || location.reload(), 1000 * Number(waiting.dataset.reload));
}

// A button beside each command puts it on the clipboard. Browsers give a page without https none: then it is selected.
// What the command leaves to you is a field in it: no command is copied unfinished.
const quoted = (value) => (/^[\w.:\/-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`);
for (const command of document.querySelectorAll(".command")) {
  const code = command.querySelector("code");
  const button = document.createElement("button");
  button.type = "button";
  const words = code.textContent;
  const say = (word) => {
    button.textContent = word;
    button.setAttribute("aria-label", `${word} ${words}`);
  };
  const fields = [...code.querySelectorAll("var")].map((left) => {
    const field = document.createElement("input");
    field.placeholder = left.textContent === "TEXT" ? "your reason" : left.textContent;
    field.setAttribute("aria-label", `${field.placeholder}, for ${words}`);
    field.addEventListener("input", () => say("copy"));
    left.replaceChildren(field);
    return field;
  });
  say("copy");
  button.addEventListener("click", async () => {
    const empty = fields.find((field) => !field.value.trim());
    if (empty) {
      say("fill in first");
      empty.focus();
      return;
    }
    const copy = code.cloneNode(true);
    copy.querySelectorAll("var").forEach((left, at) => left.replaceWith(quoted(fields[at].value.trim())));
    try {
      await navigator.clipboard.writeText(copy.textContent);
      say("copied");
    } catch {
      code.textContent = copy.textContent;
      getSelection().selectAllChildren(code);
      say("selected");
    }
  });
  command.append(button);
}
