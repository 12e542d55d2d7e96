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

// A group that somebody has opened stays open when the list is looked at again.
for (const group of document.querySelectorAll("details[data-group]")) {
  const key = `tidemark group ${group.dataset.group}`;
  group.open = sessionStorage.getItem(key) !== null;
  group.addEventListener("toggle", () =>
    group.open ? sessionStorage.setItem(key, "open") : sessionStorage.removeItem(key),
  );
}

// A button beside each command puts it on the clipboard. Browsers give a page without https none: then it is selected.
for (const command of document.querySelectorAll(".command")) {
  const code = command.querySelector("code");
  const button = document.createElement("button");
  button.type = "button";
  const say = (word) => {
    button.textContent = word;
    button.setAttribute("aria-label", `${word} ${code.textContent}`);
  };
  say("copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      say("copied");
    } catch {
      getSelection().selectAllChildren(code);
      say("selected");
    }
  });
  command.append(button);
}
