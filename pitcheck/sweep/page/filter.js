(() => {
  const form = document.getElementById("filter");
  const rows = [...document.querySelectorAll("tr[data-status]")];
  const text = form.elements.namedItem("text");
  const apply = () => {
    const statuses = new Set(
      [...form.querySelectorAll("input[name=status]:checked")].map((box) => box.value));
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const name = row.dataset.name.toLowerCase();
      row.hidden = !(statuses.has(row.dataset.status) && words.every((word) => name.includes(word)));
      shown += !row.hidden;
    }
    document.getElementById("shown").textContent = `${shown} of ${rows.length} shown`;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", apply);
  for (const link of document.querySelectorAll("a[data-words]"))
    link.addEventListener("click", () => { text.value = link.dataset.words; apply(); });
  apply();
})();
