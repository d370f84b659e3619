// Tooltips of the charts, and the filter of the limits. The page is complete without them.
const tip = document.getElementById("tip");
const number = new Intl.NumberFormat("en");

for (const figure of document.querySelectorAll("figure[data-series]")) {
  const counts = figure.dataset.series.split(" ").map((pair) => pair.split(",").map(Number));
  const start = Number(figure.dataset.start);
  const length = Number(figure.dataset.seconds) * 1000;
  const cursor = figure.querySelector(".cursor");
  const hide = () => {
    tip.hidden = true;
    cursor.setAttribute("d", "");
  };
  for (const chart of figure.querySelectorAll("svg.bars")) {
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const i = Math.floor((event.clientX - box.left) / box.width * counts.length);
      if (!counts[i]) return hide();
      const [allowed, denied] = counts[i];
      const at = new Date(start + i * length).toISOString().replace("T", " ").slice(0, length < 10_000 ? 23 : 19);
      tip.textContent = `${at}: ${number.format(allowed)} allowed, ${number.format(denied)} denied`;
      tip.hidden = false;
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4)) + "px";
      tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
      const x = ((i + 0.45) / counts.length * 1000).toFixed(1);
      cursor.setAttribute("d", `M${x} 0V100`);
    });
    chart.addEventListener("pointerleave", hide);
  }
}

const filter = document.getElementById("filter");
const rows = [...document.querySelectorAll("#table tbody tr")];
document.getElementById("filter-field").hidden = rows.length < 6;
filter.addEventListener("input", () => {
  const wanted = filter.value.trim().toLowerCase();
  for (const row of rows) row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(wanted);
});
