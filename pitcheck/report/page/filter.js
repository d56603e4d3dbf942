
(() => {
  const form = document.getElementById("filter");
  if (!form) return;
  const cards = [...document.querySelectorAll("article[data-code]")];
  const chosen = (name) =>
    new Set([...form.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value));
  const apply = () => {
    const codes = chosen("code"), severities = chosen("severity");
    for (const card of cards)
      card.hidden = !(codes.has(card.dataset.code) && severities.has(card.dataset.severity));
    const shown = cards.filter((card) => !card.hidden).length;
    document.getElementById("shown").textContent = `${shown} of ${cards.length} shown`;
  };
  form.hidden = false;
  form.addEventListener("change", apply);
  apply();
})();
